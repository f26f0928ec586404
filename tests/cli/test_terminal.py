#!/usr/bin/env python3
"""snib run on a terminal: who has it, what its keys do, and job control by shells and by other snibs."""
import contextlib
import os
import pty
import re
import resource
import select
import signal
import sys
import tempfile
import termios
import unittest

from command import LEASE, SNIB, CommandCase
from server import wait_for
from test_guard import ALL, STOPS, alive, children, parent, state, switches

PYTHON = sys.executable
NESTED = f"{SNIB} run b --"


class Terminal:
    def __init__(self, descriptor, pid=None):
        self.descriptor = descriptor
        self.pid = pid
        self.unread = ""

    def expect(self, pattern):
        """Read until the pattern appears; return everything up to its end."""
        while not (found := re.search(pattern, self.unread)):
            ready, _, _ = select.select([self.descriptor], [], [], 60)
            try:
                more = os.read(self.descriptor, 1000).decode() if ready else ""
            except OSError: # all processes on the other side have closed it
                more = ""
            if not more:
                raise AssertionError(f"the terminal gave no {pattern!r} but {self.unread!r}")
            self.unread += more
        text, self.unread = self.unread[:found.end()], self.unread[found.end():]
        return text

    def write(self, data):
        os.write(self.descriptor, data)

    def belongs_to(self, name):
        """Whether the leader of the foreground group is a process of this name."""
        try:
            with open(f"/proc/{os.tcgetpgrp(self.descriptor)}/comm") as file:
                return file.read() == name + "\n"
        except FileNotFoundError: # nobody is left of the group
            return False


def reap(pid):
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def heeds(pid, number):
    """Whether it is a snib, no longer a shell's child, and has blocked this signal to read it."""
    with open(f"/proc/{pid}/status") as file:
        status = file.read()
    return "Name:\tsnib\n" in status and int(re.search(r"SigBlk:\s+(\w+)", status)[1], 16) >> number - 1 & 1


# Reads lines from the terminal.
READER = """
import os, signal, sys
print("ready", flush=True)
for line in sys.stdin:
    print("got", line, end="", flush=True)
"""

# The same, for a handler of signals: one that came just before read() would run after the next line.
ALERT = """
import os, select, signal, sys
def typed():
    while not select.select([0], [], [], .02)[0]: pass
    return sys.stdin.readline()
""" + READER.replace("sys.stdin", "iter(typed, '')")

# Prints its process group and the one that has the terminal.
WHOSE = r"cut -d\  -f5,8 /proc/self/stat"

# It suspends as some editors do.
EDITOR = """
import os, signal, sys
signal.signal(signal.SIGTSTP, lambda *_: os.kill(0, signal.SIGSTOP))
""" + ALERT

# The same, but it takes the terminal without being stopped for it.
TAKER = """
import os, signal
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
os.tcsetpgrp(0, os.getpgrp())
""" + READER


class JobControl(CommandCase):
    def python(self, script):
        """A command line that runs a Python script.  Shells are poor subjects for job control:
        children of vfork(), and the shell between two commands, react unpredictably."""
        path = f"{self.folder.name}/script.py"
        with open(path, "w") as file:
            file.write(script)
        return f"{PYTHON} {path}"

    def on_terminal(self, script, job_control=True, shell="bash", environment={}):
        """Run a shell's script on a private terminal."""
        pid, descriptor = pty.fork()
        if pid == 0:
            os.environ.update({**self.env, **environment})
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            os.execvp(shell, [shell, "-mc" if job_control else "-c", script])
        self.addCleanup(os.close, descriptor)
        self.addCleanup(reap, pid)
        return Terminal(descriptor, pid)

    @contextlib.contextmanager
    def silent(self):
        """The server answers nobody."""
        self.server.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.server.process.send_signal(signal.SIGCONT)

    # ---- from the start --------------------------------------------------------------------------

    def test_terminal_from_the_start(self):
        """If nobody else could want it: programs such as wget and git only look whether they have it."""
        for call, has in (("{}", True), ("{} </dev/null", True), ("sh -c 'exec {}'", True), (NESTED + " {}", True),
                          (f"{NESTED} {SNIB} run c -- {{}}", True), ("trap '' TTIN TTOU; {}", True), ("{} | cat", False),
                          ("sleep 1000 | {}", False), ("sh -c '{}; :'", False), ("{} & wait $!", False)):
            with self.subTest(call=call):
                terminal = self.on_terminal(f"{call.format(f'{SNIB} run a -- {WHOSE}')}; echo code $?; read line; echo last $line")
                group, owner = re.search(r"(\d+) (\d+)\r\n", terminal.expect(r"\d+ \d+\r\n")).groups()
                self.assertEqual(group == owner, has)
                if "sleep" in call:
                    terminal.write(b"\x03")
                    continue
                terminal.expect("code 0")
                self.assertTrue(terminal.belongs_to("bash"))
                terminal.write(b"x\n")
                terminal.expect("last x")

    def test_group_of_another_process_namespace(self):
        """Its number is 0 here, so it could not be given the terminal back."""
        words = "unshare --pid --fork --mount-proc"
        terminal = self.on_terminal(f"{words} true && echo can; {words} {SNIB} run a -- {WHOSE}; echo code $?; read line; "
                                    "echo last $line", False)
        text = terminal.expect("code \\d+")
        if "can" not in text:
            self.skipTest("needs the right to make a process namespace")
        group, owner = re.search(r"(\d+) (\d+)\r\n", text).groups()
        self.assertNotEqual(group, owner)
        terminal.write(b"x\n")
        terminal.expect("last x")

    def test_terminal_from_the_start_after_a_wait(self):
        """Which was interrupted: what counts is who has the terminal when the lock is granted."""
        for resume, has in ("fg", True), ("bg; wait", False):
            with self.subTest(resume=resume):
                holder = self.start("hold", "a")
                self.assertIn("holding", holder.stdout.readline())
                terminal = self.on_terminal(f"{SNIB} run a -q -- {WHOSE}; echo stopped $?; {resume}; echo code $?")
                wait_for(lambda: self.server("PUBSUB", "CHANNELS"), "the waiter")
                terminal.write(b"\x1a")
                terminal.expect("stopped 148")
                wait_for(lambda: state(children(terminal.pid)[0]) != "T", "the waiter to go on")
                holder.terminate()
                group, owner = re.search(r"(\d+) (\d+)\r\n", terminal.expect(r"\d+ \d+\r\n")).groups()
                self.assertEqual(group == owner, has)
                terminal.expect("code 0")
                self.assertFree("a")

    def test_stop_of_one_that_never_asks(self):
        """It goes on in the background, and in the foreground it has the terminal again."""
        script = ("import os, signal, time\n"
                  "def tell(*_): os.write(1, b'mine\\n' if os.tcgetpgrp(0) == os.getpgrp() else b'not mine\\n')\n"
                  "signal.signal(signal.SIGCONT, tell)\n"
                  "tell()\n"
                  f"while not os.path.exists('{self.folder.name}/go'): time.sleep(.01)\n")
        for call in "{}", NESTED + " {}":
            with self.subTest(call=call):
                terminal = self.on_terminal(f"{call.format(f'{SNIB} run a -- {self.python(script)}')}; echo stopped $?; read line; "
                                            "bg; read line; kill -TSTP %1; wait %1; fg; echo code $?; read line; echo last $line")
                self.assertNotIn("not", terminal.expect("mine"))
                terminal.write(b"\x1a")
                terminal.expect("stopped 148")
                self.assertTrue(terminal.belongs_to("bash"))
                terminal.write(b"\n")
                terminal.expect("not mine")
                terminal.write(b"\n")
                terminal.expect("snib run")
                self.assertNotIn("not", terminal.expect("mine"))
                self.go()
                terminal.expect("code 0")
                os.remove(f"{self.folder.name}/go")
                terminal.write(b"x\n")
                terminal.expect("last x")

    def test_interrupt_of_one_that_never_asks(self):
        """Each level dies of it, and this shell, which runs a script, goes on no more: as without snib."""
        script = ("import os, signal, time\nsignal.signal(signal.SIGINT, signal.SIG_DFL)\n"
                  "os.write(1, b'ready\\n')\ntime.sleep(1000)\n")
        for call in "{}", NESTED + " {}", f"{NESTED} sh -c '{{}}; echo after'":
            with self.subTest(call=call):
                terminal = self.on_terminal(f"{call.format(f'{SNIB} run a -- {self.python(script)}')}; echo code $?")
                terminal.expect("ready")
                terminal.write(b"\x03")
                end = wait_for(lambda: os.waitid(os.P_PID, terminal.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT), "the end")
                self.assertEqual(end.si_status, 128 + signal.SIGINT)
                self.assertFree("a")

    def test_loss_while_it_has_the_terminal(self):
        """The shell has it again, with its modes."""
        script = "import os, signal, tty\ntty.setraw(0)\nos.write(1, b'ready')\nsignal.pause()\n"
        terminal = self.on_terminal(f"{SNIB} run a --lease {LEASE} -- {self.python(script)}; echo code $?; read line; "
                                    "echo last $line")
        terminal.expect("ready")
        self.assertFalse(termios.tcgetattr(terminal.descriptor)[3] & termios.ICANON)
        self.server("DEL", "a")
        terminal.expect("lock lost while the command ran: ")
        terminal.expect("code 123")
        self.assertTrue(termios.tcgetattr(terminal.descriptor)[3] & termios.ICANON)
        terminal.write(b"x\n")
        terminal.expect("last x")

    def test_snib_that_is_killed(self):
        """Whoever called it has the terminal again soon, a script that called it, too."""
        until = f"while set -- $({WHOSE}); test $1 != $2; do sleep .02; done"
        for job_control in True, False:
            with self.subTest(job_control=job_control):
                terminal = self.on_terminal(f"{SNIB} run a --lease {LEASE} -- {self.python(READER)}; echo code $?; {until}; "
                                            "read line; echo last $line", job_control)
                terminal.expect("ready")
                terminal.write(b"one\n")
                terminal.expect("got one")
                os.kill(parent(parent(os.tcgetpgrp(terminal.descriptor))), signal.SIGKILL)
                terminal.expect("code 137")
                wait_for(lambda: not alive("a"), "the end of the command") # which could get the next line: it is reading
                self.assertTrue(terminal.belongs_to("bash"))
                terminal.write(b"x\n")
                terminal.expect("last x")
                self.assertFree("a")

    def test_terminal_that_is_closed(self):
        script = f"trap 'touch {self.folder.name}/hung_up; exit 3' HUP; echo ready; while :; do sleep .02; done"
        terminal = self.on_terminal(f"{SNIB} run a -- sh -c \"{script}\"; echo code $?")
        terminal.expect("ready")
        with open(os.devnull) as null:
            os.dup2(null.fileno(), terminal.descriptor)
        wait_for(lambda: os.path.exists(f"{self.folder.name}/hung_up"), "the hangup")
        self.assertFree("a")

    def one_step(self, role, n, number):
        """A signal at the n-th system call of one of its processes.  False: it had fewer calls."""
        mark = f"{self.folder.name}/{role}-{n}-{number:d}"
        stop = f"SNIB_STOP={role}:{n}:{number:d}:{mark} LD_PRELOAD={STOPS}"
        terminal = self.on_terminal(f"{stop} {SNIB} run a -- {WHOSE}; echo code $?; fg; echo code $?; "
                                    "read line; echo last $line")
        text = terminal.expect(r"code \d+\r\n(.*\r\n)*.*code \d+\r\n")
        for group, owner in re.findall(r"(\d+) (\d+)\r\n", text):
            if role != 0 or number == signal.SIGTSTP: # or the shell takes it, while the command goes on
                self.assertEqual(group, owner, (role, n, number, text))
        self.assertTrue(terminal.belongs_to("bash"), text)
        terminal.write(b"x\n")
        terminal.expect("last x")
        if (role, number) == (0, signal.SIGKILL): # nobody has released it
            self.server("DEL", "a")
        self.assertFree("a")
        return os.path.exists(mark), text

    def steps(self, role, number, *endings):
        """At all steps, but in a quick run only at some of the later ones."""
        n, more = 1, True
        while more:
            more, text = self.one_step(role, n, number)
            self.assertTrue(any(re.search(ending, text) for ending in endings), (role, n, number, text))
            n += 1 if ALL or n < 16 else 5
        self.assertGreater(n, 8)

    def test_stopped_at_each_step(self):
        """It starts in the foreground, and has the terminal, however late."""
        if not STOPS:
            self.skipTest("SNIB_STOPS names no library to preload (a sanitized build has none)")
        for role in 0, 2:
            self.steps(role, signal.SIGTSTP, r"\d+ \d+\r\n")
            self.steps(role, signal.SIGSTOP, r"\d+ \d+\r\n")

    def test_killed_at_each_step(self):
        if not STOPS:
            self.skipTest("SNIB_STOPS names no library to preload (a sanitized build has none)")
        self.steps(0, signal.SIGKILL, "code 137", "code 0")
        self.steps(1, signal.SIGKILL, "code 125", "code 0")
        self.steps(2, signal.SIGKILL, "code 137", "code 0")

    # ---- when it asks ----------------------------------------------------------------------------

    def test_terminal_is_handed_over_on_demand(self):
        for job_control in (True, False):
            terminal = self.on_terminal(
                f"{SNIB} run a -- sh -c 'echo ready; read line; echo got $line'; echo code $?; "
                "read line; echo after $line", job_control)
            terminal.expect("ready")
            terminal.write(b"one\n")
            terminal.expect("got one")
            terminal.expect("code 0")
            terminal.write(b"two\n") # and the shell has the terminal back
            terminal.expect("after two")
            self.assertFree("a")

    def test_interrupt_from_the_terminal(self):
        for job_control, wait in (True, "while True: time.sleep(.02)"), (False, "input()"): # it has the terminal, or asks for it
            script = ("import os, signal, sys, time\n" # os.write: the signal may come within the line before
                      "def interrupted(*_): os.write(1, b'interrupted\\n'); sys.exit(9)\n"
                      "signal.signal(signal.SIGINT, interrupted)\n"
                      f"os.write(1, b'ready\\n')\n{wait}\n")
            terminal = self.on_terminal(f"{SNIB} run a -- {self.python(script)}; echo code $?", job_control)
            terminal.expect("ready")
            wait_for(lambda: not terminal.belongs_to("bash"), "the hand-over")
            terminal.write(b"\x03")
            terminal.expect("interrupted")
            terminal.expect("code 9")
            self.assertFree("a")

    def test_pipeline_keeps_its_terminal(self):
        terminal = self.on_terminal(
            f"{SNIB} run a -- echo x | (cat; read line < /dev/tty; echo pager got $line)")
        terminal.expect("x")
        terminal.write(b"q\n")
        terminal.expect("pager got q")

    def test_pager_that_asks_for_the_terminal(self):
        """After the command had it: the pipeline stops once, and then the pager has it, not the command that asks no more."""
        asker = ("import os, time\n"
                 "with open('/dev/tty', 'r+b', buffering=0) as terminal: terminal.write(b'password?\\n'); terminal.readline()\n"
                 "print('text', flush=True)\n"
                 f"while not os.path.exists('{self.folder.name}/go'): time.sleep(.01)\n")
        pager = ("import sys\nprint(sys.stdin.readline(), end='', flush=True)\n"
                 "terminal = open('/dev/tty', 'rb', buffering=0)\n"
                 "for i in range(3): print('key', terminal.readline().decode(), end='', flush=True)\n")
        terminal = self.on_terminal(f"{SNIB} run a -- {self.python(asker)} | {PYTHON} -c \"$PAGER\"; echo stopped $?; fg; echo code $?",
                                    environment={"PAGER": pager})
        terminal.expect("password[?]\r\n")
        terminal.write(b"secret\n")
        terminal.expect(r"text\r\n(.*\r\n)*.*stopped \d+")
        for line in b"one", b"two", b"three":
            terminal.write(line + b"\n")
            terminal.expect(f"key {line.decode()}")
        self.go()
        self.assertNotIn("stopped", terminal.expect("code 0"))

    def stop_and_continue(self, lease, while_stopped):
        script = ("import os, sys, time\n"
                  "print('ready', flush=True)\n"
                  f"while not os.path.exists('{self.folder.name}/go'): time.sleep(.01)\n"
                  "print('worked')\nsys.exit(4)\n")
        terminal = self.on_terminal(f"{SNIB} run a --lease {lease} -- {self.python(script)}; "
                                    "echo stopped $?; read line; fg >/dev/null; echo code $?")
        terminal.expect("ready")
        terminal.write(b"\x1a")
        terminal.expect("stopped 148")
        while_stopped()
        self.go()
        terminal.write(b"\n")
        return terminal.expect(r"code \d+\r\n")

    def test_stop_and_continue(self):
        text = self.stop_and_continue("20s", lambda: self.assertEqual(self.server("HLEN", "a"), 1))
        self.assertIn("code 4", text)
        self.assertFree("a")

    def test_loss_while_stopped(self):
        # The command must not continue its work when it is resumed after its lease has ended.
        text = self.stop_and_continue(
            "2s", lambda: wait_for(lambda: self.server("EXISTS", "a") == 0, "the lease to end"))
        self.assertIn("lock lost while the command ran: snib was stopped, ", text)
        self.assertNotIn("worked", text)
        self.assertIn("code 123", text)

    # ---- stopped by a key ------------------------------------------------------------------------

    def reading(self, call, script, job_control=True):
        """A command that has the terminal, in a command line of the shell."""
        terminal = self.on_terminal(call.format(f"{SNIB} run a -- {self.python(script)}"), job_control)
        terminal.expect("ready")
        terminal.write(b"one\n")
        terminal.expect("got one")
        return terminal

    def test_stop_in_a_job(self):
        """All of it stops, whatever it is made of, and continues."""
        for call in "{}", "sh -c '{}; echo after'", "{} | cat", f"{NESTED} {{}}", f"{NESTED} sh -c '{{}}; echo after'":
            for script, code in (READER, 128 + signal.SIGTSTP), (EDITOR, 128 + signal.SIGSTOP), (TAKER, 128 + signal.SIGTSTP):
                with self.subTest(call=call, script=script):
                    terminal = self.reading(call + "; echo stopped $?; read line; fg; read line; echo last $line", script)
                    terminal.write(b"\x1a")
                    terminal.expect(r"stopped \d+" if "|" in call else f"stopped {code}")
                    terminal.write(b"\n")
                    terminal.expect("snib run")
                    terminal.write(b"two\n")
                    terminal.expect("got two")
                    terminal.write(b"\x04")
                    wait_for(lambda: self.server("EXISTS", "a") == 0, "the end")
                    terminal.write(b"three\n") # the shell has the terminal again
                    terminal.expect("last three")

    def test_stopped_more_than_once(self):
        """While snib is stopped, the command is continued by itself and asks for the terminal: that is over with fg."""
        terminal = self.reading("{}; echo stopped $?; read line; fg; echo code $?", READER)
        command = os.tcgetpgrp(terminal.descriptor)
        terminal.write(b"\x1a")
        terminal.expect("stopped 148")
        for _ in range(3):
            before = switches(command)
            os.kill(command, signal.SIGCONT)
            wait_for(lambda: state(command) == "T" and switches(command) > before, "it to be stopped again")
        terminal.write(b"\n")
        terminal.expect("snib run")
        terminal.write(b"two\n")
        terminal.expect("got two")
        terminal.write(b"\x04")
        terminal.expect("code 0")

    def test_stop_of_the_rest(self):
        script = "(while kill -0 $$; do sleep .02; done 2>/dev/null; echo ready; exec sleep 1000) & exit"
        terminal = self.on_terminal(f"{SNIB} run a --rest wait -- sh -c '{script}'; echo stopped $?")
        terminal.expect("ready")
        wait_for(lambda: terminal.belongs_to("snib"), "it to be taken back")
        terminal.write(b"\x1a")
        terminal.expect("stopped 148")

    def rest_that_asks(self, before="", options=""):
        """What a command leaves asks for the terminal when that was taken back; before: other words of it."""
        script = (f"(while kill -0 $$ || {{ set -- $({WHOSE}); test $1 = $2; }}; do sleep .02; done 2>/dev/null; {before}exec cat) "
                  "</dev/tty & exit 3")
        return self.on_terminal(f"{SNIB} run a --rest wait {options} -- sh -c '{script}'; echo code $?")

    def test_the_rest_gets_no_terminal(self):
        """It would wait for it for ever, and hold the lock."""
        self.rest_that_asks().expect("code 3")

    def test_the_rest_that_asks_again(self):
        """It ignores SIGHUP, as with nohup, so it is ended: by SIGTERM, and what ignores that by SIGKILL."""
        for ignored in "HUP", "HUP TERM":
            with self.subTest(ignored=ignored):
                terminal = self.rest_that_asks(f'trap "" {ignored}; ', "--kill-after 100ms")
                text = terminal.expect("code 3")
                self.assertEqual(len(re.findall(r"snib: process \d+ asks again for a terminal", text)), 1, text)
                self.assertFree("a")

    def test_no_shell_could_continue_it(self):
        """Then it is not stopped, as if there were no snib."""
        script = "import os, signal\nsignal.signal(signal.SIGCONT, lambda *_: os.write(1, b'continued'))\n" + ALERT
        terminal = self.reading("exec {}", script, job_control=False)
        for line in b"two", b"three":
            terminal.write(b"\x1a")
            terminal.expect("continued")
            terminal.write(line + b"\n")
            terminal.expect(f"got {line.decode()}")

    def test_no_shell_could_continue_it_after_sigstop(self):
        """The kernel stops even a group by it that no shell could continue: so snib does not, and renews the lock."""
        terminal = self.on_terminal(f"exec {SNIB} run a --lease {LEASE} -- {self.python(READER)}", job_control=False)
        terminal.expect("ready")
        terminal.write(b"one\n")
        terminal.expect("got one")
        command = os.tcgetpgrp(terminal.descriptor)
        snib = parent(parent(command))
        self.assertEqual(snib, terminal.pid)
        os.kill(command, signal.SIGSTOP)
        wait_for(lambda: state(command) == "T", "it to be stopped")
        for _ in range(2):
            self.await_renewal("a")
            self.assertEqual(state(command), "T")
            self.assertNotEqual(state(snib), "T")
        os.kill(command, signal.SIGCONT)
        terminal.write(b"two\n")
        terminal.expect("got two")
        terminal.write(b"\x04")
        self.assertFree("a")

    def orphaned_ask(self, before="", options=""):
        """A command asks for the terminal when the caller of snib has ended; before: more words of that caller.  Returns
        the exit code, and what snib said."""
        out = tempfile.mkdtemp(dir=self.folder.name)
        script = f"touch {out}/ready; until test -e {out}/go; do sleep .02; done; read line </dev/tty"
        run = f"{SNIB} run a {options} -- sh -c \"{script}\" 2>{out}/said"
        terminal = self.on_terminal(f"sh -c '({before}{run}; echo $? >{out}/new; mv {out}/new {out}/code) &'; read line")
        wait_for(lambda: os.path.exists(f"{out}/ready"), "the command")
        wait_for(lambda: os.tcgetpgrp(terminal.descriptor) == terminal.pid, "the end of its caller")
        open(f"{out}/go", "w").close()
        wait_for(lambda: os.path.exists(f"{out}/code"), "the end")
        with open(f"{out}/code") as code, open(f"{out}/said") as said:
            return int(code.read()), said.read()

    def test_no_shell_could_give_it_the_terminal(self):
        """COMMAND would wait for it for ever, and hold the lock."""
        self.assertEqual(self.orphaned_ask(), (128 + signal.SIGHUP, ""))

    def test_no_shell_could_give_it_the_terminal_and_it_asks_again(self):
        """COMMAND ignores SIGHUP, as with nohup, so it is ended by SIGTERM, or if it ignores that, too, by SIGKILL."""
        for ignored, options, number in ("HUP", "", signal.SIGTERM), ("HUP TERM", "--kill-after 100ms", signal.SIGKILL):
            with self.subTest(ignored=ignored):
                code, said = self.orphaned_ask(f'trap "" {ignored}; ', options)
                self.assertEqual(code, 128 + number)
                self.assertRegex(said, r"^snib: process \d+ asks again for a terminal that it cannot have, so [^\n]*\n$")

    # ---- ended -----------------------------------------------------------------------------------

    def test_interrupt_ends_the_caller(self):
        """Whether COMMAND has the terminal or not; bash ends only if what it waits for dies of the signal."""
        for shell, key, number in ("sh", b"\x03", signal.SIGINT), ("bash", b"\x03", signal.SIGINT), ("sh", b"\x1c", signal.SIGQUIT):
            for script in READER, READER.replace("sys.stdin", "iter(signal.pause, 0)"):
                with self.subTest(shell=shell, number=number, has_terminal=script == READER):
                    call = self.python(f"import signal\nsignal.signal({number:d}, signal.SIG_DFL)\n{script}")
                    terminal = self.on_terminal(f"for i in 1 2; do {SNIB} run a -- {call}; done", False, shell)
                    terminal.expect("ready")
                    if script == READER:
                        terminal.write(b"one\n")
                        terminal.expect("got one")
                    terminal.write(key)
                    end = wait_for(lambda: os.waitid(os.P_PID, terminal.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT), "the end")
                    self.assertNotEqual(end.si_code, os.CLD_EXITED)
                    self.assertEqual(end.si_status, number)
                    self.assertFree("a")

    def test_interrupt_and_another_signal(self):
        """COMMAND cleans up before it dies of the signal, and meanwhile the window gets another size."""
        script = ("import os, signal, time\n"
                  "def resized(*_): signal.signal(signal.SIGINT, signal.SIG_DFL); os.kill(os.getpid(), signal.SIGINT)\n"
                  "signal.signal(signal.SIGWINCH, resized)\n"
                  "signal.signal(signal.SIGINT, lambda *_: os.write(1, b'interrupted\\n'))\n"
                  "os.write(1, b'ready\\n')\n"
                  "while True: time.sleep(.02)\n")
        terminal = self.on_terminal(f"for i in 1 2; do {SNIB} run a -- {self.python(script)}; done", False)
        terminal.expect("ready")
        terminal.write(b"\x03")
        terminal.expect("interrupted")
        os.kill(children(terminal.pid)[0], signal.SIGWINCH)
        end = wait_for(lambda: os.waitid(os.P_PID, terminal.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT), "the end")
        self.assertEqual((end.si_code, end.si_status), (os.CLD_KILLED, signal.SIGINT))

    def test_second_interrupt(self):
        """COMMAND survives the first, and then asks on the terminal whether it was meant; or takes it to do so."""
        take = "signal.signal(signal.SIGTTOU, signal.SIG_IGN)\nos.tcsetpgrp(0, os.getpgrp())\n"
        for before in "", take:
            script = ("import os, signal\n"
                      "signal.signal(signal.SIGINT, lambda *_: signal.signal(signal.SIGINT, signal.SIG_DFL))\n"
                      "os.write(1, b'ready\\n')\n"
                      "while signal.getsignal(signal.SIGINT) != signal.SIG_DFL: signal.pause()\n"
                      f"{before}input('really?')\n")
            with self.subTest(before=before):
                terminal = self.on_terminal(f"for i in 1 2; do {SNIB} run a -- {self.python(script)}; done", False)
                terminal.expect("ready")
                terminal.write(b"\x03")
                terminal.expect("really")
                wait_for(lambda: not terminal.belongs_to("bash"), "the hand-over")
                terminal.write(b"\x03")
                end = wait_for(lambda: os.waitid(os.P_PID, terminal.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT), "the end")
                self.assertEqual((end.si_code, end.si_status), (os.CLD_KILLED, signal.SIGINT))

    def test_interrupt_of_a_wait_ends_the_caller(self):
        """Which would go on with its next command."""
        self.hold("a")
        for call in "run a -q -- true", "hold a -q", "top --once", "stats":
            with self.subTest(call=call), self.silent():
                terminal = self.on_terminal(f"for i in 1 2; do {SNIB} {call}; done", False)
                wait_for(lambda: any(heeds(child, signal.SIGINT) for child in children(terminal.pid)), "snib")
                terminal.write(b"\x03")
                end = wait_for(lambda: os.waitid(os.P_PID, terminal.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT), "the end")
                self.assertNotEqual(end.si_code, os.CLD_EXITED)
                self.assertEqual(end.si_status, signal.SIGINT)

    def test_a_forwarded_interrupt_ends_only_the_command(self):
        """It was sent to snib alone, so the others get none."""
        terminal = self.reading("trap 'echo interrupted' INT; {}; echo code $?", READER, job_control=False)
        command = os.tcgetpgrp(terminal.descriptor)
        os.kill(parent(parent(command)), signal.SIGINT)
        self.assertNotIn("interrupted", terminal.expect("code 130"))

    def test_terminal_of_a_killed_command(self):
        """Its own child had it, as a shell's job has, and it could not restore the modes."""
        take = ("signal.signal(signal.SIGTTOU, signal.SIG_IGN)\n"
                "child = os.fork()\n"
                "os.setpgid(child, child)\n"
                "if child == 0: signal.pause()\n"
                "os.tcsetpgrp(0, child)\n")
        raw = "tty.setraw(0)\n"
        for action in take, raw, take + raw:
            with self.subTest(action=action):
                script = ("import os, signal, sys, tty\nprint('ready', flush=True)\nsys.stdin.readline()\n"
                          f"{action}os.kill(os.getpid(), signal.SIGKILL)\n")
                terminal = self.on_terminal(f"{SNIB} run a -- {self.python(script)}; echo code $?; read line; echo last $line",
                                            job_control=False)
                terminal.expect("ready")
                terminal.write(b"one\n")
                terminal.expect("code 137")
                self.assertTrue(termios.tcgetattr(terminal.descriptor)[3] & termios.ICANON)
                terminal.write(b"two\n")
                terminal.expect("last two")

    def test_terminal_that_was_taken_without_asking(self):
        """By a command that ignores SIGTTOU; and by one whose child has it when snib is told to continue."""
        child = ("import os, signal, sys\nprint('ready', flush=True)\nsys.stdin.readline()\n"
                 "signal.signal(signal.SIGTTOU, signal.SIG_IGN)\n"
                 "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCONT])\n"
                 "child = os.fork()\n"
                 "os.setpgid(child, child)\n"
                 "while child == 0: signal.pause()\n"
                 "os.tcsetpgrp(0, child)\n"
                 "print('passed on', flush=True)\n"
                 "signal.sigwait([signal.SIGCONT])\n"
                 "os.kill(child, signal.SIGKILL)\nos.wait()\n"
                 "os.tcsetpgrp(0, os.getpgrp())\n")
        raw = "import os, signal, tty\nos.write(1, b'ready\\n')\ntty.setraw(0)\nos.kill(os.getpid(), signal.SIGKILL)\n"
        for script, code in (child, 0), (TAKER, 0), (TAKER.replace(READER, raw), 137):
            with self.subTest(script=script):
                terminal = self.on_terminal(f"{SNIB} run a -- {self.python(script)}; echo code $?; read line; echo last $line",
                                            job_control=False)
                terminal.expect("ready")
                if script == child:
                    terminal.write(b"one\n")
                    terminal.expect("passed on")
                    os.kill(children(terminal.pid)[0], signal.SIGCONT)
                elif code == 0:
                    terminal.write(b"\x04")
                terminal.expect(f"code {code}")
                self.assertTrue(termios.tcgetattr(terminal.descriptor)[3] & termios.ICANON)
                terminal.write(b"two\n")
                terminal.expect("last two")

    def test_terminal_although_its_signals_are_ignored(self):
        """As in $(...) of an interactive shell: reading would fail instead of stopping the command."""
        terminal = self.reading("trap '' TTIN TTOU; {}; echo code $?; read line; echo last $line", READER, job_control=False)
        terminal.write(b"\x04")
        terminal.expect("code 0")
        terminal.write(b"two\n")
        terminal.expect("last two")
        # In the background there is none to be had, and it goes on without, as if there were no snib.
        script = "stty -echo; read line || echo none; echo end"
        terminal = self.on_terminal(f"trap '' TTIN TTOU; {SNIB} run a -- sh -c '{script}' </dev/tty & wait $!; echo code $?")
        terminal.expect("none")
        terminal.expect("code 0")

    def test_terminal_that_the_shell_has_taken(self):
        """The script that called snib is killed while COMMAND has the terminal: it is not taken back from the shell, which
        could never read again."""
        command = self.python("import os, time\nprint('got', input(), flush=True)\n"
                              "while os.tcgetpgrp(0) == os.getpgrp(): time.sleep(.02)\nos.read(0, 1)\n")
        terminal = self.on_terminal(f"sh -c '{SNIB} run a -- {command}; :'; echo killed; read line; echo after $line")
        terminal.write(b"one\n")
        terminal.expect("got one")
        os.kill(children(terminal.pid)[0], signal.SIGKILL)
        terminal.expect("killed")
        self.assertFree("a") # COMMAND asked for the terminal, and nobody could give it
        self.assertTrue(terminal.belongs_to("bash"))
        terminal.write(b"two\n")
        terminal.expect("after two")

    def test_modes_that_a_command_sets(self):
        """They stay if it ends by itself, as with stty."""
        terminal = self.on_terminal(f"{SNIB} run a -- stty -echo; echo code $?; read line", job_control=False)
        terminal.expect("code 0")
        self.assertFalse(termios.tcgetattr(terminal.descriptor)[3] & termios.ECHO)


if __name__ == "__main__":
    unittest.main()

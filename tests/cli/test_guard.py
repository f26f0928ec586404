#!/usr/bin/env python3
"""No process of COMMAND runs without the lock, however and whenever snib is killed, stopped or delayed."""
import concurrent.futures
import contextlib
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import termios
import time
import unittest

from command import BUSY, LEASE, LOST, SERVER, SNIB, USAGE, CommandCase
from server import Server, wait_for

PYTHON = sys.executable
STOPS = os.environ.get("SNIB_STOPS", "") # the library to be preloaded
ALL = os.environ.get("SNIB_TEST_ALL", "") not in ("", "0")

# A command that leaves processes everywhere: a child, a grandchild, one in a separate session, one whose parent has
# ended, and one that ignores signals.
FAMILY = r"""
import os, signal, sys, time
def spawn(what):
    if os.fork() == 0:
        what()
        os.write(1, b"up\n")
        time.sleep(1000)
spawn(lambda: None)
spawn(os.setsid)
spawn(lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN))
if os.fork() == 0:
    os.setsid()
    spawn(lambda: None)
    os._exit(0)
"""

# Before FAMILY: a lock of the kernel on a file, which all of them have until the last one has ended.
LOCKED = """
import fcntl
file = open({path!r}, "w")
fcntl.flock(file, fcntl.LOCK_EX)
"""

# The command of another client: 0 if no process of LOCKED is left.
ALONE = """
import fcntl, sys
try:
    fcntl.flock(open({path!r}, "w"), fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    sys.exit(9)
"""


# A command that leaves a process in a separate session, whose first thread has ended: /proc calls it a zombie.
FIRST_THREAD_ENDED = r"""
import ctypes, os, threading, time
reader, writer = os.pipe()
if os.fork():
    os.read(reader, 1)
    os._exit(3)
os.setsid()
def work():
    while open(f"/proc/{os.getpid()}/stat").read().rpartition(")")[2].split()[0] != "Z":
        time.sleep(.01)
    os.write(1, b"ready\n")
    os.write(writer, b"x")
    time.sleep(1000)
threading.Thread(target=work).start()
ctypes.CDLL(None).pthread_exit(None)
"""


# Marks the processes of this run, because the same tests may run in parallel.
os.environ["SNIB_TEST_RUN"] = str(os.getpid())


def state(pid):
    """T: it is stopped."""
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]


def alive(lock):
    """The living processes with this SNIB_LOCK."""
    found = []
    wanted = {f"SNIB_LOCK={lock}".encode(), f"SNIB_TEST_RUN={os.getpid()}".encode()}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if not wanted <= set(file.read().split(b"\0")):
                    continue
            if state(pid) not in "ZX":
                found.append(int(pid))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            pass
    return found


def parent(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(word) for word in file.read().split()]


def switches(pid, which=""):
    """How often it has stopped running; which: "^voluntary_": to wait for something."""
    with open(f"/proc/{pid}/status") as file:
        return sum(int(number) for number in re.findall(rf"(?m){which}ctxt_switches:\s+(\d+)", file.read()))


def any_stopped(pid):
    """Whether a child of this snib's guardian is stopped."""
    try:
        return any(state(child) == "T" for guard in children(pid) for child in children(guard))
    except (FileNotFoundError, ProcessLookupError): # the process has ended meanwhile
        return False


def without_proc(empty):
    """The words before a command that hide /proc, or leave it that of another process namespace; as far as permitted."""
    hide = ["unshare", "--mount"], ["sh", "-c", f'mount --bind "{empty}" /proc && exec "$0" "$@"']
    other = ["unshare", "--pid", "--fork", "--kill-child"], []
    for before, after in (hide, other):
        for root in [], ["--map-root-user"]:
            words = [*before, *root, *after]
            with contextlib.suppress(FileNotFoundError):
                if subprocess.run([*words, "true"], stderr=subprocess.DEVNULL, timeout=60).returncode == 0:
                    yield words
                    break


class Guard(CommandCase):
    def family(self, name, *options, before="", end="time.sleep(1000)"):
        """Start a run of FAMILY; return once all its processes run."""
        process = self.start("run", name, *options, "--", PYTHON, "-c", before + FAMILY + end)
        for _ in range(4):
            self.assertEqual(process.stdout.readline(), "up\n")
        return process

    def free_and_dead(self, name):
        """Check that no process of the command is alive when the lock is free."""
        wait_for(lambda: self.server("EXISTS", name) == 0, f"{name} to be free")
        self.assertEqual(alive(name), [])

    def test_killed_snib(self):
        for i, options in enumerate(((), ("--on-loss", "kill"))):
            process = self.family(f"killed{i}", "--lease", LEASE, *options)
            wait_for(lambda: len(alive(f"killed{i}")) == 5, "the family") # the middle one has ended
            with open(f"/proc/{children(process.pid)[0]}/comm") as file:
                self.assertNotIn("snib", file.read()) # otherwise pkill -9 snib would hit both
            process.kill()
            self.free_and_dead(f"killed{i}")

    def test_killed_snib_gives_time_to_clean_up(self):
        script = (f"trap 'rm -f {self.folder.name}/lock; exit' TERM; touch {self.folder.name}/lock; "
                  "echo ready; while :; do sleep .02; done")
        process = self.hold("tidy", script=script)
        process.kill()
        wait_for(lambda: not alive("tidy"), "the command to end")
        self.assertFalse(os.path.exists(f"{self.folder.name}/lock"))

    def test_descendants_have_time_to_clean_up(self):
        """Although COMMAND, such as a shell, ends at once, or has ended before."""
        script = ("import os, signal, sys, time\n"
                  "def end(*_):\n"
                  "    while os.getppid() == int(sys.argv[2]): time.sleep(.02)\n"
                  "    time.sleep(.3)\n" # for a SIGKILL
                  "    open(sys.argv[1], 'w').close()\n"
                  "    sys.exit()\n"
                  "signal.signal(signal.SIGTERM, end)\n"
                  "print('ready', flush=True)\n"
                  "while True: time.sleep(.02)\n")
        with open(f"{self.folder.name}/script", "w") as file:
            file.write(script)
        for i, (rest, after) in enumerate((("end", "wait"), ("wait", "wait"), ("wait", "exit"))):
            for lease in "40s", LEASE:
                name = f"clean:{i}:{lease}"
                path = f"{self.folder.name}/{name}"
                shell = f"{PYTHON} {self.folder.name}/script {path} $$ & {after}"
                process = self.hold(name, "--rest", rest, "--lease", lease, "--kill-after", "60s", script=shell)
                with self.subTest(rest=rest, after=after, lease=lease):
                    if lease == LEASE:
                        self.server("DEL", name)
                    else:
                        process.kill()
                    wait_for(lambda: not alive(name), "the end")
                    self.assertTrue(os.path.exists(path))

    def test_killed_group(self):
        process = self.start("run", "group", "--lease", LEASE, "--", "sh", "-c",
                             "echo ready; sleep 1000 & sleep 1000", start_new_session=True)
        self.assertEqual(process.stdout.readline(), "ready\n")
        os.killpg(process.pid, signal.SIGKILL)
        self.free_and_dead("group")

    def test_killed_snib_with_loss_ignored(self):
        process = self.hold("ignored", "--on-loss", "ignore", "--lease", LEASE,
                            script=f"echo ready; {self.until_go()}")
        process.kill()
        wait_for(lambda: self.server("EXISTS", "ignored") == 0, "the lease to end")
        self.assertNotEqual(alive("ignored"), [])
        self.go()
        wait_for(lambda: not alive("ignored"), "the command to end")

    def test_children_of_a_shell_that_became_snib(self):
        """They end while snib waits, as in a container's entry point, and snib keeps waiting."""
        holder = self.hold("busy", script=f"echo ready; {self.until_go()}")
        shell = f'(read line <{self.folder.name}/pipe) & exec {SNIB} run busy -q -- echo went'
        os.mkfifo(f"{self.folder.name}/pipe")
        waiter = subprocess.Popen(["sh", "-c", shell], env=self.env, text=True, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.started.append(waiter)
        wait_for(lambda: self.server("PUBSUB", "CHANNELS"), "the waiter")
        child = min(children(waiter.pid)) # the older one
        with open(f"{self.folder.name}/pipe", "w"):
            pass
        wait_for(lambda: not os.path.exists(f"/proc/{child}") or state(child) == "Z", "the child's end")
        self.go()
        self.assertEqual(((0, "went\n"), (0, "")), (self.end(waiter), self.end(holder)))

    def test_killed_guardian(self):
        process = self.family("guardian")
        os.kill(children(process.pid)[0], signal.SIGKILL)
        code, text = self.end(process)
        self.assertEqual(code, USAGE)
        self.assertIn("guardian", text)
        self.free_and_dead("guardian")

    def test_killed_guardian_and_no_descriptors_left(self):
        """/proc can be read all the same, so that nothing of the command runs on without the lock."""
        for limit in range(8, 18):
            with self.subTest(limit=limit):
                name = f"few{limit}"
                process = subprocess.Popen(
                    ["sh", "-c", f'ulimit -n {limit}; exec "$0" "$@"', SNIB, "run", name, "--url", f"{self.server.url}?patience=1s",
                     "--", "sh", "-c", "sleep 1000 >/dev/null & echo ready; sleep 1000"],
                    env=self.env, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
                self.started.append(process)
                if process.stdout.readline():
                    os.kill(children(process.pid)[0], signal.SIGKILL)
                self.assertNotEqual(process.wait(60), 0)
                self.assertEqual(alive(name), [])

    def test_guardian_leaves_older_children_alone(self):
        # A shell that becomes snib by exec has children that do not belong to COMMAND.
        process = subprocess.Popen(
            ["sh", "-c", f"sleep 1000 & echo $!; exec {SNIB} run older -- sh -c 'echo ready; sleep 1000'"],
            env=self.env, text=True, stdout=subprocess.PIPE)
        self.started.append(process)
        older = int(process.stdout.readline())
        self.addCleanup(os.kill, older, signal.SIGKILL)
        self.assertEqual(process.stdout.readline(), "ready\n")
        guardian = [pid for pid in children(process.pid) if pid != older]
        os.kill(guardian[0], signal.SIGKILL)
        self.assertEqual(process.wait(60), USAGE)
        self.free_and_dead("older")
        self.assertIn(state(older), "SR")

    def stalled(self):
        """A terminal after Ctrl-S and a pipe that is full: to write to them is to wait for who reads."""
        master, terminal = pty.openpty()
        termios.tcflow(terminal, termios.TCOOFF)
        reader, pipe = os.pipe()
        os.set_blocking(pipe, False)
        for size in 4096, 1:
            with contextlib.suppress(BlockingIOError):
                while True:
                    os.write(pipe, b"x" * size)
        os.set_blocking(pipe, True)
        for descriptor in master, terminal, reader, pipe:
            self.addCleanup(os.close, descriptor)
        return {"terminal": terminal, "pipe": pipe}

    def test_messages_that_nobody_reads(self):
        """They delay neither the end of COMMAND after a loss nor that of snib after a signal."""
        for name, stderr in self.stalled().items():
            with self.subTest(stderr=name):
                words = [SNIB, "run", name, "--lease", "1h", "--", "sh", "-c", "echo ready; exec sleep 1000 2>&-"]
                process = subprocess.Popen(words, env=self.env, text=True, stdout=subprocess.PIPE, stderr=stderr)
                self.started.append(process)
                self.assertEqual(process.stdout.readline(), "ready\n")
                waiter = subprocess.Popen([SNIB, "run", name, "-v", "--", "true"], env=self.env,
                                          stdout=subprocess.PIPE, stderr=stderr)
                self.started.append(waiter)
                wait_for(lambda: self.server("PUBSUB", "CHANNELS"), "the waiter")
                waiter.terminate()
                self.assertEqual(waiter.wait(60), 128 + signal.SIGTERM)
                self.server("DEL", name)
                self.server("CLIENT", "KILL", "TYPE", "normal") # it renews as soon as it is connected again
                self.assertEqual(process.wait(60), LOST)
                self.assertEqual([], alive(name))

    def test_stopped_snib(self):
        """The next client that gets the lock finds no process of the command, whatever the grace."""
        for i, options in enumerate(((), ("--kill-after", "1d"), ("--kill-after", "0"), ("--on-loss", "kill"))):
            with self.subTest(options=options):
                name = f"stopped{i}"
                path = f"{self.folder.name}/{name}"
                # Nothing precedes the deadline with kill, so only the margin is left for it: 1 % of the lease, and 5 ms.
                lease = "20s" if "kill" in options else LEASE
                process = self.family(name, "--lease", lease, *options, before=LOCKED.format(path=path))
                other = self.start("run", name, "-q", "--", PYTHON, "-c", ALONE.format(path=path))
                wait_for(lambda: self.server("PUBSUB", "CHANNELS"), "the waiter")
                process.send_signal(signal.SIGSTOP)
                self.assertEqual(self.end(other), (0, ""))
                process.send_signal(signal.SIGCONT)
                self.assertEqual(self.end(process)[0], LOST)

    def test_stopped_snib_gives_time_to_clean_up(self):
        """SIGTERM comes so early that the command can end by itself while the lock is held."""
        told = f"{self.folder.name}/told"
        script = (f"trap 'redis-cli -s {self.server.path} EXISTS tidy >{told}; exit' TERM; echo ready; "
                  "while :; do sleep .02; done")
        process = self.hold("tidy", "--lease", LEASE, script=script)
        process.send_signal(signal.SIGSTOP)
        self.free_and_dead("tidy")
        with open(told) as file:
            self.assertEqual(file.read(), "1\n")
        process.send_signal(signal.SIGCONT)
        self.assertEqual(self.end(process)[0], LOST)

    def test_stopped_snib_that_continues_in_time(self):
        """The command has been told to end, so the lock counts as lost; what is left of the lease is released."""
        told = f"{self.folder.name}/told"
        script = f"trap 'touch {told}; exit 3' TERM; echo ready; while :; do sleep .02; done"
        process = self.hold("late", "--lease", "8s", "--kill-after", "1d", script=script)
        process.send_signal(signal.SIGSTOP)
        wait_for(lambda: os.path.exists(told), "SIGTERM, with a quarter of the lease left")
        process.send_signal(signal.SIGCONT)
        self.assertEqual(self.end(process)[0], LOST)
        self.assertFree("late")

    def test_both_stand_still(self):
        """As when the machine sleeps: the guardian, which runs first, does not take it for snib's silence."""
        process = self.hold("both", "--lease", "12s", "--kill-after", "1d", script=f"echo ready; {self.until_go()}; exit 3")
        both = (children(process.pid)[0], process.pid)
        for pid in both:
            os.kill(pid, signal.SIGSTOP)
        wait_for(lambda: self.server("PTTL", "both") < 2900, "the time after SIGTERM was due")
        for pid in both:
            os.kill(pid, signal.SIGCONT)
        wait_for(lambda: self.server("PTTL", "both") > 9000, "the renewal")
        self.go()
        self.assertEqual(self.end(process), (3, ""))

    def test_stopped_snib_with_loss_ignored(self):
        process = self.hold("ignored", "--on-loss", "ignore", "--lease", LEASE, script=f"echo ready; {self.until_go()}")
        process.send_signal(signal.SIGSTOP)
        wait_for(lambda: self.server("EXISTS", "ignored") == 0, "the lease to end")
        self.assertNotEqual(alive("ignored"), [])
        process.send_signal(signal.SIGCONT)
        self.assertIn("lost", process.stdout.readline())
        self.go()
        self.assertEqual(self.end(process)[0], 0)

    def test_stopped_snib_and_many_stops(self):
        """They do not fill the link, on which the command's end is told."""
        process = self.hold("many", "--lease", "1h", script=f"echo ready; {self.until_go()}; exit 3")
        command = children(children(process.pid)[0])[0]
        process.send_signal(signal.SIGSTOP)
        for _ in range(500):
            os.kill(command, signal.SIGSTOP)
            wait_for(lambda: state(command) == "T", "the stop")
            os.kill(command, signal.SIGCONT)
            wait_for(lambda: state(command) != "T", "it to go on")
        self.go()
        wait_for(lambda: not alive("many"), "its end")
        process.send_signal(signal.SIGCONT)
        self.assertEqual(self.end(process), (3, ""))

    def test_a_hold_at_risk(self):
        """While snib says that the lock is held, nothing is ended before the lease, although nobody renews it."""
        for _ in range(5): # a snib without processor time for a second says nothing
            lines = self.lines_at_risk()
            if "lost" in lines[0] and "too slow" not in lines[0]:
                break
        self.assertIn("lost", lines[0])
        self.assertNotIn("too slow", lines[0])
        self.assertEqual(lines[1], "told\n")

    def lines_at_risk(self):
        """What is said when the server stands still: by snib, and by COMMAND as it gets SIGTERM."""
        server = Server()
        self.addCleanup(server.stop)
        process = self.hold("risk", "--lease", LEASE, "--url", server.url,
                            script=f"exec 2>/dev/null; trap 'echo told' TERM; echo ready; {self.until_go()}")
        os.kill(server.process.pid, signal.SIGSTOP)
        lines = [process.stdout.readline(), process.stdout.readline()]
        os.kill(server.process.pid, signal.SIGCONT)
        self.go()
        self.assertEqual(self.end(process)[0], LOST)
        os.remove(f"{self.folder.name}/go")
        return lines

    def test_lost(self):
        process = self.family("lost", "--lease", LEASE)
        self.server("DEL", "lost")
        self.assertEqual(self.end(process)[0], LOST)
        self.assertEqual(alive("lost"), [])

    def test_guardian_that_is_stopped_after_the_loss(self):
        """snib continues it, so that SIGKILL follows SIGTERM."""
        process = self.hold("stopped:after", "--lease", LEASE, "--kill-after", "2s",
                            script="trap 'echo term' TERM; echo ready; while :; do sleep .02; done")
        guardian = children(process.pid)[0]
        self.server("DEL", "stopped:after")
        while process.stdout.readline() != "term\n":
            pass
        os.kill(guardian, signal.SIGSTOP)
        self.assertEqual(process.wait(60), LOST)
        self.assertEqual(alive("stopped:after"), [])

    def test_lost_while_the_command_is_stopped(self):
        """It is continued, so that it can clean up."""
        told = f"{self.folder.name}/told"
        script = f"trap 'touch {told}; exit' TERM; echo ready; kill -STOP $$; while :; do sleep .02; done"
        process = self.hold("stopped", "--lease", LEASE, "--kill-after", "1d", script=script)
        wait_for(lambda: [state(pid) for pid in alive("stopped")] == ["T"], "the command to stop")
        self.server("DEL", "stopped")
        self.assertEqual(self.end(process)[0], LOST)
        self.assertTrue(os.path.exists(told))

    # ---- processes that COMMAND leaves behind ----------------------------------------------------

    def test_rest_is_ended(self):
        end = f"while not os.path.exists({self.folder.name + '/go'!r}): time.sleep(.02)\nsys.exit(3)"
        process = self.family("rest:ended", end=end)
        self.go()
        self.assertEqual(process.wait(60), 3)
        self.assertEqual(alive("rest:ended"), [])
        self.assertFree("rest:ended")

    def test_no_proc(self):
        """COMMAND's group is ended all the same, also when COMMAND has ended before, and no process of another program."""
        rest = "trap '' TERM; sleep 1000 & echo ready; "
        for before in without_proc(self.folder.name):
            for lock, script, code in (("noproc:rest", "exit 3", 3), ("noproc:killed", "wait", USAGE)):
                with self.subTest(before=before, lock=lock):
                    process = subprocess.Popen(
                        [*before, "sh", "-c", 'sleep 1000 & "$@"; code=$?; kill $! && exit $code', "sh", SNIB, "run", lock,
                         "--kill-after", "500ms", "--", "sh", "-c", rest + script],
                        env=self.env, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
                    self.started.append(process)
                    self.assertEqual(process.stdout.readline(), "ready\n")
                    if code == USAGE:
                        os.kill(parent(os.getpgid(alive(lock)[0])), signal.SIGKILL) # the guardian
                    self.assertEqual(process.wait(60), code)
                    wait_for(lambda: alive(lock) == [], "the group to end")
                    self.assertFree(lock)

    def test_rest_is_waited_for(self):
        script = f"({self.until_go()}) & echo ready; exit 3"
        process = self.hold("rest:waited_for", "--rest", "wait", "--lease", LEASE, script=script)
        wait_for(lambda: len(alive("rest:waited_for")) > 0, "the rest")
        with self.assertRaises(subprocess.TimeoutExpired):
            process.wait(6) # more than a lease
        self.assertEqual(self.server("HLEN", "rest:waited_for"), 1)
        self.go()
        self.assertEqual(self.end(process)[0], 3)
        self.assertFree("rest:waited_for")

    def test_rest_is_lost(self):
        process = self.hold("rest:lost", "--rest", "wait", "--lease", LEASE,
                            script="trap '' TERM; sleep 1000 & echo ready")
        self.server("DEL", "rest:lost")
        self.assertEqual(self.end(process)[0], LOST)
        self.assertEqual(alive("rest:lost"), [])

    def test_rest_without_its_first_thread(self):
        for options in (), ("--rest", "wait", "--lease", LEASE):
            with self.subTest(options=options):
                process = self.start("run", "rest:threads", "--kill-after", "300ms", *options, "--", PYTHON, "-c",
                                     FIRST_THREAD_ENDED)
                self.assertEqual(process.stdout.readline(), "ready\n")
                if options:
                    self.server("DEL", "rest:threads")
                self.assertEqual(process.wait(60), LOST if options else 3)
                self.assertFree("rest:threads")

    def test_rest_is_ignored(self):
        script = f"({self.until_go()}) >/dev/null 2>&1 & echo ready; exit 3"
        process = self.hold("rest:ignored", "--rest", "ignore", script=script)
        self.assertEqual(self.end(process)[0], 3)
        self.assertFree("rest:ignored")
        self.assertNotEqual(alive("rest:ignored"), [])
        self.go()
        wait_for(lambda: not alive("rest:ignored"), "the rest to end")

    def test_signals_reach_the_rest(self):
        script = "sleep 1000 & echo $!; echo ready; exit 3"
        process = self.start("run", "rest:ignored", "--rest", "wait", "--", "sh", "-c", script)
        left = int(process.stdout.readline())
        wait_for(lambda: alive("rest:ignored") == [left], "the command to end")
        process.terminate()
        self.assertEqual(self.end(process)[0], 3)

    # ---- the environment -------------------------------------------------------------------------

    def test_no_password_for_the_command(self):
        guarded = Server("--requirepass", "canary")
        self.addCleanup(guarded.stop)
        script = 'echo "$SNIB_URL/${SNIB_PASSWORD-none}"'
        url = guarded.url.replace("unix://", "unix://default:canary@")
        for address, password in ((url, None), (guarded.url, "canary"), (url, "canary")):
            env = {"SNIB_URL": address, **({"SNIB_PASSWORD": password} if password else {})}
            done = self.snib("run", "a", "--", "sh", "-c", script, env=env)
            self.assertEqual(done.stdout, address.replace(":canary@", "@") + "/none\n")
            done = self.snib("run", "a", "--keep-password", "--", "sh", "-c", script, env=env)
            self.assertEqual(done.stdout, f"{address}/{password or 'none'}\n")
        env = {"SNIB_URL": "redis://no:canary@host", "SNIB_PASSWORD": "canary"}
        done = self.snib("run", "a", "--url", url, "--", "sh", "-c", script, env=env)
        self.assertEqual(done.stdout, "redis://no@host/none\n")
        env = {"SNIB_URL": "redis://:canary@host"} # the @ alone would be refused
        done = self.snib("run", "a", "--url", url, "--", "sh", "-c", script, env=env)
        self.assertEqual(done.stdout, "redis://host/none\n")
        for refused in ("redis://no:can/ary@host", "redis://no:can?ary@host", "redis://no:can#ary@host", "redis://no:a@b/ary@host"):
            done = self.snib("run", "a", "--url", url, "--", "sh", "-c", script, env={"SNIB_URL": refused})
            self.assertEqual(done.stdout, "redis://@host/none\n") # refused like before, and not another server's
        cut = {
            "?password=canary": "",
            "?password=canary&lease=5s": "?lease=5s",
            "?lease=5s&password=canary": "?lease=5s",
            "?lease=5s&sentinel_password=canary&password=canary&patience=1s": "?lease=5s&patience=1s",
            "?tls_key_password=canary&tls_key=k&tls_cert=c": "?tls_key=k&tls_cert=c",
        }
        for query, rest in cut.items():
            env = {"SNIB_URL": "redis://host" + query}
            done = self.snib("run", "a", "--url", url, "--", "sh", "-c", script, env=env)
            self.assertEqual(done.stdout, f"redis://host{rest}/none\n")

    # ---- the log ---------------------------------------------------------------------------------

    def test_mistakes(self):
        """The option debug comes with the URL; its records with -v."""
        url = f"{self.env['SNIB_URL']}&debug=yes&debug_hold=100ms"
        process = self.start("hold", "a", "-v", "--url", url)
        lines = iter(process.stdout.readline, "")
        want = 'snib: warning: debug: mutex "a", acquired at '
        self.assertTrue(any(line.startswith(want) and "still held after" in line for line in lines))
        process.terminate()
        process.wait()

    def test_log(self):
        for option in ("-v", "--verbose"):
            done = self.snib("run", "a", option, "--", "echo", "x")
            self.assertEqual((done.returncode, done.stdout), (0, "x\n"))
            self.assertRegex(done.stderr, r"(?m)^snib: info: .")
            self.assertRegex(self.snib("info", "a", option).stderr, r"(?m)^snib: info: .")
        done = self.snib("list", "-v", "--json")
        record = json.loads(done.stderr.splitlines()[0])
        self.assertEqual((record["event"], record["code"]), ("log", "info"))
        process = self.start("run", "a", "-v", "--lease", LEASE, "--", "sh", "-c", "sleep 1000")
        wait_for(lambda: alive("a"), "the command")
        self.server("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        line = ""
        while "warning" not in line:
            line = process.stdout.readline()
            self.assertNotEqual(line, "")

    # ---- every step of starting ------------------------------------------------------------------

    def preloaded(self, name, *options,
                  script="sleep 1000 & setsid sleep 1000 & exec sleep 1000", **variables):
        if not STOPS:
            self.skipTest("SNIB_STOPS names no library to preload (a sanitized build has none)")
        process = subprocess.Popen(
            [SNIB, "run", name, *options, "--", "sh", "-c", script],
            env={**self.env, "LD_PRELOAD": STOPS, **variables}, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, process_group=0) \
            if sys.version_info >= (3, 11) else self.skipTest("needs Python 3.11")
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def executing(self, name, *options):
        """Start a run whose exec hangs."""
        process = self.preloaded(name, *options, SNIB_EXEC_WAITS=f"{self.folder.name}/go")
        wait_for(lambda: self.server("EXISTS", name), "the lock")
        guardian = children(process.pid)[0]
        wait_for(lambda: children(guardian), "the command's process")
        return process, children(guardian)[0]

    def test_slow_exec(self):
        process, _ = self.executing("slow")
        self.go()
        wait_for(lambda: len(alive("slow")) == 3, "the command")
        process.terminate()
        self.assertEqual(process.wait(60), 128 + signal.SIGTERM)

    def test_lost_before_exec(self):
        for on_loss in ("term", "kill", "ignore"):
            process, _ = self.executing("slow", "--lease", LEASE, "--on-loss", on_loss)
            self.server("DEL", "slow")
            code = process.wait(60)
            self.assertIn(code, (LOST, 128 + signal.SIGKILL))
            self.assertEqual(alive("slow"), [])

    def start_deaf(self, script, *options, before=(), without="-kill"):
        """COMMAND is this Python script, which may end its privileges; snib may not kill then."""
        if os.geteuid() != 0 or not shutil.which("setpriv"):
            self.skipTest("needs root and setpriv")
        os.chmod(self.folder.name, 0o755)
        process = subprocess.Popen(
            [*before, "setpriv", "--bounding-set", without, "--inh-caps", without, SNIB, "run", "a", "--kill-after", "0",
             *options, "--", PYTHON, "-c", script], env=self.env, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT)
        self.started.append(process)
        self.assertEqual(process.stdout.readline(), "ready\n")
        return process

    def test_a_process_that_cannot_be_killed(self):
        """It is named and waited for, which costs little, however many other processes there are."""
        process = self.start_deaf(
            f"import os, time\nos.setresuid(65534, 65534, 65534)\nprint('ready', flush=True)\n"
            f"while os.listdir('{self.folder.name}') == []: time.sleep(.02)\n", # or it is gone, with the test
            "--lease", "1s")
        self.server("DEL", "a")
        self.assertIn("lock lost", process.stdout.readline())
        self.assertRegex(process.stdout.readline(), r"process \d+ cannot be killed .*: it continues without the lock$")
        guardian = children(process.pid)[0]
        before, since = switches(guardian, "^voluntary_"), time.monotonic()
        wait_for(lambda: switches(guardian, "^voluntary_") > before + 5, "some rounds of SIGKILL")
        self.assertGreater(time.monotonic() - since, 2)
        self.go()
        self.assertEqual(process.wait(60), LOST)

    def test_a_rest_that_cannot_be_killed(self):
        process = self.start_deaf(
            "import os, time\nreader, writer = os.pipe()\nif os.fork(): os.read(reader, 1); os._exit(3)\n"
            "os.setresuid(65534, 65534, 65534)\nprint('ready', flush=True)\nos.write(writer, b'x')\n"
            f"while os.listdir('{self.folder.name}') == []: time.sleep(.02)\n")
        self.assertRegex(process.stdout.readline(), r"process \d+ cannot be killed .*: the lock is kept until it ends$")
        self.assertEqual(self.server("EXISTS", "a"), 1)
        self.go()
        self.assertEqual(process.wait(60), 3)
        self.assertFree("a")

    def start_hidden(self, script, *options):
        """The same where /proc does not show COMMAND."""
        hide = ["unshare", "--mount", "sh", "-c",
                'mount -t proc -o hidepid=2,gid=54321 proc /proc && exec "$0" "$@"']
        if not shutil.which("unshare") or subprocess.run([*hide, "true"], stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("needs a /proc of its own")
        return self.start_deaf(script, *options, before=hide, without="-kill,-sys_ptrace")

    def test_hidden_command(self):
        """It has time to end, as any other."""
        process = self.start_hidden(
            "import ctypes, signal, sys, time\nctypes.CDLL(None).prctl(4, 0)\n" # PR_SET_DUMPABLE
            "def end(*_): print('time to end', flush=True); sys.exit(9)\n"
            "signal.signal(signal.SIGTERM, end)\nprint('ready', flush=True)\ntime.sleep(1000)\n",
            "--lease", "1s", "--kill-after", "20s")
        self.server("DEL", "a")
        code, output = self.end(process)
        self.assertEqual(code, LOST)
        self.assertIn("time to end", output)

    def test_hidden_rest(self):
        """One that cannot be killed is told of, although its number is not known."""
        process = self.start_hidden(
            "import os, time\nreader, writer = os.pipe()\nif os.fork(): os.read(reader, 1); os._exit(3)\n"
            "os.setresuid(65534, 65534, 65534)\nprint('ready', flush=True)\nos.write(writer, b'x')\n"
            f"while os.listdir('{self.folder.name}') == []: time.sleep(.02)\n")
        self.assertRegex(process.stdout.readline(),
                         r"a process that /proc does not show cannot be killed: the lock is kept until it ends$")
        self.assertEqual(self.server("EXISTS", "a"), 1)
        self.go()
        self.assertEqual(process.wait(60), 3)
        self.assertFree("a")

    def test_signals_before_exec(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            process, child = self.executing("slow")
            process.send_signal(number)
            self.assertEqual(process.wait(60), 128 + number)
        process, child = self.executing("slow")
        os.killpg(process.pid, signal.SIGTSTP)
        os.killpg(process.pid, signal.SIGCONT)
        os.killpg(process.pid, signal.SIGTERM)
        self.assertEqual(process.wait(60), 128 + signal.SIGTERM)
        process, child = self.executing("slow", "--lease", LEASE)
        process.kill()
        self.free_and_dead("slow")

    def one_step(self, role, n, number):
        """A run with a signal at the n-th system call of one of its processes.  False: it had fewer calls."""
        name = f"step-{role}-{n}-{number}"
        mark = f"{self.folder.name}/{name}"
        # Without snib there is no renewal, and the guardian needs processor time before the lease ends.
        lease = LEASE if role == 0 and number != signal.SIGTERM else "600ms"
        process = self.preloaded(name, "--lease", lease, SNIB_STOP=f"{role}:{n}:{number:d}:{mark}")

        def fired():
            return os.path.exists(mark)

        wait_for(lambda: fired() or process.poll() is not None or len(alive(name)) == 3, "a step")
        if role == 1 and number == signal.SIGSTOP: # it continues by itself
            wait_for(lambda: process.poll() is not None or len(alive(name)) == 3, "the command")
        if role == 2 and number == signal.SIGSTOP: # a stop after the guardian's SIGCONT would last for ever
            wait_for(lambda: process.poll() is not None or len(alive(name)) == 3 or
                     any_stopped(process.pid), "the stop")
        if process.poll() is None:
            process.terminate()
        wait_for(lambda: process.poll() is not None or state(process.pid) == "T", f"the end of {name}")
        if process.returncode is None: # snib is or was stopped
            self.free_and_dead(name) # because nothing renews the lease
            process.send_signal(signal.SIGCONT)
        process.wait(60)
        if number != signal.SIGKILL or role != 0:
            self.assertEqual(alive(name), [])
        wait_for(lambda: self.server("EXISTS", name) == 0, f"{name} to be free")
        self.assertEqual(alive(name), [])
        return fired()

    def steps(self, number):
        """All steps of each process; in a quick run only some of the later ones."""
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for role in range(3):
                n, stride, more = 1, 1, True
                while more and n < 400:
                    tries = [pool.submit(self.one_step, role, n + i * stride, number)
                             for i in range(8)]
                    more = all([each.result() for each in tries])
                    n += 8 * stride
                    if not ALL and n > 16:
                        stride = 5

    def test_killed_at_each_step(self):
        self.steps(signal.SIGKILL)

    def test_ended_at_each_step(self):
        self.steps(signal.SIGTERM)

    def test_stopped_at_each_step(self):
        self.steps(signal.SIGSTOP)

    def test_stopped_as_it_reads_the_clock(self):
        """A hold that has ended meanwhile is not passed on with the time that it once had left."""
        def one(n):
            name = f"clock-{n}"
            mark, ran = f"{self.folder.name}/{name}", f"{self.folder.name}/{name}-ran"
            process = self.preloaded(name, "--lease", LEASE, "--wait", "0", script=f"touch {ran}; exec sleep 1000",
                                     SNIB_STOP=f"10:{n}:{signal.SIGSTOP:d}:{mark}")

            wait_for(lambda: os.path.exists(mark) or os.path.exists(ran), f"step {n}")
            if not self.server("EXISTS", name): # it had not been granted
                process.kill()
                return True
            self.free_and_dead(name)
            if os.path.exists(ran):
                return False
            self.server("HSET", name, "another", 1)
            process.send_signal(signal.SIGCONT)
            wait_for(lambda: state(process.pid) in "TZ", "its second stop")
            for guardian in children(process.pid):
                before = switches(guardian)
                os.kill(guardian, signal.SIGCHLD)
                wait_for(lambda: switches(guardian) > before and state(guardian) == "S" or state(guardian) == "Z",
                         "the guardian to do what it was told") # or it has ended, as the lock did while the command waited for its exec
            process.send_signal(signal.SIGCONT)
            self.assertIn(process.wait(60), (LOST, BUSY, SERVER)) # if it has not read the grant yet, it may ask again
            self.assertFalse(os.path.exists(ran), f"step {n}")
            return True

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            n, more = 1, True
            while more:
                more = all(list(pool.map(one, range(n, n + 8))))
                n += 8

    def test_the_guardian_stands_still_at_each_step(self):
        """Its report of COMMAND's end is read, even if it has ended and left data unread."""
        def one(n):
            name = f"still-{n}"
            mark = f"{self.folder.name}/{name}"
            process = self.preloaded(name, "--lease", LEASE, script="exit 7",
                                     SNIB_STOP=f"1:{n}:{signal.SIGSTOP:d}:{mark}")
            self.assertEqual((n, process.wait(120)), (n, 7))
            return os.path.exists(mark)

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            n, more = 1, True
            while more:
                more = all(list(pool.map(one, range(n, n + 8))))
                n += 8
        self.assertGreater(n, 20)

    def test_suspended_at_each_step(self):
        self.steps(signal.SIGTSTP)


if __name__ == "__main__":
    unittest.main()

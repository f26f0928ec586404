#!/usr/bin/env python3
"""The snib command as users see it: exit codes, output, signals, losses."""
import json
import os
import re
import signal
import subprocess
import sys
import time
import unittest

from command import (BUSY, LEASE, LOST, NOT_FOUND, NOT_RUNNABLE, SERVER, SNIB, TIMEDOUT, USAGE,
                     CommandCase)
from server import Server, wait_for
from test_guard import children

PYTHON = sys.executable


class Cli(CommandCase):
    # ---- run -------------------------------------------------------------------------------------

    def test_exit_code_and_output_are_the_commands(self):
        for code in (0, 1, 7, 125):
            done = self.snib("run", "a", "--", "sh", "-c", f"echo out; echo err >&2; exit {code}")
            self.assertEqual((done.returncode, done.stdout, done.stderr), (code, "out\n", "err\n"))
        done = self.snib("run", "a", "--", "sh", "-c", "kill -USR2 $$")
        self.assertEqual(done.returncode, 128 + signal.SIGUSR2)
        self.assertFree("a")

    def test_lock_is_held_while_the_command_runs(self):
        process = self.hold("a", script="echo ready")
        self.assertEqual(self.end(process)[0], 0)
        process = self.hold("a")
        self.assertEqual(self.server("HLEN", "a"), 1)
        self.assertGreater(self.server("PTTL", "a"), 20000)
        process.terminate()
        self.assertEqual(self.end(process), (128 + signal.SIGTERM, ""))
        self.assertFree("a")

    def test_environment(self):
        script = 'echo "$SNIB_LOCK/${SNIB_TOKEN-none}/${SNIB_OWNER-none}/$OTHER"'
        done = self.snib("run", "{t}a b", "--", "sh", "-c", script,
                         env={"SNIB_LOCK": "old", "SNIB_TOKEN": "old", "SNIB_OWNER": "old", "OTHER": "kept"})
        self.assertEqual(done.stdout, "{t}a b/none/none/kept\n")
        for options in (["--fenced"], ["--fenced", "--fair"], ["--fenced", "--write"]):
            self.server("FLUSHALL")
            holder = self.start("run", "a", *options, "--", "sh", "-c", script + "; exec sleep 60")
            _, token, owner, _ = holder.stdout.readline().split("/")
            self.assertGreater(int(token), 0)
            self.assertIn(owner, [field.removesuffix(":write") for field in self.server("HKEYS", "a")])
            holder.terminate()
            self.end(holder)

    def test_lease_is_renewed(self):
        process = self.hold("a", "--lease", LEASE)
        owner = self.server("HKEYS", "a")
        end = time.monotonic() + 6
        while time.monotonic() < end: # more than a lease
            self.assertEqual(self.server("HKEYS", "a"), owner)
            self.assertLessEqual(self.server("PTTL", "a"), 4000)
            time.sleep(0.02)
        process.terminate()
        self.end(process)

    def test_busy_and_timed_out(self):
        self.hold("a")
        marker = f"{self.folder.name}/ran"
        done = self.snib("run", "a", "--wait", "0", "--", "touch", marker)
        self.assertEqual(done.returncode, BUSY)
        self.assertEqual(done.stderr.count("\n"), 1)
        before = time.monotonic()
        done = self.snib("run", "a", "--wait", "300ms", "--", "touch", marker)
        self.assertEqual(done.returncode, TIMEDOUT)
        self.assertGreaterEqual(time.monotonic() - before, 0.3)
        self.assertFalse(os.path.exists(marker))

    def test_waits_for_the_lock(self):
        first = self.hold("a")
        second = self.start("run", "a", "-q", "--wait", "20s", "--", "echo", "mine")
        wait_for(lambda: self.server("PUBSUB", "CHANNELS"), "the waiter to subscribe")
        first.terminate()
        self.assertEqual(self.end(second), (0, "mine\n"))
        self.assertFree("a")

    def test_command_that_cannot_run(self):
        plain = f"{self.folder.name}/plain"
        with open(plain, "w") as file:
            file.write("no program")
        for command, code in (("/no/such/program", NOT_FOUND), ("no-such-program", NOT_FOUND),
                              (plain, NOT_RUNNABLE), ("/", NOT_RUNNABLE)):
            done = self.snib("run", "a", "--", command)
            self.assertEqual(done.returncode, code)
            self.assertIn(command, done.stderr)
            self.assertFree("a")
        done = self.snib("run", "a", "--", "")
        self.assertEqual((done.returncode, done.stderr), (NOT_FOUND, 'snib: "": No such file or directory\n'))

    # ---- loss ------------------------------------------------------------------------------------

    def lose(self, *options, script):
        """Run script under a short lease, give the lock to another owner, return code and text."""
        process = self.hold("a", "--lease", LEASE, *options, script=script)
        self.server("EVAL", "redis.call('DEL', KEYS[1]) redis.call('HSET', KEYS[1], ARGV[1], 1)",
                    1, "a", "11111111-1111-8111-8111-111111111111:1")
        code, text = self.end(process)
        self.assertEqual(self.server("HGET", "a", "11111111-1111-8111-8111-111111111111:1"), "1")
        return code, text

    def test_loss_ends_the_command(self):
        code, text = self.lose(script="trap 'echo told; exit 0' TERM; echo ready; "
                                      "while :; do sleep .02; done")
        self.assertEqual(code, LOST)
        self.assertIn("told", text)
        self.assertRegex(text, "snib: lock lost .*taken")

    def test_loss_ends_the_whole_group(self):
        # The shell ends immediately; the process that it leaves behind ignores SIGTERM.
        pid_file = f"{self.folder.name}/pid"
        script = (f"(trap '' TERM; exec sleep 60) & echo $! > {pid_file}; "
                  "trap 'exit 0' TERM; echo ready; wait")
        process = self.hold("a", "--lease", LEASE, script=script)
        with open(pid_file) as file:
            left = int(file.read())
        self.server("DEL", "a")
        self.assertEqual(process.wait(60), LOST)
        wait_for(lambda: is_gone(left), "the process left behind to be killed")

    def test_loss_kills_a_deaf_command_after_the_grace(self):
        before = time.monotonic()
        code, _ = self.lose(script="trap '' TERM; echo ready; while :; do sleep .05; done")
        self.assertEqual(code, LOST)
        self.assertGreater(time.monotonic() - before, 5)

    def test_loss_with_kill(self):
        code, text = self.lose("--on-loss", "kill", script="trap 'echo told' TERM; echo ready; "
                                                           "while :; do sleep .05; done")
        self.assertEqual(code, LOST)
        self.assertNotIn("told", text)

    def test_loss_ignored(self):
        process = self.hold("a", "--lease", LEASE, "--on-loss", "ignore",
                            script=f"echo ready; {self.until_go()}; exit 5")
        self.server("DEL", "a")
        self.assertIn("lost", process.stdout.readline())
        self.go()
        self.assertEqual(self.end(process), (5, ""))

    def test_loss_when_the_server_stops(self):
        # The server does not answer, so the local clock ends the hold.
        process = self.hold("a", "--lease", LEASE, "--json")
        self.server.process.send_signal(signal.SIGSTOP)
        try:
            line = json.loads(process.stdout.readline())
        finally:
            self.server.process.send_signal(signal.SIGCONT)
        self.assertEqual(line["event"], "lost")
        self.assertIn("unreachable", line["text"])
        self.assertEqual(self.end(process)[0], LOST)

    def test_loss_found_at_the_release(self):
        process = self.hold("a", script=f"echo ready; {self.until_go()}")
        self.server("DEL", "a")
        self.go()
        self.assertEqual(self.end(process), (LOST, "snib: lock lost while the command ran: deleted\n"))

    def test_lock_that_another_program_has_overwritten(self):
        process = self.hold("a", script=f"echo ready; {self.until_go()}")
        self.server("SET", "a", "data")
        self.go()
        code, text = self.end(process)
        self.assertEqual((code, text.count("\n")), (LOST, 1))
        self.assertIn("lock lost while the command ran: ", text)
        self.assertEqual(self.server("GET", "a"), "data")

    # ---- signals ---------------------------------------------------------------------------------

    def test_signals_are_forwarded(self):
        names = ["TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "WINCH"]
        script = ("import signal, sys\n"
                  "numbers = [getattr(signal, 'SIG' + name) for name in sys.argv[1:]]\n"
                  "signal.pthread_sigmask(signal.SIG_BLOCK, numbers)\n"
                  "print('ready', flush=True)\n"
                  "for _ in numbers:\n"
                  "    print(signal.Signals(signal.sigwait(numbers)).name[3:], flush=True)\n")
        process = self.start("run", "a", "--", PYTHON, "-c", script, *names)
        self.assertEqual(process.stdout.readline(), "ready\n")
        for name in names:
            process.send_signal(getattr(signal, "SIG" + name))
            self.assertEqual(process.stdout.readline(), name + "\n")
        self.assertEqual(self.end(process), (0, ""))
        self.assertFree("a")

    def test_signals_reach_a_command_that_has_left_its_group(self):
        script = "import os, signal\nos.setpgid(0, os.getpgid(os.getppid()))\nprint('ready', flush=True)\nsignal.pause()"
        for number in signal.SIGTERM, signal.SIGINT:
            process = self.start("run", "a", "--", PYTHON, "-c", f"import signal\nsignal.signal(signal.SIGINT, signal.SIG_DFL)\n{script}")
            self.assertEqual(process.stdout.readline(), "ready\n")
            process.send_signal(number)
            self.assertEqual(self.end(process), (128 + number, ""))

    def test_ignored_signals_stay_ignored(self):
        process = self.hold("a", script="echo ready; exec sleep 60")
        process.send_signal(signal.SIGHUP)
        self.assertEqual(self.end(process)[0], 128 + signal.SIGHUP)
        ignoring = self.start("run", "a", "--", "sh", "-c", "kill -HUP $$; echo lives",
                              preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        self.assertEqual(self.end(ignoring), (0, "lives\n"))
        self.hold("a")
        waiting = self.start("run", "a", "-q", "--", "true",
                             preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        wait_for(lambda: self.server("PUBSUB", "CHANNELS"), "the waiter to subscribe")
        waiting.send_signal(signal.SIGHUP)
        waiting.send_signal(signal.SIGTERM)
        self.assertEqual(self.end(waiting), (128 + signal.SIGTERM, ""))

    def test_signal_while_the_release_is_not_confirmed(self):
        other = Server()
        self.addCleanup(other.stop)
        process = self.start("run", "a", "--lease", "24h", "--url", other.url + "?patience=24h&reply_timeout=24h", "--",
                             "sh", "-c", f"echo ready; {self.until_go()}; exit 5")
        self.assertEqual(process.stdout.readline(), "ready\n")
        other.process.send_signal(signal.SIGSTOP)
        self.go()
        wait_for(lambda: not children(process.pid), "the end of the command and of its guardian")
        process.terminate()
        code, text = self.end(process)
        self.assertEqual((code, text.count("\n")), (5, 1))
        self.assertIn("a signal came before the server had confirmed the release", text)

    def test_signal_while_waiting(self):
        self.server("HSET", "a", "11111111-1111-8111-8111-111111111111:1", 1)
        self.server("PEXPIRE", "a", 60000)
        for name in ("TERM", "INT", "HUP"):
            number = getattr(signal, "SIG" + name)
            process = self.start("run", "a", "-q", "--", "echo", "ran")
            wait_for(lambda: self.server("PUBSUB", "CHANNELS"), "the waiter to subscribe")
            process.send_signal(number)
            self.assertEqual(self.end(process), (128 + number, ""))
            wait_for(lambda: self.server("PUBSUB", "CHANNELS") == [], "the subscription to end")
        self.assertEqual(self.server("HLEN", "a"), 1)

    def test_killed_snib_takes_the_command_along(self):
        process = self.hold("a", script="echo ready; echo $$; exec sleep 60")
        child = int(process.stdout.readline())
        process.kill()
        wait_for(lambda: is_gone(child), "the command to end")

    # ---- errors ----------------------------------------------------------------------------------

    def test_bad_usage(self):
        marker = f"{self.folder.name}/ran"
        command = ["--", "touch", marker]
        bad = [
            [], ["walk"], ["run"], ["run", "a"], ["run", "a", "--"], ["run", *command],
            ["run", "a", "touch", marker], ["run", "a", "--wait"],
            ["--no", "run", "a", *command], ["run", "a", "--wait", *command],
            ["info"], ["info", "a", "b"], ["info", "a", *command],
            ["info", "a", "--wait", "1s"], ["list", "--lease", "1s"], ["info", "--force", "a"],
            ["release", "a"], ["release", "--force"], ["list", "a", "b"],
            ["run", "", *command], ["run", "a\nb", *command], ["run", "a{b", *command],
            ["run", b"a\xff", *command], ["run", "x" * 513, *command],
            ["run", "a", "--url", "http://127.0.0.1", *command],
            ["run", "a", "--fair", "--read", *command], ["run", "a", "--read", "--write", *command],
            ["run", "a", "--plain", "--spin", *command],
            ["run", "a", "--permits", "3", "--fair", *command],
            ["run", "a", "--fenced", "--read", *command],
            ["run", "a", "--spin", "--fenced", *command],
            ["run", "a", "--fenced", "--permits", "1", *command],
            ["run", "a", "--fenced", "--plain", *command],
            ["run", "a", "--fair=yes", *command], ["run", "a", "--latch", *command],
            ["run", "a", "--semaphore", *command], ["run", "a", "--permits", *command],
            ["info", "--fair", "a"], ["info", "--permits", "3", "a"], ["list", "--read"],
            ["release", "--force", "--read", "--write", "a"], ["release", "--read", "a"],
            ["release", "--force", "--permits=3", "a"], ["release", "--force", "--wait", "1s", "a"],
            ["release", "--force", "--fenced", "--latch", "a"], ["doctor", "redis://127.0.0.1"],
        ]
        for text in ("", "0", "-1", "abc", "1x", " 1", "+1", "1.5", "2147483648", "9" * 30):
            bad.append(["run", "a", "--permits", text, *command])
        for text in ("", "x", "-1", "1x", "1 s", "s", "99999999999999999999", "25h", " 1s"):
            bad.append(["run", "a", "--wait", text, *command])
        for text in ("", "0", "99ms", "25h", "-1s"):
            bad.append(["run", "a", "--lease", text, *command])
        for text in ("", "TERM", "stop"):
            bad.append(["run", "a", "--on-loss", text, *command])
        for words in bad:
            with self.subTest(words=words):
                done = self.snib(*words)
                self.assertEqual((done.returncode, done.stdout), (USAGE, ""))
                self.assertRegex(done.stderr, r"^snib: [^\n]{10,}\n$")
                done = self.snib("--json", *words)
                self.assertEqual(json.loads(done.stderr)["event"], "error")
                if "--fenced" in words:
                    self.assertIn("--fenced", done.stderr)
        self.assertFalse(os.path.exists(marker))
        self.assertEqual(self.server("DBSIZE"), 0)

    def test_times(self):
        self.hold("a")
        for text in ("0", "0s", "0ms", "1ms"):
            self.assertIn(self.snib("run", "a", "--wait", text, "--", "true").returncode,
                          (BUSY, TIMEDOUT))
        for text in ("100ms", "1", "2s", "3m", "24h"): # the short ones can end before a slow machine is ready
            done = self.snib("run", "b", "--lease", text, "--", "true")
            self.assertIn(done.returncode, (0,) if text in ("3m", "24h") else (0, LOST))

    def test_unreachable(self):
        done = self.snib("info", "a", "--url", f"unix://{self.folder.name}/nobody")
        self.assertEqual((done.returncode, done.stdout), (SERVER, ""))
        done = self.snib("run", "a", "--json", "--", "true",
                         env={"SNIB_URL": f"unix://{self.folder.name}/nobody"})
        self.assertEqual(done.returncode, SERVER)
        self.assertEqual(json.loads(done.stderr)["code"], "SNIB_ECONNECT")

    def test_wrong_type(self):
        self.server("SET", "a", "data")
        self.assertEqual(self.snib("run", "a", "--", "true").returncode, SERVER)
        self.assertEqual(self.server("GET", "a"), "data")

    def test_passwords(self):
        guarded = Server("--requirepass", "right")
        self.addCleanup(guarded.stop)
        url = guarded.url
        cases = [
            (url, None, SERVER), (url, "right", 0), (url, "canary", SERVER),
            (url.replace("unix://", "unix://:right@"), None, 0),
            (url.replace("unix://", "unix://:canary@"), None, SERVER),
            (url.replace("unix://", "unix://:canary@"), "right", 0), # the environment takes precedence
            (url.replace("unix://", "unix://:canary@") + "?x=1", None, USAGE),
        ]
        for address, password, code in cases:
            done = self.snib("info", "a",
                             env={"SNIB_URL": address, "SNIB_PASSWORD": password or ""})
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertNotIn("canary", done.stdout + done.stderr)

    # ---- help ------------------------------------------------------------------------------------

    def test_help_version_and_manual_agree(self):
        done = self.snib("--help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertTrue(all(len(line) <= 100 for line in done.stdout.splitlines()))
        manual = os.path.join(os.path.dirname(__file__), "../../core/cli/snib.1")
        with open(manual) as file:
            text = file.read().replace("\\-", "-")
        for pattern in (r"--[a-z][a-z-]*", r"\b12[1-7]\b", r"\bSNIB_[A-Z]+\b"):
            self.assertEqual(set(re.findall(pattern, done.stdout)) - {"SNIB_TOKEN"},
                             set(re.findall(pattern, text)) - {"SNIB_TOKEN"})
        with open("/dev/full", "w") as full:
            done = subprocess.run([SNIB, "--help"], stdout=full, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, USAGE)
        done = self.snib("--version")
        self.assertRegex(done.stdout, r"^snib \d+\.\d+\.\d+ \([0-9a-f]{16}\)\n$")

    def test_nobody_reads_the_messages(self):
        """COMMAND runs all the same, with the usual effect of a closed pipe, and the lock is released."""
        for words, codes in ((["run", "a", "-v", "--", "sh", "-c", "exit 5"], [5]),
                             (["run", "a", "-v", "--", "sh", "-c", "exec >&2; while :; do echo x; done"],
                              [128 + signal.SIGPIPE]),
                             (["hold", "a", "-v"], [0, 128 + signal.SIGTERM])): # it may not know yet that it has the lock
            with self.subTest(words=words):
                reader, writer = os.pipe()
                os.close(reader)
                process = subprocess.Popen([SNIB, *words], env=self.env, stdout=subprocess.DEVNULL, stderr=writer)
                self.addCleanup(process.kill)
                os.close(writer)
                if words[0] == "hold":
                    wait_for(lambda: self.server("EXISTS", "a") or process.poll() is not None, "the lock")
                    process.terminate()
                self.assertIn(process.wait(60), codes)
                self.assertFree("a")

    def test_file_of_messages_has_reached_its_limit(self):
        """The same; COMMAND gets the signal if it writes such a file itself."""
        with open(f"{self.folder.name}/log", "w") as file:
            for script, code in (("exit 5", 5), ("exec >&2; echo x; kill -XFSZ $$", 128 + signal.SIGXFSZ)):
                words = ["sh", "-c", 'ulimit -f 0; exec "$0" "$@"', SNIB, "run", "a", "-v", "--", "sh", "-c", script]
                self.assertEqual(code, subprocess.run(words, env=self.env, stderr=file).returncode)
                self.assertFree("a")
            self.assertEqual(0, file.tell())

    def test_too_few_descriptors(self):
        """One message says what is wrong, and nothing is left."""
        env = {**self.env, "SNIB_URL": f"{self.server.url}?patience=1s"} # some connections are never made
        for words in ["run", "a", "--", "true"], ["hold", "a", "--max-hold", "1ms"]:
            for limit in range(4, 16):
                with self.subTest(words=words, limit=limit):
                    shell = ["sh", "-c", f'ulimit -n {limit}; exec "$0" "$@"', SNIB, *words]
                    done = subprocess.run(shell, env=env, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                    self.assertIn(done.returncode, (0, LOST, SERVER, USAGE))
                    if done.returncode in (SERVER, USAGE):
                        self.assertRegex(done.stderr, r"\Asnib: [^\n]+\n\Z")
                    self.assertFree("a")

    def test_missing_descriptors(self):
        """Nothing that snib opens takes their place, and COMMAND misses them, too."""
        closed = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", SNIB]
        for words in (["hold", "a"], ["run", "b", "--", "sleep", "60"]):
            process = subprocess.Popen([*closed, *words], env=self.env)
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)
            wait_for(lambda: self.server("EXISTS", words[1]), "the lock")
            self.assertEqual(["/dev/null"] * 3, [os.readlink(f"/proc/{process.pid}/fd/{fd}") for fd in range(3)])
        script = "import os\nfor fd in range(3):\n try: os.fstat(fd)\n except OSError: continue\n os._exit(fd + 1)"
        self.assertEqual(0, subprocess.run([*closed, "run", "c", "--", PYTHON, "-c", script], env=self.env).returncode)
        self.server("EVAL", "for i = 1, 300 do redis.call('HSET', string.rep('x', 400) .. i, ARGV[1], 1) end", 0,
                    "11111111-1111-8111-8111-111111111111:1")
        done = subprocess.run(["sh", "-c", 'exec "$0" list >&-', SNIB], env=self.env, stderr=subprocess.PIPE, text=True)
        self.assertEqual((USAGE, "snib: standard output: Bad file descriptor\n"), (done.returncode, done.stderr))


def is_gone(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError): # or it went after the opening
        return True


if __name__ == "__main__":
    unittest.main()

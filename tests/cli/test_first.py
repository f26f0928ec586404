#!/usr/bin/env python3
"""snib as process 1 of a container: it reaps orphans, forwards signals and ends by them."""
import os
import pty
import shutil
import signal
import subprocess
import sys
import unittest

from command import SNIB, CommandCase
from server import wait_for
from test_cli import is_gone
from test_guard import children, state
from test_terminal import Terminal, reap

UNSHARE = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]


def permitted():
    """The words before a command that make it process 1; none if this is not permitted here."""
    for words in (UNSHARE, [*UNSHARE, "--map-root-user"]):
        try:
            if subprocess.run([*words, "true"], stderr=subprocess.DEVNULL, timeout=60).returncode == 0:
                return words
        except FileNotFoundError:
            pass
    return []


BEFORE = permitted()


@unittest.skipUnless(BEFORE, "a process namespace of its own is not permitted here")
class First(CommandCase):
    def contain(self, *words):
        """Start a program as process 1."""
        process = subprocess.Popen([*BEFORE, *words], env=self.env, text=True, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.started.append(process)
        return process

    def first(self, process):
        """Process 1, as it is called outside."""
        return wait_for(lambda: children(process.pid), "process 1")[0]

    def test_exit_code(self):
        process = self.contain(SNIB, "run", "a", "--", "sh", "-c", "cat /proc/1/comm; exit 7")
        self.assertEqual(self.end(process), (7, "snib\n"))
        self.assertFree("a")

    def test_signals_are_forwarded(self):
        for name in ("TERM", "INT", "HUP", "QUIT", "USR1", "USR2"):
            process = self.contain(SNIB, "run", "a", "--", "sh", "-c",
                                   f"trap 'echo {name}; exit 5' {name}; echo ready; while :; do sleep .02; done")
            self.assertEqual(process.stdout.readline(), "ready\n")
            os.kill(self.first(process), getattr(signal, "SIG" + name))
            code, text = self.end(process)
            self.assertEqual((code, text.splitlines()[-1]), (5, name))
            self.assertFree("a")

    def test_signals_end_a_waiter(self):
        self.hold("a")
        for word in ("run", "hold"):
            for name in ("TERM", "INT"):
                process = self.contain(SNIB, word, "a", "-q", *(("--", "true") if word == "run" else ()))
                wait_for(lambda: self.server("PUBSUB", "CHANNELS"), "the waiter to subscribe")
                os.kill(self.first(process), getattr(signal, "SIG" + name))
                self.assertEqual(self.end(process), (128 + getattr(signal, "SIG" + name), ""))
                wait_for(lambda: self.server("PUBSUB", "CHANNELS") == [], "the subscription to end")

    def test_hold(self):
        process = self.contain(SNIB, "hold", "a")
        self.assertIn("holding a", process.stdout.readline())
        os.kill(self.first(process), signal.SIGTERM)
        self.assertEqual(self.end(process), (0, ""))
        self.assertFree("a")

    def test_signals_end_the_other_commands(self):
        """The kernel sends process 1 no signal that it does not handle."""
        self.snib("latch", "l", "set", "1")
        for name in ("TERM", "INT", "HUP", "QUIT"):
            process = self.contain(SNIB, "latch", "l", "wait")
            wait_for(lambda: self.server("PUBSUB", "CHANNELS"), "the waiter to subscribe")
            os.kill(self.first(process), getattr(signal, "SIG" + name))
            self.assertEqual(self.end(process), (128 + getattr(signal, "SIG" + name), ""))
            wait_for(lambda: self.server("PUBSUB", "CHANNELS") == [], "the subscription to end")

    def test_orphans_are_reaped(self):
        """Those of an entry point's shell, whose parents have ended; many, and whatever snib does."""
        pipe = f"{self.folder.name}/pipe"
        os.mkfifo(pipe)
        for what in ("hold a", "run a -- sh -c 'echo holding; exec sleep 60'"):
            orphans = f"for i in 1 2 3 4 5; do (sh -c 'read line' <{pipe} &); done"
            process = self.contain("sh", "-c", f"{orphans}; exec {SNIB} {what}")
            self.assertIn("holding", process.stdout.readline())
            first = self.first(process)
            guardian = 1 if what.startswith("run") else 0
            wait_for(lambda: len(children(first)) == 5 + guardian, "the orphans")
            with open(pipe, "w") as lines: # open until all have one: some may not have opened it yet
                lines.write("\n" * 5)
                lines.flush()
                wait_for(lambda: len(children(first)) == guardian, "the orphans to be reaped")
            os.kill(first, signal.SIGTERM)
            self.assertEqual(self.end(process)[0], 0 if what == "hold a" else 128 + signal.SIGTERM)
            self.assertFree("a")

    def test_orphans_that_ended_early(self):
        """Before snib could hear of it."""
        script = ("import os, sys\n"
                  "os.fork() or os._exit(0)\n"
                  "os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)\n"
                  "os.execv(sys.argv[1], sys.argv[1:])\n")
        process = self.contain(sys.executable, "-c", script, shutil.which(SNIB), "hold", "a")
        self.assertIn("holding", process.stdout.readline())
        self.assertEqual(children(self.first(process)), [])

    def test_orphans_of_the_command_keep_the_lock(self):
        script = f"(sh -c '{self.until_go()}' &); echo ready; exit 3"
        process = self.contain(SNIB, "run", "a", "--rest", "wait", "--", "sh", "-c", script)
        self.assertEqual(process.stdout.readline(), "ready\n")
        guardian = children(self.first(process))[0]
        wait_for(lambda: len(children(guardian)) == 1 and state(children(guardian)[0]) != "Z", "the command to end")
        self.assertEqual(self.server("EXISTS", "a"), 1)
        self.go()
        self.assertEqual(self.end(process)[0], 3)
        self.assertFree("a")

    def test_killed_guardian(self):
        process = self.contain(SNIB, "run", "a", "--", "sh", "-c", "echo ready; exec sleep 60")
        self.assertEqual(process.stdout.readline(), "ready\n")
        guardian = children(self.first(process))[0]
        command = children(guardian)[0]
        os.kill(guardian, signal.SIGKILL)
        code, text = self.end(process)
        self.assertEqual(code, 125)
        self.assertIn("guardian", text)
        self.assertTrue(is_gone(command))

    def in_terminal(self, script):
        """Run a shell's script under the lock, in a terminal of its own."""
        pid, descriptor = pty.fork()
        if pid == 0:
            os.environ.update(self.env)
            os.execvp(BEFORE[0], [*BEFORE, SNIB, "run", "a", "--", "sh", "-c", script])
        self.addCleanup(os.close, descriptor)
        self.addCleanup(reap, pid)
        terminal = Terminal(descriptor)
        terminal.expect("ready")
        return terminal

    def test_stopped_from_the_terminal(self):
        """No shell could continue it, so the command is not stopped: a child of it may be about to become another
        program, and then the command cannot stop, but the child does."""
        terminal = self.in_terminal(f"trap 'echo stopped' TSTP; echo ready; {self.until_go()}; sleep .1; echo worked")
        terminal.write(b"\x1a")
        terminal.expect(r"\^Z")
        self.go()
        self.assertNotIn("stopped", terminal.expect("worked"))
        self.assertFree("a")

    def test_command_that_stops_itself(self):
        terminal = self.in_terminal("trap 'echo continued' CONT; echo ready; kill -TSTP $$; echo worked")
        terminal.expect("continued")
        terminal.expect("worked")
        self.assertFree("a")


if __name__ == "__main__":
    unittest.main()

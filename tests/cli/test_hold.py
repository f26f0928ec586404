#!/usr/bin/env python3
"""snib hold: a lock without a command, until a signal comes."""
import fcntl
import json
import os
import re
import select
import signal
import subprocess
import unittest

from command import BUSY, LEASE, LOST, SERVER, SNIB, TIMEDOUT, USAGE, CommandCase
from server import Server, wait_for

OTHER = "11111111-1111-8111-8111-111111111111:1"


def is_pending(pid, number):
    """Whether the process has been sent this signal, and has neither acted on it nor read it."""
    with open(f"/proc/{pid}/status") as file:
        return int(re.search(r"ShdPnd:\s+(\w+)", file.read())[1], 16) >> number - 1 & 1


class Hold(CommandCase):
    def held(self, *words, **options):
        """Start snib hold; return it once it has said that it holds the lock."""
        process = self.start("hold", *words, **options)
        self.assertRegex(process.stdout.readline(), "held|holding")
        return process

    def test_held_until_a_signal(self):
        for name in ("INT", "TERM", "HUP", "QUIT"):
            with self.subTest(name=name):
                process = self.start("hold", "a")
                self.assertEqual(process.stdout.readline(), "snib: holding a, until Ctrl-C or SIGTERM\n")
                self.assertEqual(self.server("HLEN", "a"), 1)
                self.assertGreater(self.server("PTTL", "a"), 20000)
                process.send_signal(getattr(signal, "SIG" + name))
                self.assertEqual(self.end(process), (0, ""))
                self.assertFree("a")

    def test_ignored_signals_stay_ignored(self):
        process = self.held("a", preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(self.end(process), (0, ""))

    def test_signal_while_waiting(self):
        self.held("a")
        for name in ("INT", "TERM", "HUP", "QUIT"):
            number = getattr(signal, "SIG" + name)
            process = self.start("hold", "a", "-q")
            wait_for(lambda: self.server("PUBSUB", "CHANNELS"), "the waiter to subscribe")
            process.send_signal(number)
            self.assertEqual(self.end(process), (128 + number, ""))
            wait_for(lambda: self.server("PUBSUB", "CHANNELS") == [], "the subscription to end")

    def test_waits_for_the_lock(self):
        first = self.held("a")
        second = self.start("hold", "a", "-v")
        wait_for(lambda: self.server("PUBSUB", "CHANNELS"), "the waiter to subscribe")
        first.terminate()
        while "holding a" not in (line := second.stdout.readline()):
            self.assertNotEqual(line, "")
        self.assertEqual(self.end(first)[0], 0)
        second.terminate()
        self.assertEqual(self.end(second)[0], 0)
        self.assertFree("a")

    def test_renewed(self):
        process = self.held("a", "--lease", LEASE)
        owner = self.server("HKEYS", "a")
        self.await_renewal("a")
        self.assertEqual(self.server("HKEYS", "a"), owner)
        process.terminate()
        self.assertEqual(self.end(process)[0], 0)

    def test_not_free_in_time(self):
        self.held("a")
        for wait, code in (("0", BUSY), ("100ms", TIMEDOUT)):
            done = self.snib("hold", "a", "--wait", wait)
            self.assertEqual((done.returncode, done.stdout), (code, ""))
            self.assertEqual(done.stderr.count("\n"), 1)
            self.assertEqual(self.snib("hold", "a", "--wait", wait, "--busy-code", "9").returncode, 9)
            done = self.snib("hold", "a", "--wait", wait, "-q")
            self.assertEqual((done.returncode, done.stderr), (code, ""))

    def test_quiet(self):
        process = self.start("hold", "a", "-q", "--lease", LEASE)
        self.await_renewal("a")
        process.terminate()
        self.assertEqual(self.end(process), (0, ""))
        process = self.start("hold", "a", "-q", "--lease", LEASE)
        self.await_renewal("a")
        self.server("DEL", "a")
        process.terminate()
        code, text = self.end(process)
        self.assertEqual(code, LOST)
        self.assertIn("lost", text)

    def test_a_message_that_is_longer_than_the_pipe_takes(self):
        """The rest is dropped: to wait for a reader is to heed neither a loss nor a signal."""
        reader, pipe = os.pipe()
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 8192)
        os.write(pipe, b"x" * 4096)
        names = [f"{n:0400}" for n in range(100)]
        process = subprocess.Popen([SNIB, "hold", *names], env=self.env, stderr=pipe)
        self.addCleanup(process.kill)
        wait_for(lambda: self.server("EXISTS", names[-1]), "the lock")
        wait_for(lambda: select.select([], [pipe], [], 0)[1] == [], "the message")
        process.terminate()
        self.assertEqual(process.wait(60), 0)
        self.assertIn(b"holding", os.read(reader, 8192))
        os.close(reader)
        os.close(pipe)

    def test_a_message_after_one_that_was_cut(self):
        """It is on a line of its own."""
        reader, pipe = os.pipe()
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 8192)
        os.write(pipe, b"x" * 4095 + b"\n")
        names = [f"{n:0400}" for n in range(100)]
        process = subprocess.Popen([SNIB, "hold", *names, "--json"], env=self.env, stderr=pipe)
        self.addCleanup(process.kill)
        wait_for(lambda: select.select([], [pipe], [], 0)[1] == [], "the message")
        process.send_signal(signal.SIGCONT) # which it reads when it has given up the rest
        wait_for(lambda: not is_pending(process.pid, signal.SIGCONT), "the end of the message")
        os.close(pipe)
        with open(reader, "rb", buffering=0) as stderr:
            text = stderr.read(8192)
            self.server("DEL", names[0])
            process.terminate()
            while more := stderr.read(8192):
                text += more
        self.assertEqual(process.wait(60), LOST)
        _, cut, *lines = text.decode().splitlines()
        self.assertRegex(cut[:15] + cut[-20:], r'^{"event":"held"\d+$')
        self.assertEqual([json.loads(line)["event"] for line in lines], ["lost"])

    def test_lost(self):
        process = self.held("a", "--lease", LEASE)
        self.server("DEL", "a")
        self.server("HSET", "a", OTHER, 1)
        self.assertEqual(self.end(process), (LOST, "snib: lock lost: taken\n"))
        self.assertEqual(self.server("HGET", "a", OTHER), "1")
        self.server("DEL", "a")
        process = self.held("a", "--max-hold", LEASE)
        self.assertEqual(self.end(process), (LOST, "snib: lock lost: max hold\n"))
        self.assertFree("a")

    def test_lost_while_it_was_stopped(self):
        """It does not blame the server."""
        process = self.held("a", "--lease", LEASE)
        process.send_signal(signal.SIGSTOP)
        wait_for(lambda: self.server("EXISTS", "a") == 0, "the lease to end")
        process.send_signal(signal.SIGCONT)
        self.assertEqual(self.end(process), (LOST, "snib: lock lost: snib was stopped, or the server unreachable, for too long\n"))

    def test_continued_in_time(self):
        for held in True, False:
            other = None if held else self.held("a")
            process = self.held("a") if held else self.start("hold", "a")
            wait_for(lambda: held or self.server("PUBSUB", "CHANNELS"), "the waiter to subscribe")
            process.send_signal(signal.SIGSTOP)
            process.send_signal(signal.SIGCONT)
            if other:
                other.terminate()
                self.assertEqual(self.end(other)[0], 0)
                self.assertIn("holding a", process.stdout.readline())
            process.terminate()
            self.assertEqual(self.end(process), (0, ""))

    def test_lost_found_at_the_release(self):
        process = self.held("a")
        self.server("DEL", "a")
        process.terminate()
        self.assertEqual(self.end(process), (LOST, "snib: lock lost: deleted\n"))
        process = self.held("a")
        self.server("SET", "a", "data")
        process.terminate()
        code, text = self.end(process)
        self.assertEqual((code, text.count("\n")), (LOST, 1))
        self.assertIn("lock lost: ", text)

    def test_release_that_is_not_confirmed(self):
        other = Server()
        self.addCleanup(other.stop)
        process = self.held("a", "--url", other.url + "?patience=100ms&reply_timeout=60s")
        other.process.send_signal(signal.SIGSTOP)
        process.terminate()
        try:
            code, text = self.end(process)
        finally:
            other.process.send_signal(signal.SIGCONT)
        self.assertEqual(code, SERVER)
        self.assertRegex(text, "^snib: mutex \"a\": ")

    def test_signal_while_the_release_is_not_confirmed(self):
        """The first signal asks for the release, the next one does not wait for its answer."""
        other = Server()
        self.addCleanup(other.stop)
        process = self.held("a", "--lease", "24h", "--url", other.url + "?patience=24h&reply_timeout=24h")
        other.process.send_signal(signal.SIGSTOP)
        process.terminate()
        process.send_signal(signal.SIGINT)
        code, text = self.end(process)
        self.assertEqual((code, text.count("\n")), (SERVER, 1))
        self.assertIn("a signal came before the server had confirmed the release", text)

    def test_second_signal_of_a_release_that_is_confirmed(self):
        for _ in range(5): # one for which no process has stalled for a second suffices
            process = self.held("a")
            for number in signal.SIGTERM, signal.SIGHUP, signal.SIGINT:
                process.send_signal(number)
            ended = self.end(process)
            self.assertFree("a")
            if ended[0] == 0:
                break
        self.assertEqual(ended, (0, ""))

    def test_server_away(self):
        done = self.snib("hold", "a", "--url", f"unix://{self.folder.name}/nobody")
        self.assertEqual((done.returncode, done.stdout), (SERVER, ""))
        self.assertIn("nobody", done.stderr)

    def test_kinds(self):
        for options, kind in (((), "mutex"), (("--fair",), "mutex"), (("--read",), "read"), (("--write",), "write"),
                              (("--permits", "2"), "permits"), (("--plain",), "plain"), (("--spin",), "mutex")):
            with self.subTest(options=options):
                process = self.held("a", *options)
                self.assertEqual(json.loads(self.snib("info", "a", "--json").stdout)["kind"], kind)
                process.terminate()
                self.assertEqual(self.end(process), (0, ""))
                self.server("FLUSHALL")

    def test_token(self):
        tokens = []
        for _ in range(2):
            process = self.start("hold", "a", "--fenced", "--json")
            line = json.loads(process.stdout.readline())
            self.assertEqual(line["event"], "held")
            tokens.append(line["token"])
            process.terminate()
            self.assertEqual(self.end(process), (0, ""))
        self.assertGreater(tokens[1], tokens[0])
        process = self.start("hold", "a", "--fenced")
        self.assertTrue(re.search(r"token (\d+),", process.stdout.readline()))

    def test_bad_usage(self):
        bad = {("hold",): "name", ("hold", "a", "--", "true"): "run NAME -- COMMAND",
               ("hold", "a", "--on-loss", "kill"): "--on-loss", ("hold", "a", "--rest", "wait"): "--rest",
               ("hold", "a", "--kill-after", "1s"): "--kill-after", ("hold", "a", "--keep-password"): "--keep-password",
               ("hold", "a", "--force"): "--force", ("hold", "a", "--latch"): "--latch",
               ("hold", "a", "--permits"): "--permits", ("hold", "a", "--wait", "x"): "--wait",
               ("hold", "a", "--read", "--fair"): "--fair", ("hold", "a\nb"): "name"}
        for words, text in bad.items():
            with self.subTest(words=words):
                done = self.snib(*words)
                self.assertEqual((done.returncode, done.stdout), (USAGE, ""))
                self.assertRegex(done.stderr, r"^snib: [^\n]{10,}\n$")
                self.assertIn(text, done.stderr)
        self.assertEqual(self.server("DBSIZE"), 0)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""snib latch: the count is shown, set, counted down and waited for."""
import json
import unittest

from command import BUSY, SERVER, TIMEDOUT, USAGE, CommandCase
from server import wait_for


class Latch(CommandCase):
    def latch(self, *words, code=0):
        done = self.snib("latch", "a", *words)
        self.assertEqual((done.returncode, done.stderr), (code, ""))
        return done.stdout

    def test_counts(self):
        self.assertEqual(self.latch(), "0\n")
        self.assertEqual(self.latch("set", "2"), "2\n")
        self.assertEqual(self.server("GET", "a"), "2")
        self.assertEqual(self.latch(), "2\n")
        self.assertEqual(self.latch("set", "5", code=1), "2\n") # and it is left as it was
        self.assertEqual(self.latch("down"), "1\n")
        self.assertEqual(self.latch("down"), "0\n")
        self.assertEqual(self.latch("down"), "0\n")
        self.assertEqual(self.server("EXISTS", "a"), 0)
        self.assertEqual(self.latch("wait", "--wait", "0"), "0\n")
        self.assertEqual(self.latch("set", "2147483647"), "2147483647\n")

    def test_json(self):
        for words, code, told in (((), 0, {"count": 0}), (("set", "2"), 0, {"count": 2, "set": True}),
                                  (("set", "3"), 1, {"count": 2, "set": False}), (("down",), 0, {"count": 1}),
                                  (("down",), 0, {"count": 0}), (("wait",), 0, {"count": 0})):
            self.assertEqual(json.loads(self.latch(*words, "--json", code=code)), {"name": "a", **told})

    def test_wait(self):
        self.latch("set", "1")
        for options in ((), ("--wait", "1m")):
            waiter = self.start("latch", "a", "wait", *options)
            wait_for(lambda: self.server("PUBSUB", "CHANNELS"), "the waiter to subscribe")
            self.latch("down")
            self.assertEqual(self.end(waiter), (0, "0\n"))
            wait_for(lambda: self.server("PUBSUB", "CHANNELS") == [], "the subscription to end")
            self.latch("set", "1")

    def test_log_of_a_wait(self):
        """It is told as it happens, not when the wait is over."""
        self.latch("set", "1")
        waiter = self.start("latch", "a", "wait", "-v")
        self.assertEqual(waiter.stdout.readline(), f"snib: info: connected to {self.server.path}\n")
        wait_for(lambda: self.server("PUBSUB", "CHANNELS"), "the waiter to subscribe")
        self.server("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        self.assertRegex(waiter.stdout.readline(), "^snib: warning: no connection to ")
        wait_for(lambda: self.server("PUBSUB", "CHANNELS"), "the waiter to subscribe")
        self.latch("down")
        code, text = self.end(waiter)
        self.assertEqual((code, text.splitlines()[-1]), (0, "0"))

    def test_not_open_in_time(self):
        self.latch("set", "1")
        for wait, code in (("0", BUSY), ("100ms", TIMEDOUT)):
            done = self.snib("latch", "a", "wait", "--wait", wait)
            self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (code, "", 1))
            self.assertEqual(self.latch("wait", "--wait", wait, "-q", code=code), "")
            self.assertEqual(self.latch("wait", "--wait", wait, "-q", "--busy-code", "7", code=7), "")

    def test_signal(self):
        self.latch("set", "1")
        waiter = self.start("latch", "a", "wait")
        wait_for(lambda: self.server("PUBSUB", "CHANNELS"), "the waiter to subscribe")
        waiter.terminate()
        self.assertEqual(self.end(waiter), (-15, ""))
        self.assertEqual(self.latch(), "1\n")

    def test_data_of_another_kind(self):
        self.server("SET", "a", "data")
        for words in ((), ("set", "1"), ("down",), ("wait", "--wait", "0")):
            done = self.snib("latch", "a", *words)
            self.assertEqual((done.returncode, done.stdout), (SERVER, ""))
            self.assertIn('latch "a"', done.stderr)
        self.assertEqual(self.server("GET", "a"), "data")

    def test_bad_usage(self):
        bad = [([], "name"), (["a", "up"], "set N, down, wait or nothing, not up"), (["a", ""], "set N, down"),
               (["a", "set"], "number from 1 to 2147483647"), (["a", "down", "1"], "too many arguments: 1"),
               (["a", "set", "1", "2"], "too many arguments: 2"), (["a", "--wait", "1s"], "--wait"),
               (["a", "down", "--busy-code", "1"], "--busy-code"), (["a", "set", "1", "--wait", "0"], "--wait"),
               (["a", "down", "--lease", "1s"], "--lease cannot be used with latch"), (["a", "--fair"], "--fair"),
               (["a", "wait", "--wait", "x"], "--wait"), (["a", "--", "true"], "only run takes a command"),
               (["x\ny"], "name")]
        bad += [(["a", "set", number], "number from 1 to 2147483647")
                for number in ("0", "2147483648", "x", "1x", "", "1.5", " 1")]
        bad += [(["a", "set", "0"], "not 0; see"), (["a", "set"], "2147483647, such as latch NAME set 3; see")]
        for words, text in bad:
            with self.subTest(words=words):
                done = self.snib("latch", *words)
                self.assertEqual((done.returncode, done.stdout), (USAGE, ""))
                self.assertRegex(done.stderr, r"^snib: [^\n]{10,}\n$")
                self.assertIn(text, done.stderr)
        self.assertEqual(self.server("DBSIZE"), 0)


if __name__ == "__main__":
    unittest.main()

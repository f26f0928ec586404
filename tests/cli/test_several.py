#!/usr/bin/env python3
"""snib run and snib hold with several names: all of the locks, or none."""
import json
import unittest

from command import BUSY, LEASE, LOST, TIMEDOUT, USAGE, CommandCase
from server import wait_for


class Names(CommandCase):
    def listed(self):
        return {item["name"]: item["kind"] for item in json.loads(self.snib("list", "--json").stdout)}

    def test_all_are_held_while_the_command_runs(self):
        process = self.start("run", "b", "a", "c d", "--", "sh", "-c", 'echo "$SNIB_LOCK"; echo "${SNIB_TOKEN-none}"; '
                                                                      'exec sleep 60')
        for line in ("b", "a", "c d", "none"): # in the order of the command line
            self.assertEqual(process.stdout.readline(), line + "\n")
        self.assertEqual(self.listed(), {"a": "mutex", "b": "mutex", "c d": "mutex"})
        process.terminate()
        self.assertEqual(self.end(process)[0], 128 + 15)
        for name in ("a", "b", "c d"):
            self.assertFree(name)

    def test_held_without_a_command(self):
        process = self.start("hold", "a", "b")
        self.assertEqual(process.stdout.readline(), "snib: holding a, b, until Ctrl-C or SIGTERM\n")
        self.assertEqual(self.listed(), {"a": "mutex", "b": "mutex"})
        process.terminate()
        self.assertEqual(self.end(process), (0, ""))
        self.assertEqual(self.listed(), {})

    def test_none_if_one_is_not_free(self):
        self.hold("b")
        for wait, code in (("0", BUSY), ("100ms", TIMEDOUT)):
            for command in (["run", "a", "b", "c", "--wait", wait, "--", "echo", "ran"],
                            ["hold", "a", "b", "c", "--wait", wait]):
                done = self.snib(*command)
                self.assertEqual((done.returncode, done.stdout), (code, ""))
                self.assertEqual(done.stderr.count("\n"), 1)
                wait_for(lambda: self.listed() == {"b": "mutex"}, "the others to be given back")

    def test_waits_for_the_last(self):
        first = self.hold("b")
        second = self.start("run", "a", "b", "-q", "--", "echo", "both")
        wait_for(lambda: self.server("PUBSUB", "CHANNELS"), "the waiter to subscribe")
        first.terminate()
        self.assertEqual(self.end(second), (0, "both\n"))
        self.assertFree("a")
        self.assertFree("b")

    def test_opposite_orders(self):
        ways = [self.start("run", *names, "-q", "--", "echo", "done") for names in (("a", "b"), ("b", "a")) * 3]
        for process in ways:
            self.assertEqual(self.end(process), (0, "done\n"))

    def test_lost_with_one_of_them(self):
        process = self.hold("a", "b", "--lease", LEASE)
        self.server("DEL", "b")
        code, text = self.end(process)
        self.assertEqual(code, LOST)
        self.assertIn("lost", text)
        self.assertFree("a")

    def test_kinds(self):
        for options, kind in (((), "mutex"), (("--fair",), "mutex"), (("--read",), "read"), (("--write",), "write"),
                              (("--plain",), "plain"), (("--permits", "2"), "permits")):
            with self.subTest(options=options):
                process = self.start("hold", "a", "b", *options)
                process.stdout.readline()
                for name in "ab":
                    self.assertEqual(json.loads(self.snib("info", name, "--json").stdout)["kind"], kind)
                process.terminate()
                self.assertEqual(self.end(process), (0, ""))
                self.server("FLUSHALL")

    def test_permits_of_each(self):
        process = self.start("hold", "a", "b", "--permits", "3")
        process.stdout.readline()
        for name in "ab":
            told = json.loads(self.snib("info", name, "--json").stdout)
            self.assertEqual((told["available"], told["total"]), (2, 3))

    def test_bad_usage(self):
        names = [f"n{i}" for i in range(101)]
        bad = [(["run", "a", "a"], "given twice"), (["run", "a", "b", "a"], "given twice"),
               (["hold", "a", "b", "--fenced"], "--fenced"), (["hold", "a", "", "b"], "name"),
               (["hold", *names], "too many arguments: n100"), (["info", "a", "b"], "too many arguments: b")]
        for words, text in bad:
            done = self.snib(*words, *(("--", "true") if words[0] == "run" else ()))
            self.assertEqual((done.returncode, done.stdout), (USAGE, ""))
            self.assertRegex(done.stderr, r"^snib: [^\n]{10,}\n$")
            self.assertIn(text, done.stderr)
        self.assertEqual(self.server("DBSIZE"), 0)
        self.assertEqual(self.snib("run", *names[:100], "--", "true").returncode, 0)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""After a second of waiting, snib run and snib hold say what they wait for, once."""
import json
import re
import signal
import time
import unittest

from command import TIMEDOUT, CommandCase
from server import Server, wait_for

OWNER = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}:\d+"


class Waiting(CommandCase):
    def holder(self, name, *options):
        """Start a hold; return its process and its owner, as snib info shows it."""
        process = self.start("hold", name, *options)
        process.stdout.readline()
        told = json.loads(self.snib("info", name, "--json").stdout)
        row = (told["holders"] + told["readers"] + told["permits"])[0]
        return process, row.get("owner") or row["id"]

    def test_owner(self):
        process, owner = self.holder("a")
        begun = time.monotonic()
        for words in (["hold", "a"], ["run", "a", "--", "true"]):
            waiter = self.start(*words)
            line = waiter.stdout.readline()
            self.assertRegex(line, rf"^snib: waiting for a, held by {OWNER} \(lease ends in \d+\.\d{{3}} s(; host .*)?\)\n$")
            self.assertIn(owner, line)
            waiter.kill()
            self.assertEqual(self.end(waiter)[1], "") # and nothing else
        self.assertGreaterEqual(time.monotonic() - begun, 2)

    def test_once(self):
        self.holder("a")
        done = self.snib("hold", "a", "--wait", "4s")
        self.assertEqual(done.returncode, TIMEDOUT)
        self.assertEqual(done.stderr.count("waiting for"), 1)
        self.assertEqual(done.stderr.count("\n"), 2)

    def test_json(self):
        _, owner = self.holder("a")
        done = self.snib("hold", "a", "--wait", "2s", "--json")
        self.assertEqual(done.returncode, TIMEDOUT)
        lines = [json.loads(line) for line in done.stderr.splitlines()]
        # Under load the wait may be over before the answer is there.
        told = [line for line in lines if line["event"] == "waiting"]
        for line in told:
            self.assertEqual((line["name"], line["owner"]), ("a", owner))
        waiter = self.start("hold", "a", "--json")
        line = json.loads(waiter.stdout.readline())
        self.assertEqual((line["event"], line["name"], line["owner"]), ("waiting", "a", owner))

    def test_kinds(self):
        sides = ((("--read",), ("--write",)), (("--write",), ("--read",)), (("--fair",), ("--fair",)),
                 (("--plain",), ("--plain",)), (("--spin",), ("--spin",)), (("--fenced",), ("--fenced",)),
                 (("--permits", "1"), ("--permits", "1")))
        for held, wanted in sides:
            with self.subTest(held=held, wanted=wanted):
                process, owner = self.holder("a", *held)
                waiter = self.start("hold", "a", *wanted)
                line = waiter.stdout.readline()
                self.assertIn("waiting for a, held by ", line)
                self.assertIn(owner, line)
                waiter.kill()
                process.kill()
                waiter.wait()
                process.wait()
                self.server("FLUSHALL")

    def test_more_than_one(self):
        for _ in range(3):
            self.holder("a", "--read")
        waiter = self.start("hold", "a", "--write")
        self.assertRegex(waiter.stdout.readline(), rf"^snib: waiting for a, held by {OWNER} \(.*\) and 2 more\n$")

    def test_several_names(self):
        """The one that is held is named, wherever it stands."""
        _, owner = self.holder("c")
        waiter = self.start("run", "b", "c", "a", "--json", "--", "true")
        line = json.loads(waiter.stdout.readline())
        self.assertEqual((line["event"], line["name"], line["owner"]), ("waiting", "c", owner))

    def test_several_names_one_after_the_other(self):
        """The waiter itself holds the first one by then."""
        for kind in (("--fair",), ("--plain",), ("--permits", "1")):
            with self.subTest(kind=kind):
                process, owner = self.holder("b", *kind)
                waiter = self.start("run", "a", "b", *kind, "--json", "--", "true")
                line = json.loads(waiter.stdout.readline())
                self.assertEqual((line["event"], line["name"], line["owner"]), ("waiting", "b", owner))
                waiter.kill()
                process.kill()
                waiter.wait()
                process.wait()
                self.server("FLUSHALL")

    def test_several_names_with_permits_of_others(self):
        """Another has a permit of the first one, too, which is not what is waited for."""
        kind = "--permits", "2"
        self.holder("a", *kind)
        owners = [self.holder("b", *kind)[1] for _ in range(2)]
        waiter = self.start("run", "a", "b", *kind, "--json", "--", "true")
        line = json.loads(waiter.stdout.readline())
        self.assertEqual((line["event"], line["name"]), ("waiting", "b"))
        self.assertIn(line["owner"], owners)

    def test_quiet(self):
        self.holder("a")
        for option in ("-q", "--quiet"):
            done = self.snib("hold", "a", option, "--wait", "1500ms")
            self.assertEqual((done.returncode, done.stderr), (TIMEDOUT, ""))

    def test_not_before_a_second(self):
        self.holder("a")
        for wait in ("0", "1ms", "1s"):
            self.assertEqual(self.snib("run", "a", "--wait", wait, "--", "true").stderr.count("waiting for"), 0)

    def test_still_listens(self):
        """The lock and signals are waited for as before."""
        for end in ("release", "signal"):
            process, _ = self.holder("a")
            waiter = self.start("run", "a", "--", "echo", "mine")
            self.assertIn("waiting for a", waiter.stdout.readline())
            if end == "release":
                process.terminate()
                self.assertEqual(self.end(waiter), (0, "mine\n"))
            else:
                waiter.terminate()
                self.assertEqual(self.end(waiter), (128 + signal.SIGTERM, ""))
                process.terminate()
            self.assertEqual(self.end(process), (0, ""))
            self.assertFree("a")

    def test_data_of_another_program(self):
        """Such as a lock of another library, whose value is a number."""
        self.server("SET", "number", "4711", "PX", "60000")
        self.server("HSET", "fields", "a", "b")
        for words, name in (["number", "--plain"], "number"), (["fields"], "fields"), (["free", "fields"], "fields"):
            with self.subTest(words=words):
                waiter = self.start("hold", *words)
                self.assertEqual(waiter.stdout.readline(), f"snib: waiting for {name}, its holder is unknown: "
                                 "the key has another program's data, which may be its lock\n")
                waiter.terminate()

    def test_holder_that_may_not_be_asked_for(self):
        guarded = Server()
        self.addCleanup(guarded.stop)
        rules = self.snib("acl", "a", "--fair", env={"SNIB_URL": ""}).stdout.split()
        guarded("ACL", "SETUSER", "locker", "on", ">secret", *rules)
        holder = self.start("hold", "a", "--url", guarded.url, "--fair")
        holder.stdout.readline()
        waiter = self.start("hold", "a", "--fair", "--url", guarded.url.replace("unix://", "unix://locker:secret@"))
        line = waiter.stdout.readline()
        self.assertTrue(re.match("snib: waiting for a, (its holder is unknown: .|held by )", line), line)
        wait_for(lambda: waiter.poll() is None, "the waiter to go on")
        holder.terminate()
        self.assertIn("holding a", waiter.stdout.readline())


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""The snib command and the kinds of locks: run, info, list and release for each of them."""
import itertools
import json
import unittest

from command import BUSY, LEASE, LOST, SERVER, USAGE, CommandCase
from server import wait_for

OURS = "11111111-1111-8111-8111-111111111111"
OWNER = f"{OURS}:1"


class Kinds(CommandCase):
    def info(self, name):
        return json.loads(self.snib("info", name, "--json").stdout)

    def listed(self, *pattern):
        """The output of list: {name: kind}."""
        rows = json.loads(self.snib("list", "--json", *pattern).stdout)
        text = self.snib("list", *pattern).stdout.splitlines()
        self.assertEqual([f"{row['kind']:8} {row['name']}" for row in rows], text)
        return {row["name"]: row["kind"] for row in rows}

    def run_busy(self, name, *options):
        return self.snib("run", name, *options, "--wait", "0", "--", "true").returncode == BUSY

    def token(self, name, *options):
        done = self.snib("run", name, *options, "--", "sh", "-c", 'echo "${SNIB_TOKEN-none}"')
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.strip()

    def stop(self, process):
        process.terminate()
        self.end(process)

    # ---- run -------------------------------------------------------------------------------------

    def test_one_holder(self):
        for options in ((), ("--fair",), ("--write",), ("--fenced",), ("--spin",), ("--plain",),
                        ("--fair", "--fenced"), ("--fenced", "--write"), ("--permits", "1")):
            with self.subTest(options=options):
                self.server("FLUSHALL")
                holder = self.hold("a", *options)
                self.assertTrue(self.run_busy("a", *options))
                waiter = self.start("run", "a", "-q", *options, "--", "echo", "mine")
                if "--spin" not in options and "--plain" not in options: # these poll
                    wait_for(lambda: self.server("PUBSUB", "CHANNELS"), "the waiter to subscribe")
                self.stop(holder)
                self.assertEqual(self.end(waiter), (0, "mine\n"))
                self.assertNotIn(self.info("a")["held"], (True, None))

    def test_readers_and_writers(self):
        first = self.hold("a", "--read")
        second = self.hold("a", "--read")
        self.assertTrue(self.run_busy("a", "--write"))
        self.stop(first)
        self.assertTrue(self.run_busy("a", "--write"))
        self.stop(second)
        writer = self.hold("a", "--write")
        self.assertTrue(self.run_busy("a", "--read"))
        self.assertTrue(self.run_busy("a", "--write"))
        self.stop(writer)
        self.assertFalse(self.run_busy("a", "--read"))

    def test_fair_order(self):
        holder = self.hold("a", "--fair")
        order = f"{self.folder.name}/order"
        waiters = []
        for number in range(3):
            waiters.append(self.start("run", "a", "-q", "--fair", "--", "sh", "-c",
                                      f"echo {number} >> {order}"))
            wait_for(lambda: self.server("LLEN", "redisson_lock_queue:{a}") == len(waiters),
                     "the waiter to queue")
        self.stop(holder)
        for waiter in waiters:
            self.assertEqual(self.end(waiter)[0], 0)
        with open(order) as file:
            self.assertEqual(file.read(), "0\n1\n2\n")

    def test_tokens(self):
        for options in ((), ("--fair",), ("--read",), ("--write",), ("--spin",), ("--plain",),
                        ("--permits", "2")):
            self.server("FLUSHALL")
            self.assertEqual(self.token("a", *options), "none")
        self.server("FLUSHALL")
        tokens = [int(self.token("a", *options, "--fenced"))
                  for options in ((), ("--fair",), ("--write",), (), ("--write",), ("--fair",))]
        self.assertEqual(tokens, sorted(set(tokens)))
        self.assertGreater(tokens[0], 0)
        self.assertEqual(self.info("a")["token"], tokens[-1])

    def test_permits(self):
        holders = [self.hold("a", "--permits", "2") for _ in range(2)]
        self.assertTrue(self.run_busy("a", "--permits", "2"))
        self.assertTrue(self.run_busy("a", "--permits", "5")) # the number was set before
        self.assertEqual(self.info("a")["total"], 2)
        waiter = self.start("run", "a", "-q", "--permits", "2", "--", "echo", "mine")
        wait_for(lambda: self.server("PUBSUB", "CHANNELS"), "the waiter to subscribe")
        self.stop(holders[0])
        self.assertEqual(self.end(waiter), (0, "mine\n"))
        self.stop(holders[1])
        self.assertEqual(self.server("GET", "a"), "2")

    def test_permits_loss(self):
        process = self.hold("a", "--permits", "1", "--lease", LEASE)
        self.server("DEL", "{a}:timeout")
        self.assertEqual(self.end(process)[0], LOST)

    def test_loss(self):
        processes = {option: self.hold(f"a{option}", "--lease", LEASE, option) for option in
                     ("--fair", "--read", "--write", "--fenced", "--spin", "--plain")}
        self.server("FLUSHALL")
        for option, process in processes.items():
            with self.subTest(option=option):
                self.assertEqual(self.end(process)[0], LOST)

    # ---- info ------------------------------------------------------------------------------------

    def test_info_free(self):
        self.assertEqual(self.snib("info", "a").stdout, "a: free, 0 waiting processes\n")
        free = self.info("a")
        self.assertEqual((free["name"], free["kind"], free["held"], free["holders"],
                          free["waiting"]), ("a", "free", False, [], 0))

    def test_info_mutex(self):
        self.hold("a")
        self.start("run", "a", "--", "true")
        wait_for(lambda: self.server("PUBSUB", "CHANNELS"), "the waiter to subscribe")
        owner = self.server("HKEYS", "a")[0]
        self.assertRegex(self.snib("info", "a").stdout,
                         r"^a: mutex, 1 waiting process\n"
                         r"  holder [0-9a-f-]{36}:\d+, lease ends in \d+\.\d{3} s\n(    host .*\n)?$")
        held = json.loads(self.snib("--json", "info", "a").stdout)
        self.assertEqual((held["kind"], held["held"], held["waiting"]), ("mutex", True, 1))
        self.assertEqual([(one["owner"], one["count"]) for one in held["holders"]], [(owner, 1)])
        self.assertTrue(20000 < held["holders"][0]["remaining_ms"] <= 30000)

    def test_info_without_lease(self):
        self.server("HSET", "a", OWNER, 2)
        self.assertIn("count 2, no lease", self.snib("info", "a").stdout)
        self.assertIsNone(self.info("a")["holders"][0]["remaining_ms"])

    def test_info_kinds(self):
        for options, kind, rows in ((("--write",), "write", "holders"),
                                    (("--read",), "read", "readers"),
                                    (("--plain",), "plain", "holders"),
                                    (("--spin",), "mutex", "holders"),
                                    (("--fenced",), "mutex", "holders"),
                                    (("--permits", "3"), "permits", "permits")):
            with self.subTest(kind=kind):
                self.server("FLUSHALL")
                process = self.hold("a", *options)
                told = self.info("a")
                self.assertEqual((told["kind"], told["held"]), (kind, True))
                for name in ("holders", "readers", "permits", "waiters"):
                    self.assertEqual(len(told[name]), int(name == rows), name)
                self.assertTrue(20000 < told[rows][0]["remaining_ms"] <= 30000)
                if kind != "permits":
                    self.assertRegex(told[rows][0]["owner"], r"^[0-9a-f-]{36}:\d+$")
                    self.assertEqual(told[rows][0]["count"], 1)
                self.assertRegex(self.snib("info", "a").stdout, f"^a: {kind}, .*\n  {rows[:-1]} ")
                if kind == "permits":
                    self.assertEqual((told["available"], told["total"]), (2, 3))
                    self.assertIn("permits, 2 of 3 free", self.snib("info", "a").stdout)
                self.stop(process)

    def test_info_fair(self):
        self.hold("a", "--fair", "--fenced")
        for number in range(3):
            self.start("run", "a", "--fair", "--", "true")
            wait_for(lambda n=number: self.server("LLEN", "redisson_lock_queue:{a}") == n + 1,
                     "the waiter to queue")
        told = self.info("a")
        self.assertEqual((told["kind"], len(told["holders"])), ("fair", 1))
        self.assertEqual([one["owner"] for one in told["waiters"]],
                         self.server("LRANGE", "redisson_lock_queue:{a}", 0, -1))
        self.assertGreater(told["token"], 0)
        self.assertEqual(self.snib("info", "a").stdout.count("  waiter "), 3)

    def test_info_counter_and_other(self):
        self.server("SET", "a", 7)
        self.assertEqual((self.info("a")["kind"], self.info("a")["count"]), ("counter", 7))
        self.server("RPUSH", "b", "x")
        self.assertEqual((self.info("b")["kind"], self.info("b")["held"]), ("other", False))

    # ---- list ------------------------------------------------------------------------------------

    def test_list_none(self):
        self.assertEqual(self.snib("list").stdout, "")
        self.assertEqual(self.snib("list", "--json").stdout, "[]\n")

    def test_list(self):
        names = [f"jobs:{i:03}" for i in range(300)] + ["other", "\u00e4\nb"]
        for name in names:
            self.server("HSET", name, OWNER, 1)
        self.server("SET", "jobs:no-lock", "x")
        self.server("HSET", "jobs:no-lock-either", "field", "x")
        shown = sorted(name.replace("\n", "?") for name in names)
        self.assertEqual(list(self.listed()), shown)
        self.assertEqual(list(self.listed("jobs:00*")), names[:10])

    def test_list_kinds(self):
        for name, options in (("mutex", ()), ("write", ("--write",)), ("read", ("--read",)),
                              ("fair", ("--fair",)), ("permits", ("--permits", "2"))):
            self.hold(name, *options)
        self.start("run", "fair", "--fair", "--", "true")
        wait_for(lambda: self.server("LLEN", "redisson_lock_queue:{fair}"), "the waiter to queue")
        self.assertEqual(self.listed(), {name: name for name in
                                         ("fair", "mutex", "permits", "read", "write")})

    # ---- release ---------------------------------------------------------------------------------

    def test_release(self):
        process = self.hold("a", "--lease", LEASE)
        done = self.snib("release", "a")
        self.assertEqual(done.returncode, USAGE)
        self.assertEqual(self.server("EXISTS", "a"), 1)
        done = self.snib("release", "--force", "a")
        self.assertEqual((done.returncode, done.stdout), (0, "a: released\n"))
        self.assertEqual(self.end(process)[0], LOST)
        done = self.snib("release", "--force", "a")
        self.assertEqual((done.returncode, done.stdout), (1, "a: nothing was held\n"))
        done = self.snib("release", "--force", "a", "--json")
        self.assertEqual((done.returncode, done.stdout), (1, '{"name":"a","released":false}\n'))

    def test_release_takes_what_is_there(self):
        # All at once, because each learns of it by its next renewal.
        cases = {f"a{i}": (options, named) for i, (options, named) in enumerate(itertools.product(
            (("--fair",), ("--read",), ("--write",), ("--fenced",), ("--spin",), ("--plain",),
             ("--permits", "1"), ("--fair", "--fenced")), (True, False)))}
        processes = {name: self.hold(name, *options, "--lease", LEASE)
                     for name, (options, _) in cases.items()}
        for name, (options, named) in cases.items():
            with self.subTest(options=options, named=named):
                kind = [word for word in options if word.startswith("--")] if named else []
                done = self.snib("release", "--force", *kind, name)
                self.assertEqual((done.returncode, done.stdout, done.stderr),
                                 (0, f"{name}: released\n", ""))
        for name, process in processes.items():
            with self.subTest(case=cases[name]):
                self.assertEqual(self.end(process)[0], LOST)
                self.assertEqual(self.server("EXISTS", name), 0)

    def test_release_wakes_a_waiter(self):
        for options in (("--fair",), ("--write",), ("--fenced",)):
            with self.subTest(options=options):
                self.server("FLUSHALL")
                self.hold("a", *options)
                waiter = self.start("run", "a", "-q", *options, "--", "echo", "mine")
                wait_for(lambda: self.server("PUBSUB", "CHANNELS"), "the waiter to subscribe")
                self.assertEqual(self.snib("release", "--force", "a").returncode, 0)
                self.assertEqual(self.end(waiter), (0, "mine\n"))

    def test_release_of_the_other_side(self):
        self.hold("a", "--read")
        self.assertEqual(self.snib("release", "--force", "--write", "a").returncode, 1)
        self.assertEqual(self.server("HGET", "a", "mode"), "read")

    def test_release_of_numbers_and_strings(self):
        # They may be the data of any program, so they are deleted only if their kind is given.
        for value, options in ((7, ("--semaphore", "--permits", "--latch")),
                               ("other-text", ("--plain",)),
                               ("550e8400-e29b-41d4-a716-446655440000:1", ("--plain",))):
            for option in options:
                self.server("SET", "a", value, "PX", 60000)
                done = self.snib("release", "--force", "a")
                self.assertNotEqual(done.returncode, 0)
                self.assertRegex(done.stderr, rf"^snib: [^\n]*{option}[^\n]+\n$")
                self.assertEqual(self.server("GET", "a"), str(value))
                self.assertEqual(self.snib("release", "--force", option, "a").returncode, 0)
                self.assertEqual(self.server("EXISTS", "a"), 0)

    def test_release_of_other_data(self):
        self.server("RPUSH", "a", "data")
        for option in ((), ("--fair",), ("--read",), ("--write",), ("--plain",), ("--semaphore",),
                       ("--permits",), ("--latch",)):
            done = self.snib("release", "--force", *option, "a")
            self.assertEqual(done.returncode, SERVER, done)
            self.assertEqual(self.server("LRANGE", "a", 0, -1), ["data"])

    def test_release_of_a_string_without_a_time_to_live(self):
        # It may be redis-py's, of a program that has died, or any data; docs/migrating.md says what to do.
        self.server("SET", "a", "token")
        for option in ((), ("--plain",)):
            done = self.snib("release", "--force", *option, "a")
            self.assertEqual(done.returncode, SERVER, done)
            self.assertEqual(self.server("GET", "a"), "token")


if __name__ == "__main__":
    unittest.main()

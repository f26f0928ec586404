#!/usr/bin/env python3
"""snib info: the process behind a lock, as it says itself."""
import json
import socket
import time
import unittest

from command import SCHEMAS, CommandCase
from server import wait_for

OWNER = "11111111-2222-8333-8444-555555555555"
KEY = f"snib_client:{{{OWNER}}}"


class Identity(CommandCase):
    def info(self, name):
        return json.loads(self.snib("info", name, "--json").stdout)

    def known(self, name, *rows):
        """The identities of these rows, once they are known."""
        told = []

        def look():
            told[:] = [self.info(name)]
            return all(told[0][row] and "identity" in told[0][row][0] for row in rows)

        wait_for(look, f"{name}'s processes to be known")
        return [told[0][row][0]["identity"] for row in rows]

    def test_a_holder(self):
        before = int(time.time())
        url = f"{self.env['SNIB_URL']}&label=nightly"
        holder = self.start("hold", "a", "--lease", "6s", "--url", url)
        holder.stdout.readline()
        (who,) = self.known("a", "holders")
        self.assertEqual((socket.gethostname()[:64], holder.pid, "snib", "nightly"),
                         (who["host"], who["pid"], who["program"], who["label"]))
        self.assertTrue(before <= who["since"] <= time.time())
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(who["since"]))
        self.assertIn(f"\n    host {who['host']}, pid {holder.pid}, program snib, label nightly, up since {since}\n",
                      self.snib("info", "a").stdout)
        held_since = self.info("a")["holders"][0]["held_since"]
        self.assertTrue(who["since"] <= held_since <= time.time())
        held = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(held_since))
        self.assertRegex(self.snib("info", "a").stdout, rf"\n  holder \S+, held since {held}, lease ends in ")
        holder.terminate()
        holder.wait()
        wait_for(lambda: self.server("KEYS", "*") == [], "the client to take it back")

    def test_readers_and_waiters(self):
        """One who holds another lock says it for all."""
        for number in range(2):
            self.start("hold", "read", "--read", "--lease", "6s").stdout.readline()
        wait_for(lambda: all("identity" in row for row in self.info("read")["readers"]), "both to be known")
        self.assertEqual({process.pid for process in self.started},
                         {row["identity"]["pid"] for row in self.info("read")["readers"]})
        self.server("HSET", "fair", f"{OWNER}:1", 1)
        self.server("RPUSH", "redisson_lock_queue:{fair}", f"{OWNER}:2")
        self.server("ZADD", "redisson_lock_timeout:{fair}", "99999999999999", f"{OWNER}:2")
        self.server("SET", KEY, "host h\npid 7\n")
        told = self.info("fair")
        self.assertEqual({"host": "h", "pid": 7}, told["holders"][0]["identity"])
        self.assertEqual({"host": "h", "pid": 7}, told["waiters"][0]["identity"])
        self.assertEqual(2, self.snib("info", "fair").stdout.count("\n    host h, pid 7\n"))

    def test_who_is_waited_for(self):
        """A waiter names the process, too."""
        holder = self.start("hold", "a", "--lease", "6s")
        holder.stdout.readline()
        self.known("a", "holders")
        waiter = self.start("hold", "a")
        self.assertRegex(waiter.stdout.readline(), r"^snib: waiting for a, held by \S+ since [0-9: -]+ UTC "
                         rf"\(lease ends in [0-9.]+ s; host \S+, pid {holder.pid}, program snib, "
                         r"up since [0-9: -]+ UTC\)\n$")
        told = json.loads(self.start("hold", "a", "--json").stdout.readline())
        SCHEMAS["message"].validate(told)
        self.assertEqual(holder.pid, told["identity"]["pid"])
        self.assertEqual(self.info("a")["holders"][0]["held_since"], told["held_since"])

    def test_waiting_without_the_right(self):
        self.server("HSET", "a", f"{OWNER}:1", 1)
        self.server("ACL", "SETUSER", "locker", "reset", "on", ">secret", "~a", "~redisson*", "~{a}*", "&*", "+@all")
        self.addCleanup(self.server, "ACL", "DELUSER", "locker")
        self.env = {**self.env, "SNIB_USERNAME": "locker", "SNIB_PASSWORD": "secret"}
        waiter = self.start("hold", "a")
        self.assertEqual(f"snib: waiting for a, held by {OWNER}:1 (no lease)\n", waiter.stdout.readline())

    def test_what_others_wrote(self):
        """Whatever lies there is data."""
        self.server("HSET", "a", f"{OWNER}:1", 1)
        self.assertNotIn("identity", self.info("a")["holders"][0])
        for text, shown in (
            ("host \x1b[2J\nlabel x\n", "    host ?[2J, label x"),
            ("pid 12x\nsince -1\nprogram p", "    program p"),
            ("since 99999999999999999", None),
            ("since 1000000000\npid 99999999999999999999", "    up since 2001-09-09 01:46:40 UTC"),
            ("label " + "x" * 5000, "    label " + "x" * 159),
            ("host " + "\u00e4" * 100, "    host " + "\u00e4" * 63), # not cut within a character
            ("nothing", None),
            ("held 1 x\nheld 12 7\nheld\nheld -1 7\nhost h", "    host h"),
            ("held 1 99999999999999999\nhost h", "    host h"),
            ("losses 3\nhost h", "    host h, losses 3"),
            ("losses -3\nlosses 4\nhost h", "    host h"),
            ("\xff" * 3, None),
        ):
            self.server("SET", KEY, text)
            lines = self.snib("info", "a").stdout.splitlines()
            self.assertEqual([] if shown is None else [shown], lines[2:], text)
            self.assertEqual(f"  holder {OWNER}:1, no lease", lines[1])
            self.info("a")  # is what the schema says
        self.server("SET", KEY, "host h\nheld 2 7\nheld 1 1000000000")
        self.assertEqual(1000000000, self.info("a")["holders"][0]["held_since"])
        self.server("DEL", KEY)
        self.server("RPUSH", KEY, "x")
        done = self.snib("info", "a")
        self.assertEqual((0, "", 2), (done.returncode, done.stderr, done.stdout.count("\n")))

    def test_where_and_by_whom(self):
        """With the option debug the holder tells it, if it knows."""
        self.server("HSET", "a", f"{OWNER}:1", 1)
        self.server("SET", KEY, "host h\nby 1 task \x1b7\nheld 1 1000000000\nat 1 orders.py:3 in pay()\nat 2 x\nby 1")
        told = self.info("a")["holders"][0]  # is what the schema says
        self.assertEqual(("orders.py:3 in pay()", "task ?7"), (told["held_at"], told["held_by"]))
        self.assertEqual(["    host h", "    acquired at orders.py:3 in pay() by task ?7"],
                         self.snib("info", "a").stdout.splitlines()[2:])
        self.assertEqual(f"snib: waiting for a, held by {OWNER}:1 since 2001-09-09 01:46:40 UTC (no lease; host h; "
                         "acquired at orders.py:3 in pay() by task ?7)\n", self.start("hold", "a").stdout.readline())
        told = json.loads(self.start("hold", "a", "--json").stdout.readline())
        SCHEMAS["message"].validate(told)
        self.assertEqual(("orders.py:3 in pay()", "task ?7"), (told["held_at"], told["held_by"]))
        self.server("SET", KEY, "host h\nheld 1 1000000000\nby 1 " + "x" * 200)
        self.assertEqual("    acquired by " + "x" * 47, self.snib("info", "a").stdout.splitlines()[3])
        holder = self.start("hold", "b", "--lease", "6s", "--url", f"{self.env['SNIB_URL']}&debug=yes")
        holder.stdout.readline()
        wait_for(lambda: "held_by" in self.info("b")["holders"][0], "the thread to be known")
        told = self.info("b")["holders"][0]
        self.assertEqual((f"thread snib ({holder.pid})", False), (told["held_by"], "held_at" in told))

    def test_not_said(self):
        """Redisson's clients do not say it, and are not looked for."""
        owner = "11111111-2222-4333-8444-555555555555"
        self.server("HSET", "java", f"{owner}:1", 1)
        self.server("SET", f"snib_client:{{{owner}}}", "host h")
        self.assertNotIn("identity", self.info("java")["holders"][0])

    def test_without_the_right(self):
        """A user who may not read it sees the rest, and doctor says what to allow."""
        self.server("HSET", "a", f"{OWNER}:1", 1)
        self.server("SET", KEY, "host h")
        self.server("ACL", "SETUSER", "locker", "reset", "on", ">secret", "~*", "&*", "+@all", "-getrange")
        self.addCleanup(self.server, "ACL", "DELUSER", "locker")
        self.server("ACL", "SETUSER", "locker", "resetkeys", "~a", "~{a*", "~redisson*", "~snib-doctor*", "~{snib-doctor*",
                    "~snib_quorum_epoch", "~snib_lock_beats*", "~snib_writer*", "+getrange")
        env = {"SNIB_USERNAME": "locker", "SNIB_PASSWORD": "secret"}
        done = self.snib("info", "a", env=env)
        self.assertEqual((0, "", 2), (done.returncode, done.stderr, done.stdout.count("\n")))
        found = {item["what"]: item for item in json.loads(self.snib("doctor", "--json", env=env).stdout)["findings"]}
        self.assertEqual("note", found["identities"]["verdict"])
        self.assertIn("~snib_client:*", found["identities"]["advice"])
        self.assertNotIn("identities", self.snib("doctor").stdout)

    def test_acl(self):
        rules = self.snib("acl", "app:", "--fair", env={"SNIB_URL": ""}).stdout.splitlines()
        self.assertLessEqual({"~snib_client:*", "+set", "+del", "+getrange"}, set(rules))

    def test_bad_labels(self):
        for label in ("%ff", "x" * 129):
            done = self.snib("info", "a", "--url", f"redis://h?label={label}")
            self.assertEqual((125, ""), (done.returncode, done.stdout))
            self.assertRegex(done.stderr, "^snib: the option label .*\n$")


if __name__ == "__main__":
    unittest.main()

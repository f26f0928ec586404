#!/usr/bin/env python3
"""snib plan: what it is asked, how it adds up, and that a real server counts the same; see points.py."""
import json
import os
import tempfile
import unittest

from command import USAGE, CommandCase, shown
from server import binary

os.environ["SNIB_BENCH_SERVER"] = os.environ.get("SNIB_TEST_SERVER") or binary()

import points
import capacity # from tests/bench, by points

TOO_FEW = 1
KINDS = ((), ("--fenced",), ("--fair",), ("--read",), ("--write",), ("--permits",), ("--spin",), ("--plain",))
MUCH = ("--locks", "1000", "--rate", "100", "--clients", "20", "--contended", "10", "--waiters", "50")


class Plan(CommandCase):
    def told(self, *words, code=0):
        done = self.snib("plan", *words, "--json")
        self.assertEqual((done.returncode, done.stderr), (code, ""), words)
        return json.loads(done.stdout)

    # ---- what it is asked ------------------------------------------------------------------------

    def test_it_asks_no_server(self):
        done = self.snib("plan", "--locks", "1", env={"SNIB_URL": "redis://nobody.invalid"})
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_numbers(self):
        for option, text in (("locks", "a number from 0 to 1000000000"), ("clients", "a number from 1 to 1000000"),
                             ("rate", "0, or a number a second from 0.001 to 100000000"),
                             ("contended", "0, or a percentage from 0.001 to 100"), ("waiters", "a number from 0 to 1000000000"),
                             ("shards", "a number from 1 to 1000"), ("replicas", "a number from 1 to 100"),
                             ("quorum", "a number from 3 to 15"),
                             ("server-speed", "a number from 0.01 to 100, such as 0.5")):
            bad = ["", "-1", "+1", "x", "1x", " 1", "1 ", "1e3", "1,000", "nan", ".5", "1.", "9" * 10, "9" * 30]
            bad += [] if option in ("rate", "contended", "server-speed") else ["1.5", "0.5", "3.0001"]
            bad += [] if option in ("locks", "rate", "contended", "waiters") else ["0", "0.0"]
            bad += ["0.0001", "0.0000001"] # not the same as nothing
            bad += {"contended": ["100.1", "101"], "quorum": ["1", "2", "16"], "shards": ["1001"],
                    "replicas": ["101"], "server-speed": ["0.009", "101"]}.get(option, [])
            for value in bad:
                with self.subTest(option=option, value=value):
                    done = self.snib("plan", "--locks", "9", f"--{option}", value)
                    self.assertEqual((done.returncode, done.stdout), (USAGE, ""))
                    self.assertEqual(done.stderr, f"snib: --{option} needs {text}, not {shown(value)}; see snib --help\n")

    def test_good_numbers(self):
        for words in (["--locks", "1"], ["--locks", "0", "--rate", "0.5"], ["--rate", "1"], ["--locks", "1.0"],
                      ["--locks", "5", "--waiters", "0", "--contended", "0", "--rate", "0"],
                      ["--locks", "5", "--server-speed", "0.01"], ["--locks", "5", "--lease", "100ms"],
                      ["--locks", "5", "--quorum", "15"], ["--rate", "1", "--contended", "100", "--clients", "2"],
                      ["--rate", "0.001"], ["--rate", "0.3333333333"], ["--locks", "1.000000"],
                      ["--locks", "5", "--shards", "1000", "--replicas", "100", "--durable"]):
            self.told(*words)

    def test_contradictions(self):
        for words, text in (
                ([], "there is nothing to plan: give --locks, --rate or both"),
                (["--locks", "0", "--rate", "0"], "there is nothing to plan: give --locks, --rate or both"),
                (["--locks", "1", "--quorum", "3", "--shards", "2"],
                 "the servers of a quorum have no shards and replicas: do not add --shards or --replicas"),
                (["--locks", "1", "--quorum", "3", "--replicas", "1"],
                 "the servers of a quorum have no shards and replicas: do not add --shards or --replicas"),
                (["--locks", "1", "--quorum", "3", "--fair"],
                 "a quorum is of mutexes, so do not add a kind or --fenced"),
                (["--locks", "1", "--fair", "--fenced"], "plan knows --fenced for a mutex only"),
                (["--locks", "1", "--read", "--fenced"], "--fenced goes with --fair, --write or no kind"),
                (["--locks", "1", "--read", "--write"], "a lock has only one kind, so do not add --write"),
                (["--locks", "1", "--durable"], "--durable waits for replicas: give --replicas"),
                (["--locks", "1", "--clients", "2", "--contended", "1"],
                 "--contended is the share of --rate that waits for another client: give --rate and --clients 2 or more"),
                (["--rate", "1", "--contended", "1"],
                 "--contended is the share of --rate that waits for another client: give --rate and --clients 2 or more"),
                (["--locks", "10", "--clients", "3", "--waiters", "21"],
                 "each client waits at most once for each lock that another one holds: give fewer --waiters, or more "
                 "--locks or --clients"),
                (["--locks", "1", "--url", "redis://x"], "--url cannot be used with plan"),
                (["--locks", "1", "--semaphore"], "--semaphore cannot be used with plan"),
                (["--locks", "1", "--wait", "1s"], "--wait cannot be used with plan"),
                (["orders"], "too many arguments: orders"),
                (["--locks", "1", "--lease", "0"], "--lease needs a time from 100ms to 24h, such as 1.5s or 1m30s, not 0"),
                (["--locks", "1", "--", "true"], "only run takes a command after --, not plan"),
                (["--locks"], "--locks needs a value")):
            with self.subTest(words=words):
                done = self.snib("plan", *words)
                self.assertEqual((done.returncode, done.stdout), (USAGE, ""))
                self.assertEqual(done.stderr, f"snib: {text}; see snib --help\n")
        self.assertEqual(self.snib("info", "a", "--locks", "1").stderr,
                         "snib: --locks cannot be used with info; see snib --help\n")

    # ---- how it adds up --------------------------------------------------------------------------

    def test_kinds(self):
        """Each kind has its costs; each doubled load costs twice as much."""
        for kind in KINDS:
            with self.subTest(kind=kind):
                server = self.told(*MUCH, *kind)["server"]
                self.assertGreater(min(server[name] for name in server if name != "sent_to_replica"), 0)
                self.assertAlmostEqual(sum(server[f"{part}_commands"] for part in ("pair", "renewal", "wait", "client")),
                                       server["commands"], delta=.01)
                one, two = (self.told("--rate", rate, *kind)["server"] for rate in ("1000", "2000"))
                self.assertEqual((one["pair_commands"], two["pair_commands"]), (2000, 4000))
                self.assertAlmostEqual(two["cores"] / one["cores"], 2, delta=.1)
                one, two = (self.told("--locks", locks, *kind)["server"] for locks in ("100000", "200000"))
                self.assertAlmostEqual(two["cores"] / one["cores"], 2, delta=.1)
                self.assertAlmostEqual(two["memory"] / one["memory"], 2, delta=.1)

    def test_lease_and_speed(self):
        usual, short = (self.told("--locks", "3000", "--lease", lease)["server"] for lease in ("30s", "3s"))
        self.assertEqual((usual["renewals"], short["renewals"]), (300, 3000))
        self.assertEqual((usual["renewal_commands"], short["renewal_commands"]), (3, 30))
        slow = self.told("--locks", "3000", "--server-speed", "0.5")["server"]
        self.assertAlmostEqual(slow["cores"], 2 * usual["cores"], delta=.002)
        self.assertEqual(slow["commands"], usual["commands"])

    def test_deployments(self):
        one = self.told(*MUCH)
        replicas = self.told(*MUCH, "--replicas", "2")
        self.assertEqual(one["server"]["sent_to_replica"], 0)
        self.assertGreater(replicas["server"]["sent_to_replica"], 0)
        self.assertGreaterEqual(replicas["server"]["cores"], one["server"]["cores"])
        durable = self.told(*MUCH, "--replicas", "2", "--durable")["server"]
        self.assertEqual(durable["pair_commands"], 200 + 100 + 20) # a WAIT for each, and each client counts the replicas
        quorum = self.told(*MUCH, "--quorum", "5")
        self.assertEqual((quorum["servers"], quorum["servers_needed"]), (5, 5))
        for part in ("pair", "renewal", "client"): # each has what one would have
            self.assertEqual(quorum["server"][f"{part}_commands"], one["server"][f"{part}_commands"])
        self.assertAlmostEqual(quorum["server"]["wait_commands"], 50 / .1 + 10, delta=1) # who ask again and again
        self.assertGreater(quorum["client"]["memory"], 4 * one["client"]["memory"])
        three, five = (self.told("--locks", "100000", "--quorum", n)["client"]["memory"] for n in ("3", "5"))
        self.assertGreater(five / three, 1.3) # a hold has one at each server

    def test_cluster(self):
        """Its renewals are of few holds each, because they are by slots."""
        one, three = (self.told("--locks", "100000", "--shards", shards)["server"] for shards in ("1", "3"))
        self.assertEqual(one["renewal_commands"], 100)
        self.assertAlmostEqual(three["renewals"], one["renewals"] / 3, delta=1)
        self.assertGreater(three["renewal_commands"], .85 * three["renewals"])
        self.assertLessEqual(three["renewal_commands"], three["renewals"])
        pairs = self.told("--rate", "900", "--shards", "3")["server"]
        self.assertEqual(pairs["pair_commands"], 600)

    def test_too_few(self):
        told = self.told("--rate", "200000", code=TOO_FEW)
        self.assertGreater(told["server"]["cores"], .5)
        needed = told["servers_needed"]
        self.assertGreater(needed, 1)
        enough = self.told("--rate", "200000", "--shards", str(needed))
        self.assertLessEqual(enough["server"]["cores"], .5)
        self.assertEqual(enough["servers_needed"], needed)
        self.assertGreater(self.told("--rate", "200000", "--shards", str(needed - 1), code=TOO_FEW)["server"]["cores"], .5)
        # Renewals that one server carries, because it has many in a script, may be too many for a cluster.
        share = self.told("--locks", "10000", "--lease", "3s")["server"]["cores"]
        for shards, code in (("1", 0), ("2", TOO_FEW)):
            told = self.told("--locks", str(int(10000 * .4 / share)), "--lease", "3s", "--shards", shards, code=code)
            self.assertEqual(told["server"]["cores"] > .5, code == TOO_FEW)
            self.assertGreaterEqual(told["servers_needed"], 1 if code == 0 else 3)
        quorum = self.told("--rate", "200000", "--quorum", "3", code=TOO_FEW)["servers_needed"]
        self.assertEqual(quorum % 3, 0)
        self.assertIsNone(self.told("--rate", "100000000", "--server-speed", "0.01", code=TOO_FEW)["servers_needed"])

    # ---- the text --------------------------------------------------------------------------------

    def test_text(self):
        for words in (["--locks", "1"], [*MUCH], [*MUCH, "--replicas", "2", "--durable", "--shards", "7"],
                      [*MUCH, "--quorum", "3"], ["--rate", "200000"], ["--rate", "200000", "--quorum", "3"],
                      ["--rate", "100000000", "--server-speed", "0.01"],
                      ["--locks", "1000000000", "--clients", "1000000", "--rate", "100000000", "--contended", "100",
                       "--waiters", "1000000000", "--lease", "100ms", "--server-speed", "0.01", "--shards", "1000",
                       "--replicas", "100", "--durable"]):
            done = self.snib("plan", *words)
            self.assertIn(done.returncode, (0, TOO_FEW))
            self.assertEqual(done.stderr, "")
            for line in done.stdout.splitlines():
                self.assertLessEqual(len(line), 80, line)
                self.assertEqual(line, line.rstrip())
        self.assertIn("divide the names: --shards", self.snib("plan", "--rate", "200000").stdout)
        self.assertIn("several quorums", self.snib("plan", "--rate", "200000", "--quorum", "3").stdout)

    def test_rechecks(self):
        """How many are no fault: those who wait for long ask now and then, whatever they hear."""
        brief = ("--rate", "100", "--clients", "20", "--contended", "10")
        few = "snib_rechecks_total: below snib_messages_total if holds last less than 2.6 s"
        for words, want in (
                (brief, [few]), ((*brief, "--write"), [few]), ((*brief, "--locks", "5"), [few]),
                ((*brief, "--lease", "1s"), [few.replace("2.6", "0.8")]), # they ask when the lease would end
                ((*brief, "--fair"), ["snib_rechecks_total: one a second for each wait is normal"]),
                (MUCH, ["snib_rechecks_total: up to 19.0 a second for --waiters are normal",
                        few.replace("snib_rechecks_total", "the other rechecks")]),
                ((*MUCH, "--shards", "5"), ["snib_rechecks_total: up to 19.0 a second for --waiters are normal",
                                            few.replace("snib_rechecks_total", "the other rechecks")]),
                ((*MUCH, "--contended", "0"), ["snib_rechecks_total: up to 19.0 a second for --waiters are normal"]),
                ((*MUCH, "--fair"), ["snib_rechecks_total: up to 57.1 a second for --waiters are normal"]),
                ((*MUCH, "--spin"), []), ((*MUCH, "--quorum", "3"), []), # who hear no messages
                (("--locks", "5"), []), (("--rate", "5"), [])):
            with self.subTest(words=words):
                self.assertEqual([text for text in self.told(*words)["watch"] if "rechecks" in text], want)
                lines = self.snib("plan", *words).stdout.splitlines()
                self.assertEqual([line for line in lines if "rechecks" in line], [f"  {text}" for text in want])

    def test_waiters_that_can_be_seen(self):
        """Only who subscribes counts as waiting at a server, and --contended says nothing of how long."""
        brief = ("--rate", "100", "--clients", "20", "--contended", "10")
        for words, is_told in ((MUCH, True), ((*MUCH, "--fair"), True), ((*MUCH, "--spin"), False),
                               ((*MUCH, "--quorum", "3"), False), (brief, False)):
            with self.subTest(words=words):
                text = "snib stats: snib_server_waiting_processes is about --waiters"
                self.assertEqual(text in self.told(*words)["watch"], is_told)

    def test_text_of_one(self):
        self.assertIn("  1 lock, 1 connection\n", self.snib("plan", "--locks", "1").stdout)
        self.assertIn("  for 1 hold\n", self.snib("plan", "--locks", "10").stdout)
        self.assertIn("  0 locks, 1 connection\n", self.snib("plan", "--rate", "1").stdout)

    def test_page(self):
        """docs/capacity.md has the table that snib was built with, and its example what snib says: else write them anew
        by tests/bench/capacity.py and points.py."""
        page = capacity.PAGE.read_text()
        self.assertIn(capacity.BEGIN + capacity.page(capacity.TABLE.read_text()) + capacity.END, page)
        self.assertIn(points.example(), page)

    def test_output_that_cannot_be_written(self):
        with open("/dev/full", "w") as full:
            done = self.snib("plan", "--locks", "1", "--quiet")
            self.assertEqual(done.returncode, 0)
            code = points.subprocess.run([points.SNIB, "plan", "--locks", "1"], stdout=full,
                                         stderr=points.subprocess.DEVNULL).returncode
        self.assertEqual(code, USAGE)


class Points(unittest.TestCase):
    """Three loads, on a real server."""

    def check(self, measure):
        with tempfile.TemporaryDirectory(prefix="snib-points-") as folder:
            point = points.Point(folder)
            self.addCleanup(point.bed.stop)
            try:
                rows = measure(point)
            except points.TooBusy as busy:
                self.skipTest(str(busy))
            for row in rows:
                with self.subTest(what=row.what):
                    self.assertTrue(row.fits(), row)

    def test_pairs(self):
        self.check(points.pairs)

    def test_renewed(self):
        self.check(points.renewed)

    def test_waiting(self):
        self.check(points.waiting)


if __name__ == "__main__":
    unittest.main()

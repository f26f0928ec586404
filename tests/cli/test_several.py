#!/usr/bin/env python3
"""snib run and snib hold with several names, all of the locks or none; and with several servers, most of them."""
import json
import signal
import time
import unittest

from command import BUSY, LEASE, LOST, SERVER, TIMEDOUT, USAGE, CommandCase
from server import PATIENT, Server, wait_for


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


class Quorum(CommandCase):
    """The servers are never emptied: they would not vote for a lease."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.servers = [Server() for _ in range(3)]

    @classmethod
    def tearDownClass(cls):
        for server in cls.servers:
            server.stop()
        super().tearDownClass()

    def urls(self, *more, options=PATIENT):
        found = [server.url + options for server in self.servers] + list(more)
        return [word for url in found for word in ("--url", url)]

    def holders(self, name):
        return sum(server("EXISTS", name) for server in self.servers)

    def held(self, name):
        process = self.start("hold", name, "-q", "--lease", LEASE, *self.urls())
        wait_for(lambda: self.holders(name) == 3, "all votes")
        return process

    def test_run(self):
        script = 'echo "$SNIB_LOCK ${SNIB_TOKEN-none}"; exec sleep 60'
        process = self.start("run", "q:run", "-q", "--lease", LEASE, *self.urls(), "--", "sh", "-c", script)
        self.assertEqual(process.stdout.readline(), "q:run none\n")
        self.assertGreaterEqual(self.holders("q:run"), 2)
        self.assertEqual(self.server("DBSIZE"), 0) # SNIB_URL is not one of them
        process.terminate()
        self.assertEqual(self.end(process)[0], 128 + 15)
        wait_for(lambda: self.holders("q:run") == 0, "the votes to be given back")

    def test_busy(self):
        process = self.held("q:busy")
        for words in (["hold", "q:busy"], ["run", "q:busy", "--", "echo", "ran"]):
            for wait, code in (("0", BUSY), ("200ms", TIMEDOUT)):
                done = self.snib(words[0], "--wait", wait, "--lease", LEASE, *self.urls(), *words[1:])
                self.assertEqual((done.returncode, done.stdout), (code, ""))
                self.assertEqual(done.stderr.count("\n"), 1)
        process.terminate()
        self.assertEqual(self.end(process), (0, ""))

    def test_waits_and_says_for_what(self):
        first = self.held("q:waits")
        waiter = self.start("hold", "q:waits", "--lease", LEASE, *self.urls())
        self.assertRegex(waiter.stdout.readline(), "^snib: waiting for q:waits, held by [0-9a-f-]{36}:[0-9]+ ")
        first.terminate()
        self.assertEqual(self.end(first), (0, ""))
        self.assertIn("holding q:waits", waiter.stdout.readline())
        waiter.terminate()
        self.assertEqual(self.end(waiter), (0, ""))

    def test_servers_that_do_not_vote_yet(self):
        new = [Server() for _ in range(3)]
        for server in new:
            self.addCleanup(server.stop)
        urls = [word for server in new for word in ("--url", server.url + PATIENT)]
        process = self.start("hold", "a", "--lease", "1h", *urls)
        self.assertRegex(process.stdout.readline(),
                         "^snib: waiting for a, its holder is unknown: .* votes after one lease")

    def test_lost_with_most_servers(self):
        process = self.held("q:lost")
        for server in self.servers[:2]:
            server("DEL", "q:lost")
            server("HSET", "q:lost", "11111111-1111-8111-8111-111111111111:1", 1)
        code, text = self.end(process)
        self.assertEqual(code, LOST)
        self.assertIn("lost", text)
        for server in self.servers:
            server("DEL", "q:lost")

    def await_renewals(self, name, servers):
        """Wait until the lock has been renewed at each server."""
        least = {}

        def is_renewed(server):
            left = max(server("PTTL", name), 0) or 86400000 # it has no vote yet
            least[server] = min(left, least.get(server, left))
            return least[server] < left < 86400000

        wait_for(lambda: all([is_renewed(server) for server in servers]), "renewals at all servers")

    def test_ends_soon_although_servers_are_away(self):
        """What each of them is waited for is waited for once: a second at most, not one after the other."""
        more = [Server() for _ in range(4)]
        for server in more:
            self.addCleanup(server.stop)
        away = more[1:]
        urls = self.urls(*[server.url + PATIENT for server in more])
        for _ in range(5): # one on a machine that does not stall suffices
            process = self.start("hold", "q:ends", "--lease", LEASE, *urls)
            while "holding" not in (line := process.stdout.readline()):
                self.assertIn("waiting", line) # for the new servers to vote
            self.await_renewals("q:ends", [*self.servers, *more]) # by which snib knows all votes
            for server in away:
                server.process.send_signal(signal.SIGSTOP)
            begun = time.monotonic()
            process.terminate()
            code, text = self.end(process)
            took = time.monotonic() - begun
            for server in away:
                server.process.send_signal(signal.SIGCONT)
            if code == 0 and took < len(away):
                return
        self.fail(f"it ended with {code} after {took} s: {text}")

    def test_log_of_every_server(self):
        process = self.start("run", "q:log", "-v", "-q", "--lease", LEASE, *self.urls(), "--", "sh", "-c", self.until_go())
        # Two are enough to begin.
        wait_for(lambda: all(server("EXISTS", "q:log") for server in self.servers), "the lock on the third server, too")
        self.go()
        code, text = self.end(process)
        self.assertEqual(code, 0)
        for server in self.servers:
            self.assertIn(f"snib: info: {server.url}: connected to {server.path}\n", text)

    def test_log_names_the_server(self):
        """Also where the library's own words do not: they are about the only server that the client knows."""
        at = self.servers[1]
        for options in [], ["--json"]:
            process = self.start("hold", "q:member", "-v", "--lease", LEASE, *options, *self.urls())
            wait_for(lambda: all(server("EXISTS", "q:member") for server in self.servers), "the lock on all servers")
            at("SET", "q:member", "data of another program")
            while "lost as a member" not in (line := process.stdout.readline()):
                self.assertNotEqual(line, "")
            self.assertEqual(json.loads(line)["server"] if options else line.split(": lock ")[0],
                             at.url if options else f"snib: info: {at.url}")
            process.terminate()
            self.assertEqual(self.end(process)[0], 0)
            at("DEL", "q:member")

    def test_most_servers_away(self):
        gone = [word for name in "xy" for word in ("--url", f"unix://{self.folder.name}/{name}")]
        for command in (["run", "q:away", "--", "echo", "ran"], ["hold", "q:away"]):
            done = self.snib(command[0], "--wait", "100ms", "--lease", LEASE, "--url", self.servers[0].url, *gone,
                             *command[1:])
            self.assertEqual((done.returncode, done.stdout), (SERVER, ""))
            self.assertEqual(done.stderr.count("\n"), 1)

    def test_bad_usage(self):
        same = self.servers[0].url
        bad = ((["run", "a", "--url", same, "--url", same + "x"], "a third --url"),
               (["run", "a", *self.urls(same)], "--url: two members of the quorum are on the same server"),
               (["run", "a", *self.urls(same + "?lease=5s")], "--url: two members"),
               (["run", "a", "b", *self.urls()], "second name: b"), (["run", "a", "--read", *self.urls()], "--url"),
               (["run", "a", "--fenced", *self.urls()], "--fenced"),
               (["run", "a", "--permits", "2", *self.urls()], "--url"),
               (["run", "a", *self.urls(*["unix:///x"] * 13)], "at most 15"),
               (["run", "a", *self.urls(*["unix://x:canary@/x?password=canary"] * 13)], "too many: unix:///x;"),
               (["info", "a", *self.urls()], "more than one --url, not info"),
               (["list", *self.urls()], "more than one --url, not list"),
               (["release", "a", "--force", *self.urls()], "more than one --url, not release"),
               (["doctor", *self.urls()], "more than one --url, not doctor"),
               (["acl", "a", *self.urls()], "more than one --url, not acl"))
        for words, text in bad:
            with self.subTest(words=words):
                done = self.snib(*words, *(("--", "true") if words[0] == "run" else ()))
                self.assertEqual((done.returncode, done.stdout), (USAGE, ""))
                self.assertRegex(done.stderr, r"^snib: [^\n]{10,}\n$")
                self.assertIn(text, done.stderr)
                self.assertNotIn("canary", done.stderr)


if __name__ == "__main__":
    unittest.main()

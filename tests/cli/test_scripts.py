#!/usr/bin/env python3
"""snib scripts: a user who may run scripts, but neither load nor send them, can use the locks after it."""
import json
import unittest

from command import SERVER, USAGE, CommandCase
from server import PATIENT, Cluster, Server, wait_for

KINDS = {"mutex": [], "fair": ["--fair"], "fenced": ["--fenced"], "read": ["--read"], "write": ["--write"],
         "permits": ["--permits", "1"], "spin": ["--spin"], "plain": ["--plain"]}
RIGHTS = ("reset", "on", ">secret", "~*", "&*", "+@all", "-eval", "-script")


class Scripts(CommandCase):
    def setUp(self):
        super().setUp()
        self.server("SCRIPT", "FLUSH")
        self.server("ACL", "SETUSER", "locker", *RIGHTS)
        self.locker = {"SNIB_URL": f"unix://locker:secret@{self.server.path}{PATIENT}"}

    def loaded(self, *words, env=None):
        """The scripts by server, from --json: their hashes by name and variant."""
        done = self.snib("scripts", *words, "--json", env=env)
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        return {one["server"]: {(item["name"], item["publish"]): item["hash"] for item in one["scripts"]}
                for one in json.loads(done.stdout)}

    def run_as(self, env, *words):
        name = f"app:{words[0] if words else ''}" # a counter stays, and is no other kind's
        done = self.snib("run", name, *words, "--", "echo", "went", env=env)
        return done.returncode, done.stdout, done.stderr

    def assertWorks(self, *words):
        self.assertEqual((0, "went\n", ""), self.run_as(self.locker, *words), words)

    def assertForbidden(self, *words):
        code, out, text = self.run_as(self.locker, *words)
        self.assertEqual((SERVER, ""), (code, out), words)
        self.assertRegex(text, r"may not run .*the server said: NOPERM .*eval")

    # ---- one server ------------------------------------------------------------------------------

    def test_all_kinds(self):
        for words in KINDS.values():
            self.assertForbidden(*words)
        done = self.snib("scripts")
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        self.assertRegex(done.stdout, rf"^{self.server.path}: \d+ scripts, for all kinds\n$")
        for words in KINDS.values():
            self.assertWorks(*words)
        found = json.loads(self.snib("doctor", "--json", env=self.locker).stdout)["findings"]
        self.assertEqual([], [item for item in found if item["verdict"] in ("warning", "error")])
        self.assertEqual(0, self.snib("list", env=self.locker).returncode)
        self.assertEqual(0, self.snib("info", "app:x", env=self.locker).returncode)
        self.server("SCRIPT", "FLUSH")
        self.assertForbidden()
        self.snib("scripts")
        self.assertWorks()

    def test_what_the_server_has(self):
        (scripts,) = self.loaded().values()
        self.assertEqual({1}, set(self.server("SCRIPT", "EXISTS", *scripts.values())))
        self.assertEqual({"classic"}, {publish for _, publish in scripts})
        (again,) = self.loaded().values()
        self.assertEqual(scripts, again)

    def test_each_kind_alone(self):
        for kind, words in KINDS.items():
            self.server("SCRIPT", "FLUSH")
            done = self.snib("scripts", "--kind", kind)
            self.assertRegex(done.stdout, rf"^{self.server.path}: \d+ scripts, for {kind}\n$")
            self.assertWorks(*words)
            release = ["--permits"] if kind == "permits" else words
            if kind not in ("mutex", "fenced"):
                forced = self.snib("release", "--force", *release, "app:x", env=self.locker)
                self.assertIn(forced.returncode, (0, 1), (kind, forced.stderr))
        self.assertForbidden("--fair")
        self.snib("scripts", "--kind", "read")
        done = self.snib("run", "app:x", "app:y", "--read", "--", "true", env=self.locker)
        self.assertEqual((0, ""), (done.returncode, done.stderr))

    def test_counters(self):
        """Kinds that run and hold do not take; only release and latch."""
        for kind in ("semaphore", "latch"):
            self.server("SCRIPT", "FLUSH")
            words = ("release", "--force", f"--{kind}", "app:x")
            self.assertEqual(SERVER, self.snib(*words, env=self.locker).returncode, kind)
            self.snib("scripts", "--kind", kind)
            self.assertEqual(1, self.snib(*words, env=self.locker).returncode, kind)
        for words in (["set", "2"], ["down"], ["down"], ["wait"]):
            done = self.snib("latch", "app:x", *words, env=self.locker)
            self.assertEqual((0, ""), (done.returncode, done.stderr), words)

    def test_several_kinds(self):
        done = self.snib("scripts", "--kind", "fair", "--kind", "mutex", "--kind", "fair")
        self.assertRegex(done.stdout, rf"^{self.server.path}: \d+ scripts, for mutex, fair\n$")
        (both,) = self.loaded("--kind", "fair", "--kind", "spin").values()
        (fair,), (spin,) = self.loaded("--kind", "fair").values(), self.loaded("--kind", "spin").values()
        self.assertEqual({**fair, **spin}, both)
        self.assertLess(len(both), len(self.loaded().popitem()[1]))

    def test_waiters_are_woken(self):
        """The scripts of a hand-over and of the messages are among them."""
        self.snib("scripts", "--kind", "mutex")
        self.env, before = {**self.env, **self.locker}, self.env
        try:
            holder = self.hold("app:x", script=f"echo ready; {self.until_go()}")
            waiter = self.start("run", "app:x", "-q", "--", "echo", "went")
            wait_for(lambda: self.server("PUBSUB", "CHANNELS"), "the waiter to subscribe")
            self.go()
            self.assertEqual((0, ""), self.end(holder))
            self.assertEqual((0, "went\n"), self.end(waiter))
        finally:
            self.env = before

    # ---- several servers -------------------------------------------------------------------------

    def test_several_urls(self):
        other = Server()
        try:
            scripts = self.loaded("--url", self.server.url, "--url", other.url)
            self.assertEqual([self.server.path, other.path], list(scripts))
            self.assertEqual(*scripts.values())
            for server, hashes in zip((self.server, other), scripts.values()):
                self.assertEqual({1}, set(server("SCRIPT", "EXISTS", *hashes.values())))
        finally:
            other.stop()

    def test_cluster(self):
        cluster = Cluster()
        self.addCleanup(cluster.stop)
        for node in cluster.nodes:
            node("ACL", "SETUSER", "locker", *RIGHTS)
        names = [cluster.name_of(i) for i in range(3)]

        def codes(options=""):
            env = {"SNIB_URL": cluster.url("locker:secret@", options)}
            return [self.snib("run", name, "--", "true", env=env).returncode for name in names]

        self.assertEqual([SERVER] * 3, codes())
        scripts = self.loaded("--url", cluster.url())
        self.assertEqual({f"127.0.0.1:{port}" for port in cluster.ports}, set(scripts))
        for port, node in zip(cluster.ports, cluster.nodes):
            hashes = scripts[f"127.0.0.1:{port}"]
            self.assertEqual({"classic", "sharded", "both"}, {publish for _, publish in hashes})
            self.assertEqual({1}, set(node("SCRIPT", "EXISTS", *hashes.values())))
        for options in ("", "&publish=classic", "&publish=sharded", "&publish=both"):
            self.assertEqual([0] * 3, codes(options), options)
        cluster.nodes[1]("SCRIPT", "FLUSH")
        self.assertEqual([0, SERVER, 0], codes())
        done = self.snib("scripts", "--kind", "mutex", "--url", cluster.url())
        self.assertEqual(3, done.stdout.count(" scripts, for mutex\n"), done.stdout)
        self.assertEqual([0] * 3, codes())

    # ---- what goes wrong -------------------------------------------------------------------------

    def test_bad_input(self):
        for words in (["--kind", "multi"], ["--kind", ""], ["--kind"], ["app:"], ["--fair"], ["--force"],
                      ["--lease", "1s"], ["--", "true"]):
            done = self.snib("scripts", *words)
            self.assertEqual((USAGE, ""), (done.returncode, done.stdout), words)
            self.assertEqual(1, done.stderr.count("\n"), done.stderr)
        self.assertIn("or latch, not multi;", self.snib("scripts", "--kind", "multi").stderr)
        self.assertEqual(USAGE, self.snib("acl", "app:", "--kind", "fair").returncode)

    def test_no_server(self):
        nothing = "redis://127.0.0.1:1?patience=300ms"
        for words in (["--url", nothing], ["--url", self.server.url, "--url", nothing]):
            for more in ([], ["--json"]):
                done = self.snib("scripts", *words, *more)
                self.assertEqual((SERVER, ""), (done.returncode, done.stdout), words)
                self.assertEqual(1, done.stderr.count("\n"), done.stderr)
                self.assertIn("127.0.0.1:1", done.stderr)

    def test_a_user_who_may_not(self):
        done = self.snib("scripts", env=self.locker)
        self.assertEqual((SERVER, ""), (done.returncode, done.stdout))
        self.assertEqual(1, done.stderr.count("\n"), done.stderr)
        self.assertIn(self.server.path, done.stderr)
        self.assertIn("script|load", done.stderr)


if __name__ == "__main__":
    unittest.main()

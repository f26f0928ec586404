#!/usr/bin/env python3
"""snib stats: what Prometheus reads of it, where it goes, and what it says when it cannot."""
import json
import os
import pathlib
import re
import select
import signal
import socket
import socketserver
import stat
import subprocess
import sys
import threading
import unittest

from prometheus_client.parser import text_string_to_metric_families

sys.path.append(str(pathlib.Path(__file__).parents[1] / "topology"))

from cluster import Cluster
from command import SERVER, SNIB, USAGE, CommandCase, shown
from server import Server, wait_for

CLIENT = "11111111-1111-8111-8111-11111111111"
OWNER = f"{CLIENT}1:"
ROOT = pathlib.Path(__file__).parents[2]
KINDS = {"mutex", "fair", "read", "write", "plain", "permits", "free"}


class Metrics:
    """The samples of a text, by name and by labels."""

    def __init__(self, text):
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        samples = [sample for family in self.families.values() for sample in family.samples]
        keys = [(sample.name, *sorted(sample.labels.items())) for sample in samples]
        if len(set(keys)) < len(keys):
            raise AssertionError(f"two samples of the same series: {keys}")
        if {sample.labels["server"] for sample in samples} - {samples[0].labels["server"]}:
            raise AssertionError("more than one server")
        self.samples = samples
        self.server = samples[0].labels["server"]
        self.names = {sample.name for sample in samples}

    def __call__(self, name, **labels):
        """The value of the one sample; None: there is none."""
        found = [sample.value for sample in self.samples if sample.name == name and
                 {key: value for key, value in sample.labels.items() if key != "server"} == labels]
        return found[0] if found else None

    def sum(self, name, **labels):
        return sum(sample.value for sample in self.samples
                   if sample.name == name and labels.items() <= sample.labels.items())

    def labels(self, name, label):
        return [sample.labels[label] for sample in self.samples if sample.name == name]


class Unanswering(socketserver.ThreadingTCPServer):
    """The server at this path until it is asked this: then it hangs, or goes away."""
    allow_reuse_address = daemon_threads = True

    def __init__(self, path, word, hangs):
        self.asked = asked = threading.Event()

        class Relay(socketserver.BaseRequestHandler):
            def handle(self):
                with socket.socket(socket.AF_UNIX) as server:
                    server.connect(path)
                    ends = {self.request: server, server: self.request}
                    while not asked.is_set() or hangs:
                        for end in select.select(ends, [], [], 0.05)[0]:
                            data = end.recv(1 << 16)
                            if not data:
                                return
                            if word in data:
                                asked.set()
                            if not asked.is_set():
                                ends[end].sendall(data)

        super().__init__(("127.0.0.1", 0), Relay)
        self.port = self.server_address[1]
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def stop(self):
        self.shutdown()
        self.server_close()


class Stats(CommandCase):
    def lock(self, name, number=1, lease=3600):
        """A lock that somebody holds."""
        self.server("HSET", name, f"{OWNER}{number}", 1)
        self.server("EXPIRE", name, lease)

    def stats(self, *words, **options):
        done = self.snib("stats", *words, **options)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return Metrics(done.stdout)

    # ---- figures ---------------------------------------------------------------------------------

    def test_nothing(self):
        metrics = self.stats()
        self.assertEqual((metrics("snib_server_up"), metrics("snib_server_complete")), (1, 1))
        for kind in KINDS:
            for name in ("locks", "holders", "waiting_processes"):
                self.assertEqual(metrics(f"snib_server_{name}", kind=kind), 0)
        self.assertEqual(metrics("snib_server_locks", kind="other"), 0)
        self.assertFalse([name for name in metrics.names if name.startswith("snib_lock_")])
        self.assertEqual(metrics.server, self.server.url)
        self.assertEqual(self.stats("--json").names, metrics.names) # which is about messages only

    def test_the_alerts_ask_for_what_there_is(self):
        rules = re.findall(r"expr: (snib_server_.*)", (ROOT / "docs/grafana/alerts.yml").read_text())
        self.assertTrue(rules)
        self.assertLessEqual({name for rule in rules for name in re.findall(r"snib_\w+", rule)}, self.stats().names)

    def test_every_kind(self):
        kinds = {"mutex": (), "fenced": ("--fenced",), "read": ("--read",), "write": ("--write",),
                 "plain": ("--plain",), "permits": ("--permits", "3")}
        for name, options in kinds.items():
            self.hold(name, *options)
        self.hold("fair", "--fair")
        self.start("hold", "fair", "--fair", "-q")
        self.start("hold", "mutex", "-q")
        wait_for(lambda: self.server("EXISTS", "redisson_lock_queue:{fair}"), "the queue")
        wait_for(lambda: self.server("PUBSUB", "NUMSUB", "redisson_lock__channel:{mutex}")[1], "the waiter")
        metrics = self.stats()
        for name in (*kinds, "fair"):
            kind = "mutex" if name == "fenced" else name
            with self.subTest(name=name):
                self.assertEqual(metrics("snib_lock_holders", lock=name, kind=kind), 1)
                waiting = 1 if name in ("mutex", "fair") else 0
                self.assertEqual(metrics("snib_lock_waiting_processes", lock=name, kind=kind), waiting)
                left = metrics("snib_lock_lease_remaining_seconds", lock=name, kind=kind)
                self.assertTrue(0 < left <= 30, left)
                self.assertEqual(metrics("snib_lock_permits", lock=name, kind=kind), 3 if name == "permits" else None)
                self.assertEqual(metrics("snib_lock_tokens_total", lock=name), 1 if name == "fenced" else None)
                self.assertEqual(metrics("snib_server_locks", kind=kind), 2 if kind == "mutex" else 1)
                self.assertEqual(metrics("snib_server_holders", kind=kind), 2 if kind == "mutex" else 1)
                self.assertEqual(metrics("snib_server_waiting_processes", kind=kind), 1 if kind in ("mutex", "fair") else 0)

    def test_the_counter_counts_grants(self):
        self.server("SET", "redisson_lock_token:{a}", 7)
        self.lock("a")
        self.assertEqual(self.stats()("snib_lock_tokens_total", lock="a"), 7)
        self.server("DEL", "a")
        process = self.hold("a", "--fenced")
        self.assertEqual(self.stats()("snib_lock_tokens_total", lock="a"), 8)
        process.terminate()
        self.end(process)
        self.assertIsNone(self.stats()("snib_lock_tokens_total", lock="a")) # it does not exist

    def test_no_lease(self):
        self.server("HSET", "endless", f"{OWNER}1", 1)
        metrics = self.stats()
        self.assertEqual(metrics("snib_lock_holders", lock="endless", kind="mutex"), 1)
        self.assertIsNone(metrics("snib_lock_lease_remaining_seconds", lock="endless", kind="mutex"))

    def test_many_holders(self):
        self.server("HSET", "crowd", "mode", "read", *[word for n in range(600) for word in (f"{OWNER}{n}", 1)])
        self.assertEqual(self.stats()("snib_lock_holders", lock="crowd", kind="read"), 600)

    def test_clients(self):
        """Each once, however much it holds, by the process that it says it is."""
        for number, (host, program) in enumerate((("web", "python3"), ("web", "python3"), ("web", "go"), (None, None))):
            client = f"{CLIENT}{number}"
            for name in ("a", "b"):
                self.server("HSET", f"{name}{number}", f"{client}:1", 1)
            if host:
                self.server("SET", f"snib_client:{{{client}}}", f"host {host}\npid 7\nprogram {program}\n")
        self.server("SET", "b0", "no owner")
        metrics = self.stats()
        self.assertEqual(metrics("snib_server_clients", host="web", program="python3"), 2)
        self.assertEqual(metrics("snib_server_clients", host="web", program="go"), 1)
        self.assertEqual(metrics("snib_server_clients", host="", program=""), 1)
        self.assertEqual(self.stats("a3").sum("snib_server_clients"), 1)

    def test_clients_of_many_locks(self):
        for start in range(0, 3000, 500):
            self.server("EVAL", "for i = ARGV[1], ARGV[1] + 499 do redis.call('hset', 'lock:' .. i, "
                        "string.format('11111111-1111-8111-8111-%012d:1', i % 700), 1) end", 0, start)
        metrics = self.stats("--limit", "10")
        self.assertEqual(metrics.sum("snib_server_clients"), 700)
        self.assertEqual(metrics("snib_server_locks", kind="mutex"), 3000)
        self.assertEqual(metrics.sum("snib_lock_holders"), 10)

    def test_many_clients(self):
        """All are asked about, and few at a time if the URL allows no more."""
        self.server("EVAL", "for i = 1, 700 do local client = string.format('11111111-1111-8111-8111-%012d', i) "
                    "redis.call('hset', 'lock:' .. i, client .. ':1', 1) "
                    "redis.call('set', 'snib_client:{' .. client .. '}', 'host web\\nprogram go\\n') end", 0)
        for options in ("", "&waiters_max=3"):
            metrics = self.stats("--url", self.env["SNIB_URL"] + options)
            self.assertEqual(metrics("snib_server_clients", host="web", program="go"), 700)
            self.assertEqual(metrics("snib_server_locks", kind="mutex"), 700)

    def test_clients_that_are_unknown(self):
        """The server refuses to tell about all, or has something else about one: it has answered all the same."""
        for number in range(3):
            self.server("HSET", f"lock{number}", f"{CLIENT}{number}:1", 1)
            self.server("SET", f"snib_client:{{{CLIENT}{number}}}", "host web\nprogram go\n")
        self.server("DEL", f"snib_client:{{{CLIENT}1}}")
        self.server("RPUSH", f"snib_client:{{{CLIENT}1}}", "x")
        metrics = self.stats()
        self.assertEqual(metrics("snib_server_clients", host="web", program="go"), 2)
        self.assertEqual(metrics("snib_server_clients", host="", program=""), 1)
        self.server("ACL", "SETUSER", "weak", "reset", "on", ">x", "~lock*", "~redisson*", "~{lock*", "&*", "+@all")
        self.addCleanup(self.server, "ACL", "DELUSER", "weak")
        metrics = self.stats("--url", self.server.url.replace("unix://", "unix://weak:x@"))
        self.assertEqual(metrics("snib_server_clients", host="", program=""), 3)

    def test_pattern_and_limit(self):
        for number in range(1100):
            self.lock(f"a:{number}")
        self.lock("b")
        self.start("hold", "b", "-q")
        wait_for(lambda: self.server("PUBSUB", "CHANNELS"), "the waiter")
        self.assertEqual(self.stats("b").labels("snib_lock_holders", "lock"), ["b"])
        self.assertEqual(self.stats("--limit", "1").labels("snib_lock_holders", "lock"), ["b"]) # the most in demand
        metrics = self.stats()
        self.assertEqual(len(metrics.labels("snib_lock_holders", "lock")), 1000)
        self.assertEqual(metrics("snib_server_locks", kind="mutex"), 1101)

    def test_several_patterns(self):
        """What one directory has about one server, but other locks of it, are other series: else a scrape has none at all."""
        self.hold("orders:1", "--fenced")
        patterns = (None, "orders:*", "o*", 'q"\\', "broken\udcff\n")
        everything = [(pattern, self.stats(*[pattern] if pattern else [])) for pattern in patterns]
        series = [(sample.name, *sorted(sample.labels.items())) for _, metrics in everything for sample in metrics.samples]
        self.assertEqual(len(set(series)), len(series))
        for pattern, metrics in everything:
            shown = {"broken\udcff\n": r"broken\xff\x0a"}.get(pattern, pattern)
            self.assertEqual({sample.labels.get("pattern") for sample in metrics.samples}, {shown})
        self.assertEqual(everything[1][1]("snib_lock_holders", pattern="orders:*", lock="orders:1", kind="mutex"), 1)
        self.assertEqual(self.stats("")("snib_server_up"), 1)
        done = self.snib("stats", "o*", "--url", f"unix://{self.folder.name}/nobody?patience=100ms")
        self.assertEqual(Metrics(done.stdout)("snib_server_up", pattern="o*"), 0)

    def test_too_many(self):
        for start in range(0, 5100, 100):
            self.server("EVAL", "for i = ARGV[1], ARGV[1] + 99 do redis.call('hset', 'lock:' .. i, ARGV[2], 1) end",
                        0, start, f"{OWNER}1")
        metrics = self.stats()
        self.assertEqual((metrics("snib_server_complete"), metrics("snib_server_locks", kind="mutex")), (0, 5000))

    def test_rights(self):
        """Who may not ask for subscribers knows no waiters; of a fair lock they are in its queue."""
        self.server("ACL", "SETUSER", "weak", "on", ">x", "~*", "+@all", "-pubsub")
        weak = self.server.url.replace("unix://", "unix://weak:x@")
        self.lock("a")
        metrics = self.stats("--url", weak)
        self.assertEqual(metrics("snib_lock_holders", lock="a", kind="mutex"), 1)
        self.assertIsNone(metrics("snib_lock_waiting_processes", lock="a", kind="mutex"))
        self.assertIsNone(metrics("snib_server_waiting_processes", kind="mutex"))
        self.assertEqual(metrics("snib_server_waiting_processes", kind="read"), 0)
        self.assertEqual(metrics.server, self.server.url) # without the password

    # ---- the format ------------------------------------------------------------------------------

    def test_names_are_by_the_rules(self):
        self.server("SET", "redisson_lock_token:{a}", 7)
        self.server("ZADD", "{p}:timeout", 9e15, b"0123456789abcdef")
        self.server("SET", "p", 2)
        self.lock("a")
        text = self.snib("stats").stdout
        heads = re.findall(r"# HELP (\w+) (.+)\n# TYPE \1 (\w+)\n", text)
        self.assertEqual(len(heads), text.count("#") // 2)
        self.assertEqual(len({name for name, _, _ in heads}), 11)
        for name, described, kind in heads:
            with self.subTest(name=name):
                self.assertRegex(name, "^snib_(server|lock)_[a-z_]+$")
                self.assertEqual(kind, "counter" if name.endswith("_total") else "gauge")
                self.assertNotRegex(name, "(count|sum|bucket|info|gauge|ms|millis)$")
                self.assertGreater(len(described), 15)
                self.assertIn(f"\n{name}{{", text)
        others = (ROOT / "python/snib/_figures.py").read_text() + (ROOT / "go/snibprom/snibprom.go").read_text()
        for name, _, _ in heads: # a client's metric of this name would mean something else
            self.assertNotIn(f'"{name.removeprefix("snib_").removesuffix("_total")}"', others)
            self.assertNotIn(f'"{name}"', others)
        self.assertTrue(text.endswith("\n") and "\n\n" not in text)

    def test_every_name_is_described(self):
        text = self.snib("stats").stdout
        page = (ROOT / "docs/operations.md").read_text()
        for name in re.findall("# TYPE (\\w+)", text):
            self.assertTrue(f"`{name}`" in page, f"{name} is not in docs/operations.md")

    def test_hostile_names(self):
        names = {b'a"b': 'a"b', b"a\\b": "a\\b", b"a\\": "a\\", b"a\\n": "a\\n", b'{x="y"} 1': '{x="y"} 1', b"# TYPE": "# TYPE",
                 b" x ": " x ", b"%s%n": "%s%n", "ä日\u202e\u2028".encode(): "ä日\u202e\u2028", b"x" * 512: "x" * 512, b"a,b=": "a,b="}
        broken = (b"a\nb", b"a\rb\x00", b"\x1b[2J", b"\xff\xfe", b"\xed\xa0\x80", "\u0085".encode())
        for name in (*names, *broken):
            self.server("HSET", name, f"{OWNER}1", 1)
        done = subprocess.run([SNIB, "stats"], env=self.env, stdout=subprocess.PIPE, check=True, timeout=120)
        metrics = Metrics(done.stdout.decode())
        self.assertNotRegex(done.stdout.decode(), r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
        self.assertEqual(set(metrics.labels("snib_lock_holders", "lock")), set(names.values()))
        self.assertEqual(metrics("snib_server_locks", kind="mutex"), len(names))
        # Some of the others look alike by now.
        self.assertIn(metrics("snib_server_locks", kind="other"), range(3, len(broken) + 1))

    def test_hostile_clients(self):
        for number, host in enumerate((b'a"\\', b"a\nhost b", b"\xff", "ä".encode() * 70, b"a" * 500)):
            client = f"{CLIENT}{number}"
            self.server("HSET", f"lock{number}", f"{client}:1", 1)
            self.server("SET", f"snib_client:{{{client}}}", b"host " + host + b"\nprogram x\n")
        done = subprocess.run([SNIB, "stats"], env=self.env, stdout=subprocess.PIPE, check=True, timeout=120)
        metrics = Metrics(done.stdout.decode()) # which is strict
        self.assertEqual(metrics.sum("snib_server_clients"), 5)
        self.assertEqual(metrics("snib_server_clients", host='a"\\', program="x"), 1)

    # ---- where it goes ---------------------------------------------------------------------------

    def test_output(self):
        self.lock("a")
        path = pathlib.Path(self.folder.name, "snib.prom")
        for _ in range(2): # new, and replaced
            done = self.snib("stats", "--output", str(path))
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
            self.assertEqual(Metrics(path.read_text())("snib_lock_holders", lock="a", kind="mutex"), 1)
            self.assertEqual(os.listdir(self.folder.name), ["snib.prom"])
            path.write_text("before")
        self.snib("stats", "--output", "here.prom", cwd=self.folder.name, umask=0o027)
        self.assertEqual(stat.S_IMODE(pathlib.Path(self.folder.name, "here.prom").stat().st_mode), 0o640)

    def test_output_is_never_half(self):
        """A reader who opens the file at any moment has a whole one."""
        for number in range(300):
            self.lock(f"lock:{number}")
        path = pathlib.Path(self.folder.name, "snib.prom")
        self.snib("stats", "--output", str(path))
        whole = len(path.read_text().splitlines())
        with open(path) as before:
            process = self.start("stats", "--output", str(path))
            while process.poll() is None:
                self.assertEqual(len(path.read_text().splitlines()), whole)
            self.assertNotEqual(os.fstat(before.fileno()).st_ino, path.stat().st_ino)

    def test_output_that_cannot_be_written(self):
        path = pathlib.Path(self.folder.name, "no folder", "snib.prom")
        done = self.snib("stats", "--output", str(path))
        self.assertEqual((done.returncode, done.stdout), (USAGE, ""))
        self.assertEqual(done.stderr, f"snib: {path}: No such file or directory\n")
        full = pathlib.Path(self.folder.name, "snib.prom")
        full.write_text("before")
        for trap in ('trap "" XFSZ;', ""):
            done = subprocess.run(["sh", "-c", f'ulimit -f 0; {trap} exec "$0" stats --output "$1"', SNIB, str(full)],
                                  env=self.env, text=True, stderr=subprocess.PIPE, timeout=120)
            self.assertEqual((done.returncode, done.stderr), (USAGE, f"snib: {full}: File too large\n"))
            self.assertEqual((os.listdir(self.folder.name), full.read_text()), (["snib.prom"], "before"))
        with open("/dev/full", "w") as device:
            done = subprocess.run([SNIB, "stats"], env=self.env, stdout=device, stderr=subprocess.PIPE, text=True, timeout=120)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (USAGE, 1))

    def test_output_to_what_is_no_file(self):
        link = pathlib.Path(self.folder.name, "link")
        link.symlink_to("target") # never the machine's own devices: a fault would replace them
        pathlib.Path(self.folder.name, "target").touch()
        os.mkfifo(f"{self.folder.name}/pipe")
        for path in (str(link), f"{self.folder.name}/pipe", self.folder.name, f"{self.folder.name}/new/", ""):
            with self.subTest(path=path):
                done = self.snib("stats", "--output", path)
                self.assertEqual((done.returncode, done.stdout), (USAGE, ""))
                self.assertEqual(done.stderr,
                                 f"snib: --output needs the name of a file, new or old, not {shown(path)}; see snib --help\n")
        self.assertTrue(link.is_symlink() and stat.S_ISFIFO(os.stat(f"{self.folder.name}/pipe").st_mode))

    # ---- when it cannot --------------------------------------------------------------------------

    def test_server_away(self):
        """It says so, also to those who read an earlier answer."""
        path = pathlib.Path(self.folder.name, "snib.prom")
        path.write_text("before")
        url = f"unix://{self.folder.name}/nobody?patience=100ms"
        for words in ((), ("--output", str(path))):
            done = self.snib("stats", "--url", url, *words)
            self.assertEqual((done.returncode, done.stderr.count("\n")), (SERVER, 1))
            self.assertIn("nobody", done.stderr)
            metrics = Metrics(path.read_text() if words else done.stdout)
            self.assertEqual((metrics("snib_server_up"), len(metrics.samples)), (0, 1))
        told = json.loads(self.snib("stats", "--json", "--url", url).stderr)
        self.assertEqual((told["event"], told["code"]), ("error", "SNIB_ECONNECT"))

    def test_refused(self):
        self.server("ACL", "SETUSER", "weak", "on", ">x", "~*", "+@all", "-scan")
        done = self.snib("stats", "--url", self.server.url.replace("unix://", "unix://weak:x@"))
        self.assertEqual((done.returncode, done.stderr.count("\n")), (SERVER, 1))
        self.assertEqual(Metrics(done.stdout)("snib_server_up"), 0)

    def test_a_signal(self):
        server = Server()
        self.addCleanup(server.stop)
        path = pathlib.Path(self.folder.name, "snib.prom")
        process = self.start("stats", "--output", str(path), "--url", server.url + "?patience=60s&reply_timeout=60s")
        server.process.send_signal(signal.SIGSTOP)
        process.terminate()
        code, text = self.end(process) # before, while or after it asks
        server.process.send_signal(signal.SIGCONT)
        self.assertIn((code, text, path.exists()), ((143, "", False), (0, "", True), (-15, "", False)))

    def test_server_away_at_the_end(self):
        """It answers all but the last questions, about the clients."""
        self.lock("a")
        server = Unanswering(self.server.path, b"GETRANGE", hangs=False)
        self.addCleanup(server.stop)
        done = self.snib("stats", "--url", f"redis://127.0.0.1:{server.port}?patience=100ms")
        self.assertEqual((done.returncode, done.stderr.count("\n")), (SERVER, 1))
        metrics = Metrics(done.stdout)
        self.assertEqual((metrics("snib_server_up"), len(metrics.samples)), (0, 1))

    def test_a_signal_at_the_end(self):
        self.lock("a")
        server = Unanswering(self.server.path, b"GETRANGE", hangs=True)
        self.addCleanup(server.stop)
        process = self.start("stats", "--url", f"redis://127.0.0.1:{server.port}?patience=24h&reply_timeout=24h")
        server.asked.wait()
        process.terminate()
        self.assertEqual(self.end(process), (128 + signal.SIGTERM, ""))

    def test_a_cluster(self):
        names = [f"lock:{number}" for number in range(12)] # which are on all nodes
        with Cluster(pathlib.Path(self.folder.name), replicas=0, timeout_ms=60000) as them:
            for name in names:
                them.owner_of(name).command("HSET", name, f"{OWNER}1", 1)
            waiter = self.start("hold", names[0], "--url", them.url, "-q")
            wait_for(lambda: self.stats("--url", them.url).sum("snib_server_waiting_processes"), "the waiter")
            metrics = self.stats("--url", them.url)
            self.assertEqual(metrics("snib_server_locks", kind="mutex"), len(names))
            self.assertEqual(set(metrics.labels("snib_lock_holders", "lock")), set(names))
            self.assertEqual(metrics.server, them.url)
            waiter.kill()
            them.owner_of(names[1]).stop()
            done = self.snib("stats", "--url", them.url + "?patience=300ms")
            self.assertEqual((done.returncode, done.stderr.count("\n")), (SERVER, 1))
            metrics = Metrics(done.stdout) # not half of the locks
            self.assertEqual((metrics("snib_server_up"), len(metrics.samples)), (0, 1))

    def test_bad_usage(self):
        bad = {("--limit", "0"): "--limit needs a number", ("--limit", "x"): "--limit", ("a", "b"): "too many",
               ("--interval", "2s"): "--interval cannot be used with stats", ("--once",): "--once cannot", ("--wait", "1s"): "--wait",
               ("--output",): "--output needs a value", ("--fair",): "--fair", ("--", "true"): "only run takes a command",
               ("--url", "redis://a", "--url", "redis://b", "--url", "redis://c"): "more than one --url, not stats",
               ("--url", "http://x"): "the URL must begin with"}
        path = pathlib.Path(self.folder.name, "snib.prom")
        path.write_text("before")
        for words, text in bad.items():
            with self.subTest(words=words):
                done = self.snib("stats", "--output", str(path), *words)
                self.assertEqual((done.returncode, done.stdout), (USAGE, ""))
                self.assertRegex(done.stderr, r"^snib: [^\n]{10,}\n$")
                self.assertIn(text, done.stderr)
        self.assertEqual(path.read_text(), "before")
        for command in ("list", "top"):
            done = self.snib(command, "--output", "x")
            self.assertEqual(done.returncode, USAGE)
            self.assertIn(f"--output cannot be used with {command}", done.stderr)


if __name__ == "__main__":
    unittest.main()

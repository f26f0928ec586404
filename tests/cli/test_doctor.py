#!/usr/bin/env python3
"""snib doctor and snib acl: findings, output, and that the rights are sufficient and minimal."""
import json
import pathlib
import re
import select
import shutil
import socket
import socketserver
import subprocess
import tempfile
import threading
import unittest

from command import SERVER, USAGE, CommandCase
from server import PATIENT, Cluster, Sentinels, Server, binary, free_port, wait_for

ROOT = pathlib.Path(__file__).resolve().parents[2]
LUA = ROOT / "core/lua"
DEBIAN = pathlib.Path("/usr/bin/redis-check-rdb") # the server under another name; other builds may lack TLS
KINDS = {"--fenced": "fenced", "--fair": "fair", "--read": "read", "--write": "write", "--spin": "spin",
         "--plain": "plain", "--permits": "permits", "--semaphore": "semaphore", "--latch": "latch"}
# Kinds whose scripts a kind runs in addition to its own, and what every script's wrapper needs.
OTHERS = {"fenced": ["mutex"], "spin": ["mutex"], "fair": ["_fair", "mutex"], "read": ["write"], "write": ["read"]}
BASE = {"evalsha", "script|load", "ping", "select", "info", "time", "client|id", "client|kill", "subscribe",
        "unsubscribe", "publish", "pubsub|numsub", "wait", "set", "del", "getrange"}


def commands_of(*prefixes):
    text = "".join(path.read_text() for prefix in prefixes for path in LUA.glob(f"{prefix}*.lua"))
    pairs = re.findall(r"call\('([a-z]+)'(?:, '(numsub)')?", text)
    return {f"{name}|{sub}" if sub else name for name, sub in pairs}


class Edited(socketserver.ThreadingTCPServer):
    """The server at this path, whose replies are edited, without a change of their length."""
    allow_reuse_address = daemon_threads = True

    def __init__(self, path, edit):
        class Relay(socketserver.BaseRequestHandler):
            def handle(self):
                with socket.socket(socket.AF_UNIX) as server:
                    server.connect(path)
                    ends = {self.request: server, server: self.request}
                    while True:
                        for end in select.select(ends, [], [])[0]:
                            data = end.recv(1 << 16)
                            if not data:
                                return
                            ends[end].sendall(edit(data))

        super().__init__(("127.0.0.1", 0), Relay)
        self.port = self.server_address[1]
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def stop(self):
        self.shutdown()
        self.server_close()


def older(data):
    """It says that it is Redis 6.0."""
    return re.sub(rb"redis_version:\d\.\d", b"redis_version:6.0", data.replace(b"valkey_version", b"another_server"))


def belated(data):
    """Its clock says 2017."""
    return re.sub(rb"\*2\r\n\$10\r\n\d{10}\r\n", b"*2\r\n$10\r\n1500000000\r\n", data)


def reticent(data):
    """Its INFO has other fields, as that of a service."""
    return data.replace(b"maxmemory_policy:", b"something_other_:").replace(b"aof_enabled:", b"another_one:")


def former(data):
    """It is a Redis 6."""
    return re.sub(rb"redis_version:\d\.", b"redis_version:6.", data).replace(b"valkey_version:", b"another_version")


class Acl(CommandCase):
    def rules(self, *words, env=None):
        done = self.snib("acl", *words, env=env)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.splitlines()

    def user(self, rules):
        """Create a user with these rules; returns the environment to act as that user."""
        self.assertEqual(self.server("ACL", "SETUSER", "locker", "reset", "on", ">secret", *rules), "OK")
        return {"SNIB_URL": f"unix://locker:secret@{self.server.path}{PATIENT}"}

    def tearDown(self):
        self.server("ACL", "DELUSER", "locker")
        super().tearDown()

    def test_all_kinds_work(self):
        for prefix in ("app:", "{app}", "a*b?[c]-"):
            env = self.user(self.rules(prefix))
            done = self.snib("doctor", prefix, "--json", env=env)
            found = json.loads(done.stdout)["findings"]
            bad = [item for item in found if item["verdict"] in ("error", "warning")]
            # this user may not run the administrator's commands
            self.assertEqual([], bad, prefix)
            self.assertEqual(0, done.returncode, prefix)
            done = self.snib("info", f"{prefix}x", env=env)
            self.assertEqual((0, ""), (done.returncode, done.stderr))
            self.assertEqual(0, self.snib("list", env=env).returncode)
            other = self.snib("run", "other", "--", "true", env=env)
            self.assertEqual(SERVER, other.returncode)
            self.assertIn("NOPERM", other.stderr)
        done = self.snib("doctor", "--json", env=env)  # without the only prefix that this user may use
        mutex = next(item for item in json.loads(done.stdout)["findings"] if item["what"] == "mutex")
        self.assertIn("snib doctor PREFIX", mutex["advice"])

    def test_a_hash_tag_behind_the_prefix(self):
        """Such a name gets no other braces."""
        done = self.snib("doctor", "app:{t}", "--json", env=self.user(self.rules("app:")))
        found = json.loads(done.stdout)["findings"]
        self.assertEqual([], [item for item in found if item["verdict"] in ("error", "warning")])

    def test_cluster(self):
        """The client asks nodes of a cluster for more, and nothing of that is refused."""
        port = free_port()
        node = Server("--port", str(port), "--bind", "127.0.0.1", "--cluster-enabled", "yes")
        self.addCleanup(node.stop)
        node("CLUSTER", "ADDSLOTS", *range(16384))
        wait_for(lambda: "cluster_state:ok" in node("CLUSTER", "INFO"), "the slots")
        url = f"127.0.0.1:{port}{PATIENT}"
        done = self.snib("acl", "app:", "--url", f"redis+cluster://{url}")
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        self.assertEqual("OK", node("ACL", "SETUSER", "locker", "reset", "on", ">secret", *done.stdout.splitlines()))
        done = self.snib("run", "app:x", "--url", f"redis+cluster://locker:secret@{url}", "--", "true")
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        self.assertEqual([], node("ACL", "LOG"))

    def test_each_kind_alone(self):
        for option in (None, "--fenced", "--fair", "--read", "--write", "--spin", "--plain", "--permits"):
            kind = [option] if option else []
            run = [*kind, "1"] if option == "--permits" else kind
            env = self.user(self.rules("app:", *kind))
            self.waits(env, run)
            if kind:  # without a kind the command looks for it, which needs the rights of all kinds
                forced = self.snib("release", "--force", *kind, "app:x", env=env)
                self.assertIn(forced.returncode, (0, 1), (option, forced.stderr))
            self.assertFree("app:x")

    def test_each_counter_alone(self):
        """The two kinds that snib run does not take: doctor tries them, and a client waits for each."""
        for kind in ("semaphore", "latch"):
            env = self.user(self.rules("app:", f"--{kind}"))
            found = {item["what"]: item for item in json.loads(self.snib("doctor", "app:", "--json", env=env).stdout)["findings"]}
            self.assertEqual(("ok", "works"), (found[kind]["verdict"], found[kind]["value"]))
            self.assertEqual("error", found["fair"]["verdict"])
            forced = self.snib("release", "--force", f"--{kind}", "app:x", env=env)
            self.assertIn(forced.returncode, (0, 1), (kind, forced.stderr))
        self.env, before = {**self.env, **env}, self.env
        try:
            self.assertEqual(0, self.snib("latch", "app:x", "set", "1").returncode)
            waiter = self.start("latch", "app:x", "wait", "-v")
            wait_for(lambda: self.server("PUBSUB", "CHANNELS"), "the waiter to subscribe")
            self.assertEqual(0, self.snib("latch", "app:x", "down").returncode)
            code, text = self.end(waiter)
            self.assertEqual(0, code, text)
            self.assertNotIn("refused", text)
        finally:
            self.env = before

    def waits(self, env, run):
        """One client holds, another waits for a message, and follows."""
        self.env, before = {**self.env, **env}, self.env
        try:
            holder = self.hold("app:x", *run, script=f"echo ready; {self.until_go()}")
            waiter = self.start("run", "app:x", *run, "-q", "-v", "--", "echo", "went")
            if run != ["--read"]:
                self.waiting(run)
            self.go()
            for process in (holder, waiter):
                code, text = self.end(process)
                self.assertEqual(0, code, text)
                self.assertNotIn("refused", text)
        finally:
            self.env = before
            pathlib.Path(self.folder.name, "go").unlink()

    def waiting(self, run):
        if run == ["--spin"]:
            return
        wait_for(lambda: self.server("PUBSUB", "CHANNELS"), "the waiter to subscribe")

    def test_no_more_than_the_scripts(self):
        for option, kind in KINDS.items():
            given = {rule[1:] for rule in self.rules("app:", option) if rule[0] == "+"}
            wanted = commands_of(kind)
            allowed = commands_of(kind, *OTHERS.get(kind, [])) | BASE
            newer = {"client|setinfo", "delex", "delifeq"}
            self.assertLessEqual(wanted, given, kind)
            self.assertLessEqual(given - newer, allowed, kind)
        given = {rule[1:] for rule in self.rules("app:") if rule[0] == "+"}
        everything = commands_of("")
        self.assertLessEqual(everything, given)
        self.assertLessEqual(given - newer, everything | BASE)

    def test_without_a_server(self):
        """Without a URL no server is asked, and commands of newer servers are left out."""
        rules = self.rules("app:", env={"SNIB_URL": ""})
        self.assertFalse({"+client|setinfo", "+delex", "+delifeq"} & set(rules))
        self.assertEqual(rules, json.loads(self.snib("acl", "app:", "--json", env={"SNIB_URL": ""}).stdout))
        self.assertEqual(SERVER, self.snib("acl", "app:", "--url", "redis://127.0.0.1:1").returncode)

    def test_redis_6_0(self):
        """It knows no rights for channels, and refuses all rules if it does not know one."""
        old = Edited(self.server.path, older)
        self.addCleanup(old.stop)
        rules = self.rules("app:", "--url", f"redis://127.0.0.1:{old.port}")
        newer = {rule for rule in self.rules("app:", env={"SNIB_URL": ""}) if rule[0] == "&"} | {"resetchannels", "+hrandfield"}
        self.assertEqual(set(self.rules("app:", env={"SNIB_URL": ""})) - newer, set(rules))

    def test_bad_input(self):
        for words in (["acl"], ["acl", "a b"], ["acl", "x" * 501], ["acl", "a", "b"], ["acl", "a", "--force"],
                      ["acl", "a", "--lease", "1s"], ["doctor", "a", "--fair"], ["doctor", "a", "b"],
                      ["doctor", "x" * 492], ["doctor", "x" * 4000], ["doctor", "a\udcff"], ["acl", "a\udcff"],
                      ["doctor", "a\n"], ["doctor", "a{"], ["doctor", "{}a"], ["doctor", "a}b"]):
            done = self.snib(*words)
            self.assertEqual((USAGE, ""), (done.returncode, done.stdout), words)
            self.assertEqual(1, done.stderr.count("\n"), done.stderr)


class Doctor(CommandCase):
    def findings(self, *words, env=None):
        done = self.snib("doctor", *words, "--json", env=env)
        told = json.loads(done.stdout)
        self.assertEqual(done.returncode, 1 if told["worst"] in ("warning", "error") else 0)
        return {item["what"]: item for item in told["findings"]}

    def test_a_good_server(self):
        found = self.findings()
        self.assertEqual({"ok", "note"}, {item["verdict"] for item in found.values()})
        for kind in ("mutex", *KINDS.values()):
            self.assertEqual("works", found[kind]["value"])
        self.assertEqual(("ok", f"one server, {self.server.path}"), (found["topology"]["verdict"], found["topology"]["value"]))
        self.assertEqual(("ok", "off, on a unix socket"), (found["TLS"]["verdict"], found["TLS"]["value"]))
        text = self.snib("doctor").stdout
        self.assertRegex(text, r"(?m)^ok       server         (Redis|Valkey) \d+\.\d+\.\d+, standalone$")
        # Only the fenced lock's counter stays, as always.
        self.assertEqual([b"redisson_lock_token:{snib-doctor-fenced}"],
                         [key if isinstance(key, bytes) else key.encode() for key in self.server("KEYS", "*")])

    def test_what_an_ended_doctor_has_left(self):
        """A semaphore has no lease, so it would be taken for ever, and no doctor would try it again."""
        self.server("SET", "snib-doctor-semaphore", "0")
        self.assertEqual("works", self.findings()["semaphore"]["value"])
        self.assertEqual(self.server("EXISTS", "snib-doctor-semaphore"), 0)

    def test_another_doctor_clears_up(self):
        """It forces the releases of what this one has and is waiting for."""
        done = threading.Event()

        def clear_up():
            while not done.wait(0.01):
                if self.server("EXISTS", "{snib-doctor-permits}:timeout"):
                    self.server("DEL", "snib-doctor-permits", "{snib-doctor-permits}:timeout")
                if self.server("GET", "snib-doctor-semaphore") == "0":
                    self.server("DEL", "snib-doctor-semaphore")

        other = threading.Thread(target=clear_up)
        other.start()
        try:
            found = self.findings()
        finally:
            done.set()
            other.join()
        self.assertEqual(("works", "works"), (found["permits"]["value"], found["semaphore"]["value"]))

    def test_eviction(self):
        self.server("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        self.server("CONFIG", "SET", "maxmemory", "100mb")
        try:
            self.assertEqual("warning", self.findings()["memory"]["verdict"])
        finally:
            self.server("CONFIG", "SET", "maxmemory-policy", "noeviction")
            self.server("CONFIG", "SET", "maxmemory", "0")

    def test_fields_that_are_missing(self):
        """What INFO does not say is not well because of that, and not said of the server."""
        server = Edited(self.server.path, reticent)
        self.addCleanup(server.stop)
        found = self.findings(env={"SNIB_URL": f"redis://127.0.0.1:{server.port}"})
        self.assertEqual(("note", "maxmemory 0, policy unknown"), (found["memory"]["verdict"], found["memory"]["value"]))
        self.assertEqual(("note", "unknown"), (found["persistence"]["verdict"], found["persistence"]["value"]))
        self.assertRegex(found["memory"]["advice"] + found["persistence"]["advice"], "^INFO does not say.*INFO does not say")

    def test_rights_that_are_missing(self):
        for word, what, verdict in (("info", "info", "warning"), ("time", "clock", "warning"), ("time", "fair", "error"),
                                    ("subscribe", "messages", "warning"), ("zadd", "fair", "error"),
                                    ("acl|whoami", "user", "ok"), ("config|get", "server", "ok")):
            self.server("ACL", "SETUSER", "locker", "reset", "on", ">secret", "~*", "&*", "+@all", f"-{word}")
            found = self.findings(env={"SNIB_URL": f"unix://locker:secret@{self.server.path}{PATIENT}"})
            self.assertEqual(verdict, found[what]["verdict"], (word, found[what]))
        self.server("ACL", "DELUSER", "locker")

    def test_a_setting_that_is_unknown(self):
        """It is not supposed to be the worst, and why it is unknown is said at CONFIG."""
        self.server("CONFIG", "SET", "appendfsync", "always")
        self.server("CONFIG", "SET", "appendonly", "yes")
        self.server("ACL", "SETUSER", "locker", "reset", "on", ">secret", "~*", "&*", "+@all", "-config")
        try:
            self.assertEqual("ok", self.findings()["persistence"]["verdict"])
            found = self.findings(env={"SNIB_URL": f"unix://locker:secret@{self.server.path}{PATIENT}"})
            self.assertEqual("append-only file, appendfsync unknown", found["persistence"]["value"])
            self.assertRegex(found["persistence"]["advice"], "^unless")
            self.assertEqual("this user may not run it", found["CONFIG"]["value"])
        finally:
            self.server("CONFIG", "SET", "appendonly", "no")
            self.server("CONFIG", "SET", "appendfsync", "everysec")
            self.server("ACL", "DELUSER", "locker")

    def test_what_a_restart_forgets(self):
        """Without an append-only file the server may still have snapshots, so a restart need not free the locks."""
        try:
            for appends, fsync, says in (
                ("no", "everysec", "a restart brings back the locks of the last snapshot, or none"),
                ("yes", "everysec", "a crash forgets the locks of the last second"),
                ("yes", "no", "a crash of the machine forgets the locks of the last half minute"),
                ("yes", "always", "^$"),
            ):
                self.server("CONFIG", "SET", "appendfsync", fsync)
                self.server("CONFIG", "SET", "appendonly", appends)
                self.assertRegex(self.findings()["persistence"].get("advice", ""), says)
        finally:
            self.server("CONFIG", "SET", "appendonly", "no")
            self.server("CONFIG", "SET", "appendfsync", "everysec")

    def test_each_command_that_is_forbidden(self):
        """Each missing command is reported with its effect, and the exit code says whether it matters."""
        for rule, what, verdict, says in (
            ("-publish", "publish", "warning", "PUBLISH is refused"),
            ("-subscribe", "messages", "warning", "SUBSCRIBE is refused"),
            ("-info", "info", "warning", "can't run"),
            ("-client", "CLIENT ID", "note", "may not run it"),
            ("-client|id", "CLIENT ID", "note", "may not run it"),
            ("-script|load", "SCRIPT LOAD", "note", "may not run it"),
            ("-config", "CONFIG", "note", "may not run it"),
            ("-role", "ROLE", "note", "may not run it"),
            ("-wait", "WAIT", "note", "may not run it"),
            ("-scan", "names", "note", "may not run"),
        ):
            self.server("ACL", "SETUSER", "locker", "reset", "on", ">secret", "~*", "&*", "+@all", rule)
            env = {"SNIB_URL": f"unix://locker:secret@{self.server.path}{PATIENT}"}
            found = self.findings(env=env)
            self.assertEqual(verdict, found[what]["verdict"], rule)
            self.assertTrue(found[what]["advice"], rule)
            if rule != "-info":
                self.assertIn(says, found[what]["value"], rule)
            others = {"publish", "messages", "info", "CLIENT ID", "SCRIPT LOAD", "CONFIG", "ROLE", "WAIT", "names"} - {what}
            missing = {name for name in others & set(found) if found[name]["verdict"] != "ok"}
            self.assertEqual(set(), missing, rule)
            done = self.snib("doctor", env=env)
            self.assertEqual(1 if verdict == "warning" else 0, done.returncode, rule)
            self.assertRegex(done.stdout, rf"(?m)^{verdict} +{what} ")
        self.server("ACL", "DELUSER", "locker")

    def test_messages_of_the_kinds_that_work(self):
        """A user may use only one kind, and PUBLISH is tried with that one; none shows nothing."""
        for option in ("--plain", "--semaphore"):
            for publish, verdict in (("+publish", None), ("-publish", "warning")):
                rules = self.snib("acl", "app:", option).stdout.split()
                self.server("ACL", "SETUSER", "locker", "reset", "on", ">secret", *rules, "&*", publish)
                found = self.findings("app:", env={"SNIB_URL": f"unix://locker:secret@{self.server.path}{PATIENT}"})
                with self.subTest(option=option, publish=publish):
                    self.assertEqual("works", found[option[2:]]["value"])
                    known = option != "--semaphore"
                    self.assertEqual("ok" if known else "note", found["messages"]["verdict"])
                    self.assertEqual(verdict if known else None, found.get("publish", {}).get("verdict"))
        self.server("ACL", "DELUSER", "locker")

    def test_kinds_that_poll(self):
        """The rules of one kind let others work, too, but without their channels; PUBLISH is tried with one that has it."""
        for option, polling in ("--fenced", "plain"), ("--permits", "plain"), ("--read", "mutex, plain"), ("--spin", "mutex"):
            for publish, verdict in (("+publish", None), ("-publish", "warning")):
                rules = self.snib("acl", "app:", option).stdout.split()
                self.server("ACL", "SETUSER", "locker", "reset", "on", ">secret", *rules, publish)
                found = self.findings("app:", env={"SNIB_URL": f"unix://locker:secret@{self.server.path}{PATIENT}"})
                with self.subTest(option=option, publish=publish):
                    self.assertEqual(f"SUBSCRIBE is refused for {polling}", found["messages"]["value"])
                    known = option in ("--fenced", "--read")
                    self.assertEqual(verdict if known else None, found.get("publish", {}).get("verdict"))
        self.server("ACL", "DELUSER", "locker")

    def test_clock(self):
        """A server whose clock is years behind is told, but no lock depends on it."""
        server = Edited(self.server.path, belated)
        self.addCleanup(server.stop)
        found = self.findings(env={"SNIB_URL": f"redis://127.0.0.1:{server.port}{PATIENT}"})["clock"]
        self.assertEqual("note", found["verdict"])
        self.assertRegex(found["value"], r"^\d{9}\.\d{3} s behind this machine's$")
        self.assertIn("slew", found["advice"])

    def test_durability(self):
        """Durability is tried where there are replicas, and a forbidden WAIT is reported."""
        self.assertNotIn("durability", self.findings())
        port = free_port()
        master = Server("--port", str(port), "--repl-diskless-sync-delay", "0")
        replica = Server()
        try:
            replica("REPLICAOF", "127.0.0.1", port)
            wait_for(lambda: "state=online" in master("INFO", "replication"), "the replica to be in step")
            found = self.findings(env={"SNIB_URL": master.url + PATIENT})["durability"]
            self.assertEqual(("ok", "1 of 1 connected replicas had a grant at once"), (found["verdict"], found["value"]))
            found = self.findings(env={"SNIB_URL": master.url + PATIENT})["topology"]
            self.assertEqual(("note", f"one server, {master.path}"), (found["verdict"], found["value"]))
            self.assertIn("redis+sentinel://", found["advice"])
            for least, verdict, advice in (("0", "warning", "set min-replicas-to-write 1"), ("1", "ok", "")):
                master("CONFIG", "SET", "min-replicas-to-write", least)
                found = self.findings(env={"SNIB_URL": master.url + PATIENT})["min-replicas"]
                self.assertEqual((verdict, least), (found["verdict"], found["value"]))
                self.assertIn(advice, found.get("advice", ""))
                old = Edited(master.path, former)  # where scripts are exempt from the setting, whatever it is
                self.addCleanup(old.stop)
                found = self.findings(env={"SNIB_URL": f"redis://127.0.0.1:{old.port}{PATIENT}"})["min-replicas"]
                self.assertEqual(("warning", least), (found["verdict"], found["value"]))
                self.assertIn("exempt", found["advice"])
            master("CONFIG", "SET", "min-replicas-to-write", "0")
            master("ACL", "SETUSER", "locker", "reset", "on", ">secret", "~*", "&*", "+@all", "-wait")
            found = self.findings(env={"SNIB_URL": f"unix://locker:secret@{master.path}{PATIENT}"})["durability"]
            self.assertEqual("note", found["verdict"])
            self.assertIn("+wait", found["advice"])
        finally:
            replica.stop()
            master.stop()

    def test_without_tls(self):
        port = free_port()
        server = Server("--port", str(port), "--bind", "127.0.0.1")
        self.addCleanup(server.stop)
        found = self.findings(env={"SNIB_URL": f"redis://127.0.0.1:{port}{PATIENT}"})
        self.assertEqual(("note", "off"), (found["TLS"]["verdict"], found["TLS"]["value"]))
        self.assertIn("rediss://", found["TLS"]["advice"])
        self.assertEqual(f"one server, 127.0.0.1:{port}", found["topology"]["value"])

    @unittest.skipUnless(shutil.which("openssl"), "needs openssl")
    def test_tls(self):
        folder = tempfile.mkdtemp(prefix="snib-cli-")
        self.addCleanup(shutil.rmtree, folder)
        subprocess.run([str(ROOT / "tests/support/certs.sh"), folder], check=True, stdout=subprocess.DEVNULL)
        program = f"{folder}/redis-server"
        pathlib.Path(program).symlink_to(DEBIAN if DEBIAN.exists() else shutil.which(binary()))
        port = free_port()
        server = Server("--tls-port", str(port), "--tls-auth-clients", "no", "--tls-cert-file", f"{folder}/server.crt",
                        "--tls-key-file", f"{folder}/server.key", "--tls-ca-cert-file", f"{folder}/ca.crt", program=program)
        self.addCleanup(server.stop)
        url = f"rediss://localhost:{port}{PATIENT}"
        for options, verdict, value in ((f"&tls_ca={folder}/ca.crt", "ok", "on, the server's certificate is verified"),
                                        ("&tls_insecure=yes", "warning", "on, but certificates are not verified")):
            found = self.findings(env={"SNIB_URL": url + options})
            self.assertEqual((verdict, value), (found["TLS"]["verdict"], found["TLS"]["value"]))
            self.assertEqual(verdict == "warning", "tls_ca" in found["TLS"]["advice"])
        done = self.snib("doctor", env={"SNIB_URL": f"{url}&tls_ca={folder}/strange.crt"})
        self.assertEqual((SERVER, ""), (done.returncode, done.stdout))

    def test_sentinels(self):
        for count, verdict in ((1, "note"), (3, "ok")):
            them = Sentinels(count)
            self.addCleanup(them.stop)
            found = self.findings(env={"SNIB_URL": them.url})["topology"]
            some = f"{count} sentinel{'s' if count > 1 else ''}"
            self.assertEqual((verdict, f"service locks, master 127.0.0.1:{them.ports[0]}, {some} known"),
                             (found["verdict"], found["value"]))
            done = self.snib("scripts", env={"SNIB_URL": them.url})
            self.assertRegex(done.stdout, rf"^127.0.0.1:{them.ports[0]}: \d+ scripts, for all kinds\n$")

    def test_cluster(self):
        for slots, verdict, served in ((16384, "ok", "all 16384"), (16383, "warning", "16383")):
            cluster = Cluster(slots)
            self.addCleanup(cluster.stop)
            found = self.findings(env={"SNIB_URL": cluster.url()})
            value = f"cluster of 3 masters, {served} of 16384 slots served"
            self.assertEqual((verdict, value), (found["topology"]["verdict"], found["topology"]["value"]))
        for node in cluster.nodes:
            node("ACL", "SETUSER", "default", "-cluster|info")
        found = self.findings(env={"SNIB_URL": cluster.url()})["topology"]
        self.assertEqual("note", found["verdict"])
        self.assertIn("+cluster|info", found["advice"])

    def test_a_replica(self):
        replica = Server("--port", "0")
        try:
            replica("REPLICAOF", "127.0.0.1", "1")
            done = self.snib("doctor", env={"SNIB_URL": replica.url})
            self.assertEqual((SERVER, ""), (done.returncode, done.stdout))
            self.assertIn("replica", done.stderr)
        finally:
            replica.stop()

    def test_nobody_there(self):
        done = self.snib("doctor", "--url", "redis://127.0.0.1:1")
        self.assertEqual((SERVER, ""), (done.returncode, done.stdout))
        self.assertIn("127.0.0.1:1", done.stderr)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""snib top: on a terminal, as text and as JSON."""
import html
import itertools
import json
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import unittest

sys.path.append(str(pathlib.Path(__file__).parents[1] / "topology"))

from cluster import Cluster
from command import SCHEMAS, SERVER, SNIB, USAGE, CommandCase
from screen import Screen, width
from sentinels import Sentinels
from server import PATIENT, Server, wait_for

OWNER = "11111111-1111-8111-8111-111111111111:"
TITLES = ["WAITING", "HOLDERS", "CHANGES", "LEASE", "KIND", "LOST", "NAME"]
WIDE = [*TITLES[:-2], "HOLDER", "LOST", "NAME"]
SOON = ("--interval", "100ms")


class Top(CommandCase):
    def setUp(self):
        super().setUp()
        self.screens = []

    def tearDown(self):
        for screen in self.screens:
            screen.close()
        super().tearDown()

    def lock(self, name, number=1, lease=3600):
        """A lock that somebody holds."""
        self.server("HSET", name, f"{OWNER}{number}", 1)
        self.server("EXPIRE", name, lease)

    def show(self, *words, columns=80, rows=24, env=None):
        screen = Screen([SNIB, "top", *words], {**self.env, **(env or {})}, columns, rows)
        self.screens.append(screen)
        return screen

    def once(self, *words, **options):
        """What one snapshot has, by name."""
        done = self.snib("top", "--once", "--json", *words, **options)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        value = json.loads(done.stdout)
        self.assertEqual((value["complete"], value["total"]), (True, len(value["locks"])))
        return {lock["name"]: lock for lock in value["locks"]}

    def stream(self, *words, env=None, stderr=None):
        """The values of snib top --json, each when it comes."""
        process = subprocess.Popen([SNIB, "top", "--json", *words], env={**self.env, **(env or {})}, text=True,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr)
        self.started.append(process)
        for line in process.stdout:
            if not line.endswith("\n"): # its end came first
                return
            value = json.loads(line)
            SCHEMAS["top"].validate(value)
            yield value

    def until(self, values, condition):
        """The first value that meets it, of those without an error: a busy server may miss a refresh."""
        return next(value for value in values if "error" not in value and condition(value))

    # ---- on a terminal ---------------------------------------------------------------------------

    def test_screen(self):
        for number in range(40):
            self.lock(f"lock:{number:02}")
        self.start("hold", "busy", "-q", "--permits", "1", "--wait", "1h")
        wait_for(lambda: self.server("EXISTS", "{busy}:timeout"), "the holder")
        self.start("hold", "busy", "-q", "--permits", "1")
        screen = self.show(*SOON)
        screen.wait_text(r"\b1 +1/1 ")
        self.assertTrue(screen.is_alternate)
        self.assertFalse(screen.has_cursor)
        lines = screen.lines()
        self.assertRegex(lines[0], rf"^snib top  \d\d:\d\d:\d\d  {re.escape(self.server.url)}$")
        self.assertEqual(lines[1], "41 locks (20 not shown), 1 waiting")
        self.assertEqual(lines[2].split(), TITLES)
        self.assertRegex(lines[3], r"^      1     1/1 +[0-9-]+\+? +\d+\.\ds permits     - busy$")
        for number in range(20):
            self.assertRegex(lines[4 + number], rf"^      0       1 +[0-9-]+  \d\dm\d\ds mutex       - lock:{number:02}$")
        self.assertIn(b"\x1b[7mWAITING", screen.raw)

    def test_the_picture(self):
        """docs/top.svg is what tests/docs/top.py draws; if this fails, let it do so again."""
        picture = (pathlib.Path(__file__).parents[2] / "docs/top.svg").read_text()
        texts = [html.unescape(text) for text in re.findall(r">([^<]*)</text>", picture)]
        self.assertEqual(texts[2].split(), TITLES)
        self.assertLessEqual(len(texts), 24)

    def test_sizes(self):
        for number in range(20):
            self.lock(f"a-lock-with-a-rather-long-name:{number:02}")
        screen = self.show(*SOON, columns=40, rows=10)
        screen.wait_text("a-lock.*\n")
        lines = screen.lines()
        self.assertTrue(lines[0].endswith("…"), lines[0])
        self.assertEqual(len(lines[0]), 40)
        self.assertEqual(lines[1], "20 locks (13 not shown), 0 waiting")
        self.assertEqual(lines[2].split(), ["WAITING", "HOLDERS", "LEASE", "NAME"])
        for line in lines[3:]:
            self.assertRegex(line, r"^      0       1  \d\dm\d\ds a-lock-with-a-r…$")
        for columns, rows in ((80, 24), (60, 12), (20, 5), (132, 50), (10, 3), (1, 1), (7, 2), (40, 4), (80, 24)):
            with self.subTest(columns=columns, rows=rows):
                screen.resize(columns, rows)
                screen.wait_text(r"^snib top|^snib |^…|^snib…")
                if rows > 3:
                    screen.wait(lambda: sum("a-lock" in line for line in screen.lines()) == min(rows - 3, 20), "all lines")
                    self.assertIn("NAME", screen.lines()[2])
        screen.type(b"q")
        self.assertEqual(screen.end(), 0)

    def test_limit_and_pattern(self):
        for name in ("a:1", "a:2", "a:3", "b:1"):
            self.lock(name)
        screen = self.show("--limit", "2", "a:*", *SOON)
        screen.wait_text(r"3 locks \(1 not shown\)")
        self.assertRegex(screen.lines()[0], r"  a:\*$")
        self.assertEqual([line.split()[-1] for line in screen.lines()[3:5]], ["a:1", "a:2"])
        self.assertEqual(screen.lines()[5], "")

    def test_hostile_names(self):
        names = (b"\x1b[2J\x1b[H", b"\x1b]0;title\x07", b"a\rb\nc\td\x00", b"\x9b2J", b"\xff\xfe", "\u009b2J".encode(),
                 "日本語のとても長い名前でありまして、とても長いのです、はい、本当に長い".encode(), "\u202eevil".encode(), "e\u0301\u0302".encode(),
                 "\u2066x\u200f".encode(), "👩‍👩‍👧".encode(), b"x" * 512, "é".encode() * 256, b"what?", b" x", b"%s%n")
        for name in names:
            self.server("HSET", name, f"{OWNER}1", 1)
        for columns in (80, 40, 23):
            screen = self.show(*SOON, columns=columns) # which refuses all but a few sequences
            screen.wait_text(f"{len(names)} locks")
            shown = screen.raw.decode()
            for bad in "\u202e\u2066\u200f\u009b\x07\x00":
                self.assertNotIn(bad, shown)
            self.assertEqual(len([line for line in screen.lines()[3:] if line]), len(names))
            for line in screen.lines():
                self.assertLessEqual(sum(map(width, line)), columns)
        self.assertTrue(any("日本語" in line and line.endswith("…") for line in screen.lines()))
        text = self.snib("top", "--once").stdout
        self.assertNotRegex(text, r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\u2066\u200f]")
        self.assertIn("x" * 512, text)
        self.assertEqual(len(text.splitlines()), 3 + len(names))
        self.assertEqual(len(self.once()), len(names))

    def test_hostile_pattern_and_url(self):
        self.lock("a")
        screen = self.show("\x1b[2J*", *SOON)
        screen.wait_text(r"  \?\[2J\*$|0 locks")
        url = self.server.url.replace("unix://", "unix://user:secret@")
        done = self.snib("top", "--once", "--json", "--url", url + "?password=hidden&patience=60s")
        self.assertNotRegex(done.stdout + done.stderr, "secret|hidden")
        path = os.fsencode(self.folder.name) + b"/\xff.sock"
        os.symlink(self.server.path, path)
        for words in ["top", "--once", "--json"], ["top", "--once"], ["stats"]:
            self.assertIn("xff.sock", self.snib(*words, "--url", os.fsdecode(b"unix://" + path)).stdout)
        self.server("CONFIG", "SET", "requirepass", "secret")
        try:
            done = self.snib("top", "--once", "--url", self.server.url.replace("unix://", "unix://:secret@"))
        finally:
            with_password(self.server, "secret", "CONFIG", "SET", "requirepass", "")
        self.assertIn(f"  {self.server.url}\n", done.stdout)

    def test_ends(self):
        self.lock("a")
        ends = {"q": lambda screen: screen.type(b"q"), "Q": lambda screen: screen.type(b"xyzQ"),
                "^C": lambda screen: screen.type(b"\x03"), "^\\": lambda screen: screen.type(b"\x1c")}
        for name in ("TERM", "INT", "HUP", "QUIT"):
            ends[name] = lambda screen, number=getattr(signal, "SIG" + name): screen.process.send_signal(number)
        for name, end in ends.items():
            with self.subTest(name=name):
                screen = self.show()
                screen.wait_text("1 lock, ")
                self.assertFalse(screen.has_its_modes())
                end(screen)
                self.assertEqual(screen.end(), 0)
                self.assertTrue(screen.is_as_before())
                self.assertEqual("".join(screen.lines()), "") # nothing is said

    def test_a_reader_that_stalls(self):
        """A signal ends it all the same; also stats, and with the code that the signal has otherwise."""
        self.lock("a")
        for words, code in ((["top", *SOON], 0), (["top", "--json", *SOON], 0), (["top", "--once"], 128 + signal.SIGTERM),
                            (["top", "--once", "--json"], 128 + signal.SIGTERM), (["stats"], 128 + signal.SIGTERM)):
            with self.subTest(words=words):
                master, terminal = pty.openpty()
                self.addCleanup(os.close, master)
                termios.tcflow(terminal, termios.TCOOFF) # all writes block
                modes = termios.tcgetattr(terminal)
                process = subprocess.Popen([SNIB, *words], env={**self.env, "TERM": "xterm"}, stdin=terminal, stdout=terminal,
                                           start_new_session=True)
                self.addCleanup(process.kill)
                wait_for(lambda: state(process.pid) == "S" and # not only about to say that it is a terminal
                         read(f"/proc/{process.pid}/syscall").split()[1:2] == ["0x1"], "it to wait in a write")
                process.terminate()
                self.assertEqual(process.wait(60), code)
                self.assertEqual(termios.tcgetattr(terminal), modes)
                os.close(terminal)

    def test_a_terminal_that_goes_away(self):
        self.lock("a")
        screen = self.show()
        screen.wait_text("1 lock, ")
        os.close(screen.master)
        os.close(screen.slave)
        screen.master = screen.slave = -1
        wait_for(lambda: screen.process.poll() is not None, "the end")
        self.assertEqual(screen.process.returncode, 0)

    def test_stopped_and_continued(self):
        """A shell with job control has it in the foreground again whenever a line is typed."""
        self.lock("a")
        screen = Screen(["sh", "-c", f"set -m; {SNIB} top --interval 100ms & echo $! >{self.folder.name}/pid; "
                         "while :; do fg >/dev/null; read line; done"], self.env)
        self.screens.append(screen)
        pid = int(wait_for(lambda: read(f"{self.folder.name}/pid").strip(), "its pid"))
        for stop in (lambda: screen.type(b"\x1a"), lambda: os.kill(pid, signal.SIGTSTP)):
            screen.wait_text("1 lock, ")
            stop()
            screen.wait(lambda: state(pid) == "T", "it to be stopped")
            screen.wait(screen.is_as_before, "the terminal as it was")
            screen.type(b"\n")
            screen.wait(lambda: screen.is_alternate, "the screen")
        screen.wait_text("1 lock, ")
        os.kill(pid, signal.SIGSTOP)
        screen.wait(lambda: state(pid) == "T", "it to be stopped")
        screen.type(b"\n")
        screen.wait_text("1 lock, ")
        screen.type(b"q")
        screen.wait(screen.is_as_before, "the terminal as it was")

    def test_no_shell_could_continue_it(self):
        """Then Ctrl-Z does nothing."""
        self.lock("a")
        screen = self.show(*SOON)
        screen.wait_text("1 lock, ")
        screen.type(b"\x1a")
        screen.wait(lambda: screen.raw.count(b"\x1b[?1049h") == 2, "the screen again")
        screen.wait_text("1 lock, ")
        screen.type(b"q")
        self.assertEqual(screen.end(), 0)

    def test_in_the_background(self):
        """It stops until it is in the foreground, and leaves the terminal to the others meanwhile."""
        self.lock("a")
        screen = Screen(["sh", "-c", f"set -m; {SNIB} top & echo $! >{self.folder.name}/pid; read line; fg"], self.env)
        self.screens.append(screen)
        pid = wait_for(lambda: read(f"{self.folder.name}/pid").strip(), "its pid")
        screen.wait(lambda: state(pid) == "T", "it to be stopped")
        self.assertTrue(screen.is_as_before())
        screen.type(b"\n")
        screen.wait_text("1 lock, ")
        self.assertTrue(screen.is_alternate)
        screen.type(b"q")
        self.assertEqual(screen.end(), 0)

    def test_without_keys(self):
        self.lock("a")
        screen = Screen(["sh", "-c", f"exec {SNIB} top </dev/null"], self.env)
        self.screens.append(screen)
        screen.wait_text("1 lock, ")
        screen.process.terminate()
        self.assertEqual(screen.end(), 0)
        self.assertTrue(screen.is_as_before())

    # ---- the server ------------------------------------------------------------------------------

    def test_server_away_for_a_while(self):
        server = Server()
        self.addCleanup(server.stop)
        server("HSET", "before", f"{OWNER}1", 1)
        screen = self.show(*SOON, env={"SNIB_URL": server.url})
        values = self.stream(*SOON, env={"SNIB_URL": server.url})
        screen.wait_text("before")
        self.until(values, lambda value: value["total"] == 1)
        server.process.kill()
        server.process.wait()
        screen.wait_text(r"\nnot refreshed since \d\d:\d\d:\d\d: .*")
        screen.wait_text("before") # what was known
        self.assertIn(server.path, next(value for value in values if "error" in value)["error"])
        server.process = subprocess.Popen(server.process.args, stdout=subprocess.DEVNULL)
        wait_for(server.answers, "the server")
        server("HSET", "afterwards", f"{OWNER}1", 1)
        screen.wait_text("afterwards")
        screen.wait_text(r"\n1 lock, ")
        self.until(values, lambda value: [lock["name"] for lock in value["locks"]] == ["afterwards"])
        os.kill(server.process.pid, signal.SIGSTOP)
        screen.wait_text(r"no answer for \d+ s|not refreshed since")
        screen.type(b"q")
        self.assertEqual(screen.end(), 0) # at once, or as soon as it can
        os.kill(server.process.pid, signal.SIGCONT)

    def test_what_is_forgotten(self):
        """A name that cannot be queried counts as free, and a lock that has been free for ten refreshes is forgotten: not
        while it is shown, as in a refresh to which the server is silent."""
        server = Server()
        self.addCleanup(server.stop)
        server("HSET", "{open", f"{OWNER}1", 1)
        screen = self.show("--interval", "300ms", env={"SNIB_URL": server.url + PATIENT})
        screen.wait_text(r" other +- \{open")
        for _ in range(2):
            wait_for(lambda: re.search(r"cmdstat_scan:calls=\d*0,", server("INFO", "commandstats")), "ten refreshes")
            os.kill(server.process.pid, signal.SIGSTOP)
            screen.wait(lambda: screen.process.poll() is not None or "\nno answer for" in "\n".join(screen.lines()), "the silence")
            self.assertIsNone(screen.process.poll())
            self.assertRegex(screen.lines()[3], r" other +- \{open$")
            os.kill(server.process.pid, signal.SIGCONT)
            screen.wait_text(r"\n1 lock, ")
        server("DEL", "{open")
        screen.wait_text(r"\n0 locks, ")

    def test_what_is_seldom_found(self):
        """A name that cannot be queried stays until a search over all keys does not find it, however long that takes."""
        self.server("EVAL", "for i = 1, 60000 do redis.call('set', 'data:' .. i, 1) end", 0) # a search takes twenty refreshes
        self.assertEqual(int(self.server("DBSIZE")), 60000)
        self.server("HSET", "{open", f"{OWNER}1", 1)
        values = (value for value in self.stream(*SOON) if "error" not in value)
        self.until(values, lambda value: value["total"] == 1)
        for value in itertools.islice(values, 30):
            self.assertEqual([(lock["name"], lock["kind"]) for lock in value["locks"]], [("{open", "other")])
        self.server("DEL", "{open")
        self.until(values, lambda value: value["total"] == 0)

    def test_server_away_from_the_start(self):
        url = f"unix://{self.folder.name}/nobody?patience=100ms"
        for words in ((), ("--once",), ("--json",), ("--once", "--json")):
            with self.subTest(words=words):
                screen = self.show(*words, "--url", url)
                self.assertEqual(screen.end(), SERVER)
                self.assertNotIn(b"\x1b", screen.raw)
                self.assertIn(b"nobody", screen.raw)
                self.assertEqual(screen.raw.count(b"\n"), 1)
                self.assertTrue(screen.is_as_before())

    def test_a_cluster(self):
        names = [f"lock:{number}" for number in range(12)] # which are on all nodes
        with Cluster(pathlib.Path(self.folder.name), replicas=0, timeout_ms=60000) as them:
            for name in names:
                them.owner_of(name).command("HSET", name, f"{OWNER}1", 1)
            waiter = self.start("hold", names[0], "--url", them.url, "-q")
            values = self.stream(*SOON, env={"SNIB_URL": them.url})
            value = self.until(values, lambda value: any(lock["waiting"] for lock in value["locks"]) and
                               {lock["name"] for lock in value["locks"]} == set(names))
            self.assertEqual(value["locks"][0]["name"], names[0])
            self.assertEqual(value["address"], them.url)
            waiter.kill()
            screen = self.show(*SOON, "--url", them.url)
            screen.wait_text(r"\n12 locks, ")
            node = them.owner_of(names[1])
            node.stop()
            screen.wait_text(r"\n(no answer for|not refreshed since|\d+ questions failed: )")
            screen.wait_text(names[1]) # what was known
            node.go_on()
            screen.wait_text(r"\n12 locks, ")

    def test_a_cluster_with_a_dead_master(self):
        """New locks of the others are found, whichever of them it is."""
        with Cluster(pathlib.Path(self.folder.name), replicas=0, timeout_ms=60000) as them:
            for dead in them.nodes:
                values = self.stream(*SOON, "--url", f"{them.url}?patience=300ms")
                others = [node for node in them.nodes if node is not dead]
                names = {them.key_at(node, f"dead{dead.port}:"): node for node in others}
                next(values) # it knows them all
                dead.stop()
                for name, node in names.items():
                    node.command("HSET", name, f"{OWNER}1", 1)
                seen = ({lock["name"] for lock in value["locks"]} for value in itertools.islice(values, 30))
                self.assertTrue(any(names.keys() <= shown for shown in seen))
                self.started[-1].terminate()
                dead.go_on()

    def test_a_service_of_sentinels(self):
        with Sentinels(pathlib.Path(self.folder.name), replicas=1) as them:
            old = them.master
            old.command("HSET", "before", f"{OWNER}1", 1)
            old.command("WAIT", 1, 30000)
            screen = self.show(*SOON, "--url", them.url)
            screen.wait_text("before")
            old.kill()
            them.await_failover(old).command("HSET", "afterwards", f"{OWNER}1", 1)
            screen.wait_text("afterwards")
            screen.wait_text(r"\n2 locks, ")

    def test_rights(self):
        self.server("ACL", "SETUSER", "weak", "on", ">x", "~*", "+@all", "-scan")
        done = self.snib("top", "--once", "--url", self.server.url.replace("unix://", "unix://weak:x@"))
        self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (SERVER, "", 1))

    def test_bounded(self):
        """One refresh asks about 300 locks at most, and looks at about 3,000 keys."""
        for number in range(1000):
            self.lock(f"lock:{number}")
        for start in range(0, 10000, 1000):
            self.server("MSET", *[word for number in range(start, start + 1000) for word in (f"data:{number}", "x")])
        self.server("CONFIG", "RESETSTAT")
        value = next(self.stream("--interval", "24h"))
        self.assertFalse(value["complete"])
        self.assertLessEqual(value["total"], 300)
        calls = dict(re.findall(r"cmdstat_(evalsha|eval|scan|type|hlen):calls=(\d+)", self.server("INFO", "commandstats")))
        self.assertLessEqual(int(calls.get("evalsha", 0)) + int(calls.get("eval", 0)), 340)
        self.assertLessEqual(int(calls["scan"]), 30)
        self.until(self.stream(*SOON), lambda value: value["total"] == 1000) # in turn
        self.assertEqual(len(self.once()), 1000)
        screen = self.show(*SOON)
        screen.wait_text(r"1000 locks \(979 not shown\), 0 waiting, \d+ locks not refreshed, the search cont")

    def test_too_many(self):
        for start in range(0, 5100, 100):
            self.server("EVAL", "for i = ARGV[1], ARGV[1] + 99 do redis.call('hset', 'lock:' .. i, ARGV[2], 1) end",
                        0, start, f"{OWNER}1")
        done = self.snib("top", "--once", "--json", "--limit", "1")
        value = json.loads(done.stdout)
        self.assertEqual((value["total"], value["complete"], len(value["locks"])), (5000, False, 1))
        self.assertIn("more than 5000", self.snib("top", "--once").stdout)

    def test_names_that_are_ever_new(self):
        """However many there have been, the locks that there are have the room and the questions: what a whole search has
        not found is as good as forgotten."""
        def replace(number):
            """The next locks, instead of those before."""
            self.server("EVAL", "redis.call('flushall') for i = 1, 250 do "
                        "redis.call('hset', 'job:' .. ARGV[1] .. ':' .. i, ARGV[2], 1) end", 0, number, f"{OWNER}1")

        self.server("HSET", "lasting", f"{OWNER}1", 1)
        values = self.stream(*SOON, "--limit", "300")
        for number in range(40): # twice as many names as are remembered
            replace(number)
            next(values)
        for value in itertools.islice(values, 30): # before, ten answers about each were necessary
            names = {lock["name"] for lock in value["locks"]}
            if names == {f"job:39:{i}" for i in range(1, 251)} and value["complete"]:
                return
        self.fail(f"{len(names)} locks are shown: {sorted(names)[:5]}")

    def test_few_questions_at_a_time(self):
        """The URL allows fewer than top asks otherwise."""
        for number in range(100):
            self.server("HSET", f"lock:{number}", f"{OWNER[:-2]}{number % 9}:1", 1)
            self.server("SET", f"snib_client:{{{OWNER[:-2]}{number % 9}}}", "host h\npid 7\n")
        for most in (1, 3, 31):
            url = f"{self.env['SNIB_URL']}&waiters_max={most}"
            with self.subTest(most=most):
                locks = self.once("--url", url)
                self.assertEqual((len(locks), {lock["holder"]["host"] for lock in locks.values()}), (100, {"h"}))
                self.until(self.stream(*SOON, "--url", url), lambda value: value["total"] == 100)

    # ---- figures ---------------------------------------------------------------------------------

    def test_once(self):
        self.lock("a")
        done = self.snib("top", "--once")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        lines = done.stdout.splitlines()
        self.assertRegex(lines[0], rf"^snib top  \d\d:\d\d:\d\d  {re.escape(self.server.url)}$")
        self.assertEqual((lines[1], lines[2].split()), ("1 lock, 0 waiting", WIDE))
        self.assertRegex(lines[3], r"^      0       1       -  \d\dm\d\ds mutex   - {28}- a$")
        self.assertEqual(len(lines), 4)
        self.server("FLUSHALL")
        self.assertEqual(self.snib("top", "--once").stdout.splitlines()[1], "0 locks, 0 waiting")
        self.assertEqual(self.once(), {})
        screen = self.show("--once")
        self.assertEqual(screen.end(), 0)
        self.assertNotIn(b"\x1b", screen.raw)

    def test_kinds(self):
        kinds = {(): "mutex", ("--fair",): "mutex", ("--fenced",): "mutex", ("--read",): "read", ("--write",): "write",
                 ("--permits", "2"): "permits", ("--spin",): "mutex", ("--plain",): "plain"}
        for number, options in enumerate(kinds):
            self.start("hold", f"k{number}", *options).stdout.readline()
        locks = self.once()
        self.assertEqual([locks[f"k{number}"]["kind"] for number in range(len(kinds))], list(kinds.values()))
        self.assertEqual({lock["holders"] for lock in locks.values()}, {1})
        self.assertTrue(all(lock["remaining_ms"] > 0 and lock["changes"] is None for lock in locks.values()))
        self.assertEqual((locks["k2"]["token"], locks["k5"]["total"]), (1, 2))
        listed = json.loads(self.snib("list", "--json").stdout)
        self.assertEqual({lock["name"]: lock["kind"] for lock in listed},
                         {name: lock["kind"] for name, lock in locks.items()})

    def test_waiting(self):
        for number, options in enumerate(((), ("--fair",), ("--write",), ("--permits", "1"), ("--plain",))):
            holder = self.start("hold", f"k{number}", *options)
            self.assertIn("holding", holder.stdout.readline())
            for _ in range(number + 1):
                self.start("hold", f"k{number}", *options)
        wanted = {f"k{number}": number + 1 for number in range(5)}
        values = self.stream(*SOON)
        value = self.until(values, lambda value: {lock["name"]: lock["waiting"] for lock in value["locks"]} == wanted)
        self.assertEqual([lock["name"] for lock in value["locks"]], ["k4", "k3", "k2", "k1", "k0"])

    def test_holder(self):
        """The process of the only holder, once it has said what it is."""
        url = f"{self.env['SNIB_URL']}&label="
        one = self.start("hold", "one", "--lease", "3s")
        self.start("hold", "named", "--lease", "3s", "--url", url + "nightly")
        for _ in range(2):
            self.start("hold", "several", "--permits", "2", "--lease", "3s")
            self.start("hold", "read", "--read", "--lease", "3s")
        self.lock("silent")

        def holders(value):
            return {lock["name"]: lock["holder"] for lock in value["locks"]}

        values = self.stream(*SOON)
        told = self.until(values, lambda value: all(holders(value).get(name) for name in ("one", "named")))
        for lock in told["locks"]:
            if lock["name"] in ("one", "named"):
                want = json.loads(self.snib("info", lock["name"], "--json").stdout)["holders"][0]["identity"]
                self.assertEqual(lock["holder"], want)
        self.assertEqual((holders(told)["one"]["pid"], holders(told)["named"]["label"]), (one.pid, "nightly"))
        self.until(values, lambda value: {lock["name"]: lock["holders"] for lock in value["locks"]} ==
                   {"named": 1, "one": 1, "read": 2, "several": 2, "silent": 1} and
                   [name for name, holder in holders(value).items() if not holder] == ["read", "several", "silent"])
        self.assertEqual(holders(told)["one"], self.once()["one"]["holder"])
        where = rf"{re.escape(holders(told)['one']['host'])}:{one.pid}"[:24]
        for lines in (self.snib("top", "--once").stdout.splitlines(), self.wide_lines()):
            self.assertEqual(lines[2].split(), WIDE)
            for text in (rf"mutex   {where} +0 one", "mutex   nightly {22}0 named", "mutex   - {28}- silent",
                         "read    - {28}- read", "permits - {28}- several"):
                self.assertTrue(any(re.search(text + "$", line) for line in lines), (text, lines))
        other, told_one = self.start("hold", "one"), holders(told)["one"]
        one.terminate() # another client holds it now, which is not known yet
        self.assertIn("holding", other.stdout.readline())
        self.assertIsNone(self.until(values, lambda value: holders(value).get("one", told_one) != told_one)
                          and self.once()["one"]["holder"])

    def test_losses_on_eighty_columns(self):
        """There is no room for the process, but for what its client has lost."""
        self.lock("a" * 40)
        self.server("HSET", "b", "22222222-2222-4222-8222-222222222222:1", 1)
        self.server("SET", f"snib_client:{{{OWNER[:-1]}}}", "host h\npid 7\nlosses 12\n")
        screen = self.show(*SOON)
        screen.wait_text(r"mutex      12 a{33}…\n")
        screen.wait_text(r"mutex       - b\n")
        screen.resize(79, 24)
        screen.wait_text(r"mutex   a{38}…\n")
        screen.resize(110, 24)
        screen.wait_text(r"mutex      12 a{40}\n")

    def wide_lines(self):
        """A wide screen, once it shows the processes."""
        screen = self.show(*SOON, columns=111)
        screen.wait_text(r"nightly {22}0 named")
        return screen.lines()

    def test_holders_are_asked_seldom(self):
        """What one has said is asked again after some refreshes, for its losses; a client with many locks is one question,
        and other clients none."""
        for number in range(20):
            self.lock(f"lock:{number:02}")
        self.server("HSET", "java", "22222222-2222-4222-8222-222222222222:1", 1)
        key = f"snib_client:{{{OWNER[:-1]}}}"
        self.server("SET", key, "host h\npid 7\n")
        self.server("CONFIG", "SET", "slowlog-log-slower-than", 0, "slowlog-max-len", 100000)
        self.addCleanup(self.server, "CONFIG", "SET", "slowlog-log-slower-than", -1)
        first, then = {"host": "h", "pid": 7}, {"host": "h", "pid": 7, "losses": 2}
        values = self.stream(*SOON) # which goes on, however long the test takes between two of its steps
        seen = [next(values)]
        self.server("SET", key, "host h\npid 7\nlosses 2\n")
        while seen[-1]["locks"][1]["holder"] == first:
            seen.append(next(values))
        asked, read = len(self.questions()), len(seen)
        self.server("DEL", key) # it is the same client
        while len(self.questions()) < asked + 2:
            seen.append(next(values)) # unread, they would stop it
        self.started[-1].terminate()
        seen.extend(values)
        holders = [[lock["holder"] for lock in value["locks"]] for value in seen]
        before = holders.index([None] + [then] * 20)
        self.assertEqual(holders, [[None] + [first] * 20] * before + [[None] + [then] * 20] * (len(seen) - before))
        self.assertEqual(before % 5, 0)
        self.assertEqual(set(self.questions()), {key})
        self.assertIn(asked, range((read - 1) // 5 + 1, len(seen) // 5 + 2)) # as many as refreshes by then, which is between
        for losses, shown in (2, "2"), (99999, "9999"):
            self.server("SET", key, f"host h\npid 7\nlosses {losses}\n")
            self.assertRegex(self.snib("top", "--once").stdout, rf"h:7 +{shown} lock:00\n")
        self.server("SLOWLOG", "RESET")
        screen = self.show(*SOON, columns=79) # too narrow: nothing is asked
        screen.wait_text("21 locks")

    def questions(self):
        """The clients that were asked about; scripts write their commands in small letters."""
        return [entry[3][1] for entry in self.server("SLOWLOG", "GET", 100000) if entry[3][0] == "GETRANGE"]

    def test_hostile_holders(self):
        self.lock("a")
        key = f"snib_client:{{{OWNER[:-1]}}}"
        for text in ("label \x1b[2J\u202e\u2066x\nhost h", "host " + "日本語" * 40 + "\npid 1", "label " + "x" * 900,
                     "host \x9b%s%n\npid -1", "pid 7", "nothing", "\xff\xff"):
            self.server("SET", key, text)
            line = self.snib("top", "--once").stdout.splitlines()[3]
            self.assertNotRegex(line, r"[\x00-\x1f\x7f-\x9f\u202e\u2066]")
            self.assertEqual(sum(map(width, line)), 40 + 25 + 6 + 1, line)
            self.once()
        self.server("DEL", key)
        self.server("RPUSH", key, "x")
        self.server("HSET", "b", f"{OWNER[:-2]}2:1", 1)
        self.server("SET", f"snib_client:{{{OWNER[:-2]}2}}", "host h")
        locks = self.once("--url", f"{self.env['SNIB_URL']}&waiters_max=1") # one after the other
        self.assertEqual((locks["a"]["holder"], locks["b"]["holder"]), (None, {"host": "h"}))

    def test_holders_without_the_right(self):
        self.lock("a")
        self.server("SET", f"snib_client:{{{OWNER[:-1]}}}", "host h")
        self.server("ACL", "SETUSER", "weak", "reset", "on", ">x", "~a", "~redisson*", "~{a*", "&*", "+@all")
        self.addCleanup(self.server, "ACL", "DELUSER", "weak")
        lock = self.once("a", "--url", self.server.url.replace("unix://", "unix://weak:x@"))["a"]
        self.assertEqual((lock["holders"], lock["holder"]), (1, None))

    def test_changes(self):
        self.lock("a", 1)
        self.lock("b", 1)
        self.server("SET", "redisson_lock_token:{b}", 5)
        self.server("HSET", "r", "mode", "read", f"{OWNER}1", 1, f"{OWNER}2", 1)
        values = self.stream(*SOON)

        def changes(value):
            return {lock["name"]: lock["changes"] for lock in value["locks"]}

        self.assertEqual(changes(next(values)), {"a": None, "b": None, "r": None})
        self.assertEqual(changes(next(values)), {"a": 0, "b": 0, "r": 0})
        self.server("EVAL", f"redis.call('hdel', 'a', '{OWNER}1') redis.call('hset', 'a', '{OWNER}2', 1) "
                            f"redis.call('set', 'redisson_lock_token:{{b}}', 9) "
                            f"redis.call('hdel', 'r', '{OWNER}1') "
                            f"redis.call('hset', 'r', '{OWNER}3', 1, '{OWNER}4', 1)", 0)
        seen = dict.fromkeys("abr", 0)
        while min(seen.values()) == 0: # the three are asked about one after the other
            now = changes(next(values))
            self.assertEqual(list(now), sorted(now, key=lambda name: (-now[name], name)))
            seen = {name: seen[name] + now[name] for name in seen}
        self.assertEqual(seen, {"a": 1, "b": 4, "r": 2})
        self.assertEqual(changes(next(values)), {"a": 0, "b": 0, "r": 0})
        self.server("DEL", "a") # free for a while, and then held by another
        self.until(values, lambda value: "a" not in changes(value))
        self.lock("a", 3)
        self.assertIn(changes(self.until(values, lambda value: "a" in changes(value)))["a"], (1, None))

    def test_changes_on_the_screen(self):
        self.lock("a", 1)
        self.lock("b", 1)
        self.server("SET", "redisson_lock_token:{b}", 5)
        screen = self.show("--interval", "1s")
        number = 1

        def seen():
            nonlocal number
            number += 1
            self.server("DEL", "a", "b")
            self.lock("a", number)
            self.lock("b", number)
            self.server("INCR", "redisson_lock_token:{b}")
            text = "\n".join(screen.lines())
            return re.search(r" 1\+ +\S+ mutex +- a\n", text) and re.search(r" \d+ +\S+ mutex +- b\n", text)

        screen.wait(seen, "the changes")

    def test_many_holders(self):
        self.server("HSET", "crowd", *[word for n in range(600) for word in (f"{OWNER}{n}", 1)])
        lock = self.once()["crowd"]
        self.assertEqual((lock["holders"], lock["remaining_ms"]), (600, None))
        values = self.stream(*SOON)
        next(values)
        self.assertIsNone(next(values)["locks"][0]["changes"]) # not all are told

    def test_output_that_cannot_be_written(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([SNIB, "top", "--json"], env=self.env, stdout=full, stderr=subprocess.PIPE, text=True,
                                  timeout=120)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (USAGE, 1))
        self.assertIn("standard output", done.stderr)

    def test_json_ends_by_a_signal(self):
        process = self.start("top", "--json", "--interval", "24h")
        self.assertEqual(json.loads(process.stdout.readline())["total"], 0)
        process.terminate()
        self.assertEqual(self.end(process), (0, ""))

    # ---- usage -----------------------------------------------------------------------------------

    def test_json_and_the_log(self):
        """Records are reported when they come, not when it ends."""
        server = Server()
        self.addCleanup(server.stop)
        values = self.stream(*SOON, "-v", env={"SNIB_URL": server.url + PATIENT}, stderr=subprocess.PIPE)
        self.until(values, lambda value: True)
        said = self.started[-1].stderr
        wait_for(lambda: select.select([said], [], [], 0)[0], "a record")
        self.assertIn("connected", said.readline())

    def test_not_a_terminal(self):
        done = self.snib("top")
        self.assertEqual((done.returncode, done.stdout), (USAGE, ""))
        self.assertEqual(done.stderr,
                         "snib: standard output is not a terminal: add --once or --json; see snib --help\n")
        screen = Screen(["sh", "-c", f"TERM=dumb exec {SNIB} top"], self.env)
        self.screens.append(screen)
        self.assertEqual(screen.end(), USAGE)
        self.assertIn("TERM", " ".join(screen.lines()))

    def test_bad_usage(self):
        bad = {("--interval", "99ms"): "--interval needs a time from 100ms to 24h", ("--interval", "x"): "--interval",
               ("--limit", "0"): "--limit needs a number", ("--limit", "x"): "--limit", ("a", "b"): "too many",
               ("--once", "--interval", "2s"): "--interval cannot be used with --once", ("--wait", "1s"): "--wait",
               ("--fair",): "--fair", ("--force",): "--force", ("--", "true"): "only run takes a command",
               ("--url", "redis://a", "--url", "redis://b", "--url", "redis://c"): "more than one --url, not top"}
        for words, text in bad.items():
            with self.subTest(words=words):
                done = self.snib("top", *words)
                self.assertEqual((done.returncode, done.stdout), (USAGE, ""))
                self.assertRegex(done.stderr, r"^snib: [^\n]{10,}\n$")
                self.assertIn(text, done.stderr)
        for option in ("--once", "--limit=3", "--interval=2s"):
            done = self.snib("list", option)
            self.assertEqual(done.returncode, USAGE)
            self.assertIn(f"{option.split('=')[0]} cannot be used with list", done.stderr)


def state(pid):
    """R, S, T, Z, ..."""
    return read(f"/proc/{pid}/stat").rpartition(")")[2].split()[0]


def read(path):
    try:
        with open(path) as file:
            return file.read()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def with_password(server, password, *words):
    """One command after AUTH, which needs the same connection."""
    subprocess.run(["redis-cli", "-s", server.path, "-a", password, "--no-auth-warning", *words], check=True,
                   stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    unittest.main()

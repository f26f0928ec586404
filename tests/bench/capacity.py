"""What locks cost a server and its clients: measures the table of costs of `snib plan`, core/cli/costs.def.

    python tests/bench/capacity.py [--build build/core] [--rounds 3] [--pair MICROSECONDS] [--write]

Without --write it prints the table and how fast this machine is beside the one of the table in the tree, for `snib plan
--server-speed`.  Server and clients share one core, so that no figure contains the waking of another core; each command
travels alone, so a busy server, which reads several at once, needs less.  If the machine is not quiet, --pair says what a
pair of a mutex cost when it was (docs/benchmarks.md), and all microseconds are scaled to that.  Bytes are those of the server's own counters
(INFO), without the headers of TCP and IP; a lock's name has 24 bytes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import astuple, dataclass
from pathlib import Path

from servers import Server, process_cpu

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "core/cli/costs.def"
PAGE = ROOT / "docs/capacity.md"
KINDS = ("mutex", "fenced", "fair", "read", "write", "permits", "spin", "plain")
LONG_MS = 99000  # a lease that is not renewed meanwhile
SHORT_MS = 6000  # one that is
LOCKS = 2000  # for each figure
REPEATS = 2000
BATCH = 100  # holds that one script renews
SOCKETS = 10
WAIT = ["WAIT", "1", "1000"]
PATIENT = "?patience=60s&try_timeout=60s&reply_timeout=60s&connect_timeout=60s"  # a busy machine may stall
SUBSCRIPTIONS = """
local n = 0
for _, channel in ipairs(redis.call('pubsub', 'channels')) do
    n = n + redis.call('pubsub', 'numsub', channel)[2]
end
return n
"""

BEGIN, END = "<!-- costs: by tests/bench/capacity.py --write -->\n", "<!-- end of costs -->"
HEAD = """\
/* costs.def - what a command costs the server, and what a lock takes, for snib plan.
 *
 * Written by tests/bench/capacity.py --write; do not edit.  {where}.
 *
 * COST(whose, what, microseconds of a core of the server, bytes that it receives, bytes that it sends,
 *      bytes that it sends to each replica)
 * SIZE(whose, what, bytes)
 */
"""


@dataclass
class Cost:
    """Of one command."""

    us: float = 0.0
    received: float = 0.0
    sent: float = 0.0
    stream: float = 0.0

    def __sub__(self, other: Cost) -> Cost:
        return Cost(*(a - b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def by(self, n: float) -> Cost:
        return Cost(*(value / n for value in astuple(self)))


def command(words: list[str]) -> bytes:
    parts = [word.encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in parts)


class Load:
    """cli_load: clients that do what they are told."""

    def __init__(self, program: Path | str, lease_ms: int, clients: int, *urls: str) -> None:
        words = [str(word) for word in (program, lease_ms, clients, *(url + PATIENT for url in urls))]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._answer("connect")

    def _answer(self, line: str) -> dict[str, int]:
        assert self.process.stdout
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"cli_load ended with {self.process.wait()} at: {line}")
        return json.loads(answer)

    def __call__(self, line: str) -> dict[str, int]:
        assert self.process.stdin
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self._answer(line)

    def stop(self) -> None:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


class Bed:
    """A server and what it has spent so far."""

    def __init__(self, folder: Path, name: str) -> None:
        self.server = Server(folder, name, ("--repl-ping-replica-period", 3600, "--repl-backlog-ttl", 1))
        self.own = Cost()  # of asking
        self.own = min((self.spent(lambda: None) for _ in range(20)), key=lambda cost: cost.us)

    def now(self) -> Cost:
        cpu = process_cpu(self.server.process.pid)
        info = self.server.info("stats") | self.server.info("replication")
        return Cost(
            cpu * 1e6,
            int(info["total_net_input_bytes"]),
            int(info["total_net_output_bytes"]) - int(info.get("total_net_repl_output_bytes", 0)),
            int(info["master_repl_offset"]),
        )

    def spent(self, work: Callable[[], object]) -> Cost:
        before = self.now()
        work()
        return self.now() - before - self.own

    def memory(self) -> int:
        return int(self.server.info("memory")["used_memory"])

    def stop(self) -> None:
        self.server.stop()


class Raw:
    """A connection for single commands."""

    def __init__(self, bed: Bed) -> None:
        self.socket = socket.create_connection(("127.0.0.1", bed.server.port))
        self.replies = self.socket.makefile("rb")

    def __call__(self, words: list[str]) -> None:
        self.socket.sendall(command(words))
        self.read()

    def read(self) -> None:
        line = self.replies.readline()
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise RuntimeError(rest.decode())
        if kind == b"$" and rest != b"-1":
            self.replies.read(int(rest) + 2)
        if kind == b"*":
            for _ in range(int(rest)):
                self.read()

    def close(self) -> None:
        self.replies.close()
        self.socket.close()


class Measurer:
    def __init__(self, program: Path, folder: Path, rounds: int) -> None:
        self.program, self.rounds = program, rounds
        self.beds = [Bed(folder, f"server{i}") for i in range(3)]
        self.bed = self.beds[0]
        self.replica = Server(folder, "replica")
        self.has_replica = False
        self.costs: dict[tuple[str, str], list[Cost]] = {}
        self.streams: dict[tuple[str, str], list[Cost]] = {}
        self.sizes: dict[tuple[str, str], list[float]] = {}

    def stop(self) -> None:
        self.replica.stop()
        for bed in self.beds:
            bed.stop()

    def replicate(self, on: bool) -> None:
        """Only the first round has a replica, for the bytes that it gets: it is no part of the other figures."""
        target = ("127.0.0.1", str(self.bed.server.port)) if on else ("NO", "ONE")
        self.replica.command("REPLICAOF", *target)
        while on and self.replica.info("replication").get("master_link_status") != "up":
            pass
        while not on and self.bed.server.info("replication")["repl_backlog_active"] != "0":
            pass
        self.has_replica = on

    def cost(self, whose: str, what: str, n: int, work: Callable[[], object]) -> None:
        if whose != "quorum":
            self.add(whose, what, self.bed.spent(work).by(n))
            return
        before = [bed.now() for bed in self.beds]  # no server is the one that is always late
        work()
        time.sleep(0.3)  # the late ones
        spent = [bed.now() - then - bed.own for bed, then in zip(self.beds, before, strict=True)]
        mean = Cost(*(sum(values) / len(spent) for values in zip(*map(astuple, spent), strict=True)))
        self.add(whose, what, Cost(mean.us, mean.received, mean.sent, spent[0].stream).by(n))

    def empty(self) -> None:
        """No keys, not even numbers of permits; all nodes of a quorum may vote."""
        for bed in self.beds:
            bed.server.command("FLUSHALL", "SYNC")
            bed.server.command("SET", "snib_quorum_epoch", bed.server.info("server")["run_id"] + " 1000")

    def add(self, whose: str, what: str, cost: Cost) -> None:
        (self.streams if self.has_replica else self.costs).setdefault((whose, what), []).append(cost)

    def size(self, whose: str, what: str, value: float) -> None:
        if not self.has_replica:
            self.sizes.setdefault((whose, what), []).append(value)

    def load(self, lease_ms: int, clients: int, servers: int = 1) -> Load:
        return Load(self.program, lease_ms, clients, *(bed.server.url for bed in self.beds[:servers]))

    # ---- Locks -----------------------------------------------------------------------------------

    def kind(self, whose: str) -> None:
        self.empty()
        servers, kind = (3, "mutex") if whose == "quorum" else (1, whose)
        holder, other = self.load(LONG_MS, 1, servers), self.load(LONG_MS, 1, servers)
        if kind == "permits":
            holder(f"permits l {LOCKS}")
        holder(f"pairs {kind} l {LOCKS}")  # what grows once has grown
        memory, mine = self.bed.memory(), holder("stats")["memory"]
        self.cost(whose, "ACQUIRE", LOCKS, lambda: holder(f"hold {kind} l {LOCKS}"))
        self.size(whose, "LOCK", (self.bed.memory() - memory) / LOCKS)
        self.size(whose, "HOLD", (holder("stats")["memory"] - mine) / LOCKS)
        if kind != "read":
            self.cost(whose, "REFUSED", LOCKS, lambda: other(f"try {kind} l {LOCKS}"))
        self.cost(whose, "RELEASE", LOCKS, lambda: holder("release"))
        if kind == "read":  # readers wait for writers only
            holder(f"hold write l {LOCKS}")
            self.cost(whose, "REFUSED", LOCKS, lambda: other(f"try {kind} l {LOCKS}"))
            holder("release")
        holder.stop()
        other.stop()
        one, many = self.renewal(kind, 1), self.renewal(kind, BATCH)
        self.add(whose, "RENEW", one)
        self.add(whose, "RENEW_MORE", (many - one).by(BATCH - 1))

    def renewal(self, kind: str, holds: int) -> Cost:
        """A renewal of so many holds, seen once and repeated, each time with a longer lease."""
        load = self.load(SHORT_MS, 1)
        if kind == "permits":
            load(f"permits r {holds}")
        load(f"hold {kind} r {holds}")
        words = self.seen(kind, holds)
        at = words.index(str(SHORT_MS), 3)
        raw, repeats = Raw(self.bed), REPEATS if holds == 1 else REPEATS // 10

        def work() -> None:
            for i in range(repeats):
                raw([*words[:at], str(LONG_MS + i), *words[at + 1 :]])

        cost = self.bed.spent(work).by(repeats)
        raw.close()
        load("release")
        load.stop()
        return cost

    def seen(self, kind: str, holds: int) -> list[str]:
        monitor = Raw(self.bed)
        monitor(["MONITOR"])
        while True:
            line = monitor.replies.readline().decode()
            words = re.findall(r'"((?:[^"\\]|\\.)*)"', line)
            if " lua]" not in line and words and words[0].upper() == "EVALSHA":
                if len(set(re.findall(r"r:\d{22}", line))) == holds and len(words) > 4:
                    monitor.close()
                    return words

    # ---- Clients and what they send now and then -------------------------------------------------

    def clients(self) -> None:
        load = self.load(LONG_MS, 50)
        load("pairs mutex c 500")
        self.size("any", "CLIENT", load("stats")["memory"] / 50)
        load.stop()
        sockets = [Raw(self.bed) for _ in range(100)]
        before = self.bed.memory()
        more = [Raw(self.bed) for _ in range(100)]
        for raw in more:
            raw(["PING"])
        self.size("any", "CONNECTION", (self.bed.memory() - before) / 100)
        for raw in (*sockets, *more):
            raw.close()

    def waiters(self) -> None:
        """Ten clients wait for each of a hundred locks, and before that for one, so that all have both connections."""
        holder, others = self.load(LONG_MS, 1), self.load(LONG_MS, 10)
        holder("hold mutex w 101")
        others("wait mutex w 1")
        self.await_subscriptions(10)
        before = others("stats")["memory"]
        others("wait mutex w 101")
        self.await_subscriptions(1010)
        self.size("any", "WAITER", (others("stats")["memory"] - before) / 1000)
        others.stop()
        holder("release")
        holder.stop()

    def await_subscriptions(self, n: int) -> None:
        while int(self.bed.server.command("EVAL", SUBSCRIPTIONS, "0")) < n:
            pass

    def subscriptions(self) -> None:
        raws = [Raw(self.bed) for _ in range(SOCKETS)]
        channels = [f"redisson_lock__channel:{{w:{i:022d}}}" for i in range(REPEATS // SOCKETS)]
        for raw in raws:
            raw(["SUBSCRIBE", "first"])
        before = self.bed.memory()

        def everywhere(word: str) -> None:
            for channel in channels:
                for raw in raws:
                    raw([word, channel])

        self.cost("any", "SUBSCRIBE", REPEATS, lambda: everywhere("SUBSCRIBE"))
        self.size("any", "SUBSCRIPTION", (self.bed.memory() - before) / REPEATS)
        talk = Raw(self.bed)

        def publish(channel: str) -> Cost:
            return self.bed.spent(lambda: [talk(["PUBLISH", channel, "0"]) for _ in range(REPEATS)])

        alone, heard = publish("x" * len(channels[0])), publish(channels[0])
        self.add("any", "MESSAGE", (heard - alone).by(REPEATS * SOCKETS))
        self.cost("any", "UNSUBSCRIBE", REPEATS, lambda: everywhere("UNSUBSCRIBE"))
        for raw in (*raws, talk):
            raw.close()

    def others(self) -> None:
        raw = Raw(self.bed)
        key, who = "snib_client:{11111111-1111-8111-8111-111111111111}", "x" * 110
        once = {
            "TIME": ["TIME"],
            "IDENTITY": ["SET", key, who, "PX", "30000"],
            "PING": ["PING"],
            "COUNT": ["INFO", "replication"],
        }
        for what, words in once.items():
            self.cost("any", what, REPEATS, lambda words=words: [raw(words) for _ in range(REPEATS)])
        if self.has_replica:  # whose acknowledgement costs both sides, too
            plain = self.bed.spent(lambda: [raw(once["IDENTITY"]) for _ in range(REPEATS)])
            both = self.bed.spent(lambda: [raw(words) for _ in range(REPEATS) for words in (once["IDENTITY"], WAIT)])
            self.costs["any", "WAIT"] = self.streams["any", "WAIT"] = [(both - plain).by(REPEATS)]
        raw.close()

    # ---- All -------------------------------------------------------------------------------------

    def run(self) -> None:
        for number in range(self.rounds + 1):
            self.replicate(number == 0)
            for whose in (*KINDS, "quorum"):
                print(f"round {number} of {self.rounds}: {whose}", file=sys.stderr, flush=True)
                self.kind(whose)
            self.clients()
            self.waiters()
            self.subscriptions()
            self.others()

    def replicating(self) -> float:
        """What a command costs the server more with a replica than without: the median of those that change something."""
        return statistics.median(
            streams[0].us - statistics.median(cost.us for cost in self.costs[key])
            for key, streams in self.streams.items()
            if key[1] in ("ACQUIRE", "RELEASE")
        )

    def table(self, where: str, pair_us: float | None) -> str:
        pair = sum(min(cost.us for cost in self.costs["mutex", what]) for what in ("ACQUIRE", "RELEASE"))
        scale = pair_us / pair if pair_us else 1
        if pair_us:
            where += f"; microseconds scaled to a\n * pair of a mutex of {pair_us} us, as in docs/benchmarks.md"
        lines = [f"COST(ANY, REPLICATE, {max(0, scale * self.replicating()):.2f}, 0, 0, 0)"]
        for (whose, what), costs in self.costs.items():
            received, sent = (statistics.median(column) for column in list(zip(*map(astuple, costs), strict=True))[1:3])
            us = min(cost.us for cost in costs)  # whatever else runs on the machine only adds to it
            stream = self.streams[whose, what][0].stream
            sizes = ", ".join(f"{max(0, value):.0f}" for value in (received, sent, stream))
            lines.append(f"COST({whose.upper()}, {what}, {max(0, scale * us):.2f}, {sizes})")
        for (whose, what), values in self.sizes.items():
            lines.append(f"SIZE({whose.upper()}, {what}, {statistics.median(values):.0f})")
        return HEAD.format(where=where) + "\n".join(lines) + "\n"


def speed(old: str, new: str) -> float:
    """How fast the server is here: the median of all costs of locks, old to new."""
    pattern = re.compile(r"^COST\((\w+, \w+), ([\d.]+)", re.M)
    before, after = dict(pattern.findall(old)), dict(pattern.findall(new))
    common = [key for key in before if key in after and float(after[key]) > 1]
    return statistics.median(float(before[key]) / float(after[key]) for key in common)


def page(table: str) -> str:
    """The tables of docs/capacity.md."""
    costs = {(whose, what): (float(us), *map(int, sizes.split(","))) for whose, what, us, sizes in
             re.findall(r"^COST\((\w+), (\w+), ([\d.]+), (.*)\)$", table, re.M)}
    sizes = {(whose, what): int(n) for whose, what, n in re.findall(r"^SIZE\((\w+), (\w+), (\d+)\)$", table, re.M)}
    lines = ["| microseconds | acquire | release | refused | renew one | each more |", "|---|---|---|---|---|---|"]
    whats = ("ACQUIRE", "RELEASE", "REFUSED", "RENEW", "RENEW_MORE")
    for whose in map(str.upper, (*KINDS, "quorum")):
        lines.append(f"| {whose.lower()} | " + " | ".join(f"{costs[whose, what][0]:.1f}" for what in whats) + " |")
    lines += ["", "| bytes received, sent | acquire | release | refused | renew one | each more |", "|---|---|---|---|---|---|"]
    for whose in map(str.upper, (*KINDS, "quorum")):
        lines.append(f"| {whose.lower()} | " + " | ".join("%d, %d" % costs[whose, what][1:3] for what in whats) + " |")
    lines += ["", "| bytes | of a lock at the server | of a hold in its client |", "|---|---|---|"]
    lines += [f"| {whose.lower()} | {sizes[whose, 'LOCK']} | {sizes[whose, 'HOLD']} |" for whose in map(str.upper, KINDS)]
    lines += ["", "| others | microseconds | bytes received, sent |", "|---|---|---|"]
    for (whose, what), (us, received, sent, _) in sorted(costs.items()):
        if whose == "ANY":
            lines.append(f"| {what.lower()} | {us:.1f} | {received}, {sent} |")
    lines += ["", "| others | bytes |", "|---|---|"]
    lines += [f"| {what.lower()} | {n:,} |" for (whose, what), n in sorted(sizes.items()) if whose == "ANY"]
    return "\n".join(lines) + "\n"


def machine() -> str:
    found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return found[1].strip() if found else os.uname().machine


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build/core", help="where the core and its tests are built")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pair", type=float, metavar="MICROSECONDS")
    parser.add_argument("--write", action="store_true", help=f"replace {TABLE.relative_to(ROOT)}")
    options = parser.parse_args()
    program = options.build / "tests/cli/cli_load"
    if not program.exists() or options.rounds < 1:
        parser.error(f"build {program} first: cmake --build {options.build} --target cli_load; rounds are 1 or more")
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory(prefix="snib-capacity-") as folder:
        measurer = Measurer(program, Path(folder), options.rounds)
        try:
            measurer.run()
            table = measurer.table(f"{measurer.bed.server.version()} on one core of {machine()}", options.pair)
        finally:
            measurer.stop()
    print(table, end="")
    if TABLE.exists():
        print(f"this machine's speed beside the table's: --server-speed {speed(TABLE.read_text(), table):.2f}")
    if options.write:
        TABLE.write_text(table)
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(before + BEGIN + page(table) + END + rest.partition(END)[2])
    return 0


if __name__ == "__main__":
    sys.exit(main())

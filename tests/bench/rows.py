"""The rows of the mutex: who works on what, against whom, and what is to be reached.

What rows are made of is here as well; family.py has those of the other locks.

Everything here is a ratio taken inside one round, or a count.  A missed goal is reported, never an
error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from harness import BENCH, Builder, Sample
from servers import Nodes, Server

Round = dict[str, Sample]  # one round of a row: each subject's turn


@dataclass
class Setting:
    """What the command line of a subject may refer to."""

    builder: Builder
    server: Server
    folder: Path
    quick: bool
    nodes: Nodes | None = None  # of the row that is running

    @property
    def site(self) -> Server | Nodes:
        return self.nodes or self.server

    @property
    def node_ports(self) -> str:
        return ",".join(map(str, self.nodes.ports))

    def c(self, *words: object, port: int | None = None) -> list[str]:
        head = [self.builder.c, port or self.server.port, self.builder.scripts]
        return [str(word) for word in (*head, *words)]

    def python(self, program: str, *words: object) -> list[str]:
        head = [self.builder.python, BENCH / "python" / program, self.server.port]
        return [str(word) for word in (*head, *words)]

    def go(self, *words: object, ports: str | None = None) -> list[str]:
        head = [self.builder.go, ports or self.server.port, self.builder.scripts]
        return [str(word) for word in (*head, *words)]

    def java(self, *words: object) -> list[str]:
        return [*self.builder.java, str(self.server.port), *(str(word) for word in words)]

    def oracle(self) -> Path:
        """A fresh file for the safety oracle of one subject."""
        path = self.folder / f"oracle.{len(list(self.folder.glob('oracle.*')))}"
        path.write_bytes(bytes(64))
        return path


@dataclass
class Seat:
    """One subject of a row.  `kinds` say what has to be built for it."""

    kinds: tuple[str, ...]
    argvs: Callable[[Setting], list[list[str]]]  # one command line for each of its processes
    warm: float = 0.3  # seconds of unmeasured work before the rounds
    inside: tuple[str, ...] = ()  # counted commands that its scripts call once a pair
    watched: str | None = None  # the fair lock whose order is watched


@dataclass
class Links:
    """The row has servers of its own, the last of which stalls when all clients are connected."""

    nodes: int
    delay_us: int  # in each direction; 0: no process in between


@dataclass
class Check:
    """One figure of a row and what it shall be: at most or at least the goal, or told only."""

    what: str
    against: str
    seats: tuple[str, ...]
    value: Callable[[Round], float]
    goal: float | None
    most: bool = False
    unit: str = "x"

    def reached(self, value: float) -> bool:
        return value <= self.goal if self.most else value >= self.goal


@dataclass
class Row:
    name: str
    title: str
    seats: dict[str, Seat]
    checks: list[Check]
    pinned: bool = False  # server and subjects on one core: steadier, for one-thread comparisons
    rounds: int | None = None
    seconds: float = 1.0
    keeps_keys: bool = False
    links: Links | None = None
    notes: list[str] = field(default_factory=list)


# ---- Seats ---------------------------------------------------------------------------------------


def seat(kind: str, argv: Callable[[Setting], list[str]], **others: object) -> Seat:
    return Seat((kind,), lambda s: [argv(s)], **others)


def c_seat(*words: object, **others: object) -> Seat:
    return seat("c", lambda s: s.c(*words), **others)


def python_seat(program: str, kind: str, *words: object) -> Seat:
    inside = ("del",) if kind == "redis" else ()
    return seat("python", lambda s: s.python(program, kind, *words), inside=inside)


def go_inside(kind: str) -> tuple[str, ...]:
    if kind in ("redislock", "rueidislock"):
        return ("set", "del")
    return ("del",) if kind.startswith("redsync") else ()


def go_seat(kind: str, goroutines: int) -> Seat:
    return seat("go", lambda s: s.go(kind, goroutines), inside=go_inside(kind))


def c_contended(threads: int, processes: int = 1, kind: str = "mutex", **others: object) -> Seat:
    def argvs(s: Setting) -> list[list[str]]:
        return [s.c("contend", kind, threads, 0, s.oracle())] * processes

    return Seat(("c",), argvs, **others)


JAVA_WARM = 3.0
JAVA_INSIDE = ("set", "del")  # the unlock latch; the lock


def java_seat(*words: object, inside: tuple[str, ...] = JAVA_INSIDE) -> Seat:
    return seat("java", lambda s: s.java(*words), warm=JAVA_WARM, inside=inside)


def java_contended(threads: int, processes: int = 1, mode: str = "contended") -> Seat:
    def argvs(s: Setting) -> list[list[str]]:
        return [s.java(mode, threads, 0, s.oracle())] * processes

    return Seat(("java",), argvs, warm=JAVA_WARM, inside=JAVA_INSIDE)


def mixed(ours: int, theirs: int) -> Seat:
    """A process of ours with so many threads beside one of Redisson's, in this order."""

    def argvs(s: Setting) -> list[list[str]]:
        oracle = s.oracle()
        return [
            s.c("contend", "mutex", ours, 0, oracle),
            s.java("contended", theirs, 0, oracle),
        ]

    return Seat(("c", "java"), argvs, warm=JAVA_WARM, inside=JAVA_INSIDE)


def mixed_fair(each: int, hold_us: int, **others: object) -> Seat:
    """So many processes of ours and as many of Redisson's, in this order, in one queue."""

    def argvs(s: Setting) -> list[list[str]]:
        oracle = s.oracle()
        ours = s.c("contend", "fair", 1, hold_us, oracle)
        theirs = s.java("fair", 1, hold_us, oracle)
        return [ours] * each + [theirs] * each

    # Redisson's half calls two that count: one a lock.
    return Seat(("c", "java"), argvs, warm=JAVA_WARM, inside=("set",), **others)


# ---- Checks --------------------------------------------------------------------------------------


def time_ratio(ours: str, theirs: str, against: str, goal: float | None) -> Check:
    def value(r: Round) -> float:
        return r[theirs].rate / r[ours].rate

    return Check("time", against, (ours, theirs), value, goal, most=True)


def cpu_ratio(ours: str, theirs: str, against: str) -> Check:
    """On one core it should be the time's ratio; it is steadier when others use the machine."""

    def value(r: Round) -> float:
        a, b = r[ours], r[theirs]
        return (a.client_us + a.server_us) / (b.client_us + b.server_us)

    return Check("CPU of client and server", against, (ours, theirs), value, None)


def throughput(ours: str, theirs: tuple[str, ...], against: str, goal: float | None) -> Check:
    """Against the best of theirs in each round; of several rivals some may be missing."""

    def value(r: Round) -> float:
        return r[ours].rate / max(r[name].rate for name in theirs if name in r)

    needed = (ours, *theirs) if len(theirs) == 1 else (ours,)
    return Check("throughput", against, needed, value, goal)


def commands(seat: str, what: str, against: str, goal: float | None) -> Check:
    return Check(what, against, (seat,), lambda r: r[seat].commands, goal, most=True, unit="")


def per_pair(seat: str, name: str, goal: float) -> Check:
    def value(r: Round) -> float:
        return r[seat].extra[name] / r[seat].extra["done"]

    return Check(f"{name} a pair", "", (seat,), value, goal, most=True, unit="")


def told(seat: str, what: str, name: str, goal: float | None, unit: str) -> Check:
    """A figure that the subject itself gives."""
    return Check(what, "", (seat,), lambda r: r[seat].extra[name], goal, most=True, unit=unit)


def jain(seat: str, goal: float | None = None) -> Check:
    """Fairness among threads: 1 if all got the same share, 1/n if one got everything."""

    def value(r: Round) -> float:
        each = r[seat].extra["each"]
        return sum(each) ** 2 / (len(each) * sum(n * n for n in each))

    return Check(f"fairness of {seat} (Jain)", "", (seat,), value, goal, unit="")


def equal_part(seat: str, ours: int, theirs: int) -> Check:
    """What Redisson's threads, which answer last, got of what so many of so many would have got."""

    def value(r: Round) -> float:
        each = r[seat].extra["each"]
        return sum(each[ours:]) / sum(each) / (theirs / (ours + theirs))

    return Check("Redisson's share, of an equal part", "", (seat,), value, 0.25)


def share_of_changes(seat: str) -> Check:
    def value(r: Round) -> float:
        return r[seat].extra["changes"] / r[seat].extra["done"]

    return Check("share of hand-overs to another process", "", (seat,), value, None, unit="")


# ---- Rows ----------------------------------------------------------------------------------------


def c_rows() -> list[Row]:
    rows = [
        Row(
            "c1",
            "lock + unlock, 1 thread, C",
            {"snib": c_seat("pairs", "snib", 1), "hiredis": c_seat("pairs", "hiredis", 1)},
            [
                time_ratio("snib", "hiredis", "same scripts, a blocking hiredis socket", 1.00),
                cpu_ratio("snib", "hiredis", "the same"),
            ],
            pinned=True,
        )
    ]
    for threads, goal in ((2, 1.0), (4, 1.0), (8, 1.1), (16, 1.6), (64, 1.8)):
        row = Row(
            f"c{threads}",
            f"{threads} threads, distinct locks, C",
            {
                "snib": c_seat("pairs", "snib", threads),
                "hiredis": c_seat("pairs", "hiredis", threads),
            },
            [throughput("snib", ("hiredis",), f"{threads} hiredis sockets", goal)],
        )
        if threads == 64:
            row.seats["redisson"] = java_seat("distinct", 64)
            row.checks.append(throughput("snib", ("redisson",), "Redisson, 64 threads", 8))
        rows.append(row)
    rows.append(
        Row(
            "c-queue",
            "1 thread, 64 operations in flight by the queue, C",
            {
                "snib": c_seat("pipeline", "snib", 64),
                "step": c_seat("pipeline", "step", 64),
                "rolling": c_seat("pipeline", "rolling", 64),
            },
            [
                throughput("snib", ("step",), "one hiredis connection, 64 pairs in steps", 1.2),
                throughput("snib", ("rolling",), "the same, each reply followed at once", None),
            ],
        )
    )
    return rows


def python_rows() -> list[Row]:
    def tasks(kind: str, loop: str) -> Seat:
        return python_seat("tasks.py", kind, 100, loop)

    rows = [
        Row(
            "py1",
            "lock + unlock, 1 thread, Python",
            {
                "snib": python_seat("pairs.py", "snib", 1),
                "c": c_seat("pairs", "snib", 1),
                "redis-py": python_seat("pairs.py", "redis", 1),
            },
            [
                time_ratio("snib", "c", "our C", 1.12),
                cpu_ratio("snib", "c", "the same"),
                time_ratio("snib", "redis-py", "redis-py Lock with its C parser", 0.42),
            ],
            pinned=True,
        ),
        Row(
            "py16",
            "16 threads, distinct locks, Python",
            {
                "snib": python_seat("pairs.py", "snib", 16),
                "redis-py": python_seat("pairs.py", "redis", 16),
            },
            [throughput("snib", ("redis-py",), "redis-py Lock", 10)],
        ),
    ]
    for loop in ("asyncio", "uvloop"):
        rows.append(
            Row(
                f"py-{loop}",
                f"100 tasks, distinct locks, {loop}",
                {"snib": tasks("snib", loop), "redis-py": tasks("redis", loop)},
                [throughput("snib", ("redis-py",), "redis.asyncio Lock", 12)],
            )
        )
    return rows


def go_rows() -> list[Row]:
    libraries = ("redsync", "redislock", "rueidislock")
    rows = []
    for n, best, raw in ((1, 1.15, 1.0), (64, 1.6, 0.95)):
        rows.append(
            Row(
                f"go{n}",
                f"{n} goroutine{'s' if n > 1 else ''}, distinct locks, Go",
                {name: go_seat(name, n) for name in ("snib", "rueidis", *libraries)},
                [
                    throughput("snib", libraries, f"best of {', '.join(libraries)}", best),
                    throughput("snib", ("rueidis",), "rueidis sending the same scripts", raw),
                ],
                pinned=n == 1,
            )
        )
    return rows


def contended_rows() -> list[Row]:
    rows = []
    for name, title, processes, threads, most, faster in (
        ("one-process", "one lock, 16 threads of a process", 1, 16, 1.1, 5),
        ("four-processes", "one lock, 4 processes x 4 threads", 4, 4, 3, 3),
    ):
        rows.append(
            Row(
                name,
                title,
                {
                    "snib": c_contended(threads, processes),
                    "redisson": java_contended(threads, processes),
                },
                [
                    commands("snib", "commands a lock", "", most),
                    commands("redisson", "commands a lock, Redisson's", "", None),
                    throughput("snib", ("redisson",), "Redisson", faster),
                    jain("snib", 0.95),
                    jain("redisson"),
                ],
            )
        )
    for ours, theirs in ((6, 3), (1, 1)):
        rows.append(
            Row(
                f"mixed{ours}",
                f"one lock, {ours} thread{'s' if ours > 1 else ''} of ours, {theirs} of Redisson's",
                {"both": mixed(ours, theirs)},
                [equal_part("both", ours, theirs), jain("both")],
            )
        )
    rows.append(
        Row(
            "hand-over",
            "one lock, 16 processes, one thread each",
            {"snib": c_contended(1, 16)},
            [
                commands("snib", "commands a hand-over", "", 17),
                share_of_changes("snib"),
                jain("snib", 0.95),
            ],
        )
    )
    return rows


def count_rows() -> list[Row]:
    rows = []
    for threads, limits in ((1, (2, 2, 0)), (64, (0.2, 0.1, 2))):
        rows.append(
            Row(
                f"counts{threads}",
                f"system calls, {threads} thread{'s' if threads > 1 else ''}, C",
                {"snib": c_seat("pairs", "snib", threads)},
                [
                    per_pair("snib", name, limit)
                    for name, limit in zip(("writes", "reads", "wakes"), limits, strict=True)
                ],
                pinned=threads == 1,
            )
        )
    rows.append(
        Row(
            "re-entry",
            "re-entry, depth 10, C",
            {"snib": c_seat("reentry", 10)},
            [
                commands("snib", "commands", "", 0),
                Check(
                    "time of a re-entry and its release",
                    "",
                    ("snib",),
                    lambda r: 1e9 / r["snib"].rate,
                    None,
                    unit="ns",
                ),
            ],
            keeps_keys=True,
        )
    )
    return rows


def holds_row(quick: bool) -> Row:
    count, seconds = (20000, 14.0) if quick else (100000, 32.0)

    def rate(name: str) -> Callable[[Round], float]:
        return lambda r: r["snib"].extra[name] / r["snib"].extra["seconds"]

    return Row(
        "holds",
        f"{count:,} renewed holds, lease 30 s, C",
        {
            "snib": seat("c", lambda s: s.c("holds", count, 30000), warm=0),
            "redisson": seat("java", lambda s: s.java("holds", count), warm=0),
        },
        [
            told("snib", "memory a hold, by the client's count", "memory", 256, "B"),
            told("snib", "memory a hold, by the process' resident set", "rss", 256, "B"),
            told("redisson", "memory a hold, Redisson's heap", "memory", None, "B"),
            Check("scripts a second", "", ("snib",), rate("scripts"), 110, most=True, unit=""),
            Check("renewals a second", "", ("snib",), rate("renewals"), None, unit=""),
            told("snib", "threads", "threads", 1, ""),
            told("snib", "longest renewal gap, of the lease", "gap", 0.45, ""),
        ],
        rounds=1,  # what a second round would need, the first has left behind
        seconds=seconds,
    )


def all_rows(quick: bool) -> list[Row]:
    return [
        *c_rows(),
        *python_rows(),
        *go_rows(),
        *contended_rows(),
        holds_row(quick),
        *count_rows(),
    ]

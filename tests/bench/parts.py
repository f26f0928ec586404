"""The parts of rows: subjects, their work, the rivals, and the goals.

A figure is a ratio taken inside one round, or a count.  A missed goal is reported, never an error.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from harness import BENCH, Builder, Sample
from servers import Server, Site

Round = dict[str, Sample]  # one round of a row: each subject's turn


@dataclass
class Setting:
    """What a subject's command line may refer to."""

    builder: Builder
    server: Server  # used by most rows
    folder: Path
    quick: bool
    own: Site | None = None  # the running row's own servers

    def site(self, seat: Seat) -> Site:
        return self.server if self.own is None or seat.alone else self.own

    def sites(self) -> list[Site]:
        return [self.server] if self.own is None else [self.server, self.own]

    def c(self, *words: object, url: str | None = None) -> list[str]:
        head = [self.builder.c, url or self.server.url, self.builder.scripts]
        return [str(word) for word in (*head, *words)]

    def python(self, program: str, *words: object, url: str | None = None) -> list[str]:
        head = [self.builder.python, BENCH / "python" / program, url or self.server.url]
        return [str(word) for word in (*head, *words)]

    def go(self, *words: object, url: str | None = None, sharded: bool = False) -> list[str]:
        scripts = self.builder.sharded_scripts if sharded else self.builder.scripts
        head = [self.builder.go, url or self.server.url, scripts]
        return [str(word) for word in (*head, *words)]

    def java(self, *words: object) -> list[str]:
        return [*self.builder.java, str(self.server.port), *(str(word) for word in words)]

    def fresh_folder(self) -> Path:
        """A fresh folder for a row's servers."""
        return Path(tempfile.mkdtemp(dir=self.folder))

    def oracle(self) -> Path:
        """A fresh file for one subject's safety oracle."""
        path = self.folder / f"oracle.{len(list(self.folder.glob('oracle.*')))}"
        path.write_bytes(bytes(64))
        return path


@dataclass
class Seat:
    """One subject of a row.  `kinds` names the programs to be built for it."""

    kinds: tuple[str, ...]
    argvs: Callable[[Setting], list[list[str]]]  # one command line for each of its processes
    warm: float = 0.3  # seconds of unmeasured work before the rounds
    # Counted commands that its scripts call once per pair; None: pairs differ.
    inside: tuple[str, ...] | None = ()
    watched: str | None = None  # the fair lock whose order is watched
    alone: bool = False  # on the common server, although the row has its own servers


@dataclass
class Check:
    """One figure of a row and its goal, if any: a maximum or a minimum."""

    what: str
    against: str
    seats: tuple[str, ...]
    value: Callable[[Round], float]
    goal: float | None
    most: bool = False
    unit: str = "x"
    any_of: tuple[str, ...] = ()  # one of these is enough, in addition to the seats

    def has_figures(self, rounds: list[Round]) -> bool:
        """Whether every round had all compared subjects."""
        return bool(rounds) and all(
            all(name in r for name in self.seats)
            and (not self.any_of or any(name in r for name in self.any_of))
            for r in rounds
        )

    def reached(self, value: float) -> bool:
        return value <= self.goal if self.most else value >= self.goal


@dataclass
class Row:
    name: str
    title: str
    seats: dict[str, Seat]
    checks: list[Check]
    pinned: bool = False  # server and subjects on one core: steadier, for one-thread comparisons
    rounds: int | None = None  # the maximum, with a fixed length
    seconds: float = 1.0
    keeps_keys: bool = False
    pairs: bool = True  # the work is lock and unlock pairs, so its rate is meaningful
    site: Callable[[Setting], Site] | None = None  # creates the row's own servers
    notes: list[str] = field(default_factory=list)


# ---- Seats ---------------------------------------------------------------------------------------


def seat(kind: str, argv: Callable[[Setting], list[str]], **others: object) -> Seat:
    return Seat((kind,), lambda s: [argv(s)], **others)


Where = Callable[[Setting], str]  # a URL


def one_server(s: Setting) -> str:
    return s.server.url


def own_site(s: Setting) -> str:
    return s.own.url


def c_seat(*words: object, at: Where = one_server, **others: object) -> Seat:
    return seat("c", lambda s: s.c(*words, url=at(s)), **others)


def python_seat(program: str, kind: str, *words: object, at: Where = one_server) -> Seat:
    inside = () if kind.startswith("snib") else ("del",)
    return seat("python", lambda s: s.python(program, kind, *words, url=at(s)), inside=inside)


def go_inside(kind: str) -> tuple[str, ...]:
    if kind in ("redislock", "rueidislock"):
        return ("set", "del")
    return ("del",) if kind.startswith("redsync") else ()


def go_seat(
    kind: str, goroutines: int, at: Where = one_server, sharded: bool = False, **others: object
) -> Seat:
    def argv(s: Setting) -> list[str]:
        return s.go(kind, goroutines, url=at(s), sharded=sharded)

    return seat("go", argv, **{"inside": go_inside(kind)} | others)


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
    """One Snib process and one Redisson process with these numbers of threads, in this order."""

    def argvs(s: Setting) -> list[list[str]]:
        oracle = s.oracle()
        return [
            s.c("contend", "mutex", ours, 0, oracle),
            s.java("contended", theirs, 0, oracle),
        ]

    return Seat(("c", "java"), argvs, warm=JAVA_WARM, inside=None)


def mixed_fair(each: int, hold_us: int, **others: object) -> Seat:
    """Equal numbers of Snib and Redisson processes, in this order, in one queue."""

    def argvs(s: Setting) -> list[list[str]]:
        oracle = s.oracle()
        ours = s.c("contend", "fair", 1, hold_us, oracle)
        theirs = s.java("fair", 1, hold_us, oracle)
        return [ours] * each + [theirs] * each

    return Seat(("c", "java"), argvs, warm=JAVA_WARM, inside=None, **others)


# ---- Checks --------------------------------------------------------------------------------------


def time_ratio(ours: str, theirs: str, against: str, goal: float | None) -> Check:
    def value(r: Round) -> float:
        return r[theirs].rate / r[ours].rate

    return Check("time", against, (ours, theirs), value, goal, most=True)


def price_ratio(ours: tuple[str, str], theirs: tuple[str, str], against: str, goal: float | None) -> Check:
    """What a thing costs us, by the subjects with and without it, against what it costs others."""

    def price(r: Round, of: tuple[str, str]) -> float:
        return r[of[1]].rate / r[of[0]].rate

    def value(r: Round) -> float:
        return price(r, ours) / price(r, theirs)

    return Check("the same ratio", against, (*ours, *theirs), value, goal, most=True)


def cpu_ratio(ours: str, theirs: str, against: str) -> Check:
    """On one core it should equal the time's ratio; it is steadier while others use the machine."""

    def value(r: Round) -> float:
        a, b = r[ours], r[theirs]
        return (a.client_us + a.server_us) / (b.client_us + b.server_us)

    return Check("CPU of client and server", against, (ours, theirs), value, None)


def throughput(ours: str, theirs: tuple[str, ...], against: str, goal: float | None) -> Check:
    """Throughput against the best rival in each round; some rivals may be missing."""

    def value(r: Round) -> float:
        return r[ours].rate / max(r[name].rate for name in theirs if name in r)

    return Check("throughput", against, (ours,), value, goal, any_of=theirs)


def commands(seat: str, what: str, against: str, goal: float | None) -> Check:
    return Check(what, against, (seat,), lambda r: r[seat].commands, goal, most=True, unit="")


def per_pair(seat: str, name: str, goal: float) -> Check:
    def value(r: Round) -> float:
        return r[seat].extra[name] / r[seat].extra["done"]

    return Check(f"{name} a pair", "", (seat,), value, goal, most=True, unit="")


def told(seat: str, what: str, name: str, goal: float | None, unit: str) -> Check:
    """A figure reported by the subject itself."""
    return Check(what, "", (seat,), lambda r: r[seat].extra[name], goal, most=True, unit=unit)


def jain(seat: str, goal: float | None = None) -> Check:
    """Fairness among threads: 1 if all got equal shares, 1/n if one got everything."""

    def value(r: Round) -> float:
        each = r[seat].extra["each"]
        return sum(each) ** 2 / (len(each) * sum(n * n for n in each))

    return Check(f"fairness of {seat} (Jain)", "", (seat,), value, goal, unit="")


def equal_part(seat: str, ours: int, theirs: int) -> Check:
    """The share of Redisson's threads, which answer last, relative to an equal share."""

    def value(r: Round) -> float:
        each = r[seat].extra["each"]
        return sum(each[ours:]) / sum(each) / (theirs / (ours + theirs))

    return Check("Redisson's share, of an equal part", "", (seat,), value, 0.25)


def share_of_changes(seat: str) -> Check:
    def value(r: Round) -> float:
        return r[seat].extra["changes"] / r[seat].extra["done"]

    return Check("share of hand-overs to another process", "", (seat,), value, None, unit="")

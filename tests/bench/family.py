"""Rows for the other locks: fair, read/write, several as one, a quorum.

Also the mutex beside Redisson's, as the first of the family.
"""

from __future__ import annotations

from collections.abc import Callable

from parts import (
    JAVA_INSIDE,
    Check,
    Round,
    Row,
    Seat,
    Setting,
    c_contended,
    c_seat,
    commands,
    cpu_ratio,
    go_inside,
    go_seat,
    jain,
    java_contended,
    java_seat,
    mixed_fair,
    share_of_changes,
    throughput,
    time_ratio,
)
from servers import Independent

CONTENDED = "contended:0"  # the lock's name in all programs

ORDER_NOTE = (
    "Order inversions are counted in separate turns (subject 'watched'), in which MONITOR shows"
    " every command in the server's order: an inversion is a pair of waiters of which the one that"
    " pushed itself to the queue later had the lock earlier.  A waiter that is dropped and queues again keeps"
    " its first time; who takes the lock without queueing overtakes all who wait."
)


def scripts(name: str, what: str, goal: float | None) -> Check:
    return Check(what, "", (name,), lambda r: r[name].scripts, goal, most=True, unit="")


def inversions(name: str) -> Check:
    def value(r: Round) -> float:
        return r[name].extra["inversions"]

    return Check("order inversions", "", (name,), value, 0, most=True, unit="")


def beside_redisson_rows() -> list[Row]:
    """One row is pinned, like all rows of one thread.  Redisson wakes two more threads per command,
    which may use another core in the second row."""

    def row(name: str, title: str, goal: float | None, pinned: bool) -> Row:
        return Row(
            name,
            title,
            {"snib": c_seat("pairs", "snib", 1), "redisson": java_seat("distinct", 1)},
            [throughput("snib", ("redisson",), "Redisson", goal)],
            pinned=pinned,
        )

    title = "lock + unlock, 1 thread, beside Redisson"
    return [
        row("redisson1", title, 2, True),
        row("redisson1-cores", f"{title}, all cores", None, False),
    ]


# ---- Fair ----------------------------------------------------------------------------------------


def fair_crowd_row() -> Row:
    return Row(
        "fair-64",
        "fair lock, 64 processes, one thread each",
        {
            "snib": c_contended(1, 64, "fair"),
            "watched": c_contended(1, 64, "fair", watched=CONTENDED),
        },
        [
            scripts("snib", "scripts a hand-over", 2.1),
            commands("snib", "all commands a hand-over", "", 2.1),
            inversions("watched"),
            share_of_changes("snib"),
            jain("snib"),
        ],
        notes=[ORDER_NOTE],
    )


def fair_row() -> Row:
    return Row(
        "fair-4x4",
        "fair lock, 4 processes x 4 threads",
        {
            "snib": c_contended(4, 4, "fair"),
            "redisson": java_contended(4, 4, "fair"),
            "watched": c_contended(4, 4, "fair", watched=CONTENDED),
        },
        [
            commands("snib", "commands a lock", "", 2.2),
            commands("redisson", "commands a lock, Redisson's", "", None),
            throughput("snib", ("redisson",), "Redisson's fair lock", 8),
            inversions("watched"),
            jain("snib"),
            jain("redisson"),
        ],
    )


def mixed_fair_row() -> Row:
    each = 4

    def fewest(r: Round) -> float:
        """The processes answer in order: first Snib's, then Redisson's."""
        counts = r["watched"].extra["each"]
        ours, theirs = sum(counts[:each]), sum(counts[each:])
        return min(ours, theirs) / max(ours, theirs)

    return Row(
        "fair-mixed",
        f"fair lock, {each} Snib and {each} Redisson processes",
        {"watched": mixed_fair(each, hold_us=2000, watched=CONTENDED)},
        [
            inversions("watched"),
            Check("smaller share of the locks to the larger", "", ("watched",), fewest, 0.95),
            jain("watched"),
        ],
        seconds=3.0,
        rounds=5,
        keeps_keys=True,  # a Snib mark may stay for ten seconds if a Redisson client is the last
        notes=[
            "Each holder keeps the lock for 2 ms, so that all are back in the queue when the"
            " others have had it; a late waiter has no right to a share."
        ],
    )


# ---- Read/write ----------------------------------------------------------------------------------


def readers_row() -> Row:
    standing = 1000

    def server_time(r: Round) -> float:
        return r["redisson"].server_us / r["snib"].server_us

    return Row(
        "read-1000",
        f"read lock + unlock among {standing:,} readers who stay",
        {
            "snib": c_seat("readers", standing, inside=("set", "del")),
            "redisson": java_seat("readers", standing, inside=("set", *JAVA_INSIDE)),
        },
        [
            Check("server time, Redisson's to ours", "", ("snib", "redisson"), server_time, 20),
            throughput("snib", ("redisson",), "Redisson", None),
        ],
        keeps_keys=True,
        notes=[
            "Server time is the CPU time of the server's process over the turn, by pairs; all the"
            " readers have renewed leases, and what their renewals cost is part of it."
        ],
    )


# ---- Several as one, a quorum --------------------------------------------------------------------


def multi_row() -> Row:
    return Row(
        "multi-10",
        "10 locks of one server as one, C",
        {
            "multi": c_seat("group", "multi", 10),
            "single": c_seat("pairs", "snib", 1),
            "ten": c_seat("group", "singles", 10),
            "redisson": java_seat("multi", 10, inside=JAVA_INSIDE * 10),
        },
        [
            time_ratio("multi", "single", "one lock", 2.2),
            cpu_ratio("multi", "single", "the same"),
            time_ratio("multi", "ten", "ten locks, one after another", None),
            throughput("multi", ("redisson",), "Redisson's getMultiLock", 5),
        ],
        pinned=True,
    )


def independent(nodes: int, delay_us: int) -> Callable[[Setting], Independent]:
    """Independent servers, of which the last one stalls; delay_us 0: no delaying process."""

    def make(s: Setting) -> Independent:
        s.builder.need("c")
        return Independent(s.fresh_folder(), nodes, s.builder.delay, delay_us)

    return make


def first_of_them(s: Setting) -> str:
    return s.own.urls[0]


def all_of_them(s: Setting) -> str:
    return " ".join(s.own.urls)


def quorum_row(name: str, title: str, delay_us: int, notes: list[str]) -> Row:
    def redsync(kind: str) -> Seat:
        return go_seat(kind, 1, at=all_of_them, inside=go_inside(kind) * 4)

    most, faster = (1.5, 3) if delay_us else (None, None)
    return Row(
        name,
        title,
        {
            "quorum": c_seat("quorum", at=all_of_them),
            "single": c_seat("pairs", "snib", 1, at=first_of_them),
            "redsync": redsync("redsync"),
            "redsync-fast": redsync("redsync-fast"),
        },
        [
            time_ratio("quorum", "single", "a lock on one of the servers", most),
            throughput("quorum", ("redsync",), "redsync", faster),
            throughput("quorum", ("redsync-fast",), "redsync with WithFailFast", None),
        ],
        site=independent(5, delay_us),
        notes=notes,
    )


def quorum_rows() -> list[Row]:
    return [
        quorum_row(
            "quorum",
            "quorum of 5, one of them stalled, links of 1 ms, C",
            1000,
            [
                "The last of the five servers is stopped (SIGSTOP) when all clients have connected."
                "  A process in user space holds back every byte for 1 ms in each direction, on the"
                " single lock's link as well.  redsync waits 250 ms for a server that does not"
                " answer, without further tries; by default it would be 3 s and three more."
            ],
        ),
        quorum_row(
            "quorum-near",
            "quorum of 5, one of them stalled, loopback, C",
            0,
            ["For information: no servers that fail independently are so near."],
        ),
    ]


def family_rows() -> list[Row]:
    return [
        *beside_redisson_rows(),
        fair_crowd_row(),
        fair_row(),
        mixed_fair_row(),
        readers_row(),
        multi_row(),
        *quorum_rows(),
    ]

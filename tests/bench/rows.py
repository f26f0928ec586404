"""Rows for the mutex on one server; other locks are in family.py, deployments in deployments.py."""

from __future__ import annotations

from collections.abc import Callable

from parts import (
    Check,
    Round,
    Row,
    Seat,
    c_contended,
    c_seat,
    commands,
    cpu_ratio,
    equal_part,
    go_seat,
    jain,
    java_contended,
    java_seat,
    mixed,
    per_pair,
    python_seat,
    seat,
    share_of_changes,
    throughput,
    time_ratio,
    told,
)


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
            "c-debug",
            "lock + unlock, 1 thread, C, the option debug",
            {
                "snib": c_seat("pairs", "snib", 1),
                "debug": c_seat("pairs", "snib", 1, at=lambda s: f"{s.server.url}?debug=yes"),
            },
            [
                time_ratio("debug", "snib", "the same without debug", None),
                cpu_ratio("debug", "snib", "the same"),
            ],
            pinned=True,
        )
    )
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


# How a client can be watched: the program's name for it, what that is, and the goal for the time.
REGISTERED = ("registered", "metrics that nobody looks at", 1.01)
PROMETHEUS = ("prometheus", "scraped by Prometheus each second", 1.05)
METRICS = ("metrics", "OpenTelemetry metrics, collected each second", 1.05)
WRAPPED = ("wrapped", "spans without a provider", None)
SPANS = ("spans", "spans, exported to nowhere", None)


def watched_row(
    name: str,
    title: str,
    seat_of: Callable[[str], Seat],
    ways: list[tuple[str, str, float | None]],
) -> Row:
    """What it costs a thread to be watched in each of these ways."""
    kinds = ("snib", *(f"snib-{how}" for how, _, _ in ways))
    checks = [
        check
        for how, text, goal in ways
        for check in (
            time_ratio(f"snib-{how}", "snib", f"the same unwatched: {text}", goal),
            cpu_ratio(f"snib-{how}", "snib", "the same"),
        )
    ]
    return Row(name, title, {kind: seat_of(kind) for kind in kinds}, checks, pinned=True)


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
    rows.append(
        watched_row(
            "py-watched",
            "lock + unlock, 1 thread, Python, watched",
            lambda kind: python_seat("pairs.py", kind, 1),
            [PROMETHEUS, METRICS, WRAPPED, SPANS],
        )
    )
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
    rows.append(
        watched_row(
            "go-watched",
            "lock + unlock, 1 goroutine, Go, watched",
            lambda kind: go_seat(kind, 1),
            [REGISTERED, PROMETHEUS, METRICS, WRAPPED, SPANS],
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
            "snib": seat("c", lambda s: s.c("holds", count, 30000, s.server.port), warm=0),
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
        rounds=1,  # a second round would find the holds of the first
        seconds=seconds,
        pairs=False,
    )


def mutex_rows(quick: bool) -> list[Row]:
    return [
        *c_rows(),
        *python_rows(),
        *go_rows(),
        *contended_rows(),
        holds_row(quick),
        *count_rows(),
    ]

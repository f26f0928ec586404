"""Rows for deployments other than one server without TLS: TLS, replicas, sentinels, shards.

A language is measured against rivals in the same language; C's figures beside them have no goal.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from deployed import FailingOver, Followed, Secure, Shards, failing_cluster, failing_sentinels
from parts import (
    Check,
    Round,
    Row,
    Setting,
    c_seat,
    cpu_ratio,
    go_seat,
    own_site,
    price_ratio,
    python_seat,
    seat,
    throughput,
    time_ratio,
    told,
)

# ---- TLS -----------------------------------------------------------------------------------------


def by_tls(s: Setting) -> str:
    return s.own.secure_url


def tls_row(threads: int, first: list[Check], pinned: bool) -> Row:
    return Row(
        f"tls{threads}",
        f"lock + unlock over TLS, {threads} thread{'s' if threads > 1 else ''}",
        {
            "tls": c_seat("pairs", "snib", threads, at=by_tls),
            "plain": c_seat("pairs", "snib", threads, at=own_site),
            "sockets-tls": c_seat("pairs", "hiredis", threads, at=by_tls),
            "sockets": c_seat("pairs", "hiredis", threads, at=own_site),
            "python": python_seat("pairs.py", "snib", threads, at=by_tls),
            "redis-py": python_seat("pairs.py", "redis", threads, at=by_tls),
            "go": go_seat("snib", threads, at=by_tls),
            "rueidis": go_seat("rueidis", threads, at=by_tls),
        },
        [
            *first,
            price_ratio(
                ("tls", "plain"),
                ("sockets-tls", "sockets"),
                "that of private sockets, hiredis and OpenSSL, same scripts, C",
                1,
            ),
            throughput("python", ("redis-py",), "redis-py Lock over TLS, both Python", 1),
            throughput("go", ("rueidis",), "rueidis, same scripts over TLS, both Go", 1),
            throughput("tls", ("redis-py",), "redis-py Lock over TLS, C", None),
            throughput("tls", ("rueidis",), "rueidis, same scripts over TLS, C", None),
        ],
        pinned=pinned,
        site=lambda s: Secure(s.fresh_folder()),
    )


def tls_rows() -> list[Row]:
    against = "plain TCP to the same server, C"
    return [
        tls_row(
            1,
            [time_ratio("tls", "plain", against, 1.25), cpu_ratio("tls", "plain", "the same")],
            pinned=True,
        ),
        tls_row(64, [throughput("tls", ("plain",), against, 0.8)], pinned=False),
    ]


# ---- Shards --------------------------------------------------------------------------------------


def shards_row() -> Row:
    return Row(
        "cluster64",
        "64 threads, distinct locks, cluster of 3",
        {
            "cluster": c_seat("pairs", "snib", 64, at=own_site),
            "one": c_seat("pairs", "snib", 64, alone=True),
            "go": go_seat("snib", 64, at=own_site),
            "rueidis": go_seat("rueidis", 64, at=own_site, sharded=True),
            "rueidis-one": go_seat("rueidis", 64, alone=True),
        },
        [
            throughput("cluster", ("one",), "the same on one server, C", 1),
            throughput("rueidis", ("rueidis-one",), "the same on one server, both rueidis", None),
            throughput("go", ("rueidis",), "rueidis' cluster client, same scripts, both Go", 1),
            throughput("cluster", ("rueidis",), "the same, C", None),
        ],
        site=lambda s: Shards(s.fresh_folder()),
        notes=[
            "All servers are on this machine, and share its cores with the clients: three servers"
            " read and write a third as much at a time each.  What that costs another client is"
            " shown by rueidis on the cluster and on one server."
        ],
    )


def shards_holds_row(quick: bool) -> Row:
    """Holds in all slots, renewed over slow links."""
    count, seconds = (20000, 14.0) if quick else (100000, 32.0)

    def argv(s: Setting) -> list[str]:
        ports = ",".join(map(str, s.own.own_ports))
        return s.c("holds", count, 30000, ports, url=s.own.url)

    def rate(name: str) -> Callable[[Round], float]:
        return lambda r: r["snib"].extra[name] / r["snib"].extra["seconds"]

    def site(s: Setting) -> Shards:
        s.builder.need("c")
        return Shards(s.fresh_folder(), delay=s.builder.delay, delay_us=2000)

    return Row(
        "cluster-holds",
        f"cluster of 3, {count:,} renewed holds on all slots, lease 30 s, links of 2 ms, C",
        {"snib": seat("c", argv, warm=0)},
        [
            told("snib", "longest renewal gap, of the lease", "gap", 0.45, ""),
            told("snib", "client threads", "threads", 1, ""),
            Check("renewals a second", "", ("snib",), rate("renewals"), None, unit=""),
            Check("scripts a second", "", ("snib",), rate("scripts"), None, unit=""),
        ],
        rounds=1,
        seconds=seconds,
        pairs=False,
        site=site,
        notes=[
            "A process in user space holds back every byte for 2 ms in each direction; the nodes"
            " announce its ports.  How long each key has still to live is read from the nodes"
            " themselves, twice a second."
        ],
    )


# ---- Failovers -----------------------------------------------------------------------------------


def milliseconds(r: Round, moment: str) -> float:
    """Milliseconds from the kill to a moment."""
    extra = r["snib"].extra
    return (extra[moment] - extra["killed"]) / 1e6


def failover_row(name: str, title: str, make: Callable[[Path], FailingOver]) -> Row:
    def ratio(moment: str) -> Callable[[Round], float]:
        return lambda r: milliseconds(r, moment) / milliseconds(r, "announced")

    def at(moment: str, what: str) -> Check:
        return Check(what, "", ("snib",), lambda r: milliseconds(r, moment), None, unit="ms")

    against = "time until the first node announces it"
    return Row(
        name,
        title,
        {"snib": c_seat("failover", FailingOver.LOCK, 4, at=own_site, warm=0)},
        [
            Check("time to the first new grant", against, ("snib",), ratio("gap_to"), 1.2, True),
            Check("time until all 4 threads had one", "the same", ("snib",), ratio("back"), None),
            at("announced", "announced after the kill"),
            at("gap_to", "first new grant after the kill"),
            told("snib", "calls that failed", "errors", None, ""),
        ],
        rounds=5,
        seconds=15.0,
        pairs=False,
        site=lambda s: make(s.fresh_folder()),
        notes=[
            "Four threads take locks of one master, each its own, for some microseconds each"
            " millisecond, until SIGKILL ends that master.  Meanwhile every node is asked all the"
            " time; before the next round the killed server is back, as a replica."
        ],
    )


def failover_rows() -> list[Row]:
    return [
        failover_row(
            "fail-sentinel",
            "failover, 1 master + 2 replicas, 3 sentinels (down after 1 s), C",
            failing_sentinels,
        ),
        failover_row(
            "fail-cluster",
            "failover, cluster of 3 masters + 3 replicas (node time-out 1.5 s), C",
            failing_cluster,
        ),
    ]


# ---- Replicas ------------------------------------------------------------------------------------


def durable_row() -> Row:
    def majority(s: Setting) -> str:
        return f"{s.own.url}?durability=majority"

    return Row(
        "durable64",
        "64 threads, distinct locks, 1 master + 2 replicas, durability majority",
        {
            "c": c_seat("pairs", "snib", 64, at=majority),
            "python": python_seat("pairs.py", "snib", 64, at=majority),
            "redis-py": python_seat("pairs.py", "redis-wait", 64, at=own_site),
        },
        [
            throughput("python", ("redis-py",), "redis-py Lock + WAIT, both Python", 5),
            throughput("c", ("redis-py",), "the same, C", None),
        ],
        site=lambda s: Followed(s.fresh_folder()),
        notes=["redis-py has a connection for each thread, which waits for one of the replicas."],
    )


def deployment_rows(quick: bool) -> list[Row]:
    return [
        *tls_rows(),
        shards_row(),
        shards_holds_row(quick),
        *failover_rows(),
        durable_row(),
    ]

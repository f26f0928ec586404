"""A copy of a request may come late, after the hold's lease was extended: it shortens no lease.

Each row is the acquisition of a kind, the keys that live as long as its lease, and the renewal.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import pytest
from scripts import (
    GET,
    HOLD_KEYS,
    INIT,
    KINDS,
    LEASES,
    MARK,
    MUTEX,
    NAMES,
    SC,
    TAKEN,
    TOKEN,
    A,
    B,
    Scripts,
    ident,
    multi,
    own,
    permits,
    raw,
    read,
    refused,
    take,
    write,
)

QUEUE, PLACES, BEATS = "redisson_lock_queue:{k}", "redisson_lock_timeout:{k}", "snib_lock_beats:{k}"
FAIR = ["k", QUEUE, PLACES, BEATS, TOKEN]
MULTI = ["k", "k", "k"]
READ = ["k", own(A)]


class Row(NamedTuple):
    script: str
    keys: list[str]
    before: list[object]  # arguments before the lease, and after it
    after: list[object]
    lives: list[str]  # keys that live as long as the lease
    renew: str
    renew_keys: list[str]
    renew_after: list[object]


ROWS = [
    Row("mutex_acquire", ["k"], [A], [], ["k"], "mutex_renew", ["k"], [A]),
    Row("mutexes_acquire", ["k", "l"], [A], [], ["k", "l"], "mutex_renew", ["k", "l"], [A, A]),
    Row("quorum_acquire", ["k", "epoch"], [A], ["run1", 0], ["k"], "mutex_renew", ["k"], [A]),
    Row("plain_acquire", ["k"], [A], [], ["k"], "plain_renew", ["k"], [A]),
    Row("fenced_acquire", ["k", TOKEN], [A], [], ["k"], "mutex_renew", ["k"], [A]),
    Row("fair_acquire", FAIR, [A], [0, 0, MUTEX, 0, 0], ["k"], "fair_renew", FAIR[:3], [A]),
    Row("write_acquire", ["k", MARK], [A], [0], ["k"], "write_renew", ["k"], [A]),
    Row("read_acquire", [*READ, MARK], [A], [], READ, "read_renew", READ, [A]),
    Row("multi_acquire", [*READ, MARK], [A], ["r"], READ, "multi_renew", READ, [A, "r"]),
    Row("multi_acquire", MULTI, [A], ["m"], ["k"], "multi_renew", MULTI[:2], [A, "m"]),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.script}-{row.renew}-{len(row.lives)}")
def test_late_requests(run: Scripts, row: Row) -> None:
    def near(ms: int) -> None:
        for key in row.lives:
            run.near(key, ms)

    run(row.script, row.keys, *row.before, 20000, *row.after)
    near(20000)
    assert run(row.renew, row.renew_keys, 90000, *row.renew_after) == []
    near(90000)
    run(row.script, row.keys, *row.before, 20000, *row.after)
    assert run(row.renew, row.renew_keys, 30000, *row.renew_after) == []
    near(90000)


def changes(run: Scripts) -> int:
    return int(run.redis.info("persistence")["rdb_changes_since_last_save"])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.script}-{row.renew}-{len(row.lives)}")
def test_repeated_requests(run: Scripts, row: Row) -> None:
    """A repetition writes, even if it changes nothing: WAIT answers only for what its own connection has written."""
    run(row.script, row.keys, *row.before, 20000, *row.after)
    assert run(row.renew, row.renew_keys, 90000, *row.renew_after) == []
    before = changes(run)
    run(row.script, row.keys, *row.before, 20000, *row.after)
    assert changes(run) > before


def test_repeated_permits(run: Scripts) -> None:
    permits(run, INIT, 5)
    take(run, 1, 2, lease=20000)
    assert run("permits_renew", TAKEN, 90000, 2, ident(1), ident(2)) == []
    before = changes(run)
    assert take(run, 1, 2, lease=20000) is None
    assert changes(run) > before
    assert run.redis.zscore(TAKEN, raw(1)) > 1000 * time.time() + 80000
    assert permits(run, GET) == 3


@pytest.mark.parametrize("lease", ["abc", "1.5", "9223372036854775807"])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.script}-{row.renew}-{len(row.lives)}")
def test_refused_lease(run: Scripts, row: Row, lease: str) -> None:
    """No lock is left behind, least of all one without a TTL."""
    refused(run(row.script, row.keys, *row.before, lease, *row.after), "")
    assert not run.redis.exists(*row.lives)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.script}-{row.renew}-{len(row.lives)}")
def test_exact_lease(run: Scripts, row: Row) -> None:
    """Members of a multi lock over several clients were renewed while the others were collected."""
    run(row.script, row.keys, *row.before, 20000, *row.after)
    assert run(row.renew, row.renew_keys, -5000, *row.renew_after) == []
    for key in row.lives:
        run.near(key, 5000)


def test_exact_lease_of_multi(run: Scripts) -> None:
    multi(run, 20000)
    assert run("multi_renew", HOLD_KEYS, -5000, A, KINDS) == []
    for key in (*NAMES, LEASES):
        run.near(key, 5000)


@pytest.mark.parametrize(
    ("renew", "keys", "owner"),
    [
        ("read_renew", READ, [A]),
        ("multi_renew", READ, [A, "r"]),
        ("write_renew", ["k"], [A]),
        ("multi_renew", ["k", "k"], [A, "w"]),
    ],
)
def test_exact_lease_beside_others(run: Scripts, renew: str, keys: list[str], owner: list[str]) -> None:
    """What others need is not shortened, be it only the same owner's other side."""
    writes = len(set(keys)) == 1
    (write if writes else read)(run, A, 20000)
    other = A if writes else B
    read(run, other, 10000)
    assert run(renew, keys, -5000, *owner) == []
    run.near("k", 20000)
    run.near(own(other), 10000)
    if not writes:
        run.near(own(A), 5000)


def test_exact_lease_of_permits(run: Scripts) -> None:
    permits(run, INIT, 3)
    take(run, 1, 2, lease=20000)
    take(run, 3, lease=20000)
    assert run("permits_renew", TAKEN, -5000, 2, ident(1), ident(2)) == []
    now, _ = run.redis.time()
    left = [score - now * 1000 for _, score in run.redis.zrange(TAKEN, 0, -1, withscores=True)]
    assert [round(ms, -4) for ms in left[2:]] == [20000]
    assert all(2000 < ms < 7000 for ms in left[:2])


def test_late_permits(run: Scripts) -> None:
    run("permits_count", ["k", TAKEN], 2, 3, SC)
    for lease, ends in ((20000, 20000), (90000, 90000), (20000, 90000)):
        assert run("permits_acquire", ["k", TAKEN], lease, SC, ident(1), ident(2)) is None
        now, _ = run.redis.time()
        scores = [score for _, score in run.redis.zrange(TAKEN, 0, -1, withscores=True)]
        assert len(scores) == 2
        assert all(-3000 < score - now * 1000 - ends < 3000 for score in scores)
    assert run.redis.get("k") == "1", "they are taken once"


@pytest.mark.parametrize(
    ("kind", "keys", "rest"),
    [
        ("mutex", ["k"], []),
        ("plain", ["k"], []),
        ("fenced", ["k", TOKEN], [MUTEX]),
        ("write", ["k"], [MUTEX]),
    ],
)
def test_late_transfer(run: Scripts, kind: str, keys: list[str], rest: list[str]) -> None:
    writes = kind == "write"
    run(f"{kind}_acquire", ["k", MARK] if writes else keys, A, 30000, *([0] if writes else []))
    assert run(f"{kind}_transfer", keys, A, B, 20000, *rest) != 0
    run.near("k", 20000), "the lease is the new owner's"
    renew = "mutex_renew" if kind == "fenced" else f"{kind}_renew"
    assert run(renew, "k", 90000, B) == []
    assert run(f"{kind}_transfer", keys, A, B, 20000, *rest) != 0
    run.near("k", 90000)

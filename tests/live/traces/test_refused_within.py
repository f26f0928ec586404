"""A user who may run a script, but not each of its commands: each command of each script is refused in turn.

What a script did before that stays.  So whatever is refused, nothing may be left that no lease ends: no lock, queue or
place without a TTL, no permit too few or too many.  What takes several things takes all or none.  And a late copy of an
acquisition takes nothing from the hold.
"""

from __future__ import annotations

import itertools
import re
import time
from typing import Any

import pytest
import redis
from scripts import (
    ACQUIRE_KEYS,
    CHANNELS,
    COUNTER,
    HOLD_KEYS,
    JAVA,
    KINDS,
    LATCH,
    MARK,
    MUTEX,
    PLAIN,
    RW,
    SC,
    TAKEN,
    TOKEN,
    A,
    B,
    C,
    D,
    Scripts,
    ident,
    multi,
    own,
    raw,
    take,
    text,
)

FAIR = ["k", "redisson_lock_queue:{k}", "redisson_lock_timeout:{k}", "snib_lock_beats:{k}", TOKEN]
LEASE = 30000
SOON = 10_000_000  # ms: longer than the test
ALL_OR_NONE = {"multi_acquire", "permits_acquire", "permits_release"}


def held(owner: str) -> Any:
    return lambda run: run("mutex_acquire", "k", owner, LEASE)


def reads(*owners: str) -> Any:
    return lambda run: [run("read_acquire", ["k", own(owner), MARK], owner, LEASE) for owner in owners]


def writes(*also: str) -> Any:
    def prepare(run: Scripts) -> None:
        assert run("write_acquire", ["k", MARK], A, LEASE, 0) is None
        for owner in also:
            assert run("read_acquire", ["k", own(owner), MARK], owner, LEASE, A) is None

    return prepare


def number(free: int, taken: dict[int, int] | None = None, life: int = 0) -> Any:
    """So many free permits, and taken ones whose leases end so many ms from now."""

    def prepare(run: Scripts) -> None:
        now = int(time.time() * 1000)
        run.redis.set("k", free, px=life or None)
        if taken:
            run.redis.zadd(TAKEN, {raw(i): now + ms for i, ms in taken.items()})

    return prepare


def queue(owner: str, holder: str | None = None, polls: bool = False) -> Any:
    def prepare(run: Scripts) -> None:
        run("mutex_acquire", "k", holder or D, LEASE)
        run("fair_acquire", FAIR, owner, LEASE, 1, 0, MUTEX, 1 if polls else 0, 0)
        run.redis.hset(FAIR[3], owner[:36], int(time.time() * 1000) + SOON)
        if not holder:
            run.redis.delete("k")

    return prepare


def java_queues(run: Scripts) -> None:
    held(A)(run)
    run.redis.rpush(FAIR[1], JAVA)
    run.redis.zadd(FAIR[2], {JAVA: int(time.time() * 1000) + SOON})


def nothing(run: Scripts) -> None:
    pass


def mine(run: Scripts) -> None:
    run.redis.set("k", 5, px=60000)
    take(run, 1, 2)


def is_in(some: Any, all_: Any) -> bool:
    """Whether the keys, fields and members are there, whatever their values."""
    return not isinstance(some, dict) or set(some) <= set(all_) and all(is_in(some[one], all_[one]) for one in some)


CASES: list[tuple[str, str, Any, list[str], list[Any]]] = [
    ("mutex", "mutex_acquire", nothing, ["k"], [A, LEASE]),
    ("plain", "plain_acquire", nothing, ["k"], [A, LEASE]),
    ("fenced", "fenced_acquire", nothing, ["k", TOKEN], [A, LEASE]),
    ("read", "read_acquire", nothing, ["k", own(A), MARK], [A, LEASE]),
    ("read beside", "read_acquire", reads(B), ["k", own(A), MARK], [A, LEASE]),
    ("read within", "read_acquire", writes(), ["k", own(B), MARK], [B, LEASE, A]),
    ("write", "write_acquire", nothing, ["k", MARK], [A, LEASE, 0]),
    ("mark", "write_acquire", reads(B), ["k", MARK], [A, LEASE, 4000]),
    ("mutexes", "mutexes_acquire", nothing, ["{k}1", "{k}2"], [A, LEASE]),
    ("multi", "multi_acquire", nothing, ACQUIRE_KEYS, [A, LEASE, KINDS]),
    ("mutex, a copy", "mutex_acquire", held(A), ["k"], [A, LEASE + 1]),
    ("fenced, a copy", "fenced_acquire", held(A), ["k", TOKEN], [A, LEASE + 1]),
    ("fair, a copy", "fair_acquire", held(A), FAIR, [A, LEASE + 1, 1, 0, MUTEX, 0, 0]),
    ("read, a copy", "read_acquire", reads(A), ["k", own(A), MARK], [A, LEASE + 1]),
    ("write, a copy", "write_acquire", writes(), ["k", MARK], [A, LEASE + 1, 0]),
    ("mutexes, a copy", "mutexes_acquire", held(A), ["k", "{k}2"], [A, LEASE + 1]),
    ("multi, a copy", "multi_acquire", multi, ACQUIRE_KEYS, [A, LEASE + 1, KINDS]),
    ("permits, a copy", "permits_acquire", mine, ["k", TAKEN], [LEASE, SC, ident(1), ident(2)]),
    ("permits", "permits_acquire", number(5), ["k", TAKEN], [LEASE, SC, ident(1), ident(2)]),
    ("permits with a TTL", "permits_acquire", number(5, life=60000), ["k", TAKEN], [LEASE, SC, ident(1), ident(2)]),
    ("permits that ended", "permits_acquire", number(0, {7: -1, 8: -1}), ["k", TAKEN], [LEASE, SC, ident(1), ident(2)]),
    ("number", "permits_count", number(0, {7: -1, 8: -1}), ["k", TAKEN], [1, 0, SC]),
    ("semaphore", "semaphore_acquire", number(5), ["k"], [1]),
    ("fair", "fair_acquire", nothing, FAIR, [A, LEASE, 1, 0, MUTEX, 0, 0]),
    ("fair, queues", "fair_acquire", held(B), FAIR, [A, LEASE, 1, 1, MUTEX, 1, 0]),
    ("fair, queues behind", "fair_acquire", queue(B, C), FAIR, [A, LEASE, 1, 0, MUTEX, 0, 0]),
    ("fair, its turn", "fair_acquire", queue(A), FAIR, [A, LEASE, 1, 0, MUTEX, 0, 0]),
    ("fair, another's turn", "fair_acquire", queue(B), FAIR, [A, LEASE, 0, 0, MUTEX, 0, 0]),
    ("fair release", "fair_release", queue(B, A), FAIR, [A, MUTEX]),
    ("fair release to one that polls", "fair_release", queue(C, A, True), FAIR, [A, MUTEX]),
    ("fair release to Java", "fair_release", java_queues, FAIR, [A, MUTEX]),
    ("fair force", "fair_force", queue(B, A), FAIR, [MUTEX]),
    ("transfer", "mutex_transfer", held(A), ["k"], [A, B, LEASE]),
    ("plain transfer", "plain_transfer", lambda run: run("plain_acquire", "k", A, LEASE), ["k"], [A, B, LEASE]),
    ("fenced transfer", "fenced_transfer", held(A), ["k", TOKEN], [A, B, LEASE, MUTEX]),
    ("write transfer", "write_transfer", writes(), ["k", TOKEN], [A, B, LEASE, RW]),
    ("release", "mutex_release", held(A), ["k"], [A, MUTEX]),
    ("plain release", "plain_release", lambda run: run("plain_acquire", "k", A, LEASE), ["k"], [A, PLAIN]),
    ("read release", "read_release", reads(A, B), ["k", own(A)], [A, RW]),
    ("last read release", "read_release", reads(A), ["k", own(A)], [A, RW]),
    ("write release", "write_release", writes(), ["k"], [A, RW]),
    ("write release, reads", "write_release", writes(A), ["k"], [A, RW]),
    (
        "multi release",
        "multi_release",
        multi,
        HOLD_KEYS,
        [A, KINDS, *CHANNELS],
    ),
    ("permits release", "permits_release", number(3, {1: SOON, 2: SOON}), ["k", TAKEN], [SC, ident(1), ident(2)]),
    ("latch", "latch_count", lambda run: run.redis.set("k", 1), ["k"], [3, 1, LATCH]),
]


def commands(script: str) -> list[str]:
    """Those by which it may fail, read from its text."""
    return sorted(set(re.findall(r"call\('(\w+)'", script)) - {"time", "pubsub", "publish"})


def permits_of(run: Scripts) -> int:
    return int(run.redis.get("k")) + int(run.redis.zcard(TAKEN))


def ended(state: dict[str, Any]) -> bool:
    """Permits whose leases have ended may be free again."""
    return any(at < time.time() * 1000 for at in state.get(TAKEN, {}).values())


@pytest.mark.parametrize(("case", "name", "prepare", "keys", "args"), CASES, ids=[case[0] for case in CASES])
def test_refused_within(run: Scripts, case: str, name: str, prepare: Any, keys: list[str], args: list[Any]) -> None:
    refusals = 0
    for command in commands(text(name)):
        run.redis.flushall()
        prepare(run)
        before, total = run.state(), permits_of(run) if name.startswith("permits") else None
        endless = {key for key in before if run.redis.ttl(key) == -1}
        run.redis.acl_setuser(
            "half", enabled=True, reset=True, nopass=True, keys=["*"], channels=["*"], commands=["+@all", f"-{command}"]
        )
        user = run.connect(username="half", password="-")
        reply = run(name, keys, *args, by=user)
        user.close()
        where = f"{case} without {command}: {reply}"
        left = {key for key in run.redis.keys() if run.redis.ttl(key) == -1} - endless
        assert not left - ({TOKEN, COUNTER} | ({TAKEN} if total is not None else set())), where
        assert total is None or permits_of(run) == total, where
        if not isinstance(reply, redis.ResponseError):
            continue
        refusals += 1
        if case.endswith("a copy"):
            assert is_in(before, run.state()), where
        elif name in ALL_OR_NONE:
            after = run.state()
            for state in before, after:
                state.pop(COUNTER, None)
            assert after == before or total is not None and ended(before), where
    run.redis.acl_deluser("half")
    assert refusals > 0


PERMITS = [case for case in CASES if case[1].startswith("permits")]


@pytest.mark.parametrize(("case", "name", "prepare", "keys", "args"), PERMITS, ids=[case[0] for case in PERMITS])
def test_two_refused(run: Scripts, case: str, name: str, prepare: Any, keys: list[str], args: list[Any]) -> None:
    """Nor are there more permits afterwards if the user may not run what would take back the rest."""
    for pair in itertools.combinations(commands(text(name)), 2):
        run.redis.flushall()
        prepare(run)
        total = permits_of(run)
        run.redis.acl_setuser(
            "half",
            enabled=True,
            reset=True,
            nopass=True,
            keys=["*"],
            channels=["*"],
            commands=["+@all", *(f"-{command}" for command in pair)],
        )
        user = run.connect(username="half", password="-")
        reply = run(name, keys, *args, by=user)
        user.close()
        assert permits_of(run) <= total, f"{case} without {' and '.join(pair)}: {reply}"
    run.redis.acl_deluser("half")


RENEWALS: list[tuple[str, Any, list[str], list[Any]]] = [
    ("mutex_renew", held(A), ["k"], [A]),
    ("plain_renew", lambda run: run("plain_acquire", "k", A, LEASE), ["k"], [A]),
    ("fair_renew", queue(B, A), FAIR[:3], [A]),
    ("read_renew", reads(A), ["k", own(A)], [A]),
    ("write_renew", writes(), ["k"], [A]),
    ("multi_renew", multi, HOLD_KEYS, [A, KINDS]),
    ("permits_renew", mine, [TAKEN], [2, ident(1), ident(2)]),
]


@pytest.mark.parametrize("lease", [0, 60000])
@pytest.mark.parametrize(("name", "prepare", "keys", "args"), RENEWALS, ids=[row[0] for row in RENEWALS])
def test_a_renewal_loses_nothing(
    run: Scripts, name: str, prepare: Any, keys: list[str], args: list[Any], lease: int
) -> None:
    """What may not be asked is not known: it is an error, not a loss."""
    refusals = 0
    for command in commands(text(name)):
        run.redis.flushall()
        prepare(run)
        run.redis.acl_setuser(
            "half", enabled=True, reset=True, nopass=True, keys=["*"], channels=["*"], commands=["+@all", f"-{command}"]
        )
        user = run.connect(username="half", password="-")
        reply = run(name, keys, lease, *args, by=user)
        user.close()
        assert reply == [] or isinstance(reply, redis.ResponseError), f"{name} without {command}: {reply}"
        refusals += reply != []
    run.redis.acl_deluser("half")
    assert refusals > 0

"""Redisson and Snib in C, Python and Go with sentinels, clusters and TLS: each kind, in both directions.

Snib's clients ask again only after a minute, and the leases of both sides are as long, so a waiter that gets in sooner
was notified; and waiters must be subscribed to the kind of channel used in this mode.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from agent import LANGUAGES, LIMIT_MS, RENEWED_MS, SILENCE_MS, Lock
from deployed import Deployed
from kinds import AGAINST, names
from node import eventually
from peer import JavaClient, JavaError, JavaObject
from versions import JAVA_WAITS, SNIB_WAITS

from conftest import Cell

ROUNDS = 2
IN_EACH = pytest.mark.parametrize("language", LANGUAGES)
LOCKS = pytest.mark.parametrize("kind", AGAINST)
SINGLE = pytest.mark.parametrize("kind", [kind for kind in AGAINST if kind != "multi"])


# ---- In turn -------------------------------------------------------------------------------------


@LOCKS
@IN_EACH
def test_in_turn(
    cell: Cell, there: Deployed, beside: JavaClient, kind: str, language: str, lock: str
) -> None:
    cell(kind, beside, SNIB_WAITS, JAVA_WAITS)
    agent, name = there.agent(language), names(kind, lock)
    ours, against = agent.lock(kind, name), agent.lock(AGAINST[kind], name)
    theirs, wants = beside.object(kind, name), beside.object(AGAINST[kind], name)
    for _ in range(ROUNDS):
        theirs("lock", SILENCE_MS)
        assert against.acquire(wait=0) == "busy"
        there.snib_waits(against, lock)
        theirs("unlock")
        assert against.taken().get() == "ok"
        assert against.release() == "ok"
    for _ in range(ROUNDS):
        assert ours.acquire(wait=0) == "ok"
        assert wants("try", 0, SILENCE_MS) == "false"
        waiter = there.java_waits(wants, lock, "lock", SILENCE_MS)
        assert ours.release() == "ok"
        assert waiter.get(LIMIT_MS / 1000) == "done"
        wants("unlock")


@pytest.mark.parametrize("kind", ["semaphore"])
@IN_EACH
def test_semaphore_in_turn(
    cell: Cell, there: Deployed, beside: JavaClient, kind: str, language: str, counter: str
) -> None:
    cell(kind, beside, SNIB_WAITS, JAVA_WAITS)
    ours, theirs = there.agent(language).lock(kind, counter), beside.object(kind, counter)
    assert theirs("init", 2) == "true"
    assert ours.of_lock("count", "init", 3) == "0"
    for _ in range(ROUNDS):
        theirs("acquire", 2)
        assert ours.acquire(wait=0) == "busy"
        there.snib_waits(ours, counter, n=2)
        theirs("release", 2)
        assert ours.taken().get() == "ok"
        assert theirs("try", 1, 0) == "false"
        waiter = there.java_waits(theirs, counter, "acquire", 2)
        assert ours.release() == "ok"
        assert waiter.get(LIMIT_MS / 1000) == "done"
        theirs("release", 2)
    assert ours.of_lock("count", "drain") == "2"
    there.snib_waits(ours, counter)
    theirs("add", 1)
    assert ours.taken().get() == "ok"


@pytest.mark.parametrize("kind", ["permits"])
@IN_EACH
def test_permits_in_turn(
    cell: Cell, there: Deployed, beside: JavaClient, kind: str, language: str, counter: str
) -> None:
    cell(kind, beside, SNIB_WAITS, JAVA_WAITS)
    ours, theirs = there.agent(language).lock(kind, counter), beside.object(kind, counter)
    assert theirs("init", 1) == "true"
    for _ in range(ROUNDS):
        permit = theirs("acquire", SILENCE_MS)
        assert ours.acquire(wait=0) == "busy"
        there.snib_waits(ours, counter)
        theirs("release", permit)
        assert ours.taken().get() == "ok"
        assert theirs("try", 0, SILENCE_MS) == "null"
        waiter = there.java_waits(theirs, counter, "acquire", SILENCE_MS)
        assert ours.release() == "ok"
        theirs("release", waiter.get(LIMIT_MS / 1000))
    assert ours.of_lock("count", "get") == ours.of_lock("count", "total") == "1"


@pytest.mark.parametrize("kind", ["latch"])
@IN_EACH
def test_latch_in_turn(
    cell: Cell, there: Deployed, beside: JavaClient, kind: str, language: str, counter: str
) -> None:
    cell(kind, beside, SNIB_WAITS, JAVA_WAITS)
    ours, theirs = there.agent(language).lock(kind, counter), beside.object(kind, counter)
    for _ in range(ROUNDS):
        assert theirs("init", 2) == "true"
        there.snib_waits(ours, counter)
        theirs("down")
        assert ours.of_lock("count", "get") == "1"
        theirs("down")
        assert ours.taken().get() == "ok"
        assert ours.of_lock("count", "init", 2) == "1"
        waiter = there.java_waits(theirs, counter, "await")
        assert ours.of_lock("count", "down") == "1"
        assert waiter.waits
        assert ours.of_lock("count", "down") == "0"
        assert waiter.get(LIMIT_MS / 1000) == "done"
    assert ours.of_lock("count", "init", 1) == "1"
    waiter = there.java_waits(theirs, counter, "await")
    assert ours.of_lock("force") == "ok"
    assert waiter.get(LIMIT_MS / 1000) == "done"


# ---- Force ---------------------------------------------------------------------------------------


@SINGLE
@IN_EACH
def test_force(
    cell: Cell, there: Deployed, beside: JavaClient, kind: str, language: str, counter: str
) -> None:
    cell(kind, beside, SNIB_WAITS, JAVA_WAITS)
    agent, first, second = there.agent(language), f"{counter}f", f"{counter}s"
    theirs, wants = beside.object(kind, first), beside.object(AGAINST[kind], first)
    theirs("lock", SILENCE_MS)
    waiter = there.java_waits(wants, first, "lock", SILENCE_MS)
    assert agent.lock(kind, first).of_lock("force") == "ok"
    assert waiter.get(LIMIT_MS / 1000) == "done"
    with pytest.raises(JavaError, match="IllegalMonitorState"):
        theirs("unlock")

    # A waiter in the holder's own process would be notified only by the holder.
    holder = there.agent(LANGUAGES[LANGUAGES.index(language) - 1])
    held, against = holder.lock(kind, second), agent.lock(AGAINST[kind], second)
    assert held.acquire(wait=0) == "ok"
    there.snib_waits(against, second)
    assert beside.object(kind, second)("force") == "true"
    assert against.taken().get() == "ok"
    assert held.release().startswith("lost: ")
    assert against.release() == "ok"


# ---- Leases --------------------------------------------------------------------------------------


def lifted(there: Deployed, keys: Sequence[str], times: int) -> None:
    """Wait until the TTL of each key, which otherwise only falls, has risen a number of times."""
    last = dict.fromkeys(keys, 2**31)
    counts = dict.fromkeys(keys, 0)

    def enough() -> bool:
        for key, before in last.items():
            last[key] = there.command("PTTL", key)
            counts[key] += last[key] > before
            assert last[key] > 0, f"{key} is not held any more"
        return min(counts.values()) >= times

    try:
        eventually(enough, nap=0.1)
    except AssertionError:
        raise AssertionError(f"not renewed: {counts}, left: {last}") from None


@IN_EACH
def test_renewal(
    cell: Cell, there: Deployed, beside: JavaClient, language: str, lock: str
) -> None:
    """Each side outlives its lease several times while the other waits."""
    kinds = [kind for kind in AGAINST if cell.has(kind, beside)]
    for kind in kinds:
        cell(kind, beside, SNIB_WAITS, JAVA_WAITS)
    agent, brief = there.agent(language), there.java(beside.jvm, watchdog_ms=RENEWED_MS)
    ours: list[Lock] = []
    theirs: list[JavaObject] = []
    for kind in kinds:
        ours.append(agent.lock(kind, names(kind, f"{lock}{kind}o"), "quick"))
        assert ours[-1].acquire(wait=0) == "ok"
        theirs.append(brief.object(kind, names(kind, f"{lock}{kind}j")))
        theirs[-1]("lock", -1)
    wanting = [beside.object(AGAINST[kind], names(kind, f"{lock}{kind}o")) for kind in kinds]
    waiters = [thing.start("lock", SILENCE_MS) for thing in wanting]
    takers = [agent.lock(AGAINST[kind], names(kind, f"{lock}{kind}j")) for kind in kinds]
    for taker in takers:
        taker.submit()
    held = [names(kind, f"{lock}{kind}{side}") for kind in kinds for side in "oj"]
    lifted(there, [one.partition(",")[0] for one in held], 2)
    assert all(waiter.waits for waiter in waiters)
    assert agent(f"waiting slow {len(kinds)}") == "ok"
    for mine, wants, waiter in zip(ours, wanting, waiters, strict=True):
        assert mine.of_hold("check") == mine.release() == "ok"
        assert waiter.get(LIMIT_MS / 1000) == "done"
        wants("unlock")
    for thing, taker in zip(theirs, takers, strict=True):
        thing("unlock")
        assert taker.taken().get() == "ok"
        assert taker.release() == "ok"


@IN_EACH
def test_leases_run_out(
    cell: Cell, there: Deployed, beside: JavaClient, language: str, lock: str
) -> None:
    """Without a release there is no message: the other side gets in when the lease has ended."""
    kinds = [kind for kind in AGAINST if cell.has(kind, beside)]
    agent = there.agent(language)
    ours, wanting, takers = [], [], []
    for kind in kinds:
        cell(kind, beside, SNIB_WAITS, JAVA_WAITS)
        ours.append(agent.lock(kind, names(kind, f"{lock}{kind}o"), lease=1500))
        assert ours[-1].acquire(wait=0) == "ok"
        beside.object(kind, names(kind, f"{lock}{kind}j"))("lock", 1500)
        wanting.append(beside.object(AGAINST[kind], names(kind, f"{lock}{kind}o")))
        takers.append(agent.lock(AGAINST[kind], names(kind, f"{lock}{kind}j")))
    waiters = [thing.start("lock", SILENCE_MS) for thing in wanting]
    for taker in takers:
        taker.submit()
    if beside.jvm.number < (3, 32, 0):
        assert agent(f"lost {ours[kinds.index('fair')].hold}").startswith("lost: ")
        attempt = agent.lock("fair", f"{lock}fairo")
        if attempt.acquire(wait=300) == "ok":  # before Java asked
            assert attempt.release() == "ok"
        cell.differs("fair", beside, JAVA_WAITS, SLEEPS_ON)
    for wants, waiter, taker in zip(wanting, waiters, takers, strict=True):
        waiter.get()
        wants("unlock")
        assert taker.taken().get() == "ok"
        assert taker.release() == "ok"
    for mine in ours:
        assert mine.of_hold("check").startswith("lost: ")


SLEEPS_ON = (
    "when the lease of a fair lock runs out unreleased, its first waiter may sleep on, "
    "also among Redisson's own; Snib's next attempt wakes it"
)

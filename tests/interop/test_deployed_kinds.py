"""The special features of each kind, with sentinels, clusters and TLS, Redisson, and Snib in all languages at once."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest
from agent import LANGUAGES, LIMIT_MS, SILENCE_MS, Lock
from cluster import slot_of
from deployed import Deployed
from node import eventually
from peer import Call, JavaClient, java_waits
from versions import JAVA_WAITS, SNIB_WAITS

from conftest import Cell


def test_fair_order(cell: Cell, there: Deployed, beside: JavaClient, lock: str) -> None:
    """Java, C, Java, Python, Java, Go queue up, and get the lock in that order."""
    cell("fair", beside, SNIB_WAITS, JAVA_WAITS)
    length = itertools.count(1)

    def joined() -> None:
        want = next(length)
        queue = f"redisson_lock_queue:{{{lock}}}"
        eventually(lambda: there.command("LLEN", queue) == want)

    first = beside.object("fair", lock)
    first("lock", SILENCE_MS)
    line: list[tuple[Any, Call | None]] = []
    for language in LANGUAGES:
        theirs = beside.object("fair", lock)
        line.append((theirs, there.java_waits(theirs, lock, "lock", SILENCE_MS)))
        joined()
        ours = there.agent(language).lock("fair", lock)
        there.snib_waits(ours, lock)
        line.append((ours, None))
        joined()
    first("unlock")
    for place, (thing, call) in enumerate(line):
        if call is None:
            assert thing.taken().get() == "ok"
        else:
            assert call.get(LIMIT_MS / 1000) == "done"
        for later, waiting in line[place + 1 :]:
            if waiting is None:
                assert later.agent("waiting slow 1") == "ok"
            else:
                assert waiting.waits, f"it overtook place {place}"
        if call is None:
            assert thing.release() == "ok"
        else:
            thing("unlock")


def test_readers_share(cell: Cell, there: Deployed, beside: JavaClient, lock: str) -> None:
    """Readers of all languages together; writers of both sides follow the last of them, one by one."""
    cell("read", beside, SNIB_WAITS, JAVA_WAITS)
    cell("write", beside, SNIB_WAITS, JAVA_WAITS)
    ours = [there.agent(language).lock("read", lock) for language in LANGUAGES]
    theirs = [beside.object("read", lock) for _ in range(2)]
    for reader in ours:
        assert reader.acquire(wait=0) == "ok"
    for thing in theirs:
        assert thing("try", 0, SILENCE_MS) == "true"
    writer, wants = ours[0].agent.lock("write", lock), beside.object("write", lock)
    there.snib_waits(writer, lock)
    waiter = there.java_waits(wants, lock, "lock", SILENCE_MS)
    for reader in ours:
        assert reader.release() == "ok"
    theirs[0]("unlock")
    assert waiter.waits and writer.agent("waiting slow 1") == "ok"
    theirs[1]("unlock")
    taken = writer.taken()
    eventually(lambda: taken.ended.is_set() or not waiter.waits)
    if taken.ended.is_set():
        assert taken.get() == "ok" and waiter.waits
        assert writer.release() == "ok"
        assert waiter.get(LIMIT_MS / 1000) == "done"
        wants("unlock")
    else:
        wants("unlock")
        assert taken.get() == "ok"
        assert writer.release() == "ok"


@pytest.mark.parametrize("language", LANGUAGES)
def test_multi_over_slots(
    cell: Cell, there: Deployed, beside: JavaClient, language: str, lock: str
) -> None:
    """A multi lock with a member on every master waits while any single member is held."""
    cell("multi", beside, SNIB_WAITS, JAVA_WAITS)
    agent, members = there.agent(language), on_all(there, lock)
    for member in members:
        blocker = beside.object("mutex", member)
        blocker("lock", SILENCE_MS)
        ours = agent.lock("multi", ",".join(members))
        there.snib_waits(ours, lock)
        blocker("unlock")
        assert ours.taken().get() == "ok"
        assert beside.object("multi", ",".join(members))("try", 0, -1) == "false"
        assert ours.release() == "ok"

        mine = agent.lock("mutex", member)
        assert mine.acquire(wait=0) == "ok"
        theirs = beside.object("multi", ",".join(members))
        waiter = there.java_waits(theirs, lock, "lock", SILENCE_MS)
        assert mine.release() == "ok"
        assert waiter.get(LIMIT_MS / 1000) == "done"
        assert agent.lock("mutex", members[-1]).acquire(wait=0) == "busy"
        theirs("unlock")


def on_all(there: Deployed, lock: str) -> list[str]:
    """One name on each master, and at least three."""
    found: dict[Any, str] = {}
    wanted = len(there.masters)
    for number in itertools.count():
        name = f"{lock}m{number}"
        if wanted == 1:
            found[number] = name
        else:
            found.setdefault(there.at(name), name)
        if len(found) == max(wanted, 3):
            break
    assert len({slot_of(name) for name in found.values()}) == len(found)
    return list(found.values())


def test_tokens_rise(cell: Cell, there: Deployed, beside: JavaClient, lock: str) -> None:
    cell("fenced", beside, SNIB_WAITS, JAVA_WAITS)
    tokens: list[int] = []
    theirs = beside.object("fenced", lock)
    for language in LANGUAGES:
        tokens.append(int(theirs("lock_token")))
        theirs("unlock")
        ours: Lock = there.agent(language).lock("fenced", lock)
        assert ours.acquire(wait=0) == "ok"
        tokens.append(int(ours.of_hold("token")))
        assert ours.release() == "ok"
    assert tokens == sorted(set(tokens)) and len(tokens) == 6


# ---- Publish modes -------------------------------------------------------------------------------


@pytest.mark.parametrize("there", ["cluster"], indirect=True)
@pytest.mark.parametrize("publish", ["classic", "both"])
def test_publish_modes(there: Deployed, beside: JavaClient, publish: str, lock: str) -> None:
    """Redisson with sharded channels and Snib with only classic ones do not hear each other; with both kinds they do.
    (So the other tests would notice a release on the wrong kind of channel.)"""
    agent = there.new_agent("c", publish)
    try:
        ours, theirs = agent.lock("mutex", lock), beside.object("mutex", lock)
        theirs("lock", SILENCE_MS)
        ours.submit()
        eventually(lambda: there.listening(lock) == (1, int(publish == "both")))
        assert agent("waiting slow 1") == "ok"
        theirs("unlock")
        if publish == "both":
            assert ours.taken().get() == "ok"
        else:
            time.sleep(1)  # no message arrives
            assert agent("waiting slow 1") == "ok"
            assert agent(f"cancel {ours.hold}") == "cancelled"
            assert ours.acquire(wait=0) == "ok"
        waiter = java_waits(there, lock, theirs, "lock", SILENCE_MS)
        assert ours.release() == "ok"
        if publish == "classic":
            time.sleep(1)
            assert waiter.waits and there.command("EXISTS", lock) == 0
            there.at(lock).command("SPUBLISH", f"redisson_lock__channel:{{{lock}}}", 0)
        assert waiter.get(LIMIT_MS / 1000) == "done"
        theirs("unlock")
    finally:
        agent.end()

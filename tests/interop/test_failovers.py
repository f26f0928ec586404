"""A master is killed while Redisson and Snib hold and wait for the same locks.

The tests check exclusion, and that every waiter gets in; the times are printed and recorded for docs/redisson.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from agent import LANGUAGES, LIMIT_MS, SILENCE_MS, Agent
from cluster import Cluster, slot_of
from deployed import Deployed, make
from modes import MODES
from node import Node, eventually
from peer import Call, JavaClient, Jvm
from sentinels import Sentinels
from versions import ALL, VERSIONS

# The lease of Redisson's watchdog: a waiter that misses the message gets in when it has ended, at the latest.
LEASE = 30.0
TIMES = 5 if ALL else 1


@pytest.fixture(params=["sentinel", "cluster"])
def spoilt(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Deployed]:
    """A private deployment for the test."""
    with make(MODES[request.param], tmp_path, down_ms=1000) as them:
        there = Deployed(MODES[request.param], them, tmp_path)
        yield there
        there.end()


class Failover:
    """The failover of the master that serves a name."""

    def __init__(self, there: Deployed, name: str) -> None:
        self.there, self.name = there, name
        self.old = there.at(name)

    def replicated(self) -> None:
        self.old.command("SET", f"{{{self.name}}}mark", 1)
        assert self.old.command("WAIT", 1, 30_000) >= 1

    def kill(self) -> Node:
        """Kill the master, and wait until all nodes agree on the new one."""
        them = self.there.them
        self.old.kill()
        self.at = time.monotonic()
        if isinstance(them, Cluster):
            new = them.await_failover(slot_of(self.name), self.old)
        else:
            assert isinstance(them, Sentinels)
            new = them.await_failover(self.old)
        self.announced = time.monotonic() - self.at
        self.there.look()
        return new

    def mend(self) -> None:
        self.old.start()
        self.there.them.await_settled()  # type: ignore[attr-defined]


def names_at(there: Deployed, prefix: str, count: int) -> list[str]:
    """Names served by the same master."""
    node = there.masters[0]
    if isinstance(there.them, Cluster):
        return [there.them.key_at(node, prefix, nth) for nth in range(count)]
    return [f"{prefix}{nth}" for nth in range(count)]


def timed(call: Callable[[], object]) -> float:
    begun = time.monotonic()
    call()
    return time.monotonic() - begun


def test_both_survive_a_failover(
    spoilt: Deployed,
    visitor: Jvm,
    record_property: Callable[[str, object], None],
) -> None:
    """Java holds one lock and Snib the other, each waits for the other's, and the master of both is killed.

    Both locks have reached the replica before that.  So both holds continue, no waiter gets in while they last, and
    when they are released after the failover the waiters get in: Snib's soon, Java's when it is notified or at the end
    of a lease.
    """
    assert visitor.version == VERSIONS[0]
    java = visitor.connect("failover", spoilt.java_url)
    for turn in range(TIMES):
        agent = spoilt.agent(LANGUAGES[turn % len(LANGUAGES)])
        for line in one_failover(spoilt, java, agent, turn):
            record_property("failover", line)
            print(line)


def one_failover(there: Deployed, java: JavaClient, agent: Agent, turn: int) -> Iterator[str]:
    of_java, of_snib = names_at(there, f"f{turn}x", 2)
    failover = Failover(there, of_java)
    theirs, wants = java.object("mutex", of_java), java.object("mutex", of_snib)
    assert agent(f"client usual recheck={SILENCE_MS} url={there.url}") == "ok"
    ours, waits = agent.lock("mutex", of_snib, "usual"), agent.lock("mutex", of_java)
    theirs("lock", -1)
    assert ours.acquire(wait=0) == "ok"
    there.snib_waits(waits, of_java)
    waiter: Call = there.java_waits(wants, of_snib, "lock", -1)
    failover.replicated()

    new = failover.kill()
    assert there.at(of_java) is there.at(of_snib) is new
    yield f"{there.mode.title}: a new master was announced after {failover.announced:.1f} s"
    assert agent("waiting slow 1") == "ok" and waiter.waits
    assert ours.of_hold("check") == "ok"
    assert new.command("HLEN", of_java) == new.command("HLEN", of_snib) == 1
    # Both sides continue to renew at the new master; a third of a lease is too long for the short run.
    for name, whose in ((of_snib, agent.language), (of_java, "Java")) if ALL else ():
        took = timed(lambda name=name: renewed(new, name))  # type: ignore[misc]
        yield f"{there.mode.title}: {whose}'s hold was next renewed {took:.1f} s later"
    assert ours.of_hold("check") == "ok" and theirs("mine") == "true"
    assert agent("waiting slow 1") == "ok" and waiter.waits

    theirs("unlock")
    took = timed(lambda: in_with(waits.taken().get()))
    yield f"{there.mode.title}: {agent.language} had Java's lock {took:.2f} s after its release"
    assert waits.release() == "ok"
    assert ours.release() == "ok"
    took = timed(lambda: waiter.get(2 * LEASE))
    yield f"{there.mode.title}: Java had Snib's lock {took:.2f} s after its release"
    wants("unlock")

    # As before, also with messages.
    theirs("lock", SILENCE_MS)
    there.snib_waits(waits, of_java)
    theirs("unlock")
    assert waits.taken().get() == "ok"
    again: Call = there.java_waits(theirs, of_java, "lock", SILENCE_MS)
    assert waits.release() == "ok"
    assert again.get(LIMIT_MS / 1000) == "done"
    theirs("unlock")
    failover.mend()
    there.look()


def in_with(answer: str) -> None:
    assert answer == "ok"


def renewed(node: Node, key: str) -> None:
    last = node.command("PTTL", key)

    def lifted() -> bool:
        nonlocal last
        before, last = last, node.command("PTTL", key)
        assert last > 0, f"{key} is not held any more"
        return bool(last > before)

    eventually(lifted, nap=0.1)


def test_a_hold_that_no_replica_has(spoilt: Deployed, visitor: Jvm) -> None:
    """Granted to Snib while the replicas were stopped, and lost with the master: Java gets it, and Snib is notified."""
    java = visitor.connect("failover", spoilt.java_url)
    (name,) = names_at(spoilt, "vanished", 1)
    agent, failover = spoilt.agent(LANGUAGES[0]), Failover(spoilt, name)
    ours, theirs = agent.lock("mutex", name), java.object("mutex", name)
    replicas = replicas_of(spoilt, failover.old)
    for replica in replicas:
        replica.stop()
    # A stopped replica would still read what is in flight to it.
    failover.old.command("CLIENT", "KILL", "TYPE", "replica")
    assert ours.acquire(wait=0) == "ok"
    failover.old.kill()
    for replica in replicas:
        replica.go_on()
    failover.kill()
    assert theirs.start("lock", SILENCE_MS).get(2 * LEASE) == "done"
    assert "failover" in agent(f"lost {ours.hold}")
    assert ours.release().startswith("lost: ")
    assert theirs("mine") == "true"
    theirs("unlock")


def replicas_of(there: Deployed, master: Node) -> list[Node]:
    them = there.them
    if isinstance(them, Cluster):
        return them.replicas_of(master)
    assert isinstance(them, Sentinels)
    return them.replicas

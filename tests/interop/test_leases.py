"""Renewal on both sides, leases that run out, and processes that are killed."""

from __future__ import annotations

from collections.abc import Iterable

import node
import pytest
from kinds import AGAINST, names
from ours import make, taking
from peer import Host, JavaClient, Jvm
from versions import JAVA_WAITS, SNIB_WAITS, VERSIONS

import snib
from conftest import FOLDERS, Cell, SharedServer
from support import PATIENCE, RENEWED, Program

KINDS = tuple(AGAINST)


def known(cell: Cell, java: JavaClient, direction: str) -> list[str]:
    """The kinds that this version supports."""
    kinds = [kind for kind in KINDS if cell.has(kind, java)]
    for kind in kinds:
        cell(kind, java, direction)
    return kinds


def renewed(server: SharedServer, kinds: Iterable[str], name: str, times: int) -> None:
    """Wait until the TTL of each key, which otherwise only falls, has risen a number of times."""
    last = {names(kind, f"{name}{kind}").partition(",")[0]: 2**31 for kind in kinds}
    lifted = dict.fromkeys(last, 0)

    def enough() -> bool:
        pipe = server.admin.pipeline(transaction=False)
        for key in last:
            pipe.pttl(key)
        for (key, before), now in zip(list(last.items()), pipe.execute(), strict=True):
            last[key] = int(now)
            lifted[key] += last[key] > before
            assert last[key] > 0, f"{key} is not held any more"
        return min(lifted.values()) >= times

    node.eventually(enough, nap=0.1)


def test_java_waits_out_our_renewals(
    cell: Cell, java: JavaClient, server: SharedServer, quick: snib.Client, name: str
) -> None:
    kinds = known(cell, java, JAVA_WAITS)
    holds = [make(quick, kind, names(kind, f"{name}{kind}")).hold() for kind in kinds]
    theirs = [java.object(AGAINST[kind], names(kind, f"{name}{kind}")) for kind in kinds]
    waiters = [thing.lock() for thing in theirs]
    renewed(server, kinds, name, 4)
    assert all(waiter.waits for waiter in waiters)
    for hold in holds:
        hold.check()
        hold.release()
    for thing, waiter in zip(theirs, waiters, strict=True):
        waiter.get()
        thing("unlock")


def test_we_wait_out_javas_renewals(
    cell: Cell, java: JavaClient, server: SharedServer, client: snib.Client, name: str
) -> None:
    kinds = known(cell, java, SNIB_WAITS)
    brief = java.jvm.open("brief", server.port, watchdog_ms=int(RENEWED * 1000))
    theirs = [brief.object(kind, names(kind, f"{name}{kind}")) for kind in kinds]
    for thing in theirs:
        thing("lock", -1)
    takers = [taking(make(client, AGAINST[k], names(k, f"{name}{k}"))) for k in kinds]
    renewed(server, kinds, name, 4)
    assert all(taker.waits for taker in takers)
    for thing, taker in zip(theirs, takers, strict=True):
        thing("unlock")
        taker.get().release()
    brief.close()


def test_leases_run_out(
    cell: Cell, java: JavaClient, server: SharedServer, client: snib.Client, name: str
) -> None:
    """Without a release the waiter gets in when the fixed lease has ended, on either side."""
    known(cell, java, JAVA_WAITS)
    kinds = known(cell, java, SNIB_WAITS)
    holds = []
    for kind in kinds:
        holds.append(make(client, kind, names(kind, f"{name}{kind}o"), lease=1.0).hold())
        java.object(kind, names(kind, f"{name}{kind}j"))("lock", 1_000)
    theirs = [java.object(AGAINST[k], names(k, f"{name}{k}o")) for k in kinds]
    waiters = [thing.lock() for thing in theirs]
    takers = [taking(make(client, AGAINST[k], names(k, f"{name}{k}j"))) for k in kinds]
    if java.jvm.number < (3, 32, 0):
        note = (
            "when the lease of a fair lock runs out unreleased, its first waiter may sleep on, "
            "also among Redisson's own; Snib's next attempt wakes it"
        )
        cell.differs("fair", java, JAVA_WAITS, note)
        assert all(hold.lost.wait(PATIENCE) for hold in holds)
        assert not client.fair_lock(f"{name}fairo").acquire(timeout=0.3)
    for thing, waiter, taker in zip(theirs, waiters, takers, strict=True):
        waiter.get(30)
        thing("unlock")
        taker.get(30).release()
    # The list has kept all holds alive until here.
    assert all(hold.state is snib.State.LOST for hold in holds)


HOLD_ALL = """
sys.path[:0] = sys.argv[3:]
from ours import make
from kinds import AGAINST, names
client = snib.connect(URL, lease=6)
holds = [make(client, kind, names(kind, sys.argv[2] + kind)).hold() for kind in AGAINST]
say("held")
sys.stdin.read()
"""


def test_we_are_killed(newest: JavaClient, server: SharedServer, name: str) -> None:
    ours = Program(HOLD_ALL, server.url, name, *(str(folder) for folder in FOLDERS))
    try:
        assert ours.hear() == "held"
        theirs = [newest.object(AGAINST[k], names(k, f"{name}{k}")) for k in KINDS]
        waiters = [thing.lock() for thing in theirs]
        renewed(server, KINDS, name, 2)
        assert all(waiter.waits for waiter in waiters)
    finally:
        ours.process.kill()
        ours.process.communicate()
    for thing, waiter in zip(theirs, waiters, strict=True):
        waiter.get(30)
        thing("unlock")


def test_java_is_killed(
    own_host: Host, server: SharedServer, client: snib.Client, name: str
) -> None:
    brief = Jvm(VERSIONS[0], own_host.port).open("brief", server.port, watchdog_ms=int(RENEWED * 1000))
    for kind in KINDS:
        brief.object(kind, names(kind, f"{name}{kind}"))("lock", -1)
    takers = [taking(make(client, AGAINST[k], names(k, f"{name}{k}"))) for k in KINDS]
    renewed(server, KINDS, name, 2)
    assert all(taker.waits for taker in takers)
    own_host.end()
    for taker in takers:
        taker.get(30).release()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "multi"])
def test_lost_to_java(
    kind: str, newest: JavaClient, server: SharedServer, quick: snib.Client, name: str
) -> None:
    """Java force-releases a Snib lock and takes it: the hold is lost within its lease, for good."""
    hold = make(quick, kind, name).hold()
    theirs = newest.object(kind, name)
    assert theirs("force") == "true"
    theirs("lock", 20_000)
    assert hold.lost.wait(PATIENCE)
    with pytest.raises(snib.Lost):
        hold.check()
    with pytest.raises(snib.Lost):
        hold.release()
    assert theirs("mine") == "true"
    theirs("unlock")

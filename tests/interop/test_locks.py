"""Every kind of lock, every version, both directions: exclusion, wake-up, re-entry, force."""

from __future__ import annotations

import pytest
from kinds import AGAINST, names
from ours import Waiting, make, ours_waits
from peer import JavaClient, JavaError, java_listens, java_waits, median
from versions import JAVA_WAITS, SNIB_WAITS

import snib
from conftest import Cell, SharedServer

KINDS = pytest.mark.parametrize("kind", AGAINST)
# The release of a spin lock sends no message, so there is nothing to measure.
TOLD = pytest.mark.parametrize("kind", [kind for kind in AGAINST if kind != "spin"])
SINGLE = pytest.mark.parametrize("kind", [kind for kind in AGAINST if kind != "multi"])
ROUNDS = 9
# A waiter that was not notified gets in at its next re-check, after a minute, or when a lease of 20 s or more ends.
AT_ONCE = 5.0


# ---- Exclusion -----------------------------------------------------------------------------------


@KINDS
def test_ours_waits_for_java(
    cell: Cell, kind: str, java: JavaClient, server: SharedServer, client: snib.Client, name: str
) -> None:
    cell(kind, java, SNIB_WAITS)
    theirs = java.object(kind, names(kind, name))
    mine = make(client, AGAINST[kind], names(kind, name))
    theirs("lock", 20_000)
    with pytest.raises(snib.Busy):
        mine.hold(timeout=0)
    with pytest.raises(snib.Timeout):
        mine.hold(timeout=0.02)
    taker = ours_waits(client, mine)
    if kind != "multi":
        info = make(client, kind, name).info()
        assert info.held and info.owner.startswith(java.uuid) and not info.mine
        assert 0 < info.remaining <= 20
    theirs("unlock")
    taker.get().release()


@KINDS
def test_java_waits_for_ours(
    cell: Cell, kind: str, java: JavaClient, server: SharedServer, client: snib.Client, name: str
) -> None:
    cell(kind, java, JAVA_WAITS)
    hold = make(client, kind, names(kind, name)).hold()
    theirs = java.object(AGAINST[kind], names(kind, name))
    assert theirs("try", 0, -1) == "false"
    assert theirs("try", 50, 5_000) == "false"
    waiter = java_waits(server, name, theirs)
    if kind != "multi":
        same = java.object(kind, name)
        assert same("locked") == "true" and same("mine") == "false" and same("count") == "0"
        assert 0 < int(same("ttl")) <= 30_000
        with pytest.raises(JavaError, match="IllegalMonitorState"):
            same("unlock")
        assert waiter.waits and hold.state is snib.State.VALID
    hold.release()
    assert waiter.get() == "done"
    theirs("unlock")


# ---- Wake-up -------------------------------------------------------------------------------------


@TOLD
def test_java_wakes_at_once(
    cell: Cell, kind: str, java: JavaClient, server: SharedServer, client: snib.Client, name: str
) -> None:
    cell(kind, java, JAVA_WAITS)
    mine = make(client, kind, names(kind, name))
    theirs = java.object(AGAINST[kind], names(kind, name))
    late = []
    for _ in range(ROUNDS):
        hold = mine.hold()
        waiter = java_waits(server, name, theirs)
        begun = Waiting(hold.release)
        waiter.get()
        begun.get()
        late.append(waiter.at - begun.at)
        theirs("unlock")
    assert median(late) < AT_ONCE, late


@pytest.mark.parametrize("kind", ["mutex", "fair", "read", "write", "fenced"])
def test_java_wakes_at_once_without_a_thread(
    kind: str, newest: JavaClient, server: SharedServer, client: snib.Client, name: str
) -> None:
    """Redisson's asynchronous calls have separate waiting code."""
    mine = make(client, kind, name)
    theirs = newest.object(AGAINST[kind], name)
    late = []
    for number in range(ROUNDS):
        hold = mine.hold()
        waiter = java_listens(server, name, theirs, "lock_as", number, -1)
        begun = Waiting(hold.release)
        waiter.get()
        begun.get()
        late.append(waiter.at - begun.at)
        theirs("unlock_as", number)
    assert median(late) < AT_ONCE, late


@TOLD
def test_ours_wakes_at_once(
    cell: Cell, kind: str, java: JavaClient, server: SharedServer, slow: snib.Client, name: str
) -> None:
    cell(kind, java, SNIB_WAITS)
    theirs = java.object(kind, names(kind, name))
    mine = make(slow, AGAINST[kind], names(kind, name))
    late = []
    for _ in range(ROUNDS):
        theirs("lock", 30_000)
        taker = ours_waits(slow, mine)
        release = theirs.start("unlock")
        hold = taker.get()
        release.get()
        late.append(taker.at - release.at)
        hold.release()
    assert median(late) < AT_ONCE, late


# ---- Re-entry ------------------------------------------------------------------------------------


@KINDS
def test_java_reenters(
    cell: Cell, kind: str, java: JavaClient, client: snib.Client, name: str
) -> None:
    cell(kind, java, SNIB_WAITS)
    theirs = java.object(kind, names(kind, name))
    for _ in range(3):
        theirs("lock", 20_000)
    taker = ours_waits(client, make(client, AGAINST[kind], names(kind, name)))
    for _ in range(2):
        theirs("unlock")
        assert taker.waits
    theirs("unlock")
    taker.get().release()


@pytest.mark.parametrize("kind", ["mutex", "read", "write"])
def test_ours_reenters(
    cell: Cell, kind: str, java: JavaClient, server: SharedServer, client: snib.Client, name: str
) -> None:
    cell(kind, java, JAVA_WAITS)
    lock = client.rlock(name) if kind == "mutex" else make(client, kind, name)
    for _ in range(3):
        assert lock.acquire()
    theirs = java.object(AGAINST[kind], name)
    waiter = java_waits(server, name, theirs)
    for _ in range(2):
        lock.release()
        assert theirs.also()("try", 0, -1) == "false" and waiter.waits
    lock.release()
    waiter.get()
    theirs("unlock")


# ---- Force ---------------------------------------------------------------------------------------


# A forced reader's own lease stays until its end, by design.
@SINGLE
def test_ours_forces_java(
    cell: Cell, kind: str, java: JavaClient, server: SharedServer, client: snib.Client, gone: str
) -> None:
    cell(kind, java, SNIB_WAITS)
    theirs, waiter = java.object(kind, gone), java.object(AGAINST[kind], gone)
    theirs("lock", 20_000)
    waits = java_waits(server, gone, waiter)
    assert make(client, kind, gone).force_release()
    assert waits.get(15) == "done"
    with pytest.raises(JavaError, match="IllegalMonitorState"):
        theirs("unlock")
    waiter("unlock")
    assert not make(client, kind, gone).force_release()


@SINGLE
def test_java_forces_ours(
    cell: Cell, kind: str, java: JavaClient, server: SharedServer, client: snib.Client, gone: str
) -> None:
    cell(kind, java, JAVA_WAITS)
    hold = make(client, kind, gone).hold()
    with snib.connect(server.url) as other:
        taker = ours_waits(other, make(other, AGAINST[kind], gone))
        assert java.object(kind, gone)("force") == "true"
        taker.get(15).release()
    with pytest.raises(snib.Lost):
        hold.release()


# ---- Equal thread numbers ------------------------------------------------------------------------


@SINGLE
def test_equal_thread_numbers(
    cell: Cell, kind: str, java: JavaClient, server: SharedServer, client: snib.Client, name: str
) -> None:
    """The number alone does not make a client the owner."""
    cell(kind, java, JAVA_WAITS)
    hold = make(client, kind, name).hold()
    number = make(client, kind, name).info().owner.removesuffix(":write").rpartition(":")[2]
    theirs, against = java.object(kind, name), java.object(AGAINST[kind], name)
    assert against("try_as", number, 0, 20_000) == "false"
    with pytest.raises(JavaError, match="IllegalMonitorState"):
        theirs("unlock_as", number)
    waiter = against.start("lock_as", number, 20_000)
    hold.release()
    assert waiter.get() == "done"
    with pytest.raises(snib.Busy):
        make(client, kind, name).hold(timeout=0)
    against("unlock_as", number)

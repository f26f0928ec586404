"""Special features of the kinds: the fair lock's order, read and write together, rising tokens."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from typing import Any

import pytest
from ours import Waiting, make, ours_waits, taking
from peer import Call, JavaClient, JavaError, java_waits
from versions import JAVA_WAITS, SNIB_WAITS

import snib
from conftest import Cell, SharedServer
from support import Program, eventually

# ---- Turns ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["mutex", "write", "fenced"])
def test_both_have_turns(
    kind: str, newest: JavaClient, server: SharedServer, client: snib.Client, name: str
) -> None:
    """In tight loops on both sides Redisson gets its turns; only turns count, not speed."""
    over = threading.Event()
    turns = [0, 0, 0]

    def run(index: int) -> None:
        lock = make(client, kind, name)
        while not over.is_set():
            lock.hold().release()
            turns[index] += 1

    ours = [Waiting(lambda index=i: run(index)) for i in range(len(turns))]  # type: ignore[misc]
    try:
        eventually(lambda: all(turns))
        newest.object(kind, name)("turns", 10)  # starts threads, and loads and compiles classes
        had: list[int] = []
        while len(had) < 5 and not (had and had[-1] < 80 * 25):
            before = sum(turns)
            theirs = [newest.object(kind, name).start("turns", 40) for _ in range(2)]
            for call in theirs:
                assert call.get(120) == "done"
            had.append(sum(turns) - before)
    finally:
        over.set()
    for waiting in ours:
        waiting.get()
    # Usually three Snib turns for each of Redisson's; it used to be several hundred, each time.  A JVM that gets no
    # processor lets its turns pass, so one fair measurement counts.
    assert had[-1] < 80 * 25, f"{had} turns of ours for 80 of Redisson's each time"


# ---- Fair ----------------------------------------------------------------------------------------


def queue(server: SharedServer, name: str) -> list[str]:
    return list(server.admin.lrange(f"redisson_lock_queue:{{{name}}}", 0, -1))


@pytest.mark.parametrize("clients", [1, 4], ids=["one process", "four processes"])
def test_fair_order_in_a_mixed_queue(
    cell: Cell, clients: int, java: JavaClient, server: SharedServer, name: str
) -> None:
    """Four Redisson and four Snib waiters, alternating: served strictly in that order."""
    cell("fair", java, SNIB_WAITS)
    cell("fair", java, JAVA_WAITS)
    opened = [snib.connect(server.url) for _ in range(clients)]
    ours = itertools.cycle(opened)
    first = next(ours).fair_lock(name).hold()
    theirs = [java.object("fair", name) for _ in range(4)]
    waiting: list[Call | Waiting[Any]] = []
    for thing in theirs:
        waiting.append(java_joins(server, name, thing))
        waiting.append(we_join(server, name, next(ours)))
    first.release()
    for place, waiter in enumerate(waiting):
        value = waiter.get()
        others = waiting[place + 1 :]
        assert all(later.waits for later in others), f"place {place} was overtaken"
        if isinstance(waiter, Call):
            theirs[place // 2]("unlock")
        else:
            value.release()
    assert queue(server, name) == []
    assert not server.admin.exists(f"redisson_lock_timeout:{{{name}}}")
    for client in opened:
        client.close()


def java_joins(server: SharedServer, name: str, thing: Any, *call: Any) -> Call:
    length = len(queue(server, name))
    waiting = java_waits(server, name, thing, *call)
    eventually(lambda: len(queue(server, name)) == length + 1)
    return waiting


def we_join(server: SharedServer, name: str, client: snib.Client) -> Waiting[Any]:
    length = len(queue(server, name))
    waiter = ours_waits(client, client.fair_lock(name))
    eventually(lambda: len(queue(server, name)) == length + 1)
    return waiter


@pytest.mark.parametrize("call", [(), ("try", 20_000, -1)], ids=["lock", "tryLock"])
def test_fair_place_given_up(
    newest: JavaClient, server: SharedServer, client: snib.Client, name: str, call: tuple[Any, ...]
) -> None:
    """A Snib waiter that gives up leaves its place; a waiter behind it keeps its own, for as long as the holder's lease at
    least, because nobody moves it any more."""
    hold = client.fair_lock(name).hold()
    with snib.connect(server.url) as other:
        taker = Waiting(lambda: other.fair_lock(name).acquire(timeout=8))
        eventually(lambda: len(queue(server, name)) == 1)
        waiter = java_joins(server, name, newest.object("fair", name, "behind"), *call)
        assert taker.get() is False
        eventually(lambda: len(queue(server, name)) == 1)
        places = f"redisson_lock_timeout:{{{name}}}"
        (place,) = server.admin.zrange(places, 0, -1, withscores=True)
        assert place[1] - server.admin.time()[0] * 1000 > 15_000, "longer than what is left of an unrenewed lease"
        assert server.admin.pttl(places) == -1
        hold.release()
        assert waiter.get(15) == ("true" if call else "done")
    newest.object("fair", name, "behind")("unlock")


def test_fair_place_of_an_interrupted_thread(
    newest: JavaClient, server: SharedServer, client: snib.Client, name: str
) -> None:
    """The place stays until the lease that it saw and its wait are over; then Snib is next."""
    hold = client.fair_lock(name, lease=8.0).hold()
    theirs = newest.object("fair", name)
    waiter = java_waits(server, name, theirs, "try", 6_000, 20_000)
    with snib.connect(server.url) as other:
        taker = we_join(server, name, other)
        theirs.interrupt()
        with pytest.raises(JavaError, match="InterruptedException"):
            waiter.get()
        assert len(queue(server, name)) == 2
        hold.release()
        taker.get().release()


WAIT_IN_LINE = """
client = snib.connect(URL)
say("here")
client.fair_lock(sys.argv[2]).acquire()
"""


def test_fair_place_of_a_dead_process_of_ours(
    java: JavaClient, server: SharedServer, client: snib.Client, name: str
) -> None:
    """A Redisson waiter behind it is notified of the release, too.  It would otherwise sleep until the lease that it saw
    has ended."""
    hold = client.fair_lock(name, lease=600.0).hold()
    dying = Program(WAIT_IN_LINE, server.url, name)
    try:
        assert dying.hear() == "here"
        eventually(lambda: len(queue(server, name)) == 1)
        theirs = java.object("fair", name)
        waiter = java_joins(server, name, theirs)
    finally:
        dying.process.kill()
        dying.process.communicate()
    channel = f"redisson_lock__channel:{{{name}}}"
    eventually(lambda: not [one for one in server.admin.pubsub_channels(f"{channel}:*") if java.uuid not in one])
    hold.release()
    waiter.get(60)
    theirs("unlock")


def test_fair_place_of_a_vanished_process_of_ours(
    java: JavaClient, server: SharedServer, client: snib.Client, name: str
) -> None:
    """It is granted the lock, because its connection is still open.  A Redisson waiter behind it would sleep until the
    lease that it saw has ended, if it were not notified of the grant."""
    hold = client.fair_lock(name, lease=600.0).hold()
    vanishing = Program(WAIT_IN_LINE, server.url, name)
    try:
        assert vanishing.hear() == "here"
        eventually(lambda: len(queue(server, name)) == 1)
        theirs = java.object("fair", name)
        waiter = java_joins(server, name, theirs)
        vanishing.process.send_signal(signal.SIGSTOP)
        hold.release()
        waiter.get(60)
        theirs("unlock")
    finally:
        vanishing.process.kill()
        vanishing.process.communicate()


# ---- Read and write ------------------------------------------------------------------------------


def test_readers_of_both_share(
    cell: Cell, java: JavaClient, server: SharedServer, client: snib.Client, name: str
) -> None:
    cell("read", java, SNIB_WAITS)
    cell("read", java, JAVA_WAITS)
    ours = [client.rwlock(name).read.hold() for _ in range(2)]
    theirs = [java.object("read", name) for _ in range(2)]
    for thing in theirs:
        assert thing("try", 0, 20_000) == "true"
    writer = java.object("write", name)
    with snib.connect(server.url) as other:
        taker = ours_waits(other, other.rwlock(name).write)
        wants = writer.lock()
        for hold in ours:
            hold.release()
        theirs[0]("unlock")
        assert taker.waits and wants.waits
        theirs[1]("unlock")
        # One of the two writers, then the other.
        eventually(lambda: not (taker.waits and wants.waits))
        assert taker.waits or wants.waits
        if wants.waits:
            taker.get().release()
            wants.get()
            writer("unlock")
        else:
            writer("unlock")
            taker.get().release()


def test_our_downgrade_wakes_java(
    cell: Cell, java: JavaClient, server: SharedServer, client: snib.Client, name: str
) -> None:
    cell("write", java, JAVA_WAITS)
    lock = client.rwlock(name)
    assert lock.write.acquire()
    readers = [java.object("read", name) for _ in range(3)]
    waiters = [java_waits(server, name, reader) for reader in readers]
    assert lock.read.acquire()
    assert all(waiter.waits for waiter in waiters)
    lock.write.release()
    for waiter in waiters:
        waiter.get(15)  # long before any lease ends
    assert java.object("write", name)("try", 0, -1) == "false"
    lock.read.release()
    for reader in readers:
        reader("unlock")


def test_we_read_after_javas_downgrade(
    cell: Cell, java: JavaClient, server: SharedServer, client: snib.Client, name: str
) -> None:
    """Java's downgrade sends no message; Snib asks again after `recheck`, before the lease ends."""
    cell("write", java, SNIB_WAITS)
    writer = java.object("write", name)
    reader = java.object("read", name, writer.thread)
    writer("lock", 20_000)
    with snib.connect(server.url, recheck=0.3) as hasty:
        taker = ours_waits(hasty, hasty.rwlock(name).read)
        reader("lock", 20_000)
        writer("unlock")
        taker.get(15).release()
    note = "a downgrade by Redisson notifies nobody: Snib's readers come in with their next re-check"
    cell.differs("write", java, SNIB_WAITS, note)
    with client.rwlock(name).read.hold(timeout=0):
        assert java.object("write", name)("try", 0, -1) == "false"
    reader("unlock")


@pytest.mark.parametrize("side", ["read", "write"])
def test_java_cannot_miss_our_message(
    side: str, newest: JavaClient, server: SharedServer, client: snib.Client, name: str
) -> None:
    """Redisson's `wake all` misses a waiter that has been refused and is not asleep yet."""
    mine = make(client, side, name, lease=30.0)
    theirs = newest.object({"read": "write", "write": "read"}[side], name)
    channel = f"redisson_rwlock:{{{name}}}"
    late = []
    for number in range(80):
        hold = mine.hold()
        eventually(lambda: server.admin.pubsub_numsub(channel)[0][1] == 0)
        waiter = theirs.lock()
        while server.admin.pubsub_numsub(channel)[0][1] == 0:
            pass
        end = time.monotonic() + number % 20 * 60e-6
        while time.monotonic() < end:
            pass  # much shorter than a sleep
        begun = time.monotonic()
        hold.release()
        waiter.get()
        late.append(waiter.at - begun)
        theirs("unlock")
    assert max(late) < 15, f"{sum(one > 15 for one in late)} of {len(late)} missed it"


def test_java_cannot_upgrade_past_us(
    newest: JavaClient, server: SharedServer, client: snib.Client, name: str
) -> None:
    """Two readers that want to write: Snib's is refused at once, Redisson's waits for its
    release."""
    lock = client.rwlock(name)
    assert lock.read.acquire()
    with pytest.raises(snib.UpgradeRefused):
        lock.write.acquire()
    writer = newest.object("write", name)
    wants = java_waits(server, name, writer)
    lock.read.release()
    wants.get()
    writer("unlock")


# ---- Fenced --------------------------------------------------------------------------------------


def test_tokens_rise_across_languages(
    cell: Cell, java: JavaClient, server: SharedServer, client: snib.Client, name: str
) -> None:
    cell("fenced", java, SNIB_WAITS)
    cell("fenced", java, JAVA_WAITS)
    theirs, mine = java.object("fenced", name), client.fenced_lock(name)
    tokens = []
    for _ in range(3):
        tokens.append(int(theirs("lock_token")))
        theirs("unlock")
        with mine.hold() as hold:
            tokens.append(hold.token)
            assert int(theirs("token")) == hold.token
            assert mine.info().token == hold.token
    assert tokens == sorted(set(tokens)), tokens
    assert tokens[0] >= 1
    server.admin.delete(f"redisson_lock_token:{{{name}}}")


def test_tokens_rise_under_contention(
    newest: JavaClient, server: SharedServer, client: snib.Client, name: str
) -> None:
    """With both sides at once, the order of the tokens is that of the holds."""
    tokens: list[int] = []
    enough = threading.Event()

    def ours() -> None:
        while not enough.is_set():
            with client.fenced_lock(name).hold() as hold:
                tokens.append(hold.token)

    takers = [Waiting(ours) for _ in range(2)]
    theirs = newest.object("fenced", name)
    for _ in range(20):
        token = int(theirs("lock_token"))
        tokens.append(token)
        theirs("unlock")
    enough.set()
    for taker in takers:
        taker.get()
    assert tokens == sorted(set(tokens))
    assert len(tokens) > 20


def test_fenced_variants_share_the_counter(
    newest: JavaClient, client: snib.Client, name: str
) -> None:
    """Fair and write locks with tokens use the counter of Redisson's fenced lock."""
    tokens = []
    for lock in (client.fair_lock(name, fenced=True), client.rwlock(name, fenced=True).write):
        with lock.hold() as hold:
            tokens.append(hold.token)
        theirs = newest.object("fenced", name)
        tokens.append(int(theirs("lock_token")))
        theirs("unlock")
    assert tokens == sorted(set(tokens)) and len(tokens) == 4


# ---- Multi and quorum ----------------------------------------------------------------------------


def test_multi_waits_for_one_member(
    cell: Cell, java: JavaClient, server: SharedServer, client: snib.Client, name: str
) -> None:
    cell("multi", java, SNIB_WAITS)
    cell("multi", java, JAVA_WAITS)
    members = f"{name}a,{name}b,{name}c"
    middle = java.object("mutex", f"{name}b")
    middle("lock", 20_000)
    taker = ours_waits(client, make(client, "multi", members))
    middle("unlock")
    hold = taker.get()
    for member in members.split(","):
        assert java.object("mutex", member)("locked") == "true"
    hold.release()

    hold = client.lock(f"{name}b").hold()
    theirs = java.object("multi", members)
    waiter = java_waits(server, name, theirs)
    hold.release()
    waiter.get()
    with pytest.raises(snib.Busy):
        client.lock(f"{name}c").hold(timeout=0)
    theirs("unlock")


def test_red_lock_counts_our_mutexes(newest: JavaClient, client: snib.Client, name: str) -> None:
    """Redisson's red lock of three succeeds if Snib holds one of them, but not two."""
    members = f"{name}a,{name}b,{name}c"
    first, second = (client.lock(f"{name}{letter}").hold() for letter in "ab")
    red = newest.object("red", members)
    assert red("try", 200, 20_000) == "false"
    second.release()
    assert red("try", 20_000, 20_000) == "true"
    for letter in "bc":
        with pytest.raises(snib.Busy):
            client.lock(f"{name}{letter}").hold(timeout=0)
    first.check()
    red("unlock")
    first.release()


def test_quorum_on_three_servers(newest: JavaClient, new_server: Any) -> None:
    """Snib's quorum on three servers; a Java client of one of them sees an ordinary mutex."""
    servers = [new_server() for _ in range(3)]
    clients = [snib.connect(one.url) for one in servers]
    quorum = snib.QuorumLock([client.lock("q") for client in clients], quarantine=False)
    theirs = [
        newest.jvm.open(f"node{i}", one.port).object("mutex", "q") for i, one in enumerate(servers)
    ]
    with quorum.hold(timeout=30):
        eventually(lambda: all(thing("locked") == "true" for thing in theirs))
        assert all(thing("try", 0, -1) == "false" for thing in theirs)
    for thing in theirs[:2]:
        thing("lock", 20_000)
    with pytest.raises(snib.Error):
        quorum.hold(timeout=0)
    taker = taking(quorum)
    theirs[0]("unlock")
    hold = taker.get()
    assert theirs[0]("mine") == "false" and theirs[0]("locked") == "true"
    assert theirs[1]("mine") == "true"
    hold.release()
    theirs[1]("unlock")
    for client in clients:
        client.close()

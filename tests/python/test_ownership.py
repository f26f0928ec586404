"""An acquired lock belongs to client and name; a dropped hold is not released."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import gc
import pickle
import threading
import time
import warnings
from collections.abc import Awaitable, Callable, Iterator

import pytest

import snib
from snib import aio, fencing
from snib.opentelemetry import traced
from support import PATIENCE, RENEWED, Program, Server, brief, eventually, kept_clients

# Each creates a new object for the same lock.
KINDS: dict[str, Callable] = {
    "lock": lambda client: client.lock("name"),
    "rlock": lambda client: client.rlock("name"),
    "fair": lambda client: client.fair_lock("name"),
    "fenced": lambda client: client.fenced_lock("name"),
    "spin": lambda client: client.spin_lock("name"),
    "plain": lambda client: client.plain_lock("name"),
    "read": lambda client: client.rwlock("name").read,
    "write": lambda client: client.rwlock("name").write,
    "semaphore": lambda client: client.semaphore("name"),
    "permits": lambda client: client.permits("name"),
    "multi": lambda client: (snib if isinstance(client, snib.Client) else aio).MultiLock(
        [client.lock("name"), client.fair_lock("name too")]
    ),
}
COUNTED = ("semaphore", "permits")
LOSABLE = [kind for kind in KINDS if kind != "semaphore"]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, server: Server, client: snib.Client) -> Iterator[str]:
    """Counted kinds get one permit."""
    if request.param in COUNTED:
        KINDS[request.param](client).init(1)
    yield request.param
    if request.param in COUNTED:
        KINDS[request.param](client).force_release()
    for key in server.admin.keys("redisson_lock_token:*"):
        server.admin.delete(key)


def free(kind: str, client: snib.Client) -> bool:
    """Whether another client could get it now; for a read lock, as the writer."""
    other = KINDS["write" if kind == "read" else kind](client)
    if not other.acquire(blocking=False):
        return False
    other.release()
    return True


@pytest.fixture
def rival(server: Server) -> Iterator[snib.Client]:
    with snib.connect(server.url) as client:
        yield client


def test_acquire_belongs_to_the_client(client: snib.Client, rival: snib.Client, kind: str) -> None:
    if KINDS[kind](client).acquire(timeout=PATIENCE):  # the object has gone when the body begins
        gc.collect()
        assert not free(kind, rival)
        if kind in ("rlock", "read", "write"):
            assert KINDS[kind](client).acquire()
            KINDS[kind](client).release()
            assert not free(kind, rival)
        KINDS[kind](client).release()
    assert free(kind, rival)
    with pytest.raises(snib.NotHeld, match="name") as caught:
        KINDS[kind](client).release()
    assert caught.value.name and caught.value.kind == KINDS[kind](client).kind


def test_a_client_stays_while_something_is_acquired(server: Server, rival: snib.Client) -> None:
    assert snib.connect(server.url).lock("name").acquire()
    gc.collect()
    assert not free("lock", rival)
    rival.lock("name").force_release()


def test_kinds_and_names_and_clients_are_told_apart(client: snib.Client, rival: snib.Client) -> None:
    assert client.lock("name").acquire()
    for other in [
        client.lock("other"),
        client.fair_lock("name"),
        client.rlock("name"),
        client.plain_lock("name"),
        rival.lock("name"),
        snib.MultiLock([client.lock("name")]),
    ]:
        with pytest.raises(snib.NotHeld):
            other.release()
    client.lock("name", lease=5, max_hold=60).release()


def test_members_have_no_order(client: snib.Client, rival: snib.Client) -> None:
    def locks() -> list[snib.Lock]:
        return [client.lock("name"), rival.lock("other")]

    assert snib.MultiLock(locks()).acquire()
    with pytest.raises(snib.NotHeld):
        snib.MultiLock([rival.lock("name"), client.lock("other")]).release()
    snib.MultiLock(reversed(locks())).release()


def test_with_and_acquire_mix_as_threading_does(client: snib.Client) -> None:
    lock = client.lock("name")
    with lock:
        client.lock("name").release()
        assert lock.acquire(blocking=False)
    assert not lock.locked()
    with pytest.raises(snib.NotHeld), lock:
        lock.release()
    with pytest.raises(ZeroDivisionError), lock:
        lock.release()
        raise ZeroDivisionError


def test_the_end_of_a_block_takes_nothing_of_another_thread(client: snib.Client, kind: str) -> None:
    """Where the body has released the block's own hold, and another thread has the lock since."""
    lock = KINDS[kind](client)
    taken, ended = threading.Event(), threading.Event()
    holds: list[snib.Hold] = []
    failures: list[BaseException] = []

    def work() -> None:
        try:
            with lock as hold:
                holds.append(hold)
                taken.set()
                assert ended.wait(PATIENCE)
        except BaseException as error:
            failures.append(error)
            taken.set()

    thread = threading.Thread(target=work)
    try:
        with pytest.raises(snib.NotHeld, match="by this block any more"), lock:
            lock.release()
            thread.start()
            assert taken.wait(PATIENCE)
        assert holds[0].state is snib.State.VALID
    finally:
        ended.set()
        thread.join()
    assert not failures and client.stats().held == 0


def test_threads_hand_over_through_their_own_objects(client: snib.Client) -> None:
    """Each release finds exactly one hold, through whichever object."""
    turns = []

    def work() -> None:
        for _ in range(50):
            assert client.lock("name").acquire(timeout=PATIENCE)
            turns.append(1)
            thread = threading.Thread(target=client.lock("name").release)
            thread.start()
            thread.join()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(turns) == 200 and not client.lock("name").locked()


def test_the_table_forgets(client: snib.Client) -> None:
    from snib import _kept

    for number in range(500):
        lock = client.lock(f"name{number}")
        with lock:
            pass
    del lock
    gc.collect()
    assert not [key for key in _kept._names if key[0] == client._number]
    assert client._number not in kept_clients()
    lock = client.lock("name")
    lock.acquire()
    assert client._number in kept_clients()
    client.close()
    assert client._number not in kept_clients()
    with pytest.raises(snib.NotHeld):
        lock.release()


def test_objects_of_one_lock_share_one_entry() -> None:
    """However many threads create objects at once, while others drop theirs."""
    from snib import _kept

    for round in range(300):
        found = []
        barrier = threading.Barrier(4)

        def find(key: object = ("race", round)) -> None:
            barrier.wait()
            for _ in range(20):
                _kept.kept_for(-1, key)
            found.append(_kept.kept_for(-1, key))

        threads = [threading.Thread(target=find) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 4
        assert len({*map(id, found)}) == 1
    found.clear()
    gc.collect()
    assert not [key for key in _kept._names if key[0] == -1]


def test_leaders_of_three_processes(server: Server) -> None:
    """Leader election: the object is dropped, the lock stays."""
    source = """
client = snib.connect(URL)
leader = False
if client.lock("leader").acquire(timeout=0.2):
    leader = True
import gc; gc.collect()
say("leader" if leader else "follower")
sys.stdin.readline()
if leader: client.lock("leader").release()
client.close()
"""
    programs = [Program(source, server.url) for _ in range(3)]
    assert sorted(program.hear() for program in programs) == ["follower", "follower", "leader"]
    for program in programs:
        program.tell()
        program.end()


# ---- Dropped holds -------------------------------------------------------------------------------


def drop(holds: list, kind: str, rival: snib.Client) -> None:
    """Drop the last of the holds, and check that the rival does not get the lock because of that."""
    remaining, start = holds[-1].remaining(), time.monotonic()
    with pytest.warns(ResourceWarning, match="a hold of 'name.*dropped, not released"):
        holds.pop()
        gc.collect()
    if time.monotonic() - start < remaining / 2:  # otherwise the lease has already ended
        assert not free(kind, rival), kind


def freed(kinds: dict[str, snib.Client]) -> None:
    """Dropped holds become free with their leases, except semaphore permits, which have no lease."""
    KINDS["semaphore"](kinds["semaphore"]).put_back()
    eventually(lambda: all(free(kind, rival) for kind, rival in kinds.items()))


@pytest.fixture
def rivals(server: Server) -> Iterator[dict[str, snib.Client]]:
    """A client per kind, each in its own database, so that tests of all kinds wait for one lease."""
    with contextlib.ExitStack() as stack:
        rivals = {
            kind: stack.enter_context(snib.connect(f"{server.url}&db={number}"))
            for number, kind in enumerate(KINDS)
        }
        for kind in COUNTED:
            KINDS[kind](rivals[kind]).init(1)
        yield rivals
    server.admin.flushall()


def test_a_dropped_hold_is_not_released(server: Server, rivals: dict[str, snib.Client]) -> None:
    with contextlib.ExitStack() as stack:
        for number, kind in enumerate(KINDS):
            client = stack.enter_context(snib.connect(f"{server.url}&db={number}", lease=RENEWED))
            drop([KINDS[kind](client).hold()], kind, rivals[kind])
            assert client.stats().abandoned >= 1
        freed(rivals)


@pytest.mark.parametrize(("kind", "what"), [("permits", "its lease runs out"), ("semaphore", "its permits stay taken")])
def test_the_warning_says_what_becomes_of_it(client: snib.Client, kind: str, what: str) -> None:
    pool = KINDS[kind](client)
    pool.init(1)
    hold = pool.hold()
    with pytest.warns(ResourceWarning, match=f"'name' was dropped, not released; {what}$"):
        del hold
    pool.force_release()


def test_the_warning_says_where(client: snib.Client) -> None:
    import tracemalloc

    tracemalloc.start()
    try:
        hold = client.lock("name").hold()
    finally:
        tracemalloc.stop()
    with pytest.warns(ResourceWarning, match=r"'name', acquired at .*test_ownership\.py:\d+, was"):
        del hold
    client.lock("name").force_release()


def test_what_is_over_goes_without_a_warning(server: Server) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with snib.connect(server.url) as client:
            client.lock("released").hold().release()
            with client.lock("with").hold():
                pass
            hold = brief(client.lock("lost", lease=0.2))
            assert hold.lost.wait(PATIENCE)
            del hold
            hold = client.lock("closed").hold()
        del hold
        gc.collect()


def test_a_forked_child_does_not_warn(server: Server) -> None:
    program = Program(
        """
import gc, warnings
warnings.simplefilter("error")
client = snib.connect(URL)
hold = client.lock("name").hold()
if os.fork() == 0:
    del hold
    gc.collect()
    os._exit(0)
say(os.waitstatus_to_exitcode(os.wait()[1]))
hold.release()
""",
        server.url,
    )
    assert program.hear() == "0"
    program.rest()  # 3.12 warns of the fork itself
    assert program.process.returncode == 0


# ---- asyncio -------------------------------------------------------------------------------------


def test_asyncio_acquire_belongs_to_the_client(
    server: Server, rival: snib.Client, kind: str
) -> None:
    async def main() -> None:
        async with aio.connect(server.url) as client:
            if await KINDS[kind](client).acquire(timeout=PATIENCE):
                gc.collect()
                assert not free(kind, rival)
                await KINDS[kind](client).release()
            assert free(kind, rival)
            with pytest.raises(snib.NotHeld, match="name"):
                await KINDS[kind](client).release()

    asyncio.run(main())


def test_asyncio_a_dropped_hold_is_not_released(
    server: Server, rivals: dict[str, snib.Client]
) -> None:
    async def main() -> None:
        for number, kind in enumerate(KINDS):
            async with aio.connect(f"{server.url}&db={number}", lease=RENEWED) as client:
                drop([await KINDS[kind](client).hold()], kind, rivals[kind])
                assert client.stats().abandoned >= 1

    asyncio.run(main())
    freed(rivals)


def test_the_caller_is_who_calls_not_who_awaits(server: Server) -> None:
    """A task created for a call, as by wait_for() up to 3.11, acquires for the calling task."""

    async def main() -> None:
        async with aio.connect(server.url) as client:
            lock = client.rlock("name")
            assert await asyncio.create_task(lock.acquire())
            assert await asyncio.wait_for(lock.acquire(), PATIENCE)
            await asyncio.gather(lock.acquire(), lock.acquire())
            hold = await asyncio.wait_for(lock.hold(), PATIENCE)
            await hold.release()
            for _ in range(3):
                await lock.release()
            await asyncio.create_task(lock.release())
            assert not await lock.locked()

            async def other() -> None:
                assert await lock.acquire(blocking=False) is False

            async with lock:
                await asyncio.create_task(other())

    asyncio.run(main())


def test_the_end_of_a_block_takes_nothing_of_another_task(server: Server, kind: str) -> None:
    async def main() -> None:
        async with aio.connect(server.url) as client:
            lock = KINDS[kind](client)
            taken, ended = asyncio.Event(), asyncio.Event()
            holds: list[aio.Hold] = []

            async def work() -> None:
                async with lock as hold:
                    holds.append(hold)
                    taken.set()
                    await ended.wait()

            async def release() -> None:
                async with lock:
                    await lock.release()
                    tasks.append(asyncio.ensure_future(work()))
                    await asyncio.wait_for(taken.wait(), PATIENCE)

            tasks: list[asyncio.Future[None]] = []
            try:
                with pytest.raises(snib.NotHeld, match="by this block any more"):
                    await release()
                assert holds[0].state is snib.State.VALID
            finally:
                ended.set()
            await tasks[0]
            assert client.stats().held == 0

    asyncio.run(main())


@pytest.mark.parametrize("make", [lambda lock: lock.hold(), lambda lock: traced(lock).hold()], ids=["hold", "traced"])
def test_what_asyncio_has_wrapped_was_used(server: Server, make: Callable[[aio.Lock], Awaitable[object]]) -> None:
    """Its task may be cancelled before the first step; that is no forgotten await, which is warned of."""

    async def main() -> None:
        async with aio.connect(server.url) as client:
            lock = client.lock("name")
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(make(lock), 0)
            for waiting in (asyncio.ensure_future(make(lock)), asyncio.gather(make(lock), make(lock))):
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
            assert not await lock.locked()

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always", RuntimeWarning)
        asyncio.run(main())
        gc.collect()
    assert not [warning for warning in seen if warning.category is RuntimeWarning]


def test_a_release_in_another_loop_ends_waiting_for_the_loss(server: Server) -> None:
    async def main() -> None:
        async with aio.connect(server.url) as client:
            hold = await client.lock("name").hold()
            wait = asyncio.create_task(hold.lost.wait())
            await asyncio.sleep(0)
            thread = threading.Thread(target=lambda: asyncio.run(hold.release()))
            thread.start()
            assert await asyncio.wait_for(wait, PATIENCE) is False
            thread.join()
            waits = client._loop().losses
            assert not waits, "watchers are left"

    asyncio.run(main())


def test_nothing_is_copied_or_pickled(client: snib.Client) -> None:
    """Dropping a copy of a hold would abandon its lock."""
    for lock in (client.lock("x"), snib.MultiLock([client.lock("x"), client.lock("y")])):
        with lock.hold(timeout=0) as hold:
            for thing in (client, lock, hold, snib.Queue(client)):
                for copied in (copy.copy, copy.deepcopy, pickle.dumps):
                    with pytest.raises(TypeError, match="cannot be copied or pickled"):
                        copied(thing)
            assert hold.state is snib.State.VALID


def test_no_holding_is_copied(server: Server) -> None:
    async def main() -> None:
        async with snib.aio.connect(server.url) as client:
            holding = client.lock("x").hold()
            for copied in (copy.copy, copy.deepcopy, pickle.dumps):
                with pytest.raises(TypeError, match="cannot be copied or pickled"):
                    copied(holding)
            async with holding:
                pass

    asyncio.run(main())


def test_no_fence_is_copied() -> None:
    """The copy would let tokens pass that are older than those the other one has seen."""
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            copied(fencing.Fence())

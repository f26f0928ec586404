"""All kinds of locks for asyncio, against a real server."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterator

import pytest

import snib
from conftest import NewServer
from snib import aio
from support import PATIENCE, Server, brief_in_task, eventually
from test_aio import run, soon  # noqa: F401

Make = Callable[..., aio.Lock | aio.RLock]

KINDS: dict[str, Make] = {
    "lock": lambda client, name, **options: client.lock(name, **options),
    "rlock": lambda client, name, **options: client.rlock(name, **options),
    "fair": lambda client, name, **options: client.fair_lock(name, **options),
    "fair fenced": lambda client, name, **options: client.fair_lock(name, fenced=True, **options),
    "fenced": lambda client, name, **options: client.fenced_lock(name, **options),
    "spin": lambda client, name, **options: client.spin_lock(name, **options),
    "plain": lambda client, name, **options: client.plain_lock(name, **options),
    "read": lambda client, name, **options: client.rwlock(name, **options).read,
    "write": lambda client, name, **options: client.rwlock(name, **options).write,
    "multi": lambda client, name, **options: aio.MultiLock(
        [client.lock(name), client.fair_lock(name + " too")], **options
    ),
}
FENCED = ["fair fenced", "fenced"]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(autouse=True)
def no_tokens_left(server: Server) -> Iterator[None]:
    """Only the counters of fencing tokens may stay."""
    yield
    for key in server.admin.keys("redisson_lock_token:*"):
        server.admin.delete(key)


def opposite(kind: str, client: aio.Client, name: str) -> aio.Lock | aio.RLock:
    """A lock that a holder of this kind excludes."""
    return KINDS["write" if kind == "read" else kind](client, name)


def test_each_kind(server: Server, run, kind: str) -> None:  # noqa: F811
    async def main() -> None:
        async with aio.connect(server.url) as client, aio.connect(server.url) as other:
            lock, rival = KINDS[kind](client, "name"), opposite(kind, other, "name")
            async with lock as hold:
                assert isinstance(hold, aio.Hold)
                assert 25 < hold.remaining() <= 30
                assert (hold.token > 0) is (kind in FENCED)
                hold.check()
                assert await lock.locked()
                assert await rival.acquire(False) is False
                with pytest.raises(snib.Busy):
                    await rival.hold(timeout=0)
                with pytest.raises(snib.Timeout):
                    await rival.hold(timeout=0.02)

                async def wait() -> bool:
                    return await rival.acquire()

                waiter = asyncio.ensure_future(wait())
                await soon(lambda: other.stats().waiting)
            assert await asyncio.wait_for(waiter, PATIENCE) is True
            if kind in ("rlock", "read", "write"):
                with pytest.raises(snib.NotHeld):
                    await rival.release()  # it belongs to the waiter's task
            await other.close()
            assert not await lock.locked()
            with pytest.raises(snib.NotHeld):
                await lock.release()
            assert repr(lock) == f"<snib.aio.{type(lock).__name__} {lock.name!r}>"

    run(main())


def test_each_kind_is_lost(server: Server, run, kind: str) -> None:  # noqa: F811
    async def main() -> None:
        async with aio.connect(server.url) as client:
            hold = await brief_in_task(KINDS[kind](client, "lost", lease=0.6))
            assert await hold.lost.wait() is True
            assert hold.reason == "expired"
            with pytest.raises(snib.Lost):
                await hold.release()

    run(main())


def test_cancel_leaves_nothing(server: Server, run, kind: str) -> None:  # noqa: F811
    """Tasks that are cancelled after a random number of loop turns, on held and free names."""
    seed = random.randrange(2**32)
    print("seed", seed)
    dice = random.Random(seed)

    async def main() -> None:
        async with aio.connect(server.url) as client:

            async def work() -> None:
                async with KINDS[kind](client, f"name{dice.randrange(3)}") as hold:
                    hold.check()
                    await asyncio.sleep(0)

            async def several() -> None:
                for _ in range(30):
                    task = asyncio.ensure_future(work())
                    for _ in range(dice.randrange(12)):
                        await asyncio.sleep(0 if dice.randrange(4) else 0.001)
                    task.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await task

            await asyncio.wait_for(asyncio.gather(*(several() for _ in range(10))), 600)
            await soon(lambda: client.stats().held == client.stats().waiting == 0)
            await soon(lambda: not server.admin.keys("name*"))

    run(main())


# ---- Readers and writers -------------------------------------------------------------------------


def test_readers_and_writers(server: Server, run) -> None:  # noqa: F811
    async def main() -> None:
        async with aio.connect(server.url) as client:
            rwlock = client.rwlock("rw", fenced=True)
            assert repr(rwlock) == "<snib.aio.RWLock 'rw'>"
            readers = 0

            async def read() -> None:
                nonlocal readers
                async with rwlock.read:
                    readers += 1
                    while readers < 3:
                        await asyncio.sleep(0.001)

            await asyncio.wait_for(asyncio.gather(*(read() for _ in range(3))), PATIENCE)
            async with rwlock.write as hold:
                assert hold.token > 0
                async with rwlock.write as inner:
                    assert inner.token == hold.token
                await rwlock.read.acquire()

            async def other() -> bool:
                return await rwlock.write.acquire(False)

            assert await asyncio.ensure_future(other()) is False, "the writer became a reader"
            with pytest.raises(snib.UpgradeRefused):
                await rwlock.write.acquire()
            await rwlock.read.release()
            assert not await rwlock.read.locked()
            with pytest.raises(TypeError):
                client.rwlock("x", fenced=1)  # type: ignore[arg-type]

    run(main())


def test_fair_is_first_come_first_served(server: Server, run) -> None:  # noqa: F811
    async def main() -> None:
        async with aio.connect(server.url) as client, aio.connect(server.url) as other:
            order = []

            async def work(who: aio.Client, number: int) -> None:
                async with who.fair_lock("fair"):
                    order.append(number)

            async with client.fair_lock("fair"):
                tasks = []
                for number, who in enumerate([other, client]):
                    tasks.append(asyncio.ensure_future(work(who, number)))
                    while len((await client.describe("fair")).waiters) <= number:
                        await asyncio.sleep(0.002)
            await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE)
            assert order == [0, 1]

    run(main())


# ---- Permits, semaphores, latches ----------------------------------------------------------------


@pytest.mark.parametrize("kind", ["semaphore", "permits"])
def test_permits(server: Server, run, kind: str) -> None:  # noqa: F811
    async def main() -> None:
        async with aio.connect(server.url) as client:
            pool = getattr(client, kind)("pool")
            assert await pool.available() == 0 and await pool.locked()
            assert await pool.init(3) is True and await pool.init(4) is False
            async with pool as hold:
                assert isinstance(hold, aio.Hold) and hold.remaining() > 25
                async with pool.hold(n=2):
                    assert await pool.available() == 0
                    assert await pool.acquire(False) is False
                    assert await pool.acquire(timeout=0.02) is False
                    with pytest.raises(snib.Busy):
                        await pool.hold(timeout=0)
                    waiter = asyncio.ensure_future(pool.acquire(n=2))
                    await soon(lambda: client.stats().waiting)
                assert await asyncio.wait_for(waiter, PATIENCE) is True
                await pool.release()  # even permits that another task took
            assert await pool.available() == 3
            with pytest.raises(snib.NotHeld):
                await pool.release()
            assert await pool.add(2) == 5 and await pool.add(-5) == 0
            if kind == "permits":
                assert await pool.set(6) == 6 and await pool.total() == 6
                with pytest.raises(snib.InvalidPermits):
                    await pool.acquire(n=7)
            else:
                assert await pool.put_back(6) == 6 and await pool.drain() == 6
            for n in [0, -1, 1001, 2**31, 2**32 + 1, 2**64]:
                with pytest.raises(snib.InvalidPermits):
                    await pool.acquire(n=n)
                with pytest.raises(snib.InvalidPermits):
                    await pool.hold(n=n)
            for n in [True, 1.0, "1", None]:
                for call in [lambda n: pool.acquire(n=n), pool.init, pool.add]:
                    with pytest.raises(TypeError):
                        await call(n)
                with pytest.raises(TypeError):
                    pool.hold(n=n)
            assert await pool.force_release() is True

    run(main())


def test_each_task_gives_back_its_own_permits(server: Server, run) -> None:  # noqa: F811
    async def main() -> None:
        async with aio.connect(server.url) as client:
            pool = client.permits("pool")
            await pool.init(3)
            await pool.acquire(n=2)
            taken, go = asyncio.Event(), asyncio.Event()

            async def other() -> None:
                await pool.acquire()
                taken.set()
                await go.wait()

            task = asyncio.ensure_future(other())
            await taken.wait()
            await pool.release()
            assert await pool.available() == 2
            go.set()
            await task
            await pool.release()
            assert await pool.available() == 3
            await pool.force_release()

    run(main())


def test_release_in_a_block_is_of_what_acquire_took(server: Server, run) -> None:  # noqa: F811
    async def main() -> None:
        async with aio.connect(server.url) as client:
            pool = client.permits("name")
            await pool.init(3)
            assert await pool.acquire(n=2)
            async with pool as hold:
                await pool.release()
                hold.check()
                assert await pool.available() == 2
            assert await pool.available() == 3
            await pool.force_release()

    run(main())


@pytest.mark.parametrize("kind", ["semaphore", "permits"])
def test_cancel_gives_permits_back(server: Server, run, kind: str) -> None:  # noqa: F811
    async def main() -> None:
        async with aio.connect(server.url) as client:
            pool = getattr(client, kind)("pool")
            await pool.init(2)

            async def work() -> None:
                async with pool:
                    await asyncio.sleep(0)

            for turns in range(100):
                task = asyncio.ensure_future(work())
                for _ in range(turns % 8):
                    await asyncio.sleep(0 if turns % 3 else 0.001)
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
            await soon(lambda: client.stats().held == client.stats().waiting == 0)
            while await pool.available() != 2:
                await asyncio.sleep(0.002)
            await pool.force_release()

    run(asyncio.wait_for(main(), 600))


def test_a_latch(server: Server, run) -> None:  # noqa: F811
    async def main() -> None:
        async with aio.connect(server.url) as client:
            latch = client.latch("start")
            assert await latch.count() == 0 and await latch.wait() is True
            assert await latch.init(2) is True and await latch.init(2) is False
            assert await latch.wait(0) is False and await latch.wait(0.02) is False
            waiters = [asyncio.ensure_future(latch.wait(PATIENCE)) for _ in range(3)]
            cancelled = asyncio.ensure_future(latch.wait())
            await soon(lambda: client.stats().waiting == 4)
            cancelled.cancel()
            assert await latch.count_down() == 1
            assert await latch.count_down() == 0
            assert await asyncio.gather(*waiters) == [True] * 3
            for n in [0, -1, 2**31, 2**64]:
                with pytest.raises(snib.InvalidPermits):
                    await latch.init(n)
            with pytest.raises(TypeError):
                await latch.init(True)

    run(main())


# ---- Several -------------------------------------------------------------------------------------


def test_bad_members(server: Server, run) -> None:  # noqa: F811
    async def main() -> None:
        async with aio.connect(server.url) as client, aio.connect(server.url) as closed:
            lock, theirs = client.lock("a"), closed.lock("b")
            await closed.close()
            with snib.connect(server.url) as threads:
                for error, members in [
                    (snib.InvalidArgument, []),
                    (snib.InvalidArgument, [lock, lock]),
                    (snib.InvalidArgument, [lock, client.latch("l")]),
                    (snib.Closed, [lock, theirs]),
                    (TypeError, [lock, threads.lock("b")]),
                    (TypeError, [lock, "b"]),
                ]:
                    with pytest.raises(error):
                        aio.MultiLock(members)
            with pytest.raises(snib.InvalidArgument):
                aio.QuorumLock([lock])
            with pytest.raises(snib.InvalidLease):
                aio.MultiLock([lock], lease=0)

    run(main())


def test_a_quorum(new_server: NewServer, run) -> None:  # noqa: F811
    servers = [new_server() for _ in range(3)]

    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:

            async def quorum() -> aio.QuorumLock:
                clients = [
                    await stack.enter_async_context(aio.connect(each.url))
                    for each in servers
                ]
                members = [client.lock("vault") for client in clients]
                return aio.QuorumLock(members, lease=10, quarantine=False)

            one, two = await quorum(), await quorum()
            async with one as hold:
                assert 0 < hold.remaining() < 10
                assert await two.acquire(timeout=0.1) is False
                assert await two.locked()
                waiter = asyncio.ensure_future(two.acquire())
                await asyncio.sleep(0.05)
            assert await asyncio.wait_for(waiter, PATIENCE) is True
            await two.release()
            assert not await one.locked()

    run(main())
    eventually(lambda: all(each.clean() for each in servers))


def test_describe(server: Server, run) -> None:  # noqa: F811
    async def main() -> None:
        async with aio.connect(server.url) as client:
            assert await client.describe("thing") == aio.Description("thing", "free", waiting=0)
            async with client.lock("thing") as hold:
                found = await client.describe("thing")
                assert found.kind == "mutex" and found.holders[0].owner == hold.owner
            with pytest.raises(snib.InvalidName):
                await client.describe("")

    run(main())

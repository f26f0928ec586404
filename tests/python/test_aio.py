"""The asyncio surface against a real server."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random
import select
import threading
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import uvloop

import snib
from conftest import NewServer
from snib import _core, aio
from support import PATIENCE, RENEWED, Server, eventually, thread_count

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest):
    """Run a coroutine in a new loop of each kind."""

    def in_new_loop(main: Awaitable[object]) -> None:
        loop = LOOPS[request.param]()
        try:
            loop.run_until_complete(main)
        finally:
            loop.close()

    return in_new_loop


async def soon(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.002)


def test_the_surface(server: Server, run) -> None:
    async def main() -> None:
        async with aio.connect(server.url) as client:
            await client.ping()
            lock, other = client.lock("orders"), client.lock("orders")
            async with lock as hold:
                assert isinstance(hold, aio.Hold)
                assert hold.state is snib.State.VALID
                assert 25 < hold.remaining() <= 30
                assert hold.owner.startswith(client.id + ":")
                hold.check()
                assert await lock.locked()
                assert await client.list() == ["orders"]
                assert await other.acquire(False) is False
                assert await other.acquire(timeout=0.05) is False
                with pytest.raises(snib.Busy):
                    await other.hold(timeout=0)
                with pytest.raises(snib.Timeout):
                    async with other.hold(timeout=0.05):
                        pytest.fail("ran unlocked")
                assert client.stats().held == 1
            assert hold.state is snib.State.RELEASED
            assert await lock.info() == snib.LockInfo(False, 0.0, 0, 0, False, "")
            with pytest.raises(snib.NotHeld):
                await hold.release()
            with pytest.raises(snib.NotHeld):
                await lock.release()
            assert await lock.acquire() is True
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(other.acquire(), 0.05)
            await lock.release()
            hold = await lock.hold(timeout=1)
            assert (await other.info()).owner == hold.owner
            assert await other.force_release() is True
            assert await other.force_release() is False
            with pytest.raises(snib.Lost):
                await hold.release()

    run(main())


def test_plain_connect_and_close(server: Server, run) -> None:
    async def main() -> None:
        client = snib.aio.connect(server.url)
        hold = await client.lock("plain").hold()
        waiter = asyncio.ensure_future(client.lock("plain").acquire())
        await soon(lambda: client.stats().waiting)
        await client.close()
        assert server.clean()
        with pytest.raises(snib.Closed):
            await waiter
        assert hold.lost.is_set() and hold.reason == "closed"
        with pytest.raises(snib.Closed):
            await client.ping()
        await client.close()

    run(main())


def test_tasks_exclude_each_other(server: Server, run) -> None:
    async def main() -> None:
        async with aio.connect(server.url) as client:
            lock = client.lock("counter")
            inside = turns = 0

            async def work() -> None:
                nonlocal inside, turns
                for _ in range(20):
                    async with lock:
                        inside += 1
                        assert inside == 1
                        await asyncio.sleep(0)
                        turns += 1
                        inside -= 1

            await asyncio.gather(*(work() for _ in range(20)))
            assert turns == 400

    run(main())


def test_another_task_may_release(server: Server, run) -> None:
    async def main() -> None:
        async with aio.connect(server.url) as client:
            lock = client.lock("handed")
            await asyncio.ensure_future(lock.acquire())
            await lock.release()
            assert not await lock.locked()

    run(main())


def test_each_task_gives_back_its_own_hold(server: Server, run) -> None:
    async def main() -> None:
        async with aio.connect(server.url, lease=RENEWED) as client:
            lock = client.lock("own")

            async def other() -> None:
                assert await lock.acquire(timeout=PATIENCE)
                await lock.release()

            await lock.acquire()
            server.admin.delete("own")
            await asyncio.ensure_future(other())
            with pytest.raises(snib.Lost):
                await lock.release()

    run(main())


def test_rlock_belongs_to_its_task(server: Server, run) -> None:
    async def main() -> None:
        async with aio.connect(server.url) as client:
            lock = client.rlock("mine")
            async with lock as outer, lock as inner:
                assert outer.owner == inner.owner
                assert await lock.acquire() is True
                await lock.release()

                async def other() -> None:
                    assert await lock.acquire(timeout=0.05) is False
                    with pytest.raises(snib.NotHeld):
                        await lock.release()

                await asyncio.ensure_future(other())
                outer.check()
            assert not await lock.locked()
            assert client.stats().reentries == 2

    run(main())


@pytest.mark.parametrize("kind", ["rlock", "write"])
def test_tasks_that_share_what_hold_returned_exclude_each_other(server: Server, run, kind: str) -> None:
    """The owner of a block is the task that enters it, whoever called hold()."""

    async def main() -> None:
        async with aio.connect(server.url) as client:
            lock: Any = client.rlock("mine") if kind == "rlock" else client.rwlock("mine").write
            guard, inside = lock.hold(timeout=PATIENCE), 0

            async def work() -> None:
                nonlocal inside
                async with guard:
                    inside += 1
                    assert inside == 1
                    await asyncio.sleep(0.01)
                    inside -= 1

            await asyncio.gather(*(work() for _ in range(3)))
            assert client.stats().reentries == 0

    run(main())


def test_a_loss_is_awaited(server: Server, run) -> None:
    async def main() -> None:
        async with aio.connect(server.url) as client:
            hold = await client.lock("lost", lease=RENEWED).hold()
            waits = [asyncio.ensure_future(hold.lost.wait()) for _ in range(3)]
            assert not hold.lost.is_set()
            await soon(lambda: not server.admin.exists("lost"))
            assert hold.lost.is_set(), "the key has ended before the hold"
            assert await asyncio.gather(*waits) == [True, True, True]
            assert hold.reason == "expired"
            assert await hold.lost.wait() is True
            with pytest.raises(snib.Lost):
                async with client.lock("other", lease=2) as other:
                    await other.lost.wait()

    run(main())
    eventually(server.clean)


def test_a_released_reentry_is_released(server: Server, run) -> None:
    async def main() -> None:
        async with aio.connect(server.url) as client:
            lock = client.rlock("again")
            async with lock as outer:
                waiting = asyncio.ensure_future(outer.lost.wait())
                async with lock as inner:
                    inner.check()
                    ending = asyncio.ensure_future(inner.lost.wait())
                    await asyncio.sleep(0)
                assert await asyncio.wait_for(ending, PATIENCE) is False
                assert inner.state is snib.State.RELEASED and inner.remaining() == 0.0
                with pytest.raises(snib.NotHeld, match="released before"):
                    inner.check()
                with pytest.raises(snib.NotHeld, match="released before"):
                    await inner.extend(5.0)
                assert await inner.lost.wait() is False
                outer.check()
                await asyncio.sleep(0.01)
                assert not waiting.done()
            assert await waiting is False

    run(main())


def test_a_release_that_could_not_begin_may_be_repeated(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as in another loop, when there is no descriptor left for it."""
    with snib.connect(server.url) as other:
        client = aio.connect(server.url)

        async def hold() -> aio.Hold:
            return await client.lock("name").hold()

        async def release(held: aio.Hold) -> None:
            with monkeypatch.context() as patch, pytest.raises(OSError):
                patch.setattr(client, "_make_loop", fail)
                await held.release()
            held.check()
            await held.release()
            await client.close()

        def fail(running: object) -> None:
            raise OSError("no descriptor left")

        held = asyncio.run(hold())
        asyncio.run(release(held))
        assert not other.lock("name").locked()


def test_a_release_ends_waiting_for_the_loss(server: Server, run) -> None:
    async def main() -> None:
        async with aio.connect(server.url) as client:
            hold = await client.lock("kept").hold()
            wait = asyncio.ensure_future(hold.lost.wait())
            cancelled = asyncio.ensure_future(hold.lost.wait())
            await asyncio.sleep(0)
            cancelled.cancel()
            await hold.release()
            assert await wait is False
            assert await hold.lost.wait() is False

    run(main())


def test_a_cancelled_release_ends_waiting_for_the_loss(new_server: NewServer, run) -> None:
    server = new_server()

    async def main() -> None:
        async with aio.connect(server.url) as client:
            hold = await client.lock("kept").hold()
            wait = asyncio.ensure_future(hold.lost.wait())
            await asyncio.sleep(0)
            with server.stopped():
                release = asyncio.ensure_future(hold.release())
                await asyncio.sleep(0)
                release.cancel()
                await asyncio.wait([release])
                assert release.cancelled()
            assert await asyncio.wait_for(wait, PATIENCE) is False
            await soon(lambda: not client._loop().losses)

    run(main())


def test_what_is_lost_by_a_close_is_waited_for_afterwards(server: Server, run) -> None:
    async def main() -> None:
        client = aio.connect(server.url)
        hold = await client.lock("kept").hold()
        released = await client.lock("given").hold()
        await released.release()
        await client.close()
        await asyncio.sleep(0)  # the queue goes after the close
        assert await hold.lost.wait() is True
        assert await released.lost.wait() is False

    run(main())


def test_a_blocked_loop_keeps_the_lock(server: Server, run) -> None:
    """Block the loop for longer than a lease: the watchdog does not need it."""

    async def main() -> None:
        async with aio.connect(server.url, lease=RENEWED) as client, client.lock("block") as hold:
            time.sleep(RENEWED + 1)
            hold.check()
            assert server.admin.pttl("block") > 0

    run(main())


# ---- Cancellation --------------------------------------------------------------------------------


def test_cancel_at_every_await(server: Server, run) -> None:
    """10,000 tasks, cancelled after a random number of loop turns, on free and held names."""
    seed = random.randrange(2**32)
    print("seed", seed)
    dice = random.Random(seed)
    ended = {"finished": 0, "cancelled": 0}

    async def main() -> None:
        async with aio.connect(server.url) as client:

            async def work(name: str) -> None:
                async with client.lock(name) as hold:
                    hold.check()
                    await asyncio.sleep(0)

            async def one(number: int) -> None:
                task = asyncio.ensure_future(work(f"name{dice.randrange(5)}"))
                for _ in range(dice.randrange(12)):
                    await asyncio.sleep(0 if dice.randrange(4) else 0.001)
                if dice.randrange(8):  # otherwise let it finish, however slow the server is
                    task.cancel()
                try:
                    await task
                    ended["finished"] += 1
                except asyncio.CancelledError:
                    ended["cancelled"] += 1

            async def several(count: int) -> None:
                for number in range(count):
                    await one(number)

            await asyncio.wait_for(asyncio.gather(*(several(500) for _ in range(20))), 600)
            await soon(lambda: client.stats().held == client.stats().waiting == 0)
            await soon(server.clean)

    run(main())
    assert sum(ended.values()) == 10_000
    assert min(ended.values()) > 500, ended


def test_a_cancelled_wait_ends_at_once(server: Server, run) -> None:
    async def main() -> None:
        async with aio.connect(server.url) as client, client.lock("wait"):
            task = asyncio.ensure_future(client.lock("wait").acquire())
            await soon(lambda: client.stats().waiting == 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await soon(lambda: client.stats().waiting == 0)

    run(main())


def test_cancel_when_the_result_is_there(server: Server, run) -> None:
    """Cancel between the drain that delivers the hold and the task that would take it."""

    async def main() -> None:
        async with aio.connect(server.url) as client:
            lock = client.lock("there")
            task = asyncio.ensure_future(lock.acquire())
            await asyncio.sleep(0)
            loop = client._loop()
            (future,) = loop.waiting.values()
            assert select.select([_core.queue_fd(loop.queue)], [], [], PATIENCE)[0]
            while (drained := loop._drain()) == 0:  # replies that bring no event
                assert select.select([_core.queue_fd(loop.queue)], [], [], PATIENCE)[0]
            assert drained == 1
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not future.cancelled(), "the result did not come first"
            await soon(server.clean)
            assert client.stats().held == 0

    run(main())


def test_a_cancelled_release_goes_on(server: Server, run) -> None:
    async def main() -> None:
        async with aio.connect(server.url) as client:
            hold = await client.lock("going").hold()
            task = asyncio.ensure_future(hold.release())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await soon(server.clean)
            assert not hold.lost.is_set()

    run(main())


def test_a_forgotten_await_is_warned_of(server: Server, run) -> None:
    """As Python does for acquire(), which is a coroutine; what was used in whatever way is not."""

    async def main() -> None:
        async with aio.connect(server.url) as client:
            lock, permits = client.lock("a"), client.permits("p")
            with pytest.warns(RuntimeWarning, match=r"hold\(\) of .*'a'.* so nothing is locked") as seen:
                lock.hold(timeout=1)
            assert seen[0].filename == __file__
            with pytest.warns(RuntimeWarning, match="'p'"):
                permits.hold(n=2)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                async with lock.hold():
                    with pytest.raises(snib.Busy):
                        await lock.hold(timeout=0)
                    with pytest.raises(asyncio.TimeoutError):
                        await asyncio.wait_for(lock.hold(), 0.01)

    run(main())


@pytest.mark.parametrize("kind", LOOPS)
def test_tasks_thrown_away_with_their_loop_leave_nothing(server: Server, kind: str) -> None:
    client = aio.connect(server.url)
    with snib.connect(server.url) as other:
        stuck = other.lock("abandoned").hold()
        loop = LOOPS[kind]()
        task = loop.create_task(client.lock("abandoned").acquire())
        loop.run_until_complete(soon(lambda: client.stats().waiting == 1))
        loop.close()
        task._log_destroy_pending = False
        del task
        gc.collect()
        eventually(lambda: client.stats().waiting == 0)
        stuck.release()
    eventually(server.clean)


# ---- Loops ---------------------------------------------------------------------------------------


def test_several_loops_in_several_threads(server: Server) -> None:
    client = aio.connect(server.url)
    inside, turns, failures = [0], [0], []

    async def main() -> None:
        async def work() -> None:
            for _ in range(10):
                async with client.lock("loops"):
                    inside[0] += 1
                    assert inside[0] == 1
                    await asyncio.sleep(0)
                    turns[0] += 1
                    inside[0] -= 1

        await asyncio.gather(*(work() for _ in range(5)))

    def thread(make) -> None:
        loop = make()
        try:
            loop.run_until_complete(main())
        except BaseException as error:
            failures.append(error)
        finally:
            loop.close()

    threads = [threading.Thread(target=thread, args=(make,)) for make in [*LOOPS.values()] * 2]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert (failures, turns) == ([], [200])
    asyncio.run(client.close())


def test_close_reaches_other_loops(server: Server) -> None:
    client = aio.connect(server.url)
    waiting = threading.Event()
    results = []

    async def other() -> None:
        lock = client.lock("reached")
        task = asyncio.ensure_future(lock.acquire())
        await soon(lambda: client.stats().waiting)
        waiting.set()
        try:
            await task
        except snib.Error as error:
            results.append(type(error))

    thread = threading.Thread(target=lambda: asyncio.run(other()))

    async def main() -> None:
        async with client.lock("reached"):
            thread.start()
            await soon(waiting.is_set)
            await client.close()

    with pytest.raises((snib.Lost, snib.Closed)):
        asyncio.run(main())
    thread.join(PATIENCE)
    assert results == [snib.Closed]


def test_a_block_discarded_elsewhere_is_no_other_tasks(server: Server, run) -> None:
    """A generator that its task left behind gives back its own permit, not that of a task at work."""

    async def main() -> None:
        async with aio.connect(server.url) as client:
            pool = client.permits("left")
            await pool.init(2)
            inside, go_on = asyncio.Event(), asyncio.Event()

            async def work() -> None:
                async with pool as hold:
                    inside.set()
                    await go_on.wait()
                    hold.check()

            async def generator() -> AsyncIterator[aio.Hold]:
                async with pool as hold:
                    yield hold

            worker = asyncio.ensure_future(work())
            await inside.wait()
            generated = generator()
            hold = await asyncio.ensure_future(generated.__anext__())
            await asyncio.ensure_future(generated.aclose())  # type: ignore[attr-defined]
            assert hold.state is snib.State.RELEASED
            go_on.set()
            await worker
            assert await pool.available() == 2
            with pytest.raises(snib.NotHeld):
                await pool.__aexit__(None, None, None)
            await pool.force_release()

    run(main())


@pytest.mark.parametrize("form", ["with", "stack"])
@pytest.mark.parametrize("kind", ["rlock", "read", "permits", "hold()"])
def test_a_block_gives_back_its_own_hold(server: Server, run, kind: str, form: str) -> None:
    """Blocks of generators need not end in the order of their nesting, also in one task."""

    async def main() -> None:
        async with aio.connect(server.url) as client:
            pool = client.permits("pool")
            await pool.init(2)
            lock: Any = {
                "rlock": lambda: client.rlock("name"),
                "read": lambda: client.rwlock("name").read,
                "permits": lambda: pool,
                "hold()": lambda: pool.hold(timeout=PATIENCE),
            }[kind]()

            async def block() -> AsyncIterator[aio.Hold]:
                async with lock as hold:
                    yield hold

            async def block_of_a_stack() -> AsyncIterator[aio.Hold]:
                async with contextlib.AsyncExitStack() as stack:
                    yield await stack.enter_async_context(lock)

            generator = block if form == "with" else block_of_a_stack
            first, second = generator(), generator()
            holds = await first.__anext__(), await second.__anext__()
            await first.aclose()  # type: ignore[attr-defined]
            assert [hold.state for hold in holds] == [snib.State.RELEASED, snib.State.VALID]
            await second.aclose()  # type: ignore[attr-defined]
            assert holds[1].state is snib.State.RELEASED
            assert client.stats().held == 0 and not client._loop().losses and not lock._blocks._begun
            await pool.force_release()

    run(main())


def test_a_hold_keeps_no_wait_of_a_closed_loop(server: Server) -> None:
    """Else that wait would get the lock when the hold is released, and nobody would know."""
    client = aio.connect(server.url)

    async def leave_a_wait() -> aio.Hold:
        lock = client.lock("outlived")
        assert await lock.acquire()
        asyncio.ensure_future(lock.acquire())
        await soon(lambda: client.stats().waiting)
        return await client.lock("other").hold()

    loop = asyncio.new_event_loop()
    hold = loop.run_until_complete(leave_a_wait())
    loop.close()  # with a task that nobody has cancelled
    del loop

    async def main() -> None:
        gc.collect()
        await soon(lambda: not client.stats().waiting)
        hold.check()
        await hold.release()
        await client.lock("outlived").release()
        assert not await client.lock("outlived").locked()
        await client.close()

    asyncio.run(main())


def test_a_task_that_blocks_the_loop_holds_no_request_back(server: Server, run) -> None:
    """Two tasks are woken together; one asks for a free lock, and the other one blocks until the server has granted it."""

    async def attempt(client: aio.Client) -> bool:
        hold = await client.lock("lost").hold()

        async def ask() -> bool:
            await hold.lost.wait()
            try:
                async with client.lock("free").hold(timeout=0):
                    return True
            except snib.Unreachable:
                return False

        async def block() -> None:
            await hold.lost.wait()
            with contextlib.suppress(AssertionError):
                eventually(lambda: server.admin.exists("free"), 2)

        tasks = asyncio.gather(ask(), block(), hold.extend(), return_exceptions=True)
        server.admin.delete("lost")
        await asyncio.sleep(0)  # two of them wait, and the third one's request is sent
        eventually(lambda: client.stats().held == 0)  # the core's thread has read the reply, and now sleeps for long
        granted, _, ended = await tasks
        assert isinstance(ended, snib.Lost)
        return granted is True

    async def main() -> None:
        # A single try takes less time than the core's thread sleeps.  The server may be as slow once or twice.
        async with aio.connect(server.url, try_timeout=0.3) as client:
            assert await attempt(client) or await attempt(client) or await attempt(client)

    run(main())


def test_closed_loops_leave_no_descriptor(server: Server, run) -> None:
    client = aio.connect(server.url)

    async def main() -> None:
        async with client.lock("short"):
            pass

    run(main())
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        run(main())
    assert len(os.listdir("/proc/self/fd")) < before + 25  # with room for lanes, which are opened on demand
    run(client.close())


def test_ten_thousand_waiting_tasks_need_no_thread(server: Server, run) -> None:
    async def main() -> None:
        async with aio.connect(server.url) as client:
            lock = client.lock("crowd")
            hold = await lock.hold()
            before = thread_count()
            tasks = [asyncio.ensure_future(lock.hold(timeout=600).__aenter__()) for _ in range(10_000)]
            await soon(lambda: client.stats().waiting == 10_000)
            assert thread_count() <= before
            for task in tasks[:9_900]:
                task.cancel()
            await hold.release()
            for task in tasks[9_900:]:
                await (await task).release()
            await soon(lambda: client.stats().waiting == 0)

    run(main())

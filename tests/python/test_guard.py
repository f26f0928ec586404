"""`async with` cancels its body when the lock is lost, as carefully as asyncio.timeout()."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest

import snib
from snib import aio
from support import PATIENCE, RENEWED, Server, brief_in_task
from test_aio import run, soon  # noqa: F401
from test_ownership import COUNTED, KINDS, LOSABLE

counted = pytest.mark.skipif(sys.version_info < (3, 11), reason="tasks do not count their cancels")


def lose(hold: aio.Hold) -> None:
    """Imitate the drain when a hold is lost; the hold reports LOST from now on."""
    hold._loop.end_losses(snib._core.hold_id(hold._handle), True)


async def lost_by_a_delete(server: Server, client: aio.Client, name: str) -> None:
    server.admin.delete(name)
    await asyncio.sleep(PATIENCE)


def cancels() -> int:
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling() if sys.version_info >= (3, 11) else 0


@pytest.fixture(params=["lock", "hold", "protect"])
def form(request: pytest.FixtureRequest):
    """The three ways to run a body under a lock."""

    async def under(lock: aio.Lock, body: Callable[..., Awaitable[object]]) -> object:
        if request.param == "lock":
            async with lock as hold:
                return await body(hold)
        if request.param == "hold":
            async with lock.hold(timeout=PATIENCE) as hold:
                return await body(hold)

        @lock.protect(timeout=PATIENCE)
        async def protected() -> object:
            return await body(None)

        return await protected()

    return under


def test_a_loss_ends_the_body(server: Server, form) -> None:
    """The program in the guide stops writing when its lock is lost; all kinds at once, each in its own database."""
    began: list[str] = []

    async def lose_one(kind: str, number: int) -> None:
        async with aio.connect(f"{server.url}&db={number}", lease=RENEWED) as client:
            if kind in COUNTED:
                await KINDS[kind](client).init(1)

            async def body(hold: aio.Hold | None) -> None:
                began.append(kind)
                await asyncio.sleep(600)

            with pytest.raises(snib.Lost) as caught:
                await form(KINDS[kind](client), body)
            error = caught.value
            assert error.kind == {"lock": "mutex", "rlock": "mutex"}.get(kind, kind)
            assert error.name == KINDS[kind](client).name and error.reason == "deleted", kind
            assert isinstance(error.__cause__, asyncio.CancelledError)
            assert not client._loop().losses

    async def main() -> None:
        tasks = [asyncio.ensure_future(lose_one(kind, n)) for n, kind in enumerate(LOSABLE)]
        await soon(lambda: len(began) == len(LOSABLE) or any(task.done() for task in tasks))
        server.admin.flushall()
        await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE)

    asyncio.run(main())


def test_without_a_loss_nothing_happens(server: Server, run, form) -> None:  # noqa: F811
    async def main() -> None:
        async with aio.connect(server.url) as client:

            async def body(hold: aio.Hold | None) -> str:
                await asyncio.sleep(0)
                return "done"

            assert await form(client.lock("name"), body) == "done"
            assert cancels() == 0 and not client._loop().losses

            async def failing(hold: aio.Hold | None) -> None:
                raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await form(client.lock("name"), failing)
            assert not client._loop().losses

    run(main())


def test_what_hold_returns_may_be_shared(server: Server, run) -> None:  # noqa: F811
    """Each block ends its own hold, even if the next task entered because an earlier one had lost the lock."""

    async def main() -> None:
        async with aio.connect(server.url) as client:
            holding = client.lock("shared").hold(timeout=PATIENCE)
            inside: list[aio.Hold] = []
            go_on = asyncio.Event()

            async def work() -> None:
                async with holding as hold:
                    inside.append(hold)
                    try:
                        await go_on.wait()
                    finally:
                        while len(inside) < 2:  # the loser ends when the next one is inside
                            await asyncio.sleep(0.001)

            first = asyncio.ensure_future(work())
            await soon(lambda: inside)
            second = asyncio.ensure_future(work())
            lose(inside[0])
            server.admin.delete("shared")
            server.admin.publish("redisson_lock__channel:{shared}", "0")
            with pytest.raises(snib.Lost):
                await asyncio.wait_for(first, PATIENCE)
            inside[1].check()
            go_on.set()
            await second
            assert client.stats().held == 0

    run(main())


def test_permits_that_tasks_take_through_one_object(server: Server, run) -> None:  # noqa: F811
    async def main() -> None:
        async with aio.connect(server.url) as client:
            pool = client.permits("shared pool")
            await pool.init(2)
            taking = pool.hold(timeout=PATIENCE)
            first_inside, second_inside = asyncio.Event(), asyncio.Event()

            async def first() -> None:
                async with taking as hold:
                    first_inside.set()
                    await second_inside.wait()
                    hold.check()

            async def second() -> None:
                await first_inside.wait()
                async with taking as hold:
                    second_inside.set()
                    await before
                    hold.check()

            before = asyncio.ensure_future(first())
            await asyncio.wait_for(second(), PATIENCE)
            assert await pool.available() == 2
            with pytest.raises(snib.NotHeld):
                await taking.__aexit__(None, None, None)
            await pool.force_release()

    run(main())


def test_an_awaited_hold_cancels_nothing(server: Server, run) -> None:  # noqa: F811
    async def main() -> None:
        async with aio.connect(server.url) as client:
            hold = await brief_in_task(client.lock("name", lease=0.3))
            with pytest.raises(snib.Lost):
                async with hold:
                    assert await asyncio.wait_for(hold.lost.wait(), PATIENCE)
                    await asyncio.sleep(0)

    run(main())


def test_a_body_that_was_lost_before_it_began_does_not_run(server: Server, run) -> None:  # noqa: F811
    async def main() -> None:
        async with aio.connect(server.url) as client:
            lock = client.lock("name", lease=2)
            holding = lock.hold()
            get = holding._get

            async def slow(caller: int) -> aio.Hold:
                hold = await get(caller)
                await hold.lost.wait()
                return hold

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(aio._lock.Holding, "_get", lambda self, caller: slow(caller))
                with pytest.raises(snib.Lost):
                    async with holding:
                        pytest.fail("ran without the lock")
            assert cancels() == 0 and not client._loop().losses

    run(main())


# ---- Loss at every await, and other cancellations ------------------------------------------------


async def steps(count: int, log: list[int]) -> None:
    for number in range(count):
        log.append(number)
        await asyncio.sleep(0)


def test_a_loss_at_every_await(server: Server, run) -> None:  # noqa: F811
    async def main() -> None:
        async with aio.connect(server.url) as client:
            for at in range(8):
                log: list[int] = []
                holds: list[aio.Hold] = []

                async def work() -> None:
                    async with client.lock("name") as hold:
                        holds.append(hold)
                        await steps(8, log)

                task = asyncio.ensure_future(work())
                while len(log) <= at:
                    await asyncio.sleep(0)
                lose(holds[0])
                with pytest.raises(snib.Lost):
                    await task
                assert len(log) <= at + 2
                await soon(lambda: client.stats().held == 0)

    run(main())


@counted
@pytest.mark.parametrize("order", ["cancel first", "loss first", "loss, then cancel in its cleanup"])
def test_who_else_cancels_is_obeyed(server: Server, run, order: str) -> None:  # noqa: F811
    async def main() -> None:
        async with aio.connect(server.url) as client:
            holds: list[aio.Hold] = []
            cleaning = asyncio.Event()

            async def work() -> None:
                async with client.lock("name") as hold:
                    holds.append(hold)
                    try:
                        await asyncio.sleep(600)
                    finally:
                        cleaning.set()
                        await asyncio.sleep(0.001)

            task = asyncio.ensure_future(work())
            await soon(lambda: holds)
            if order == "cancel first":
                task.cancel()
                lose(holds[0])
            else:
                lose(holds[0])
                if order != "loss first":
                    await cleaning.wait()
                task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await soon(lambda: client.stats().held == 0)

    run(main())


@counted
def test_an_outer_timeout_keeps_its_meaning(server: Server, run) -> None:  # noqa: F811
    async def main() -> None:
        async with aio.connect(server.url) as client:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    async with client.lock("name"):
                        await asyncio.sleep(600)
            with pytest.raises(TimeoutError):  # it is not confused with the lock's cancellation
                async with asyncio.timeout(None) as limit, client.lock("name") as hold:
                    limit.reschedule(asyncio.get_running_loop().time())
                    asyncio.get_running_loop().call_soon(lose, hold)
                    await asyncio.sleep(600)
            with pytest.raises(snib.Lost):
                async with asyncio.timeout(600), client.lock("name") as hold:
                    asyncio.get_running_loop().call_soon(lose, hold)
                    await asyncio.sleep(600)
            with pytest.raises(snib.Lost):
                async with client.lock("name") as hold, asyncio.timeout(600):
                    asyncio.get_running_loop().call_soon(lose, hold)
                    await asyncio.sleep(600)
            assert cancels() == 0

    run(main())


@pytest.mark.parametrize("which", ["outer", "inner", "both", "both, inner first"])
def test_nested_locks(server: Server, run, which: str) -> None:  # noqa: F811
    async def main() -> None:
        async with aio.connect(server.url) as client:
            ends: list[str] = []
            try:
                async with client.lock("outer") as outer:
                    try:
                        async with client.lock("inner") as inner:
                            lost = {"outer": [outer], "inner": [inner]}.get(which, [outer, inner])
                            for hold in reversed(lost) if "first" in which else lost:
                                asyncio.get_running_loop().call_soon(lose, hold)
                            await asyncio.sleep(600)
                    except BaseException as error:
                        ends.append(getattr(error, "name", None) or type(error).__name__)
                        raise
            except snib.Lost as error:
                ends.append(str(error.name))
            assert cancels() == 0
            if which == "inner":
                assert ends == ["inner", "inner"]
            elif which == "outer" or sys.version_info >= (3, 11):
                assert ends == ["CancelledError", "outer"]
            assert client.stats().held == 0 and not client._loop().losses

    run(main())


def test_a_body_that_swallows_the_cancellation_is_still_lost(server: Server, run) -> None:  # noqa: F811
    async def main() -> None:
        async with aio.connect(server.url) as client:
            went_on = False
            with pytest.raises(snib.Lost):
                async with client.lock("name") as hold:
                    asyncio.get_running_loop().call_soon(lose, hold)
                    try:
                        await asyncio.sleep(600)
                    except asyncio.CancelledError:
                        pass
                    await asyncio.sleep(0)  # is cancelled only once
                    went_on = True
            assert went_on and cancels() == 0
            await asyncio.sleep(0)  # no cancellation is left

    run(main())


def test_the_programs_own_error_comes_with_the_loss(server: Server, run) -> None:  # noqa: F811
    async def main() -> None:
        async with aio.connect(server.url) as client:
            with pytest.raises(ZeroDivisionError) as caught:
                async with client.lock("name") as hold:
                    asyncio.get_running_loop().call_soon(lose, hold)
                    try:
                        await asyncio.sleep(600)
                    finally:
                        raise ZeroDivisionError
            assert isinstance(caught.value.__context__, snib.Lost)
            assert cancels() == 0

    run(main())


@counted
def test_a_task_group_inside(server: Server, run) -> None:  # noqa: F811
    async def main() -> None:
        async with aio.connect(server.url) as client:
            ended: list[str] = []

            async def child(number: int) -> None:
                try:
                    await asyncio.sleep(600)
                finally:
                    ended.append(f"child {number}")

            with pytest.raises(snib.Lost):
                async with client.lock("name") as hold, asyncio.TaskGroup() as group:
                    group.create_task(child(1))
                    group.create_task(child(2))
                    asyncio.get_running_loop().call_later(0.01, lose, hold)
            assert sorted(ended) == ["child 1", "child 2"]

            async def breaks() -> None:
                try:
                    await asyncio.sleep(600)
                finally:
                    raise ZeroDivisionError

            with pytest.raises(ExceptionGroup) as caught:
                async with client.lock("name") as hold, asyncio.TaskGroup() as group:
                    group.create_task(breaks())
                    asyncio.get_running_loop().call_later(0.01, lose, hold)
            assert caught.value.subgroup(ZeroDivisionError)
            assert cancels() == 0

            with pytest.raises(ExceptionGroup) as caught:  # and around
                async with asyncio.TaskGroup() as group:
                    group.create_task(child(3))
                    async with client.lock("name") as hold:
                        asyncio.get_running_loop().call_soon(lose, hold)
                        await asyncio.sleep(600)
            assert caught.value.subgroup(snib.Lost) and ended[-1] == "child 3"

    run(main())


def test_what_is_shielded_goes_on(server: Server, run) -> None:  # noqa: F811
    async def main() -> None:
        async with aio.connect(server.url) as client:
            done = asyncio.Event()

            async def commit() -> None:
                await asyncio.sleep(0.02)
                done.set()

            with pytest.raises(snib.Lost):
                async with client.lock("name") as hold:
                    asyncio.get_running_loop().call_soon(lose, hold)
                    await asyncio.shield(commit())
            await asyncio.wait_for(done.wait(), PATIENCE)

    run(main())


def test_waits_inside_the_body_are_cancelled(server: Server, run) -> None:  # noqa: F811
    """In a separate task, in a gather, in another lock's queue."""

    async def main() -> None:
        async with aio.connect(server.url) as client:
            async with client.lock("busy"):
                for wait in [
                    lambda: asyncio.ensure_future(asyncio.sleep(600)),
                    lambda: asyncio.gather(asyncio.sleep(600), asyncio.sleep(600)),
                    lambda: asyncio.wait_for(asyncio.sleep(600), 600),
                    lambda: client.lock("busy").acquire(),
                    lambda: client.lock("name").hold(timeout=600),
                ]:
                    with pytest.raises(snib.Lost, match="'name'|\"name\""):
                        async with client.lock("name") as hold:
                            asyncio.get_running_loop().call_later(0.01, lose, hold)
                            await wait()
                    assert cancels() == 0
                await soon(lambda: client.stats().waiting == 0)

    run(main())


def test_a_release_inside_ends_the_watch(server: Server, run) -> None:  # noqa: F811
    async def main() -> None:
        async with aio.connect(server.url) as client:
            lock = client.lock("name")
            async with lock:
                await lock.release()
                assert not client._loop().losses
                assert await lock.acquire(blocking=False)
            assert not await lock.locked()
            with pytest.raises(snib.NotHeld):
                async with lock.hold() as hold:
                    await hold.release()
            with pytest.raises(ZeroDivisionError):
                async with lock:
                    await lock.release()
                    raise ZeroDivisionError

    run(main())


def test_a_client_closed_under_its_own_lock(server: Server, run) -> None:  # noqa: F811
    async def main() -> None:
        client = aio.connect(server.url)
        with pytest.raises(snib.Lost, match="closed"):
            async with client.lock("name"):
                await client.close()
                await asyncio.sleep(600)
        assert cancels() == 0
        client = aio.connect(server.url)
        with pytest.raises((snib.Lost, snib.Closed)):
            async with client.lock("name"):
                await client.close()
        assert cancels() == 0
        await asyncio.sleep(0)  # nothing is cancelled later

    run(main())


@pytest.mark.parametrize("kind", ["lock", "rlock", "hold"])
def test_a_client_closed_elsewhere_as_the_body_ends(server: Server, run, kind: str) -> None:  # noqa: F811
    """The loop has not been told of the loss yet."""

    async def main() -> None:
        client = aio.connect(server.url)
        lock = client.lock("name").hold() if kind == "hold" else getattr(client, kind)("name")
        with pytest.raises(snib.Lost, match="closed"):
            async with lock:
                closing = threading.Thread(target=lambda: asyncio.run(client.close()))
                closing.start()
                closing.join()
        assert cancels() == 0
        await asyncio.sleep(0)  # nothing is cancelled later

    run(main())


def test_reentry_is_guarded_at_each_level(server: Server, run) -> None:  # noqa: F811
    async def main() -> None:
        async with aio.connect(server.url) as client:
            lock = client.rlock("name")
            async with lock as outer:
                async with lock:
                    pass
                assert client._loop().losses, "the outer one is still watched"
                outer.check()
            with pytest.raises(snib.Lost):
                async with lock:
                    async with lock as inner:
                        asyncio.get_running_loop().call_soon(lose, inner)
                        await asyncio.sleep(600)
            assert cancels() == 0 and not client._loop().losses

    run(main())


def test_a_generator_that_is_thrown_away(server: Server, run) -> None:  # noqa: F811
    """Its end runs in a different task than its beginning."""

    async def main() -> None:
        async with aio.connect(server.url) as client:

            async def numbers() -> AsyncIterator[int]:
                async with client.lock("name"):
                    for number in range(10):
                        yield number

            async def first() -> int:
                generator = numbers()
                async for number in generator:
                    break
                await asyncio.ensure_future(generator.aclose())  # type: ignore[attr-defined]
                return number

            assert await first() == 0
            assert not await client.lock("name").locked()
            assert not client._loop().losses

    run(main())


@pytest.mark.parametrize("kind", ["permits", "semaphore"])
def test_a_generator_that_is_left_early(server: Server, run, kind: str) -> None:  # noqa: F811
    """The loop ends it in a task of its own, which gives back what it had, and not what another task works with."""

    async def main() -> None:
        async with aio.connect(server.url) as client:
            pool = getattr(client, kind)("pool")
            await pool.init(2)

            async def numbers() -> AsyncIterator[int]:
                async with pool:
                    for number in range(10):
                        yield number

            async def first() -> None:
                async for _ in numbers():
                    break
                await soon_free(1)

            async def soon_free(permits: int) -> None:
                while await pool.available() != permits:
                    await asyncio.sleep(0.001)

            async with pool as hold:
                await asyncio.wait_for(asyncio.create_task(first()), PATIENCE)
                hold.check()
            await asyncio.wait_for(soon_free(2), PATIENCE)
            assert not client._loop().losses and not pool._blocks._begun
            await pool.force_release()

    run(main())


def test_a_storm(server: Server, run) -> None:  # noqa: F811
    """Random losses and cancellations: each task ends as it must, and nothing is left."""
    seed = random.randrange(2**32)
    print("seed", seed)
    dice = random.Random(seed)

    async def main() -> None:
        async with aio.connect(server.url) as client:
            ends: dict[str, int] = {}

            async def one(name: str) -> None:
                holds: list[aio.Hold] = []

                async def work() -> None:
                    async with client.lock(name) as hold, client.rlock(f"{name} too") as inner:
                        holds.extend([hold, inner])
                        for _ in range(6):
                            await asyncio.sleep(0)

                task = asyncio.ensure_future(work())
                cancelled = lost = False
                held_first = dice.randrange(2)  # ensures losses, however slow the server is
                while held_first and not holds and not task.done():
                    await asyncio.sleep(0.001)
                for _ in range(40):
                    await asyncio.sleep(0 if dice.randrange(5) else 0.0005)
                    if not dice.randrange(30):
                        cancelled = task.cancel() or cancelled
                    if holds and not dice.randrange(8) and not task.done():
                        lose(dice.choice(holds))
                        lost = True
                try:
                    await task
                    end = "finished"
                except snib.Lost:
                    end = "lost"
                    assert lost
                    assert not cancelled or sys.version_info < (3, 11)
                except asyncio.CancelledError:
                    end = "cancelled"
                    assert cancelled
                ends[end] = ends.get(end, 0) + 1

            async def several(number: int) -> None:
                for _ in range(60):
                    await one(f"name{number}")

            await asyncio.wait_for(asyncio.gather(*(several(number) for number in range(8))), 600)
            assert sum(ends.values()) == 480 and len(ends) == 3, ends
            await soon(lambda: client.stats().held == client.stats().waiting == 0)
            assert not client._loop().losses

    run(main())


# ---- Functions under a lock ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_function_under_a_lock(server: Server, client: snib.Client, kind: str) -> None:
    lock = KINDS[kind](client)
    if kind in COUNTED:
        lock.init(1)
    with snib.connect(server.url) as rival:
        other = KINDS["write" if kind == "read" else kind](rival)

        @KINDS[kind](client).protect(timeout=PATIENCE)
        def held(one: int, *, two: int) -> int:
            """Its own words."""
            assert not other.acquire(blocking=False)
            return one + two

        assert held(1, two=2) == 3 and held.__doc__ == "Its own words."
        assert other.acquire(blocking=False)
        for timeout, error in [(0, snib.Busy), (0.01, snib.Timeout)]:
            with pytest.raises(error):
                lock.protect(timeout=timeout)(lambda: pytest.fail("ran without the lock"))()
        other.release()
    if kind in COUNTED:
        lock.force_release()
    for key in server.admin.keys("redisson_lock_token:*"):
        server.admin.delete(key)


def test_what_would_run_later_is_not_protected(client: snib.Client) -> None:
    async def coroutine() -> None: ...

    def generator():
        yield

    for function in [coroutine, generator, functools.partial(coroutine)]:
        with pytest.raises(TypeError, match="without the lock"):
            client.lock("name").protect()(function)
    with pytest.raises(TypeError, match="coroutine functions"):
        aio.connect("redis://127.0.0.1:1").lock("name").protect()(generator)  # type: ignore[arg-type]
    for other in [property(lambda self: 1), classmethod(lambda kind: 1), staticmethod(coroutine), staticmethod(len), 5]:
        for lock in client.lock("name"), aio.connect("redis://127.0.0.1:1").lock("name"):
            with pytest.raises(TypeError, match=r"protect\(\) is for functions, not for a "):
                lock.protect()(other)  # type: ignore[arg-type]


def test_a_hidden_coroutine_is_not_protected(client: snib.Client) -> None:
    """As another decorator may hide it; that it would run without the lock shows at the call."""

    async def coroutine() -> None:
        pytest.fail("ran without the lock")

    class Callable:
        async def __call__(self) -> None:
            await coroutine()

    for function in [lambda: coroutine(), Callable()]:
        with pytest.raises(TypeError, match="without the lock"):
            client.lock("name").protect()(function)()


def test_a_hidden_generator_is_not_protected(client: snib.Client) -> None:
    """Nor is the block of a context manager."""

    def generator() -> Iterator[None]:
        pytest.fail("ran without the lock")
        yield

    async def asynchronous() -> AsyncIterator[None]:
        pytest.fail("ran without the lock")
        yield

    managers = contextlib.contextmanager(generator), contextlib.asynccontextmanager(asynchronous)
    for function in [lambda: generator(), lambda: asynchronous(), *managers]:
        with pytest.raises(TypeError, match="without the lock"):
            client.lock("name").protect()(function)()


def test_a_protected_function_whose_lock_was_lost(client: snib.Client) -> None:
    @client.lock("name", lease=2).protect()
    def slow() -> None:
        import time

        time.sleep(2.2)

    with pytest.raises(snib.Lost) as caught:
        slow()
    assert (caught.value.name, caught.value.kind, caught.value.reason) == ("name", "mutex", "expired")

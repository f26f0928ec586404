"""The end of a block gives back the hold of that block, in whatever order, thread or task blocks on one lock end."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
import snib
from snib import aio

from support import PATIENCE, Server, eventually
from test_aio import soon
from test_ownership import COUNTED, KINDS

VALID, RELEASED = snib.State.VALID, snib.State.RELEASED

# Of which one thread or task may have several holds.
kinds = pytest.mark.parametrize("kind", ["rlock", "read", "write", *COUNTED])


def block(lock: snib.Lock) -> Iterator[snib.Hold]:
    """Such blocks on one lock can end in any order, and in any thread."""
    with lock as hold:
        yield hold


def block_of_a_stack(lock: snib.Lock) -> Iterator[snib.Hold]:
    with contextlib.ExitStack() as stack:
        yield stack.enter_context(lock)


both_forms = pytest.mark.parametrize("form", [block, block_of_a_stack])


@both_forms
@kinds
def test_a_block_gives_back_its_own_hold(client: snib.Client, kind: str, form: Callable) -> None:
    """Blocks of generators need not end in the order of their nesting."""
    lock = KINDS[kind](client)
    if kind in COUNTED:
        lock.init(3)
    first, second = form(lock), form(lock)
    holds = next(first), next(second)
    first.close()
    assert [hold.state for hold in holds] == [RELEASED, VALID]
    with lock as third:
        second.close()
        third.check()
    assert holds[1].state is RELEASED and client.stats().held == 0
    if kind in COUNTED:
        lock.force_release()


@both_forms
@kinds
def test_a_block_that_ends_in_another_thread(client: snib.Client, kind: str, form: Callable) -> None:
    """As that of a generator which is collected there: it gives back its own hold, and not one of that thread."""
    lock = KINDS[kind](client)
    if kind in COUNTED:
        lock.init(2)
    generator = form(lock)
    hold = next(generator)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            with lock if kind in (*COUNTED, "read") else contextlib.nullcontext(hold) as mine:
                generator.close()
                assert mine is hold or mine.state is VALID
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not failures and hold.state is RELEASED and client.stats().held == 0
    if kind in COUNTED:
        lock.force_release()


def test_blocks_of_an_exit_stack(client: snib.Client) -> None:
    """Beside one of `with` in the same function, which ends before it."""
    lock = client.rlock("name")
    with contextlib.ExitStack() as stack:
        outer = stack.enter_context(lock)
        with lock as inner:
            stack.enter_context(lock)
        assert [outer.state, inner.state] == [VALID, RELEASED]
    assert outer.state is RELEASED and client.stats().held == 0


# ---- Blocks of objects: no frame of the program lives as long as they do -------------------------


class Service:
    """Takes the lock when it is started, and gives it back when it is stopped."""

    def __init__(self, lock: Any) -> None:
        self.lock, self.stack = lock, contextlib.ExitStack()

    def start(self) -> None:
        self.hold = self.stack.enter_context(self.lock)

    def stop(self) -> None:
        self.stack.close()


class Wrapper(contextlib.ContextDecorator):
    """A context manager that calls another one."""

    def __init__(self, lock: Any) -> None:
        self.lock = lock

    def __enter__(self) -> None:
        self.hold = self.lock.__enter__()

    def __exit__(self, *error: Any) -> None:
        self.lock.__exit__(*error)

    def start(self) -> None:
        self.__enter__()

    def stop(self) -> None:
        self.__exit__(None, None, None)


class Careful(Wrapper):
    """Gives the lock back if it fails to start."""

    def __enter__(self) -> None:
        with contextlib.ExitStack() as stack:
            self.hold = stack.enter_context(self.lock)
            self.stack = stack.pop_all()

    def __exit__(self, *error: Any) -> None:
        self.stack.__exit__(*error)


def states(*users: Any) -> list[snib.State]:
    return [user.hold.state for user in users]


objects = pytest.mark.parametrize("form", [Service, Wrapper, Careful])


@objects
@kinds
def test_objects_end_in_any_order(client: snib.Client, kind: str, form: Callable) -> None:
    lock = KINDS[kind](client)
    if kind in COUNTED:
        lock.init(4)
    users = [form(lock) for _ in range(3)]
    for user in users:
        user.start()
    with lock as hold:
        users[1].stop()
        assert states(*users) == [VALID, RELEASED, VALID]
        users[0].stop()
        assert states(*users) == [RELEASED, RELEASED, VALID]
    assert hold.state is RELEASED and states(users[2]) == [VALID]
    users[2].stop()
    assert states(users[2]) == [RELEASED] and client.stats().held == 0
    if kind in COUNTED:
        lock.force_release()


class Popped(Service):
    """Its manager is of a stack that does not live as long as the block, so that others may get the address."""

    def start(self) -> None:
        with contextlib.ExitStack() as stack:
            wrapper = Wrapper(self.lock)
            stack.enter_context(wrapper)
            self.hold, self.stack = wrapper.hold, stack.pop_all()


@pytest.mark.parametrize("seed", range(5))
def test_objects_in_random_orders(client: snib.Client, seed: int) -> None:
    random, lock = Random(seed), client.rlock("name")
    for _ in range(40):
        users: list[Any] = []
        for _ in range(40):
            if users and random.random() < 0.5:
                users.pop(random.randrange(len(users))).stop()
            else:
                users.append(random.choice([Service, Wrapper, Careful, Popped])(lock))
                users[-1].start()
            assert states(*users) == [VALID] * len(users)
        for user in users:
            user.stop()
        assert client.stats().held == 0


@objects
@pytest.mark.parametrize("kind", COUNTED)
def test_objects_end_in_any_thread(client: snib.Client, kind: str, form: Callable) -> None:
    lock = KINDS[kind](client)
    lock.init(3)
    users = [form(lock) for _ in range(3)]
    seen: list[list[snib.State]] = []

    def work() -> None:
        users[2].start()
        users[1].stop()
        seen.append(states(*users))
        users[2].stop()
        seen.append(states(*users))

    users[0].start()
    users[1].start()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [[VALID, RELEASED, VALID], [VALID, RELEASED, RELEASED]]
    users[0].stop()
    assert client.stats().held == 0
    lock.force_release()


def test_a_shared_object_gives_back_no_hold_of_another_owner(client: snib.Client) -> None:
    """What a body has released itself is not held at its end, as with the lock itself."""
    lock = client.rlock("name")
    shared = Wrapper(lock)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            with shared:
                lock.release()
                threads[1].start()
                assert taken.wait(PATIENCE)
        except BaseException as error:
            failures.append(error)
        finally:
            ended.set()

    def work_meanwhile() -> None:
        with shared:
            taken.set()
            assert ended.wait(PATIENCE)
            shared.hold.check()

    taken, ended = threading.Event(), threading.Event()
    threads = [threading.Thread(target=call) for call in (work, work_meanwhile)]
    threads[0].start()
    for thread in threads:
        thread.join()
    [failure] = failures
    assert isinstance(failure, snib.NotHeld)


@kinds
def test_stacks_in_one_function(client: snib.Client, kind: str) -> None:
    lock = KINDS[kind](client)
    if kind in COUNTED:
        lock.init(2)
    with contextlib.ExitStack() as first, contextlib.ExitStack() as second:
        holds = first.enter_context(lock), second.enter_context(lock)
        first.close()
        assert [hold.state for hold in holds] == [RELEASED, VALID]
    if kind in COUNTED:
        lock.force_release()


def test_a_decorator_within_itself(client: snib.Client) -> None:
    """One object, of which the innermost block ends first."""
    locked = Wrapper(client.rlock("name"))
    holds: list[Any] = []

    @locked
    def work(depth: int) -> None:
        holds.append(locked.hold)
        place = len(holds)
        if depth:
            work(depth - 1)
        assert [hold.state for hold in holds] == [VALID] * place + [RELEASED] * (len(holds) - place)

    work(2)
    assert [hold.state for hold in holds] == [RELEASED] * 3


@pytest.mark.parametrize("kind", COUNTED)
def test_decorators_of_several_threads(client: snib.Client, kind: str) -> None:
    """A body that has released its permit itself gives back another one of its thread, and none of another thread."""
    pool = KINDS[kind](client)
    pool.init(3)
    begun, ended = threading.Event(), threading.Event()
    seen: list[snib.State] = []

    @Wrapper(pool)
    def work() -> None:
        begun.set()
        assert ended.wait(PATIENCE)

    @Wrapper(pool)
    def release() -> None:
        pool.release()

    thread = threading.Thread(target=work)
    thread.start()
    assert begun.wait(PATIENCE)
    with pytest.raises(snib.NotHeld), pool as hold:
        release()
        seen.append(hold.state)
        ended.set()
        thread.join()
    assert seen == [RELEASED] and client.stats().held == 0
    pool.force_release()


# ---- At the limit of recursion -------------------------------------------------------------------

reentrant = pytest.mark.parametrize("kind", ["rlock", "read", "write"])


@contextlib.contextmanager
def limited_to(calls: int) -> Iterator[None]:
    """A recursion without an end ends after about so many calls."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + calls)
    try:
        with contextlib.suppress(RecursionError):
            yield
    finally:
        sys.setrecursionlimit(before)


@reentrant
def test_a_runaway_recursion(client: snib.Client, kind: str) -> None:
    """Wherever in a block it ends, a program that survives it does not have the lock."""
    lock = KINDS[kind](client)

    def work() -> None:
        with lock:
            work()

    for calls in range(100, 120):
        with limited_to(calls):
            work()
        eventually(lambda: client.stats().held == 0)


@reentrant
def test_a_runaway_recursion_in_asyncio(server: Server, kind: str) -> None:
    async def main() -> None:
        async with aio.connect(server.url) as client:
            lock = KINDS[kind](client)

            async def work() -> None:
                async with lock:
                    await work()

            for calls in range(100, 120):
                with limited_to(calls):
                    await work()
                await soon(lambda: client.stats().held == 0)

    asyncio.run(main())


class AsyncService(Service):
    def __init__(self, lock: Any) -> None:
        self.lock, self.stack = lock, contextlib.AsyncExitStack()

    async def start(self) -> None:
        self.hold = await self.stack.enter_async_context(self.lock)

    async def stop(self) -> None:
        await self.stack.aclose()


class AsyncWrapper:
    def __init__(self, lock: Any) -> None:
        self.lock = lock

    async def __aenter__(self) -> None:
        self.hold = await self.lock.__aenter__()

    async def __aexit__(self, *error: Any) -> None:
        await self.lock.__aexit__(*error)

    async def start(self) -> None:
        await self.__aenter__()

    async def stop(self) -> None:
        await self.__aexit__(None, None, None)


class AsyncCareful(AsyncWrapper):
    async def __aenter__(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            self.hold = await stack.enter_async_context(self.lock)
            self.stack = stack.pop_all()

    async def __aexit__(self, *error: Any) -> None:
        await self.stack.__aexit__(*error)


@pytest.mark.parametrize("form", [AsyncService, AsyncWrapper, AsyncCareful])
@kinds
def test_objects_end_in_any_order_in_asyncio(server: Server, kind: str, form: Callable) -> None:
    async def main() -> None:
        async with aio.connect(server.url) as client:
            lock = KINDS[kind](client)
            if kind in COUNTED:
                await lock.init(3)
            first, second, third = users = [form(lock) for _ in range(3)]
            await first.start()
            await second.start()
            await first.stop()
            assert states(first, second) == [RELEASED, VALID]
            if kind in COUNTED:  # other tasks may end them, too
                await asyncio.create_task(first.start())
                await third.start()
                await asyncio.create_task(second.stop())
                assert states(*users) == [VALID, RELEASED, VALID]
                await first.stop()
                assert states(*users) == [RELEASED, RELEASED, VALID]
                await third.stop()
                await lock.force_release()
            else:
                await second.stop()
            assert client.stats().held == 0 and not client._loop().losses

    asyncio.run(main())


def test_objects_of_several_loops(server: Server) -> None:
    """Each thread looks for its blocks, which other tasks than those that began them end, while the others' go.

    One in thousands meets the moment at which that failed.
    """
    failures: list[BaseException] = []

    async def work(pool: Any) -> None:
        for _ in range(500):
            users = [AsyncWrapper(pool) for _ in range(8)]
            await asyncio.gather(*(user.start() for user in users))
            ended = await asyncio.gather(*(user.stop() for user in users), return_exceptions=True)
            failures.extend(failure for failure in ended if failure)
            assert states(*users) == [RELEASED] * 8

    async def main() -> None:
        async with aio.connect(server.url) as client:
            pool = client.permits("name")
            await pool.init(24)
            await asyncio.gather(*(asyncio.to_thread(asyncio.run, work(pool)) for _ in range(3)))
            assert await pool.available() == 24 and not pool._blocks._begun
            await pool.force_release()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        asyncio.run(main())
    finally:
        sys.setswitchinterval(interval)
    assert not failures


# ---- What acquire() has taken -------------------------------------------------------------------------


acquired = pytest.mark.parametrize("kind", ["lock", "rlock", "read", *COUNTED])


@acquired
def test_acquired_and_left_to_a_stack(client: snib.Client, kind: str) -> None:
    lock = KINDS[kind](client)
    if kind in COUNTED:
        lock.init(3)
    with contextlib.ExitStack() as stack:
        assert lock.acquire(timeout=PATIENCE)
        stack.push(lock)
    assert client.stats().held == 0
    if kind != "lock":
        with lock as hold:
            with contextlib.ExitStack() as stack:
                assert lock.acquire(timeout=PATIENCE)
                stack.push(lock)
            hold.check()
            assert client.stats().held == 1
        assert client.stats().held == 0
    if kind in COUNTED:
        lock.force_release()


@acquired
def test_acquired_and_left_to_a_stack_in_asyncio(server: Server, kind: str) -> None:
    """The caller's own ends, and not that of another task's block, or of a block around it."""

    async def acquire_and_end(lock: Any) -> None:
        async with contextlib.AsyncExitStack() as stack:
            assert await lock.acquire(timeout=PATIENCE)
            stack.push_async_exit(lock)

    async def main() -> None:
        async with aio.connect(server.url) as client:
            lock = KINDS[kind](client)
            if kind in COUNTED:
                await lock.init(3)
            await acquire_and_end(lock)
            assert client.stats().held == 0
            if kind not in ("lock", "rlock"):
                begun, ending = asyncio.Event(), asyncio.Event()

                async def another() -> None:
                    async with lock as hold:
                        begun.set()
                        await ending.wait()
                        hold.check()

                task = asyncio.create_task(another())
                await begun.wait()
                await acquire_and_end(lock)
                assert client.stats().held == 1
                with pytest.raises(snib.NotHeld):
                    await lock.__aexit__(None, None, None)
                ending.set()
                await task
                assert client.stats().held == 0
            if kind != "lock":
                async with lock as hold:
                    await acquire_and_end(lock)
                    hold.check()
                    assert client.stats().held == 1
                assert client.stats().held == 0
            with pytest.raises(ZeroDivisionError):
                async with contextlib.AsyncExitStack() as stack:
                    stack.push_async_exit(lock)
                    raise ZeroDivisionError
            if kind in COUNTED:
                await lock.force_release()

    asyncio.run(main())


def test_a_block_that_a_task_has_left_behind(server: Server) -> None:
    """wait_for() of older versions makes a task for what it waits for."""

    async def main() -> None:
        async with aio.connect(server.url) as client:
            lock = client.lock("left")
            await asyncio.create_task(lock.__aenter__())
            assert client.stats().held == 1
            await lock.__aexit__(None, None, None)
            assert client.stats().held == 0

    asyncio.run(main())


@pytest.mark.parametrize("form", ["lock", "hold"])
def test_many_blocks_on_one_object(server: Server, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    """The end of one is not looked for among all others."""
    compared: list[object] = []
    for module in (aio._lock, snib._kept):
        monkeypatch.setattr(module, "likeness", lambda *given: compared.append(given) or 0)

    async def main() -> None:
        async with aio.connect(server.url) as client:
            lock = client.rwlock("name").read
            common = lock.hold()
            async with common:
                pass
            begun, go_on = itertools.count(1), asyncio.Event()

            async def work() -> None:
                async with lock if form == "lock" else common:
                    if next(begun) == 1000:
                        go_on.set()
                    await go_on.wait()

            await asyncio.gather(*(work() for _ in range(1000)))
            assert client.stats().held == 0 and not compared
            kept = lock._kept()
            for blocks in lock._blocks, common._blocks, kept:
                assert not blocks._places._newest and not blocks._places._earlier

    asyncio.run(main())


def test_many_blocks_of_threads_on_one_object(client: snib.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[object] = []
    monkeypatch.setattr(snib._kept, "likeness", lambda *given: compared.append(given) or 0)
    lock = client.rlock("name")
    blocks = [block(lock) for _ in range(100)]
    for each in blocks:
        next(each)
    for each in blocks:
        each.close()
    with lock, lock:
        pass
    assert client.stats().held == 0 and not compared
    assert not lock._kept()._places._newest and not lock._kept()._places._earlier


def test_blocks_of_one_place_end_in_any_order() -> None:
    """Three of one frame: the end of each finds the newest that is left."""
    places = snib._kept.Places()
    here = snib._kept.block_at()
    known = {1, 2, 3}
    for number in known:
        places.note(7, here, number)
    known.remove(1)
    places.drop(7, here, 1, known)
    assert places.find(7, here) == 3
    known.remove(3)
    places.drop(7, here, 3, known)
    assert places.find(7, here) == 2
    known.remove(2)
    places.drop(7, here, 2, known)
    assert places.find(7, here) is None and not places._newest and not places._earlier

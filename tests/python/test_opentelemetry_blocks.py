"""Which span is the current one, and how it ends, however blocks on one lock begin and end."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import snib
import snib.aio
from opentelemetry import trace
from snib.opentelemetry import traced
from spans import RELEASED, Spans, attributes
from support import PATIENCE, Server


@pytest.fixture
def spans() -> Spans:
    return Spans()


def test_nested_and_at_the_same_time(client: snib.Client, spans: Spans) -> None:
    lock, other = (traced(client.rlock(name), tracer_provider=spans.provider) for name in ("a", "b"))
    with lock as outer, other, lock as inner:
        assert inner is not outer and inner.owner == outer.owner
    names = [attributes(span)["snib.lock.name"] for span in spans if span.name == "snib.hold"]
    assert names == ["a", "b", "a"]
    depths = [span.parent for span in spans if span.name == "snib.hold"]
    assert depths[2] is None and None not in depths[:2]
    spans.take()
    with lock, lock, other:
        pass
    *_, between, outermost = [span for span in spans if span.name == "snib.hold"]
    assert between.parent == outermost.get_span_context() # that of the outer `with` ends last
    spans.take()

    def work() -> None:
        for _ in range(20):
            with lock as hold:
                hold.check()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(spans.take()) == sorted(RELEASED * 80)
    assert not lock._inside


def test_tasks_that_share_what_hold_returns(server: Server, spans: Spans, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with snib.aio.connect(server.url) as client:
            pool = client.permits("shared")
            await pool.init(2)
            taking = traced(pool, tracer_provider=spans.provider).hold(timeout=PATIENCE)
            inside: list[object] = []
            both = asyncio.Event()

            async def work() -> None:
                async with taking as hold:
                    inside.append(hold)
                    if len(inside) == 2:
                        both.set()
                    await both.wait()
                    assert trace.get_current_span() is hold._span

            await asyncio.gather(work(), work())
            await pool.force_release()

    asyncio.run(main())
    assert sorted(spans.take()) == sorted(RELEASED * 2)
    assert not caplog.records  # such as "Failed to detach context"


def test_left_in_another_thread(client: snib.Client, spans: Spans) -> None:
    """By hand, without a mark of the block: it is another caller's, as without spans."""
    lock = traced(client.lock("a"), tracer_provider=spans.provider)
    ending = threading.Event()

    def work() -> None:
        with lock:
            begun.set()
            ending.wait()

    begun = threading.Event()
    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    with pytest.raises(snib.NotHeld):
        lock.__exit__(None, None, None)
    assert client.lock("a").locked()
    ending.set()
    thread.join()
    assert spans.take() == RELEASED
    assert not client.lock("a").locked()


async def acquire_and_end(lock: Any) -> None:
    async with contextlib.AsyncExitStack() as stack:
        assert await lock.acquire(timeout=PATIENCE)
        stack.push_async_exit(lock)


def test_acquired_and_left_to_a_stack(server: Server, spans: Spans) -> None:
    """What acquire() has taken has no span to end, and is given back nevertheless; not what a block has that another task
    has begun, has left behind, or has around this task's beginning, nor what one of its own has.
    """

    async def main() -> None:
        async with snib.aio.connect(server.url) as client:
            pool = client.permits("pool")
            await pool.init(2)
            both = traced(pool, tracer_provider=spans.provider)
            await acquire_and_end(both)
            assert client.stats().held == 0
            begun, ending = asyncio.Event(), asyncio.Event()

            async def work() -> None:
                async with both as hold:
                    begun.set()
                    await ending.wait()
                    hold.check()

            async def numbers() -> AsyncIterator[Any]:
                async with both as hold:
                    yield hold

            task = asyncio.create_task(work())
            await begun.wait()
            await acquire_and_end(both)
            assert client.stats().held == 1
            ending.set()
            await task
            left = numbers()
            hold = await asyncio.create_task(left.__anext__())  # type: ignore[arg-type]
            await acquire_and_end(both)
            hold.check()
            await left.aclose()  # type: ignore[attr-defined]
            assert client.stats().held == 0
            async with both as hold:
                await asyncio.create_task(acquire_and_end(both))
                hold.check()
                await acquire_and_end(both)
                hold.check()
            assert client.stats().held == 0
            await pool.force_release()

    with snib.connect(server.url) as client:
        lock = traced(client.rlock("a"), tracer_provider=spans.provider)
        for _ in range(2):
            with contextlib.ExitStack() as stack:
                assert lock.acquire()
                stack.push(lock)
            assert client.stats().held == 0
            with lock as hold:
                with contextlib.ExitStack() as stack:
                    assert lock.acquire()
                    stack.push(lock)
                hold.check()
            assert client.stats().held == 0
    asyncio.run(main())


def test_a_failed_end_is_of_one_hold(server: Server, spans: Spans) -> None:
    """A release that fails is not tried with the next of the caller's holds."""
    with snib.connect(server.url, patience=0.3, try_timeout=0.1) as client:
        pool = client.permits("pool")
        pool.init(2)
        both = traced(pool, tracer_provider=spans.provider)
        assert both.acquire(timeout=PATIENCE)
        stack = contextlib.ExitStack()
        assert both.acquire(timeout=PATIENCE)
        stack.push(both)
        with server.stopped(), pytest.raises(snib.Error):
            stack.close()
        assert client.stats().held == 1
        both.release()
        pool.force_release()


def test_left_behind_by_a_task(server: Server, spans: Spans) -> None:
    async def main() -> None:
        async with snib.aio.connect(server.url) as client:
            lock = traced(client.lock("a"), tracer_provider=spans.provider)
            await asyncio.create_task(lock.__aenter__())
            await lock.__aexit__(None, None, None)
            assert client.stats().held == 0

    asyncio.run(main())
    assert spans.take() == RELEASED


def test_generators_that_others_end(server: Server, spans: Spans, caplog: pytest.LogCaptureFixture) -> None:
    """In another thread or task than the one they were begun in."""

    def numbers(lock: Any) -> Iterator[int]:
        with lock:
            yield 1

    async def numbers_in_tasks(lock: Any) -> AsyncIterator[int]:
        async with lock:
            yield 1

    async def main() -> None:
        async with snib.aio.connect(server.url) as client:
            lock = traced(client.lock("a"), tracer_provider=spans.provider)
            for form in (lambda: lock, lock.hold):
                begun = numbers_in_tasks(form())
                assert await begun.__anext__()
                await asyncio.create_task(begun.aclose())  # type: ignore[attr-defined]

    with snib.connect(server.url) as client:
        lock = traced(client.lock("a"), tracer_provider=spans.provider)
        for form in (lambda: lock, lock.hold):
            begun = numbers(form())
            assert contextvars.copy_context().run(next, begun)
            thread = threading.Thread(target=begun.close)  # type: ignore[attr-defined]
            thread.start()
            thread.join()
    asyncio.run(main())
    assert sorted(spans.take()) == sorted(RELEASED * 4)
    assert not caplog.records  # such as "Failed to detach context"


@pytest.mark.parametrize("first", ["a generator's", "the other lock's"])
def test_blocks_that_end_in_another_order(client: snib.Client, spans: Spans, first: str) -> None:
    """Each gives back its own permit, and none that another thread works with."""
    pool = client.permits("a")
    pool.init(3)
    permits, other = (traced(lock, tracer_provider=spans.provider) for lock in (pool, client.lock("b")))
    entered, left = threading.Event(), threading.Event()

    def work() -> None:
        with permits as hold:
            entered.set()
            left.wait(PATIENCE)
            hold.check()

    def numbers() -> Iterator[int]:
        with permits:
            yield 1

    def meanwhile() -> None:
        generator = numbers()
        assert next(generator)
        with other:
            if first == "a generator's":
                assert not list(generator)
        assert not list(generator)

    with ThreadPoolExecutor(1) as executor:
        working = executor.submit(work)
        entered.wait(PATIENCE)
        contextvars.copy_context().run(meanwhile)
        left.set()
        working.result()
    assert pool.available() == 3 and not permits._inside and not other._inside
    pool.force_release()


@pytest.mark.parametrize("form", ["a lock", "hold()"])
def test_blocks_on_one_lock_that_end_in_another_order(
    server: Server, client: snib.Client, spans: Spans, form: str
) -> None:
    """Each gives back its own permit, also in one thread or task."""
    pool = client.permits("a")
    pool.init(2)
    permits = traced(pool, tracer_provider=spans.provider)

    def numbers() -> Iterator[Any]:
        with permits if form == "a lock" else permits.hold() as hold:
            yield hold

    async def main() -> None:
        async with snib.aio.connect(server.url) as other:
            lock = traced(other.permits("a"), tracer_provider=spans.provider)
            shared = lock if form == "a lock" else lock.hold()

            async def numbers() -> AsyncIterator[Any]:
                async with shared as hold:
                    yield hold

            first, second = numbers(), numbers()
            holds = await anext(first), await anext(second)
            await first.aclose()  # type: ignore[attr-defined]
            assert [hold.hold.state for hold in holds] == [snib.State.RELEASED, snib.State.VALID]
            await second.aclose()  # type: ignore[attr-defined]
            assert trace.get_current_span() is trace.INVALID_SPAN

    first, second = numbers(), numbers()
    holds = next(first), next(second)
    first.close()  # type: ignore[attr-defined]
    assert [hold.hold.state for hold in holds] == [snib.State.RELEASED, snib.State.VALID]
    assert trace.get_current_span() is holds[1]._span
    second.close()  # type: ignore[attr-defined]
    assert trace.get_current_span() is trace.INVALID_SPAN
    asyncio.run(main())
    assert pool.available() == 2 and not permits._inside
    pool.force_release()


def test_tasks_that_start_each_other_keep_nothing(server: Server, spans: Spans) -> None:
    """Each in the block of the one before, in a copy of its context."""

    async def main() -> None:
        async with snib.aio.connect(server.url) as client:
            pool = client.permits("a")
            await pool.init(2)
            lock = traced(pool, tracer_provider=spans.provider)

            async def work(left: int) -> None:
                async with lock:
                    following = asyncio.create_task(work(left - 1)) if left else None
                if following is None:
                    assert len([node for node in gc.get_objects() if type(node).__name__ == "_Within"]) < 10
                else:
                    tasks.append(following)

            tasks = [asyncio.create_task(work(50))]
            while tasks:
                await tasks.pop()
            await pool.force_release()

    asyncio.run(main())


def test_released_in_another_thread(client: snib.Client, spans: Spans, caplog: pytest.LogCaptureFixture) -> None:
    """The block ends in its own context nevertheless: what follows it is no child of the hold."""
    lock = traced(client.lock("a"), tracer_provider=spans.provider)
    for form in (lambda: lock, lock.hold):
        with pytest.raises(snib.NotHeld), form() as hold:
            thread = threading.Thread(target=hold.release)
            thread.start()
            thread.join()
        assert trace.get_current_span() is trace.INVALID_SPAN
    assert sorted(spans.take()) == sorted(RELEASED * 2)
    assert not caplog.records  # such as "Failed to detach context"


def test_a_released_hold_protects_no_block(server: Server, client: snib.Client, spans: Spans) -> None:
    async def main() -> None:
        async with snib.aio.connect(server.url) as client:
            for lock in (client.lock("a"), traced(client.lock("a"), tracer_provider=spans.provider)):
                async with await lock.hold() as hold:
                    pass
                with pytest.raises(snib.NotHeld, match="released before"):
                    async with hold:
                        pytest.fail("ran without the lock")
                assert trace.get_current_span() is trace.INVALID_SPAN

    hold = traced(client.lock("a"), tracer_provider=spans.provider).hold()
    hold.release()
    with pytest.raises(snib.NotHeld, match="released before"), hold:
        pytest.fail("ran without the lock")
    assert trace.get_current_span() is trace.INVALID_SPAN
    asyncio.run(main())


def test_released_in_another_task(server: Server, spans: Spans, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with snib.aio.connect(server.url) as client:
            lock = traced(client.lock("a"), tracer_provider=spans.provider)
            for form in (lambda: lock, lock.hold, None):
                block = await lock.hold() if form is None else form()
                with pytest.raises(snib.NotHeld):
                    async with block as hold:
                        await asyncio.create_task(hold.release())
                assert trace.get_current_span() is trace.INVALID_SPAN

    asyncio.run(main())
    assert sorted(spans.take()) == sorted(RELEASED * 3)
    assert not caplog.records


def test_objects_that_end_in_another_order(client: snib.Client, spans: Spans) -> None:
    """As the services of an application, each with a stack of what it has begun."""
    pool = client.permits("a")
    pool.init(2)
    permits = traced(pool, tracer_provider=spans.provider)
    stacks = contextlib.ExitStack(), contextlib.ExitStack()

    def start(stack: contextlib.ExitStack) -> Any:
        return stack.enter_context(permits)

    first, second = map(start, stacks)
    stacks[0].close()
    assert [hold.hold.state for hold in (first, second)] == [snib.State.RELEASED, snib.State.VALID]
    stacks[1].close()
    assert second.hold.state is snib.State.RELEASED and trace.get_current_span() is trace.INVALID_SPAN
    assert sorted(spans.take()) == sorted(RELEASED * 2)
    pool.force_release()

"""What the spans of locks say."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import anyio
import pytest
import snib
import snib.aio
import snib.anyio
from fakes import AsyncFakeLock, FakeLock, every_async_lock, every_lock
from opentelemetry import trace
from snib import protocols
from snib.opentelemetry import traced
from spans import RELEASED, Spans, attributes
from support import PATIENCE, Server, brief, brief_in_task, eventually


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture
def counter(server: Server) -> Iterator[None]:
    """The counter of fencing tokens stays, as it must."""
    yield
    for key in server.admin.keys("redisson_lock_token:*"):
        server.admin.delete(key)


LONG = 3600.0  # a lease, much longer than the client's

# ---- programs with threads -----------------------------------------------------------------------


@pytest.mark.usefixtures("counter")
def test_a_hold_has_two_spans(client: snib.Client, spans: Spans) -> None:
    lock = traced(client.fenced_lock("orders"), tracer_provider=spans.provider)
    with spans.tracer.start_as_current_span("work") as work, lock.hold(timeout=PATIENCE) as hold:
        assert hold.token == 1 and hold.remaining() > 0 and not hold.lost.is_set()
        hold.check()
        with spans.tracer.start_as_current_span("inside"):
            owner = hold.owner
    wait, held, inside = (spans.named(name) for name in ("snib.wait", "snib.hold", "inside"))
    assert attributes(wait) == {"snib.lock.name": "orders", "snib.lock.kind": "fenced", "snib.outcome": "granted"}
    assert attributes(held) == {
        "snib.lock.name": "orders", "snib.lock.kind": "fenced", "snib.outcome": "released",
        "snib.lock.owner": owner, "snib.fencing.token": 1,
    }
    assert wait.parent == held.parent == work.get_span_context()
    assert inside.parent == held.get_span_context()
    assert wait.end_time and held.start_time and wait.end_time <= held.start_time
    assert wait.status.is_unset and held.status.is_unset
    assert wait.instrumentation_scope and wait.instrumentation_scope.name == "snib"
    assert trace.get_current_span() is trace.INVALID_SPAN


@pytest.mark.usefixtures("counter")
def test_every_way_to_hold(client: snib.Client, spans: Spans) -> None:
    for name in ("semaphore", "permits"):
        getattr(client, name)(name).init(1)
    for plain in every_lock(client):
        lock = traced(plain, tracer_provider=spans.provider)
        assert isinstance(lock, protocols.Lock) and lock.lock is plain
        with lock.hold(timeout=PATIENCE) as hold:
            assert isinstance(hold, protocols.Hold)
        assert spans.take() == RELEASED, plain
        with lock as hold:
            hold.check()
        assert spans.take() == RELEASED, plain
        held = lock.hold(timeout=PATIENCE)
        assert spans.take() == RELEASED[:1]
        assert trace.get_current_span() is trace.INVALID_SPAN # not within `with`
        held.release()
        assert spans.take() == RELEASED[1:]
        assert lock.acquire(timeout=PATIENCE)
        lock.release()
        assert spans.take() == RELEASED[:1]
    for name in ("semaphore", "permits"):
        getattr(client, name)(name).force_release()


def test_options_of_a_kind(client: snib.Client, spans: Spans) -> None:
    permits = client.permits("p")
    permits.init(3)
    lock = traced(permits, tracer_provider=spans.provider)
    with lock.hold(n=2, timeout=PATIENCE):
        assert lock.lock.available() == 1  # type: ignore[attr-defined]
        assert not lock.acquire(blocking=False, n=2)
    assert lock.acquire(n=3)
    lock.release(3)
    assert spans.take() == [("wait", "granted"), ("wait", "busy"), ("hold", "released"), ("wait", "granted")]
    permits.force_release()


def test_refusals_are_no_errors(client: snib.Client, spans: Spans) -> None:
    lock = traced(client.lock("a"), tracer_provider=spans.provider)
    with client.lock("a"):
        for timeout, error, outcome in ((0, snib.Busy, "busy"), (0.1, snib.Timeout, "timeout")):
            with pytest.raises(error):
                lock.hold(timeout=timeout)
            assert not lock.acquire(timeout=timeout)
            assert all(span.status.is_unset and not span.events for span in spans)
            assert spans.take() == [("wait", outcome)] * 2
        assert not lock.acquire(blocking=False)
        assert spans.take() == [("wait", "busy")]


def test_acquire_without_a_timeout_waits(server: Server, client: snib.Client, spans: Spans) -> None:
    """Whatever a lock, or a number of permits, means by -1."""
    permits = client.permits("p")
    permits.init(1)
    for lock in (client.lock("a"), permits):
        taken = lock.hold()
        with concurrent.futures.ThreadPoolExecutor(1) as executor:
            waiting = executor.submit(traced(lock, tracer_provider=spans.provider).acquire)
            eventually(lambda: client.stats().waiting == 1)
            taken.release()
            assert waiting.result(PATIENCE)
        lock.release()
        assert spans.take() == [("wait", "granted")]

    async def waits() -> None:
        async with snib.aio.connect(server.url) as waiter:
            lock = waiter.permits("p")
            taken = await lock.hold()
            waiting = asyncio.create_task(traced(lock, tracer_provider=spans.provider).acquire())
            while waiter.stats().waiting == 0:
                await asyncio.sleep(0.001)
            await taken.release()
            assert await waiting
            await lock.release()

    asyncio.run(waits())
    assert spans.take() == [("wait", "granted")]
    permits.force_release()


def test_errors(spans: Spans) -> None:
    with snib.connect("redis://127.0.0.1:1", try_timeout=0.1) as client:
        lock = traced(client.lock("a"), tracer_provider=spans.provider)
        with pytest.raises(snib.NotConnected):
            lock.hold(timeout=0)
    span = spans.named("snib.wait")
    assert attributes(span)["error.type"] == "NotConnected" and attributes(span)["snib.outcome"] == "error"
    assert not span.status.is_ok and "127.0.0.1:1" in str(span.status.description)


def test_a_loss(client: snib.Client, spans: Spans) -> None:
    lock = traced(client.lock("a", lease=1.0), tracer_provider=spans.provider)
    hold = brief(lock)
    assert hold.lost.wait(PATIENCE)
    with pytest.raises(snib.Lost):
        hold.release()
    with pytest.raises(snib.NotHeld):
        hold.release() # the span has ended already
    with pytest.raises(ValueError), brief(lock) as hold: # whose loss is not raised
        assert hold.lost.wait(PATIENCE)
        raise ValueError
    lost = [span for span in spans if span.name == "snib.hold"]
    assert len(lost) == 2
    for span in lost:
        assert attributes(span)["snib.loss.reason"] == "expired" and attributes(span)["snib.outcome"] == "lost"
        assert not span.status.is_ok and span.status.description == "lost: expired"
    eventually(lambda: client.lock("a").info().held is False)


def test_a_traced_hold_is_extended(server: Server, client: snib.Client, spans: Spans) -> None:
    def step(lock: protocols.Lock) -> float:
        with lock.hold(timeout=PATIENCE) as hold:
            hold.extend(LONG)
            return hold.remaining()

    async def step_in_task() -> float:
        async with snib.aio.connect(server.url) as other:
            lock: protocols.AsyncLock = traced(other.lock("a"), tracer_provider=spans.provider)
            async with lock.hold(timeout=PATIENCE) as hold:
                await hold.extend(LONG)
                return hold.remaining()

    lock = traced(client.lock("a"), tracer_provider=spans.provider)
    for left in (step(lock), asyncio.run(step_in_task())):
        assert LONG / 2 < left <= LONG
    hold = lock.hold(timeout=PATIENCE)
    hold.release()
    with pytest.raises(snib.NotHeld):
        hold.extend()
    fake = FakeLock()
    step(traced(fake, tracer_provider=spans.provider))
    assert fake.holds[0].leases == [LONG]


def test_the_body_fails(client: snib.Client, spans: Spans) -> None:
    lock = traced(client.lock("a"), tracer_provider=spans.provider)
    with pytest.raises(ValueError), lock:
        raise ValueError("of the work")
    assert spans.named("snib.hold").status.is_unset and not spans.named("snib.hold").events
    assert spans.take() == RELEASED


def test_fakes(spans: Spans) -> None:
    lock = traced(FakeLock(), tracer_provider=spans.provider)
    with pytest.raises(snib.Lost), lock.hold() as hold:
        hold.hold.lost.set()  # type: ignore[attr-defined]
    assert attributes(spans.named("snib.wait")) == {"snib.outcome": "granted"}
    assert attributes(spans.named("snib.hold"))["snib.loss.reason"] == "unknown"

    async def main() -> None:
        async with traced(AsyncFakeLock(), tracer_provider=spans.provider) as hold:
            hold.check()

    spans.take()
    asyncio.run(main())
    assert spans.take() == RELEASED


def test_a_lock_that_wraps_another(client: snib.Client, spans: Spans) -> None:
    """Its hold() is the one that is called, although it has whatever the other one has."""

    class Wrapped(FakeLock):
        def hold(self, *, timeout: float | None = None) -> Any:
            used.append(timeout)
            return lock.hold(timeout=timeout)

        def __getattr__(self, name: str) -> Any:
            return getattr(lock, name)

    used: list[float | None] = []
    lock = client.lock("a")
    with traced(Wrapped(), tracer_provider=spans.provider).hold(timeout=2) as hold:
        hold.check()
    assert used == [2]
    double = mock.create_autospec(snib.Lock, instance=True)
    double.hold.return_value = FakeLock().hold()
    with traced(double, tracer_provider=spans.provider).hold(timeout=2):
        double.hold.assert_called_once_with(timeout=2)


def test_what_is_no_lock(client: snib.Client) -> None:
    for thing in (client, client.latch("l"), client.rwlock("r"), "lock"):
        with pytest.raises(TypeError, match="not a lock"):
            traced(thing)  # type: ignore[call-overload]


# ---- programs with asyncio or anyio --------------------------------------------------------------


@pytest.mark.usefixtures("counter")
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_every_way_to_hold_in_tasks(server: Server, spans: Spans, backend: str) -> None:
    async def main() -> None:
        async with snib.anyio.connect(server.url) as client:
            for name in ("semaphore", "permits"):
                await getattr(client, name)(name).init(1)
            for plain in every_async_lock(client):
                lock = traced(plain, tracer_provider=spans.provider)
                assert isinstance(lock, protocols.AsyncLock) and lock.lock is plain
                holding = lock.hold(timeout=PATIENCE)
                assert isinstance(holding, protocols.AsyncHolding)
                async with holding as hold:
                    assert isinstance(hold, protocols.AsyncHold)
                    with spans.tracer.start_as_current_span("inside"):
                        pass
                inside, held = spans.named("inside"), spans.named("snib.hold")
                assert inside.parent == held.get_span_context()
                assert [name for name, _ in spans.take()] == ["wait", "inside", "hold"], plain
                async with lock as hold:
                    hold.check()
                assert spans.take() == RELEASED, plain
                await (await lock.hold(timeout=PATIENCE)).release()
                assert spans.take() == RELEASED, plain
                async with await lock.hold(timeout=PATIENCE) as hold:
                    hold.check()
                assert spans.take() == RELEASED, plain
                assert await lock.acquire(timeout=PATIENCE)
                await lock.release()
                assert spans.take() == RELEASED[:1]
            for name in ("semaphore", "permits"):
                await getattr(client, name)(name).force_release()

    anyio.run(main, backend=backend)


def test_tasks_have_their_own_spans(server: Server, spans: Spans) -> None:
    async def main() -> None:
        async with snib.aio.connect(server.url) as client:
            lock = traced(client.lock("a"), tracer_provider=spans.provider)

            async def work(number: int) -> None:
                with spans.tracer.start_as_current_span(f"work {number}"):
                    async with lock as hold:
                        hold.check()
                        await asyncio.sleep(0)

            await asyncio.gather(*map(work, range(20)))
            assert not lock._inside

    asyncio.run(main())
    works = {span.context.span_id for span in spans if span.name.startswith("work")}
    holds = [span for span in spans if span.name == "snib.hold"]
    assert {span.parent.span_id for span in holds if span.parent} == works and len(holds) == 20


def test_the_task_that_calls_is_the_owner(server: Server, spans: Spans) -> None:
    async def main() -> None:
        async with snib.aio.connect(server.url) as client:
            lock = traced(client.rlock("x"), tracer_provider=spans.provider)
            [granted] = await asyncio.gather(lock.acquire())  # in a task of its own
            assert granted
            await asyncio.gather(lock.release())
            assert not await client.lock("x").locked()

    asyncio.run(main())
    assert spans.take() == [("wait", "granted")]


def test_refusals_and_losses_in_tasks(server: Server, spans: Spans) -> None:
    async def main() -> None:
        async with snib.aio.connect(server.url) as client:
            lock = traced(client.lock("a", lease=1.0), tracer_provider=spans.provider)
            async with client.lock("a"):
                with pytest.raises(snib.Busy):
                    await lock.hold(timeout=0)
                with pytest.raises(snib.Timeout):
                    async with lock.hold(timeout=0.1):
                        pass
                assert not await lock.acquire(timeout=0)
                waiter = asyncio.create_task(lock.acquire())
                await asyncio.sleep(0)
                waiter.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await waiter
            assert spans.take() == [("wait", outcome) for outcome in ("busy", "timeout", "busy", "cancelled")]
            hold = await brief_in_task(lock)
            assert await hold.lost.wait()
            with pytest.raises(snib.Lost):
                await hold.release()
            with pytest.raises(snib.Lost): # the body is cancelled
                while True:
                    with contextlib.suppress(snib.Unreachable): # its lease had ended before it was here
                        async with lock.hold():
                            await asyncio.sleep(PATIENCE)
            for span in [span for span in spans if span.name == "snib.hold"]:
                assert attributes(span)["snib.loss.reason"] == "expired"
            assert [outcome for name, outcome in spans.take() if name == "hold"] == ["lost", "lost"]

    asyncio.run(main())
    eventually(server.clean)

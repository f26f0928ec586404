"""Spans of locks, and a client's statistics as OpenTelemetry reads them."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import dataclasses
import gc
import itertools
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

import anyio
import pytest
import snib
import snib.aio
import snib.anyio
from fakes import AsyncFakeLock, FakeLock, every_async_lock, every_lock
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from snib import _links, protocols
from snib.opentelemetry import observe, traced
from snib.prometheus import Collector
from support import PATIENCE, RENEWED, Server, brief, brief_in_task, eventually


class Begun(SpanProcessor):
    """The spans of holds, in the order in which they have begun."""

    def __init__(self) -> None:
        self.holds: list[ReadableSpan] = []

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        if span.name == "snib.hold":
            self.holds.append(span)


class Spans:
    """What ends up in a trace."""

    def __init__(self) -> None:
        self.begun = Begun()
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.provider.add_span_processor(self.begun)
        self.tracer = self.provider.get_tracer("test")

    def __iter__(self) -> Iterator[ReadableSpan]:
        return iter(self.exporter.get_finished_spans())

    def take(self) -> list[tuple[str, str]]:
        """The names and outcomes since the last call."""
        spans = self.exporter.get_finished_spans()
        self.exporter.clear()
        self.begun.holds.clear()
        return [(span.name.removeprefix("snib."), str((span.attributes or {}).get("snib.outcome"))) for span in spans]

    def named(self, name: str) -> ReadableSpan:
        [span] = [span for span in self if span.name == name]
        return span


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture
def counter(server: Server) -> Iterator[None]:
    """The counter of fencing tokens stays, as it must."""
    yield
    for key in server.admin.keys("redisson_lock_token:*"):
        server.admin.delete(key)


@pytest.fixture(autouse=True)
def nothing_before() -> None:
    """Tests use the same names, and a later server may have the address of an earlier one."""
    _links._last.clear()


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


LONG = 3600.0  # a lease, much longer than the client's
RELEASED = [("wait", "granted"), ("hold", "released")]

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
    """As frameworks do with generators."""
    lock = traced(client.lock("a"), tracer_provider=spans.provider)
    thread = threading.Thread(target=lock.__enter__)
    thread.start()
    thread.join()
    lock.__exit__(None, None, None)
    assert spans.take() == RELEASED
    assert not client.lock("a").locked()


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


class Silent:
    """A lock whose holds must not be asked for anything, because nothing would be recorded."""

    def __init__(self, lock: snib.Lock) -> None:
        self._lock = lock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lock, name)

    def hold(self, **options: Any) -> Any:
        hold = self._lock.hold(**options)

        class Hold:
            release = staticmethod(hold.release)
            remaining, check, lost = hold.remaining, hold.check, hold.lost

            @property
            def owner(self) -> str:
                raise AssertionError("asked for its owner")

            token = reason = owner

            def __enter__(self) -> Hold:
                return self

            def __exit__(self, *error: Any) -> None:
                hold.__exit__(*error)

        return Hold()

    acquire = release = __enter__ = __exit__ = lambda self, *_: None


def try_every_end(lock: Any) -> None:
    """Ends of holds that differ only in what their spans say."""
    with lock as hold:
        hold.check()
        with pytest.raises(snib.Busy):
            lock.hold(timeout=0)
    with pytest.raises(ValueError), lock:
        raise ValueError
    lock.hold().release()
    thread = threading.Thread(target=lock.__enter__)
    thread.start()
    thread.join()
    with traced(FakeLock()):
        lock.__exit__(None, None, None)
    assert not lock._inside and not lock.lock.locked()


def test_without_a_provider(client: snib.Client, spans: Spans) -> None:
    lock = traced(Silent(client.lock("a")))  # type: ignore[call-overload]
    try_every_end(lock)
    with spans.tracer.start_as_current_span("work") as work, lock:
        assert trace.get_current_span() is work # which stays the current one
    silent = traced(client.lock("a"), tracer_provider=trace.NoOpTracerProvider())
    with spans.tracer.start_as_current_span("work") as work, silent:
        assert trace.get_current_span() is work


def test_spans_that_are_not_recorded(client: snib.Client, spans: Spans) -> None:
    """Their children are not recorded, either, because they are the current ones."""
    provider = TracerProvider(sampler=ParentBased(ALWAYS_OFF))
    provider.add_span_processor(SimpleSpanProcessor(spans.exporter))
    lock = traced(Silent(client.lock("a")), tracer_provider=provider)  # type: ignore[call-overload]
    try_every_end(lock)
    with lock:
        assert trace.get_current_span().get_span_context().is_valid
        provider.get_tracer("test").start_span("inside").end()
    assert trace.get_current_span() is trace.INVALID_SPAN
    assert spans.take() == []


class Faulty(trace.TracerProvider, trace.Tracer):
    """Its nth call fails, or each from the nth on."""

    def __init__(self, n: int, ever: bool) -> None:
        self.n, self.ever, self.calls = n, ever, 0

    def step(self) -> None:
        self.calls += 1
        if self.calls == self.n or (self.ever and self.calls > self.n):
            raise RuntimeError("a processor's mistake")

    def get_tracer(self, *arguments: object, **more: object) -> trace.Tracer:
        return self

    def start_span(self, *arguments: object, **more: object) -> trace.Span:
        self.step()
        return FaultySpan(self)

    start_as_current_span = None  # type: ignore[assignment]  # which nothing uses


class FaultySpan(trace.NonRecordingSpan):
    def __init__(self, faulty: Faulty) -> None:
        super().__init__(trace.SpanContext(1, 2, False))
        self.step = faulty.step

    def is_recording(self) -> bool:
        self.step()
        return True

    def end(self, end_time: int | None = None) -> None:
        self.step()

    def get_span_context(self) -> trace.SpanContext:
        self.step()
        return super().get_span_context()

    def set_attributes(self, attributes: object) -> None:
        self.step()

    def set_attribute(self, key: str, value: object) -> None:
        self.step()

    def set_status(self, status: object, description: str | None = None) -> None:
        self.step()


@pytest.fixture(params=[False, True], ids=["once", "ever"])
def faulty(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Faulty]:
    """Failures at each step, in turn; one is logged each time."""

    def each() -> Iterator[Faulty]:
        for n in itertools.count(1):
            monkeypatch.setattr(snib.opentelemetry._harmless, "_is_told", False)
            _links._last.clear()
            provider = Faulty(n, request.param)
            yield provider
            if provider.calls < n:
                break
        assert n > 20

    return each()


def faults(caplog: pytest.LogCaptureFixture) -> int:
    told = [record for record in caplog.records if record.name == "snib"]
    assert all(record.exc_info and "a span failed" in record.getMessage() for record in told)
    caplog.clear()
    return len(told)


def test_no_failure_of_tracing_reaches_the_lock(
    client: snib.Client, faulty: Iterator[Faulty], caplog: pytest.LogCaptureFixture
) -> None:
    for provider in faulty:
        lock = traced(client.lock("a"), tracer_provider=provider)
        try_every_end(lock)
        assert lock.acquire(timeout=0)
        lock.release()
        assert trace.get_current_span() is trace.INVALID_SPAN
        assert faults(caplog) == (provider.calls >= provider.n)
    assert client.stats().abandoned == 0


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_no_failure_of_tracing_reaches_the_lock_in_tasks(
    server: Server, faulty: Iterator[Faulty], caplog: pytest.LogCaptureFixture, backend: str
) -> None:
    async def try_every_end(lock: Any) -> None:
        async with lock as hold:
            hold.check()
            with pytest.raises(snib.Busy):
                await lock.hold(timeout=0)
        with pytest.raises(ValueError):
            async with lock.hold():
                raise ValueError
        await (await lock.hold()).release()
        async with await lock.hold():
            pass
        assert await lock.acquire(timeout=0)
        await lock.release()

    async def main() -> None:
        async with snib.anyio.connect(server.url) as client:
            for provider in faulty:
                lock = traced(client.lock("a"), tracer_provider=provider)
                await try_every_end(lock)
                assert not lock._inside and client.stats().held == 0
                assert trace.get_current_span() is trace.INVALID_SPAN
                assert faults(caplog) == (provider.calls >= provider.n)
            assert client.stats().abandoned == 0

    anyio.run(main, backend=backend)


def test_a_provider_that_cannot_be_had(client: snib.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("a plugin's mistake")

    lock = traced(client.lock("a"))
    assert not lock._is_settled
    monkeypatch.setattr(trace, "get_tracer_provider", fail)
    with lock as hold:
        hold.check()
    with traced(client.lock("b")) as hold:
        hold.check()


PROVIDER_LATER = """
import sys, snib, snib.opentelemetry
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

proxy = trace.get_tracer_provider()
exporter, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
with snib.connect(sys.argv[1]) as client:
    locks = [snib.opentelemetry.traced(client.lock(name), tracer_provider=given)
             for name, given in (("a", None), ("b", proxy))]
    with locks[0], locks[1]: # ends with a provider that it did not begin with
        trace.set_tracer_provider(provider)
    for lock in locks:
        with lock:
            pass
print(*(span.name + " " + span.attributes["snib.lock.name"] for span in exporter.get_finished_spans()), sep=", ")
"""


def test_a_provider_that_comes_later(server: Server) -> None:
    def told(**environment: str) -> str:
        return subprocess.run([sys.executable, "-c", PROVIDER_LATER, server.url], env={**os.environ, **environment},
                              check=True, capture_output=True, text=True).stdout.strip()

    assert told() == "snib.wait a, snib.hold a, snib.wait b, snib.hold b"
    assert told(OTEL_SDK_DISABLED="true") == ""


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


# ---- links to the hold before --------------------------------------------------------------------


def before(spans: Spans) -> list[int | None]:
    """For each hold the number of the one that its span is linked to."""
    holds = spans.begun.holds
    known = [span.get_span_context() for span in holds]
    for span in holds:
        assert [dict(link.attributes or {}) for link in span.links] in ([], [{"snib.link": "previous_hold"}])
    return [known.index(span.links[0].context) if span.links else None for span in holds]


@pytest.mark.parametrize("kind", ["lock", "fair_lock", "permits"])
def test_a_waiter_is_linked_to_the_holder(client: snib.Client, spans: Spans, kind: str) -> None:
    plain = getattr(client, kind)("a")
    if kind == "permits":
        plain.init(1)
    lock = traced(plain, tracer_provider=spans.provider)
    other = traced(client.lock("b"), tracer_provider=spans.provider)

    def wait() -> None:
        with lock.hold(timeout=PATIENCE) as hold:
            hold.check()

    with lock:
        waiter = threading.Thread(target=wait)
        waiter.start()
        eventually(lambda: client.stats().waiting == 1)
        with other: # was never held
            pass
    waiter.join()
    assert [attributes(span)["snib.lock.name"] for span in spans.begun.holds] == ["a", "b", "a"]
    assert before(spans) == [None, None, 0]
    assert not any(span.links for span in spans if span.name == "snib.wait")
    if kind == "permits":
        plain.force_release()


def test_a_waiting_task_is_linked_to_the_holder(server: Server, spans: Spans) -> None:
    async def main() -> None:
        async with snib.aio.connect(server.url) as client:
            lock = traced(client.lock("a"), tracer_provider=spans.provider)
            waited = asyncio.Event()

            async def hold() -> None:
                async with lock, client.lock("b").hold(timeout=PATIENCE):
                    await waited.wait()

            async def wait() -> None:
                async with lock.hold(timeout=PATIENCE):
                    pass

            holder = asyncio.create_task(hold())
            while not await client.lock("b").locked():
                await asyncio.sleep(0)
            waiter = asyncio.create_task(wait())
            while client.stats().waiting != 1:
                await asyncio.sleep(0)
            waited.set()
            await asyncio.gather(holder, waiter)
            await (await lock.hold(timeout=PATIENCE)).release()

    asyncio.run(main())
    assert before(spans) == [None, 0, 1]


def test_the_same_lock_at_another_client(server: Server, client: snib.Client, spans: Spans) -> None:
    """Users and options make no difference, the kind does, and so does the database."""
    with snib.connect(server.url + "&lease=20s") as second, snib.connect(server.url + "&db=1") as elsewhere:
        for lock in (client.lock("a"), second.lock("a"), elsewhere.lock("a"), second.plain_lock("p"), second.spin_lock("p"),
                     snib.MultiLock([client.lock("m"), client.lock("n")]),
                     snib.MultiLock([second.lock("n"), second.lock("m")]),
                     snib.MultiLock([second.lock("n"), elsewhere.lock("m")])):
            with traced(lock, tracer_provider=spans.provider):
                pass
    assert before(spans) == [None, 0, None, None, None, None, 5, None]


def test_where_locks_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """In no link, but in memory, so without the password."""
    monkeypatch.setenv("SNIB_URL", "redis://user:password@host:7?lease=3s")
    for url, address in {
        None: "redis://host:7",
        "redis://:pass%40word@host/2?lease=3s": "redis://host/2",
        "redis://host?lease=3s&db=1": "redis://host?db=1",
        "unix://me@/a@b/s?lease=3s": "unix:///a@b/s",
        "rediss+sentinel://a,b:1/service/0": "rediss+sentinel://a,b:1/service/0",
    }.items():
        with snib.connect(url) as client:
            assert client._address == address


def test_the_reader_that_has_ended_last(client: snib.Client, spans: Spans) -> None:
    """Only while no writer has the lock: it ends after the readers within it."""
    read, write = (traced(getattr(client.rwlock("rw"), side), tracer_provider=spans.provider) for side in ("read", "write"))

    def in_thread(lock: Any) -> Any:
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(lock.hold(timeout=PATIENCE)))
        thread.start()
        thread.join()
        return found[0]

    readers = [in_thread(read) for _ in range(3)] # each links to none, as none has ended
    for number in (0, 2, 1):
        readers[number].release()
    in_thread(read).release()
    with write, read, write:
        pass
    in_thread(read).release()
    assert before(spans) == [None, None, None, 1, 3, None, None, 4]


def test_a_reentry_is_not_after_itself(client: snib.Client, spans: Spans) -> None:
    lock = traced(client.rlock("again"), tracer_provider=spans.provider)
    for _ in range(2):
        with lock, lock:
            pass
    assert before(spans) == [None, None, 0, None]


def test_a_loss_that_is_noticed_late(client: snib.Client, spans: Spans) -> None:
    lock = traced(client.lock("a", lease=1.0), tracer_provider=spans.provider)
    first = brief(lock)
    assert first.lost.wait(PATIENCE)
    with traced(client.lock("a"), tracer_provider=spans.provider).hold(timeout=PATIENCE):
        with pytest.raises(snib.Lost):
            first.release()
    with traced(client.lock("a"), tracer_provider=spans.provider):
        pass
    assert before(spans) == [None, 0, 1]


def test_permits_are_linked_to_those_that_were_given_back(client: snib.Client, spans: Spans) -> None:
    for name in ("permits", "semaphore"):
        lock = getattr(client, name)(name)
        lock.init(2)
        slots = traced(lock, tracer_provider=spans.provider)
        holds = [slots.hold(timeout=PATIENCE) for _ in range(2)]
        holds[0].release()
        with slots.hold(timeout=PATIENCE):
            holds[1].release()
        with slots.hold(timeout=PATIENCE):
            pass
        assert before(spans) == [None, None, 0, 2]
        spans.take()
        lock.force_release()


def test_few_locks_are_remembered(client: snib.Client, spans: Spans, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_links, "LIMIT", 3)
    for name in ("a", "b", "c", "a", "d", "a", "b"): # d takes the place of b
        with traced(client.lock(name), tracer_provider=spans.provider):
            pass
    assert before(spans) == [None, None, None, 0, None, 3, None]
    assert len(_links._last) == 3


def test_what_is_not_recorded_is_not_remembered(client: snib.Client, spans: Spans) -> None:
    dropped = TracerProvider(sampler=ALWAYS_OFF)
    dropped.add_span_processor(spans.begun)
    for provider in (spans.provider, dropped, trace.NoOpTracerProvider(), None, spans.provider):
        for lock in (client.lock("a"), FakeLock()):
            with traced(lock, tracer_provider=provider):
                pass
    assert [attributes(span).get("snib.lock.name") for span in spans.begun.holds] == ["a", None, "a", None]
    assert before(spans) == [None, None, 0, None]
    assert len(_links._last) == 1


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


# ---- metrics -------------------------------------------------------------------------------------


def observed(clients: Any) -> InMemoryMetricReader:
    reader = InMemoryMetricReader()
    observe(clients, meter_provider=MeterProvider([reader]))
    return reader


def collected(reader: InMemoryMetricReader) -> dict[str, Any]:
    data = reader.get_metrics_data()
    assert data
    return {m.name: m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics}


def values(metrics: dict[str, Any], name: str) -> dict[tuple[Any, ...], float]:
    return {tuple(point.attributes.values()): point.value for point in metrics[name].data.data_points}


def test_every_counter_is_there(client: snib.Client) -> None:
    found = collected(observed(client))
    names = {f"snib.{field.name}" for field in dataclasses.fields(snib.Stats)}
    losses = {name for name in names if ".lost_" in name}
    assert set(found) == names - losses - {"snib.watchdog_late_us"} | {"snib.losses", "snib.watchdog_late"}
    assert {f"snib.lost_{reason}" for (reason,) in values(found, "snib.losses")} == losses
    assert all(metric.description for metric in found.values())
    units = {"snib.memory": "By", "snib.watchdog_late": "s"}
    assert {name: metric.unit for name, metric in found.items() if metric.unit} == units
    assert found["snib.acquisitions"].data.is_monotonic and not hasattr(found["snib.held"].data, "is_monotonic")


def test_the_numbers_are_the_clients(server: Server) -> None:
    with snib.connect(server.url, lease=RENEWED) as client:
        reader = observed(client)
        hold = client.lock("held").hold(timeout=PATIENCE)
        lost = brief(client.lock("gone", lease=1.0))
        assert lost.lost.wait(PATIENCE)
        found = collected(reader)
        assert values(found, "snib.acquisitions") == {(): client.stats().acquisitions}
        assert values(found, "snib.held") == {(): 1}
        assert values(found, "snib.losses")[("expired",)] == 1
        assert values(found, "snib.memory")[()] > 0
        hold.release()
        assert values(collected(reader), "snib.held") == {(): 0}
    eventually(server.clean)


def test_times_are_counted_as_in_prometheus(server: Server) -> None:
    with snib.connect(server.url) as client:
        reader = observed({"web": client})
        lost = brief(client.lock("second", lease=1.0))
        assert lost.lost.wait(PATIENCE)
        found = collected(reader)
        held, waited = values(found, "snib.hold_time"), values(found, "snib.wait_time")
        bounds = [bound for _, bound in held]
        assert bounds[:7] == ["2e-06", "4e-06", "8e-06", "1.6e-05", "3.2e-05", "6.4e-05", "0.000128"]
        assert bounds[-2:] == ["2147.483648", "+Inf"] and len(bounds) == 32
        assert list(held.values()) == sorted(held.values())
        assert held[("web", "+Inf")] == 1 and waited[("web", "+Inf")] >= 1
        samples = {sample.labels["le"]: sample.value for metric in Collector({"web": client}).collect()
                   for sample in metric.samples if sample.name == "snib_hold_seconds_bucket"}
        assert samples == {bound: count for (_, bound), count in held.items()}
    eventually(server.clean)


def test_several_clients_are_told_apart(server: Server) -> None:
    async def main() -> None:
        jobs, web = snib.connect(server.url), snib.aio.connect(server.url)
        clients: dict[str, snib.Client | snib.aio.Client] = {"jobs": jobs}
        reader = observed(clients)
        assert values(collected(reader), "snib.held") == {("jobs",): 0}
        clients["web"] = web
        async with web.lock("a"):
            found = collected(reader)
            assert values(found, "snib.held") == {("jobs",): 0, ("web",): 1}
            assert values(found, "snib.losses")[("web", "taken")] == 0
        jobs.close()
        await web.close()
        assert values(collected(reader), "snib.acquisitions") == {("jobs",): 0, ("web",): 1}

    asyncio.run(main())

"""Locks are as they are without tracing where it is absent, records nothing, or fails."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import anyio
import pytest
import snib
import snib.anyio
from fakes import FakeLock
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from snib import _links
from snib.opentelemetry import traced
from spans import Spans, attributes
from support import Server


@pytest.fixture
def spans() -> Spans:
    return Spans()


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

    def by_hand() -> None:
        lock.__enter__()
        with traced(FakeLock()):
            lock.__exit__(None, None, None)

    thread = threading.Thread(target=by_hand)
    thread.start()
    thread.join()
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
    assert all(record.client == "" for record in told)  # type: ignore[attr-defined]  # which each record has
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

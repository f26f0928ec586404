"""The span of a hold is linked to that of the hold before."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
import snib
import snib.aio
from fakes import FakeLock
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from snib import _links
from snib.opentelemetry import traced
from spans import Spans, attributes
from support import PATIENCE, Server, brief, eventually


@pytest.fixture
def spans() -> Spans:
    return Spans()


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

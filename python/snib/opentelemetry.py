"""Spans for locks, and a client's counters, for OpenTelemetry.

    import snib.opentelemetry

    lock = snib.opentelemetry.traced(client.lock("orders"))
    with lock.hold(timeout=2.0) as hold:
        ...

    snib.opentelemetry.observe(client)

Each acquisition has a span `snib.wait`, until the lock was granted or refused, and each hold a span
`snib.hold`, until it was released or found lost.  Inside `with` the latter is the current span, so
that the spans of the work are its children.  A link leads from a hold to the one that had the lock
before, if this process has its span.  Nothing is patched: only a lock that was wrapped has spans.
What a provider, a sampler or a span processor raises is logged once, and the lock works on without it.
Requires the package opentelemetry-api; without a provider nothing is recorded.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import threading
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from contextvars import ContextVar, Token
from functools import partial
from itertools import starmap
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload
from weakref import ref

from opentelemetry import context, metrics, trace
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
from opentelemetry.trace import (
    Link,
    NoOpTracer,
    ProxyTracerProvider,
    Span,
    Status,
    StatusCode,
    Tracer,
    TracerProvider,
)

from . import _core, _log, protocols
from ._client import BaseClient, Stats
from ._codes import Busy, Lost, Timeout
from ._error import Error
from ._figures import COUNTERS, GAUGES, REASONS, cumulated
from ._hold import OWNED
from ._kept import Block, block_at, is_of_stack, likeness
from ._links import Holder, Holders

__all__ = [
    "AsyncTracedHold",
    "AsyncTracedHolding",
    "AsyncTracedLock",
    "TracedHold",
    "TracedLock",
    "observe",
    "traced",
]

L = TypeVar("L", bound="protocols.Lock | protocols.AsyncLock")
H = TypeVar("H", bound="protocols.Hold | protocols.AsyncHold")



# ---- Spans ---------------------------------------------------------------------------------------
#
# A span costs about as much as a lock, so what nobody sees is not done: without a provider there is
# none, and one that is not recorded is the current one, for its children, but has no attributes.


class _Harmless:
    """Around what others' code does for a span: no failure of it reaches a lock, or keeps one held."""

    __slots__ = ("_is_told",)

    def __init__(self) -> None:
        self._is_told = False

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, Exception):
            return False
        if not self._is_told:
            self._is_told = True  # before a handler that traces, too
            text = "a span failed, and locks work on without; further failures are not logged"
            _log.write(None, logging.WARNING, text, exc_info=error)
        return True


_harmless = _Harmless()


class _Within:
    """That a span is the current one of a context."""

    __slots__ = ("attached", "below", "here", "is_over")

    def __init__(self, span: Span) -> None:
        self.is_over = False
        self.below = _WITHIN.get()  # in the context of a new task, that of another context
        self.attached: Any = context.attach(trace.set_span_in_context(span))
        self.here: Token[_Within | None] | None = _WITHIN.set(self)

    def remove(self) -> Any:
        """What to detach then; None: it is that of another context."""
        attached = self.attached
        try:
            if self.here is None:
                return None
            _WITHIN.reset(self.here)
        except ValueError:
            return None
        self.attached = self.here = self.below = None  # tasks that start each other are no chain
        return attached


_WITHIN: ContextVar[_Within | None] = ContextVar("snib-within", default=None)  # the innermost


def _begin_within(span: Span) -> _Within | None:
    """Make the span the current one; returns what _end_within() wants."""
    with _harmless:
        return _Within(span)
    return None


def _end_within(within: _Within | None) -> None:
    """May be called in another context, where nothing is to be done: that of a generator which others have ended.

    Blocks need not end in the order of their nesting: what the last one restores is what was there before all of them.
    """
    if within is None:
        return
    within.is_over = True
    outermost = None
    node = _WITHIN.get()
    while node is not None and node.is_over:
        below = node.below
        attached = node.remove()
        if attached is None:
            break
        outermost, node = attached, below
    if outermost is not None:
        context.detach(outermost)  # which logs its failures itself


def _fail(span: Span, error: BaseException) -> None:
    span.set_attribute("error.type", type(error).__qualname__)
    span.set_status(Status(StatusCode.ERROR, str(error)))


class _Wait:
    """Around an acquisition: its span is the current one."""

    __slots__ = ("_outcome", "_span", "_within")

    def __init__(self, span: Span | None) -> None:
        self._span = span
        self._outcome = "granted"

    def __enter__(self) -> _Wait:
        if self._span is not None:
            self._within = _begin_within(self._span)
        return self

    def answer(self, granted: bool, blocking: bool, timeout: float | None) -> bool:
        """How it ended, which acquire() says without an exception."""
        if self._span is not None and not granted:
            self._outcome = "timeout" if blocking and (timeout is None or timeout > 0) else "busy"
        return granted

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        span = self._span
        if span is None:
            return
        _end_within(self._within)
        with _harmless:
            if span.is_recording():
                span.set_attribute("snib.outcome", self._end(span, error))
        with _harmless:
            span.end()

    def _end(self, span: Span, error: BaseException | None) -> str:
        if error is None:
            return self._outcome
        if isinstance(error, (Busy, Timeout)):  # which are no failures
            return "busy" if isinstance(error, Busy) else "timeout"
        if not isinstance(error, Exception):
            return "cancelled"
        _fail(span, error)
        return "error"


_UNSHOWN = Exception("not shown")  # a body's failure that nobody handles any more
_UNSEEN = _Wait(None)  # has no state, so it serves all


def _task_here() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no event loop of asyncio
        return None


def _caller_of(lock: Any) -> int:
    """The thread or task, as the lock tells them apart."""
    if callable(known := getattr(lock, "_caller", None)):
        return int(known())
    task = _task_here()
    return threading.get_ident() if task is None else id(task)


def _has_acquired(lock: Any, caller: int) -> bool:
    """Whether acquire() of the lock has taken something for the caller that is not released yet, as far as that is known."""
    known = getattr(lock, "_kept", None)
    return callable(known) and known().has_acquired(caller)


class _Entered:
    """The blocks of `with` on one object that have begun and not ended, in whatever tasks and threads."""

    _inside: list[Any]

    def _note(self, inside: Any, lock: Any, block: Block) -> None:
        """Remember what the end of this block is about."""
        task = _task_here()
        inside._block = block
        inside._caller = _caller_of(lock)
        inside._task = None if task is None else ref(task)
        self._inside.append(inside)

    def _noted(self, lock: Any, block: Block) -> Any:
        """What this block is about; if its frame does not tell, what the innermost one of the caller is, or one that a task
        has left behind.  None: it ends what acquire() has taken, or nothing.  All as for the lock itself.

        Blocks need not end in the order of their nesting, nor in the thread or task where they began.
        """
        caller = _caller_of(lock)
        acquired = _has_acquired(lock, caller)
        is_pushed = acquired and is_of_stack(block)
        found, newest, left, best = None, None, None, 0
        for inside in self._inside[::-1]:
            own = inside._caller == caller
            if own and inside._block == block:  # the usual case
                return inside
            like = 2 * likeness(inside._block, block, own) + own
            if like > best and like > 1:
                found, best = inside, like
            if own:
                newest = newest or inside
                is_pushed = is_pushed and not is_of_stack(inside._block)
            elif not acquired and inside._is_left():
                left = left or inside
        if found is None and not is_pushed:
            found = newest or left
        return found

    def _forget(self, inside: Any) -> Any:
        """May be called again."""
        if inside in self._inside:
            self._inside.remove(inside)
        return inside


class _Noted:
    """What one block is about: where it began."""

    _block: Block
    _caller: int
    _task: ref[asyncio.Task[Any]] | None

    def _is_left(self) -> bool:
        """Whether the task that began it has ended."""
        if self._task is None:
            return False
        task = self._task()
        return task is None or task.done()


class _Traced(_Entered, Generic[L]):
    """A lock, and the beginnings of its spans."""

    def __init__(self, lock: L, provider: TracerProvider | None) -> None:
        self.lock = lock
        self._provider = provider
        self._tracer: Tracer | None = None
        self._is_settled = False  # whether there is a provider, even if it records nothing
        self._attributes = {
            f"snib.lock.{word}": value
            for word in ("name", "kind")
            if isinstance(value := getattr(lock, word, None), str)
        }
        self._holders = Holders(lock)
        self._inside = []  # what `with` on the lock itself has entered
        with _harmless:
            self._settle()

    def _settle(self) -> None:
        provider = self._provider
        if provider is None or isinstance(provider, ProxyTracerProvider):
            provider = trace.get_tracer_provider()
        if isinstance(provider, ProxyTracerProvider):
            return  # the global one is not set yet
        tracer = provider.get_tracer("snib", _core.version_string())
        self._tracer = None if isinstance(tracer, NoOpTracer) else tracer
        self._is_settled = True

    def _start(self, name: str, hold: Any = None) -> Span | None:
        """A new span; None: there is no provider, or it failed."""
        tracer = self._tracer
        if tracer is None:
            return None
        with _harmless:
            links = () if hold is None else self._holders.links(hold)
            return tracer.start_span(name, attributes=self._attributes, links=links)
        return None

    def _waiting(self) -> _Wait:
        if not self._is_settled:
            with _harmless:
                self._settle()
        span = self._start("snib.wait")
        return _UNSEEN if span is None else _Wait(span)

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} of {self.lock!r}>"


class _Held(_Noted, Generic[H]):
    """A hold, and its span until it ends."""

    _holder: Holder | None = None

    def __init__(self, traced: _Traced[Any], hold: H) -> None:
        self.hold = hold
        self._span = traced._start("snib.hold", hold)
        self._within: _Within | None = None
        if self._span is not None:
            with _harmless:
                self._say(traced, self._span)

    def _say(self, traced: _Traced[Any], span: Span) -> None:
        if not span.is_recording():
            return
        self._holder = traced._holders.begin(span, self.hold)
        said: dict[str, str | int] = {"snib.lock.owner": self.hold.owner}
        if self.hold.token:
            said["snib.fencing.token"] = self.hold.token
        span.set_attributes(said)

    @property
    def token(self) -> int:
        return self.hold.token

    @property
    def owner(self) -> str:
        return self.hold.owner

    def remaining(self) -> float:
        return self.hold.remaining()

    def check(self) -> None:
        self.hold.check()

    def _begin_within(self) -> None:
        """Make the span the current one."""
        if self._span is not None:
            self._within = _begin_within(self._span)

    def _end_within(self) -> None:
        """At the end of the block, in whose context it began; the hold may be released in another."""
        within, self._within = self._within, None
        _end_within(within)

    def _ending(self) -> _Ending:
        return _Ending(self)

    def _end(self, failure: BaseException | None) -> None:
        span, self._span = self._span, None
        if span is None:
            return
        with _harmless:
            if span.is_recording():
                span.set_attribute("snib.outcome", self._describe(span, failure))
        with _harmless:
            span.end()

    def _describe(self, span: Span, failure: BaseException | None) -> str:
        """The outcome, after the attributes and the status that go with it."""
        # A loss is not raised if the body has failed already.
        reason = getattr(self.hold, "reason", None)
        if isinstance(failure, Lost):
            reason = failure.reason or reason or "unknown"
        if reason:
            span.set_attribute("snib.loss.reason", reason)
            span.set_status(Status(StatusCode.ERROR, f"lost: {reason}"))
            return "lost"
        if isinstance(failure, Exception):
            _fail(span, failure)
            return "error"
        return "cancelled" if failure else "released"

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} of {self.hold!r}>"


class _Ending:
    """Around a release: the hold's span ends as it ends."""

    __slots__ = ("_held",)

    def __init__(self, held: _Held[Any]) -> None:
        self._held = held

    def __enter__(self) -> None:
        holder = self._held._holder
        if holder is not None:
            with _harmless:
                holder.end()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._held._end(error)


# ---- Programs with threads -----------------------------------------------------------------------


class TracedHold(_core.Scope, _Held[protocols.Hold]):
    """A hold with a span; `hold` is the original, for whatever else it has."""

    _stage = OWNED  # before its block begins, which a failure on entry leaves, too: see bindings/python_scope.c

    @property
    def lost(self) -> protocols.Loss:
        return self.hold.lost

    def extend(self, lease: float | None = None) -> None:
        self.hold.extend(lease)

    def release(self) -> None:
        with self._ending():
            self.hold.release()

    # The steps of __enter__ and __exit__, as those of TracedLock.

    def _enter(self, slot: list[Any]) -> TracedHold:
        self.hold.__enter__()
        self._begin_within()
        return self

    def _leave(self, slot: list[Any], failed: bool) -> None:
        error = (sys.exc_info()[1] or _UNSHOWN) if failed else None
        self._end_within()
        with self._ending():
            self.hold.__exit__(type(error) if error else None, error, error.__traceback__ if error else None)

    if TYPE_CHECKING:

        def __enter__(self) -> TracedHold: ...


class TracedLock(_core.Scope, _Traced[protocols.Lock]):
    """A lock whose waits and holds have spans; `lock` is the original, for whatever else it has.

    acquire() and release() have a span for the wait only, because a release does not say which
    acquisition it ends.
    """

    def acquire(self, blocking: bool = True, timeout: float | None = None, **options: Any) -> bool:
        """As the lock's own."""
        with self._waiting() as wait:
            granted = self.lock.acquire(blocking, timeout, **options)
            return wait.answer(granted, blocking, timeout)

    def release(self, *arguments: Any) -> None:
        """As the lock's own."""
        self.lock.release(*arguments)

    def hold(self, *, timeout: float | None = None, **options: Any) -> TracedHold:
        """As the lock's own.  What a signal's exception takes from the program is released."""
        acquire = partial(self.lock.hold, timeout=timeout, **options)
        holds: list[protocols.Hold] = []
        try:
            with self._waiting():
                holds.extend(starmap(acquire, [()]))  # from C, which leaves no step between the grant and the list
            held = TracedHold(self, holds[0])
        except BaseException:
            for hold in holds:
                with contextlib.suppress(Error):
                    hold.release()
            raise
        return held

    # The steps of __enter__ and __exit__, see bindings/python_scope.c: a signal's exception may end
    # each of them between any two operations; another call of _leave() then finishes the work.

    def _enter(self, slot: list[TracedHold]) -> TracedHold:
        slot.extend(starmap(self.hold, [()]))  # likewise
        slot[0].__enter__()
        self._note(slot[0], self.lock, block_at())
        return slot[0]

    def _leave(self, slot: list[TracedHold], failed: bool) -> None:
        if not slot:
            slot.append(self._noted(self.lock, block_at()))
        if slot[0] is None:
            self._leave_acquired(slot, failed)
            return
        self._forget(slot[0])
        slot[0]._leave([], failed)

    def _leave_acquired(self, slot: list[Any], failed: bool) -> None:
        """What acquire() has taken; another call is about the same, and not about the next one."""
        lock: Any = self.lock
        is_again = len(slot) > 1
        if not is_again:
            slot.append([])
        if isinstance(lock, _core.Scope):
            lock._leave(slot[1], failed)
        elif not is_again:
            error = (sys.exc_info()[1] or _UNSHOWN) if failed else None
            lock.__exit__(type(error) if error else None, error, error.__traceback__ if error else None)

    if TYPE_CHECKING:

        def __enter__(self) -> TracedHold: ...


# ---- Programs with asyncio or anyio --------------------------------------------------------------


class AsyncTracedHold(_Held[protocols.AsyncHold]):
    """A hold with a span; `hold` is the original, for whatever else it has."""

    @property
    def lost(self) -> protocols.AsyncLoss:
        return self.hold.lost

    async def extend(self, lease: float | None = None) -> None:
        await self.hold.extend(lease)

    async def release(self) -> None:
        with self._ending():
            await self.hold.release()

    async def __aenter__(self) -> AsyncTracedHold:
        await self.hold.__aenter__()
        self._begin_within()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end_within()
        with self._ending():
            await self.hold.__aexit__(kind, error, trace)


class AsyncTracedHolding(_Entered, _Noted):
    """What hold() returns: `async with` it, or `await` it for the hold."""


    def __init__(self, traced: AsyncTracedLock, holding: protocols.AsyncHolding) -> None:
        self._traced = traced
        self._holding = holding
        self._inside = []

    async def _get(self) -> AsyncTracedHold:
        with self._traced._waiting():
            hold = await self._holding
        return AsyncTracedHold(self._traced, hold)

    def __await__(self) -> Generator[Any, None, AsyncTracedHold]:
        return self._get().__await__()

    @property
    def _asyncio_future_blocking(self) -> None:
        getattr(self._holding, "_asyncio_future_blocking", None)  # see Holding in aio/_lock.py

    async def __aenter__(self) -> AsyncTracedHold:
        with self._traced._waiting():
            hold = await self._holding.__aenter__()
        held = AsyncTracedHold(self._traced, hold)
        held._begin_within()
        self._note(held, self._traced.lock, block_at())
        return held

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        noted = self._noted(self._traced.lock, block_at())
        if noted is None:
            await self._holding.__aexit__(kind, error, trace)
            return
        held = self._forget(noted)
        held._end_within()
        with held._ending():
            await self._holding.__aexit__(kind, error, trace)


class AsyncTracedLock(_Traced[protocols.AsyncLock]):
    """A lock whose waits and holds have spans; `lock` is the original, for whatever else it has.

    acquire() and release() have a span for the wait only, because a release does not say which
    acquisition it ends.
    """

    # The owner of a re-entrant lock is the task that calls, not the one that awaits: so these two
    # call the lock at once.

    def acquire(
        self, blocking: bool = True, timeout: float | None = None, **options: Any
    ) -> Coroutine[Any, Any, bool]:
        """As the lock's own."""
        return self._acquire(self.lock.acquire(blocking, timeout, **options), blocking, timeout)

    async def _acquire(
        self, acquiring: Coroutine[Any, Any, bool], blocking: bool, timeout: float | None
    ) -> bool:
        with self._waiting() as wait:
            return wait.answer(await acquiring, blocking, timeout)

    def release(self, *arguments: Any) -> Coroutine[Any, Any, None]:
        """As the lock's own."""
        return self.lock.release(*arguments)

    def hold(self, *, timeout: float | None = None, **options: Any) -> AsyncTracedHolding:
        """As the lock's own."""
        return AsyncTracedHolding(self, self.lock.hold(timeout=timeout, **options))

    async def __aenter__(self) -> AsyncTracedHold:
        holding = self.hold()
        hold = await holding.__aenter__()
        self._note(holding, self.lock, block_at())
        return hold

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        noted = self._noted(self.lock, block_at())
        if noted is None:
            await self.lock.__aexit__(kind, error, trace)
        else:
            await self._forget(noted).__aexit__(kind, error, trace)


@overload
def traced(
    lock: protocols.Lock, *, tracer_provider: TracerProvider | None = None
) -> TracedLock: ...


@overload
def traced(
    lock: protocols.AsyncLock, *, tracer_provider: TracerProvider | None = None
) -> AsyncTracedLock: ...


def traced(
    lock: protocols.Lock | protocols.AsyncLock, *, tracer_provider: TracerProvider | None = None
) -> TracedLock | AsyncTracedLock:
    """The same lock, whose waits and holds have spans.

    lock             of snib, snib.aio or snib.anyio, of any kind that can be held; of an RWLock one
                     of its sides
    tracer_provider  None: the global one
    """
    if isinstance(lock, protocols.AsyncLock):
        return AsyncTracedLock(lock, tracer_provider)
    if isinstance(lock, protocols.Lock):
        return TracedLock(lock, tracer_provider)
    raise TypeError(f"{lock!r} is not a lock that can be held")


# ---- Metrics -------------------------------------------------------------------------------------

_Clients = BaseClient | Mapping[str, BaseClient]
_Fields = Mapping[str, Mapping[str, str]]  # names of Stats, and their attributes

_TIMES = {
    "wait_time": "Acquisitions that were granted within le seconds",
    "hold_time": "Holds that lasted le seconds at most",
}


def observe(clients: _Clients, *, meter_provider: MeterProvider | None = None) -> None:
    """Expose the statistics of a client, or of several, as observable instruments.

    clients         one client of snib, snib.aio or snib.anyio; or a mapping from names to clients,
                    which are then told apart by an attribute `client`.  It is read anew by each
                    collection.
    meter_provider  None: the global one

    Names begin with `snib.`.  There are no observable histograms, so the times that the client
    counts in buckets are counters with an attribute `le`, as in Prometheus: how many took at most
    so many seconds.  An instrument cannot be removed again, so the clients stay open, and the
    function is called once.
    """
    meter = metrics.get_meter("snib", _core.version_string(), meter_provider)
    for name, text in COUNTERS.items():
        meter.create_observable_counter(
            f"snib.{name}", [_reader(clients, {name: {}})], description=text
        )
    losses = {f"lost_{reason}": {"reason": reason} for reason in REASONS}
    meter.create_observable_counter(
        "snib.losses", [_reader(clients, losses)], description="Holds lost, by reason"
    )
    for name, text in _TIMES.items():
        meter.create_observable_counter(
            f"snib.{name}", [_time_reader(clients, name)], description=text
        )
    units = {"_bytes": "By", "_seconds": "s"}
    for name, (shown, factor, text) in GAUGES.items():
        suffix = next((suffix for suffix in units if shown.endswith(suffix)), "")
        meter.create_observable_gauge(
            shown.removesuffix(suffix).replace("snib_", "snib."),
            [_reader(clients, {name: {}}, factor)],
            unit=units.get(suffix, ""),
            description=text,
        )


def _snapshots(clients: _Clients) -> list[tuple[dict[str, str], Stats]]:
    if isinstance(clients, BaseClient):
        return [({}, clients.stats())]
    return [({"client": name}, client.stats()) for name, client in list(clients.items())]


def _reader(
    clients: _Clients, fields: _Fields, factor: float = 1
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def read(options: CallbackOptions) -> Iterable[Observation]:
        for labels, stats in _snapshots(clients):
            for field, attributes in fields.items():
                yield Observation(factor * getattr(stats, field), {**labels, **attributes})

    return read


def _time_reader(
    clients: _Clients, name: str
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def read(options: CallbackOptions) -> Iterable[Observation]:
        for labels, stats in _snapshots(clients):
            for bound, count in cumulated(getattr(stats, name)):
                yield Observation(count, {**labels, "le": bound})

    return read

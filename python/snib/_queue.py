"""Locks on any event loop: submit, watch a file descriptor, drain.

`snib.aio` does this for asyncio.  Any other loop that can watch a file descriptor can do it too;
the guide shows trio.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from threading import get_ident
from typing import Any, NamedTuple, cast
from weakref import KeyedRef

from . import _core, _kinds
from ._base import BaseNamed
from ._codes import Lost
from ._error import Error
from ._errors import make
from ._hold import ARRIVING, GIVEN_BACK, OWNED, unrepeatable
from ._lock import AnyLock, Hold, Holdable
from ._permits import Latch
from ._stays import stays
from ._sync import Client
from ._times import lease_ms, wait_ms

DONE = 1  # snib_event_kind


def _must_be(kind: type, given: object, what: str) -> None:
    if not isinstance(given, kind):  # as what is of snib.aio: it would be granted, and given back unseen
        raise TypeError(f"{what}, not {given!r:.80}")


class Event(NamedTuple):
    """The end of an operation, or the loss of a hold.

    ticket  what acquire(), wait(), extend() or release() returned; a loss has that of the acquire
    result  the hold, None after an extension, a release or a latch, or the exception to raise: a snib.Error, or
            what kept it from being created, as MemoryError or RecursionError: then a hold was released
    lost    True for a loss; the result is then a Lost

    If a re-entrant lock is lost, each hold of it that came through this queue and was not released gets an event; if the
    program has none of them, the first acquire's ticket does.
    """

    ticket: int
    result: Hold | Error | None
    lost: bool


class Queue:
    """A queue of events for one loop; one thread at a time may drain it.

    A call that raises has started nothing, and no event arrives for it.  One that the exception of a signal's handler
    ends may have started: what it acquires is given back, a release or an extension goes on, and no event arrives either.
    """

    __reduce_ex__ = stays

    def __init__(self, client: Client) -> None:
        _must_be(Client, client, "client must be a snib.Client")
        client._used()
        self._client = client
        self._handle = _core.queue_new(client._handle)
        self._tickets = itertools.count(1)
        self._running: dict[int, int] = {}
        self._locks: dict[int, BaseNamed | Hold] = {}  # of a release its hold
        self._unknown: set[int] = set()  # tickets that no program has got
        # By hold_id(), which re-entries share, and ticket.
        self._holds: dict[int, dict[int, KeyedRef[tuple[int, int], Hold]]] = {}
        self._gone = functools.partial(_core.forget_member, self._holds)  # runs no Python, see bindings/python_drop.c
        self._taken: dict[int, list[Any]] = {}  # out of the core's queue, by the thread that drains

    def fileno(self) -> int:
        """A file descriptor that is readable while there are events; only watch it."""
        return _core.queue_fd(self._handle)

    def acquire(self, lock: Holdable, timeout: float | None = None, *, n: int = 1) -> int:
        """Start to acquire; exactly one event will arrive.

        The owner of a re-entrant lock is the thread that calls this.  n is for a Semaphore or
        Permits: how many to take.  A lock over several goes to the queue of its first member's client.
        """
        _must_be(Holdable, lock, "lock must be a snib lock, semaphore or permits, or one side of an RWLock")
        if n != 1 and isinstance(lock, AnyLock):
            raise TypeError("a lock has no number of permits")
        number = lock._number(lock._caller(), lock._given(_kinds.number, n))
        if lock._client._debug:
            lock._client._used()
        return self._start(lock, lock._submit, lock._handle, number, lock._given(wait_ms, timeout))

    def wait(self, latch: Latch, timeout: float | None = None) -> int:
        """Start to wait for a latch; exactly one event will arrive, with None or an exception."""
        _must_be(Latch, latch, "latch must be a snib.Latch")
        wait = latch._given(wait_ms, timeout)
        return self._start(latch, _core.latch_wait_submit, latch._handle, wait)

    def release(self, hold: Hold) -> int:
        """Start to release; exactly one event will arrive.

        Raises NotHeld if this hold was already released, and Lost if it was lost before.
        """
        _must_be(Hold, hold, "hold must be a snib.Hold")
        if hold._stage == GIVEN_BACK:
            raise hold._given_back()
        ticket = self._start(hold, _core.hold_release_submit, hold._handle)
        hold._stage = GIVEN_BACK
        return ticket

    def extend(self, hold: Hold, lease: float | None = None) -> int:
        """Start to give the hold another lease, see Hold.extend(); exactly one event will arrive.

        Raises NotHeld if this hold was already released, and Lost if it was lost before.
        """
        _must_be(Hold, hold, "hold must be a snib.Hold")
        if hold._stage == GIVEN_BACK:
            raise hold._given_back()
        lock = hold._lock
        limit = lock._given(lease_ms, lease)
        return self._start(lock, _core.hold_extend_submit, hold._handle, limit)

    def _start(self, lock: BaseNamed | Hold, submit: Callable[..., int], *arguments: object) -> int:
        ticket = next(self._tickets)
        self._locks[ticket] = lock
        try:
            self._running[ticket] = submit(*arguments, self._handle, ticket)
        except Error as error:
            del self._locks[ticket]
            raise self._failure(lock, error)
        except BaseException:  # of a signal's handler, perhaps when it has started
            self._unknown.add(ticket)
            raise
        if ticket not in self._locks:  # its event was drained by another thread
            self._running.pop(ticket, None)
        return ticket

    @staticmethod
    def _failure(lock: BaseNamed | Hold, error: Error) -> Error:
        return lock._named(unrepeatable(error) if isinstance(lock, Hold) else error)

    def cancel(self, ticket: int) -> bool:
        """End an operation now; its event still arrives.

        True: it ends as Cancelled and will not give the caller the lock.  False: the result was
        already there, and the event has it, perhaps a hold to release.
        """
        op = self._running.get(ticket)
        return op is not None and _core.op_cancel(op)

    def drain(self) -> list[Event]:
        """Some events without waiting: first losses, then results, the oldest first.

        Up to 64, and more only if several holds of one owner are lost.  If a signal's handler raises meanwhile, the next
        call returns them; until then the descriptor is readable.
        """
        me = get_ident()
        taken = self._taken.setdefault(me, [])
        try:
            if not taken:
                _core.queue_drain(self._handle, taken)
            for at in range(len(taken)):  # no `while`: what a handler raises where it goes back may be outside this `try`
                if not isinstance(taken[at], list):  # which an earlier call made
                    taken[at] = self._events(*taken[at])
                for event in taken[at]:
                    self._finish(event)
            events = [event for told in taken for event in told if event.ticket not in self._unknown]
        except BaseException:
            _core.queue_wake(self._handle)  # they are still to be drained
            raise
        del self._taken[me]
        return events

    def _events(self, kind: int, ticket: int, code: int, value: _core.Value) -> list[Event]:
        """At least one.  May be called again; a hold is not the program's before _finish()."""
        return [self._done(ticket, value)] if kind == DONE else self._lost(ticket, code, cast("int", value))

    def _finish(self, event: Event) -> None:
        if event.lost:
            return
        self._locks.pop(event.ticket, None)
        self._running.pop(event.ticket, None)
        if event.ticket in self._unknown:  # its hold is released when it is dropped
            return
        if isinstance(event.result, Hold) and event.result._stage == ARRIVING:
            event.result._stage = OWNED

    def _lost(self, ticket: int, reason: int, hold_id: int) -> list[Event]:
        """The core tells one loss for all that an owner has here, with the ticket of the first acquire, also if that hold
        was released.
        """
        losses = []
        for own, known in self._holds.get(hold_id, {}).copy().items():
            hold = known()
            if hold is not None and hold._stage != GIVEN_BACK:
                losses.append(Event(own, hold._loss().with_traceback(None), True))  # whose frames have the hold
            del hold
        if losses:
            return losses
        why = _core.reason_text(reason)
        return [Event(ticket, make(Lost.code, f"the hold was lost: {why}", 0, reason), True)]

    def _done(self, ticket: int, value: _core.Value) -> Event:
        lock = self._locks[ticket]
        if isinstance(value, Error):
            return Event(ticket, self._failure(lock, value), False)
        if isinstance(value, BaseException):  # the result could not be created; a hold was released
            return Event(ticket, cast("Error", value), False)
        if not isinstance(lock, Holdable) or value is None:
            return Event(ticket, None, False)
        hold = Hold(lock, cast("_core.HoldHandle", value))
        if lock._client._debug:
            hold._place = None  # it was acquired elsewhere
        self._know(ticket, hold)
        return Event(ticket, hold, False)

    def _know(self, ticket: int, hold: Hold) -> None:
        hold_id = _core.hold_id(hold._handle)
        known = KeyedRef(hold, self._gone, (hold_id, ticket))
        while self._holds.setdefault(hold_id, {}).get(ticket) is not known:  # a group goes with its last hold, at any moment
            self._holds.setdefault(hold_id, {})[ticket] = known

"""Semaphores, permits and latches for programs with threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from . import _core, _kinds
from ._base import BasePermits, LatchKind, PermitsKind, SemaphoreKind
from ._error import Error
from ._lock import Hold, Holdable, Named, P, T
from ._times import acquire_ms, wait_ms


class _AnyPermits(Holdable, BasePermits[Hold]):
    __slots__ = ()

    _counter: ClassVar[staticmethod[[_core.LockHandle, int, int], int]]

    def _count(self, what: int, n: int = 0) -> int:
        self._client._used()
        try:
            return self._counter(self._handle, what, n)
        except Error as error:
            raise self._named(error)

    def acquire(
        self, blocking: bool = True, timeout: float | None = None, *, n: int = 1
    ) -> bool:
        """Take n permits at once, waiting if need be; False if they were not free in time.

        They are held by this client until release(), or until the client is closed, whatever
        becomes of this object.
        """
        return self._try_to_keep(_kinds.number(n), acquire_ms(blocking, timeout))

    def release(self, n: int | None = None) -> None:
        """Give back what acquire() took, also through another object for the same permits.

        n  None: what one acquire() took, this thread's newest, else the oldest.  Else so many
           permits in all; what one acquire() took goes back as a whole.

        Raises NotHeld if fewer were acquired; else as Hold.release().
        """
        failure: Error | None = None
        for hold in self._take_permits(self._caller(), n):
            try:
                hold.release()
            except Error as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def hold(self, *, n: int = 1, timeout: float | None = None) -> Hold:
        """Take n permits as one hold: `with permits.hold(n=2, timeout=2.0) as hold:`.

        Raises Timeout when the time is over, Busy if it was 0 (one try).
        """
        return self._hold(_kinds.number(n), wait_ms(timeout))

    def protect(
        self, *, n: int = 1, timeout: float | None = None
    ) -> Callable[[Callable[P, T]], Callable[P, T]]:
        """A decorator: each call of the function has n permits.

        A call raises Timeout or Busy as hold() does, then without running the function, and Lost
        if the permits were lost meanwhile.
        """
        return self._protect(_kinds.number(n), wait_ms(timeout))

    def init(self, n: int) -> bool:
        """Set the number of permits unless it is set; False if it was."""
        return self._count(_kinds.INIT, _kinds.number(n)) == 1

    def add(self, n: int) -> int:
        """Add permits, or take some away with a negative n; the number to be had then."""
        return self._count(_kinds.ADD, _kinds.number(n))

    def available(self) -> int:
        """The number of permits to be had now."""
        return self._count(_kinds.GET)

    def locked(self) -> bool:
        """Ask the server whether there is no permit to be had."""
        return self.available() <= 0


class Semaphore(SemaphoreKind, _AnyPermits):
    __slots__ = ()

    _acquire = staticmethod(_core.semaphore_acquire)
    _submit = staticmethod(_core.semaphore_acquire_submit)
    _counter = staticmethod(_core.semaphore_count)

    def put_back(self, n: int = 1) -> int:
        """Put permits in, whoever took them; the number to be had then."""
        return self._count(_kinds.RELEASE, _kinds.number(n))

    def drain(self) -> int:
        """Take all permits to be had, for good; how many there were."""
        return self._count(_kinds.DRAIN)


class Permits(PermitsKind, _AnyPermits):
    __slots__ = ()

    _acquire = staticmethod(_core.permits_acquire)
    _submit = staticmethod(_core.permits_acquire_submit)
    _counter = staticmethod(_core.permits_count)

    def set(self, n: int) -> int:
        """Make it n permits in all, whoever holds some; the number to be had then."""
        return self._count(_kinds.SET, _kinds.number(n))

    def total(self) -> int:
        """The number of permits held and free together."""
        return self._count(_kinds.TOTAL)


class Latch(LatchKind, Named):
    __slots__ = ()

    def _count(self, what: int, n: int = 0) -> int:
        self._client._used()
        try:
            return _core.latch_count(self._handle, what, n)
        except Error as error:
            raise self._named(error)

    def init(self, n: int) -> bool:
        """Set the count unless it is above 0; False if it was."""
        return self._count(_kinds.INIT, _kinds.number(n)) == 1

    def count_down(self) -> int:
        """Count down by one; what is left.  Who waits is woken at 0."""
        return self._count(_kinds.DOWN)

    def count(self) -> int:
        """The count now; 0 if it was never set."""
        return self._count(_kinds.GET)

    def wait(self, timeout: float | None = -1) -> bool:
        """Wait until the count is 0; False if it was not in time."""
        self._client._used()
        try:
            return _core.latch_wait(self._handle, wait_ms(timeout))
        except Error as error:
            raise self._named(error)

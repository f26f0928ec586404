"""Semaphores, permits and latches for programs with threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from . import _core, _kinds
from ._base import BasePermits, LatchKind, PermitsKind, SemaphoreKind
from ._error import Error
from ._hold import OWNED
from ._lock import Hold, Holdable, Named, P, T, let_go
from ._times import permits_ms, wait_ms


class _AnyPermits(Holdable, BasePermits[Hold]):
    __slots__ = ()

    _counter: ClassVar[staticmethod[[_core.LockHandle, int, int], int]]

    def _count(self, what: int, n: int = 0) -> int:
        self._client._used()
        try:
            return self._counter(self._handle, what, _kinds.number(n))
        except Error as error:
            raise self._named(error)

    def acquire(
        self, blocking: bool = True, timeout: float | None = None, *, n: int = 1
    ) -> bool:
        """Take n permits at once, waiting if necessary; False if they were not free in time.

        timeout  None: no limit; a negative one, even -1, is like 0, as in threading.Semaphore

        This client holds them until release(), or until the client is closed, whatever happens to
        this object.
        """
        wait = self._given(permits_ms, blocking, timeout)
        return self._try_to_keep(self._given(_kinds.number, n), wait)

    def release(self, n: int | None = None) -> None:
        """Release what acquire() took, even through another object for the same permits.

        n  None: what one acquire() took, this thread's newest or else the oldest.  Otherwise: n
           permits in all; what one acquire() took is released as a whole.

        Raises NotHeld if fewer were acquired; otherwise like Hold.release().
        """
        let_go(self._give_back, n)

    def _give_back(self, n: int | None) -> None:
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

        Raises Timeout after the timeout, or Busy if the timeout is 0 (one attempt).  None and -1 mean no limit.
        """
        hold = self._hold(self._given(_kinds.number, n), self._given(wait_ms, timeout))
        hold._stage = OWNED
        return hold

    def protect(
        self, *, n: int = 1, timeout: float | None = None
    ) -> Callable[[Callable[P, T]], Callable[P, T]]:
        """A decorator: each call of the function runs with n permits.

        Like hold(), a call may raise Timeout or Busy, without running the function.  It raises Lost
        if the permits were lost meanwhile.
        """
        return self._protect(self._given(_kinds.number, n), self._given(wait_ms, timeout))

    def init(self, n: int) -> bool:
        """Set the number of permits unless it is already set; False if it was."""
        return self._count(_kinds.INIT, n) == 1

    def add(self, n: int) -> int:
        """Add permits, or remove some with a negative n; returns the new number of free permits."""
        return self._count(_kinds.ADD, n)

    def available(self) -> int:
        """The number of free permits."""
        return self._count(_kinds.GET)

    def locked(self) -> bool:
        """Ask the server whether no permit is free."""
        return self.available() <= 0


class Semaphore(SemaphoreKind, _AnyPermits):
    __slots__ = ()

    _acquire = staticmethod(_core.semaphore_acquire)
    _submit = staticmethod(_core.semaphore_acquire_submit)
    _counter = staticmethod(_core.semaphore_count)

    def put_back(self, n: int = 1) -> int:
        """Put permits back, no matter who took them; returns the new number of free permits."""
        return self._count(_kinds.RELEASE, n)

    def drain(self) -> int:
        """Take all free permits permanently; returns how many there were."""
        return self._count(_kinds.DRAIN)


class Permits(PermitsKind, _AnyPermits):
    __slots__ = ()

    _acquire = staticmethod(_core.permits_acquire)
    _submit = staticmethod(_core.permits_acquire_submit)
    _counter = staticmethod(_core.permits_count)

    def set(self, n: int) -> int:
        """Set the total to n permits, held ones included; returns how many are free."""
        return self._count(_kinds.SET, n)

    def total(self) -> int:
        """The number of permits held and free together."""
        return self._count(_kinds.TOTAL)


class Latch(LatchKind, Named):
    __slots__ = ()

    def _count(self, what: int, n: int = 0) -> int:
        self._client._used()
        try:
            return _core.latch_count(self._handle, what, _kinds.number(n))
        except Error as error:
            raise self._named(error)

    def init(self, n: int) -> bool:
        """Set the count unless it is above 0; False if it was."""
        return self._count(_kinds.INIT, n) == 1

    def count_down(self) -> int:
        """Count down by one and return what is left.  At 0 the waiters are woken."""
        return self._count(_kinds.DOWN)

    def count(self) -> int:
        """The count now; 0 if it was never set."""
        return self._count(_kinds.GET)

    def wait(self, timeout: float | None = -1) -> bool:
        """Wait until the count is 0; False after the timeout.  None and -1 mean no limit."""
        self._client._used()
        try:
            return _core.latch_wait(self._handle, wait_ms(timeout))
        except Error as error:
            raise self._named(error)

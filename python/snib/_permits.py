"""Semaphores, permits and latches for programs with threads."""

from __future__ import annotations

from threading import get_ident
from typing import ClassVar

from . import _core, _kinds
from ._client import BaseClient
from ._codes import NotHeld
from ._kept import Kept
from ._lock import Hold, Holdable, Named
from ._times import acquire_ms, wait_ms


class _AnyPermits(Holdable):
    __slots__ = ("_holds",)

    _busy = "{!r} has not that many permits to be had"
    _counter: ClassVar[staticmethod[[_core.LockHandle, int, int], int]]

    def __init__(
        self,
        client: BaseClient,
        name: str,
        lease: float | None = None,
        max_hold: float | None = None,
    ) -> None:
        super().__init__(client, name, lease, max_hold)
        self._holds: Kept[Hold] = Kept()

    def _number(self, n: int) -> int:
        return n

    def _keep(self, hold: Hold) -> None:
        self._holds.keep(get_ident(), hold)

    def _take(self) -> Hold:
        hold = self._holds.take(get_ident())
        if hold is None:
            raise NotHeld("release of permits that are not held")
        return hold

    def _count(self, what: int, n: int = 0) -> int:
        return self._counter(self._handle, what, n)

    def acquire(self, n: int = 1, blocking: bool = True, timeout: float = -1) -> bool:
        """Take n permits at once, waiting if need be; False if they were not free in time."""
        return self._try_to_keep(_kinds.number(n), acquire_ms(blocking, timeout))

    def release(self) -> None:
        """Give back all that one acquire() took: this thread's newest, else the oldest.

        See Hold.release().
        """
        super().release()

    def hold(self, n: int = 1, timeout: float | None = None) -> Hold:
        """Take n permits as one hold: `with permits.hold(2, timeout=2.0) as hold:`.

        Raises Timeout when the time is over, Busy if it was 0 (one try).
        """
        return self._hold(_kinds.number(n), wait_ms(timeout))

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


class Semaphore(_AnyPermits):
    """A number of permits that know no owner, with the habits of threading.Semaphore.

    Nobody can tell who has a permit: those of a process that died do not come back by themselves,
    and a hold of them has no lease and is never lost.  Where that matters take Permits.
    """

    __slots__ = ()

    _KIND = _kinds.SEMAPHORE
    _acquire = staticmethod(_core.semaphore_acquire)
    _submit = staticmethod(_core.semaphore_acquire_submit)
    _counter = staticmethod(_core.semaphore_count)

    def put_back(self, n: int = 1) -> int:
        """Put permits in, whoever took them; the number to be had then."""
        return self._count(_kinds.RELEASE, _kinds.number(n))

    def drain(self) -> int:
        """Take all permits to be had, for good; how many there were."""
        return self._count(_kinds.DRAIN)


class Permits(_AnyPermits):
    """A number of permits with a lease each, renewed while held like a lock's."""

    __slots__ = ()

    _KIND = _kinds.PERMITS
    _acquire = staticmethod(_core.permits_acquire)
    _submit = staticmethod(_core.permits_acquire_submit)
    _counter = staticmethod(_core.permits_count)

    def set(self, n: int) -> int:
        """Make it n permits in all, whoever holds some; the number to be had then."""
        return self._count(_kinds.SET, _kinds.number(n))

    def total(self) -> int:
        """The number of permits held and free together."""
        return self._count(_kinds.TOTAL)


class Latch(Named):
    """A count that processes bring down and wait for to become 0."""

    __slots__ = ()

    _KIND = _kinds.LATCH

    def init(self, n: int) -> bool:
        """Set the count unless it is above 0; False if it was."""
        return _core.latch_count(self._handle, _kinds.INIT, _kinds.number(n)) == 1

    def count_down(self) -> int:
        """Count down by one; what is left.  Who waits is woken at 0."""
        return _core.latch_count(self._handle, _kinds.DOWN, 0)

    def count(self) -> int:
        """The count now; 0 if it was never set."""
        return _core.latch_count(self._handle, _kinds.GET, 0)

    def wait(self, timeout: float | None = -1) -> bool:
        """Wait until the count is 0; False if it was not in time."""
        return _core.latch_wait(self._handle, wait_ms(timeout))

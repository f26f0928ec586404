"""Semaphores, permits and latches for asyncio."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ClassVar

from .. import _core, _kinds
from .._base import BasePermits, LatchKind, PermitsKind, SemaphoreKind
from .._error import Error
from .._hold import make_info
from .._times import permits_ms, wait_ms
from ._lock import Hold, Holdable, Holding, Named, P, T
from ._loop import OK


class _Counted(Named):
    __slots__ = ()

    _counter: ClassVar[staticmethod[[_core.LockHandle, int, int, _core.QueueHandle, int], int]]

    async def _count(self, what: int, n: int = 0) -> int:
        _, value = await self._run(self._counter, what, self._given(_kinds.number, n))
        return 0 if value is None else make_info(value).count


class _AnyPermits(_Counted, Holdable, BasePermits[Hold]):
    __slots__ = ()

    def acquire(
        self, blocking: bool = True, timeout: float | None = None, *, n: int = 1
    ) -> Coroutine[Any, Any, bool]:
        """Take n permits at once, waiting if necessary; False if they were not free in time.

        timeout  None: no limit; a negative one, even -1, is like 0, as in threading.Semaphore

        This client holds them until release(), or until the client is closed, whatever happens to
        this object.
        """
        wait = self._given(permits_ms, blocking, timeout)
        return self._try_to_keep(self._caller(), self._given(_kinds.number, n), wait)

    def release(self, n: int | None = None) -> Coroutine[Any, Any, None]:
        """Release what acquire() took, even through another object for the same permits.

        n  None: what one acquire() took, this task's newest or else the oldest.  Otherwise: n
           permits in all; what one acquire() took is released as a whole.

        Raises NotHeld if fewer were acquired; otherwise like Hold.release().
        """
        return self._give_back(self._caller(), n)

    async def _give_back(self, caller: int, n: int | None) -> None:
        failure: Error | None = None
        for hold in self._take_permits(caller or self._caller(), n):
            try:
                await hold._end(None)
            except Error as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def hold(self, *, n: int = 1, timeout: float | None = None) -> Holding:
        """Take n permits as one hold: `async with permits.hold(n=2, timeout=2.0) as hold:`.

        Raises Timeout after the timeout, or Busy if the timeout is 0 (one attempt).  None and -1 mean no limit.
        """
        return Holding(self, self._given(_kinds.number, n), self._given(wait_ms, timeout))

    def protect(
        self, *, n: int = 1, timeout: float | None = None
    ) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Coroutine[Any, Any, T]]]:
        """A decorator: each call of the coroutine function runs with n permits.

        Like hold(), a call may raise Timeout or Busy, without running the function.  It is
        cancelled and raises Lost if the permits are lost meanwhile.
        """
        return self._protect(self._given(_kinds.number, n), self._given(wait_ms, timeout))

    async def init(self, n: int) -> bool:
        """Set the number of permits unless it is already set; False if it was."""
        return await self._count(_kinds.INIT, n) == 1

    async def add(self, n: int) -> int:
        """Add permits, or remove some with a negative n; returns the new number of free permits."""
        return await self._count(_kinds.ADD, n)

    async def available(self) -> int:
        """The number of free permits."""
        return await self._count(_kinds.GET)

    async def locked(self) -> bool:
        """Ask the server whether no permit is free."""
        return await self.available() <= 0


class Semaphore(SemaphoreKind, _AnyPermits):
    __slots__ = ()

    _submit = staticmethod(_core.semaphore_acquire_submit)
    _counter = staticmethod(_core.semaphore_count_submit)

    async def put_back(self, n: int = 1) -> int:
        """Put permits back, no matter who took them; returns the new number of free permits."""
        return await self._count(_kinds.RELEASE, n)

    async def drain(self) -> int:
        """Take all free permits permanently; returns how many there were."""
        return await self._count(_kinds.DRAIN)


class Permits(PermitsKind, _AnyPermits):
    __slots__ = ()

    _submit = staticmethod(_core.permits_acquire_submit)
    _counter = staticmethod(_core.permits_count_submit)

    async def set(self, n: int) -> int:
        """Set the total to n permits, held ones included; returns how many are free."""
        return await self._count(_kinds.SET, n)

    async def total(self) -> int:
        """The number of permits held and free together."""
        return await self._count(_kinds.TOTAL)


class Latch(LatchKind, _Counted):
    __slots__ = ()

    _counter = staticmethod(_core.latch_count_submit)

    async def init(self, n: int) -> bool:
        """Set the count unless it is above 0; False if it was."""
        return await self._count(_kinds.INIT, n) == 1

    async def count_down(self) -> int:
        """Count down by one and return what is left.  At 0 the waiters are woken."""
        return await self._count(_kinds.DOWN)

    async def count(self) -> int:
        """The count now; 0 if it was never set."""
        return await self._count(_kinds.GET)

    async def wait(self, timeout: float | None = -1) -> bool:
        """Wait until the count is 0; False after the timeout.  None and -1 mean no limit."""
        wait = self._given(wait_ms, timeout)
        return (await self._run(_core.latch_wait_submit, wait))[0] == OK

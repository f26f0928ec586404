"""Semaphores, permits and latches for asyncio."""

from __future__ import annotations

from asyncio import current_task
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from .. import _core, _kinds
from .._codes import NotHeld
from .._hold import make_info
from .._kept import Kept
from .._times import acquire_ms, wait_ms
from ._lock import Hold, Holdable, Holding, Named
from ._loop import BUSY, OK, TIMEDOUT

if TYPE_CHECKING:
    from ._client import Client


async def _count(
    lock: Named,
    submit: Callable[[_core.LockHandle, int, int, _core.QueueHandle, int], int],
    what: int,
    n: int = 0,
) -> int:
    code, value = await lock._client._loop().run(submit, lock._handle, what, n)
    if code != OK:
        raise value
    return 0 if value is None else make_info(value).count


class _AnyPermits(Holdable):
    __slots__ = ("_holds",)

    _busy = "{!r} has not that many permits to be had"
    _counter: ClassVar[staticmethod[[_core.LockHandle, int, int, _core.QueueHandle, int], int]]

    def __init__(
        self,
        client: Client,
        name: str,
        lease: float | None = None,
        max_hold: float | None = None,
    ) -> None:
        super().__init__(client, name, lease, max_hold)
        self._holds: Kept[Hold] = Kept()

    def _number(self, n: int) -> int:
        return n

    def _keep(self, hold: Hold) -> None:
        self._holds.keep(current_task(), hold)

    def _take(self) -> Hold:
        hold = self._holds.take(current_task())
        if hold is None:
            raise NotHeld("release of permits that are not held")
        return hold

    async def _count(self, what: int, n: int = 0) -> int:
        return await _count(self, self._counter, what, n)

    async def acquire(self, n: int = 1, blocking: bool = True, timeout: float = -1) -> bool:
        """Take n permits at once, waiting if need be; False if they were not free in time."""
        wait = acquire_ms(blocking, timeout)
        return await self._try(_kinds.number(n), wait, True) is not None

    async def release(self) -> None:
        """Give back all that one acquire() took: this task's newest, else the oldest.

        See Hold.release().
        """
        await super().release()

    def hold(self, n: int = 1, timeout: float | None = None) -> Holding:
        """Take n permits as one hold: `async with permits.hold(2, timeout=2.0) as hold:`.

        Raises Timeout when the time is over, Busy if it was 0 (one try).
        """
        return Holding(self, _kinds.number(n), wait_ms(timeout))

    async def init(self, n: int) -> bool:
        """Set the number of permits unless it is set; False if it was."""
        return await self._count(_kinds.INIT, _kinds.number(n)) == 1

    async def add(self, n: int) -> int:
        """Add permits, or take some away with a negative n; the number to be had then."""
        return await self._count(_kinds.ADD, _kinds.number(n))

    async def available(self) -> int:
        """The number of permits to be had now."""
        return await self._count(_kinds.GET)

    async def locked(self) -> bool:
        """Ask the server whether there is no permit to be had."""
        return await self.available() <= 0


class Semaphore(_AnyPermits):
    """A number of permits that know no owner, with the habits of asyncio.Semaphore.

    Nobody can tell who has a permit: those of a process that died do not come back by themselves,
    and a hold of them has no lease and is never lost.  Where that matters take Permits.
    """

    __slots__ = ()

    _KIND = _kinds.SEMAPHORE
    _submit = staticmethod(_core.semaphore_acquire_submit)
    _counter = staticmethod(_core.semaphore_count_submit)

    async def put_back(self, n: int = 1) -> int:
        """Put permits in, whoever took them; the number to be had then."""
        return await self._count(_kinds.RELEASE, _kinds.number(n))

    async def drain(self) -> int:
        """Take all permits to be had, for good; how many there were."""
        return await self._count(_kinds.DRAIN)


class Permits(_AnyPermits):
    """A number of permits with a lease each, renewed while held like a lock's."""

    __slots__ = ()

    _KIND = _kinds.PERMITS
    _submit = staticmethod(_core.permits_acquire_submit)
    _counter = staticmethod(_core.permits_count_submit)

    async def set(self, n: int) -> int:
        """Make it n permits in all, whoever holds some; the number to be had then."""
        return await self._count(_kinds.SET, _kinds.number(n))

    async def total(self) -> int:
        """The number of permits held and free together."""
        return await self._count(_kinds.TOTAL)


class Latch(Named):
    """A count that processes bring down and wait for to become 0."""

    __slots__ = ()

    _KIND = _kinds.LATCH

    async def _count(self, what: int, n: int = 0) -> int:
        return await _count(self, _core.latch_count_submit, what, n)

    async def init(self, n: int) -> bool:
        """Set the count unless it is above 0; False if it was."""
        return await self._count(_kinds.INIT, _kinds.number(n)) == 1

    async def count_down(self) -> int:
        """Count down by one; what is left.  Who waits is woken at 0."""
        return await self._count(_kinds.DOWN)

    async def count(self) -> int:
        """The count now; 0 if it was never set."""
        return await self._count(_kinds.GET)

    async def wait(self, timeout: float | None = -1) -> bool:
        """Wait until the count is 0; False if it was not in time."""
        loop = self._client._loop()
        code, value = await loop.run(_core.latch_wait_submit, self._handle, wait_ms(timeout))
        if code != OK and code != BUSY and code != TIMEDOUT:
            raise value
        return code == OK

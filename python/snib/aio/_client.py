"""Clients for asyncio."""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import weakref
from asyncio import AbstractEventLoop, get_running_loop
from types import TracebackType

from .. import _core
from .._client import BaseClient, in_thread
from .._describe import Description, make_description
from .._error import Error
from .._kinds import fair_flags, rwlock_flags
from .._times import wait_ms
from ._lock import FairLock, FencedLock, Lock, PlainLock, RLock, RWLock, SpinLock
from ._loop import OK, Loop
from ._permits import Latch, Permits, Semaphore


class Client(BaseClient):
    __doc__ = BaseClient.__doc__

    def _begin(self) -> None:
        self._loops: dict[int, weakref.ref[Loop]] = {}

    def _loop(self) -> Loop:
        """The queue of the running loop."""
        running = get_running_loop()
        known = self._loops.get(id(running))
        loop = known and known()  # what is found keeps its loop, and so the id, alive
        return loop or self._new_loop(running)

    def _new_loop(self, running: AbstractEventLoop) -> Loop:
        for key, known in list(self._loops.items()):
            if known() is None:
                self._loops.pop(key, None)
        loop = Loop(self, running)
        self._loops[id(running)] = weakref.ref(loop)
        return loop

    def _living_loops(self) -> builtins.list[Loop]:
        loops = [known() for known in list(self._loops.values())]
        return [loop for loop in loops if loop is not None]

    def _after_fork(self) -> None:
        # The reader stays registered: the child's selector may be the parent's very own epoll.
        for loop in self._living_loops():
            del loop.queue
        self._loops.clear()

    def lock(self, name: str, *, lease: float | None = None, max_hold: float | None = None) -> Lock:
        """Name a lock; nothing is sent.

        lease     None: renewed while held, with the client's lease.  Else fixed and not renewed.
        max_hold  renewal ends and the hold is lost after this time
        """
        return Lock(self, name, lease, max_hold)

    def rlock(
        self, name: str, *, lease: float | None = None, max_hold: float | None = None
    ) -> RLock:
        """As lock(), re-entrant: the owner is the task."""
        return RLock(self, name, lease, max_hold)

    def fair_lock(
        self,
        name: str,
        *,
        lease: float | None = None,
        max_hold: float | None = None,
        fenced: bool = False,
    ) -> FairLock:
        """As lock(), first come, first served among all processes.

        fenced  holds carry a fencing token
        """
        return FairLock(self, name, lease, max_hold, fair_flags(fenced))

    def fenced_lock(
        self, name: str, *, lease: float | None = None, max_hold: float | None = None
    ) -> FencedLock:
        """As lock(); holds carry a fencing token, which rises from hold to hold."""
        return FencedLock(self, name, lease, max_hold)

    def spin_lock(
        self, name: str, *, lease: float | None = None, max_hold: float | None = None
    ) -> SpinLock:
        """As lock(), without wake-up messages: waiters poll."""
        return SpinLock(self, name, lease, max_hold)

    def plain_lock(
        self, name: str, *, lease: float | None = None, max_hold: float | None = None
    ) -> PlainLock:
        """As lock(), for names shared with redis-py, redsync, node-redlock and the like."""
        return PlainLock(self, name, lease, max_hold)

    def rwlock(
        self,
        name: str,
        *,
        lease: float | None = None,
        max_hold: float | None = None,
        fenced: bool = False,
        prefer_writer: bool = False,
    ) -> RWLock:
        """A pair of locks, .read and .write; re-entrant: the owner is the task.

        fenced         the writer's holds carry a fencing token
        prefer_writer  while a writer waits, new readers of Snib wait behind it
        """
        return RWLock(self, name, lease, max_hold, rwlock_flags(fenced, prefer_writer))

    def semaphore(self, name: str) -> Semaphore:
        """A number of permits that know no owner and no lease."""
        return Semaphore(self, name)

    def permits(
        self, name: str, *, lease: float | None = None, max_hold: float | None = None
    ) -> Permits:
        """A number of permits that come back by themselves if their holder dies.

        lease and max_hold are those of lock().
        """
        return Permits(self, name, lease, max_hold)

    def latch(self, name: str) -> Latch:
        """A count that processes bring down and wait for to become 0."""
        return Latch(self, name)

    async def describe(self, name: str) -> Description:
        """Everything the server knows of a name, whatever kind of lock made it."""
        lines = in_thread(_core.client_describe, self._handle, name)
        return make_description(name, await asyncio.wrap_future(lines))

    async def ping(self, timeout: float | None = None) -> None:
        """Connect if need be and ask the server for an answer; None: the client's patience."""

        def submit(queue: _core.QueueHandle, token: int) -> int:
            return _core.client_ping_submit(self._handle, wait_ms(timeout), queue, token)

        code, value = await self._loop().run(submit)
        if code != OK:
            raise value

    async def list(self, pattern: str = "*") -> builtins.list[str]:
        """The names of the locks that match a pattern of Redis' SCAN, sorted."""
        names: set[str] = set()
        cursor = 0
        while True:
            step = in_thread(_core.client_list, self._handle, pattern, cursor)
            cursor, found = await asyncio.wrap_future(step)
            names.update(found)
            if not cursor:
                return sorted(names)

    async def close(self, timeout: float | None = None) -> None:
        """End every operation with Closed and release every hold; again is fine.

        Raises Timeout if a release was not confirmed in time (None: the client's patience); then
        its lease will end it.  A cancelled close goes on.
        """
        closing = in_thread(_core.client_close, self._handle, wait_ms(timeout))
        await asyncio.wait([asyncio.wrap_future(closing)])
        for loop in self._living_loops():
            if loop.loop is get_running_loop():
                loop.detach()
            else:
                with contextlib.suppress(RuntimeError):  # it was closed
                    loop.loop.call_soon_threadsafe(loop.detach)
        closing.result()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self.close()
        except Error:
            if error is None:
                raise

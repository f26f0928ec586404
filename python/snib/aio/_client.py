"""Clients for asyncio."""

from __future__ import annotations

import asyncio
import builtins
import weakref
from asyncio import AbstractEventLoop, current_task, get_running_loop
from types import TracebackType
from typing import TypeVar

from .. import _core, _debug, _log
from .._client import BaseClient, in_thread
from .._describe import Description, make_description
from .._error import Error
from .._factories import Factories
from .._identity import Identity, make_identity
from .._times import wait_ms
from ._lock import FairLock, FencedLock, Lock, PlainLock, RLock, RWLock, SpinLock, task_owner
from ._loop import OK, Loop
from ._permits import Latch, Permits, Semaphore

C = TypeVar("C", bound="Client")

Loops = dict[int, weakref.ref[Loop]]


def _living(loops: Loops) -> list[Loop]:
    return [loop for known in list(loops.values()) if (loop := known()) is not None]


def detach_all(loops: Loops) -> None:
    for loop in _living(loops):
        loop.detach_soon()


class Client(
    Factories[
        Lock, RLock, FairLock, FencedLock, SpinLock, PlainLock, RWLock, Semaphore, Permits, Latch
    ]
):
    __doc__ = BaseClient.__doc__

    _CLASSES = (
        *(Lock, RLock, FairLock, FencedLock, SpinLock),
        *(PlainLock, RWLock, Semaphore, Permits, Latch),
    )

    def _begin(self) -> None:
        self._loops: Loops = {}
        # A dropped client leaves nothing behind in a loop that continues.
        weakref.finalize(self, detach_all, self._loops).atexit = False

    def _task(self) -> object | None:
        """The current task, or None."""
        try:
            return current_task()
        except RuntimeError:  # no loop runs
            return None

    def _actor(self) -> int:
        task = self._task()
        return 0 if task is None else 2 * task_owner(task) + 1

    def _who(self) -> str | None:
        task = self._task()
        return super()._who() if task is None else _debug.task(task)

    def _running(self) -> AbstractEventLoop:
        return get_running_loop()

    def _loop(self) -> Loop:
        """The queue of the running loop."""
        running = self._running()
        known = self._loops.get(id(running))
        loop = known and known()  # a strong reference keeps the event loop alive, and its id unique
        return loop or self._new_loop(running)

    def _new_loop(self, running: AbstractEventLoop) -> Loop:
        for key, known in list(self._loops.items()):
            if known() is None:
                self._loops.pop(key, None)
        self._used()
        loop = self._make_loop(running)
        self._loops[id(running)] = weakref.ref(loop)
        return loop

    def _make_loop(self, running: AbstractEventLoop) -> Loop:
        return Loop(self, running)

    def _after_fork(self) -> None:
        super()._after_fork()
        # The reader stays registered: the child's selector may share the parent's epoll.
        for loop in _living(self._loops):
            del loop.queue
        self._loops.clear()

    async def describe(self, name: str) -> Description:
        """Everything the server knows about a name, whatever the kind of lock."""
        submit = _core.client_describe_submit
        code, value = await self._loop().run(submit, self._handle, name)
        if code != OK:
            raise value
        return make_description(name, value[1])

    async def identity(self, owner: str) -> Identity | None:
        """Which process is behind an owner, such as one that describe() found; None: not known.

        A client tells it once it has held something for a third of its lease, unless it was opened
        with identity=False.  Redisson's clients do not.
        """
        submit = _core.client_identity_submit
        code, value = await self._loop().run(submit, self._handle, owner)
        if code != OK:
            raise value
        return make_identity(value[1], owner)

    async def ping(self, timeout: float | None = None) -> None:
        """Connect if necessary and ping the server; None: the client's patience."""

        def submit(queue: _core.QueueHandle, token: int) -> int:
            return _core.client_ping_submit(self._handle, wait_ms(timeout), queue, token)

        code, value = await self._loop().run(submit)
        if code != OK:
            raise value

    async def list(self, pattern: str = "*") -> builtins.list[str]:
        """The names of the locks that match a pattern of Redis' SCAN, sorted.

        Semaphores, latches, permits that are all free and plain locks of other programs are not among them: nothing
        tells them from other data.
        """
        names: set[str] = set()
        cursor = 0
        while True:
            submit = _core.client_list_submit
            code, value = await self._loop().run(submit, self._handle, pattern, cursor)
            if code != OK:
                raise value
            cursor, found = value
            names.update(found)
            if not cursor:
                return sorted(names)

    async def close(self, timeout: float | None = None) -> None:
        """End every operation with Closed and release every hold; may be called again.

        Raises Timeout if a release was not confirmed in time (None: the client's patience); the
        lock is then free when its lease ends.  A cancelled close continues.
        """
        loops = self._loops
        closing = in_thread(self._end, wait_ms(timeout), _log.runs_here(), in_place=(0,))
        # Even if this task is cancelled.  The loop's last events arrive before the result does.
        closing.add_done_callback(lambda _: detach_all(loops))
        await asyncio.shield(asyncio.wrap_future(closing))

    async def __aenter__(self: C) -> C:
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

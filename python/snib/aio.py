"""Clients and locks for asyncio: the names of `snib`, with `await`.

No thread waits and none calls into Python: each running loop watches one descriptor for all of a
client's operations in it.  A client may serve several loops in several threads.  A task may be
cancelled at any await; what it was about to get is given back.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import itertools
import weakref
from asyncio import AbstractEventLoop, Future, Task, current_task, get_running_loop
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any

from . import _core
from ._client import BaseClient, in_thread
from ._codes import Busy, InvalidArgument, NotHeld, Timeout
from ._error import Error
from ._hold import BaseHold, LockInfo, State, make_info
from ._lock import owner_numbers
from ._times import acquire_ms, wait_ms

_DONE = 1
_OK, _BUSY, _TIMEDOUT, _NOT_HELD = 0, 1, 2, 6

_Result = tuple[int, Any]

# The two calls of the hot path.  A coroutine within a coroutine costs more than either, so `async
# with` runs one coroutine at each end, and that awaits in place what it submits.
_lock_acquire_submit = _core.lock_acquire_submit
_hold_release_submit = _core.hold_release_submit

_task_owners: weakref.WeakKeyDictionary[Task[Any], int] = weakref.WeakKeyDictionary()


class _Loop:
    """A client's queue in one running loop.

    A loop does not tell when it closes, but it lets go of its readers: as nobody else owns this for
    long, queue and waiting operations end with the loop.
    """

    def __init__(self, client: BaseClient, loop: AbstractEventLoop) -> None:
        self.loop = loop
        self.queue = _core.queue_new(client._handle)
        self.new_token = itertools.count(1).__next__
        self.new_future: Callable[[], Future[_Result]] = loop.create_future
        self.waiting: dict[int, Future[_Result]] = {}
        self.losses: dict[int, set[Future[bool]]] = {}
        self.corked = False
        loop.add_reader(_core.queue_fd(self.queue), self._drain)

    async def run(self, submit: Callable[..., int], *arguments: object) -> _Result:
        """Submit an operation and wait for its code and value."""
        token = self.new_token()
        operation = submit(*arguments, self.queue, token)
        future = self.waiting[token] = self.new_future()
        try:
            return await future
        except BaseException:
            self.abandon(token, operation, future)
            raise

    def abandon(self, token: int, operation: int, future: Future[_Result]) -> None:
        """The task was cancelled, or thrown away with its loop.

        Either the core takes back what it may still be granted, or a hold is there already: in the
        queue, where the drain drops it because nobody waits for its token, or in the future.
        """
        self.waiting.pop(token, None)
        _core.op_cancel(operation)
        if future.done() and not future.cancelled():
            _core.hold_drop(future.result()[1])

    def _drain(self) -> int:
        events = _core.queue_drain(self.queue)
        for kind, token, code, value in events:
            if kind == _DONE:
                future = self.waiting.pop(token, None)
                if future is None or future.done():
                    _core.hold_drop(value)
                else:
                    future.set_result((code, value))
            elif isinstance(value, int):
                self.end_losses(value, True)
        if events and not self.corked:
            # The tasks woken above run before the uncork: what they submit leaves in one go.
            self.corked = True
            _core.queue_cork(self.queue)
            self.loop.call_soon(self._uncork)
        return len(events)

    def _uncork(self) -> None:
        self.corked = False
        _core.queue_uncork(self.queue)

    def end_losses(self, hold_id: int, lost: bool) -> None:
        for future in self.losses.pop(hold_id, ()):
            if not future.done():
                future.set_result(lost)

    def detach(self) -> None:
        """In the loop's thread, after the client was closed: the last events, then no more."""
        while self._drain():
            pass
        self.loop.remove_reader(_core.queue_fd(self.queue))


class Loss:
    """The loss of a hold, with the habits of asyncio.Event."""

    __slots__ = ("_hold",)

    def __init__(self, hold: Hold) -> None:
        self._hold = hold

    def is_set(self) -> bool:
        """Whether the hold is lost; exact at the moment of the call."""
        return self._hold.state is State.LOST

    async def wait(self) -> bool:
        """Wait until the hold is lost (True) or released (False)."""
        hold = self._hold
        if hold._loop is not hold._client._loop():
            raise InvalidArgument("the hold was acquired in another event loop")
        future: Future[bool] = get_running_loop().create_future()
        losses = hold._loop.losses.setdefault(_core.hold_id(hold._handle), set())
        losses.add(future)
        try:
            # Only now: a loss before this moment was told to nobody.
            if hold.state is State.LOST:
                return True
            if hold.state is State.RELEASED:
                return False
            return await future
        finally:
            losses.discard(future)


class Hold(BaseHold):
    """One successful acquisition.  `async with` releases it; any task may."""

    __slots__ = ("_loop",)

    _client: Client

    def __init__(self, client: Client, handle: _core.HoldHandle, loop: _Loop) -> None:
        self._client = client
        self._handle = handle
        self._released = False
        self._loop = loop

    @property
    def lost(self) -> Loss:
        return Loss(self)

    async def release(self) -> None:
        """Give the lock back and wake a waiter; a cancelled release goes on.

        Raises Lost if it was not held any more, NotHeld if this hold was released before, and
        Unreachable if no answer came; then the client goes on trying until the lease has ended.
        """
        await self._end(None)

    async def _end(self, error: BaseException | None) -> None:
        """Release; a failure is raised unless the program's own error is in flight."""
        try:
            if self._released:
                raise NotHeld("this hold has been released before")
            self._released = True
            loop = self._client._loop()
            token = loop.new_token()
            operation = _hold_release_submit(self._handle, loop.queue, token)
            future = loop.waiting[token] = loop.new_future()
            try:
                code, value = await future
            except BaseException:
                loop.abandon(token, operation, future)
                raise
            if self._loop.losses and self.state is State.RELEASED:
                self._loop.end_losses(_core.hold_id(self._handle), False)
            if code != _OK:
                raise value
        except Error:
            if error is None:
                raise

    async def __aenter__(self) -> Hold:
        return self

    def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> Coroutine[Any, Any, None]:
        return self._end(error)


class _Holding:
    """What Lock.hold() returns: `await` it for the hold, or use it in `async with`."""

    __slots__ = ("_lock", "_wait", "_hold")

    def __init__(self, lock: _AnyLock, wait: int) -> None:
        self._lock = lock
        self._wait = wait

    async def _get(self) -> Hold:
        hold = await self._lock._try(self._wait, False)
        if hold is None:
            name = self._lock.name
            if self._wait:
                raise Timeout(f"{name!r} was not free in time")
            raise Busy(f"somebody else holds {name!r}")
        self._hold = hold
        return hold

    def __await__(self) -> Generator[Any, None, Hold]:
        return self._get().__await__()

    async def __aenter__(self) -> Hold:
        return await self._get()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._hold.__aexit__(kind, error, trace)


class _AnyLock:
    __slots__ = ("name", "_client", "_handle", "__weakref__")

    def __init__(
        self, client: Client, name: str, lease: float | None, max_hold: float | None
    ) -> None:
        self.name = name
        self._client = client  # a lock keeps its client open
        self._handle = client._lock_handle(name, lease, max_hold)

    def _owner(self) -> int:
        raise NotImplementedError

    def _keep(self, hold: Hold) -> None:
        raise NotImplementedError

    def _take(self) -> Hold:
        raise NotImplementedError

    async def _try(self, wait: int, keep: bool) -> Hold | None:
        loop = self._client._loop()
        token = loop.new_token()
        operation = _lock_acquire_submit(self._handle, self._owner(), wait, loop.queue, token)
        future = loop.waiting[token] = loop.new_future()
        try:
            code, value = await future
        except BaseException:
            loop.abandon(token, operation, future)
            raise
        if code == _OK:
            hold = Hold(self._client, value, loop)
            if keep:
                self._keep(hold)
            return hold
        if code == _BUSY or code == _TIMEDOUT:
            return None
        raise value

    async def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Get the lock, waiting if need be; False if it was not free in time."""
        return await self._try(acquire_ms(blocking, timeout), True) is not None

    async def release(self) -> None:
        """Release what acquire() got; see Hold.release()."""
        await self._take()._end(None)

    def hold(self, timeout: float | None = None) -> _Holding:
        """Acquire: `async with lock.hold(timeout=2.0) as hold:` or `hold = await lock.hold()`.

        Raises Timeout when the time is over, Busy if it was 0 (one try).
        """
        return _Holding(self, wait_ms(timeout))

    async def info(self) -> LockInfo:
        """Ask the server who holds the lock."""
        code, value = await self._client._loop().run(_core.lock_info_submit, self._handle)
        if code != _OK:
            raise value
        return make_info(value)

    async def locked(self) -> bool:
        """Ask the server whether anybody holds the lock."""
        return (await self.info()).held

    async def force_release(self) -> bool:
        """Delete the lock, whoever holds it, and wake the waiters; False if it was free."""
        loop = self._client._loop()
        code, value = await loop.run(_core.lock_force_release_submit, self._handle)
        if code != _OK and code != _NOT_HELD:
            raise value
        return code == _OK

    def __aenter__(self) -> Coroutine[Any, Any, Hold]:
        # Without a limit the wait ends with a hold or an exception.
        return self._try(-1, True)  # type: ignore[return-value]

    def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> Coroutine[Any, Any, None]:
        return self._take()._end(error)

    def __repr__(self) -> str:
        return f"<snib.aio.{type(self).__name__} {self.name!r}>"


class Lock(_AnyLock):
    """A named lock with the habits of asyncio.Lock, across processes.

    Each acquisition has an owner of its own: a second one waits for the first one's release,
    also in the same task.  Any task may release: its own hold, else the oldest.
    """

    __slots__ = ("_holds",)

    def __init__(
        self, client: Client, name: str, lease: float | None, max_hold: float | None
    ) -> None:
        super().__init__(client, name, lease, max_hold)
        # More than one if holds were lost: then each task must give back its own.
        self._holds: dict[Task[Any] | None, Hold] = {}

    def _owner(self) -> int:
        return 0

    def _keep(self, hold: Hold) -> None:
        self._holds[current_task()] = hold

    def _take(self) -> Hold:
        hold = self._holds.pop(current_task(), None)
        if hold is not None:
            return hold
        for task in tuple(self._holds):
            hold = self._holds.pop(task, None)
            if hold is not None:
                return hold
        raise NotHeld("release of a lock that is not held")


class RLock(_AnyLock):
    """A named re-entrant lock whose owner is the task.

    The owner may acquire again, at once and without a round trip, and must release as often.
    Another task cannot release it.
    """

    __slots__ = ("_holds",)

    def __init__(
        self, client: Client, name: str, lease: float | None, max_hold: float | None
    ) -> None:
        super().__init__(client, name, lease, max_hold)
        self._holds: dict[int, list[Hold]] = {}

    def _owner(self) -> int:
        task = current_task()
        if task is None:
            raise InvalidArgument("a re-entrant lock needs a task to own it")
        owner = _task_owners.get(task)
        if owner is None:
            owner = _task_owners[task] = next(owner_numbers)
        return owner

    def _keep(self, hold: Hold) -> None:
        self._holds.setdefault(self._owner(), []).append(hold)

    def _take(self) -> Hold:
        owner = self._owner()
        holds = self._holds.get(owner)
        if not holds:
            raise NotHeld("release of a lock that this task does not hold")
        hold = holds.pop()
        if not holds:
            del self._holds[owner]
        return hold


class Client(BaseClient):
    __doc__ = BaseClient.__doc__

    def _begin(self) -> None:
        self._loops: dict[int, weakref.ref[_Loop]] = {}

    def _loop(self) -> _Loop:
        """The queue of the running loop."""
        running = get_running_loop()
        known = self._loops.get(id(running))
        loop = known and known()  # what is found keeps its loop, and so the id, alive
        return loop or self._new_loop(running)

    def _new_loop(self, running: AbstractEventLoop) -> _Loop:
        for key, known in list(self._loops.items()):
            if known() is None:
                self._loops.pop(key, None)
        loop = _Loop(self, running)
        self._loops[id(running)] = weakref.ref(loop)
        return loop

    def _living_loops(self) -> builtins.list[_Loop]:
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

    async def ping(self, timeout: float | None = None) -> None:
        """Connect if need be and ask the server for an answer; None: the client's patience."""

        def submit(queue: _core.QueueHandle, token: int) -> int:
            return _core.client_ping_submit(self._handle, wait_ms(timeout), queue, token)

        code, value = await self._loop().run(submit)
        if code != _OK:
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


# It reads better at the call, and a client needs no await to be made: nothing is sent.
connect = Client

__all__ = ["Client", "Hold", "Lock", "LockInfo", "Loss", "RLock", "State", "connect"]

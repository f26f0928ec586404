"""Locks for asyncio."""

from __future__ import annotations

import weakref
from asyncio import Future, Task, current_task, get_running_loop
from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar

from .. import _core, _kinds
from .._codes import InvalidArgument, NotHeld
from .._error import Error
from .._hold import BaseHold, LockInfo, State, make_info, refusal
from .._lock import owner_numbers
from .._times import acquire_ms, wait_ms
from ._loop import BUSY, NOT_HELD, OK, TIMEDOUT, Loop

if TYPE_CHECKING:
    from ._client import Client

_hold_release_submit = _core.hold_release_submit  # of the hot path

_task_owners: weakref.WeakKeyDictionary[Task[Any], int] = weakref.WeakKeyDictionary()


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

    def __init__(self, client: Client, handle: _core.HoldHandle, loop: Loop) -> None:
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
            if code != OK:
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


class Holding:
    """What hold() of a lock returns: `await` it for the hold, or use it in `async with`."""

    __slots__ = ("_lock", "_n", "_wait", "_hold")

    def __init__(self, lock: Holdable, n: int, wait: int) -> None:
        self._lock = lock
        self._n = n
        self._wait = wait

    async def _get(self) -> Hold:
        hold = await self._lock._try(self._n, self._wait, False)
        if hold is None:
            raise refusal(self._lock.name, self._lock._busy, self._wait)
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


class Named:
    """A name at a client, used as one kind of lock."""

    __slots__ = ("name", "_client", "_handle", "__weakref__")

    _KIND: ClassVar[int]

    def __init__(
        self,
        client: Client,
        name: str,
        lease: float | None = None,
        max_hold: float | None = None,
        flags: int = 0,
    ) -> None:
        self.name = name
        self._client = client  # a lock keeps its client open
        self._handle = client._lock_handle(self._KIND, name, lease, max_hold, flags)

    async def info(self) -> LockInfo:
        """Ask the server who holds the lock."""
        code, value = await self._client._loop().run(_core.lock_info_submit, self._handle)
        if code != OK:
            raise value
        return make_info(value)

    async def force_release(self) -> bool:
        """Delete the lock, whoever holds it, and wake the waiters; False if it was free."""
        loop = self._client._loop()
        code, value = await loop.run(_core.lock_force_release_submit, self._handle)
        if code != OK and code != NOT_HELD:
            raise value
        return code == OK

    def __repr__(self) -> str:
        return f"<snib.aio.{type(self).__name__} {self.name!r}>"


class Holdable(Named):
    """What can be held: all locks, semaphores and permits."""

    __slots__ = ()

    _submit: ClassVar[staticmethod[[_core.LockHandle, int, int, _core.QueueHandle, int], int]]
    _busy: ClassVar[str] = "somebody else holds {!r}"

    def _number(self, n: int) -> int:
        """What the core wants to know of an acquisition: the owner, or how many permits."""
        raise NotImplementedError

    def _keep(self, hold: Hold) -> None:
        raise NotImplementedError

    def _take(self) -> Hold:
        raise NotImplementedError

    # A coroutine within a coroutine costs more than the call of the core, so `async with` runs one
    # at each end, and that awaits in place what it submits.
    async def _try(self, n: int, wait: int, keep: bool) -> Hold | None:
        loop = self._client._loop()
        token = loop.new_token()
        operation = self._submit(self._handle, self._number(n), wait, loop.queue, token)
        future = loop.waiting[token] = loop.new_future()
        try:
            code, value = await future
        except BaseException:
            loop.abandon(token, operation, future)
            raise
        if code == OK:
            hold = Hold(self._client, value, loop)
            if keep:
                self._keep(hold)
            return hold
        if code == BUSY or code == TIMEDOUT:
            return None
        raise value

    async def locked(self) -> bool:
        raise NotImplementedError

    async def release(self) -> None:
        """Release what acquire() got; see Hold.release()."""
        await self._take()._end(None)

    def __aenter__(self) -> Coroutine[Any, Any, Hold]:
        # Without a limit the wait ends with a hold or an exception.
        return self._try(1, -1, True)  # type: ignore[return-value]

    def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> Coroutine[Any, Any, None]:
        return self._take()._end(error)


class AnyLock(Holdable):
    """What all locks have in common, whoever their owner is."""

    __slots__ = ()

    _submit = staticmethod(_core.lock_acquire_submit)

    async def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Get the lock, waiting if need be; False if it was not free in time."""
        return await self._try(1, acquire_ms(blocking, timeout), True) is not None

    def hold(self, timeout: float | None = None) -> Holding:
        """Acquire: `async with lock.hold(timeout=2.0) as hold:` or `hold = await lock.hold()`.

        Raises Timeout when the time is over, Busy if it was 0 (one try).
        """
        return Holding(self, 1, wait_ms(timeout))

    async def locked(self) -> bool:
        """Ask the server whether anybody holds the lock."""
        return (await self.info()).held


class Lock(AnyLock):
    """A named lock with the habits of asyncio.Lock, across processes.

    Each acquisition has an owner of its own: a second one waits for the first one's release,
    also in the same task.  Any task may release: its own hold, else the oldest.
    """

    __slots__ = ("_holds",)

    _KIND = _kinds.MUTEX

    def __init__(
        self,
        client: Client,
        name: str,
        lease: float | None = None,
        max_hold: float | None = None,
        flags: int = 0,
    ) -> None:
        super().__init__(client, name, lease, max_hold, flags)
        self._begin()

    def _begin(self) -> None:
        # More than one if holds were lost: then each task must give back its own.
        self._holds: dict[Task[Any] | None, Hold] = {}

    def _number(self, n: int) -> int:
        return 0  # a fresh owner

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


class FairLock(Lock):
    """A lock that goes to whoever asked first, among all processes."""

    __slots__ = ()

    _KIND = _kinds.FAIR


class FencedLock(Lock):
    """A lock whose holds carry a rising token; snib.fencing has what checks it."""

    __slots__ = ()

    _KIND = _kinds.FENCED


class SpinLock(Lock):
    """A lock whose waiters poll and whose releases tell nobody: for short work."""

    __slots__ = ()

    _KIND = _kinds.SPIN


class PlainLock(Lock):
    """A lock that is one string with a time to live, as other libraries write it."""

    __slots__ = ()

    _KIND = _kinds.PLAIN


class RLock(AnyLock):
    """A named re-entrant lock whose owner is the task.

    The owner may acquire again, at once and without a round trip, and must release as often.
    Another task cannot release it.
    """

    __slots__ = ("_holds",)

    _KIND = _kinds.MUTEX

    def __init__(
        self,
        client: Client,
        name: str,
        lease: float | None = None,
        max_hold: float | None = None,
        flags: int = 0,
    ) -> None:
        super().__init__(client, name, lease, max_hold, flags)
        self._holds: dict[int, list[Hold]] = {}

    def _number(self, n: int) -> int:
        return self._owner()

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


class ReadLock(RLock):
    """The readers' side of a read/write lock: many may hold it, or one writer the other side."""

    __slots__ = ()

    _KIND = _kinds.READ


class WriteLock(RLock):
    """The writer's side of a read/write lock."""

    __slots__ = ()

    _KIND = _kinds.WRITE


class RWLock:
    """Many readers, or one writer: `async with rwlock.read:`, `async with rwlock.write:`.

    The owner of either side is the task, as for RLock.  Who holds `write` may take `read` too and
    keep it when `write` is released: so a writer becomes a reader, and nobody writes in between.
    The other way round raises UpgradeRefused at once; it would wait for itself.
    """

    __slots__ = ("name", "read", "write", "__weakref__")

    def __init__(
        self,
        client: Client,
        name: str,
        lease: float | None = None,
        max_hold: float | None = None,
        flags: int = 0,
    ) -> None:
        self.name = name
        self.read = ReadLock(client, name, lease, max_hold)
        self.write = WriteLock(client, name, lease, max_hold, flags)

    def __repr__(self) -> str:
        return f"<snib.aio.RWLock {self.name!r}>"

"""Locks for programs with threads."""

from __future__ import annotations

import itertools
import threading
from threading import get_ident
from types import TracebackType
from typing import ClassVar

from . import _core, _kinds
from ._client import BaseClient
from ._codes import NotHeld
from ._error import Error
from ._hold import BaseHold, LockInfo, State, make_info, refusal
from ._times import acquire_ms, wait_ms

# Owners of re-entrant locks: a number per thread or task that, unlike its identity, never returns.
owner_numbers = itertools.count(1)


class _Thread(threading.local):
    def __init__(self) -> None:
        self.owner = next(owner_numbers)


_thread = _Thread()


class Loss:
    """The loss of a hold, with the habits of threading.Event."""

    __slots__ = ("_hold",)

    def __init__(self, hold: Hold) -> None:
        self._hold = hold

    def is_set(self) -> bool:
        """Whether the hold is lost; exact at the moment of the call."""
        return self._hold.state is State.LOST

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the hold is lost (True), or released or the time is over (False)."""
        return _core.hold_wait(self._hold._handle, wait_ms(timeout))


class Hold(BaseHold):
    """One successful acquisition.  `with` releases it; any thread may."""

    __slots__ = ()

    @property
    def lost(self) -> Loss:
        return Loss(self)

    def release(self) -> None:
        """Give the lock back and wake a waiter.

        Raises Lost if it was not held any more, NotHeld if this hold was released before, and
        Unreachable if no answer came; then the client goes on trying until the lease has ended.
        """
        if self._released:
            raise NotHeld("this hold has been released before")
        self._released = True
        _core.release(self._handle)

    def __enter__(self) -> Hold:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.release()
        except Error:
            if error is None:  # else the program's own error matters more
                raise


class Named:
    """A name at a client, used as one kind of lock."""

    __slots__ = ("name", "_client", "_handle", "__weakref__")

    _KIND: ClassVar[int]

    def __init__(
        self,
        client: BaseClient,
        name: str,
        lease: float | None = None,
        max_hold: float | None = None,
        flags: int = 0,
    ) -> None:
        self.name = name
        self._client = client  # a lock keeps its client open
        self._handle = client._lock_handle(self._KIND, name, lease, max_hold, flags)

    def info(self) -> LockInfo:
        """Ask the server who holds the lock."""
        return make_info(_core.lock_info(self._handle))

    def force_release(self) -> bool:
        """Delete the lock, whoever holds it, and wake the waiters; False if it was free."""
        return _core.lock_force_release(self._handle)

    def __repr__(self) -> str:
        return f"<snib.{type(self).__name__} {self.name!r}>"


class Holdable(Named):
    """What can be held: all locks, semaphores and permits."""

    __slots__ = ()

    _acquire: ClassVar[staticmethod[[_core.LockHandle, int, int], _core.HoldHandle | None]]
    _submit: ClassVar[staticmethod[[_core.LockHandle, int, int, _core.QueueHandle, int], int]]
    _busy: ClassVar[str] = "somebody else holds {!r}"

    def _number(self, n: int) -> int:
        """What the core wants to know of an acquisition: the owner, or how many permits."""
        raise NotImplementedError

    def _keep(self, hold: Hold) -> None:
        raise NotImplementedError

    def _take(self) -> Hold:
        raise NotImplementedError

    def _try(self, n: int, wait: int) -> Hold | None:
        handle = self._acquire(self._handle, self._number(n), wait)
        return None if handle is None else Hold(self._client, handle)

    def _try_to_keep(self, n: int, wait: int) -> bool:
        hold = self._try(n, wait)
        if hold is None:
            return False
        self._keep(hold)
        return True

    def _hold(self, n: int, wait: int) -> Hold:
        hold = self._try(n, wait)
        if hold is None:
            raise refusal(self.name, self._busy, wait)
        return hold

    def locked(self) -> bool:
        raise NotImplementedError

    def release(self) -> None:
        """Release what acquire() got; see Hold.release()."""
        self._take().release()

    def __enter__(self) -> Hold:
        hold = self._try(1, -1)
        assert hold is not None  # a wait without limit ends with a hold or an exception
        self._keep(hold)
        return hold

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._take().__exit__(kind, error, trace)


class AnyLock(Holdable):
    """What all locks have in common, whoever their owner is."""

    __slots__ = ()

    _acquire = staticmethod(_core.acquire)
    _submit = staticmethod(_core.lock_acquire_submit)

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Get the lock, waiting if need be; False if it was not free in time."""
        return self._try_to_keep(1, acquire_ms(blocking, timeout))

    def hold(self, timeout: float | None = None) -> Hold:
        """Acquire and return the hold: `with lock.hold(timeout=2.0) as hold:`.

        Raises Timeout when the time is over, Busy if it was 0 (one try).
        """
        return self._hold(1, wait_ms(timeout))

    def locked(self) -> bool:
        """Ask the server whether anybody holds the lock."""
        return self.info().held


class Lock(AnyLock):
    """A named lock with the habits of threading.Lock.

    Each acquisition has an owner of its own: a second one waits for the first one's release,
    also in the same thread.  Any thread may release: its own hold, else the oldest.
    """

    __slots__ = ("_holds",)

    _KIND = _kinds.MUTEX

    def __init__(
        self,
        client: BaseClient,
        name: str,
        lease: float | None = None,
        max_hold: float | None = None,
        flags: int = 0,
    ) -> None:
        super().__init__(client, name, lease, max_hold, flags)
        self._begin()

    def _begin(self) -> None:
        # More than one if holds were lost: then each thread must give back its own.
        self._holds: dict[int, Hold] = {}

    def _number(self, n: int) -> int:
        return 0  # a fresh owner

    def _keep(self, hold: Hold) -> None:
        self._holds[get_ident()] = hold

    def _take(self) -> Hold:
        hold = self._holds.pop(get_ident(), None)
        if hold is not None:
            return hold
        for ident in tuple(self._holds):
            hold = self._holds.pop(ident, None)
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
    """A named lock with the habits of threading.RLock.

    The owner is the thread: it may acquire again, at once and without a round trip, and must
    release as often.  Another thread cannot release it.
    """

    __slots__ = ("_holds",)

    _KIND = _kinds.MUTEX

    def __init__(
        self,
        client: BaseClient,
        name: str,
        lease: float | None = None,
        max_hold: float | None = None,
        flags: int = 0,
    ) -> None:
        super().__init__(client, name, lease, max_hold, flags)
        self._holds: dict[int, list[Hold]] = {}

    def _number(self, n: int) -> int:
        return _thread.owner

    def _keep(self, hold: Hold) -> None:
        self._holds.setdefault(_thread.owner, []).append(hold)

    def _take(self) -> Hold:
        holds = self._holds.get(_thread.owner)
        if not holds:
            raise NotHeld("release of a lock that this thread does not hold")
        hold = holds.pop()
        if not holds:
            del self._holds[_thread.owner]
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
    """Many readers, or one writer: `with rwlock.read:`, `with rwlock.write as hold:`.

    The owner of either side is the thread, as for RLock.  Who holds `write` may take `read` too and
    keep it when `write` is released: so a writer becomes a reader, and nobody writes in between.
    The other way round raises UpgradeRefused at once; it would wait for itself.
    """

    __slots__ = ("name", "read", "write", "__weakref__")

    def __init__(
        self,
        client: BaseClient,
        name: str,
        lease: float | None = None,
        max_hold: float | None = None,
        flags: int = 0,
    ) -> None:
        self.name = name
        self.read = ReadLock(client, name, lease, max_hold)
        self.write = WriteLock(client, name, lease, max_hold, flags)

    def __repr__(self) -> str:
        return f"<snib.RWLock {self.name!r}>"

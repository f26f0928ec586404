"""Clients and locks for programs with threads."""

from __future__ import annotations

import builtins
import itertools
import threading
from threading import get_ident
from types import TracebackType

from . import _core
from ._client import BaseClient, in_thread
from ._codes import Busy, NotHeld, Timeout
from ._error import Error
from ._hold import BaseHold, LockInfo, State, make_info
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

    def _try(self, wait: int) -> Hold | None:
        handle = _core.acquire(self._handle, self._owner(), wait)
        return None if handle is None else Hold(self._client, handle)

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Get the lock, waiting if need be; False if it was not free in time."""
        hold = self._try(acquire_ms(blocking, timeout))
        if hold is None:
            return False
        self._keep(hold)
        return True

    def release(self) -> None:
        """Release what acquire() got; see Hold.release()."""
        self._take().release()

    def hold(self, timeout: float | None = None) -> Hold:
        """Acquire and return the hold: `with lock.hold(timeout=2.0) as hold:`.

        Raises Timeout when the time is over, Busy if it was 0 (one try).
        """
        wait = wait_ms(timeout)
        hold = self._try(wait)
        if hold is None:
            if wait:
                raise Timeout(f"{self.name!r} was not free in time")
            raise Busy(f"somebody else holds {self.name!r}")
        return hold

    def info(self) -> LockInfo:
        """Ask the server who holds the lock."""
        return make_info(_core.lock_info(self._handle))

    def locked(self) -> bool:
        """Ask the server whether anybody holds the lock."""
        return self.info().held

    def force_release(self) -> bool:
        """Delete the lock, whoever holds it, and wake the waiters; False if it was free."""
        return _core.lock_force_release(self._handle)

    def __enter__(self) -> Hold:
        hold = self._try(-1)
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

    def __repr__(self) -> str:
        return f"<snib.{type(self).__name__} {self.name!r}>"


class Lock(_AnyLock):
    """A named lock with the habits of threading.Lock.

    Each acquisition has an owner of its own: a second one waits for the first one's release,
    also in the same thread.  Any thread may release: its own hold, else the oldest.
    """

    __slots__ = ("_holds",)

    def __init__(
        self, client: Client, name: str, lease: float | None, max_hold: float | None
    ) -> None:
        super().__init__(client, name, lease, max_hold)
        # More than one if holds were lost: then each thread must give back its own.
        self._holds: dict[int, Hold] = {}

    def _owner(self) -> int:
        return 0

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


class RLock(_AnyLock):
    """A named lock with the habits of threading.RLock.

    The owner is the thread: it may acquire again, at once and without a round trip, and must
    release as often.  Another thread cannot release it.
    """

    __slots__ = ("_holds",)

    def __init__(
        self, client: Client, name: str, lease: float | None, max_hold: float | None
    ) -> None:
        super().__init__(client, name, lease, max_hold)
        self._holds: dict[int, list[Hold]] = {}

    def _owner(self) -> int:
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


class Client(BaseClient):
    __doc__ = BaseClient.__doc__

    def lock(self, name: str, *, lease: float | None = None, max_hold: float | None = None) -> Lock:
        """Name a lock; nothing is sent.

        lease     None: renewed while held, with the client's lease.  Else fixed and not renewed.
        max_hold  renewal ends and the hold is lost after this time
        """
        return Lock(self, name, lease, max_hold)

    def rlock(
        self, name: str, *, lease: float | None = None, max_hold: float | None = None
    ) -> RLock:
        """As lock(), re-entrant: the owner is the thread."""
        return RLock(self, name, lease, max_hold)

    def ping(self, timeout: float | None = None) -> None:
        """Connect if need be and ask the server for an answer; None: the client's patience."""
        _core.ping(self._handle, wait_ms(timeout))

    def list(self, pattern: str = "*") -> builtins.list[str]:
        """The names of the locks that match a pattern of Redis' SCAN, sorted."""
        names: set[str] = set()
        cursor, found = in_thread(_core.client_list, self._handle, pattern, 0).result()
        names.update(found)
        while cursor:
            cursor, found = in_thread(_core.client_list, self._handle, pattern, cursor).result()
            names.update(found)
        return sorted(names)

    def close(self, timeout: float | None = None) -> None:
        """End every operation with Closed and release every hold; again is fine.

        Raises Timeout if a release was not confirmed in time (None: the client's patience); then
        its lease will end it.
        """
        in_thread(_core.client_close, self._handle, wait_ms(timeout)).result()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except Error:
            if error is None:
                raise

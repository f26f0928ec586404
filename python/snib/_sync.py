"""Clients for programs with threads."""

from __future__ import annotations

import builtins
from types import TracebackType

from . import _core
from ._client import BaseClient, in_thread
from ._describe import Description, make_description
from ._error import Error
from ._kinds import fair_flags, rwlock_flags
from ._lock import FairLock, FencedLock, Lock, PlainLock, RLock, RWLock, SpinLock
from ._permits import Latch, Permits, Semaphore
from ._times import wait_ms


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
        """A pair of locks, .read and .write; re-entrant: the owner is the thread.

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

    def describe(self, name: str) -> Description:
        """Everything the server knows of a name, whatever kind of lock made it."""
        lines = in_thread(_core.client_describe, self._handle, name).result()
        return make_description(name, lines)

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

"""Clients for programs with threads."""

from __future__ import annotations

import builtins

from . import _core, _log
from ._client import BaseClient, in_thread, wait_for
from ._describe import Description, make_description
from ._error import Error
from ._factories import Factories
from ._identity import Identity, make_identity
from ._lock import FairLock, FencedLock, Lock, PlainLock, RLock, RWLock, SpinLock, thread_owner
from ._permits import Latch, Permits, Semaphore
from ._times import wait_ms


class Client(
    _core.HeldScope,
    Factories[
        Lock, RLock, FairLock, FencedLock, SpinLock, PlainLock, RWLock, Semaphore, Permits, Latch
    ],
):
    __doc__ = BaseClient.__doc__

    _CLASSES = (
        *(Lock, RLock, FairLock, FencedLock, SpinLock),
        *(PlainLock, RWLock, Semaphore, Permits, Latch),
    )

    def _actor(self) -> int:
        return 2 * thread_owner()

    def describe(self, name: str) -> Description:
        """Everything the server knows about a name, whatever the kind of lock."""
        self._used()
        return make_description(name, _core.client_describe(self._handle, name)[1])

    def identity(self, owner: str) -> Identity | None:
        """Which process is behind an owner, such as one that describe() found; None: not known.

        A client tells it once it has held something for a third of its lease, unless it was opened
        with identity=False.  Redisson's clients do not.
        """
        self._used()
        return make_identity(_core.client_identity(self._handle, owner)[1], owner)

    def ping(self, timeout: float | None = None) -> None:
        """Connect if necessary and ping the server; None: the client's patience."""
        self._used()
        _core.ping(self._handle, wait_ms(timeout))

    def list(self, pattern: str = "*") -> builtins.list[str]:
        """The names of the locks that match a pattern of Redis' SCAN, sorted.

        Semaphores, latches, permits that are all free and plain locks of other programs are not among them: nothing
        tells them from other data.
        """
        self._used()
        names: set[str] = set()
        cursor, found = _core.client_list(self._handle, pattern, 0)
        names.update(found)
        while cursor:
            cursor, found = _core.client_list(self._handle, pattern, cursor)
            names.update(found)
        return sorted(names)

    def close(self, timeout: float | None = None) -> None:
        """End every operation with Closed and release every hold; may be called again.

        Raises Timeout if a release was not confirmed in time (None: the client's patience); the
        lock is then free when its lease ends.
        """
        wait_for(self._end, wait_ms(timeout), _log.runs_here())

    def _leave(self, slot: builtins.list[Client], failed: bool) -> None:
        """The steps of __exit__, see bindings/python_scope.c."""
        try:
            if slot:  # a signal has ended the wait, perhaps before the close began
                in_thread(self._end, -1, in_place=(0,))
            else:
                slot.append(self)
                self.close()
        except Error:
            if not failed:
                raise

"""How a client creates locks, for threads and for asyncio."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from ._base import BaseNamed, BaseRWLock
from ._client import BaseClient
from ._kinds import fair_flags, rwlock_flags
from ._times import MaxHold

L = TypeVar("L", bound=BaseNamed)
R = TypeVar("R", bound=BaseNamed)
F = TypeVar("F", bound=BaseNamed)
T = TypeVar("T", bound=BaseNamed)
S = TypeVar("S", bound=BaseNamed)
P = TypeVar("P", bound=BaseNamed)
W = TypeVar("W", bound=BaseRWLock[Any, Any])
C = TypeVar("C", bound=BaseNamed)
N = TypeVar("N", bound=BaseNamed)
D = TypeVar("D", bound=BaseNamed)


class Factories(BaseClient, Generic[L, R, F, T, S, P, W, C, N, D]):
    """A client whose locks are of the classes named here, in the order of the methods."""

    _CLASSES: tuple[
        type[L], type[R], type[F], type[T], type[S], type[P], type[W], type[C], type[N], type[D]
    ]

    def lock(self, name: str, *, lease: float | None = None, max_hold: MaxHold = None) -> L:
        """Create a lock for a name; nothing is sent.

        lease     None: renewed while held, with the client's lease.  Otherwise fixed.
        max_hold  renewal ends and the hold is lost after this time; "none": without end, whatever the
                  client's max_hold
        """
        return self._CLASSES[0](self, name, lease, max_hold)

    def rlock(self, name: str, *, lease: float | None = None, max_hold: MaxHold = None) -> R:
        """Like lock(), but re-entrant: the owner is the thread, or in asyncio the task."""
        return self._CLASSES[1](self, name, lease, max_hold)

    def fair_lock(
        self,
        name: str,
        *,
        lease: float | None = None,
        max_hold: MaxHold = None,
        fenced: bool = False,
    ) -> F:
        """Like lock(), but first come, first served across all processes.

        fenced  holds carry a fencing token
        """
        return self._CLASSES[2](self, name, lease, max_hold, fair_flags(fenced))

    def fenced_lock(
        self, name: str, *, lease: float | None = None, max_hold: MaxHold = None
    ) -> T:
        """Like lock(); each hold carries a fencing token, greater than that of the hold before."""
        return self._CLASSES[3](self, name, lease, max_hold)

    def spin_lock(
        self, name: str, *, lease: float | None = None, max_hold: MaxHold = None
    ) -> S:
        """Like lock(), but without wake-up messages: waiters poll."""
        return self._CLASSES[4](self, name, lease, max_hold)

    def plain_lock(
        self, name: str, *, lease: float | None = None, max_hold: MaxHold = None
    ) -> P:
        """Like lock(), for names shared with redis-py, redsync, node-redlock and the like."""
        return self._CLASSES[5](self, name, lease, max_hold)

    def rwlock(
        self,
        name: str,
        *,
        lease: float | None = None,
        max_hold: MaxHold = None,
        fenced: bool = False,
        prefer_writer: bool = False,
    ) -> W:
        """A pair of locks, .read and .write; re-entrant like rlock().

        fenced         the writer's holds carry a fencing token
        prefer_writer  while a writer waits, new readers that use Snib wait behind it
        """
        return self._CLASSES[6](self, name, lease, max_hold, rwlock_flags(fenced, prefer_writer))

    def semaphore(self, name: str) -> C:
        """A number of permits without owners or leases."""
        return self._CLASSES[7](self, name)

    def permits(self, name: str, *, lease: float | None = None, max_hold: MaxHold = None) -> N:
        """A number of permits that become free by themselves if their holder dies.

        lease and max_hold are as in lock().
        """
        return self._CLASSES[8](self, name, lease, max_hold)

    def latch(self, name: str) -> D:
        """A count that processes count down; waiters wait until it is 0."""
        return self._CLASSES[9](self, name)

"""What the threaded and the asyncio locks over several locks share."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, ClassVar, Generic, TypeVar

from . import _core
from ._base import BaseHoldable, BaseNamed
from ._hold import BaseHold
from ._kinds import quorum_flags
from ._times import MaxHold, lease_ms, max_hold_ms

H = TypeVar("H", bound=BaseHold)
M = TypeVar("M", bound=BaseHoldable[Any])


class _Several(BaseHoldable[H], Generic[H, M]):
    """A lock over several.  It has its own lease and limits; those of the members are ignored."""

    _MEMBER: ClassVar[type[BaseNamed]]
    members: tuple[M, ...]

    def _join(self, locks: Iterable[M]) -> tuple[_core.LockHandle, ...]:
        self.members = tuple(locks)  # the members keep their clients open
        for member in self.members:
            if not isinstance(member, self._MEMBER):
                raise TypeError(
                    f"a member must be a lock of {type(self).__module__}, "
                    f"not {type(member).__module__}.{type(member).__qualname__}"
                )
        self.name = ", ".join(dict.fromkeys(member.name for member in self.members))
        self._begin()
        return tuple(member._handle for member in self.members)

    def _number(self, caller: int, n: int) -> int:
        """Called before each acquisition: the clients of all members begin, not only the first."""
        for member in self.members:
            if not member._client._begun:
                member._client._used()
        return super()._number(caller, n)

    # Home and key must not depend on the order of the members.
    def _home(self) -> int:
        return min(member._client._number for member in self.members)

    def _key(self) -> Hashable:
        return self.kind, frozenset((m._client._number, m._key()) for m in self.members)


class MultiKind(_Several[H, M]):
    """All of several locks, or none, as one lock.

    locks     1 to 100, of any kind but semaphores and latches, also of different clients.  Their
              order does not matter: processes never deadlock, provided that each name is always
              used as the same kind of lock.
    lease     as for client.lock()
    max_hold  as for client.lock()

    The hold is lost as soon as one member's is, and has no token.  info() and force_release() raise
    NotSupported: ask the members.
    """

    kind = "multi"

    def __init__(
        self, locks: Iterable[M], *, lease: float | None = None, max_hold: MaxHold = None
    ) -> None:
        handles = self._join(locks)
        limits = self._given(lease_ms, lease), self._given(max_hold_ms, max_hold)
        self._handle = self._given(_core.multi_new, handles, *limits)
        self._client = self.members[0]._client


class QuorumKind(_Several[H, M]):
    """A lock on a majority of several independent servers, for when one server is not enough.

    locks       3 to 15 locks of one name from client.lock(), each of another client.  The servers
                must be independent: no replicas, no two on one machine.  All programs name all of
                them, also those that are down: a server that is left out changes the majority.
    lease       as for client.lock()
    max_hold    as for client.lock()
    quarantine  False: servers that may have lost their memory vote immediately

    info() and force_release() raise NotSupported: ask the members.
    """

    kind = "quorum"

    _busy = "no majority of its servers granted it"
    _late = "the wait ended before a majority of its servers granted it"

    def __init__(
        self,
        locks: Iterable[M],
        *,
        lease: float | None = None,
        max_hold: MaxHold = None,
        quarantine: bool = True,
    ) -> None:
        handles = self._join(locks)
        limits = self._given(lease_ms, lease), self._given(max_hold_ms, max_hold)
        self._handle = self._given(_core.quorum_new, handles, *limits, quorum_flags(quarantine))
        self._client = self.members[0]._client

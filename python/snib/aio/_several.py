"""One lock over several, for asyncio."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from .. import _core
from .._codes import NetworkError, ServerError
from .._kinds import quorum_flags
from .._times import lease_ms, option_ms
from ._lock import Holdable, Lock, Named


class _Several(Lock):
    """A lock over several.  Its leases and limits are its own, whatever the members have."""

    __slots__ = ("members",)

    def __init__(
        self, locks: Iterable[Holdable], lease: float | None, max_hold: float | None, flags: int
    ) -> None:
        self.members: tuple[Holdable, ...] = tuple(locks)  # they keep their clients open
        for member in self.members:
            if not isinstance(member, Named):
                raise TypeError(f"a member must be a lock of snib.aio, not {type(member).__name__}")
        self.name = ", ".join(dict.fromkeys(member.name for member in self.members))
        self._handle = self._make(lease_ms(lease), option_ms("max_hold", max_hold), flags)
        self._client = self.members[0]._client
        self._begin()

    def _make(self, lease: int, max_hold: int, flags: int) -> _core.LockHandle:
        raise NotImplementedError

    @property
    def _handles(self) -> tuple[_core.LockHandle, ...]:
        return tuple(member._handle for member in self.members)


class MultiLock(_Several):
    """All of several locks, or none, as one lock: `async with MultiLock([a, b]) as hold:`.

    locks     1 to 100, of any kind but semaphores and latches, also of different clients.  Their
              order does not matter: two processes never wait for each other in a circle, if each
              name is always used as the same kind of lock.
    lease     as for client.lock()
    max_hold  as for client.lock()

    The hold is lost as soon as one member's is, and has no token.
    """

    __slots__ = ()

    def __init__(
        self,
        locks: Iterable[Holdable],
        *,
        lease: float | None = None,
        max_hold: float | None = None,
    ) -> None:
        super().__init__(locks, lease, max_hold, 0)

    def _make(self, lease: int, max_hold: int, flags: int) -> _core.LockHandle:
        return _core.multi_new(self._handles, lease, max_hold)

    async def locked(self) -> bool:
        """Ask the servers whether anybody holds one of the members."""
        for member in self.members:
            if await member.locked():
                return True
        return False


class QuorumLock(_Several):
    """A lock on most of several independent servers, for whom one server is not enough.

    locks       3 to 15 locks of one name from client.lock(), each of another client.  The servers
                must be independent: no replicas, no two on one machine.
    lease       as for client.lock()
    max_hold    as for client.lock()
    quarantine  False: let servers vote at once that may have lost their memory
    """

    __slots__ = ()

    def __init__(
        self,
        locks: Iterable[Holdable],
        *,
        lease: float | None = None,
        max_hold: float | None = None,
        quarantine: bool = True,
    ) -> None:
        super().__init__(locks, lease, max_hold, quorum_flags(quarantine))

    def _make(self, lease: int, max_hold: int, flags: int) -> _core.LockHandle:
        return _core.quorum_new(self._handles, lease, max_hold, flags)

    async def locked(self) -> bool:
        """Ask the servers whether most of them have it held; one that is away has not."""
        held = 0
        for member in self.members:
            with contextlib.suppress(NetworkError, ServerError):
                held += await member.locked()
        return held > len(self.members) // 2

"""One lock over several, for asyncio."""

from __future__ import annotations

import contextlib

from .._codes import NetworkError, ServerError
from .._members import MultiKind, QuorumKind
from ._lock import Hold, Holdable, Lock, Named


class MultiLock(MultiKind[Hold, Holdable], Lock):
    _MEMBER = Named

    async def locked(self) -> bool:
        """Ask the servers whether any member is held."""
        for member in self.members:
            if await member.locked():
                return True
        return False


class QuorumLock(QuorumKind[Hold, Holdable], Lock):
    _MEMBER = Named

    async def locked(self) -> bool:
        """Ask the servers whether a majority holds the lock; servers that are down do not count."""
        held = 0
        for member in self.members:
            with contextlib.suppress(NetworkError, ServerError):
                held += await member.locked()
        return held > len(self.members) // 2

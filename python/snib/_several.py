"""One lock over several, for programs with threads."""

from __future__ import annotations

import contextlib

from ._codes import NetworkError, ServerError
from ._lock import Hold, Holdable, Lock, Named
from ._members import MultiKind, QuorumKind


class MultiLock(MultiKind[Hold, Holdable], Lock):
    _MEMBER = Named

    def locked(self) -> bool:
        """Ask the servers whether any member is held."""
        return any(member.locked() for member in self.members)


class QuorumLock(QuorumKind[Hold, Holdable], Lock):
    _MEMBER = Named

    def locked(self) -> bool:
        """Ask the servers whether a majority holds the lock; servers that are down do not count."""
        held = 0
        for member in self.members:
            with contextlib.suppress(NetworkError, ServerError):
                held += member.locked()
        return held > len(self.members) // 2

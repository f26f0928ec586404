"""One lock over several, for asyncio."""

from __future__ import annotations

from .._codes import Closed, NetworkError, ServerError
from .._error import Error
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
        """Ask the servers whether a majority holds the lock.

        Servers that are down do not count; if no majority answers, the error of the first one is raised.
        """
        answers: list[bool] = []
        failure: Error | None = None
        for member in self.members:
            try:
                answers.append(await member.locked())
            except (Closed, NetworkError, ServerError) as error:
                failure = failure or error
        if failure and len(answers) <= len(self.members) // 2:
            raise failure
        return sum(answers) > len(self.members) // 2

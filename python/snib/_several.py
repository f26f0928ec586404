"""One lock over several, for programs with threads."""

from __future__ import annotations

from ._codes import Closed, NetworkError, ServerError
from ._error import Error
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
        """Ask the servers whether a majority holds the lock.

        Servers that are down do not count; if no majority answers, the error of the first one is raised.
        """
        answers: list[bool] = []
        failure: Error | None = None
        for member in self.members:
            try:
                answers.append(member.locked())
            except (Closed, NetworkError, ServerError) as error:
                failure = failure or error
        if failure and len(answers) <= len(self.members) // 2:
            raise failure
        return sum(answers) > len(self.members) // 2

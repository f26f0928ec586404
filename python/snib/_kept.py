"""What callers got through one object and have not given back yet."""

from __future__ import annotations

import itertools
from typing import Generic, TypeVar

H = TypeVar("H")


class Kept(Generic[H]):
    """Holds by caller (a thread or a task), who may have several.

    Each step is one operation on a dict, so no mutex is needed that a fork could leave locked.
    """

    __slots__ = ("_next", "_holds")

    def __init__(self) -> None:
        self._next = itertools.count().__next__
        self._holds: dict[int, tuple[object, H]] = {}

    def keep(self, caller: object, hold: H) -> None:
        self._holds[self._next()] = (caller, hold)

    def take(self, caller: object) -> H | None:
        """The caller's newest, else the oldest of all; None if there is none."""
        holds = self._holds.copy()
        own = [key for key in reversed(holds) if holds[key][0] == caller]
        for key in [*own, *holds]:
            entry = self._holds.pop(key, None)
            if entry is not None:  # else another thread was faster
                return entry[1]
        return None

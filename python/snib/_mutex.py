"""A mutex that an exception of a signal's handler does not leave locked."""

from __future__ import annotations

from itertools import compress, starmap
from typing import Any

from . import _core


class Mutex(_core.Scope):
    """Of a lock of `threading`, what `with` enters and leaves, in the steps that bindings/python_scope.c calls.

    The lock's own __enter__ may be interrupted as it has returned, see there.
    """

    __slots__ = ("lock",)

    def __init__(self, lock: Any) -> None:
        self.lock = lock

    def _enter(self, slot: list[Any]) -> None:
        # It releases at its first step and does nothing later.  It is in the slot if the mutex is locked: both are done
        # in C, where a signal's handler cannot come between.
        release = starmap(self.lock.release, [()])
        slot.extend(compress([release], starmap(self.lock.acquire, [()])))

    def _leave(self, slot: list[Any], failed: bool) -> None:
        if not slot:
            slot.append(starmap(self.lock.release, [()]))
        next(slot[0], None)

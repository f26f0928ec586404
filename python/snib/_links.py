"""Links of snib.opentelemetry: from a hold's span to that of the hold that had the lock before."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Any

from opentelemetry.trace import Link, Span

from ._base import BaseHoldable
from ._hold import State

LIMIT = 1024  # locks; the one that was held least recently is forgotten

_SHARED = ("read", "permits", "semaphore")  # several may hold it at the same time
_SAYS = {"snib.link": "previous_hold"}


class Holder:
    """A hold with a span.  It does not keep the hold, which may be dropped."""

    __slots__ = ("_hold", "_holders", "ended", "owner", "span")

    def __init__(self, holders: Holders, span: Span, hold: Any) -> None:
        self._holders = holders
        self._hold = weakref.ref(hold)
        self.span = span.get_span_context()
        self.owner = hold.owner
        self.ended = False

    def is_also(self, hold: Any) -> bool:
        """Whether it still has the lock, and this is another hold of it."""
        return not self.ended and self.owner == hold.owner

    def lets_in(self) -> bool:
        """Whether a reader that comes in now is within its hold: it is a writer's, and has the lock."""
        hold = None if self.ended else self._hold()
        return hold is not None and hold.state is not State.LOST

    def end(self) -> None:
        """Called before the release, because the next holder does not wait for its answer."""
        if not self.ended:
            self.ended = True
            self._holders.note_end(self)


# The last holder of each lock.  There is no mutex, which a fork could leave locked for ever: each
# operation on the table is one of the interpreter's.
_last: OrderedDict[Hashable, Holder] = OrderedDict()


def _place(lock: BaseHoldable[Any]) -> Hashable:
    """Locks of one name on different servers are different locks, whatever the client."""
    members: Sequence[BaseHoldable[Any]] | None = getattr(lock, "members", None)
    if members is None:
        return lock.name, lock._client._address
    return frozenset(map(_place, members))


class Holders:
    """The holders of one lock, which are noted only if their spans are recorded."""

    __slots__ = ("_key", "_shared")

    def __init__(self, lock: object) -> None:
        self._key: Hashable = None  # of a fake, which has no server
        self._shared = False
        if isinstance(lock, BaseHoldable):
            self._key = "rw" if lock.kind in ("read", "write") else lock.kind, _place(lock)
            self._shared = lock.kind in _SHARED

    def links(self, hold: Any) -> tuple[Link, ...]:
        """For the span of a new hold.  A reader that comes in while a writer has the lock is within its hold."""
        last = _last.get(self._key)
        within = last is not None and (last.is_also(hold) or (self._shared and last.lets_in()))
        return () if last is None or within else (Link(last.span, _SAYS),)

    def begin(self, span: Span, hold: Any) -> Holder | None:
        """Called with the new span.  One that has the lock alone is the last holder at once: if it
        is lost, the next one may begin before the program hears of it.
        """
        last = _last.get(self._key)
        if self._key is None or (not self._shared and last is not None and last.is_also(hold)):
            return None
        holder = Holder(self, span, hold)
        if not self._shared:
            self._note(holder)
        return holder

    def note_end(self, holder: Holder) -> None:
        last = _last.get(self._key)
        if self._shared and (last is None or last.ended):  # not within a writer's hold
            self._note(holder)

    def _note(self, holder: Holder) -> None:
        _last.pop(self._key, None)
        _last[self._key] = holder
        while len(_last) > LIMIT:
            _last.popitem(last=False)

"""What the threaded and the asyncio locks share: a name at a client, used as one kind of lock."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import ClassVar, Generic, TypeVar

from . import _core, _kinds
from ._client import BaseClient
from ._codes import Busy, Forked, InvalidName, InvalidPermits, NotHeld, Timeout, UsageError
from ._error import Error
from ._hold import BaseHold
from ._kept import Block, Kept, kept_for
from ._stays import stays
from ._times import MaxHold, lease_ms, max_hold_ms

E = TypeVar("E", bound=Error)
H = TypeVar("H", bound=BaseHold)
R = TypeVar("R", bound="BaseNamed")
W = TypeVar("W", bound="BaseNamed")
V = TypeVar("V")


class BaseNamed:
    """A name at a client, used as one kind of lock."""

    __slots__ = ("name", "_client", "_handle", "__weakref__")

    _KIND: ClassVar[int]
    kind: ClassVar[str]

    def __init__(
        self,
        client: BaseClient,
        name: str,
        lease: float | None = None,
        max_hold: MaxHold = None,
        flags: int = 0,
    ) -> None:
        self.name = name
        self._client = client  # a lock keeps its client open
        limits = self._given(lease_ms, lease), self._given(max_hold_ms, max_hold)
        self._handle = self._given(_core.lock_new, client._handle, self._KIND, name, *limits, flags)

    def _named(self, error: E) -> E:
        """The error, with the name and kind of the lock added."""
        if isinstance(error, InvalidName) or not self.name:  # there is no such lock
            return error
        error.name, error.kind = self.name, self.kind
        if isinstance(error, (UsageError, Forked)):  # whose sentence seldom has them
            error.args = (_kinds.about(self.kind, self.name, str(error)),)
        return error

    def _given(self, convert: Callable[..., V], *values: object) -> V:
        """What the program has given, as the core wants it; errors name the lock."""
        try:
            return convert(*values)
        except Error as error:
            raise self._named(error)

    __reduce_ex__ = stays

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} {self.name!r}>"


def refuse_descriptor(function: object) -> None:
    """By protect(): a property, a class method or a static method, whose own decorator goes outside."""
    if not callable(function) or isinstance(function, staticmethod):
        raise TypeError(f"protect() is for functions, not for a {type(function).__name__}")


class BaseHoldable(BaseNamed, Generic[H]):
    """Anything that can be held: all locks, semaphores and permits."""

    __slots__ = ("_found",)

    # The core's sentences (core/api/say.c), which an acquire that is refused does not bring along.
    _busy: ClassVar[str] = "another owner holds the lock"
    _late: ClassVar[str] = "the wait ended before the lock was free"
    _others: ClassVar[bool] = True  # other callers may release what this caller acquired

    def __init__(
        self,
        client: BaseClient,
        name: str,
        lease: float | None = None,
        max_hold: MaxHold = None,
        flags: int = 0,
    ) -> None:
        super().__init__(client, name, lease, max_hold, flags)
        self._begin()

    def _begin(self) -> None:
        self._found: Kept[H] | None = None

    def _number(self, caller: int, n: int) -> int:
        """The number that the core needs for an acquisition: the owner, or how many permits."""
        return 0  # a fresh owner

    def _key(self) -> Hashable:
        return self._KIND, self.name

    def _home(self) -> int:
        """The number of the client that keeps the acquired holds."""
        return self._client._number

    def _kept(self) -> Kept[H]:
        if self._found is None:
            self._found = kept_for(self._home(), self._key())
        return self._found

    def _keep(self, caller: int, hold: H, permits: int = 1, block: Block | None = None) -> None:
        (self._found or self._kept()).keep(caller, hold, permits, block)

    def _take(self, caller: int) -> H:
        hold = (self._found or self._kept()).take(caller, self._others)
        if hold is None:
            raise self._not_held()
        return hold

    def _not_held(self, block: bool = False) -> NotHeld:
        """What to raise for a release, or for a block of which nothing is left: it takes no hold of another caller."""
        by = "by this block any more" if block else "at this client" if self._others else "by this owner"
        return self._named(NotHeld(f"{self.name!r} is not held {by}, so it cannot be released"))

    def _refusal(self, wait: int) -> Error:
        """Why a wait of at most that many milliseconds ended without a hold."""
        about = _kinds.said(self.kind, self.name)
        if wait:
            return self._named(Timeout(f"{about}: {self._late}"))
        return self._named(Busy(f"{about}: {self._busy}"))


class BasePermits(BaseHoldable[H]):
    """Permits; an acquisition takes one or more."""

    __slots__ = ()

    _busy = "too few permits are free"
    _late = "the wait ended before enough permits were free"

    def _number(self, caller: int, n: int) -> int:
        return n

    def _take_permits(self, caller: int, n: int | None) -> list[H]:
        """What one acquire() took, or holds of n permits in all."""
        if n is None:
            return [self._take(caller)]
        kept, n = self._kept(), self._given(_kinds.permits, n)
        holds = kept.take_permits(caller, n) if n <= kept.count() else []
        if holds:
            return holds
        if kept.count() < n:
            raise self._not_held()
        raise self._named(
            InvalidPermits(
                f"cannot release just {n} permits, because those of one acquire() are released together"
            )
        )


class BaseRWLock(Generic[R, W]):
    """Many readers, or one writer."""

    __slots__ = ("name", "read", "write", "__weakref__")

    _READ: Callable[..., R]
    _WRITE: Callable[..., W]

    def __init__(
        self,
        client: BaseClient,
        name: str,
        lease: float | None = None,
        max_hold: MaxHold = None,
        flags: int = 0,
    ) -> None:
        self.name = name
        self.read: R = type(self)._READ(client, name, lease, max_hold)
        self.write: W = type(self)._WRITE(client, name, lease, max_hold, flags)

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.RWLock {self.name!r}>"


# ---- Kinds that differ only in their promises ----------------------------------------------------


class MutexKind:
    __slots__ = ()
    _KIND, kind = _kinds.MUTEX, "mutex"


class FairKind:
    """A lock that is first come, first served across all processes."""

    __slots__ = ()
    _KIND, kind = _kinds.FAIR, "fair"


class FencedKind:
    """A lock whose holds carry increasing tokens, which snib.fencing checks."""

    __slots__ = ()
    _KIND, kind = _kinds.FENCED, "fenced"


class SpinKind:
    """A lock whose waiters poll, because a release sends no message: for short work."""

    __slots__ = ()
    _KIND, kind = _kinds.SPIN, "spin"


class PlainKind:
    """A lock that is one string with a time to live, as other libraries write it."""

    __slots__ = ()
    _KIND, kind = _kinds.PLAIN, "plain"


class ReadKind:
    """The readers' side of a read/write lock: many readers may hold it, while no writer does."""

    __slots__ = ()
    _KIND, kind = _kinds.READ, "read"


class WriteKind:
    """The writer's side of a read/write lock."""

    __slots__ = ()
    _KIND, kind = _kinds.WRITE, "write"


class SemaphoreKind:
    """A number of permits without owners, which behaves like the standard library's semaphores.

    The permits of a process that died do not become free by themselves, and a hold of them has no
    lease and is never lost.  Where that matters, use Permits.
    """

    __slots__ = ()
    _KIND, kind = _kinds.SEMAPHORE, "semaphore"


class PermitsKind:
    """A number of permits, each with a lease, which is renewed while held like that of a lock."""

    __slots__ = ()
    _KIND, kind = _kinds.PERMITS, "permits"


class LatchKind:
    """A count that processes count down; waiters wait until it is 0."""

    __slots__ = ()
    _KIND, kind = _kinds.LATCH, "latch"

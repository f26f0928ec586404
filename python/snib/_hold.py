"""The base of all holds; the threaded and asyncio holds add waiting and releasing."""

from __future__ import annotations

import enum
import math
import sys
import warnings
from _tracemalloc import is_tracing
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from . import _core, _debug
from ._codes import Lost, NotHeld
from ._error import Error
from ._identity import Identity
from ._stays import stays

if TYPE_CHECKING:
    from ._base import BaseHoldable

E = TypeVar("E", bound=Error)
V = TypeVar("V")

_FOREVER = 2**63 - 1  # milliseconds

# The stage of a hold decides what happens if it is dropped: one that the program owned is
# abandoned, any other is released.  See bindings/python_drop.c.
ARRIVING, OWNED, LEAVING, GIVEN_BACK = range(4)


class State(enum.IntEnum):
    """Whether a hold can be trusted.

    One is at risk while a renewal is overdue, the connection is down, a server that was restarted
    or took over has not confirmed it yet, or the server's clock has jumped since its lease began;
    one of a lock of several clients while too few members are free of such a doubt.
    """

    VALID = 0  # safe
    AT_RISK = 1  # still safe, but in doubt
    LOST = 2  # no longer safe, for ever
    RELEASED = 3  # released by the program

    def __str__(self) -> str:
        return self.name.lower().replace("_", " ")

    def __format__(self, spec: str) -> str:  # that of IntEnum formats a number from Python 3.11 on
        return format(str(self), spec)


@dataclass(frozen=True)
class LockInfo:
    """What the server reports about a lock.

    Permits are held if any of them is, a semaphore if none is free, and a latch while it is shut.
    """

    held: bool
    remaining: float | None  # seconds until the lease ends, of permits the first; None: there is none
    count: int  # the hold count on the wire; readers; free permits; a latch's count
    waiting: int | None  # processes that wait for its wake-ups, or in its queue, if known
    mine: bool  # held through this client
    owner: str  # "<client id>:<number>", "" if free
    token: int = 0  # the last fencing token issued; 0 none
    identity: Identity | None = None  # the process behind the owner, if known


def make_info(info: _core.Info | None) -> LockInfo:
    if info is None:
        return LockInfo(False, 0.0, 0, 0, False, "")
    held, remaining_ms, count, waiting, mine, owner, token = info
    remaining = None if remaining_ms < 0 else remaining_ms / 1000
    return LockInfo(held, remaining, count, None if waiting < 0 else waiting, mine, owner, token)


def _place() -> str:
    """The caller's file and line, outside this package; used only while memory is being traced."""
    frame = sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == "snib":
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def unrepeatable(error: E) -> E:
    """The error of a release: whoever retries would do again the work that came before it."""
    error.retryable = False
    return error


class BaseHold(_core.Droppable):
    """One successful acquisition, which the caller owns, inspects and releases.

    A hold that is dropped is not released, because code may still work under it: renewal ends and
    the lease runs out, with a ResourceWarning.
    """

    __slots__ = ("_lock", "_handle", "_stage", "_place", "_number", "__weakref__")

    def __init__(self, lock: BaseHoldable[Any], handle: _core.HoldHandle) -> None:
        self._stage = ARRIVING
        self._handle = handle
        self._lock = lock  # the lock keeps its client open
        self._place: str | None = None
        self._number = -1  # in the Kept that has it
        if lock._client._debug:
            self._place = _debug.taken(lock._client._who())
        elif is_tracing():
            self._place = _place()

    __reduce_ex__ = stays

    def _abandon(self, abandon: Callable[[_core.HoldHandle], bool] = _core.hold_abandon) -> None:
        """Called when an OWNED hold is dropped, and again if a signal interrupted it.

        `abandon` is never given: this module is empty when a program that embeds Python drops the
        last holds.
        """
        if not abandon(self._handle):  # it was lost, or is released just now
            return
        self._stage = LEAVING
        place = f", acquired at {self._place}," if self._place else ""
        what = "its permits stay taken" if self._lock.kind == "semaphore" else "its lease runs out"
        warnings.warn(
            f"a hold of {self._lock.name!r}{place} was dropped, not released; {what}",
            ResourceWarning,
            source=self,
        )

    @property
    def token(self) -> int:
        """The fencing token; 0 if this kind of lock has none."""
        return self._asked(_core.hold_token)

    @property
    def replicas(self) -> int:
        """How many replicas had the grant when it was made; 0 without the option durability.

        Of a lock of several clients: the smallest such number of its members.
        """
        return self._asked(_core.hold_replicas)

    @property
    def owner(self) -> str:
        """The owner as the server stores it.

        A hold without a token that another waiter of this process got directly from this one may
        have the same.  If the lock is of several clients, or of members that one command cannot take,
        no server has this text: each member has its own.
        """
        return self._asked(_core.hold_owner)

    @property
    def state(self) -> State:
        """The state at the moment of the call, by this machine's clock."""
        state = State(self._asked(_core.hold_state)[0])
        if self._stage == GIVEN_BACK and state is not State.LOST:
            return State.RELEASED  # the core's hold lives on with the owner's other holds
        return state

    @property
    def reason(self) -> str | None:
        """Why the hold was lost ("expired", "taken", "deleted", ...), or None."""
        reason = self._asked(_core.hold_state)[1]
        return _core.reason_text(reason) if reason else None

    def remaining(self) -> float:
        """Seconds for which the hold is safe without another renewal; 0.0 when lost or released.

        Infinity for a hold that cannot be lost; only a semaphore has such holds.
        """
        milliseconds = self._asked(_core.hold_remaining_ms)
        if self._stage == GIVEN_BACK:
            return 0.0
        return math.inf if milliseconds == _FOREVER else milliseconds / 1000

    def check(self) -> None:
        """Return if the hold is safe; otherwise raise Lost, or NotHeld after the release."""
        try:  # without _asked(): programs call this often
            _core.hold_check(self._handle)
        except Error as error:
            raise self._named(error)
        if self._stage == GIVEN_BACK:
            raise self._given_back()

    def _asked(self, ask: Callable[..., V], *arguments: object) -> V:
        """What the core says of the hold; its errors name the lock."""
        try:
            return ask(self._handle, *arguments)
        except Error as error:
            raise self._named(error)

    def _named(self, error: E) -> E:
        """The error, with the lock's name and kind, and the reason of the loss, added."""
        if isinstance(error, Lost) and error.reason is None:
            error.reason = self.reason
        return self._lock._named(error)

    def _given_back(self) -> NotHeld:
        """What to raise for a second release."""
        return self._lock._named(NotHeld(f"this hold of {self._lock.name!r} was released before"))

    def _loss(self) -> Lost:
        """What to raise for a reported loss."""
        try:
            _core.hold_check(self._handle)
        except Lost as lost:
            return self._named(lost)
        except Error:  # released since
            pass
        return self._lock._named(Lost(f"the hold of {self._lock.name!r} was lost"))

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.Hold of {self._lock.name!r}, {self._lock._client!r}>"

"""What a hold can tell; the two faces of the package add how to wait and to release."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import _core
from ._codes import Busy, Timeout
from ._error import Error

if TYPE_CHECKING:
    from ._client import BaseClient

_FOREVER = 2**63 - 1  # milliseconds


class State(enum.IntEnum):
    """How far a hold can be trusted."""

    VALID = 0  # safe
    AT_RISK = 1  # still safe, but renewal is overdue or the connection is down
    LOST = 2  # no longer safe, for ever
    RELEASED = 3  # given back by the program


@dataclass(frozen=True)
class LockInfo:
    """What the server says about a lock."""

    held: bool
    remaining: float | None  # seconds until the lease ends; None: it never would
    count: int  # the hold count on the wire; readers; free permits; a latch's count
    waiting: int | None  # processes that wait for its wake-ups, or in its queue, if known
    mine: bool  # held through this client
    owner: str  # "<client id>:<number>", "" if free
    token: int = 0  # the fencing token given out last; 0 none


def make_info(info: _core.Info | None) -> LockInfo:
    if info is None:
        return LockInfo(False, 0.0, 0, 0, False, "")
    held, remaining_ms, count, waiting, mine, owner, token = info
    remaining = None if remaining_ms < 0 else remaining_ms / 1000
    return LockInfo(held, remaining, count, None if waiting < 0 else waiting, mine, owner, token)


def refusal(name: str, busy: str, wait: int) -> Error:
    """Why a wait that may last so many milliseconds ended without a hold."""
    return Timeout(f"{name!r} was not free in time") if wait else Busy(busy.format(name))


def shown_module(shown: object) -> str:
    """The module that programs import a class from: without the private ones."""
    return type(shown).__module__.partition("._")[0]


class BaseHold:
    """One successful acquisition: what you own, inspect and release.

    A hold that is dropped without a release is released in the background.
    """

    __slots__ = ("_client", "_handle", "_released", "__weakref__")

    def __init__(self, client: BaseClient, handle: _core.HoldHandle) -> None:
        self._client = client  # a hold keeps its client open
        self._handle = handle
        self._released = False

    @property
    def token(self) -> int:
        """The fencing token; 0 if this kind of lock has none."""
        return _core.hold_token(self._handle)

    @property
    def owner(self) -> str:
        """The owner as the server stores it."""
        return _core.hold_owner(self._handle)

    @property
    def state(self) -> State:
        """Exact at the moment of the call, by this machine's clock."""
        return State(_core.hold_state(self._handle)[0])

    @property
    def reason(self) -> str | None:
        """Why the hold was lost ("expired", "taken", "deleted", ...), else None."""
        reason = _core.hold_state(self._handle)[1]
        return _core.reason_text(reason) if reason else None

    def remaining(self) -> float:
        """Seconds for which the hold is safe as things stand; 0.0 when lost or released.

        Infinity for a hold that cannot be lost, which only a semaphore's is.
        """
        milliseconds = _core.hold_remaining_ms(self._handle)
        return math.inf if milliseconds == _FOREVER else milliseconds / 1000

    def check(self) -> None:
        """Return while the hold is safe; raise Lost, or NotHeld after the release."""
        _core.hold_check(self._handle)

    def __repr__(self) -> str:
        return f"<{shown_module(self)}.Hold of {self._client!r}>"

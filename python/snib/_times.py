"""Convert seconds to the milliseconds of the core.

Only what milliseconds cannot express is refused here, and a wait that is too long, of which the core would speak in
its milliseconds; the core checks the other ranges.
"""

from __future__ import annotations

import math
from threading import TIMEOUT_MAX
from typing import Literal, Union

from ._codes import InvalidArgument, InvalidLease, InvalidOption

# Far above every range of the core; its milliseconds still fit into 64 bits.
_SECONDS_MAX = 2**53
_WAIT_MAX = 86400  # the core's


MaxHold = Union[float, Literal["none"], None]


class TimeoutOverflow(InvalidArgument, OverflowError):
    """A wait of more than 24 hours; the threading module raises OverflowError for one that is too long."""


def shown(value: object) -> str:
    """The beginning of a value's text; Python writes no int of thousands of digits."""
    try:
        return f"{value!r:.40}"
    except ValueError:
        return "a number of thousands of digits"


def seconds(value: object, what: str, error: type[Exception]) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{what} must be a number of seconds, not {type(value).__name__}")
    if not -_SECONDS_MAX < value < _SECONDS_MAX:
        raise error(f"{what} must be a finite number of seconds, not {shown(value)}")
    return value


def wait_ms(timeout: float | None) -> int:
    """None and -1 mean no limit, 0 one attempt; a time above 0 never becomes 0."""
    if timeout is None or (timeout == -1 and type(timeout) is int):
        return -1
    if isinstance(timeout, (int, float)) and timeout > _WAIT_MAX:
        if timeout == TIMEOUT_MAX:  # threading's way to write "no limit"
            return -1
        raise TimeoutOverflow(f"timeout must be at most {_WAIT_MAX} seconds, not {shown(timeout)}")
    limit = seconds(timeout, "timeout", InvalidArgument)
    if limit == -1:
        return -1
    if limit < 0:
        raise InvalidArgument(f"timeout must be 0 or more, or -1 for no limit, not {timeout!r}")
    return math.ceil(limit * 1000)


def _at_least_0(timeout: float | None) -> float | None:
    """To events and semaphores of threading any time below 0 is like 0; to locks alone -1 means no limit."""
    return 0 if isinstance(timeout, (int, float)) and timeout < 0 else timeout


def event_ms(timeout: float | None) -> int:
    """The argument of threading.Event.wait()."""
    return wait_ms(_at_least_0(timeout))


def acquire_ms(blocking: bool, timeout: float | None) -> int:
    """The two arguments of threading.Lock.acquire()."""
    if blocking is True:  # the usual way, first
        return wait_ms(timeout)
    if isinstance(blocking, float) or blocking not in (False, True):  # meant as a timeout, or as permits
        raise TypeError(
            f"blocking must be a bool, not {shown(blocking)}; a wait's limit is timeout="
            ", a number of permits n="
        )
    if blocking:
        return wait_ms(timeout)
    if timeout is not None and timeout != -1:
        raise InvalidArgument("a call that does not block takes no timeout")
    return 0


def permits_ms(blocking: bool, timeout: float | None) -> int:
    """Those of threading.Semaphore.acquire()."""
    return acquire_ms(blocking, _at_least_0(timeout))


def lease_ms(lease: float | None) -> int:
    """None becomes the core's 0, its default, so no number may become 0."""
    if lease is None:
        return 0
    return round(seconds(lease, "lease", InvalidLease) * 1000) or -1


def max_hold_ms(value: MaxHold) -> int:
    """None becomes the core's 0, the client's; "none" lifts that."""
    if value is None:
        return 0
    if value == "none":
        return -1
    milliseconds = round(seconds(value, "max_hold", InvalidOption) * 1000)
    if milliseconds <= 0:
        raise InvalidOption(f'max_hold must be more than 0 seconds or "none", not {value!r}')
    return milliseconds

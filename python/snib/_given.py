"""Convert a client's options, as programs give them, to the numbers and texts of the core.

None is the core's 0, "not given", so no value that is given may become 0.  Invalid values are left
to the core to refuse, so that the message is the same everywhere; only values that cannot be passed
to the core are refused here.
"""

from __future__ import annotations

import os

from ._codes import InvalidOption
from ._times import seconds

_NO_NUMBER = -(2**31)  # outside every range of the core
_NUMBER_MAX = 2**31 - 1

Words = dict[str, int]


def duration(name: str, value: float | str | None, words: Words = {}) -> int:
    """In milliseconds."""
    if value is None:
        return 0
    if isinstance(value, str) and value in words:
        return words[value]
    milliseconds = round(seconds(value, name, InvalidOption) * 1000)
    return milliseconds if milliseconds > 0 else _NO_NUMBER


def count(name: str, value: int | str | None, words: Words = {}) -> int:
    if value is None:
        return 0
    if isinstance(value, str) and value in words:
        return words[value]
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    if value == 0:
        return words.get("0", _NO_NUMBER)
    return value if 0 < value <= _NUMBER_MAX else _NO_NUMBER


def choice(name: str, value: str | None, words: Words) -> int:
    if value is None:
        return 0
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {type(value).__name__}")
    return words.get(value, _NO_NUMBER)


def flag(name: str, value: bool | None) -> int:
    if value is None:
        return 0
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be a bool, not {type(value).__name__}")
    return 1 if value else -1


def text(name: str, value: str | os.PathLike[str] | None) -> str | None:
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {type(value).__name__}")
    return value

"""Numbers of snib.h that the threaded and the asyncio locks pass to the core."""

from __future__ import annotations

import re

from ._codes import InvalidPermits

# enum snib_kind
MUTEX, FAIR, READ, WRITE, FENCED, SPIN, PLAIN, SEMAPHORE, PERMITS, LATCH = range(1, 11)

# snib_lock_options.flags
FLAG_FENCED, FLAG_PREFER_WRITER, FLAG_NO_QUARANTINE = 1, 2, 4

# enum snib_count
GET, INIT, ADD, SET, TOTAL, RELEASE, DRAIN, DOWN = range(1, 9)


_BARE = ("mutex", "semaphore", "permits", "latch")


def said(kind: str, name: str) -> str:
    """A lock as the core's sentences name it: fair lock "orders"."""
    what = kind if kind in _BARE else f"{kind} lock"
    quoted = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'{what} "{quoted}"'


_SAID = re.compile(rf'({"|".join(_BARE)}|\w+ lock) "')


def about(kind: str, name: str, sentence: str) -> str:
    """The sentence, with the lock in front, where the core has not put it; that of several is about its members."""
    if kind in ("multi", "quorum") or _SAID.match(sentence):
        return sentence
    return f"{said(kind, name)}: {sentence}"


def number(n: int) -> int:
    """A number of permits or a latch's count; the core checks the ranges."""
    if isinstance(n, bool) or not isinstance(n, int):
        raise TypeError(f"the number must be an int, not {type(n).__name__}")
    if not -(2**63) <= n < 2**63:
        raise InvalidPermits("the number is far out of range")
    return n


def permits(n: int) -> int:
    """A number of permits to release."""
    if number(n) < 1:
        raise InvalidPermits(f"the number of permits must be 1 or more, not {n!r:.40}")
    return n


def _flag(name: str, value: bool, flag: int) -> int:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be a bool, not {type(value).__name__}")
    return flag if value else 0


def fair_flags(fenced: bool) -> int:
    return _flag("fenced", fenced, FLAG_FENCED)


def rwlock_flags(fenced: bool, prefer_writer: bool) -> int:
    preference = _flag("prefer_writer", prefer_writer, FLAG_PREFER_WRITER)
    return _flag("fenced", fenced, FLAG_FENCED) | preference


def quorum_flags(quarantine: bool) -> int:
    return FLAG_NO_QUARANTINE ^ _flag("quarantine", quarantine, FLAG_NO_QUARANTINE)

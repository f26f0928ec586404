"""Everything the server knows about a name, as values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Holder:
    """An owner that holds a lock, as a reader or otherwise."""

    owner: str  # "<client id>:<number>"; bytes that are not plain text become question marks
    remaining: float | None  # seconds until the lease ends; None: it never ends
    count: int  # the hold count on the wire


@dataclass(frozen=True)
class Permit:
    """A taken permit."""

    id: str  # 32 hexadecimal digits
    remaining: float | None  # seconds until its lease ends; None: it never ends


@dataclass(frozen=True)
class Waiter:
    """A place in the queue of a fair lock."""

    owner: str
    remaining: float | None  # seconds until the place expires, unless its owner asks again


@dataclass(frozen=True)
class Description:
    """What client.describe() found under a name, whatever the kind of lock.

    kind       "free", "mutex", "fair", "read", "write", "plain", "permits", "counter" (a semaphore
               or a latch), or "other" (no lock)
    holders    of a mutex, a fair or a plain lock, or the writer
    readers    of a read/write lock
    permits    the taken permits
    waiters    of a fair lock, in order
    token      the last fencing token issued; 0 none
    available  free permits
    total      permits held and free together
    count      the number of a counter
    waiting    processes that wait for wake-ups, if known
    more       number of entries that did not fit here
    """

    name: str
    kind: str
    holders: tuple[Holder, ...] = ()
    readers: tuple[Holder, ...] = ()
    permits: tuple[Permit, ...] = ()
    waiters: tuple[Waiter, ...] = ()
    token: int = 0
    available: int | None = None
    total: int | None = None
    count: int | None = None
    waiting: int | None = None
    more: int = 0


def _seconds(milliseconds: str) -> float | None:
    return None if int(milliseconds) < 0 else int(milliseconds) / 1000


def _holder(rest: str) -> Holder:
    owner, remaining, count = rest.rsplit(" ", 2)
    return Holder(owner, _seconds(remaining), int(count))


def _permit(rest: str) -> Permit:
    permit, remaining = rest.rsplit(" ", 1)
    return Permit(permit, _seconds(remaining))


def _waiter(rest: str) -> Waiter:
    owner, remaining = rest.rsplit(" ", 1)
    return Waiter(owner, _seconds(remaining))


# The first word of a line, its field, and the parser for the rest.
_LISTS: dict[str, tuple[str, Callable[[str], object]]] = {
    "holder": ("holders", _holder),
    "reader": ("readers", _holder),
    "permit": ("permits", _permit),
    "waiter": ("waiters", _waiter),
}
_NUMBERS = ("token", "available", "total", "count", "waiting", "more")


def make_description(name: str, lines: list[str]) -> Description:
    """From the texts of snib_client_describe(); unknown words of a newer core are ignored."""
    found: dict[str, list[object]] = {field: [] for field, _ in _LISTS.values()}
    single: dict[str, str | int | None] = {}
    for line in lines:
        word, _, rest = line.partition(" ")
        if word in _LISTS:
            field, read = _LISTS[word]
            found[field].append(read(rest))
        elif word == "kind":
            single[word] = rest
        elif word in _NUMBERS:
            single[word] = int(rest)
    if single.get("waiting") == -1:
        single["waiting"] = None
    lists = {field: tuple(values) for field, values in found.items()}
    return Description(name, **single, **lists)  # type: ignore[arg-type]

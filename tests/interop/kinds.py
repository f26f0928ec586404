"""The kinds of locks that both sides have."""

from __future__ import annotations

# The kind that is held, and the kind that the other side waits for.
AGAINST = {
    "mutex": "mutex",
    "fair": "fair",
    "read": "write",
    "write": "read",
    "spin": "spin",
    "fenced": "fenced",
    "multi": "multi",
}
COUNTERS = ("semaphore", "permits", "latch")
KINDS = (*AGAINST, *COUNTERS)


def names(kind: str, name: str) -> str:
    """A multi lock has three members."""
    return f"{name}a,{name}b,{name}c" if kind == "multi" else name

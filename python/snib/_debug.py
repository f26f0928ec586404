"""The option debug: what the core is told of each acquisition, where in the program it is, and whose."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from types import FrameType
from typing import Any

_OUTSIDE = tuple(os.path.dirname(path) + os.sep for path in (__file__, asyncio.__file__))


def caller() -> FrameType | None:
    """The innermost frame outside this package; None: a task runs the package's own coroutine."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_OUTSIDE):
        if frame.f_code.co_name == "_run" and frame.f_code.co_filename.endswith("events.py"):
            return None
        frame = frame.f_back
    return frame


def place() -> str | None:
    """Such as "orders.py:31 in pay()"."""
    frame = caller()
    if frame is None:
        return None
    function = frame.f_code.co_name
    where = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
    return _clean(where if function == "<module>" else f"{where} in {function}()")


def thread() -> str | None:
    """Such as "thread MainThread"; None: Python has no name for it, as for a thread that C began."""
    known = getattr(threading, "_active", {}).get(threading.get_ident())  # current_thread() would give it one
    return None if known is None else _clean(f"thread {known.name}")


def task(known: Any) -> str:
    """Such as "task Task-3"; tasks of trio have a name, those of asyncio tell it."""
    name = known.get_name() if hasattr(known, "get_name") else getattr(known, "name", "without a name")
    return _clean(f"task {name}")


def here(who: str | None) -> str | None:
    """What the core is told."""
    return place() if who is None else f"{place() or ''}\n{who}"


def taken(who: str | None) -> str:
    """The same for people."""
    return (place() or "an unknown place") + (f" by {who}" if who else "")


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode().replace("\n", "?").replace("\0", "?")

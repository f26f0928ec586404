"""The option debug: what the core is told of each acquisition, where in the program it is, and whose."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import sys
import threading
from types import FrameType
from typing import Any

# What is between the program and a lock: this package, asyncio, the stacks of contextlib, and what runs in threads.
_BETWEEN = (
    *(os.path.dirname(path) + os.sep for path in (__file__, asyncio.__file__)),
    contextlib.__file__,
    threading.__file__,
    os.path.join(os.path.dirname(threading.__file__), "concurrent", "futures", "thread.py"),
)
_AWAITS = inspect.CO_COROUTINE | inspect.CO_ITERABLE_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR


def caller() -> FrameType | None:
    """The innermost frame of the program; None: a task or thread runs a function of the package's own."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_BETWEEN):
        within = frame.f_back
        if frame.f_code.co_flags & inspect.CO_COROUTINE and _is_loop(within):
            return None
        frame = within
    return frame


def _is_loop(frame: FrameType | None) -> bool:
    """Whether it runs a coroutine for nobody who awaits it; of tasks that start at once the maker is in the stack."""
    if frame is None or frame.f_globals.get("__name__", "").startswith("trio."):
        return True
    return not (frame.f_code.co_flags & _AWAITS or frame.f_code.co_name in ("create_task", "factory"))


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

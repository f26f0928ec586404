"""The option debug: what the core is told of each acquisition, where in the program it is, and whose."""

from __future__ import annotations

import asyncio
import os
import sys
from types import FrameType

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
    text = where if function == "<module>" else f"{where} in {function}()"
    return text.encode("utf-8", "replace").decode()

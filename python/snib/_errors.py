"""Map a result code to its exception."""

from __future__ import annotations

from . import _core
from ._codes import BY_CODE
from ._error import Error


def make(
    code: int, text: str = "", os_error: int = 0, reason: int = 0, server: str = ""
) -> Error:
    """The exception for a code; without text it gets the text from the core's table."""
    error = BY_CODE.get(code, Error)(text or _core.code_text(code))
    error.os_error = os_error
    error.server = server or None
    error.reason = _core.reason_text(reason) if reason else None
    return error

"""Distributed locks on Redis and Valkey.

    import snib

    client = snib.connect("redis://127.0.0.1:6379")
    with client.lock("orders") as hold:  # renewed while held
        ...
        hold.check()  # raises snib.Lost if the hold can no longer be trusted

A lock has the habits of threading.Lock, one from client.rlock() those of threading.RLock; times are
seconds.  snib.aio has the same names for asyncio.  All exceptions are under snib.Error.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from . import _codes, _core, _errors
from ._client import Stats
from ._codes import *  # noqa: F403
from ._error import Error
from ._hold import LockInfo, State
from ._lock import Client, Hold, Lock, Loss, RLock
from ._queue import Event, Queue

if TYPE_CHECKING:
    from . import aio as aio

_core.set_errors(_errors.make)

__version__: str = _core.version_string()

# It reads better at the call.
connect = Client


def __getattr__(name: str) -> Any:
    if name == "aio":  # asyncio is slow to import and many programs do without
        return importlib.import_module("snib.aio")
    raise AttributeError(f"module 'snib' has no attribute {name!r}")


__all__ = [
    "Client",
    "Error",
    "Event",
    "Hold",
    "Lock",
    "LockInfo",
    "Loss",
    "Queue",
    "RLock",
    "State",
    "Stats",
    "aio",
    "connect",
]
__all__ += _codes.__all__

"""Distributed locks on Redis and Valkey.

    import snib

    client = snib.connect("redis://127.0.0.1:6379")
    with client.lock("orders") as hold:  # renewed while held
        ...
        hold.check()  # raises snib.Lost if the hold can no longer be trusted

A lock behaves like threading.Lock, one from client.rlock() like threading.RLock; times are in
seconds.  A client also has fair_lock(), fenced_lock(), rwlock(), spin_lock(), plain_lock(),
semaphore(), permits() and latch(); MultiLock and QuorumLock combine several locks into one.
snib.aio has the same names for asyncio, and snib.fencing checks tokens.  snib.protocols says what a
test's own lock must have, and snib.testing is a server for tests.  All exceptions derive from snib.Error.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if "t" in getattr(sys, "abiflags", ""):
    raise ImportError("snib does not support free-threaded Python; use a build with the GIL")

from . import _codes, _core, _errors, _public
from ._client import Stats
from ._codes import *  # noqa: F403
from ._credentials import Credentials
from ._describe import Description, Holder, Permit, Waiter
from ._error import Error
from ._hold import LockInfo, State
from ._identity import Identity
from ._lock import (
    FairLock,
    FencedLock,
    Hold,
    Lock,
    Loss,
    PlainLock,
    ReadLock,
    RLock,
    RWLock,
    SpinLock,
    WriteLock,
)
from ._permits import Latch, Permits, Semaphore
from ._process import release_on_sigterm
from ._queue import Event, Queue
from ._several import MultiLock, QuorumLock
from ._sync import Client
from ._times import TimeoutOverflow

if TYPE_CHECKING:
    from . import aio as aio
    from . import anyio as anyio
    from . import fencing as fencing
    from . import opentelemetry as opentelemetry
    from . import prometheus as prometheus
    from . import protocols as protocols
    from . import testing as testing

_core.set_errors(_errors.make)

__version__: str = _core.version_string()

# It reads better at the call.
connect = Client


def __getattr__(name: str) -> Any:
    # Slow to import, or with needs of their own, and many programs do not use them.
    if name in ("aio", "anyio", "fencing", "opentelemetry", "prometheus", "protocols", "testing"):
        return importlib.import_module(f"snib.{name}")
    raise AttributeError(f"module 'snib' has no attribute {name!r}")


__all__ = [
    "Client",
    "Credentials",
    "Description",
    "Error",
    "Event",
    "FairLock",
    "FencedLock",
    "Hold",
    "Holder",
    "Identity",
    "Latch",
    "Lock",
    "LockInfo",
    "Loss",
    "MultiLock",
    "Permit",
    "Permits",
    "PlainLock",
    "Queue",
    "QuorumLock",
    "RLock",
    "RWLock",
    "ReadLock",
    "Semaphore",
    "SpinLock",
    "State",
    "Stats",
    "TimeoutOverflow",
    "Waiter",
    "WriteLock",
    "aio",
    "connect",
    "fencing",
    "protocols",
    "release_on_sigterm",
]
__all__ += _codes.__all__

_public.name_classes(__name__, [globals().get(name) for name in __all__])

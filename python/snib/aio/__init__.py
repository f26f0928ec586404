"""Clients and locks for asyncio: the names of `snib`, with `await`.

No thread waits, and none calls into Python: each running loop watches one file descriptor for all
operations of a client in that loop.  A client may serve several loops in several threads.  A task
may be cancelled at any await; if it was about to get a lock, the lock is released.
"""

from __future__ import annotations

from .. import _public
from .._describe import Description, Holder, Permit, Waiter
from .._hold import LockInfo, State
from .._identity import Identity
from ._client import Client
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
from ._several import MultiLock, QuorumLock

# It reads better at the call.  Creating a client needs no await: nothing is sent.
connect = Client

__all__ = [
    "Client",
    "Description",
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
    "QuorumLock",
    "RLock",
    "RWLock",
    "ReadLock",
    "Semaphore",
    "SpinLock",
    "State",
    "Waiter",
    "WriteLock",
    "connect",
]

_public.name_classes(__name__, [globals()[name] for name in __all__])

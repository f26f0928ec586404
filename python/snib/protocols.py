"""What a program needs of locks and holds, as protocols: with them a test can use a lock of its own.

    from snib import protocols

    def book(lock: protocols.Lock, seat: int) -> None:
        with lock.hold(timeout=2.0) as hold:
            hold.check()
            ...

Everything that can be held satisfies Lock: all locks, MultiLock, QuorumLock, permits and
semaphores, and both sides of an RWLock; those of snib.aio and snib.anyio satisfy AsyncLock.  The
protocols have only what code under a lock uses, and stay small so that a fake does.

isinstance() looks for the names of methods, not for their signatures.  Loss and AsyncLoss differ
only in these, so they are for type checkers only.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import Any, Protocol, runtime_checkable

__all__ = ["AsyncHold", "AsyncHolding", "AsyncLock", "AsyncLoss", "Hold", "Lock", "Loss"]


# ---- What both forms of a hold have --------------------------------------------------------------


class _Inspected(Protocol):
    """What a hold says of itself, without a round trip."""

    @property
    def token(self) -> int:
        """The fencing token; 0 if there is none."""

    @property
    def owner(self) -> str:
        """The owner, which a check of tokens wants beside the token."""

    def remaining(self) -> float:
        """Seconds for which the hold is safe without another renewal."""

    def check(self) -> None:
        """Return if the hold is safe; otherwise raise snib.Lost, or snib.NotHeld."""


# ---- Programs with threads -----------------------------------------------------------------------


class Loss(Protocol):
    """The loss of a hold; threading.Event is one."""

    def is_set(self) -> bool:
        """Whether the hold is lost."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the hold is lost (True), or the timeout ends (False)."""


@runtime_checkable
class Hold(_Inspected, Protocol):
    """One successful acquisition; `with` releases it."""

    @property
    def lost(self) -> Loss:
        """The loss, to ask for and to wait for."""

    def extend(self, lease: float | None = None) -> None:
        """Give the hold another lease, counted from now: so many seconds, or None: renewed."""

    def release(self) -> None:
        """Release the lock; raises snib.Lost if it was no longer held."""

    def __enter__(self) -> Hold: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...


@runtime_checkable
class Lock(Protocol):
    """Anything that can be held."""

    def acquire(self, blocking: bool = True, timeout: float | None = ...) -> bool:
        """Get the lock, waiting if necessary; False if it was not free in time.

        timeout  None: no limit; kinds differ in what -1 means, as they do in threading
        """

    def release(self) -> None:
        """Release what acquire() got."""

    def hold(self, *, timeout: float | None = None) -> Hold:
        """Acquire and return the hold; raises snib.Timeout or snib.Busy."""

    def __enter__(self) -> Hold: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...


# ---- Programs with asyncio or anyio --------------------------------------------------------------


class AsyncLoss(Protocol):
    """The loss of a hold; asyncio.Event is one."""

    def is_set(self) -> bool:
        """Whether the hold is lost."""

    async def wait(self) -> bool:
        """Wait until the hold is lost."""


@runtime_checkable
class AsyncHold(_Inspected, Protocol):
    """One successful acquisition; `async with` releases it."""

    @property
    def lost(self) -> AsyncLoss:
        """The loss, to ask for and to wait for."""

    async def extend(self, lease: float | None = None) -> None:
        """Give the hold another lease, counted from now: so many seconds, or None: renewed."""

    async def release(self) -> None:
        """Release the lock; raises snib.Lost if it was no longer held."""

    async def __aenter__(self) -> AsyncHold: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...


@runtime_checkable
class AsyncHolding(Protocol):
    """What hold() returns: `async with` it, or `await` it for the hold."""

    def __await__(self) -> Generator[Any, None, AsyncHold]: ...

    async def __aenter__(self) -> AsyncHold: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...


@runtime_checkable
class AsyncLock(Protocol):
    """Anything that can be held."""

    def acquire(
        self, blocking: bool = True, timeout: float | None = ...
    ) -> Coroutine[Any, Any, bool]:
        """Get the lock, waiting if necessary; False if it was not free in time.

        timeout  None: no limit; kinds differ in what -1 means, as they do in threading
        """

    def release(self) -> Coroutine[Any, Any, None]:
        """Release what acquire() got."""

    def hold(self, *, timeout: float | None = None) -> AsyncHolding:
        """Acquire; raises snib.Timeout or snib.Busy."""

    async def __aenter__(self) -> AsyncHold: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...

"""Locks that are none, as the test of a program may have them; and every real lock, under the same protocols.

mypy and pyright check this file: a lock that does not satisfy its protocol is an error in it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator

import snib
from snib import aio, protocols


class FakeHold:
    """A hold that the test loses."""

    token = 1
    owner = "fake:1"

    def __init__(self) -> None:
        self.lost = threading.Event()
        self.leases: list[float | None] = []
        self.released = False

    def remaining(self) -> float:
        return 0.0 if self.lost.is_set() else 30.0

    def check(self) -> None:
        if self.lost.is_set():
            raise snib.Lost("the fake was lost")

    def extend(self, lease: float | None = None) -> None:
        self.check()
        self.leases.append(lease)

    def release(self) -> None:
        self.released = True
        self.check()

    def __enter__(self) -> FakeHold:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


class FakeLock:
    """A lock that is always free."""

    def __init__(self) -> None:
        self.holds: list[FakeHold] = []

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        self.hold()
        return True

    def release(self) -> None:
        self.holds[-1].release()

    def hold(self, *, timeout: float | None = None) -> FakeHold:
        self.holds.append(FakeHold())
        return self.holds[-1]

    def __enter__(self) -> FakeHold:
        return self.hold()

    def __exit__(self, *error: object) -> None:
        self.release()


class AsyncFakeHold:
    token = 1
    owner = "fake:1"

    def __init__(self) -> None:
        self.lost = asyncio.Event()
        self.leases: list[float | None] = []
        self.released = False

    def remaining(self) -> float:
        return 0.0 if self.lost.is_set() else 30.0

    def check(self) -> None:
        if self.lost.is_set():
            raise snib.Lost("the fake was lost")

    async def extend(self, lease: float | None = None) -> None:
        self.check()
        self.leases.append(lease)

    async def release(self) -> None:
        self.released = True
        self.check()

    async def __aenter__(self) -> AsyncFakeHold:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.release()


class AsyncFakeHolding:
    """To be awaited, or entered."""

    def __init__(self, hold: AsyncFakeHold) -> None:
        self._hold = hold

    async def _get(self) -> AsyncFakeHold:
        return self._hold

    def __await__(self) -> Generator[None, None, AsyncFakeHold]:
        return self._get().__await__()

    async def __aenter__(self) -> AsyncFakeHold:
        return self._hold

    async def __aexit__(self, *error: object) -> None:
        await self._hold.release()


class AsyncFakeLock:
    def __init__(self) -> None:
        self.holds: list[AsyncFakeHold] = []

    async def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        self.hold()
        return True

    async def release(self) -> None:
        await self.holds[-1].release()

    def hold(self, *, timeout: float | None = None) -> AsyncFakeHolding:
        self.holds.append(AsyncFakeHold())
        return AsyncFakeHolding(self.holds[-1])

    async def __aenter__(self) -> AsyncFakeHold:
        return await self.hold()

    async def __aexit__(self, *error: object) -> None:
        await self.release()


def every_lock(client: snib.Client) -> list[protocols.Lock]:
    pair = client.rwlock("pair")
    locks: list[protocols.Lock] = [
        client.lock("mutex"),
        client.rlock("again"),
        client.fair_lock("fair"),
        client.fenced_lock("fenced"),
        client.spin_lock("spin"),
        client.plain_lock("plain"),
        pair.read,
        pair.write,
        client.semaphore("semaphore"),
        client.permits("permits"),
        snib.MultiLock([client.lock("one"), client.lock("two")]),
        FakeLock(),
    ]
    return locks


def every_async_lock(client: aio.Client) -> list[protocols.AsyncLock]:
    pair = client.rwlock("pair")
    locks: list[protocols.AsyncLock] = [
        client.lock("mutex"),
        client.rlock("again"),
        client.fair_lock("fair"),
        client.fenced_lock("fenced"),
        client.spin_lock("spin"),
        client.plain_lock("plain"),
        pair.read,
        pair.write,
        client.semaphore("semaphore"),
        client.permits("permits"),
        aio.MultiLock([client.lock("one"), client.lock("two")]),
        AsyncFakeLock(),
    ]
    return locks


def quorum(locks: list[snib.Lock]) -> protocols.Lock:
    return snib.QuorumLock(locks)


def async_quorum(locks: list[aio.Lock]) -> protocols.AsyncLock:
    return aio.QuorumLock(locks)

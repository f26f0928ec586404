"""Every real lock satisfies the protocols, and so do the fakes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest
import snib
import snib.aio
import snib.anyio
from fakes import AsyncFakeLock, FakeLock, async_quorum, every_async_lock, every_lock, quorum
from snib import protocols
from support import PATIENCE, Server

LEASE = 60.0


def can_be_extended(lock: object) -> bool:
    return getattr(lock, "kind", None) != "semaphore"


NOWHERE = [f"redis://127.0.0.1:{port}" for port in (1, 2, 3)]  # nothing is sent there
COUNTED = ("semaphore", "permits")


@pytest.fixture
def counter(server: Server) -> Iterator[None]:
    """The counter of fencing tokens stays, as it must."""
    yield
    for key in server.admin.keys("redisson_lock_token:*"):
        server.admin.delete(key)


@pytest.mark.usefixtures("counter")
def test_every_lock_is_a_lock(client: snib.Client) -> None:
    for name in COUNTED:
        getattr(client, name)(name).init(1)
    for lock in every_lock(client):
        assert isinstance(lock, protocols.Lock) and not isinstance(lock, protocols.AsyncLock), lock
        with lock.hold(timeout=PATIENCE) as hold:
            assert isinstance(hold, protocols.Hold) and not isinstance(hold, protocols.AsyncHold), lock
            hold.check()
            assert hold.remaining() > 0 and hold.owner and not hold.lost.is_set()
        with lock as hold:
            assert isinstance(hold, protocols.Hold) and hold.token >= 0
            if can_be_extended(lock):
                hold.extend(LEASE)
                assert hold.remaining() > 0
            else:
                with pytest.raises(snib.NotSupported):
                    hold.extend(LEASE)
        assert lock.acquire(timeout=PATIENCE)
        lock.release()
    for name in COUNTED:
        getattr(client, name)(name).force_release()


@pytest.mark.usefixtures("counter")
@pytest.mark.parametrize("connect", [snib.aio.connect, snib.anyio.connect])
def test_every_asyncio_lock_is_a_lock(server: Server, connect: Callable[[str], snib.aio.Client]) -> None:
    async def main() -> None:
        async with connect(server.url) as client:
            for name in COUNTED:
                await getattr(client, name)(name).init(1)
            for lock in every_async_lock(client):
                assert isinstance(lock, protocols.AsyncLock) and not isinstance(lock, protocols.Lock), lock
                holding = lock.hold(timeout=PATIENCE)
                assert isinstance(holding, protocols.AsyncHolding), lock
                async with holding as hold:
                    assert isinstance(hold, protocols.AsyncHold) and not isinstance(hold, protocols.Hold), lock
                    hold.check()
                    assert hold.remaining() > 0 and hold.owner and not hold.lost.is_set()
                await (await lock.hold(timeout=PATIENCE)).release()
                async with lock as hold:
                    assert isinstance(hold, protocols.AsyncHold) and hold.token >= 0
                    if can_be_extended(lock):
                        await hold.extend(LEASE)
                        assert hold.remaining() > 0
                    else:
                        with pytest.raises(snib.NotSupported):
                            await hold.extend(LEASE)
                assert await lock.acquire(timeout=PATIENCE)
                await lock.release()
            for name in COUNTED:
                await getattr(client, name)(name).force_release()

    asyncio.run(main())


def test_a_quorum_is_a_lock() -> None:
    assert isinstance(quorum([snib.connect(url).lock("q") for url in NOWHERE]), protocols.Lock)
    assert isinstance(async_quorum([snib.aio.connect(url).lock("q") for url in NOWHERE]), protocols.AsyncLock)


def test_what_cannot_be_held_is_no_lock(client: snib.Client) -> None:
    for thing in (client, client.latch("l"), client.rwlock("r"), client.lock("m").name):
        assert not isinstance(thing, protocols.Lock) and not isinstance(thing, protocols.AsyncLock)


def test_a_fake_that_is_lost() -> None:
    lock = FakeLock()
    with pytest.raises(snib.Lost), lock as hold:
        hold.check()
        hold.extend(LEASE)
        hold.lost.set()
    assert lock.holds[0].released and lock.holds[0].leases == [LEASE]


def test_an_asyncio_fake_that_is_lost() -> None:
    async def main() -> None:
        lock = AsyncFakeLock()
        with pytest.raises(snib.Lost):
            async with lock.hold(timeout=1.0) as hold:
                hold.check()
                await hold.extend(LEASE)
                hold.lost.set()
                assert await hold.lost.wait()
        assert lock.holds[0].released and lock.holds[0].leases == [LEASE]

    asyncio.run(main())

"""Hold.extend(): another lease for a live hold, in threads, asyncio and through a queue."""

from __future__ import annotations

import asyncio
import math
import select
from collections.abc import Callable
from typing import Any

import pytest
import snib
import snib.aio
from support import PATIENCE, Server

LEASE = 20.0
HOUR = 3600.0
ALMOST = 3000.0



def several(client: Any) -> Any:
    module = snib if isinstance(client, snib.Client) else snib.aio
    return module.MultiLock([client.lock("a"), client.lock("b")])


KINDS: dict[str, Callable[[Any], Any]] = {
    "mutex": lambda client: client.lock("m"),
    "fair": lambda client: client.fair_lock("f"),
    "write": lambda client: client.rwlock("rw").write,
    "read": lambda client: client.rwlock("rw").read,
    "plain": lambda client: client.plain_lock("p"),
    "several": lambda client: several(client),
}


@pytest.mark.parametrize("kind", KINDS)
def test_extend(server: Server, kind: str) -> None:
    with snib.connect(server.url, lease=LEASE) as client:
        with KINDS[kind](client).hold() as hold:
            assert hold.remaining() <= LEASE
            hold.extend(HOUR)
            assert hold.remaining() > ALMOST
            hold.extend(0.1)
            assert hold.remaining() > ALMOST, "no lease is shortened"
            hold.extend()
            assert hold.remaining() <= LEASE, "what is renewed is the client's lease"
        with pytest.raises(snib.NotHeld):
            hold.extend(HOUR)


@pytest.mark.parametrize("kind", KINDS)
def test_extend_in_asyncio(server: Server, kind: str) -> None:
    async def main() -> None:
        async with snib.aio.connect(server.url, lease=LEASE) as client:
            async with KINDS[kind](client).hold() as hold:
                await hold.extend(HOUR)
                assert hold.remaining() > ALMOST
                await hold.extend()
                assert hold.remaining() <= LEASE
            with pytest.raises(snib.NotHeld):
                await hold.extend(HOUR)

    asyncio.run(main())


def test_extend_through_a_queue(client: snib.Client) -> None:
    queue = snib.Queue(client)
    hold = client.lock("m").hold()
    ticket = queue.extend(hold, HOUR)
    events: list[snib.Event] = []
    while not events:
        assert select.select([queue.fileno()], [], [], PATIENCE)[0]
        events = queue.drain()
    assert events == [snib.Event(ticket, None, False)]
    assert hold.remaining() > ALMOST
    hold.release()


@pytest.mark.parametrize("lease", [0, -1, 0.01, 86401, math.inf, math.nan, 10**30])
def test_a_bad_lease(client: snib.Client, lease: float) -> None:
    with client.lock("m").hold() as hold:
        with pytest.raises(snib.InvalidLease):
            hold.extend(lease)
        hold.check()


@pytest.mark.parametrize("lease", ["1", True, b"1", object()])
def test_no_lease(client: snib.Client, lease: Any) -> None:
    with client.lock("m").hold() as hold, pytest.raises(TypeError):
        hold.extend(lease)


def test_found_lost(server: Server, client: snib.Client) -> None:
    hold = client.lock("m").hold()
    server.admin.delete("m")
    with pytest.raises(snib.Lost, match='"m" was lost') as caught:
        hold.extend(HOUR)
    assert caught.value.reason == "deleted"
    assert hold.lost.is_set()
    with pytest.raises(snib.Lost):
        hold.release()


def test_not_for_all(server: Server, client: snib.Client) -> None:
    permits = client.semaphore("s")
    permits.init(1)
    with permits.hold() as hold, pytest.raises(snib.NotSupported, match="semaphore"):
        hold.extend(HOUR)
    server.admin.delete("s")


def test_several_servers(server: Server, client: snib.Client) -> None:
    """The lock as a whole has the lease, on each of the servers."""
    with snib.connect(server.url) as other:
        both = snib.MultiLock([client.lock("a"), other.lock("b")])
        with both.hold() as hold:
            hold.extend(HOUR)
            assert hold.remaining() > HOUR - 60
            assert all(server.admin.pttl(name) > (HOUR - 60) * 1000 for name in ("a", "b"))
            hold.extend()
            assert hold.remaining() <= 30


def test_a_cancelled_extension(server: Server) -> None:
    """Its answer is discarded; the hold stays what it was, or has the longer lease."""

    async def main() -> None:
        async with snib.aio.connect(server.url, lease=LEASE) as client:
            async with client.lock("m").hold() as hold:
                task = asyncio.create_task(hold.extend(HOUR))
                await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                hold.check()
                await hold.extend(HOUR)
                assert hold.remaining() > ALMOST

    asyncio.run(main())

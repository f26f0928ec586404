"""anyio's clients on both back-ends: the API, losses, cancellation, and cleanup."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Awaitable, Callable

import anyio
import anyio.lowlevel
import pytest

import snib
import snib.anyio
from conftest import NewServer
from snib import aio
from support import PATIENCE, RENEWED, Server, eventually
from test_ownership import COUNTED, KINDS, LOSABLE

BACKENDS = ["asyncio", "trio"]


@pytest.fixture(params=BACKENDS)
def run(request: pytest.FixtureRequest) -> Callable[[Callable[[], Awaitable[object]]], object]:
    def in_backend(main: Callable[[], Awaitable[object]]) -> object:
        return anyio.run(main, backend=request.param)

    return in_backend


async def soon(condition: Callable[[], object]) -> None:
    with anyio.fail_after(PATIENCE):
        while not condition():
            await anyio.sleep(0.002)


def lose(hold: aio.Hold) -> None:
    hold._loop.end_losses(snib._core.hold_id(hold._handle), True)


@pytest.mark.parametrize("of_hold", [False, True])
def test_a_block_that_cannot_begin(server: Server, monkeypatch: pytest.MonkeyPatch, run, of_hold: bool) -> None:
    """Its scope is exited, and nothing watches its hold."""

    def fail(*_: object) -> None:
        raise MemoryError

    async def main() -> None:
        async with snib.anyio.connect(server.url) as client:
            lock = client.lock("name")
            with anyio.CancelScope() as scope:
                with monkeypatch.context() as patch, pytest.raises(MemoryError):
                    patch.setattr(aio._lock._Blocks, "begin", fail)
                    async with lock.hold() if of_hold else lock:
                        pytest.fail("began")
                assert not client._loop().losses
                scope.cancel()
                await anyio.sleep(600)
            assert scope.cancelled_caught
            await soon(lambda: client.stats().held == 0)
            async with lock:
                pass

    run(main)


def test_the_surface(server: Server, run) -> None:
    async def main() -> None:
        async with snib.anyio.connect(server.url) as client:
            await client.ping()
            lock, other = client.lock("name"), client.lock("name")
            async with lock as hold:
                assert isinstance(hold, aio.Hold)
                hold.check()
                assert (await client.describe("name")).holders[0].owner == hold.owner
                assert await client.list() == ["name"]
                assert await other.acquire(False) is False
                with pytest.raises(snib.Busy):
                    await other.hold(timeout=0)
                with pytest.raises(snib.Timeout):
                    async with other.hold(timeout=0.02):
                        pytest.fail("ran unlocked")
            assert await lock.acquire() is True
            await client.lock("name").release()
            with pytest.raises(snib.NotHeld):
                await lock.release()
            async with client.rlock("again") as outer, client.rlock("again") as inner:
                assert outer.owner == inner.owner
            latch = client.latch("latch")
            await latch.init(1)
            async with anyio.create_task_group() as group:
                group.start_soon(latch.wait)
                await latch.count_down()
            hold = await lock.hold()
            async with anyio.create_task_group() as group:
                group.start_soon(hold.lost.wait)
                await anyio.lowlevel.checkpoint()
                await hold.release()
            with anyio.CancelScope() as scope:
                async with lock:
                    scope.cancel()
                    await anyio.sleep(600)
            assert scope.cancelled_caught
            assert not await lock.locked()

    run(main)


def test_tasks_exclude_each_other(server: Server, run) -> None:
    async def main() -> None:
        async with snib.anyio.connect(server.url) as client:
            inside = turns = 0

            async def work(make: Callable) -> None:
                nonlocal inside, turns
                for _ in range(10):
                    async with make():
                        inside += 1
                        assert inside == 1
                        await anyio.lowlevel.checkpoint()
                        turns += 1
                        inside -= 1

            async with anyio.create_task_group() as group:
                for _ in range(10):
                    group.start_soon(work, lambda: client.lock("name"))
            async with anyio.create_task_group() as group:
                for _ in range(10):
                    group.start_soon(work, lambda: client.rlock("name"))
            assert turns == 200

    run(main)


@pytest.mark.parametrize("form", ["lock", "hold", "protect"])
def test_a_loss_ends_the_body(server: Server, run, form: str) -> None:
    """All kinds at once, each in its own database."""
    began: list[str] = []

    async def lose_one(kind: str, number: int) -> None:
        async with snib.anyio.connect(f"{server.url}&db={number}", lease=RENEWED) as client:
            lock = KINDS[kind](client)
            if kind in COUNTED:
                await lock.init(1)

            async def body() -> None:
                began.append(kind)
                await anyio.sleep(600)

            with pytest.raises(snib.Lost) as caught:
                if form == "lock":
                    async with lock:
                        await body()
                elif form == "hold":
                    async with lock.hold(timeout=PATIENCE):
                        await body()
                else:
                    await lock.protect()(body)()
            assert caught.value.name == lock.name and caught.value.reason == "deleted", kind
            assert not client._loop().losses

    async def main() -> None:
        with anyio.fail_after(2 * PATIENCE):
            async with anyio.create_task_group() as group:
                for number, kind in enumerate(LOSABLE):
                    group.start_soon(lose_one, kind, number)
                await soon(lambda: len(began) == len(LOSABLE))
                server.admin.flushall()

    run(main)


def test_scopes_keep_their_meaning(server: Server, run) -> None:
    async def main() -> None:
        async with snib.anyio.connect(server.url) as client:
            ended: list[str] = []

            async def child() -> None:
                try:
                    await anyio.sleep(600)
                finally:
                    ended.append("child")

            with pytest.raises(snib.Lost):  # a task group inside
                async with client.lock("name") as hold, anyio.create_task_group() as group:
                    group.start_soon(child)
                    await anyio.lowlevel.checkpoint()
                    lose(hold)
            assert ended == ["child"]

            with anyio.CancelScope() as outer:  # an outer cancellation at the same moment
                async with client.lock("name") as hold:
                    lose(hold)
                    outer.cancel()
                    await anyio.sleep(600)
            assert outer.cancel_called
            await soon(lambda: client.stats().held == 0)

            with pytest.raises(snib.Lost) as caught:  # nested, the outer one lost
                async with client.lock("outer") as first, client.lock("inner"):
                    lose(first)
                    await anyio.sleep(600)
            assert caught.value.name == "outer"

            with pytest.raises(snib.Lost) as caught:  # a body that continues
                async with client.lock("name") as hold:
                    lose(hold)
                    with anyio.CancelScope(shield=True):
                        await anyio.sleep(0.005)
            assert caught.value.name == "name"

            with pytest.raises(ZeroDivisionError):  # the program's own error takes precedence
                async with client.lock("name") as hold:
                    lose(hold)
                    try:
                        await anyio.sleep(600)
                    finally:
                        raise ZeroDivisionError
            await anyio.lowlevel.checkpoint()  # no cancellation is left
            await soon(lambda: client.stats().held == 0)
            assert not client._loop().losses

    run(main)


def test_cancelled_tasks_leave_nothing(server: Server, run) -> None:
    async def main() -> None:
        async with snib.anyio.connect(server.url) as client:

            async def work(name: str) -> None:
                async with client.lock(name):
                    await anyio.sleep(0.002)

            for number in range(40):
                async with anyio.create_task_group() as group:
                    for task in range(8):
                        group.start_soon(work, f"name{task % 3}")
                    for _ in range(number % 10):
                        await anyio.lowlevel.checkpoint()
                    await anyio.sleep(0.0005 * (number % 7))
                    group.cancel_scope.cancel()
            await soon(lambda: client.stats().held == client.stats().waiting == 0)
            await soon(server.clean)

    run(main)


def test_every_end_ends_waiting_for_the_loss(server: Server, run) -> None:
    async def main() -> None:
        client = snib.anyio.connect(server.url)
        told: list[bool] = []

        async def wait(hold: aio.Hold) -> None:
            told.append(await hold.lost.wait())

        async with anyio.create_task_group() as tasks:
            lock = client.rlock("again")
            outer, inner = await lock.hold(), await lock.hold()
            for hold in (outer, inner):
                tasks.start_soon(wait, hold)
            await soon(lambda: sum(map(len, client._loop().losses.values())) == 2)
            await inner.release()
            await soon(lambda: told)
            outer.check()
            with anyio.CancelScope() as scope:
                scope.cancel()
                await outer.release()
        assert told == [False, False]
        hold = await client.lock("name").hold()
        await client.close()
        with anyio.fail_after(PATIENCE):
            while client._loops and any(known() for known in client._loops.values()):
                await anyio.sleep(0.001)
        assert await hold.lost.wait() is True

    run(main)


def test_no_thread_can_be_started(new_server: NewServer, monkeypatch: pytest.MonkeyPatch, run) -> None:
    """close() wants one; without it, the loop still does not block."""
    server = new_server()

    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def main() -> None:
        client = snib.anyio.connect(server.url)
        hold = await client.lock("x").hold()
        monkeypatch.setattr(threading.Thread, "start", start)
        with server.stopped():
            with pytest.raises(snib.Timeout):  # in place, so it does not wait for the release
                await client.close()
            assert hold.lost.is_set()

    run(main)
    monkeypatch.undo()
    eventually(server.clean)


def test_a_cancelled_close_goes_on(new_server: NewServer, run) -> None:
    server = new_server()

    async def main() -> None:
        client = snib.anyio.connect(server.url)
        hold = await client.lock("x").hold()
        with server.stopped():
            with anyio.move_on_after(0.05) as scope:
                await client.close()
            assert scope.cancelled_caught
        assert hold.reason == "closed"

    run(main)  # which ends before the close does, or not
    eventually(server.clean)


def test_a_run_leaves_no_descriptor(server: Server, run) -> None:
    def descriptors() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    async def main() -> None:
        async with snib.anyio.connect(server.url) as client, client.lock("short"):
            pass

    run(main)
    before = descriptors()
    for _ in range(10):
        run(main)
    eventually(lambda: descriptors() <= before)

    client = snib.anyio.connect(server.url)  # one client for several runs

    async def use() -> None:
        async with client.lock("short"):
            pass

    run(use)
    before = descriptors()
    for _ in range(10):
        run(use)
    eventually(lambda: descriptors() <= before)
    run(client.close)


def test_both_backends_share_a_client(server: Server) -> None:
    client = snib.anyio.connect(server.url)

    async def acquire() -> None:
        assert await client.lock("name").acquire()

    async def release() -> None:
        await client.lock("name").release()
        await client.close()

    anyio.run(acquire, backend="trio")
    assert not server.clean()
    anyio.run(release, backend="asyncio")

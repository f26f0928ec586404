"""Everything opened is closed, however it ends: nothing stays in a loop that continues."""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import gc
import os
import threading
import weakref

import pytest

import snib
import snib.aio
from conftest import NewServer
from snib.aio._loop import Loop
from support import PATIENCE, Program, Server, brief_in_task, eventually, thread_count

ROUNDS = 20


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def gone(before: int) -> None:
    """Wait until there are no more descriptors than before."""

    async def wait() -> None:
        while descriptors() > before:
            gc.collect()
            await asyncio.sleep(0.005)

    try:
        await asyncio.wait_for(wait(), PATIENCE)
    except asyncio.TimeoutError:
        pytest.fail(f"{descriptors() - before} descriptors more than before")


async def dropped(url: str) -> None:
    client = snib.aio.Client(url)
    async with client.lock("x"):
        pass


async def dropped_holding(url: str) -> None:
    await brief_in_task(snib.aio.Client(url, lease=0.5).lock("y"))


async def dropped_waiting(url: str) -> None:
    client = snib.aio.Client(url)
    async with client.lock("z"):
        waiter = asyncio.create_task(client.lock("z").acquire())
        await asyncio.sleep(0)
        waiter.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiter


async def close_cancelled_at_once(url: str) -> None:
    client = snib.aio.Client(url)
    await client.ping()
    task = asyncio.create_task(client.close())
    await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def closed_twice(url: str) -> None:
    client = snib.aio.Client(url)
    await client.ping()
    await asyncio.gather(client.close(), client.close())


async def dropped_in_another_thread(url: str) -> None:
    box = [snib.aio.Client(url)]
    await box[0].ping()
    thread = threading.Thread(target=box.clear)
    thread.start()
    while thread.is_alive():
        await asyncio.sleep(0.001)


ENDS = [
    dropped,
    dropped_holding,
    dropped_waiting,
    close_cancelled_at_once,
    closed_twice,
    dropped_in_another_thread,
]


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
def test_a_loop_that_lives_on(server: Server, end) -> None:
    async def main() -> None:
        await end(server.url)  # create one-time resources
        gc.collect()
        await asyncio.sleep(0.1)
        before, readers = descriptors(), len(selector())
        for _ in range(ROUNDS):
            await end(server.url)
        await gone(before)
        assert len(selector()) <= readers
        assert not [kept for kept in gc.get_objects() if isinstance(kept, Loop)]

    def selector() -> dict[object, object]:
        return asyncio.get_running_loop()._selector.get_map()  # type: ignore[attr-defined]

    asyncio.run(main())


def test_loops_that_are_closed(server: Server) -> None:
    """A client that outlives its loops keeps nothing of them."""
    client = snib.aio.Client(server.url)

    async def use() -> None:
        async with client.lock("x"):
            pass

    asyncio.run(use())
    gc.collect()
    before = descriptors()
    for _ in range(ROUNDS):
        asyncio.run(use())
    gc.collect()
    assert descriptors() <= before
    asyncio.run(client.close())


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", ["lock", "rlock"])
@pytest.mark.parametrize("form", ["a lock", "hold()"])
def test_a_block_that_goes_with_its_loop(server: Server, kind: str, form: str) -> None:
    """As after a Ctrl-C that came out of the loop, while the client and its lock are used on."""
    client = snib.aio.connect(server.url)
    lock = getattr(client, kind)("x")

    async def work() -> None:
        async with lock if form == "a lock" else lock.hold():
            asyncio.get_running_loop().stop()
            await asyncio.sleep(PATIENCE)

    async def use() -> None:
        async with lock.hold(timeout=PATIENCE) as hold:
            hold.check()
        await client.close()

    loop = asyncio.new_event_loop()
    task = loop.create_task(work())
    loop.run_forever()
    assert client.stats().held == 1
    loop.call_exception_handler = lambda context: None  # type: ignore[method-assign]  # "was destroyed"
    loop.close()
    del task, loop
    gc.collect()
    assert not lock._blocks._begun
    asyncio.run(use())


def test_a_hold_outlives_its_client(server: Server) -> None:
    """A hold keeps its client alive, and the queue reports its loss."""

    async def main() -> None:
        client = snib.aio.Client(server.url)
        hold = await brief_in_task(client.lock("x", lease=0.2))
        known = weakref.ref(client)
        del client
        gc.collect()
        assert known() is not None
        assert await hold.lost.wait()

    asyncio.run(main())


# ---- No thread per waiting call
# --------------------------------------------------------------------


def test_questions_take_no_thread(new_server: NewServer) -> None:
    """However many queries wait for a silent server; a cancelled one ends immediately."""
    server = new_server()

    async def main() -> None:
        async with snib.aio.Client(server.url, patience=60, reply_timeout=60) as client:
            await client.ping()
            before = thread_count()
            with server.stopped():
                asked = [asyncio.create_task(client.describe("x")) for _ in range(200)]
                asked += [asyncio.create_task(client.list()) for _ in range(200)]
                await asyncio.sleep(0.05)
                assert thread_count() == before
                for task in asked[::2]:
                    task.cancel()
                done, _ = await asyncio.wait(asked[::2], timeout=PATIENCE)
                assert len(done) == 200 and all(task.cancelled() for task in done)
            assert [await task for task in asked[1::2]]

    asyncio.run(main())


def test_no_thread_can_be_started(
    new_server: NewServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only close() wants a thread; without one, the loop still does not block."""
    server = new_server()

    async def main() -> None:
        client = snib.aio.Client(server.url, patience=60, reply_timeout=60)
        await client.ping()
        hold = await client.lock("x").hold()

        def start(self: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(threading.Thread, "start", start)
        turns = 0

        async def turn() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0.001)

        turning = asyncio.create_task(turn())
        with server.stopped():
            asked = asyncio.create_task(client.describe("x"))
            await asyncio.sleep(0.2)
            assert turns > 1
            with pytest.raises(snib.Timeout):  # in place, so it does not wait for the release
                await client.close()
            asked.cancel()
        turning.cancel()
        await asyncio.wait([asked, turning])
        del hold

    asyncio.run(main())
    monkeypatch.undo()
    eventually(server.clean)


def test_a_close_without_a_thread(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits in place, as calls of a client for threads may."""

    def refuse(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    client = snib.connect(server.url)
    assert client.lock("x").acquire()
    monkeypatch.setattr(_thread, "start_new_thread", refuse)
    client.close()
    monkeypatch.undo()
    assert server.clean()


SMALL_STACKS = """
import asyncio, threading
import snib.aio
threading.stack_size(64 * 1024)

async def main():
    async with snib.aio.connect(URL) as client:
        async with client.lock("x"): await client.list()

def queue():
    with snib.connect(URL) as client:
        queue = snib.Queue(client)
        ticket = queue.acquire(client.lock("y"))
        while not (events := queue.drain()): time.sleep(0.001)
        events[0].result.release()

for run in (lambda: asyncio.run(main()), queue):
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    say("done")
"""


def test_threads_with_small_stacks(server: Server) -> None:
    """As a program of thousands of threads may give them; events do not lie there."""
    assert Program(SMALL_STACKS, server.url).end().split() == ["done", "done"]


# ---- Threads and clients while the interpreter ends ----------------------------------------------


def test_clients_come_and_go_while_all_are_gone_through(server: Server) -> None:
    from snib._client import living_clients

    stop = threading.Event()
    errors: list[BaseException] = []

    def come_and_go() -> None:
        try:
            while not stop.is_set():
                snib.Client(server.url)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=come_and_go) for _ in range(3)]
    kept = [snib.Client(server.url) for _ in range(50)]
    for thread in threads:
        thread.start()
    for _ in range(2000):
        assert len(living_clients()) >= 50
    stop.set()
    for thread in threads:
        thread.join()
    assert not errors and kept

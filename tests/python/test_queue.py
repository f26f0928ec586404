"""The low-level API: locks on any loop that can watch a descriptor, for example trio."""

from __future__ import annotations

import select
import threading
from collections.abc import Callable

import pytest
import trio

import snib
import snib.aio
from support import PATIENCE, Server, brief


def test_submit_watch_drain(client: snib.Client) -> None:
    queue = snib.Queue(client)
    lock = client.lock("queued")
    assert queue.drain() == []
    first, second = queue.acquire(lock), queue.acquire(lock, timeout=0.05)
    events: dict[int, snib.Event] = {}
    while len(events) < 2:
        assert select.select([queue.fileno()], [], [], PATIENCE)[0]
        events.update((event.ticket, event) for event in queue.drain())
    hold = events[first].result
    assert isinstance(hold, snib.Hold)
    assert isinstance(events[second].result, snib.Timeout)
    done = queue.release(hold)
    assert select.select([queue.fileno()], [], [], PATIENCE)[0]
    assert queue.drain() == [snib.Event(done, None, False)]
    with pytest.raises(snib.NotHeld):
        hold.release()


def test_each_hold_is_released_once(client: snib.Client) -> None:
    """Re-entries share a hold of the core: one that is released twice would end another."""

    def released_by(end: Callable[[snib.Hold], object]) -> None:
        lock = client.rlock("again")
        with lock.hold() as outer:
            inner = lock.hold()
            end(inner)
            for release in (queue.release, snib.Hold.release, within):
                with pytest.raises(snib.NotHeld, match="released before"):
                    release(inner)
            outer.check()
            assert lock.locked()
        assert not lock.locked()

    def within(hold: snib.Hold) -> None:
        with hold:
            pass

    queue = snib.Queue(client)
    released_by(queue.release)
    released_by(snib.Hold.release)


def test_a_hold_released_within_its_block(client: snib.Client) -> None:
    queue = snib.Queue(client)
    lock = client.rlock("within")
    with lock as outer:
        with pytest.raises(snib.NotHeld), lock as inner:
            queue.release(inner)
        outer.check()
        assert lock.locked()
    assert not lock.locked()


def test_clients_of_another_kind(server: Server) -> None:
    for client in (snib.aio.connect(server.url), None):
        with pytest.raises(TypeError, match="must be a snib.Client, not"):
            snib.Queue(client)  # type: ignore[arg-type]


def test_a_loss_is_an_event(client: snib.Client) -> None:
    queue = snib.Queue(client)
    ticket = queue.acquire(client.lock("lost", lease=2))
    events: list[snib.Event] = []
    while len(events) < 2:
        assert select.select([queue.fileno()], [], [], PATIENCE)[0]
        events += queue.drain()
    assert [event.ticket for event in events] == [ticket, ticket]
    assert [event.lost for event in events] == [False, True]
    assert isinstance(events[1].result, snib.Lost) and "expired" in str(events[1].result)


def test_a_lost_hold_is_refused_at_once(client: snib.Client) -> None:
    """No event arrives for a call that raises."""
    queue = snib.Queue(client)
    hold = brief(client.lock("lost", lease=0.2))
    assert hold.lost.wait(PATIENCE)
    for call in (queue.release, queue.extend):
        with pytest.raises(snib.Lost, match="expired"):
            call(hold)
    assert not queue._locks and queue.drain() == []


def test_cancel_ends_as_cancelled(client: snib.Client) -> None:
    queue = snib.Queue(client)
    with client.lock("busy"):
        ticket = queue.acquire(client.lock("busy"))
        assert queue.cancel(ticket) is True
        assert queue.cancel(ticket) is False
        assert select.select([queue.fileno()], [], [], PATIENCE)[0]
        (event,) = queue.drain()
        assert isinstance(event.result, snib.Cancelled)
    assert queue.cancel(ticket) is False


def test_each_event_comes_once_though_threads_drain_together(client: snib.Client) -> None:
    queue = snib.Queue(client)
    tickets = {queue.acquire(client.lock(f"name{number}")) for number in range(500)}
    seen: list[snib.Event] = []

    def drain() -> None:
        while len(seen) < 500:
            try:
                seen.extend(queue.drain())
            except snib.QueueInUse:
                pass

    threads = [threading.Thread(target=drain) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(seen) == 500 and {event.ticket for event in seen} == tickets
    for event in seen:
        assert isinstance(event.result, snib.Hold)
        event.result.release()


def test_dropping_the_queue_leaves_nothing(server: Server, client: snib.Client) -> None:
    queue = snib.Queue(client)
    with client.lock("held"):
        for name in ["held", "free", "other"]:
            queue.acquire(client.lock(name))
        del queue


class TrioLocks:
    """All that trio needs: one watching task, and an event for each operation."""

    def __init__(self, client: snib.Client) -> None:
        self.queue = snib.Queue(client)
        self.waiting: dict[int, trio.Event] = {}
        self.results: dict[int, object] = {}

    async def watch(self) -> None:
        while True:
            await trio.lowlevel.wait_readable(self.queue.fileno())
            for event in self.queue.drain():
                if event.ticket in self.waiting:
                    self.results[event.ticket] = event.result
                    self.waiting[event.ticket].set()
                elif isinstance(event.result, snib.Hold):
                    self.queue.release(event.result)  # its waiter has gone

    async def result(self, ticket: int) -> object:
        self.waiting[ticket] = trio.Event()
        try:
            await self.waiting[ticket].wait()
        except trio.Cancelled:
            self.queue.cancel(ticket)
            raise
        finally:
            del self.waiting[ticket]
            result = self.results.pop(ticket, None)
        if isinstance(result, BaseException):
            raise result
        return result

    async def acquire(self, lock: snib.Lock) -> snib.Hold:
        hold = await self.result(self.queue.acquire(lock))
        assert isinstance(hold, snib.Hold)
        return hold

    async def release(self, hold: snib.Hold) -> None:
        with trio.CancelScope(shield=True):
            await self.result(self.queue.release(hold))


def test_trio(server: Server, client: snib.Client) -> None:
    inside = turns = 0

    async def work(locks: TrioLocks) -> None:
        nonlocal inside, turns
        for _ in range(10):
            hold = await locks.acquire(client.lock("trio"))
            inside += 1
            assert inside == 1
            await trio.lowlevel.checkpoint()
            turns += 1
            inside -= 1
            await locks.release(hold)

    async def main() -> None:
        locks = TrioLocks(client)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(locks.watch)
            async with trio.open_nursery() as workers:
                for _ in range(10):
                    workers.start_soon(work, locks)
            hold = await locks.acquire(client.lock("trio"))
            with trio.move_on_after(0.05) as scope:
                await locks.acquire(client.lock("trio"))
            assert scope.cancelled_caught
            await locks.release(hold)
            nursery.cancel_scope.cancel()

    trio.run(main)
    assert turns == 100
    assert client.stats().waiting == 0

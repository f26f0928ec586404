"""The low-level API: locks on any loop that can watch a descriptor, for example trio."""

from __future__ import annotations

import contextlib
import inspect
import select
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

import snib
import snib.aio
from support import PATIENCE, RENEWED, Server, brief


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


def drained(queue: snib.Queue, count: int) -> list[snib.Event]:
    events: list[snib.Event] = []
    while len(events) < count:
        assert select.select([queue.fileno()], [], [], PATIENCE)[0]
        events += queue.drain()
    return events


REENTRANT: dict[str, Callable[[snib.Client], snib.RLock | snib.ReadLock | snib.WriteLock]] = {
    "rlock": lambda client: client.rlock("x", lease=RENEWED),
    "read": lambda client: client.rwlock("x", lease=RENEWED).read,
    "write": lambda client: client.rwlock("x", lease=RENEWED).write,
}


def twice(queue: snib.Queue, lock: Any) -> dict[int, snib.Hold]:
    """Two holds of the same owner, by ticket; both are one of the core."""
    holds: dict[int, snib.Hold] = {}
    for _ in range(2):
        queue.acquire(lock)
        (event,) = drained(queue, 1)
        assert isinstance(event.result, snib.Hold)
        holds[event.ticket] = event.result
    return holds


@pytest.mark.parametrize("kind", REENTRANT)
@pytest.mark.parametrize("released", [[], [0], [1]], ids=["none", "first", "second"])
@pytest.mark.parametrize("dropped", [False, True], ids=["kept", "dropped"])
def test_the_loss_of_what_was_acquired_again(
    server: Server, client: snib.Client, kind: str, released: list[int], dropped: bool
) -> None:
    """Each hold that was not released gets the loss, under the ticket of its own acquire."""
    queue = snib.Queue(client)
    holds = twice(queue, REENTRANT[kind](client))
    tickets = [*holds]
    for at in released:
        done = queue.release(holds[tickets[at]])
        assert drained(queue, 1) == [snib.Event(done, None, False)]
        if dropped:
            del holds[tickets[at]]
    assert client.stats().held == 1
    server.admin.delete("x")
    left = [ticket for at, ticket in enumerate(tickets) if at not in released]
    losses = drained(queue, len(left))
    assert [(event.ticket, event.lost) for event in losses] == [(ticket, True) for ticket in left]
    for event in losses:
        assert isinstance(event.result, snib.Lost) and "x" in str(event.result)
        assert event.result.reason in ("deleted", "taken", "expired")
    kept = weakref.ref(holds.pop(left[0]))
    assert kept() is None  # though its loss is kept
    assert queue.drain() == []
    holds.clear()
    assert not queue._holds


def test_a_loss_of_which_the_program_has_no_hold_is_of_the_first_acquire(server: Server, client: snib.Client) -> None:
    """As of a hold that another queue has got, or none: the core knows only the ticket of the first one here."""
    queue, other = snib.Queue(client), snib.Queue(client)
    lock = client.rlock("x", lease=RENEWED)
    ticket = queue.acquire(lock)
    (first,) = drained(queue, 1)
    assert isinstance(first.result, snib.Hold)
    assert other.acquire(lock) == ticket  # each queue counts its own
    (second,) = drained(other, 1)
    assert isinstance(second.result, snib.Hold)
    other.release(first.result)  # whichever queue gives it back
    drained(other, 1)
    server.admin.delete("x")
    for told in (drained(queue, 1), drained(other, 1)):
        assert [(event.ticket, event.lost) for event in told] == [(ticket, True)]
        assert isinstance(told[0].result, snib.Lost)
    assert queue.drain() == other.drain() == []


def test_many_losses_are_told_together(server: Server, client: snib.Client) -> None:
    """More than the core's queue gives at once, two for each of its holds."""
    queue = snib.Queue(client)
    locks = [client.rlock(f"x{i}", lease=RENEWED) for i in range(100)]
    tickets = {queue.acquire(lock) for lock in locks + locks}
    holds = {event.ticket: event.result for event in drained(queue, len(tickets))}
    assert {*holds} == tickets
    server.admin.flushall()
    losses = drained(queue, len(tickets))
    assert len(losses) == len(tickets) and {event.ticket for event in losses} == tickets
    assert all(event.lost and isinstance(event.result, snib.Lost) for event in losses)


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
    def __init__(self, client: snib.Client) -> None:
        self.queue = snib.Queue(client)
        self.waiting: dict[int, trio.Event] = {}
        self.results: dict[int, Any] = {}
        self.scopes: dict[int, trio.CancelScope] = {}  # of work under a lock, by the ticket of the acquire

    async def watch(self) -> None:  # one task, in your nursery
        while True:
            await trio.lowlevel.wait_readable(self.queue.fileno())
            for event in self.queue.drain():
                if event.lost:
                    if event.ticket in self.scopes:
                        self.scopes[event.ticket].cancel()
                elif event.ticket in self.waiting:
                    self.results[event.ticket] = event.result
                    self.waiting[event.ticket].set()
                elif isinstance(event.result, snib.Hold):
                    self.give_back(event.result)  # nobody waits for it any more

    def give_back(self, hold: snib.Hold) -> None:
        with contextlib.suppress(snib.Error):  # it is lost already, say; the watcher, or a cancellation, goes on
            self.queue.release(hold)

    async def result(self, ticket: int) -> Any:
        self.waiting[ticket] = trio.Event()
        try:
            await self.waiting[ticket].wait()
        except trio.Cancelled:
            self.queue.cancel(ticket)
            arrived = self.results.get(ticket)
            if isinstance(arrived, snib.Hold):  # in the same turn, so that nobody gets it
                self.give_back(arrived)
            raise
        finally:
            del self.waiting[ticket]
            result = self.results.pop(ticket, None)
        if isinstance(result, BaseException):
            raise result
        return result

    @contextlib.asynccontextmanager
    async def hold(self, lock: snib.Lock) -> AsyncIterator[snib.Hold]:
        ticket = self.queue.acquire(lock)
        with trio.CancelScope() as scope:
            self.scopes[ticket] = scope
            try:
                hold = await self.result(ticket)
                try:
                    yield hold
                except BaseException:
                    self.give_back(hold)  # without waiting for the result
                    raise
                await self.result(self.queue.release(hold))
            finally:
                del self.scopes[ticket]
        if scope.cancelled_caught:
            hold.check()  # raises snib.Lost


def test_the_guide_shows_the_same() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guide.md").read_text()
    assert inspect.getsource(TrioLocks) in guide


async def with_trio(client: snib.Client, work: Callable[[TrioLocks], Awaitable[None]]) -> None:
    locks = TrioLocks(client)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(locks.watch)
        try:
            with trio.fail_after(PATIENCE):
                await work(locks)
        finally:
            nursery.cancel_scope.cancel()
    assert locks.waiting == locks.results == locks.scopes == {}


def test_trio(client: snib.Client) -> None:
    inside = turns = 0

    async def turn(locks: TrioLocks) -> None:
        nonlocal inside, turns
        for _ in range(10):
            async with locks.hold(client.lock("trio")):
                inside += 1
                assert inside == 1
                await trio.lowlevel.checkpoint()
                turns += 1
                inside -= 1

    async def work(locks: TrioLocks) -> None:
        async with trio.open_nursery() as workers:
            for _ in range(10):
                workers.start_soon(turn, locks)
        async with locks.hold(client.lock("trio")):
            with trio.move_on_after(0.05) as scope:
                async with locks.hold(client.lock("trio")):
                    pytest.fail("two have it")
            assert scope.cancelled_caught

    trio.run(with_trio, client, work)
    assert turns == 100
    assert client.stats().waiting == 0


def test_trio_cancels_work_whose_lock_is_lost(server: Server) -> None:
    async def work(locks: TrioLocks) -> None:
        async with locks.hold(client.lock("kept")) as kept:
            with pytest.raises(snib.Lost) as told:
                async with locks.hold(client.lock("lost")) as hold:
                    client.lock("lost").force_release()
                    await trio.sleep_forever()
            assert (told.value.name, told.value.reason) == ("lost", "deleted")
            with pytest.raises(snib.Lost):  # no step at which the work could be cancelled
                async with locks.hold(client.lock("lost")) as hold:
                    client.lock("lost").force_release()
                    assert hold.lost.wait(PATIENCE)
            kept.check()

    with snib.connect(server.url, lease=RENEWED) as client:
        trio.run(with_trio, client, work)


def test_trio_gives_back_what_work_leaves(client: snib.Client) -> None:
    async def work(locks: TrioLocks) -> None:
        with trio.CancelScope() as scope:
            async with locks.hold(client.lock("cancelled")):
                scope.cancel()
                await trio.sleep_forever()
        assert scope.cancelled_caught
        with pytest.raises(ValueError, match="wrong"):
            async with locks.hold(client.lock("cancelled")):
                raise ValueError("wrong")
        async with locks.hold(client.lock("cancelled")) as hold:
            hold.check()

    trio.run(with_trio, client, work)

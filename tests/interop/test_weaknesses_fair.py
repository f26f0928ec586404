"""Weaknesses of Redisson that Snib does not share: the fair lock.

Redisson's side, where it matters, is simulated by writing what its client would leave in the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Iterator

import pytest
from foreign import OTHER, STRANGER, Queue, listening
from ours import Waiting, ours_waits

import snib
import snib.aio
from conftest import SharedServer
from support import Program, eventually

# Sooner than the places of a waiter that vanished silently would expire.
LEAVES = 8.0


@pytest.fixture
def queue(server: SharedServer, name: str) -> Iterator[Queue]:
    queue = Queue(server, name)
    yield queue
    queue.delete()


def test_a1_no_busy_polling_behind_a_dead_head(
    client: snib.Client, queue: Queue, name: str
) -> None:
    queue.join(STRANGER, 300_000)
    before = client.stats().commands
    assert not client.fair_lock(name).acquire(timeout=1.0)
    assert client.stats().commands - before <= 30, "commands in one second behind a dead head"
    eventually(lambda: queue.members() == [STRANGER], LEAVES)


WAIT_IN_LINE = """
client = snib.connect(URL)
say("here")
client.fair_lock(sys.argv[2]).acquire()
"""


def test_a2_a_dead_waiter_of_ours_blocks_for_seconds(
    server: SharedServer, client: snib.Client, queue: Queue, name: str
) -> None:
    hold = client.fair_lock(name).hold()
    dying = Program(WAIT_IN_LINE, server.url, name)
    try:
        assert dying.hear() == "here"
        eventually(lambda: len(queue.members()) == 1)
        with snib.connect(server.url) as other:
            taker = ours_waits(other, other.fair_lock(name))
            eventually(lambda: len(queue.members()) == 2)
            dying.process.kill()
            begun = time.monotonic()
            hold.release()
            taker.get(60).release()
    finally:
        dying.process.kill()
        dying.process.communicate()
    assert time.monotonic() - begun < 60, "the original: 300 s"


@pytest.mark.parametrize("dead", [1, 3])
def test_a2_stale_places_are_cleared_together(
    slow: snib.Client, queue: Queue, name: str, dead: int
) -> None:
    for number in range(dead):
        queue.join(f"{STRANGER}{number}", -1)
    begun = time.monotonic()
    slow.fair_lock(name).hold(timeout=30).release()
    assert time.monotonic() - begun < 15
    assert queue.members() == []


def test_a3_a_wait_is_in_the_unit_it_was_given_in(
    client: snib.Client, queue: Queue, server: SharedServer, name: str
) -> None:
    """Whatever time the core requests, a waiter with 20 s does not give up after 20 ms."""
    hold = client.fair_lock(name).hold()
    with snib.connect(server.url) as other:
        taker = Waiting(lambda: other.fair_lock(name).hold(timeout=20))
        eventually(lambda: len(queue.members()) == 1)
        assert queue.patience(queue.members()[0]) > 1_000
        hold.release()
        taker.get().release()


def test_a4_giving_up_costs_followers_nothing(
    server: SharedServer, client: snib.Client, queue: Queue, name: str
) -> None:
    hold = client.fair_lock(name, lease=60.0).hold()
    with snib.connect(server.url) as other:
        waiter = Waiting(lambda: other.fair_lock(name).acquire(timeout=5))
        eventually(lambda: len(queue.members()) == 1)
        # As Redisson computes a score: its predecessor's, plus 60 s.
        begun = queue.now()
        queue.join(STRANGER, queue.patience(queue.members()[0]) + 60_000)
        assert waiter.get() is False
        eventually(lambda: queue.members() == [STRANGER], LEAVES)
    assert queue.score(STRANGER) > begun + 59_000, "the 60 s of its own"
    hold.release()
    queue.delete()


def test_a4_behind_a_stranger_too(
    server: SharedServer, client: snib.Client, queue: Queue, name: str
) -> None:
    """A place behind a foreign waiter adds to the next one's score; giving it up subtracts what is left of that."""
    hold = client.fair_lock(name, lease=60.0).hold()
    queue.join(STRANGER, 60_000)
    with snib.connect(server.url) as other:
        begun = queue.now()
        waiter = Waiting(lambda: other.fair_lock(name).acquire(timeout=2))  # less than a re-check
        eventually(lambda: len(queue.members()) == 2)
        added = queue.score(queue.members()[1]) - queue.score(STRANGER)
        assert added > 0
        queue.join(OTHER, queue.patience(queue.members()[1]) + 6_000)
        before = queue.score(OTHER)
        assert waiter.get() is False
        eventually(lambda: queue.members() == [STRANGER, OTHER], LEAVES)
    taken = before - queue.score(OTHER)
    assert added - (queue.now() - begun) - 500 < taken < added + 500
    assert queue.score(OTHER) - queue.score(STRANGER) > 5_900
    hold.release()


def test_a5_the_cancelled_leave(
    server: SharedServer, client: snib.Client, queue: Queue, name: str
) -> None:
    hold = client.fair_lock(name).hold()

    async def wait_and_be_cancelled() -> None:
        async with snib.aio.connect(server.url) as other:
            task = asyncio.ensure_future(other.fair_lock(name).hold())
            while not queue.members():
                await asyncio.sleep(0.002)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    asyncio.run(wait_and_be_cancelled())
    eventually(lambda: queue.members() == [], LEAVES)
    hold.release()


INTERRUPTED = """
client = snib.connect(URL)
try:
    client.fair_lock(sys.argv[2]).acquire()
except KeyboardInterrupt:
    say("interrupted")
sys.stdin.read()
"""


def test_a5_the_interrupted_leave(
    server: SharedServer, client: snib.Client, queue: Queue, name: str
) -> None:
    hold = client.fair_lock(name).hold()
    program = Program(INTERRUPTED, server.url, name)
    try:
        eventually(lambda: len(queue.members()) == 1)
        program.process.send_signal(signal.SIGINT)
        assert program.hear() == "interrupted"
        eventually(lambda: queue.members() == [], LEAVES)
        assert program.process.poll() is None, "it lives, and its client is open"
    finally:
        program.process.kill()
        program.process.communicate()
    hold.release()


def test_a5_whoever_meets_an_error_leaves(
    server: SharedServer, client: snib.Client, queue: Queue, name: str
) -> None:
    """Other data under the name is an error, and the waiter leaves the queue."""
    hold = client.fair_lock(name).hold()
    with snib.connect(server.url) as other:
        taker = ours_waits(other, other.fair_lock(name))
        eventually(lambda: len(queue.members()) == 1)
        server.admin.set(name, "precious")
        with pytest.raises(snib.WrongType):
            taker.get()
        eventually(lambda: queue.members() == [], LEAVES)
        assert server.admin.get(name) == "precious"
        server.admin.delete(name)
    with pytest.raises(snib.Lost):
        hold.release()


def test_a5_a_closed_client_leaves(
    server: SharedServer, client: snib.Client, queue: Queue, name: str
) -> None:
    hold = client.fair_lock(name).hold()
    other = snib.connect(server.url)
    taker = ours_waits(other, other.fair_lock(name))
    eventually(lambda: len(queue.members()) == 1)
    other.close()
    with pytest.raises(snib.Error):
        taker.get()
    eventually(lambda: queue.members() == [], LEAVES)
    hold.release()


def test_a6_a_long_holder_keeps_the_order(
    server: SharedServer, quick: snib.Client, queue: Queue, name: str
) -> None:
    """Two foreign waiters behind a hold that is renewed past their give-up times keep their places."""
    hold = quick.fair_lock(name).hold()
    queue.join(STRANGER, 1_500)
    queue.join(OTHER, 2_500)
    renewals = quick.stats().renewals
    eventually(lambda: quick.stats().renewals >= renewals + 4)  # for 8 s
    # Any attempt removes stale places.
    with snib.connect(server.url) as third, pytest.raises(snib.Busy):
        third.fair_lock(name).hold(timeout=0)
    assert queue.members() == [STRANGER, OTHER]
    hold.release()


def test_a7_no_clock_of_ours_counts(
    server: SharedServer, client: snib.Client, queue: Queue, name: str
) -> None:
    """Snib sends no time of day, so a wrong clock cannot throw waiters out of the queue."""
    with server.admin.monitor() as monitor, snib.connect(server.url) as other:
        hold = client.fair_lock(name).hold()
        taker = ours_waits(other, other.fair_lock(name))
        eventually(lambda: len(queue.members()) == 1)
        assert not other.fair_lock(name).acquire(timeout=0.1)
        hold.release()
        taker.get().release()
        server.admin.echo("the end")
        words: list[str] = []
        for request in monitor.listen():
            if request["command"] == "ECHO the end":
                break
            if request["client_type"] != "lua":
                words += request["command"].split()
    assert any(word.startswith("EVALSHA") for word in words)
    day = 86_400
    for unit in (1, 1_000, 1_000_000):
        now = queue.now() / 1_000 * unit
        times = [word for word in words if abs(float_or_0(word) - now) < 1_000 * day * unit]
        assert not times, f"{times} may be times"


def float_or_0(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def test_a8_the_next_is_told_when_the_head_was_stale(
    server: SharedServer, client: snib.Client, queue: Queue, name: str
) -> None:
    queue.join(STRANGER, -1)
    queue.join(OTHER, 60_000)
    with listening(server, queue.channel(OTHER)) as hear:
        assert not client.fair_lock(name).acquire(timeout=5)
        assert hear() == "0"
    assert queue.members() == [OTHER]


def test_a8_ours_listens_where_redisson_tells(
    server: SharedServer, client: snib.Client, queue: Queue, name: str
) -> None:
    """Redisson's release notifies the first waiter on that waiter's own channel."""
    server.admin.hset(name, STRANGER, 1)
    server.admin.pexpire(name, 60_000)
    taker = ours_waits(client, client.fair_lock(name))
    eventually(lambda: len(queue.members()) == 1)
    channel = queue.channel(queue.members()[0])
    eventually(lambda: server.admin.pubsub_numsub(channel)[0][1] == 1)
    messages = client.stats().messages
    server.admin.delete(name)
    server.admin.publish(channel, "0")
    taker.get().release()
    assert client.stats().messages > messages
    eventually(lambda: server.admin.pubsub_numsub(channel)[0][1] == 0)


def test_a9_a_head_without_a_score_is_no_waiter(
    client: snib.Client, queue: Queue, name: str
) -> None:
    queue.join(STRANGER, None)
    client.fair_lock(name).hold(timeout=30).release()
    assert queue.members() == []


def test_a11_releasing_an_absent_lock_is_no_success(
    server: SharedServer, client: snib.Client, name: str
) -> None:
    hold = client.fair_lock(name).hold()
    server.admin.delete(name)
    with pytest.raises(snib.Lost):
        hold.release()


def test_a12_a_queue_ends_by_itself(
    server: SharedServer, client: snib.Client, queue: Queue, name: str
) -> None:
    hold = client.fair_lock(name).hold()
    with snib.connect(server.url) as other:
        taker = ours_waits(other, other.fair_lock(name))
        eventually(lambda: len(queue.members()) == 1)
        assert 0 < server.admin.pttl(queue.list) < 660_000
        assert 0 < server.admin.pttl(queue.scores) < 660_000
        hold.release()
        taker.get().release()

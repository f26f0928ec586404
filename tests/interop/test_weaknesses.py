"""Weaknesses of the original that are none of ours.

Where the other side matters it is played by hand: what a Redisson client would leave in the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Iterator

import pytest
from ours import Waiting, counted_waits, make, ours_waits, taking

import snib
import snib.aio
from conftest import NewServer, SharedServer
from support import TIDY, Program, eventually

# Sooner than the queue of a waiter that has left without a word would end by itself.
LEAVES = 8.0

STRANGER = "11111111-2222-4333-8444-555555555555:7"
OTHER = "99999999-2222-4333-8444-555555555555:8"


class Queue:
    """A fair lock's queue, as another client sees it."""

    def __init__(self, server: SharedServer, name: str) -> None:
        self.redis = server.admin
        self.lock = name
        self.list = f"redisson_lock_queue:{{{name}}}"
        self.scores = f"redisson_lock_timeout:{{{name}}}"

    def now(self) -> float:
        """The server's time in epoch milliseconds."""
        seconds, micros = self.redis.time()
        return float(seconds * 1000 + micros // 1000)

    def join(self, owner: str, in_ms: float | None) -> None:
        """Queue a stranger who gives up then; None: one that has no score."""
        self.redis.rpush(self.list, owner)
        if in_ms is not None:
            self.redis.zadd(self.scores, {owner: self.now() + in_ms})

    def patience(self, owner: str) -> float:
        """How long from now the owner keeps its place, in milliseconds."""
        score = self.redis.zscore(self.scores, owner)
        assert score is not None, f"{owner} has no place any more"
        return float(score) - self.now()

    def members(self) -> list[str]:
        return list(self.redis.lrange(self.list, 0, -1))

    def channel(self, owner: str) -> str:
        return f"redisson_lock__channel:{{{self.lock}}}:{owner}"

    def delete(self) -> None:
        self.redis.delete(self.list, self.scores)


@pytest.fixture
def queue(server: SharedServer, name: str) -> Iterator[Queue]:
    queue = Queue(server, name)
    yield queue
    queue.delete()


@contextlib.contextmanager
def listening(server: SharedServer, channel: str) -> Iterator[Callable[[], str]]:
    """Gives a function that waits for the next message."""
    listener = server.admin.pubsub(ignore_subscribe_messages=False)
    listener.subscribe(channel)
    assert listener.get_message(timeout=5)["type"] == "subscribe"

    def hear() -> str:
        message = listener.get_message(timeout=5)
        assert message, f"nothing was said on {channel}"
        return str(message["data"])

    yield hear
    listener.close()


# ---- A: the fair lock ----------------------------------------------------------------------------


def test_a1_no_busy_polling_behind_a_dead_head(
    client: snib.Client, queue: Queue, name: str
) -> None:
    queue.join(STRANGER, 300_000)
    before = client.stats().commands
    assert not client.fair_lock(name).acquire(timeout=1.0)
    assert client.stats().commands - before <= 30, "commands in one second behind a dead head"
    assert queue.members() == [STRANGER]


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
    assert time.monotonic() - begun < 35, "the original: 300 s"


@pytest.mark.parametrize("dead", [1, 3])
def test_a2_stale_places_are_cleared_together(
    client: snib.Client, queue: Queue, name: str, dead: int
) -> None:
    for number in range(dead):
        queue.join(f"{STRANGER}{number}", -1)
    begun = time.monotonic()
    client.fair_lock(name).hold(timeout=10).release()
    assert time.monotonic() - begun < 2
    assert queue.members() == []


def test_a3_a_wait_is_in_the_unit_it_was_given_in(
    client: snib.Client, queue: Queue, server: SharedServer, name: str
) -> None:
    """Whatever the core asks for at a time, a waiter of 20 s is not out of patience after 20 ms."""
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
    hold = client.fair_lock(name, lease=20.0).hold()
    with snib.connect(server.url) as other:
        waiter = Waiting(lambda: other.fair_lock(name).acquire(timeout=0.4))
        eventually(lambda: len(queue.members()) == 1)
        # As Redisson queues: its predecessor's patience and 6 s of its own.
        queue.join(STRANGER, queue.patience(queue.members()[0]) + 6_000)
        assert waiter.get() is False
    assert queue.members() == [STRANGER]
    assert queue.patience(STRANGER) > 5_000, "the 6 s of its own, less what has passed"
    hold.release()
    queue.delete()


def test_a4_behind_a_stranger_too(
    server: SharedServer, client: snib.Client, queue: Queue, name: str
) -> None:
    """A place behind a stranger adds to the next one's, and giving it up takes just that away."""
    hold = client.fair_lock(name, lease=20.0).hold()
    queue.join(STRANGER, 20_000)
    with snib.connect(server.url) as other:
        waiter = Waiting(lambda: other.fair_lock(name).acquire(timeout=0.4))
        eventually(lambda: len(queue.members()) == 2)
        added = queue.patience(queue.members()[1]) - queue.patience(STRANGER)
        assert added > 0
        queue.join(OTHER, queue.patience(queue.members()[1]) + 6_000)
        before = queue.patience(OTHER)
        assert waiter.get() is False
    assert queue.members() == [STRANGER, OTHER]
    assert added <= before - queue.patience(OTHER) < added + 1_000
    assert queue.patience(OTHER) - queue.patience(STRANGER) > 5_900
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
    """Other data has taken the name: that is an error, and no reason to stay in the line."""
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
    """Two strangers behind a hold that is renewed past their patience keep their places."""
    hold = quick.fair_lock(name).hold()
    queue.join(STRANGER, 1_500)
    queue.join(OTHER, 2_500)
    renewals = quick.stats().renewals
    eventually(lambda: quick.stats().renewals >= renewals + 16, 20)
    # Somebody's attempt clears what is stale.
    with snib.connect(server.url) as third, pytest.raises(snib.Busy):
        third.fair_lock(name).hold(timeout=0)
    assert queue.members() == [STRANGER, OTHER]
    hold.release()


def test_a7_no_clock_of_ours_counts(
    server: SharedServer, client: snib.Client, queue: Queue, name: str
) -> None:
    """Nothing that we send is a time of day, so a clock that is wrong cannot throw anybody out."""
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
    queue.join(OTHER, 20_000)
    with listening(server, queue.channel(OTHER)) as hear:
        assert not client.fair_lock(name).acquire(timeout=0.3)
        assert hear() == "0"
    assert queue.members() == [OTHER]


def test_a8_ours_listens_where_redisson_tells(
    server: SharedServer, client: snib.Client, queue: Queue, name: str
) -> None:
    """Redisson's release tells the first in the line on a channel of its own."""
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
    client.fair_lock(name).hold(timeout=10).release()
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
        assert 0 < server.admin.pttl(queue.list) < 60_000
        assert 0 < server.admin.pttl(queue.scores) < 60_000
        hold.release()
        taker.get().release()


# ---- B: read and write ---------------------------------------------------------------------------


def rw_channel(name: str) -> str:
    return f"redisson_rwlock:{{{name}}}"


def test_b1_a_downgrade_is_told_to_all(
    server: SharedServer, client: snib.Client, name: str
) -> None:
    lock = client.rwlock(name)
    lock.write.acquire()
    lock.read.acquire()
    with listening(server, rw_channel(name)) as hear:
        lock.write.release()
        assert hear() == "1"
    lock.read.release()


def test_b2_the_last_reader_wakes_all(server: SharedServer, client: snib.Client, name: str) -> None:
    hold = client.rwlock(name).read.hold()
    with listening(server, rw_channel(name)) as hear:
        hold.release()
        assert hear() == "1"


def test_b3_a_read_release_leaves_the_writers_lease(
    server: SharedServer, client: snib.Client, name: str
) -> None:
    lock = client.rwlock(name, lease=60.0)
    lock.write.acquire()
    inner = client.rwlock(name, lease=1.0).read.hold()
    inner.release()
    assert server.admin.pttl(name) > 50_000
    lock.write.release()


def test_b4_a_renewal_never_shortens(
    server: SharedServer, quick: snib.Client, client: snib.Client, name: str
) -> None:
    long = client.rwlock(name, lease=600.0).read.hold()
    short = quick.rwlock(name).read.hold()
    eventually(lambda: quick.stats().renewals >= 4)
    assert server.admin.pttl(name) > 500_000
    short.release()
    assert server.admin.pttl(name) > 500_000
    long.release()


def test_b5_a_read_release_leaves_the_writers_watchdog(
    server: SharedServer, quick: snib.Client, name: str
) -> None:
    lock = quick.rwlock(name)
    with lock.write as hold:
        with lock.read:
            pass
        renewals = quick.stats().renewals
        eventually(lambda: quick.stats().renewals >= renewals + 6)
        hold.check()
        assert server.admin.hget(name, "mode") == "write"


def test_b5_one_readers_release_leaves_the_others_watchdog(
    server: SharedServer, quick: snib.Client, name: str
) -> None:
    """Two reads of one process have a lease each; one's end is not the other's."""
    stays, goes = quick.rwlock(name).read.hold(), taking(quick.rwlock(name).read).get()
    assert stays.owner != goes.owner
    goes.release()
    own = f"{{{name}}}:{stays.owner}:rwlock_timeout:1"
    renewals = quick.stats().renewals
    eventually(lambda: quick.stats().renewals >= renewals + 6)
    stays.check()
    assert 0 < server.admin.pttl(own) <= 600
    stays.release()


def test_b7_reentry_does_not_add_leases_up(
    server: SharedServer, client: snib.Client, name: str
) -> None:
    lock = client.rwlock(name, lease=20.0)
    for _ in range(3):
        lock.write.acquire()
    assert 18_000 < server.admin.pttl(name) <= 20_000
    for _ in range(3):
        lock.write.release()


def test_b8_releasing_a_vanished_read_is_a_loss(
    server: SharedServer, client: snib.Client, name: str
) -> None:
    hold = client.rwlock(name).read.hold()
    server.admin.delete(name, *server.keys_of(name))
    with pytest.raises(snib.Lost):
        hold.release()


def test_b9_an_inner_release_leaves_the_outer_lease(
    server: SharedServer, client: snib.Client, name: str
) -> None:
    """Redisson numbers a reader's holds, and a release ends the last number, whosever it is."""
    outer, inner = client.rwlock(name, lease=30.0).read, client.rwlock(name, lease=1.0).read
    assert outer.acquire() and inner.acquire()
    inner.release()
    (own,) = server.admin.keys(f"*{name}*:rwlock_timeout:*")
    assert server.admin.pttl(own) > 25_000 and server.admin.pttl(name) > 25_000
    outer.release()


def test_b11_writers_need_not_starve(server: SharedServer, client: snib.Client, name: str) -> None:
    reader = client.rwlock(name).read.hold()
    with snib.connect(server.url) as other, snib.connect(server.url) as third:
        writer = ours_waits(other, other.rwlock(name, prefer_writer=True).write)
        with pytest.raises(snib.Busy):
            third.rwlock(name).read.hold(timeout=0)
        reader.release()
        writer.get().release()
        third.rwlock(name).read.hold(timeout=5).release()


@pytest.mark.parametrize("side", ["read", "write"])
def test_b12_each_side_answers_for_itself(client: snib.Client, name: str, side: str) -> None:
    other = {"read": "write", "write": "read"}[side]
    with make(client, side, name).hold():
        assert make(client, side, name).locked() and make(client, side, name).info().held
        assert not make(client, other, name).locked() and not make(client, other, name).info().held


# ---- C: all locks --------------------------------------------------------------------------------

WAITABLE = ["mutex", "fair", "read", "write", "fenced", "plain", "multi"]


def cut_subscriptions(server: SharedServer, times: int = 1) -> None:
    for _ in range(times):
        server.admin.execute_command("CLIENT", "KILL", "TYPE", "pubsub")


@pytest.mark.parametrize("kind", WAITABLE)
def test_c2_a_lost_message_costs_seconds(
    kind: str, server: SharedServer, client: snib.Client, name: str
) -> None:
    """The waiter's subscription is cut just before the release; the lease would be 30 s."""
    against = {"read": "write", "write": "read"}.get(kind, kind)
    names = f"{name}a,{name}b" if kind == "multi" else name
    hold = make(client, kind, names).hold()
    with snib.connect(server.url, recheck=0.5) as other:
        taker = ours_waits(other, make(other, against, names))
        cut_subscriptions(server)
        hold.release()
        taker.get(5).release()


def test_c2_also_for_counters(server: SharedServer, client: snib.Client, gone: str) -> None:
    semaphore, permits, latch = f"{gone}s", f"{gone}p", f"{gone}l"
    client.semaphore(semaphore).init(1)
    client.permits(permits).init(1)
    client.latch(latch).init(1)
    holds = [client.semaphore(semaphore).hold(), client.permits(permits).hold()]
    with snib.connect(server.url, recheck=0.5) as other:
        takers = [
            counted_waits(other, lambda: other.semaphore(semaphore).hold(timeout=20)),
            counted_waits(other, lambda: other.permits(permits).hold(timeout=20)),
        ]
        opened = counted_waits(other, lambda: other.latch(latch).wait(20))
        cut_subscriptions(server)
        for hold in holds:
            hold.release()
        client.latch(latch).count_down()
        for taker in takers:
            taker.get(5).release()
        assert opened.get(5)


SILENT = ["semaphore", "permits", "latch"]


@pytest.mark.parametrize("kind", SILENT)
def test_c2_a_change_without_a_message(
    kind: str, server: SharedServer, client: snib.Client, gone: str
) -> None:
    """Redisson's waiters that miss the message sleep for ever; ours ask again in time."""
    thing = getattr(client, kind)(gone)
    thing.init(1)
    hold = None if kind == "latch" else thing.hold()
    with snib.connect(server.url, recheck=0.3) as other:
        same = getattr(other, kind)(gone)
        call = (lambda: same.wait(30)) if kind == "latch" else (lambda: same.hold(timeout=30))
        taker = counted_waits(other, call)
        eventually(lambda: server.listeners(gone) == 1)
        if kind == "latch":
            server.admin.delete(gone)
        else:
            server.admin.incr(gone)
        assert taker.get(10)
    del hold


def test_c5_renewal_ends_with_the_release(server: SharedServer, name: str) -> None:
    """Releases just when a renewal is due: the key never comes back, nor does it stay."""
    with snib.connect(server.url, lease=0.1) as client:
        lock = client.lock(name)
        for _ in range(30):
            due = client.stats().renewals + 1
            with lock.hold():
                eventually(lambda due=due: client.stats().renewals >= due)
            assert not server.admin.exists(name)
        # Somebody else's lease is not touched by what may still be on its way.
        server.admin.hset(name, STRANGER, 1)
        server.admin.pexpire(name, 300)
        eventually(lambda: not server.admin.exists(name), 2)


@pytest.mark.parametrize("lease", [0, -1, 0.00001, 2**53, 2**63, float("nan"), float("inf")])
@pytest.mark.parametrize("kind", ["mutex", "fair", "read", "write", "fenced", "spin", "plain"])
def test_c7_leases_out_of_range_send_nothing(
    kind: str, lease: float, client: snib.Client, name: str
) -> None:
    client.ping()
    commands = client.stats().commands
    with pytest.raises((snib.UsageError, ValueError)):
        make(client, kind, name, lease=lease).hold(timeout=0)
    assert client.stats().commands == commands


@pytest.mark.parametrize("name", ["a{b", "a}b", "{}a", "{a", "}{", "a{}{b}"])
def test_c8_names_with_stray_braces_are_refused(name: str, client: snib.Client) -> None:
    """Their companion keys could lie in other slots of a cluster."""
    client.ping()
    commands = client.stats().commands
    for kind in ["mutex", "fair", "read", "write", "fenced", "spin", "plain"]:
        with pytest.raises(snib.InvalidName):
            make(client, kind, name).hold(timeout=0)
    for kind in SILENT:
        with pytest.raises(snib.InvalidName):
            getattr(client, kind)(name).init(1)
    assert client.stats().commands == commands


def test_c9_a_silent_release_costs_one_recheck(
    server: SharedServer, client: snib.Client, name: str
) -> None:
    """A spin lock's release tells nobody: a mutex waiting for the name asks again in time."""
    hold = client.spin_lock(name, lease=30.0).hold()
    with snib.connect(server.url, recheck=0.3) as other:
        taker = ours_waits(other, other.lock(name))
        hold.release()
        taker.get(5).release()


def test_c9_spinning_is_bounded_and_jittered(
    server: SharedServer, client: snib.Client, name: str
) -> None:
    """The pauses grow, not without end, and no two are the same: nobody marches in step."""
    hold = client.spin_lock(name).hold()
    with snib.connect(server.url) as other:
        taker = ours_waits(other, other.spin_lock(name))
        eventually(lambda: other.stats().rechecks >= 10)
        pauses = []
        for _ in range(12):
            rechecks, begun = other.stats().rechecks, time.monotonic()
            eventually(lambda n=rechecks: other.stats().rechecks > n)
            pauses.append(time.monotonic() - begun)
        hold.release()
        taker.get(5).release()
    # Twelve of between 64 and 192 ms.
    assert max(pauses[1:]) - min(pauses[1:]) > 0.03, pauses


def test_c12_a_shorter_reentry_does_not_shorten(
    server: SharedServer, client: snib.Client, name: str
) -> None:
    outer = client.rlock(name, lease=30.0)
    inner = client.rlock(name, lease=1.0)
    outer.acquire()
    inner.acquire()
    assert server.admin.pttl(name) > 25_000
    inner.release()
    assert server.admin.pttl(name) > 25_000
    outer.release()


def test_c13_a_hold_never_starts_with_a_neighbours_lease(
    server: SharedServer, client: snib.Client, name: str
) -> None:
    lost = client.lock(name, lease=0.2).hold()
    assert lost.lost.wait(2)
    eventually(lambda: not server.admin.exists(name))
    with client.lock(name).hold():
        assert server.admin.pttl(name) > 25_000


def test_c14_the_holder_is_told_of_its_loss(
    server: SharedServer, quick: snib.Client, name: str
) -> None:
    hold = quick.lock(name).hold()
    server.admin.delete(name)
    assert hold.lost.wait(5)
    with pytest.raises(snib.Lost):
        hold.release()


# ---- D: multi ------------------------------------------------------------------------------------


def test_d_opposite_orders_do_not_embrace(server: SharedServer, name: str) -> None:
    """Multi locks over the same members, in opposite orders, 20 times each."""
    a, b = f"{name}a", f"{name}b"

    def many(members: tuple[str, str]) -> None:
        with snib.connect(server.url) as mine:
            # Fair locks cannot be taken by one command: the order is what saves them.
            both = snib.MultiLock([mine.fair_lock(member) for member in members])
            for _ in range(20):
                both.hold(timeout=20).release()

    for crew in [Waiting(lambda: many((a, b))), Waiting(lambda: many((b, a)))]:
        crew.get(20)


def test_d_a_lease_is_not_multiplied(server: SharedServer, client: snib.Client, name: str) -> None:
    blocker = client.lock(f"{name}b").hold()
    with snib.connect(server.url, recheck=0.2) as other:
        locks = [other.lock(f"{name}{letter}") for letter in "ab"]
        taker = ours_waits(other, snib.MultiLock(locks, lease=10.0))
        rechecks = other.stats().rechecks
        eventually(lambda: other.stats().rechecks >= rechecks + 3)
        blocker.release()
        hold = taker.get()
        for letter in "ab":
            assert 8_000 < server.admin.pttl(f"{name}{letter}") <= 10_000
        hold.release()


# ---- F: fenced -----------------------------------------------------------------------------------


def test_f1_a_lock_without_ttl_is_held(
    server: SharedServer, client: snib.Client, name: str
) -> None:
    server.admin.hset(name, STRANGER, 1)
    with pytest.raises(snib.Busy):
        client.fenced_lock(name).hold(timeout=0)
    with pytest.raises(snib.Timeout):
        client.fenced_lock(name).hold(timeout=0.1)
    assert server.admin.hgetall(name) == {STRANGER: "1"}
    server.admin.delete(name)


def test_f3_a_fenced_lease_is_the_lease(
    server: SharedServer, client: snib.Client, name: str
) -> None:
    with client.fenced_lock(name, lease=5.0).hold() as hold:
        assert hold.token >= 1
        assert 4_000 < server.admin.pttl(name) <= 5_000


def test_f4_a_grant_nobody_heard_of_is_taken_back(new_server: NewServer) -> None:
    server = new_server()
    with snib.connect(server.url, patience=0.4, reply_timeout=0.2) as client:
        client.fenced_lock("f").hold().release()
        with server.stopped(), pytest.raises(snib.Error):
            client.fenced_lock("f").hold(timeout=5)
        eventually(lambda: int(server.admin.get("redisson_lock_token:{f}")) >= 2)
        eventually(lambda: not server.admin.exists("f"), TIDY)
        with client.fenced_lock("f").hold(timeout=0) as hold:
            assert hold.token >= 3


# ---- G: counters ---------------------------------------------------------------------------------


HOLD_A_PERMIT = """
client = snib.connect(URL, lease=0.5)
hold = client.permits(sys.argv[2]).hold()
say("held")
sys.stdin.read()
"""


def test_g1_permits_of_the_dead_come_back(
    server: SharedServer, client: snib.Client, gone: str
) -> None:
    client.permits(gone).init(1)
    dying = Program(HOLD_A_PERMIT, server.url, gone)
    try:
        assert dying.hear() == "held"
        with pytest.raises(snib.Busy):
            client.permits(gone).hold(timeout=0)
    finally:
        dying.process.kill()
        dying.process.communicate()
    client.permits(gone).hold(timeout=10).release()


def test_g2_changes_keep_the_ttl(server: SharedServer, client: snib.Client, gone: str) -> None:
    semaphore = client.semaphore(gone)
    server.admin.set(gone, 3, px=60_000)
    assert semaphore.add(2) == 5
    assert semaphore.drain() == 5
    assert semaphore.put_back(2) == 2
    semaphore.hold(n=2).release()
    assert 0 < server.admin.pttl(gone) <= 60_000


@pytest.mark.parametrize("expired", [8_000, 20_000])
def test_g3_any_number_of_permits_can_expire(
    server: SharedServer, client: snib.Client, gone: str, expired: int
) -> None:
    server.admin.set(gone, 0)
    ids = {f"{number:016}": 1_000 + number for number in range(expired)}
    server.admin.zadd(f"{{{gone}}}:timeout", ids)
    permits = client.permits(gone)
    eventually(lambda: permits.available() == expired)
    assert permits.total() == expired
    assert not server.admin.exists(f"{{{gone}}}:timeout")


def test_g4_a_late_release_says_so(server: SharedServer, client: snib.Client, gone: str) -> None:
    permits = client.permits(gone, lease=0.2)
    permits.init(1)
    late = permits.hold()
    assert late.lost.wait(5)
    with pytest.raises(snib.Lost):
        late.release()
    eventually(lambda: permits.available() == 1)
    assert permits.total() == 1


def test_g5_a_deleted_latch_opens(server: SharedServer, client: snib.Client, gone: str) -> None:
    latch = client.latch(gone)
    latch.init(2)
    with listening(server, f"redisson_countdownlatch__channel__{{{gone}}}") as hear:
        assert latch.force_release()
        # Redisson's awaiters ignore the first; the second frees them.
        heard = [hear()]
        while heard[-1] != "0":
            heard.append(hear())
    assert heard in (["0"], ["1", "0"])

"""Semaphores, permits and latches against a real server."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

import snib
from support import PATIENCE, RENEWED, Server, eventually

KINDS = ["semaphore", "permits"]


@pytest.fixture(params=KINDS)
def pool(request: pytest.FixtureRequest, server: Server, client: snib.Client) -> Iterator:
    """Either kind, with 3 permits; the number stays until it is deleted."""
    pool = getattr(client, request.param)("pool")
    assert pool.init(3) is True
    yield pool
    pool.force_release()


@pytest.fixture
def other(server: Server) -> Iterator[snib.Client]:
    with snib.connect(server.url) as client:
        yield client


@pytest.fixture
def permits(server: Server, client: snib.Client) -> Iterator[snib.Permits]:
    permits = client.permits("pool")
    yield permits
    permits.force_release()


@pytest.fixture
def semaphore(server: Server, client: snib.Client) -> Iterator[snib.Semaphore]:
    semaphore = client.semaphore("pool")
    yield semaphore
    semaphore.force_release()


# ---- Both ----------------------------------------------------------------------------------------


def test_permits_are_counted(pool) -> None:
    assert pool.available() == 3 and not pool.locked()
    with pool as hold:
        assert isinstance(hold, snib.Hold)
        assert hold.state is snib.State.VALID and hold.remaining() > 25
        assert hold.token == 0
        hold.check()
        assert pool.available() == 2
        with pool.hold(n=2):
            assert pool.available() == 0 and pool.locked()
            assert pool.acquire(blocking=False) is False
            assert pool.acquire(timeout=0.05) is False
            with pytest.raises(snib.Busy, match="pool"):
                pool.hold(timeout=0)
            with pytest.raises(snib.Timeout, match="permits"), pool.hold(n=2, timeout=0.02):
                pytest.fail("ran without a permit")
        assert pool.available() == 2
    assert hold.state is snib.State.RELEASED
    assert pool.available() == 3
    for call in [hold.check, hold.release, pool.release]:
        with pytest.raises(snib.NotHeld):
            call()


def test_acquire_takes_all_or_nothing(pool) -> None:
    assert pool.acquire(n=2) is True
    assert pool.acquire(False, n=2) is False
    assert pool.acquire(True, PATIENCE) is True
    assert pool.available() == 0
    pool.release()
    assert pool.available() == 1, "the newest acquire had one"
    pool.release()
    assert pool.available() == 3
    with pytest.raises(RuntimeError):
        pool.release()


def test_any_thread_may_release(pool) -> None:
    assert pool.acquire(n=2)
    thread = threading.Thread(target=pool.release)
    thread.start()
    thread.join()
    assert pool.available() == 3


def test_a_thread_gives_back_its_own_first(pool) -> None:
    assert pool.acquire(n=2)

    def work() -> None:
        pool.acquire(n=1)
        pool.release()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert pool.available() == 1
    pool.release()


def test_with_gives_back_what_it_took(pool) -> None:
    with pool as hold:
        assert pool.acquire(n=2)
    assert hold.state is snib.State.RELEASED
    assert pool.available() == 1
    with pool:
        pool.release()  # what acquire() took
        assert pool.available() == 2
        with pytest.raises(snib.NotHeld):
            pool.release(2)
    assert pool.available() == 3


def test_equal_amounts_need_no_search(pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """To try all sums of thousands of permits takes minutes, in which no task of a loop runs."""
    monkeypatch.setattr("snib._kept._any_that_fit", lambda order, wanted: pytest.fail("a search"))
    for _ in range(3):
        assert pool.acquire()
    pool.release(2)
    assert pool.available() == 2
    pool.release(1)
    assert pool.available() == 3
    assert pool.acquire(n=2) and pool.acquire()
    with pytest.raises(snib.NotHeld):
        pool.release(4)
    pool.release(3)


def test_the_newest_needs_no_search(pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands would look through each other."""

    def search(*_: object) -> None:
        raise AssertionError("there was a search")

    with pool:
        for _ in range(2):
            assert pool.acquire()
    monkeypatch.setattr("snib._kept.Kept._order", search)
    for _ in range(2):
        pool.release()


def test_amounts_that_need_a_search(pool) -> None:
    pool.add(7)
    for n in (2, 2, 3):  # the newest first: 3 and nothing that fits beside it
        assert pool.acquire(n=n)
    pool.release(4)
    assert pool.available() == 7
    pool.release(3)


def test_never_more_than_there_are(pool) -> None:
    inside = turns = most = 0
    mutex = threading.Lock()

    def work() -> None:
        nonlocal inside, turns, most
        for _ in range(20):
            with pool:
                with mutex:
                    inside += 1
                    most = max(most, inside)
                with mutex:
                    turns += 1
                    inside -= 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert turns == 160 and most <= 3
    assert pool.available() == 3


def test_a_waiter_gets_them(pool, other: snib.Client) -> None:
    hold = pool.hold(n=3)
    rival = getattr(other, "permits" if isinstance(pool, snib.Permits) else "semaphore")("pool")
    got = []
    thread = threading.Thread(target=lambda: got.append(rival.hold(n=2, timeout=PATIENCE)))
    thread.start()
    eventually(lambda: other.stats().waiting)
    hold.release()
    thread.join()
    assert rival.available() == 1
    got[0].release()


def test_the_number_is_set_once_and_changed(pool) -> None:
    assert pool.init(7) is False
    assert pool.add(2) == 5
    assert pool.add(-1) == 4
    assert pool.available() == 4


def test_without_a_number_there_are_none(client: snib.Client) -> None:
    for pool in [client.semaphore("unset"), client.permits("unset")]:
        assert pool.available() == 0 and pool.locked()
        assert pool.force_release() is False


BAD_COUNTS = [0, -1, -(2**31), 1001, 2**31, 2**32, 2**32 + 1, 2**63, -(2**70), 10**5000]


def shown(n: int) -> str:
    return f"{n.bit_length()} bits{' -' if n < 0 else ''} {n % 1000}"


@pytest.mark.parametrize("n", BAD_COUNTS, ids=shown)
def test_bad_counts(pool, n: int) -> None:
    calls = [lambda: pool.acquire(n=n), lambda: pool.acquire(False, n=n), lambda: pool.hold(n=n)]
    if n == 0 or abs(n) >= 2**31:
        calls.append(lambda: pool.add(n))
    if n < 0 or n >= 2**31:
        calls += [lambda: pool.init(n)]
        if isinstance(pool, snib.Permits):
            calls.append(lambda: pool.set(n))
    if isinstance(pool, snib.Semaphore) and (n <= 0 or n >= 2**31):
        calls.append(lambda: pool.put_back(n))
    for call in calls:
        with pytest.raises(snib.InvalidPermits) as caught:
            call()
        assert isinstance(caught.value, ValueError) and "\n" not in str(caught.value)
    assert pool.available() == 3


@pytest.mark.parametrize("n", [True, False, 1.0, "1", b"1", None, [1]], ids=repr)
def test_counts_of_another_type(pool, n) -> None:
    calls = [lambda n: pool.acquire(n=n), lambda n: pool.hold(n=n), pool.init, pool.add]
    calls.append(pool.set if isinstance(pool, snib.Permits) else pool.put_back)
    for call in calls:
        with pytest.raises(TypeError, match="must be an int"):
            call(n)
    assert pool.available() == 3


def test_bad_times(pool) -> None:
    for timeout in [float("nan"), float("inf"), 1e6]:
        for call in [lambda t=timeout: pool.acquire(timeout=t), lambda t=timeout: pool.hold(timeout=t)]:
            with pytest.raises(snib.InvalidArgument):
                call()
    with pytest.raises(snib.InvalidArgument):
        pool.hold(timeout=-2)
    for timeout in [1, 0, -1]:
        with pytest.raises(snib.InvalidArgument):
            pool.acquire(False, timeout)
    with pytest.raises(TypeError):
        pool.hold(timeout="2")


@pytest.mark.parametrize("kind", [*KINDS, "latch"])
def test_bad_names(client: snib.Client, kind: str) -> None:
    for name in ["", "x" * 513, "nul\0", "a{b", "lone \ud800"]:
        with pytest.raises(snib.InvalidName):
            getattr(client, kind)(name)
    assert repr(getattr(client, kind)("shown")) == f"<snib.{kind.capitalize()} 'shown'>"


def test_a_key_of_another_type(server: Server, client: snib.Client) -> None:
    server.admin.rpush("list", "precious")
    semaphore, permits, latch = (
        client.semaphore("list"),
        client.permits("list"),
        client.latch("list"),
    )
    for call in [
        lambda: semaphore.acquire(False),
        lambda: semaphore.init(1),
        semaphore.drain,
        semaphore.force_release,
        lambda: permits.acquire(False),
        lambda: permits.set(1),
        permits.total,
        permits.force_release,
        latch.count,
        latch.count_down,
        latch.wait,
        latch.force_release,
    ]:
        with pytest.raises(snib.WrongType):
            call()
    assert server.admin.lrange("list", 0, -1) == ["precious"]
    server.admin.delete("list")


def test_a_closed_client(server: Server) -> None:
    client = snib.connect(server.url)
    semaphore, permits, latch = client.semaphore("c"), client.permits("c"), client.latch("c")
    client.close()
    for call in [
        semaphore.acquire,
        semaphore.available,
        permits.acquire,
        permits.total,
        latch.wait,
        latch.count_down,
    ]:
        with pytest.raises(snib.Closed):
            call()


def test_a_queue_takes_permits(pool, client: snib.Client) -> None:
    queue = snib.Queue(client)
    ticket = queue.acquire(pool, n=2)
    events: list[snib.Event] = []
    eventually(lambda: events.extend(queue.drain()) or events)
    assert events[0].ticket == ticket and pool.available() == 1
    assert isinstance(events[0].result, snib.Hold)
    queue.release(events[0].result)
    eventually(lambda: len(events) == 2 or events.extend(queue.drain()))
    assert events[1].result is None and pool.available() == 3
    with pytest.raises(snib.InvalidPermits):
        queue.acquire(pool, n=0)


# ---- Semaphores ----------------------------------------------------------------------------------


def test_a_semaphore_has_no_owners(semaphore: snib.Semaphore, other: snib.Client) -> None:
    semaphore.init(2)
    hold = semaphore.hold(n=2)
    assert hold.remaining() == float("inf")
    assert other.semaphore("pool").put_back() == 1
    assert semaphore.put_back(4) == 5
    hold.release()
    assert semaphore.drain() == 7
    assert semaphore.drain() == 0


def test_put_back_wakes(semaphore: snib.Semaphore, other: snib.Client) -> None:
    got = []
    thread = threading.Thread(target=lambda: got.append(semaphore.acquire(n=2, timeout=PATIENCE)))
    thread.start()
    eventually(lambda: semaphore._client.stats().waiting)
    other.semaphore("pool").put_back(2)
    thread.join()
    assert got == [True]
    semaphore.release()


# ---- Permits -------------------------------------------------------------------------------------


def test_permits_have_a_number_in_all(permits: snib.Permits) -> None:
    assert permits.set(4) == 4
    with permits.hold(n=3):
        assert (permits.available(), permits.total()) == (1, 4)
        assert permits.set(10) == 7
        assert (permits.available(), permits.total()) == (7, 10)
        assert permits.set(2) <= 0
        assert permits.total() == 2
    assert permits.available() == 2


def test_more_than_there_are(permits: snib.Permits) -> None:
    permits.init(2)
    for call in [lambda: permits.acquire(n=3), lambda: permits.hold(n=3), lambda: permits.hold(n=3, timeout=0)]:
        with pytest.raises(snib.InvalidPermits):
            call()
    assert permits.available() == 2


def test_permits_have_a_lease(server: Server, client: snib.Client) -> None:
    permits = client.permits("pool", lease=2)
    permits.init(2)
    hold = permits.hold(n=2)
    assert hold.remaining() < 2
    assert hold.lost.wait(PATIENCE) and hold.reason == "expired"
    with pytest.raises(snib.Lost):
        hold.release()
    eventually(lambda: permits.available() == 2)
    permits.force_release()


def test_permits_are_renewed(server: Server) -> None:
    with snib.connect(server.url, lease=RENEWED) as client:
        permits = client.permits("pool")
        permits.init(1)
        with permits as hold:
            eventually(lambda: client.stats().renewals >= 4)
            hold.check()
            assert permits.available() == 0
        permits.force_release()


def test_bad_leases(client: snib.Client) -> None:
    for lease in [0, -1, 0.05, 90000, float("inf")]:
        with pytest.raises(snib.InvalidLease):
            client.permits("pool", lease=lease)
    with pytest.raises(TypeError):
        client.semaphore("pool", lease=1)  # type: ignore[call-arg]


def test_describe_permits(permits: snib.Permits, client: snib.Client) -> None:
    permits.init(5)
    with permits.hold(n=2):
        found = client.describe("pool")
        assert (found.kind, found.available, found.total) == ("permits", 3, 5)
        assert len(found.permits) == 2
        for permit in found.permits:
            assert len(permit.id) == 32 and permit.remaining is not None and permit.remaining > 25


# ---- Latches -------------------------------------------------------------------------------------


def test_a_latch_opens_at_zero(client: snib.Client, other: snib.Client) -> None:
    latch = client.latch("start")
    assert latch.count() == 0 and latch.wait() is True and latch.wait(0) is True
    assert latch.init(2) is True
    assert latch.init(5) is False
    assert latch.count() == 2
    assert latch.wait(0) is False
    assert latch.wait(timeout=0.05) is False
    opened = []
    thread = threading.Thread(target=lambda: opened.append(latch.wait(PATIENCE)))
    thread.start()
    eventually(lambda: client.stats().waiting)
    assert other.latch("start").count_down() == 1
    assert other.latch("start").count_down() == 0
    thread.join()
    assert opened == [True]
    assert latch.count_down() == 0 and latch.count() == 0


def test_a_latch_can_be_forced_open(client: snib.Client, other: snib.Client) -> None:
    latch = client.latch("forced")
    latch.init(100)
    assert client.describe("forced").count == 100
    assert other.latch("forced").force_release() is True
    assert latch.wait(PATIENCE) is True
    assert latch.force_release() is False


@pytest.mark.parametrize("n", [0, -1, 2**31, 2**64, 10**5000], ids=shown)
def test_bad_latch_counts(client: snib.Client, n: int) -> None:
    with pytest.raises(snib.InvalidPermits):
        client.latch("start").init(n)


@pytest.mark.parametrize("n", [True, 1.0, "1", None], ids=repr)
def test_latch_counts_of_another_type(client: snib.Client, n) -> None:
    with pytest.raises(TypeError, match="must be an int"):
        client.latch("start").init(n)


def test_bad_latch_times(client: snib.Client) -> None:
    for timeout in [-2, float("nan"), 1e6]:
        with pytest.raises(snib.InvalidArgument):
            client.latch("start").wait(timeout)
    with pytest.raises(TypeError):
        client.latch("start").wait("1")  # type: ignore[arg-type]


def test_a_queue_waits_for_latches(client: snib.Client) -> None:
    latch = client.latch("start")
    latch.init(1)
    queue = snib.Queue(client)
    ticket, late = queue.wait(latch), queue.wait(latch, 0.02)
    events: dict[int, snib.Event] = {}

    def drained(count: int) -> bool:
        events.update({event.ticket: event for event in queue.drain()})
        return len(events) == count

    eventually(lambda: drained(1))
    assert isinstance(events[late].result, snib.Timeout)
    latch.count_down()
    eventually(lambda: drained(2))
    assert events[ticket].result is None

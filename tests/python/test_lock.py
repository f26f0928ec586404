"""The synchronous API against a real server."""

from __future__ import annotations

import ctypes
import gc
import re
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import snib
from support import PATIENCE, RENEWED, Server, eventually, kept_clients


def in_thread(call):
    """Run a call in another thread; return its result or raise its exception."""
    box = []

    def run():
        try:
            box.append((call(), None))
        except BaseException as error:
            box.append((None, error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    result, error = box[0]
    if error is not None:
        raise error
    return result


# ---- Lock ----------------------------------------------------------------------------------------


def test_with_gives_the_hold_and_releases(server: Server, client: snib.Client) -> None:
    lock = client.lock("orders")
    with lock as hold:
        assert isinstance(hold, snib.Hold)
        assert hold.state is snib.State.VALID
        assert 25 < hold.remaining() <= 30
        assert hold.token == 0
        assert hold.owner.startswith(client.id + ":")
        assert hold.reason is None
        assert not hold.lost.is_set()
        hold.check()
        assert server.admin.type("orders") == "hash"
        assert lock.locked()
    assert hold.state is snib.State.RELEASED
    assert hold.remaining() == 0
    assert not hold.lost.is_set()
    assert not lock.locked()
    with pytest.raises(snib.NotHeld):
        hold.check()
    with pytest.raises(snib.NotHeld):
        hold.release()


def test_acquire_has_the_habits_of_threading_lock(client: snib.Client) -> None:
    lock, other = client.lock("habits"), client.lock("habits")
    assert lock.acquire() is True
    assert other.acquire(False) is False
    assert other.acquire(blocking=False) is False
    start = time.monotonic()
    assert other.acquire(timeout=0.2) is False
    assert time.monotonic() - start > 0.19
    assert lock.acquire(True, 0.001) is False, "the same object waits for itself"
    lock.release()
    with pytest.raises(RuntimeError):
        lock.release()
    with pytest.raises(ValueError):
        lock.acquire(False, 1)
    with pytest.raises(ValueError):
        lock.acquire(timeout=-2)


def test_another_thread_may_release(client: snib.Client) -> None:
    lock = client.lock("handed")
    in_thread(lock.acquire)
    lock.release()
    lock.acquire()
    in_thread(lock.release)
    assert not lock.locked()


def test_one_object_excludes_threads(client: snib.Client) -> None:
    lock = client.lock("counter")
    inside = turns = 0

    def work() -> None:
        nonlocal inside, turns
        for _ in range(50):
            with lock:
                inside += 1
                assert inside == 1
                turns += 1
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert turns == 400


def test_each_thread_gives_back_its_own_hold(server: Server) -> None:
    """A thread whose hold was lost must not release the hold of the thread after it."""
    with snib.connect(server.url, lease=RENEWED) as client:
        lock = client.lock("own")
        assert lock.acquire()
        server.admin.delete("own")
        in_thread(lambda: (lock.acquire(timeout=PATIENCE), lock.release()))
        assert in_thread(lambda: lock.acquire(timeout=PATIENCE))
        with pytest.raises(snib.Lost):
            lock.release()
        assert lock.locked()
        lock.release()
        assert not lock.locked()


def test_hold_raises_instead_of_running_unlocked(client: snib.Client) -> None:
    lock = client.lock("raise")
    with lock.hold() as hold:
        with pytest.raises(snib.Busy):
            lock.hold(timeout=0)
        with pytest.raises(snib.Timeout), lock.hold(timeout=0.05):
            pytest.fail("ran unlocked")
        with pytest.raises(TimeoutError):
            lock.hold(timeout=0.01)
        hold.check()
    with pytest.raises(snib.NotHeld):
        hold.release()


def test_hold_may_be_released_early_and_anywhere(client: snib.Client) -> None:
    hold = client.lock("early").hold(timeout=1)
    in_thread(hold.release)
    assert hold.state is snib.State.RELEASED


def test_a_lock_keeps_its_client_open(server: Server) -> None:
    hold = snib.connect(server.url).lock("kept").hold()
    gc.collect()
    hold.check()
    hold.release()


def test_lock_and_hold_have_a_repr(server: Server, client: snib.Client) -> None:
    with client.lock("shown") as hold:
        assert repr(client.lock("shown")) == "<snib.Lock 'shown'>"
        assert repr(client.rlock("shown")) == "<snib.RLock 'shown'>"
        assert repr(hold) == f"<snib.Hold of 'shown', <snib.Client {client.id}>>"


# ---- Loss ----------------------------------------------------------------------------------------


def test_a_fixed_lease_ends_before_the_key(server: Server, client: snib.Client) -> None:
    hold = client.lock("fixed", lease=RENEWED).hold()
    assert 0 < hold.remaining() < RENEWED
    eventually(lambda: not server.admin.exists("fixed"))
    assert hold.lost.is_set(), "the key has ended before the hold"
    assert hold.lost.wait() is True
    assert hold.state is snib.State.LOST
    assert f"{hold.state}" == str(hold.state) == "lost"  # in words, as in Go
    assert hold.reason == "expired"
    assert hold.remaining() == 0
    with pytest.raises(snib.Lost, match="expired"):
        hold.check()
    with pytest.raises(snib.Lost):
        hold.release()


def test_with_raises_lost_at_its_end(server: Server, client: snib.Client) -> None:
    with pytest.raises(snib.Lost), client.lock("end", lease=2) as hold:
        assert hold.lost.wait(PATIENCE)
        assert hold.lost.wait(-1)
    eventually(server.clean)


def test_an_exception_in_flight_is_not_replaced(server: Server, client: snib.Client) -> None:
    with pytest.raises(ZeroDivisionError), client.lock("flight", lease=2) as hold:
        assert hold.lost.wait(PATIENCE)
        raise ZeroDivisionError
    eventually(server.clean)


def test_waiting_for_the_loss_ends_with_time_and_release(client: snib.Client) -> None:
    hold = client.lock("ends").hold()
    assert hold.lost.wait(0) is False
    assert hold.lost.wait(0.05) is False
    for negative in [-1, -1.0, -0.5, -1e300, -(10**400), float("-inf")]:  # as in threading.Event
        assert hold.lost.wait(negative) is False
    timer = threading.Timer(0.05, hold.release)
    timer.start()
    assert hold.lost.wait(PATIENCE) is False
    timer.join()


def test_a_deleted_key_is_noticed_at_the_next_renewal(server: Server) -> None:
    with snib.connect(server.url, lease=RENEWED) as client:
        hold = client.lock("deleted").hold()
        server.admin.delete("deleted")
        assert hold.lost.wait(PATIENCE) is True
        assert hold.reason == "deleted"


def test_max_hold_ends_renewal(server: Server) -> None:
    with snib.connect(server.url, lease=RENEWED) as client:
        start = time.monotonic()
        hold = client.lock("long", max_hold=RENEWED + 1).hold()
        assert hold.lost.wait(PATIENCE)
        assert time.monotonic() - start > RENEWED
        assert hold.reason == "max hold"
    eventually(server.clean)


def test_close_loses_holds_and_releases_them(server: Server) -> None:
    client = snib.connect(server.url)
    hold = client.lock("closed").hold()
    client.close()
    assert server.clean()
    assert hold.lost.is_set()
    assert hold.reason == "closed"
    client.close()


@pytest.mark.parametrize("kind", ["lock", "rlock", "fair_lock", "permits", "semaphore", "hold"])
def test_a_block_whose_client_is_closed_is_lost(server: Server, kind: str) -> None:
    """Whatever closes it: another thread, or release_on_sigterm()."""
    client = snib.connect(server.url)
    lock = client.lock("x") if kind == "hold" else getattr(client, kind)("x")
    if kind in ("permits", "semaphore"):
        lock.init(1)
    with pytest.raises(snib.Lost) as caught, lock.hold() if kind == "hold" else lock:
        assert client._number in kept_clients() or kind == "hold"
        client.close()
    assert caught.value.reason == "closed"
    assert client._number not in kept_clients()
    server.admin.delete("x", "{x}:timeout")


def test_a_released_hold_protects_no_block(client: snib.Client) -> None:
    """The block does not run, instead of being told at its end."""
    with client.lock("x").hold() as hold:
        pass
    with pytest.raises(snib.NotHeld, match="released before") as caught, hold:
        pytest.fail("ran without the lock")
    assert caught.value.name == "x"


def test_a_block_that_never_ends_keeps_no_closed_client(server: Server) -> None:
    """Such as that of a generator, or of a task whose loop is gone."""
    client = snib.connect(server.url)
    known = weakref.ref(client)
    client.lock("x").__enter__()
    client.close()
    del client
    gc.collect()
    assert known() is None


def test_holding_the_gil_keeps_the_lock(server: Server) -> None:
    """Code that never releases the GIL loses no lock: the watchdog needs no Python."""
    with snib.connect(server.url, lease=RENEWED) as client, client.lock("gil") as hold:
        # PyDLL keeps the GIL during the call.
        ctypes.PyDLL(None).usleep(int((RENEWED + 1) * 1_000_000))
        hold.check()
        assert server.admin.pttl("gil") > 0
        assert client.stats().renewals >= 3


# ---- RLock ---------------------------------------------------------------------------------------


def test_rlock_counts_in_its_thread(server: Server, client: snib.Client) -> None:
    lock = client.rlock("again")
    with lock as outer:
        before = client.stats().commands
        with lock as inner, client.rlock("again"):
            assert client.stats().commands == before, "a re-entry needs no round trip"
            assert inner.owner == outer.owner
            assert [int(count) for count in server.admin.hvals("again")] == [1]
        assert lock.acquire() is True
        lock.release()
        assert lock.locked()
        outer.check()
    assert not lock.locked()
    assert client.stats().reentries == 3


def test_a_released_reentry_is_released(client: snib.Client) -> None:
    """Its owner's other holds, with which it shares the core's, change nothing."""
    lock = client.rlock("again")
    with lock as outer:
        with lock as inner:
            inner.check()
        assert inner.state is snib.State.RELEASED and inner.remaining() == 0.0
        for call in (inner.check, lambda: inner.extend(5.0), lambda: snib.Queue(client).extend(inner, 5.0)):
            with pytest.raises(snib.NotHeld, match="released before"):
                call()
        assert inner.lost.wait() is False
        outer.check()
        assert outer.remaining() > 5.0


@pytest.mark.parametrize("kind", ["rlock", "read", "write"])
def test_a_released_reentry_ends_waiting_for_its_loss(client: snib.Client, kind: str) -> None:
    """In another thread, whose wait for the loss of the outer hold goes on."""
    lock: Any = client.rlock("again") if kind == "rlock" else getattr(client.rwlock("again"), kind)
    outer, inner = lock.hold(), lock.hold()
    with ThreadPoolExecutor(2) as threads:
        goes_on, ends = (threads.submit(hold.lost.wait, 2 * PATIENCE) for hold in (outer, inner))
        time.sleep(0.05)  # until both wait; nothing shows when, and otherwise they would not have to be woken
        inner.release()
        assert ends.result(PATIENCE) is False
        assert not goes_on.done()
        outer.release()
        assert goes_on.result(PATIENCE) is False


def test_rlock_belongs_to_its_thread(client: snib.Client) -> None:
    lock = client.rlock("mine")
    with pytest.raises(snib.NotHeld):
        lock.release()
    with lock:
        assert in_thread(lambda: lock.acquire(timeout=0.05)) is False
        with pytest.raises(RuntimeError):
            in_thread(lock.release)
        with pytest.raises(snib.Busy):
            in_thread(lambda: lock.hold(timeout=0))
        assert lock.locked()
    in_thread(lambda: (lock.acquire(), lock.release()))


def test_an_inner_hold_cannot_be_released_twice(client: snib.Client) -> None:
    lock = client.rlock("twice")
    with lock as outer:
        inner = lock.hold()
        inner.release()
        with pytest.raises(snib.NotHeld):
            inner.release()
        outer.check()


def test_threads_share_one_rlock_object(client: snib.Client) -> None:
    lock = client.rlock("shared")
    inside = 0

    def work() -> None:
        nonlocal inside
        for _ in range(20):
            with lock, lock:
                inside += 1
                assert inside == 1
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# ---- Inspection
# -------------------------------------------------------------------------------------


def test_info_tells_who_holds(server: Server, client: snib.Client) -> None:
    lock = client.lock("told")
    assert lock.info() == snib.LockInfo(False, 0.0, 0, 0, False, "")
    with snib.connect(server.url) as other, other.lock("told") as hold:
        info = lock.info()
        assert info.held and info.count == 1 and not info.mine
        assert info.owner == hold.owner
        assert info.remaining is not None and 25 < info.remaining <= 30
        assert other.lock("told").info().mine


def test_force_release_takes_from_anybody(server: Server, client: snib.Client) -> None:
    with snib.connect(server.url, lease=RENEWED) as other:
        hold = other.lock("forced").hold()
        lock = client.lock("forced")
        assert lock.force_release() is True
        assert lock.force_release() is False
        assert hold.lost.wait(PATIENCE)
        assert hold.reason == "deleted"


def test_force_release_wakes_a_waiter(server: Server, client: snib.Client) -> None:
    with snib.connect(server.url, recheck=60) as other:
        stuck = client.lock("woken").hold()
        waiter = threading.Thread(target=lambda: other.lock("woken").hold(timeout=600).release())
        waiter.start()
        eventually(lambda: client.lock("woken").info().waiting)
        assert client.lock("woken").force_release()
        waiter.join(PATIENCE)
        assert not waiter.is_alive()
        with pytest.raises(snib.Lost):
            stuck.release()


def test_list_finds_locks_by_pattern(server: Server, client: snib.Client) -> None:
    holds = [client.lock(f"job:{number:03}").hold() for number in range(300)]
    other = client.lock("task").hold()
    server.admin.set("job:text", "no lock")
    names = [f"job:{number:03}" for number in range(300)]
    assert client.list("job:*") == names
    assert client.list() == [*names, "task"]
    assert client.list("job:00[12]") == ["job:001", "job:002"]
    assert client.list("none*") == []
    server.admin.delete("job:text")
    for hold in [*holds, other]:
        hold.release()


def test_stats_count(client: snib.Client) -> None:
    lock = client.lock("counted")
    with lock:
        assert client.stats().held == 1
        lock.acquire(timeout=0.01)
    stats = client.stats()
    assert (stats.acquisitions, stats.releases, stats.timeouts, stats.held) == (1, 1, 1, 0)
    assert len(stats.wait_time) == len(stats.hold_time) == 32
    assert sum(stats.hold_time) == 1
    assert stats.memory > 0


def test_stats_are_those_of_the_header() -> None:
    header = (Path(__file__).parents[2] / "core/include/snib.h").read_text()
    body = header.partition("typedef struct snib_client_stats_data {")[2].partition("}")[0]
    assert list(snib.Stats.__annotations__) == re.findall(r"uint64_t (\w+)", body)


def test_ping(client: snib.Client) -> None:
    assert client.ping() is None
    client.ping(timeout=PATIENCE)


def test_version_and_names() -> None:
    assert snib.__version__ == "0.1.0"
    missing = [name for name in snib.__all__ if not hasattr(snib, name)]
    assert not missing

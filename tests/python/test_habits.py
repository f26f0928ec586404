"""The conventions of threading's locks on named locks, after CPython's own tests."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator

import pytest

import snib
import snib.aio
from support import PATIENCE, Server, eventually, thread_count

LOCKS: dict[str, Callable] = {
    "Lock": lambda client: client.lock("name"),
    "RLock": lambda client: client.rlock("name"),
    "FairLock": lambda client: client.fair_lock("name"),
    "PlainLock": lambda client: client.plain_lock("name"),
}
POOLS: dict[str, Callable] = {
    "Semaphore": lambda client: client.semaphore("name"),
    "Permits": lambda client: client.permits("name"),
}


@pytest.fixture(params=LOCKS)
def lock(request: pytest.FixtureRequest, server: Server, client: snib.Client):
    return LOCKS[request.param](client)


@pytest.fixture(params=POOLS)
def pool(request: pytest.FixtureRequest, server: Server, client: snib.Client) -> Iterator:
    pool = POOLS[request.param](client)
    pool.init(7)
    yield pool
    pool.force_release()


class Bunch:
    """Threads that run a function, and that can be awaited."""

    def __init__(self, function: Callable[[], object], count: int) -> None:
        self.started: list[int] = []
        self.finished: list[object] = []
        self.failures: list[BaseException] = []

        def run() -> None:
            self.started.append(threading.get_ident())
            try:
                self.finished.append(function())
            except BaseException as error:
                self.failures.append(error)

        self.threads = [threading.Thread(target=run) for _ in range(count)]

    def __enter__(self) -> Bunch:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for thread in self.threads:
            thread.join(PATIENCE)
        assert not [thread for thread in self.threads if thread.is_alive()]
        assert not self.failures


def other(call: Callable[[], object]) -> object:
    with Bunch(call, 1) as bunch:
        pass
    return bunch.finished[0]


# ---- All locks -----------------------------------------------------------------------------------


def test_acquire_and_release(lock) -> None:
    for _ in range(3):
        assert lock.acquire() is True
        assert lock.release() is None
    lock.acquire()
    lock.release()
    with pytest.raises(RuntimeError):
        lock.release()


def test_try_acquire(lock) -> None:
    assert lock.acquire(False) is True
    lock.release()
    assert lock.acquire(0) is True
    lock.release()
    assert lock.acquire(blocking=False) is True
    assert other(lambda: lock.acquire(False)) is False
    assert other(lambda: lock.acquire(blocking=False)) is False
    lock.release()


def test_acquire_contended(lock) -> None:
    inside: list[int] = []

    def work() -> None:
        lock.acquire()
        inside.append(1)
        assert len(inside) == 1
        inside.clear()
        lock.release()

    lock.acquire()
    with Bunch(work, 5) as bunch:
        eventually(lambda: len(bunch.started) == 5)
        time.sleep(0.02)  # time for an error to show
        assert not bunch.finished
        lock.release()
    assert len(bunch.finished) == 5


def test_with(lock) -> None:
    def block(error: type[BaseException] | None = None) -> None:
        with lock:
            assert other(lambda: lock.acquire(False)) is False
            if error is not None:
                raise error

    block()
    with pytest.raises(ZeroDivisionError):
        block(ZeroDivisionError)
    block()
    assert not lock.locked()


def test_threads_are_not_left(lock) -> None:
    lock.acquire()
    before = thread_count()
    with Bunch(lambda: lock.acquire(timeout=0.01), 15):
        pass
    eventually(lambda: thread_count() <= before)
    lock.release()


def test_timeouts(lock) -> None:
    with pytest.raises(ValueError):
        lock.acquire(0, 1)
    with pytest.raises(ValueError):
        lock.acquire(False, timeout=1.0)
    with pytest.raises(ValueError):
        lock.acquire(timeout=-100)
    with pytest.raises(ValueError):
        lock.acquire(timeout=float("nan"))
    for timeout in [86401, 86400.0001, 1e100, threading.TIMEOUT_MAX + 1000, float("inf"), 10**400]:
        with pytest.raises(OverflowError, match=": timeout must be at most 86400 seconds, not ") as caught:
            lock.acquire(timeout=timeout)
        assert isinstance(caught.value, snib.TimeoutOverflow) and isinstance(caught.value, snib.Error)
    assert lock.acquire(timeout=86400)
    lock.release()
    with pytest.raises(TypeError):
        lock.acquire(timeout="1")  # type: ignore[arg-type]
    assert lock.acquire(timeout=threading.TIMEOUT_MAX)
    lock.release()
    lock.acquire()

    def wait() -> float:
        start = time.monotonic()
        assert lock.acquire(timeout=0.25) is False
        return time.monotonic() - start

    assert other(wait) >= 0.25  # type: ignore[operator]
    lock.release()


def test_a_number_that_is_no_bool_is_refused(lock, client: snib.Client) -> None:
    """acquire(5) would wait for ever in threading; it was meant as a timeout, or as permits."""
    for blocking in [5, 2.5, 1.0, 0.0, -1, "no", None]:
        for what in [lock, client.permits("name")]:
            with pytest.raises(TypeError, match="timeout="):
                what.acquire(blocking)
    with pytest.raises(TypeError):
        lock.hold(2)
    with pytest.raises(TypeError):
        client.permits("name").hold(2)
    with pytest.raises(TypeError):
        client.permits("name").acquire(True, 1.0, 2)


def test_weak_references(lock) -> None:
    import weakref

    reference = weakref.ref(lock)
    assert reference() is lock


# ---- Lock ----------------------------------------------------------------------------------------


def test_lock_is_not_reentrant(client: snib.Client) -> None:
    lock = client.lock("name")
    lock.acquire()
    with Bunch(lambda: (lock.acquire(), lock.release()), 1) as bunch:
        eventually(lambda: client.stats().waiting == 1)
        assert not bunch.finished
        lock.release()
    assert len(bunch.finished) == 1


def test_lock_may_be_released_by_another_thread(client: snib.Client) -> None:
    lock = client.lock("name")
    lock.acquire()
    other(lock.release)
    lock.acquire()
    lock.release()


def test_locked(client: snib.Client) -> None:
    lock = client.lock("name")
    assert lock.locked() is False
    lock.acquire()
    assert lock.locked() is True
    lock.release()
    assert lock.locked() is False


# ---- RLock ---------------------------------------------------------------------------------------


def test_rlock_reacquire(client: snib.Client) -> None:
    lock = client.rlock("name")
    lock.acquire()
    lock.acquire()
    lock.release()
    lock.acquire()
    lock.release()
    assert other(lambda: lock.acquire(blocking=False)) is False
    lock.release()
    assert other(lambda: (lock.acquire(blocking=False), lock.release())) == (True, None)
    with pytest.raises(RuntimeError):
        lock.release()


def test_rlock_different_thread_cannot_release(client: snib.Client) -> None:
    lock = client.rlock("name")

    def release() -> bool:
        try:
            lock.release()
        except RuntimeError:
            return True
        return False

    with lock:
        assert other(release) is True
    assert other(release) is True


def test_a_condition_on_a_named_lock(client: snib.Client) -> None:
    """threading.Condition accepts any such lock, and releases it inside a `with`."""
    condition = threading.Condition(client.lock("name"))  # type: ignore[arg-type]
    got: list[int] = []

    def consume() -> None:
        with condition:
            assert condition.wait_for(lambda: got, PATIENCE)
            got.append(2)

    with Bunch(consume, 1):
        with condition:
            got.append(1)
            condition.notify()
    assert got == [1, 2]


# ---- Semaphores ----------------------------------------------------------------------------------


def test_pool_arguments(pool) -> None:
    assert pool.acquire(True, 1.0) is True
    pool.release(1)
    assert pool.acquire(blocking=True, timeout=None) is True
    pool.release()
    with pytest.raises(ValueError):
        pool.acquire(False, timeout=1.0)
    for n in [0, -1]:
        with pytest.raises(ValueError):
            pool.release(n)
    for n in [1.0, "1", True]:
        with pytest.raises(TypeError):
            pool.release(n)
    with pytest.raises(OverflowError):
        pool.acquire(timeout=1e100)


def test_pool_contended(pool) -> None:
    done: list[int] = []

    def work() -> None:
        pool.acquire()
        done.append(1)
        pool.acquire()
        done.append(2)

    with Bunch(work, 10) as bunch:  # seven of twenty permits are free
        eventually(lambda: len(done) >= 7)
        time.sleep(0.02)
        assert len(done) == 7
        pool.release(7)
        eventually(lambda: len(done) >= 14)
        time.sleep(0.02)
        assert len(done) == 14 and len(bunch.finished) < 10
        pool.release(7)
    assert len(done) == 20
    pool.release(6)
    with pytest.raises(snib.NotHeld):
        pool.release()
    assert pool.available() == 7


def test_pool_try_acquire(pool) -> None:
    assert pool.acquire(n=5)
    assert pool.acquire(False) is True
    assert pool.acquire(False) is True
    assert pool.acquire(False) is False
    assert pool.acquire(True, 0.05) is False
    pool.release(5)
    assert pool.available() == 5
    pool.release(2)


def test_pool_negative_timeouts(pool, server: Server) -> None:
    """One attempt, as in threading, whose locks alone take -1 for no limit."""
    standard = threading.Semaphore(2)
    for timeout in [-1, -1.0, -0.5, -100]:
        for semaphore, n in [(standard, {}), (pool, {"n": 6})]:
            assert semaphore.acquire(timeout=timeout, **n) is True
            assert semaphore.acquire(timeout=timeout) is True
            assert semaphore.acquire(timeout=timeout) is False
            semaphore.release()
            semaphore.release()

    async def attempts() -> None:
        async with snib.aio.connect(server.url) as client:
            for timeout in [-1, -0.5]:
                assert await getattr(client, pool.kind)("name").acquire(timeout=timeout) is False

    assert pool.acquire(n=7)
    asyncio.run(attempts())
    pool.release()


def test_pool_release_of_several(pool) -> None:
    """What one acquire() took is released as a whole; releasing more than acquired is an error."""
    for n in [1, 2, 3]:
        assert pool.acquire(n=n)
    with pytest.raises(snib.NotHeld):
        pool.release(7)
    pool.release(4)  # 3 and 1
    assert pool.available() == 5
    with pytest.raises(snib.InvalidPermits, match="released together"):
        pool.release(1)
    assert pool.available() == 5
    pool.release()
    assert pool.available() == 7
    with pytest.raises(RuntimeError):
        pool.release()


def test_pool_default_is_one(pool) -> None:
    with pool:
        with pool:
            assert pool.available() == 5
        assert pool.available() == 6
    assert pool.available() == 7

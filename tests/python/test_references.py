"""Every call of the private module keeps the reference counts balanced.

Up to 3.11 None, True and False are reference-counted like any other object, but newer headers
assume that they are not: a call that omits a reference to None kills the interpreter some thousand
calls later.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import select
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

import snib
import snib.aio
from snib import _core
from support import PATIENCE, Server

CALLS = 1000
ROUNDS = 10
PAIRS = 200_000 if os.environ.get("SNIB_TEST_ALL") else 2_000


Call = Callable[[], object]

SINGLETONS = [None, True, False, (), "", *range(-5, 20)]


def our_types() -> list[type]:
    """Every class of the package, and the types that the module returns."""
    found: dict[int, type] = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "snib":
            for value in vars(module).values():
                if isinstance(value, type) and value.__module__.partition(".")[0] == "snib":
                    found[id(value)] = value
    return list(found.values())


def references() -> dict[str, int]:
    counted = {repr(value): sys.getrefcount(value) for value in SINGLETONS}
    for kind in our_types():
        counted[f"{kind.__module__}.{kind.__qualname__}"] = sys.getrefcount(kind)
    return counted


def counts() -> dict[str, int]:
    gc.collect()
    counted = references()
    gc.collect()  # and what that has left in free lists
    counted["memory blocks"] = sys.getallocatedblocks()
    return counted


def changes(before: dict[str, int]) -> dict[str, int]:
    gc.collect()
    blocks = sys.getallocatedblocks()  # before there is a second table
    after = references() | {"memory blocks": blocks}
    return {name: after[name] - before[name] for name in before}


class Counted:
    """References from now on.  What counting itself changes does not count."""

    def __init__(self) -> None:
        self.idle = changes(counts())
        self.before = counts()

    def growth(self, calls: int) -> dict[str, int]:
        """Changes, but for very few: caches and dicts may grow.  What a tenth of the calls leave behind shows."""
        found = {name: by - self.idle[name] for name, by in changes(self.before).items()}
        return {name: by for name, by in found.items() if abs(by) > calls // 20}


def grown(call: Call, calls: int) -> dict[str, int]:
    counted = Counted()
    for _ in range(calls):
        with contextlib.suppress(Exception):
            call()
    return counted.growth(calls)


def check(name: str, call: Call, calls: int = CALLS) -> None:
    """A leak grows in every round, and what a cache or the allocator keeps does not."""
    for _ in range(20):  # create one-time objects
        with contextlib.suppress(Exception):
            call()
    found = {}
    for _ in range(ROUNDS):
        found = grown(call, calls)
        if not found:
            return
    raise AssertionError(f"references after {calls} calls of {name}: {found}")


@pytest.fixture(scope="module", autouse=True)
def frozen():
    """Exclude existing objects from each collection."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


class Keyed(weakref.ref[Any]):
    """A reference as in a WeakValueDictionary."""

    key = "name"


def drained(queue: _core.QueueHandle, submit: Callable[[], int]) -> Call:
    """Submit an operation, and take its event from the queue."""

    def call() -> None:
        submit()
        drain(queue)

    return call


def drain(queue: _core.QueueHandle) -> None:
    assert select.select([_core.queue_fd(queue)], [], [], PATIENCE)[0]
    while not _core.queue_drain(queue, []):  # a reply need not bring an event
        assert select.select([_core.queue_fd(queue)], [], [], PATIENCE)[0]


def good_calls(server: Server, client: snib.Client) -> dict[str, list[Call]]:
    """Valid calls of every function, by name, so that a new function must be added."""
    c = client._handle
    queue = _core.queue_new(c)
    asks = snib.Client(server.url, credentials=str)._handle
    asked = _core.queue_new(asks)
    free = client.lock("free")._handle
    busy = client.lock("busy")._handle
    owned = client.lock("owned")._handle
    keep = _core.acquire(busy, 0, -1)
    permits, semaphore = client.permits("permits"), client.semaphore("semaphore")
    latch = client.latch("latch")
    permits.init(1000)
    semaphore.init(1000)
    latch.init(1)
    opened = client.latch("opened")._handle
    fixed = client.lock("f", lease=60.0)._handle
    wrong = client.lock("wrong")._handle
    server.admin.set("wrong", "text")
    p, s, w = permits._handle, semaphore._handle, latch._handle
    token = iter(range(1, 10**9)).__next__

    def pair() -> None:
        _core.release(_core.acquire(free, 0, -1))

    def again() -> None:
        """Short holds, with every way to end them."""
        hold = _core.acquire(owned, 7, -1)
        _core.hold_release_submit(hold, queue, token())
        drain(queue)

    def abandoned() -> None:
        _core.hold_abandon(_core.permits_acquire(p, 1, -1))
        permits.add(1)

    def dropped() -> None:
        _core.hold_drop(_core.acquire(free, 0, -1))

    def settled() -> None:
        """A result, a result without a waiter, and a hold without a waiter."""
        told: Future[tuple[int, object]] = Future()
        number = token()
        _core.lock_info_submit(busy, queue, number)
        _core.lock_info_submit(busy, queue, token())
        _core.lock_acquire_submit(free, 0, -1, queue, token())
        waiting, events = {number: told}, 0
        while events < 3:
            assert select.select([_core.queue_fd(queue)], [], [], PATIENCE)[0]
            events += _core.queue_settle(queue, waiting, print)  # type: ignore[arg-type]
        assert told.result()[0] == 0 and not waiting

    def forgotten() -> None:
        """A dead reference, and one that has been replaced."""
        first, second = Keyed(_core), Keyed(_core)
        names = {"name": second}
        _core.forget_dead(names, first)
        assert names == {"name": second}
        _core.forget_dead(names, second)
        assert names == {}

    def forgotten_member() -> None:
        """One of two, one that has been replaced, and the last one."""
        first, second, old = Keyed(_core), Keyed(_core), Keyed(_core)
        first.key, second.key, old.key = ("group", 1), ("group", 2), ("group", 2)
        groups = {"group": {1: first, 2: second}}
        for ref, left in ((old, [1, 2]), (first, [2]), (first, [2])):
            _core.forget_member(groups, ref)
            assert [*groups["group"]] == left
        for ref in (second, second):
            _core.forget_member(groups, ref)
            assert groups == {}

    def submitted(take: Callable[[_core.QueueHandle, int], int]) -> Call:
        return drained(queue, lambda: take(queue, token()))

    def cancelled() -> None:
        _core.op_cancel(_core.lock_acquire_submit(busy, 0, -1, queue, token()))
        drain(queue)

    return {
        "acquire": [
            pair,
            lambda: _core.acquire(busy, 0, 0),
            lambda: _core.acquire(wrong, 0, 0),
        ],
        "client_close": [],  # in test_connections
        "client_credentials": [
            lambda: _core.client_credentials(asks, asked),
            lambda: _core.client_credentials(c, queue),
        ],
        "client_login": [
            lambda: _core.client_login(asks, 1, None, "password", 0, None),
            lambda: _core.client_login(asks, 1, "user", "password", 900000, "why"),
            lambda: _core.client_login(c, 1, "user", "password", 0, None),
        ],
        "client_describe": [lambda: _core.client_describe(c, "busy")],
        "client_describe_submit": [
            submitted(lambda q, t: _core.client_describe_submit(c, "busy", q, t))
        ],
        "client_id": [lambda: _core.client_id(c)],
        "client_debugs": [lambda: _core.client_debugs(c)],
        "debug_here": [lambda: _core.debug_here("x.py:1 in f()", 2), lambda: _core.debug_here(None, 0)],
        "client_set_label": [
            lambda: _core.client_set_label(c, "x"),
            lambda: _core.client_set_label(c, None),
            lambda: _core.client_set_label(c, "\n"),
        ],
        "client_identity": [
            lambda: _core.client_identity(c, "11111111-2222-8333-8444-555555555555:1"),
            lambda: _core.client_identity(c, "x"),
        ],
        "client_identity_submit": [
            submitted(lambda q, t: _core.client_identity_submit(c, "x", q, t))
        ],
        "client_list": [lambda: _core.client_list(c, "*", 0)],
        "client_list_submit": [submitted(lambda q, t: _core.client_list_submit(c, "*", 0, q, t))],
        "client_log": [lambda: _core.client_log(c, queue, 3), lambda: _core.client_log(c, queue, 0)],
        "client_open": [],  # in test_connections
        "client_ping_submit": [submitted(lambda q, t: _core.client_ping_submit(c, -1, q, t))],
        "client_stats": [lambda: _core.client_stats(c)],
        "close_at_exit": [],  # only for the end of a process
        "code_is": [lambda: _core.code_is(1, 1), lambda: _core.code_is(-3, 1)],
        "code_name": [lambda: _core.code_name(1)],
        "code_text": [lambda: _core.code_text(1)],
        "advance_clock": [lambda: _core.advance_clock(0), lambda: _core.advance_clock(-1)],
        "build_id": [_core.build_id],
        "features": [_core.features],
        "version_number": [_core.version_number],
        "version_string": [_core.version_string],
        "reason_text": [lambda: _core.reason_text(1)],
        "forget_dead": [forgotten],
        "forget_member": [forgotten_member],
        "hold_abandon": [abandoned, lambda: _core.hold_abandon(None)],
        "hold_check": [lambda: _core.hold_check(keep)],
        "hold_drop": [dropped, lambda: _core.hold_drop(None)],
        "hold_id": [lambda: _core.hold_id(keep)],
        "hold_owner": [lambda: _core.hold_owner(keep)],
        "hold_release_submit": [again],
        "hold_extend_submit": [submitted(lambda q, t: _core.hold_extend_submit(keep, 0, q, t))],
        "hold_remaining_ms": [lambda: _core.hold_remaining_ms(keep)],
        "hold_state": [lambda: _core.hold_state(keep)],
        "hold_token": [lambda: _core.hold_token(keep)],
        "hold_replicas": [lambda: _core.hold_replicas(keep)],
        "hold_wait": [lambda: _core.hold_wait(keep, 0)],
        "latch_count": [lambda: _core.latch_count(w, 0, 0), lambda: _core.latch_count(p, 0, 0)],
        "latch_count_submit": [submitted(lambda q, t: _core.latch_count_submit(w, 0, 0, q, t))],
        "latch_wait": [lambda: _core.latch_wait(w, 0), lambda: _core.latch_wait(opened, -1)],
        "latch_wait_submit": [submitted(lambda q, t: _core.latch_wait_submit(w, 0, q, t))],
        "lock_acquire_submit": [
            submitted(lambda q, t: _core.lock_acquire_submit(free, 0, -1, q, t)),
            submitted(lambda q, t: _core.lock_acquire_submit(busy, 0, 0, q, t)),
            submitted(lambda q, t: _core.lock_acquire_submit(wrong, 0, 0, q, t)),
        ],
        "lock_force_release": [lambda: _core.lock_force_release(free)],
        "lock_force_release_submit": [
            submitted(lambda q, t: _core.lock_force_release_submit(free, q, t))
        ],
        "lock_info": [lambda: _core.lock_info(busy), lambda: _core.lock_info(free)],
        "lock_info_submit": [
            submitted(lambda q, t: _core.lock_info_submit(busy, q, t)),
            submitted(lambda q, t: _core.lock_info_submit(free, q, t)),
            submitted(lambda q, t: _core.lock_info_submit(wrong, q, t)),
        ],
        "lock_new": [lambda: _core.lock_new(c, 1, "new", 0, 0, 0)],
        "multi_new": [lambda: _core.multi_new((free, busy), 0, 0)],
        "op_cancel": [cancelled, lambda: _core.op_cancel(12345)],
        "permits_acquire": [lambda: _core.release(_core.permits_acquire(p, 2, -1))],
        "permits_acquire_submit": [
            submitted(lambda q, t: _core.permits_acquire_submit(p, 2, -1, q, t)),
            submitted(lambda q, t: _core.permits_acquire_submit(p, 5000, 0, q, t)),
        ],
        "permits_count": [lambda: _core.permits_count(p, 0, 0)],
        "permits_count_submit": [
            submitted(lambda q, t: _core.permits_count_submit(p, 0, 0, q, t))
        ],
        "ping": [lambda: _core.ping(c, -1)],
        "queue_cork": [lambda: (_core.queue_cork(queue), _core.queue_uncork(queue))],
        "queue_settle": [
            settled,
            lambda: _core.queue_settle(queue, {}, print),
        ],
        "queue_uncork": [lambda: _core.queue_uncork(queue)],
        "queue_drain": [lambda: _core.queue_drain(queue, [])],
        "queue_fd": [lambda: _core.queue_fd(queue)],
        "queue_new": [lambda: _core.queue_new(c)],
        "queue_wake": [lambda: _core.queue_wake(queue)],
        "quorum_new": [lambda: _core.quorum_new((free, busy, fixed), 0, 0, 0)],
        "release": [pair, lambda: _core.release(keep_released)],
        "extend": [lambda: _core.extend(keep, 60000), lambda: _core.extend(keep, 1)],
        "semaphore_acquire": [lambda: _core.release(_core.semaphore_acquire(s, 2, -1))],
        "semaphore_acquire_submit": [
            submitted(lambda q, t: _core.semaphore_acquire_submit(s, 2, -1, q, t))
        ],
        "semaphore_count": [lambda: _core.semaphore_count(s, 0, 0)],
        "semaphore_count_submit": [
            submitted(lambda q, t: _core.semaphore_count_submit(s, 0, 0, q, t))
        ],
        "set_errors": [lambda: _core.set_errors(snib._errors.make)],
        "set_main_thread": [lambda: _core.set_main_thread(threading.main_thread().ident or 0)],
    }


NAMES = sorted(
    name
    for name, value in vars(_core).items()
    if not name.startswith(("_", "SWIG")) and not isinstance(value, type)
)

keep_released: _core.HoldHandle


@pytest.fixture
def calls(server: Server, client: snib.Client):
    global keep_released
    keep_released = _core.acquire(client.lock("over")._handle, 0, -1)  # type: ignore[assignment]
    _core.release(keep_released)
    yield good_calls(server, client)
    client.close()
    server.admin.flushall()


@pytest.mark.parametrize("leaked", [object, lambda: snib.Lost], ids=["memory", "references"])
def test_a_leak_in_a_tenth_of_the_calls_shows(leaked: Call) -> None:
    kept: list[object] = []
    kept += [None] * 10 * CALLS  # it does not grow itself
    numbers = iter(range(10**9))

    def leaks() -> None:
        number = next(numbers)
        if number % 10 == 0:
            kept[number // 10] = leaked()

    for calls in (CALLS, CALLS // 10):
        with pytest.raises(AssertionError, match="references after"):
            check("leaks", leaks, calls)


def test_good_calls(calls: dict[str, list[Call]]) -> None:
    assert sorted(calls) == NAMES
    for name, given in calls.items():
        for call in given:
            with contextlib.suppress(snib.Error):
                call()  # any exception is a mistake in the table
            check(name, call)


def test_wrong_calls(calls: dict[str, list[Call]]) -> None:
    """With too few arguments, and with objects of other kinds in all positions."""
    for name in NAMES:
        function = getattr(_core, name)
        if name in ("set_errors", "set_main_thread", "close_at_exit"):
            continue
        wrong = [[junk] * count for junk in (object(), None, 2**70, "\ud800") for count in range(6)]

        def call() -> None:
            for arguments in wrong:
                with contextlib.suppress(Exception):
                    function(*arguments)

        check(f"{name} with what it does not want", call, CALLS // 10)


def test_connections(server: Server) -> None:
    def use() -> None:
        with snib.connect(server.url) as client, client.lock("short"):
            pass

    check("connect", use, CALLS // 4)
    check("connect to nonsense", lambda: snib.connect("bad://"))


def test_many_pairs(server: Server, client: snib.Client) -> None:
    lock = client.lock("pairs")
    counted = Counted()
    for _ in range(PAIRS):
        with lock:
            pass
    assert counted.growth(PAIRS) == {}


def test_many_pairs_of_tasks(server: Server) -> None:
    async def work(client: snib.aio.Client, number: int, pairs: int) -> None:
        lock = client.lock(f"pairs{number % 3}")
        for _ in range(pairs):
            async with lock:
                pass
            with contextlib.suppress(snib.Busy):
                await (await lock.hold(timeout=0)).release()
            await lock.info()

    async def main() -> dict[str, int]:
        async with snib.aio.Client(server.url) as client:
            await asyncio.gather(*(work(client, i, 20) for i in range(10)))
            counted = Counted()
            await asyncio.gather(*(work(client, i, PAIRS // 20) for i in range(10)))
            return counted.growth(PAIRS)

    assert asyncio.run(main()) == {}

"""The option debug: programs with mistakes, which it reports with file and line, and programs without."""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import inspect
import logging
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import snib
from snib import aio
from support import PATIENCE, RENEWED, Server, eventually


class Warnings(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith("debug: "):
            self.texts.append(record.getMessage())

    def one(self, pattern: str) -> str:
        eventually(lambda: any(re.search(pattern, text) for text in self.texts))
        (found,) = [text for text in self.texts if re.search(pattern, text)]
        return found


@pytest.fixture
def warned() -> Iterator[Warnings]:
    handler = Warnings()
    logging.getLogger("snib").addHandler(handler)
    yield handler
    logging.getLogger("snib").removeHandler(handler)


@pytest.fixture
def client(server: Server) -> Iterator[snib.Client]:
    with snib.connect(server.url, debug=True) as client:
        yield client


def at(function: Callable[..., object], part: str) -> str:
    """The place, as it is reported, of the function's line that has this part."""
    lines, first = inspect.getsourcelines(function)
    (number,) = [first + i for i, line in enumerate(lines) if part in line and " at(" not in line]
    return f"test_debug.py:{number} in {function.__name__}()"


# ---- Mistakes ------------------------------------------------------------------------------------


def pay(client: snib.Client) -> None:
    with client.lock("account"):
        with client.lock("ledger"):
            pass


def refund(client: snib.Client) -> None:
    with client.lock("ledger"):
        with client.lock("account").hold(timeout=PATIENCE):
            pass


def test_two_orders(client: snib.Client, warned: Warnings) -> None:
    """Found although no two callers ever met."""
    for _ in range(3):
        pay(client)
        refund(client)
    text = warned.one("lock order")
    places = [at(refund, "ledger"), at(refund, "account"), at(pay, "account"), at(pay, "ledger")]
    assert text == (
        'debug: lock order: "ledger" ({}) then "account" ({}), but "account" ({}) then "ledger" ({}): '
        "this can deadlock; take them in one order"
    ).format(*places)


PROGRAM = """import logging, sys, time
import snib
seen = []
handler = logging.Handler()
handler.emit = lambda record: seen.append(record.getMessage())
logging.getLogger("snib").addHandler(handler)

def nest(client, one, two):
    with client.lock(one):
        with client.lock(two):
            pass

with snib.connect(sys.argv[1], debug=True, label=sys.argv[2]) as client:
    nest(client, *sys.argv[3:])
    print("nested", flush=True)
    while not all(label in "".join(seen) for label in (" in pay (pid ", " in refund (pid ")):
        time.sleep(0.01)
    print("\\n".join(seen))
    print("counted", client.stats().debug_warnings)
    sys.stdout.flush()
    sys.stdin.read()
"""


def test_two_orders_of_two_processes(server: Server, tmp_path: Path) -> None:
    """Each program is right for itself; both are told where the other one is."""
    program = tmp_path / "shop.py"
    program.write_text(PROGRAM)
    orders = {"pay": ("stock", "till"), "refund": ("till", "stock")}
    runs = {}
    for label, names in orders.items():
        command = [sys.executable, str(program), server.url, label, *names]
        run = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert run.stdout and run.stdout.readline() == "nested\n"  # at the same time they could deadlock
        runs[label] = run
    told = []
    for run in runs.values():  # each stays until both are told
        assert run.stdout
        told.append("")
        while "counted " not in told[-1]:
            assert (line := run.stdout.readline())
            told[-1] += line
    for run in runs.values():
        run.communicate(timeout=PATIENCE)
        assert run.returncode == 0
    for text in told:
        assert "debug: lock order" in text and text.endswith("counted 1\n")
        for label, (one, two) in orders.items():
            place = f"(pid {runs[label].pid} on "
            assert f'"{one}" (shop.py:9 in nest()) then "{two}" (shop.py:10 in nest()) in {label} {place}' in text


def test_counted(client: snib.Client, warned: Warnings) -> None:
    assert client.stats().debug_warnings == 0
    with client.lock("c1"), client.lock("c2"):
        pass
    with client.lock("c2"), client.lock("c1"):
        pass
    assert client.stats().debug_warnings == 1


def test_two_orders_of_tasks(server: Server, warned: Warnings) -> None:
    async def one(client: aio.Client) -> None:
        async with client.lock("left"):
            async with client.rlock("right"):
                pass

    async def other(client: aio.Client) -> None:
        assert await client.rlock("right").acquire()
        hold = await client.lock("left").hold()
        await hold.release()
        await client.rlock("right").release()

    async def main() -> None:
        async with aio.connect(server.url, debug=True) as client:
            await asyncio.create_task(one(client))
            await asyncio.create_task(other(client))

    asyncio.run(main())
    text = warned.one("lock order")
    for place in (at(one, "left"), at(one, "right"), at(other, "hold()"), at(other, "acquire()")):
        assert place in text


def test_a_thread_that_waits_for_itself(client: snib.Client, warned: Warnings) -> None:
    def twice() -> None:
        with client.lock("self"):
            client.lock("self").acquire(timeout=2)

    twice()
    assert warned.one("self") == (
        f'debug: mutex "self" is awaited at {at(twice, "acquire")} by the caller (thread MainThread) that has held it '
        f'since {at(twice, "with")}: it waits for itself; release it first, or use a re-entrant lock'
    )


def test_a_task_that_waits_for_itself(server: Server, warned: Warnings) -> None:
    async def twice(client: aio.Client) -> None:
        async with client.fair_lock("self"):
            assert not await client.fair_lock("self").acquire(timeout=2)

    async def main() -> None:
        async with aio.connect(server.url, debug=True) as client:
            await twice(client)

    asyncio.run(main())
    text = warned.one("self")
    assert at(twice, "acquire") in text and at(twice, "async with") in text
    assert "by the caller (task Task-" in text


def test_held_too_long(server: Server, warned: Warnings) -> None:
    with snib.connect(f"{server.url}&debug=yes&debug_hold=100ms") as client:
        with client.lock("long"):
            text = warned.one("long")
    here = at(test_held_too_long, "client.lock")
    assert re.fullmatch(
        rf'debug: mutex "long", acquired at {re.escape(here)} by thread MainThread, is still held after \d+\.\d s, '
        "longer than debug_hold: release it sooner, or raise debug_hold",
        text,
    )


def test_never_released(server: Server, warned: Warnings) -> None:
    with snib.connect(server.url, debug=True) as client:
        client.lock("kept").acquire()
        hold = client.lock("dropped").hold()
        here = at(test_never_released, "hold = client") + " by thread MainThread"
        with pytest.warns(ResourceWarning, match=re.escape(f"a hold of 'dropped', acquired at {here}, was dropped")):
            del hold
        assert warned.one("dropped") == f'debug: mutex "dropped" was acquired at {here} and never released'
        client.lock("dropped").force_release()
    here = at(test_never_released, "acquire()")
    assert warned.one("kept") == (
        f'debug: mutex "kept", acquired at {here} by thread MainThread, is still held when its client is closed: '
        "release it first"
    )


def test_a_program_that_ends(server: Server, tmp_path: Path) -> None:
    program = tmp_path / "forgetful.py"
    program.write_text(
        "import sys, snib\n"
        "client = snib.connect(sys.argv[1], debug=True)\n"
        "client.lock('left').acquire()\n"
    )
    run = subprocess.run([sys.executable, program, server.url], capture_output=True, text=True)
    assert run.returncode == 0
    want = 'debug: mutex "left", acquired at forgetful.py:3 by thread MainThread, is still held when its client is '
    assert want in run.stderr and run.stderr.count("debug: ") == 1


# ---- Where ---------------------------------------------------------------------------------------


def places(warned: Warnings) -> dict[str, str]:
    """Where all that is held for too long was acquired, by the name of the lock."""
    found = (re.match(r'debug: mutex "(.*)", acquired at (.*) by .* is still held', text) for text in warned.texts)
    return {match[1]: match[2] for match in found if match}


def test_places_behind_the_standard_library(client: snib.Client, warned: Warnings) -> None:
    stack = contextlib.ExitStack()
    stack.enter_context(client.lock("stack"))
    with ThreadPoolExecutor(1) as pool:
        pool.submit(client.lock("pool").acquire).result()
    thread = threading.Thread(target=client.lock("thread").acquire)
    thread.start()
    thread.join()
    client.close()
    want = {
        "stack": at(test_places_behind_the_standard_library, "enter_context"),
        "pool": "an unknown place",
        "thread": "an unknown place",
    }
    eventually(lambda: places(warned) == want)


def test_places_of_tasks(server: Server, warned: Warnings) -> None:
    async def main() -> None:
        want = {"task": "an unknown place"}
        async with aio.connect(server.url, debug=True, debug_hold=0.1) as client, contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(client.lock("stack"))
            want["stack"] = at(main, "enter_async_context")
            await asyncio.wait_for(client.lock("timed").acquire(), PATIENCE)
            # Before 3.12 it makes a task, which nothing of the program runs either.
            want["timed"] = at(main, "wait_for") if sys.version_info >= (3, 12) else "an unknown place"
            await asyncio.gather(client.lock("task").acquire())  # nothing of the program runs it
            if sys.version_info >= (3, 12):
                asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
                await asyncio.create_task(client.lock("eager").acquire())
                want["eager"] = at(main, "create_task")
            while places(warned) != want:
                await asyncio.sleep(0.01)
            await client.lock("timed").release()
            await client.lock("task").force_release()

    asyncio.run(main())


def test_places_of_trio(server: Server, warned: Warnings) -> None:
    trio = pytest.importorskip("trio")
    import snib.anyio

    async def main() -> None:
        async with snib.anyio.connect(server.url, debug=True) as client:
            await client.lock("awaited").acquire()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.lock("loose").acquire)

    trio.run(main)
    eventually(lambda: places(warned) == {"awaited": at(main, "acquire()"), "loose": "an unknown place"})


# ---- Who -----------------------------------------------------------------------------------------


def test_who_holds_it(server: Server, client: snib.Client) -> None:
    """Whoever asks is told the place and the thread; the name of a thread may be anything."""
    holds: list[snib.Hold] = []

    def take(number: int) -> None:
        holds.append(holder.lock(f"w{number}").hold())

    with snib.connect(server.url, debug=True, debug_hold="none", lease=RENEWED) as holder:
        for number, name in enumerate(("worker 7", "a\0b\nc\x1b", "ä" * 40, "\ud800")):
            thread = threading.Thread(target=take, args=(number,), name=name)
            thread.start()
            thread.join()
        _thread.start_new_thread(take, (4,))  # one that threading does not know, and shall not get to know
        eventually(lambda: len(holds) == 5)
        who = [f"thread {name}" for name in ("worker 7", "a?b?c?", "ä" * 20, "?")]
        for hold, name in zip(holds, who, strict=False):
            eventually(lambda: (known := client.identity(hold.owner)) and known.held_by == name)  # noqa: B023
            identity = client.identity(hold.owner)
            assert identity is not None and identity.held_at == at(take, "holds.append")
        identity = client.identity(holds[4].owner)
        assert identity is not None and re.fullmatch(r"thread .+ \(\d+\)", identity.held_by or "")
        assert client.lock("w0").info().identity == client.identity(holds[0].owner)
        known = client.identity(holder.id)
        assert known is not None and known.held_at is None and known.held_by is None
        for hold in holds:
            hold.release()


def test_which_task_holds_it(server: Server, client: snib.Client) -> None:
    async def work(holder: aio.Client) -> None:
        async with holder.lock("t") as hold:
            while not ((known := client.identity(hold.owner)) and known.held_by):
                await asyncio.sleep(0.01)
            assert (known.held_by, known.held_at) == ("task night shift", at(work, "async with"))

    async def drop(holder: aio.Client) -> None:
        hold = await holder.lock("dropped").hold()
        del hold

    async def main() -> None:
        async with aio.connect(server.url, debug=True, debug_hold="none", lease=RENEWED) as holder:
            await asyncio.create_task(work(holder), name="night shift")
            with pytest.warns(ResourceWarning, match=r"by task careless, was dropped") as told:
                await asyncio.create_task(drop(holder), name="careless")
            assert at(drop, "hold = ") in str(told[0].message)

    asyncio.run(main())


def test_who_without_the_option(server: Server, client: snib.Client) -> None:
    with snib.connect(server.url, lease=RENEWED) as holder, holder.lock("o").hold() as hold:
        eventually(lambda: client.identity(hold.owner))
        known = client.identity(hold.owner)
        assert known is not None and known.held_since and known.held_at is None and known.held_by is None


# ---- No mistakes ---------------------------------------------------------------------------------


def test_a_program_without_mistakes(client: snib.Client, warned: Warnings) -> None:
    rlock, rw, held = client.rlock("re"), client.rwlock("rw"), threading.Event()
    both = snib.MultiLock([client.lock("m1"), client.lock("m2")])
    turned = snib.MultiLock([client.lock("m2"), client.lock("m1")])

    def hand_over() -> snib.Hold:
        return client.lock("handed").hold()

    for _ in range(2):
        with rlock, rw.write, rlock, rw.read:  # re-entries
            with both:
                pass
            with turned:
                pass
        hold = hand_over()
        thread = threading.Thread(target=hold.release)
        thread.start()
        thread.join()
        with client.lock("after"), client.lock("handed"):
            pass
    semaphore = client.semaphore("places")
    semaphore.init(2)
    with semaphore, semaphore, client.lock("after"):
        pass
    with client.lock("after"), semaphore:
        pass
    with contextlib.suppress(snib.Busy), client.lock("handed"), client.lock("after").hold(timeout=0):
        held.set()  # an attempt is in no order
    semaphore.force_release()
    client.close()
    assert held.is_set() and warned.texts == []


def test_tasks_without_mistakes(server: Server, warned: Warnings) -> None:
    async def work(client: aio.Client) -> None:
        async with client.rlock("t1"):
            async with client.lock("t2"):
                await asyncio.gather(*(shared(client) for _ in range(3)))

    async def shared(client: aio.Client) -> None:  # a task of its own, which holds neither
        async with client.lock("t3"):
            pass

    async def main() -> None:
        async with aio.connect(server.url, debug=True, debug_hold="none") as client:
            async with client.lock("t3"):
                pass
            await asyncio.gather(*(work(client) for _ in range(3)))

    asyncio.run(main())
    assert warned.texts == []


def test_without_the_option(server: Server, warned: Warnings) -> None:
    with snib.connect(server.url) as client:
        client.lock("forgotten").acquire()
        with client.lock("off 1"), client.lock("off 2"):
            pass
        with client.lock("off 2"), client.lock("off 1"):
            pass
    assert warned.texts == []


def test_bad_values(server: Server) -> None:
    for options in ({"debug_hold": 1}, {"debug": True, "debug_hold": -1}, {"debug": True, "debug_hold": 90000}):
        with pytest.raises(snib.InvalidOption):
            snib.connect(server.url, **options)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        snib.connect(server.url, debug="yes")  # type: ignore[arg-type]

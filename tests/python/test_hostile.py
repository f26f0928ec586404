"""Foreign data on the server, whatever its bytes, is shown as text and breaks no call."""

from __future__ import annotations

import asyncio
import itertools
import select
import unicodedata

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import snib
import snib.aio
from snib import _core
from support import PATIENCE, Server, canned_server, eventually

UUID = b"01234567-89ab-4def-8123-456789abcdef"
OWNER = "01234567-89ab-8def-8123-456789abcdef:1"

# Bytes that break text: controls, truncated and overlong sequences, surrogates, protocol lines.
hostile = st.one_of(
    st.binary(max_size=40),
    st.lists(
        st.sampled_from(
            [b"\xff", b"\x00", b"\n", b"\r\n", b"\x1b[31m", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80"]
            + [b"\xf4\x90\x80\x80", b"\xe2\x82", b"a", b":", b"\xc3\xa9", b"\xc2\x85", UUID, b" "]
        ),
        max_size=6,
    ).map(b"".join),
    st.binary(min_size=1, max_size=3).map(lambda part: part * 200),
)

SETTINGS = settings(
    max_examples=40,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

Commands = list[list[bytes]]

# How foreign bytes get into each part of an answer.
PLACES = {
    "owner": lambda x: [[b"HSET", b"bad", x, b"1"]],
    "our owner's number": lambda x: [[b"HSET", b"bad", UUID + b":" + x, b"1"]],
    "count": lambda x: [[b"HSET", b"bad", UUID + b":1", x]],
    "mode": lambda x: [[b"HSET", b"bad", b"mode", x, UUID + b":1", b"1"]],
    "writer": lambda x: [[b"HSET", b"bad", b"mode", b"write", x + b":write", b"1"]],
    "plain": lambda x: [[b"SET", b"bad", x, b"PX", b"60000"]],
    "token": lambda x: [[b"SET", b"redisson_lock_token:{bad}", x]],
    "waiter": lambda x: [
        [b"HSET", b"bad", UUID + b":1", b"1"],
        [b"RPUSH", b"redisson_lock_queue:{bad}", x],
    ],
    "permit": lambda x: [[b"SET", b"bad", b"1"], [b"ZADD", b"{bad}:timeout", b"9e15", x]],
    "identity": lambda x: [
        [b"SET", b"snib_client:{%b}" % OWNER[:36].encode(), b"host " + x + b"\npid " + x + b"\nlabel"]
    ],
    "name": lambda x: [[b"HSET", b"n" + x, UUID + b":1", b"1"]],
}


def clean(answer: object) -> bool:
    def texts(value: object):
        if isinstance(value, str):
            yield value
        elif isinstance(value, (list, tuple)):
            for part in value:
                yield from texts(part)
        elif hasattr(value, "__dict__"):
            for part in vars(value).values():
                yield from texts(part)

    return all(
        unicodedata.category(character) not in ("Cc", "Cs")
        for text in texts(answer)
        for character in text
    )


@pytest.mark.parametrize("place", PLACES)
def test_every_place(server: Server, place: str) -> None:
    """Each call, blocking or not, returns an answer or a Snib error; other operations continue."""
    loop = asyncio.new_event_loop()
    number = itertools.count().__next__

    async def use(client: snib.aio.Client) -> None:
        async def neighbour(i: int) -> int:
            async with client.lock(f"good{number()}"):
                return i

        async def outcome(call) -> None:
            try:
                assert clean(await call)
            except snib.Error as error:
                assert clean(str(error))

        lock, fair, plain = client.lock("bad"), client.fair_lock("bad"), client.plain_lock("bad")
        rw, fenced = client.rwlock("bad"), client.fenced_lock("bad")
        calls = [lock.info(), fair.info(), plain.info(), rw.read.info(), rw.write.info()]
        calls += [fenced.info(), client.semaphore("bad").info(), client.permits("bad").info()]
        calls += [client.latch("bad").info(), client.describe("bad"), client.list(), client.identity(OWNER)]
        calls += [lock.acquire(timeout=0), rw.read.acquire(timeout=0)]
        neighbours = [asyncio.ensure_future(neighbour(i)) for i in range(10)]
        hostiles = [asyncio.ensure_future(outcome(call)) for call in calls]
        neighbours += [asyncio.ensure_future(neighbour(i)) for i in range(10, 20)]
        answers = await asyncio.wait_for(asyncio.gather(*neighbours), PATIENCE)
        assert answers == list(range(20))
        await asyncio.wait_for(asyncio.gather(*hostiles), PATIENCE)

    def use_blocking(client: snib.Client) -> None:
        locks = [client.lock("bad"), client.fair_lock("bad"), client.plain_lock("bad")]
        calls = [lock.info for lock in locks]
        calls += [client.list, lambda: client.identity(OWNER)]
        calls += [lambda: client.describe("bad"), lambda: locks[0].acquire(timeout=0)]
        for call in calls:
            try:
                assert clean(call())
            except snib.Error as error:
                assert clean(str(error))

    @SETTINGS
    @given(hostile)
    def attack(data: bytes) -> None:
        server.admin.flushall()
        for command in PLACES[place](data):
            try:
                server.admin.execute_command(*command)
            except Exception:  # the server refused it
                return
        loop.run_until_complete(use(asynchronous))
        use_blocking(blocking)

    blocking, asynchronous = snib.Client(server.url), snib.aio.Client(server.url)
    try:
        attack()
    finally:
        loop.run_until_complete(asynchronous.close())
        blocking.close()
        loop.close()
        server.admin.flushall()


@pytest.mark.parametrize("first", [b"-", b"-ERR ", b"-WRONGTYPE ", b"-NOPERM ", b"+", b"$5\r\n"])
def test_every_kind_of_reply(first: bytes) -> None:
    @settings(SETTINGS, max_examples=8)
    @given(hostile)
    def attack(data: bytes) -> None:
        line = data.replace(b"\r", b"?").replace(b"\n", b"?")
        times = dict.fromkeys(["patience", "connect_timeout", "reply_timeout"], 0.3)
        with canned_server(first + line + b"\r\n") as url:
            client = snib.Client(url, **times)
            for call in (client.lock("x").acquire, client.close):
                try:
                    call(timeout=0)  # type: ignore[operator]
                except snib.Error as error:
                    assert clean(str(error))

    attack()


# ---- One event of many ---------------------------------------------------------------------------


class Interrupt(BaseException):
    """Like KeyboardInterrupt: it belongs to no operation."""


@pytest.mark.parametrize("trouble", [MemoryError, Interrupt, TimeoutError, RecursionError])
def test_an_event_that_cannot_be_told(
    server: Server, client: snib.Client, trouble: type[BaseException]
) -> None:
    """If an exception cannot be created, the reason is the result; other events are delivered.

    What else is raised once, by a signal's handler, is raised once, and the result is the operation's.
    """
    times = itertools.count(1).__next__

    def make(*arguments: object) -> snib.Error:
        if trouble is MemoryError or times() == 1:
            raise trouble("while an exception was made")
        return snib._errors.make(*arguments)  # type: ignore[arg-type]

    async def main() -> list[object]:
        async with snib.aio.Client(server.url) as asynchronous:
            await asynchronous.ping()
            loop = asynchronous._loop()
            kept: list[BaseException] = []
            asyncio.get_running_loop().set_exception_handler(lambda _, what: kept.append(what))
            tasks = [
                asyncio.ensure_future(
                    asynchronous.lock(f"good{i}").info()
                    if i % 5
                    else asynchronous.lock("wrong").info()
                )
                for i in range(20)
            ]
            await asyncio.sleep(0)
            asyncio.get_running_loop().remove_reader(_core.queue_fd(loop.queue))
            _core.set_errors(make)
            raised = 0
            while not all(future.done() for future in [*loop.waiting.values()]) or loop.waiting:
                await asyncio.sleep(0.001)
                try:
                    _core.queue_settle(loop.queue, loop.waiting, loop.end_losses)
                except (Interrupt, TimeoutError, RecursionError):
                    raised += 1
            _core.set_errors(snib._errors.make)
            assert raised == (trouble is not MemoryError)
            asyncio.get_running_loop().add_reader(_core.queue_fd(loop.queue), loop._drain)
            return await asyncio.gather(*tasks, return_exceptions=True)

    server.admin.set("wrong", "text")
    try:
        results = asyncio.run(main())
    finally:
        _core.set_errors(snib._errors.make)
        server.admin.flushall()
    wanted = MemoryError if trouble is MemoryError else snib.WrongType
    for i, result in enumerate(results):
        assert isinstance(result, snib.LockInfo if i % 5 else wanted), (i, result)


def test_a_queue_tells_what_could_not_be_made(server: Server, client: snib.Client) -> None:
    queue = snib.Queue(client)
    server.admin.set("wrong", "text")
    tickets = [queue.acquire(client.lock("wrong" if i % 5 == 0 else f"good{i}")) for i in range(10)]
    waiting, results = set(tickets), {}

    def make(*arguments: object) -> snib.Error:
        raise MemoryError

    try:
        _core.set_errors(make)
        eventually(lambda: client.stats().held == 8)
        while waiting:
            for event in queue.drain():
                waiting.remove(event.ticket)
                results[event.ticket] = event.result
    finally:
        _core.set_errors(snib._errors.make)
    for i, ticket in enumerate(tickets):
        result = results[ticket]
        assert isinstance(result, snib.Hold if i % 5 else MemoryError)
        if isinstance(result, snib.Hold):
            result.release()
    server.admin.flushall()


def drained(queue: snib.Queue, count: int, troubles: list[BaseException]) -> dict[int, snib.Event]:
    """So many events, by ticket; what drain() raises is added to the troubles."""
    events: dict[int, snib.Event] = {}
    while len(events) < count:
        assert select.select([queue.fileno()], [], [], PATIENCE)[0]
        try:
            told = queue.drain()
        except (Interrupt, TimeoutError, RecursionError) as trouble:
            troubles.append(trouble)
            continue
        for event in told:
            assert not event.lost and event.ticket not in events
            events[event.ticket] = event
    return events


@pytest.mark.parametrize("once", [True, False], ids=["once", "always"])
@pytest.mark.parametrize("trouble", [MemoryError, Interrupt, TimeoutError, RecursionError])
def test_a_failure_that_could_not_be_made_is_no_success(
    server: Server, client: snib.Client, trouble: type[BaseException], once: bool
) -> None:
    """No hold of an acquire that was refused, and no None of a wait, a release or an extension that failed."""
    queue, latch, times = snib.Queue(client), client.latch("shut"), itertools.count(1).__next__
    latch.init(1)
    server.admin.set("wrong", "text")
    busy, released, extended, good = [
        client.lock(name, lease=600).hold() for name in ("busy", "released", "extended", "good")
    ]
    server.admin.delete("released", "extended")

    def make(*arguments: object) -> snib.Error:
        if times() == 1 or not once:
            raise trouble("while an exception was made")
        return snib._errors.make(*arguments)  # type: ignore[arg-type]

    troubles: list[BaseException] = []
    failing = [
        (queue.acquire(client.lock("wrong")), snib.WrongType),
        (queue.acquire(client.lock("busy"), timeout=0), snib.Busy),
        (queue.acquire(client.lock("busy"), timeout=0.01), snib.Timeout),
        (queue.wait(latch, timeout=0.01), snib.Timeout),
        (queue.extend(extended, 700.0), snib.Lost),
        (queue.release(released), snib.Lost),
    ]
    working = [queue.acquire(client.lock("free")), queue.release(good)]
    _core.set_errors(make)
    try:
        events = drained(queue, len(failing) + len(working), troubles)
    finally:
        _core.set_errors(snib._errors.make)
        server.admin.delete("wrong", "shut")
        busy.release()
    for ticket, error in failing:
        result = events[ticket].result
        assert isinstance(result, error if once and trouble is not MemoryError else (error, trouble)), result
    results = [type(events[ticket].result) for ticket, _ in failing]
    if trouble is MemoryError:
        assert troubles == [] and results.count(MemoryError) == (1 if once else len(failing))
    else:
        assert {type(raised) for raised in troubles} == {trouble}
        assert len(troubles) == 1 if once else set(results) == {trouble}
    free, nothing = [events[ticket].result for ticket in working]
    assert isinstance(free, snib.Hold) and nothing is None
    free.release()

"""An interrupt at any step of a `with` statement leaves no lock behind.

A trace function raises at the nth step of the package's own code, for every n, as a signal handler that happens to run
there would.
"""

from __future__ import annotations

import _thread
import asyncio
import concurrent.futures
import contextlib
import contextvars
import dis
import functools
import gc
import itertools
import os
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FrameType
from typing import Any

import pytest
import snib
import snib.aio
from snib import _core, fencing
from snib._mutex import Mutex
from snib._reader import Reader

from support import PATIENCE, RENEWED, TIDY, Program, Server, eventually

PACKAGE = os.path.dirname(snib.__file__)


class Interrupt(BaseException):
    """Like KeyboardInterrupt."""


@functools.cache
def checked(code: CodeType) -> set[int]:
    """Where the interpreter checks for signals: on entry, after calls, and at backward jumps.

    Since Python 3.14 `with` calls __enter__ like any function, and what is raised after that call is outside of its block.
    What follows the call is inside, so there the call itself counts, too.
    """
    offsets: set[int] = set()
    after_call, special = True, False
    for step in dis.get_instructions(code):
        if step.opname in ("CACHE", "EXTENDED_ARG"):
            continue
        calls = step.opname.startswith("CALL")
        if after_call or step.opname in ("RESUME", "JUMP_BACKWARD", "JUMP_ABSOLUTE") or (calls and special):
            offsets.add(step.offset)
        special = step.opname == "LOAD_SPECIAL" or (special and not calls)
        after_call = calls
    return offsets


class Interrupted:
    """Raises at the nth step of the package: `everywhere`, or only where a signal handler could run."""

    files: str | tuple[str, ...] = PACKAGE

    def __init__(self, n: int, everywhere: bool) -> None:
        self.left, self.everywhere, self.fired = n, everywhere, False

    def __call__(self, frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        if not frame.f_code.co_filename.startswith(self.files):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        step = event == "opcode" and (self.everywhere or frame.f_lasti in checked(frame.f_code))
        if step or event == "call":
            self.left -= 1
            if self.left < 0 and not self.fired:
                self.fired = True
                raise Interrupt()
        return self

    def __enter__(self) -> Interrupted:
        sys.settrace(self)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)


def plain(lock: Any) -> Any:
    with lock as hold:
        return hold


def held(lock: Any) -> Any:
    with lock.hold(timeout=30) as hold:
        return hold


def twice(lock: Any) -> Any:
    with lock, lock as hold:
        return hold


KINDS: dict[str, Callable[[snib.Client], Any]] = {
    "lock": lambda client: client.lock("x"),
    "rlock": lambda client: client.rlock("x"),
    "permits": lambda client: client.permits("x"),
    "write": lambda client: client.rwlock("x").write,
}


def own_holds(error: BaseException, use: Callable[[Any], Any]) -> list[Any]:
    """The holds that the interrupted function refers to."""
    trace = error.__traceback__
    while trace and trace.tb_frame.f_code is not use.__code__:
        trace = trace.tb_next
    return [dict(trace.tb_frame.f_locals).get("hold")] if trace else []


def leaves_nothing(server: Server, kind: str, use: Callable[[Any], Any], everywhere: bool) -> int:
    """The number of steps; fails at the first one that leaves something behind."""
    with snib.connect(server.url, lease=600) as client:
        lock = KINDS[kind](client)
        keys = ["{x}:timeout"] if kind == "permits" else ["x"]
        if kind == "permits":
            lock.init(1)
        with Interrupted(sys.maxsize, everywhere):  # in some Pythons a function has steps only when it is traced again
            use(lock)
        for n in itertools.count():
            kept: list[Any] = []  # the program may still have its hold, which changes nothing
            with Interrupted(n, everywhere) as interrupted:
                try:
                    kept.append(use(lock))
                except Interrupt as error:
                    kept += own_holds(error, use)
            try:
                eventually(lambda: client.stats().held == 0 and not server.admin.exists(*keys), TIDY)
            except AssertionError:
                pytest.fail(f"an interrupt at step {n} leaves the lock with {kept}")
            if not interrupted.fired:
                break
        if kind == "permits":
            server.admin.delete("x")
    return n


@pytest.mark.parametrize("kind", KINDS)
def test_with_a_lock(server: Server, kind: str) -> None:
    assert leaves_nothing(server, kind, plain, everywhere=True) > 50


def test_with_a_lock_twice(server: Server) -> None:
    assert leaves_nothing(server, "rlock", twice, everywhere=True) > 100


def test_with_a_lock_inside_itself(server: Server) -> None:
    """The inner level is given back though the program still has the outer hold, with which it shares the core's."""
    outer_holds: list[Any] = []

    def inside(lock: Any) -> Any:
        with lock as outer:
            outer_holds.append(outer)
            with lock as inner:
                return inner

    assert leaves_nothing(server, "rlock", inside, everywhere=True) > 100
    assert len(outer_holds) > 50


@pytest.mark.parametrize("kind", KINDS)
def test_with_a_hold(server: Server, kind: str) -> None:
    assert leaves_nothing(server, kind, held, everywhere=False) > 5


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["hold", "acquire"])
def test_an_interrupt_whose_traceback_is_kept(server: Server, form: str, kind: str) -> None:
    """As by a debugger, an interactive session or a log record: the frames in it keep what they have."""
    with snib.connect(server.url, lease=600) as client:
        lock = KINDS[kind](client)
        if kind == "permits":
            lock.init(1)
        call = {"hold": lambda: lock.hold(timeout=30), "acquire": lambda: lock._try_to_keep(1, 30000)}[form]

        def give_back(got: Any) -> None:
            if isinstance(got, snib.Hold):
                got.release()
            else:
                lock.release()

        with Interrupted(sys.maxsize, False):  # see leaves_nothing()
            got = call()
        give_back(got)
        for n in itertools.count():
            kept: BaseException | None = None
            with Interrupted(n, False):
                try:
                    got = call()
                except Interrupt as error:
                    kept = error
            if kept is None:
                break
            try:
                eventually(lambda: client.stats().held == 0, TIDY)
            except AssertionError:
                pytest.fail(f"an interrupt at step {n} leaves the lock")
        give_back(got)
        assert n > 5
        if kind == "permits":
            server.admin.delete("x")


@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupted_release_whose_traceback_is_kept(server: Server, kind: str) -> None:
    """It has released, or may be called again."""
    with snib.connect(server.url, lease=600) as client:
        lock = KINDS[kind](client)
        if kind == "permits":
            lock.init(1)
        lock.acquire()
        with Interrupted(sys.maxsize, False):  # see leaves_nothing()
            lock.release()
        for n in itertools.count():
            kept: BaseException | None = None
            lock.acquire()
            with Interrupted(n, False):
                try:
                    lock.release()
                except Interrupt as error:
                    kept = error
            if kept is None:
                break
            for frame, _ in traceback.walk_tb(kept.__traceback__):
                frame.f_locals  # of Python 3.10: what the trace function saw there is what there is now
            with contextlib.suppress(snib.NotHeld):
                lock.release()
            try:
                eventually(lambda: client.stats().held == 0, TIDY)
            except AssertionError:
                pytest.fail(f"an interrupt at step {n} leaves the lock")
        assert n > 5
        if kind == "permits":
            server.admin.delete("x")


def test_such_a_leak_is_seen(server: Server) -> None:
    """The same `with` implemented in Python, which leaks the hold on entry and exit."""

    class Naive:
        def __init__(self, client: snib.Client) -> None:
            self.lock = client.lock("x")

        def __enter__(self) -> Any:
            return self.lock._enter([])

        def __exit__(self, *_: object) -> None:
            self.lock._leave([], False)

    KINDS["naive"] = Naive
    try:
        with pytest.raises(pytest.fail.Exception, match="leaves the lock"):
            leaves_nothing(server, "naive", plain, everywhere=True)
    finally:
        del KINDS["naive"]


@pytest.mark.parametrize("block", [plain, held])
def test_with_a_traced_lock(server: Server, block: Callable[[Any], Any]) -> None:
    traced = pytest.importorskip("snib.opentelemetry").traced
    provider = pytest.importorskip("opentelemetry.sdk.trace").TracerProvider()

    def use(lock: Any) -> Any:
        return contextvars.copy_context().run(block, lock)  # an interrupt may leave its span the current one

    KINDS["traced"] = lambda client: traced(client.lock("x"), tracer_provider=provider)
    try:
        assert leaves_nothing(server, "traced", use, everywhere=False) > 50
    finally:
        del KINDS["traced"]


# ---- The return of __enter__ ---------------------------------------------------------------------
#
# Since Python 3.14 `with` calls __enter__ like any function: what a signal's handler raises as it has returned is outside of
# the block.  A plain call shows that in any Python.

_interrupt = functools.partial(_thread.interrupt_main, signal.SIGUSR1)  # does not run the handler itself


@pytest.fixture
def handled() -> Iterator[None]:
    def handler(number: int, frame: object) -> None:
        raise Interrupt()

    before = signal.signal(signal.SIGUSR1, handler)
    yield
    signal.signal(signal.SIGUSR1, before)


class Last:
    """Interrupts as a function has ended, where the interpreter looks for signals no more."""

    __del__ = staticmethod(_interrupt)


def late(function: Callable[..., Any]) -> Callable[..., Any]:
    def called(*arguments: Any) -> Any:
        last = Last()  # noqa: F841
        return function(*arguments)

    return called


def by_call(scope: Any) -> None:
    scope.__enter__()


def by_with(scope: Any) -> None:
    with scope:
        pass


both_forms = pytest.mark.parametrize("enter", [by_call, by_with])


@both_forms
@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupt_as_enter_returns(
    server: Server, handled: None, monkeypatch: pytest.MonkeyPatch, kind: str, enter: Callable[[Any], None]
) -> None:
    with snib.connect(server.url, lease=600) as client:
        lock = KINDS[kind](client)
        if kind == "permits":
            lock.init(1)
        with monkeypatch.context() as patched:
            patched.setattr(snib._lock.Holdable, "_enter", late(snib._lock.Holdable._enter))
            with pytest.raises(Interrupt):
                enter(lock)
        assert client.stats().held == 0
        with lock:
            pass
        if kind == "permits":
            server.admin.delete("x")


@both_forms
def test_an_interrupt_as_enter_of_a_traced_lock_returns(
    server: Server, handled: None, monkeypatch: pytest.MonkeyPatch, enter: Callable[[Any], None]
) -> None:
    opentelemetry = pytest.importorskip("snib.opentelemetry")
    with snib.connect(server.url, lease=600) as client:
        lock = opentelemetry.traced(client.lock("x"))
        with monkeypatch.context() as patched:
            patched.setattr(opentelemetry.TracedLock, "_enter", late(opentelemetry.TracedLock._enter))
            with pytest.raises(Interrupt):
                enter(lock)
        assert client.stats().held == 0


@both_forms
def test_an_interrupt_as_enter_of_a_guard_returns(
    handled: None, monkeypatch: pytest.MonkeyPatch, enter: Callable[[Any], None]
) -> None:
    fence = fencing.Fence()
    with monkeypatch.context() as patched:
        patched.setattr(fencing._Guard, "_enter", late(fencing._Guard._enter))
        with pytest.raises(Interrupt):
            enter(fence.guard(1, "a"))
        with pytest.raises(Interrupt):
            fence.check(2, "b")
    fence.check(3, "c")
    assert fence.token == 3


@both_forms
def test_an_interrupt_as_enter_of_a_mutex_returns(
    handled: None, monkeypatch: pytest.MonkeyPatch, enter: Callable[[Any], None]
) -> None:
    lock = threading.Lock()
    mutex = Mutex(lock)
    with monkeypatch.context() as patched:
        patched.setattr(Mutex, "_enter", late(Mutex._enter))
        with pytest.raises(Interrupt):
            enter(mutex)
    assert not lock.locked()
    with mutex:
        assert lock.locked()
    assert not lock.locked()


def test_an_interrupt_as_enter_of_a_hold_returns(server: Server, handled: None) -> None:
    """Or of a client: they run no Python there, so the signal comes by the same call from C."""
    call = functools.partial.__call__
    with snib.connect(server.url, lease=600) as client:
        hold = client.lock("x").hold()
        for scope in (hold, client):
            with pytest.raises(Interrupt):
                [*map(call, [_interrupt, functools.partial(scope.__enter__)])]
            assert hold.state is not snib.State.VALID
        with pytest.raises(snib.Closed):
            client.ping()
    assert not server.admin.exists("x")


async def held_by_a_task(lock: Any) -> None:
    async with lock.hold(timeout=30):
        pass


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_with_a_hold_in_a_task(server: Server) -> None:
    """It is released at the close of its client, if not before, and never left to its lease."""

    class InTask(Interrupted):
        def __call__(self, frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
            caller: FrameType | None = frame
            while caller and caller.f_code is not held_by_a_task.__code__:
                caller = caller.f_back
            return super().__call__(frame, event, _) if caller else None

    async def interrupted(n: int) -> bool:
        async with snib.aio.connect(server.url, lease=600) as client:
            with InTask(n, False) as steps:
                await asyncio.gather(held_by_a_task(client.lock("x")), return_exceptions=True)
        try:
            eventually(lambda: not server.admin.exists("x"), TIDY)
        except AssertionError:
            pytest.fail(f"an interrupt at step {n} leaves the lock")
        return steps.fired

    asyncio.run(interrupted(sys.maxsize))  # in some Pythons a function has steps only when it is traced again
    for n in itertools.count():
        gc.collect()  # an earlier client, whose finalizer in Python has steps of its own
        if not asyncio.run(interrupted(n)):
            break
    assert n > 20


def test_an_interrupt_leaves_no_queue_corked(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each later request of that loop would wait until the client's own thread happens to send it."""
    corked: list[str] = []
    cork, uncork = _core.queue_cork, _core.queue_uncork
    monkeypatch.setattr(_core, "queue_cork", lambda queue: (cork(queue), corked.append("corked")))
    monkeypatch.setattr(_core, "queue_uncork", lambda queue: (uncork(queue), corked.clear()))

    async def drained(n: int) -> bool:
        async with snib.aio.connect(server.url) as client:
            await client.ping()
            loop = client._loop()
            with Interrupted(sys.maxsize, False):  # in some Pythons a function has steps only when it is traced again
                loop._drain()
            ping = asyncio.create_task(client.ping())
            await asyncio.sleep(0)
            select.select([_core.queue_fd(loop.queue)], [], [], PATIENCE)
            with Interrupted(n, False) as steps, contextlib.suppress(Interrupt):
                loop._drain()
            await ping
            await asyncio.sleep(0)
            assert not corked, f"after an interrupt at step {n}"
        return steps.fired

    assert next(n for n in itertools.count() if not asyncio.run(drained(n))) >= 3


def test_the_close_of_a_client(server: Server) -> None:
    """What a handler raises meanwhile comes out as it is, wherever it came, and a second close finishes the work."""

    class AlsoInTheLibrary(Interrupted):
        files = (PACKAGE, threading.__file__, os.path.dirname(concurrent.futures.__file__))

    for n in itertools.count():
        client = snib.connect(server.url, lease=600)
        assert client.lock("x").acquire()
        interrupted = False
        with AlsoInTheLibrary(sys.maxsize, True) as steps:
            snib.connect(server.url).close()  # in some Pythons a function has steps only when it is traced again
            steps.left = n
            try:
                client.close()
            except Interrupt:
                interrupted = True
        assert interrupted == steps.fired
        client.close()
        assert not server.admin.exists("x")
        if not interrupted:
            break
    assert n > 50


def test_with_a_client(server: Server) -> None:
    """It is closed, though nobody calls close() again, and though somebody keeps the exception."""

    class OfTheBlock(Interrupted):
        def __call__(self, frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
            return super().__call__(frame, event, _) if ended else None

    ended: list[snib.Client] = []

    def use() -> None:
        with snib.connect(server.url, lease=600) as client:
            assert client.lock("x").acquire()
            ended.append(client)

    kept: list[Interrupt] = []
    for n in itertools.count():
        for left in (sys.maxsize, n):  # in some Pythons a function has steps only when it is traced again
            with OfTheBlock(left, False) as steps:
                try:
                    use()
                except Interrupt as error:
                    kept.append(error)
            eventually(lambda: not server.admin.exists("x"), TIDY)
            with pytest.raises(snib.Closed):
                ended.pop().ping()
        if not steps.fired:
            break
    assert len(kept) == n > 5


def test_the_start_of_a_thread(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The call that blocks signals for the new thread runs the handlers of those that came before."""
    mask = signal.pthread_sigmask

    def interrupted(how: int, signals: Iterable[int]) -> set[int]:
        before = mask(how, signals)
        if signals and how == signal.SIG_BLOCK:
            raise Interrupt()
        return before

    before = mask(signal.SIG_BLOCK, ())
    monkeypatch.setattr(signal, "pthread_sigmask", interrupted)
    try:
        with snib.connect(server.url) as client, pytest.raises(Interrupt):
            Reader("interrupted").add(client, snib._core.queue_new(client._handle), lambda client: None)
        assert mask(signal.SIG_BLOCK, ()) == before
    finally:
        mask(signal.SIG_SETMASK, before)


def test_a_handler_uses_a_client_at_the_start_of_a_thread(server: Server) -> None:
    """One that runs as the signals are let through again."""
    program = Program(
        """
from snib import _native
first, second = snib.connect(URL), snib.connect(URL)

def handler(number, frame):
    with second.lock("b") as hold: say(hold.state.name)

start = _native.start
def start_late(*arguments):
    if signal.getsignal(signal.SIGUSR1) is not handler:
        signal.signal(signal.SIGUSR1, handler)
        os.kill(os.getpid(), signal.SIGUSR1)
    start(*arguments)

_native.start = start_late
with first.lock("a") as hold: say(hold.state.name)
""",
        server.url,
    )
    assert program.end() == "VALID\nVALID\n"


@pytest.mark.parametrize("options", ["", ", credentials=lambda: 'secret'"])
def test_a_time_limit_at_the_first_operation(server: Server, options: str) -> None:
    """A TimeoutError is an OSError, too, which is all right where a client does not get its log."""
    program = Program(
        f"""
from snib import _reader

def handler(number, frame): raise TimeoutError("by the handler")
signal.signal(signal.SIGALRM, handler)

def add(self, *arguments):
    os.kill(os.getpid(), signal.SIGALRM)
    return real(self, *arguments)

real, _reader.Reader.add = _reader.Reader.add, add
client = snib.connect(URL{options})
try: client.lock("x").acquire()
except BaseException as error: say(type(error).__name__, error)
""",
        server.url,
    )
    assert program.end() == "TimeoutError by the handler\n"


# ---- Events --------------------------------------------------------------------------------------


def test_an_interrupted_drain_loses_no_event(client: snib.Client) -> None:
    queue = snib.Queue(client)
    locks = [client.lock("x"), client.lock("y")]

    def drained(steps: int) -> bool:
        """Whether there were as many steps."""
        tickets = [queue.acquire(lock) for lock in locks]
        eventually(lambda: client.stats().held == len(locks))
        events: list[snib.Event] = []
        with Interrupted(steps, False) as interrupted, contextlib.suppress(Interrupt):
            events += queue.drain()
        gc.collect()
        while len(events) < len(tickets):  # they may come a moment after the holds
            assert select.select([queue.fileno()], [], [], PATIENCE)[0]
            events += queue.drain()
        assert sorted(event.ticket for event in events) == tickets
        for event in events:
            assert isinstance(event.result, snib.Hold)
            event.result.release()
        assert not queue._locks and not queue._running and not queue._taken
        return interrupted.fired

    for n in itertools.count():
        drained(sys.maxsize)  # in some Pythons a function has steps only when it is traced again
        if not drained(n):
            break
    assert n > 10


def test_an_interrupted_drain_tells_each_loss_once(server: Server, client: snib.Client) -> None:
    """One loss of the core becomes an event for each of its owner's holds."""
    queue, lock, holds = snib.Queue(client), client.rlock("x", lease=RENEWED), []
    for _ in range(2):
        queue.acquire(lock)
        assert select.select([queue.fileno()], [], [], PATIENCE)[0]
        holds += queue.drain()
    server.admin.delete("x")
    told: list[Any] = []
    while not told:
        assert select.select([queue.fileno()], [], [], PATIENCE)[0]
        _core.queue_drain(queue._handle, told)
    assert len(told) == 1

    def drained(steps: int) -> bool:
        """Whether there were as many steps."""
        queue._taken[threading.get_ident()] = told.copy()  # as after an interrupt when the core has told it
        _core.queue_wake(queue._handle)
        events: list[snib.Event] = []
        with Interrupted(steps, False) as interrupted, contextlib.suppress(Interrupt):
            events += queue.drain()
        while not events:
            assert select.select([queue.fileno()], [], [], PATIENCE)[0]
            events += queue.drain()
        assert [event.ticket for event in events] == [event.ticket for event in holds]
        assert all(event.lost and isinstance(event.result, snib.Lost) for event in events)
        return interrupted.fired

    for n in itertools.count():
        drained(sys.maxsize)  # in some Pythons a function has steps only when it is traced again
        if not drained(n):
            break
    assert n > 10


def test_an_interrupted_submit_brings_no_event(client: snib.Client) -> None:
    """The program has no ticket of it: what was acquired is given back."""
    queue = snib.Queue(client)
    locks = [client.lock(name) for name in "xyz"]

    def give_back(tickets: list[int]) -> None:
        """Of these there are events, and of no others."""
        events: list[snib.Event] = []
        while len(events) < len(tickets):
            assert select.select([queue], [], [], PATIENCE)[0]
            events += queue.drain()
        assert sorted(event.ticket for event in events) == tickets
        for event in events:
            assert isinstance(event.result, snib.Hold)
            event.result.release()

    for n in itertools.count():
        tickets = []
        for lock in locks[1:]:  # twice: see leaves_nothing()
            with Interrupted(sys.maxsize, False) as every:
                tickets.append(queue.acquire(lock))
        if n and n == sys.maxsize - every.left - 1:  # the return to the program, where no handler runs
            break
        with Interrupted(n, False), contextlib.suppress(Interrupt):
            queue.acquire(locks[0])
        give_back([*tickets, queue.acquire(locks[0])])
    give_back(tickets)
    assert n > 10


def test_an_interrupt_as_an_exception_is_made(server: Server, client: snib.Client) -> None:
    """The call that makes it raises, no other queue's in another thread; the next one returns the events."""
    queue = snib.Queue(client)
    server.admin.set("wrong", "text")
    tickets = [queue.acquire(client.lock(name)) for name in ("wrong", "x", "y")]
    made: list[object] = []
    events: list[snib.Event] = []

    def make(*arguments: Any) -> snib.Error:
        made.append(arguments)
        if len(made) == 1:
            raise Interrupt()
        return snib._errors.make(*arguments)

    snib._core.set_errors(make)
    try:
        with pytest.raises(Interrupt):
            while not made:
                assert select.select([queue.fileno()], [], [], PATIENCE)[0]
                events += queue.drain()
    finally:
        snib._core.set_errors(snib._errors.make)
    while len(events) < len(tickets):
        assert select.select([queue.fileno()], [], [], PATIENCE)[0]
        events += queue.drain()
    server.admin.delete("wrong")
    assert sorted(event.ticket for event in events) == tickets
    for event in events:
        if isinstance(event.result, snib.Hold):
            event.result.release()
        else:
            assert isinstance(event.result, snib.WrongType)


# ---- Dropped objects -----------------------------------------------------------------------------


def test_dropping_runs_nothing_in_python(server: Server) -> None:
    """An exception of a signal handler in a finalizer or weak reference callback would be swallowed."""
    began: list[str] = []

    def trace(frame: FrameType, event: str, _: object) -> None:
        began.append(f"{frame.f_code.co_name} in {frame.f_code.co_filename}")

    with snib.connect(server.url) as client:
        for lock in (client.lock("x"), client.rlock("x"), client.fair_lock("x"), client.permits("p")):
            if isinstance(lock, snib.Permits):
                lock.init(1)
            with lock as hold:
                kept = hold
            assert lock.acquire()
            lock.release()
            things = [kept, lock]
            del hold, kept, lock
            sys.settrace(trace)
            things.clear()
            sys.settrace(None)
        queue = snib.Queue(client)
        queue.acquire(client.lock("x"))
        select.select([queue.fileno()], [], [], PATIENCE)
        holds: list[Any] = []
        while not holds:
            holds += [event.result for event in queue.drain()]
        holds[0].release()
        sys.settrace(trace)
        holds.clear()
        sys.settrace(None)
        server.admin.delete("p", "{p}:timeout")
    sys.settrace(trace)
    del queue, client
    sys.settrace(None)
    assert began == []


def test_dropping_what_was_awaited_runs_nothing_in_python(server: Server) -> None:
    began: list[str] = []

    def trace(frame: FrameType, event: str, _: object) -> None:
        began.append(f"{frame.f_code.co_name} in {frame.f_code.co_filename}")

    async def main() -> None:
        async with snib.aio.connect(server.url) as client:
            things: list[Any] = [client.lock("x").hold(), client.lock("y").hold()]
            things.append(await things[0])
            await things[2].release()
            async with things[1]:
                pass
            sys.settrace(trace)
            things.clear()
            sys.settrace(None)

    asyncio.run(main())
    assert began == []


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_as_a_reentry_is_dropped(server: Server) -> None:
    """At any step: it is abandoned once, and its owner's other holds stay."""

    class Once(Interrupted):
        def __call__(self, frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
            return super().__call__(frame, event, _) if frame.f_code.co_name == "_abandon" else None

    with snib.connect(server.url) as client:
        lock = client.rlock("x")
        for n in itertools.count():
            outer, inner = lock.hold(), [lock.hold(), lock.hold()]
            for left in (sys.maxsize, n):  # in some Pythons a function has steps only when it is traced again
                with Once(left, True) as once:
                    inner.pop()
            outer.check()
            outer.release()
            del outer
            assert client.stats().abandoned == n + 1
            lock.force_release()
            if not once.fired:
                break
        assert n > 5


def test_an_interrupt_as_a_hold_is_dropped(server: Server) -> None:
    """It is abandoned anyway, and the interrupt comes a little later."""

    class Once:
        fired = False

        def __call__(self, frame: FrameType, event: str, _: object) -> None:
            if frame.f_code.co_name == "_abandon" and not self.fired:
                self.fired = True
                raise KeyboardInterrupt

    with snib.connect(server.url, lease=2) as client:
        lock = client.lock("x")
        hold = [lock.hold()]
        with pytest.warns(ResourceWarning, match="dropped"), pytest.raises(KeyboardInterrupt):
            sys.settrace(once := Once())
            try:
                hold.clear()
                eventually(lambda: False, TIDY)  # until the signal handler has run
            finally:
                sys.settrace(None)
        assert once.fired
        eventually(lambda: not server.admin.exists("x"), TIDY)

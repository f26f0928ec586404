"""Tests that need a separate process: signals, forks, and the end of the interpreter."""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest

import snib
from conftest import NewServer
from support import PATIENCE, TIDY, Program, Server, eventually

# ---- Ctrl-C --------------------------------------------------------------------------------------

INTERRUPTED = """
client = snib.connect(URL, patience=60, reply_timeout=60, recheck=60)
lock, other = client.lock("busy"), client.lock("other")
client.ping()
hold = other.hold()
{before}
say("ready")
input()
try:
    say("calling")
    {call}
    say("came back")
except KeyboardInterrupt:
    say("interrupted")
input()
assert client.stats().waiting == 0, client.stats()
{after}
with lock.hold(timeout=600) as last: say("usable", last.state.name)
"""

# Call, whether it blocks because the server does not answer, and the cleanup afterwards.
CALLS = {
    "acquire": ("lock.acquire()", False, "hold.release()"),
    "acquire timed": ("lock.acquire(timeout=600)", False, "hold.release()"),
    "hold": ("lock.hold()", False, "hold.release()"),
    "with": ("with lock: pass", False, "hold.release()"),
    "lost.wait": ("hold.lost.wait()", False, "hold.release()"),
    "semaphore": ("client.semaphore('none').acquire(n=2)", False, "hold.release()"),
    "latch": ("latch.wait()", False, "latch.force_release(); hold.release()"),
    "MultiLock": ("snib.MultiLock([lock, client.lock('b')]).acquire()", False, "hold.release()"),
    "describe, no answer": ("client.describe('other')", True, "hold.release()"),
    "count, no answer": ("latch.count()", True, "latch.force_release(); hold.release()"),
    "acquire, no answer": ("client.lock('free').acquire()", True, "hold.release()"),
    "release, no answer": ("hold.release()", True, ""),
    "info, no answer": ("lock.info()", True, "hold.release()"),
    "force_release, no answer": ("other.force_release()", True, ""),
    "ping, no answer": ("client.ping()", True, "hold.release()"),
    "list, no answer": ("client.list()", True, "hold.release()"),
    "close, no answer": ("client.close()", True, "sys.exit()"),
}


@pytest.mark.parametrize("call", CALLS)
def test_ctrl_c_interrupts(new_server: NewServer, call: str) -> None:
    """Soon, with no waiter or key left, and the client still works."""
    server = new_server()
    source, no_answer, after = CALLS[call]
    with snib.connect(server.url) as holder:
        busy = holder.lock("busy").hold()
        before = "latch = client.latch('latch'); latch.init(1)" if "latch" in source else ""
        program = Program(INTERRUPTED.format(before=before, call=source, after=after), server.url)
        assert program.hear() == "ready"
        if no_answer:
            server.process.send_signal(signal.SIGSTOP)
        program.tell()
        assert program.hear() == "calling"
        eventually(program.asleep)
        time.sleep(0.12)  # let it get beyond the first slice, which is not visible from outside
        program.process.send_signal(signal.SIGINT)
        assert program.hear() == "interrupted"
        server.process.send_signal(signal.SIGCONT)
        busy.release()
        program.tell()
        assert program.end().strip() == ("" if after == "sys.exit()" else "usable VALID")
    eventually(server.clean, TIDY)


def test_ctrl_c_interrupts_within_100_ms(server: Server) -> None:
    """The median of fifteen turns, in one of a few rounds, does not depend on a busy machine."""
    source = """
client = snib.connect(URL, recheck=60)
lock = client.lock("busy")
while True:
    try:
        say("calling")
        lock.acquire()
    except KeyboardInterrupt:
        say(time.monotonic())
        if input(): break
"""
    with snib.connect(server.url) as holder, holder.lock("busy"):
        program = Program(source, server.url)
        medians: list[float] = []
        while len(medians) < 6 and not (medians and medians[-1] < 0.1):
            delays = []
            for turn in range(15):
                if medians or delays:
                    program.tell()
                assert program.hear() == "calling"
                eventually(program.asleep)
                time.sleep(0.02 * turn)  # at any moment of a slice
                sent = time.monotonic()
                program.process.send_signal(signal.SIGINT)
                delays.append(float(program.hear()) - sent)
            medians.append(statistics.median(delays))
        program.tell("end")
        program.end()
    assert medians[-1] < 0.1, medians


@pytest.mark.parametrize("call", ["lock.acquire()", "hold.lost.wait()", "hold.lost.wait(600)"])
def test_ctrl_c_that_another_thread_takes(server: Server, call: str) -> None:
    """The kernel may deliver a signal to any thread; Python's main thread checks for it by itself."""
    source = """
import threading
signal.alarm(30)  # a program that does not look is ended
client = snib.connect(URL, recheck=60)
lock, hold = client.lock("busy"), client.lock("other").hold()
go = threading.Event()
def take():
    go.wait()
    time.sleep(0.2)  # the main thread is beyond its first slice; nothing inside shows when
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)
threading.Thread(target=take).start()
try:
    go.set()
    CALL
except KeyboardInterrupt:
    say("interrupted")
hold.release()
""".replace("CALL", call)
    with snib.connect(server.url) as holder, holder.lock("busy"):
        program = Program(source, server.url)
        assert program.hear() == "interrupted"
        program.end()


@pytest.mark.parametrize("where", ["work()", "t = threading.Thread(target=work); t.start(); t.join()"], ids=["main", "other"])
def test_signals_do_not_end_a_wait_for_the_loss(server: Server, where: str) -> None:
    """Handlers run meanwhile, however many, and the timeout ends it when it is over."""
    source = """
import threading
signal.signal(signal.SIGUSR1, lambda *_: None)
hold = snib.connect(URL).lock("name").hold()
def work():
    ident, over, sent = threading.get_ident(), threading.Event(), []
    def disturb():
        while not over.wait(0.005):
            sent.append(signal.pthread_kill(ident, signal.SIGUSR1))
    disturber = threading.Thread(target=disturb)
    disturber.start()
    begun = time.monotonic()
    lost = hold.lost.wait(1.0)
    took = time.monotonic() - begun
    over.set()
    disturber.join()
    say(lost, took >= 1.0 or took, len(sent) > 3)
WHERE
hold.release()
""".replace("WHERE", where)
    program = Program(source, server.url)
    assert program.hear() == "False True True"
    program.end()


def test_ctrl_c_does_not_lose_what_was_acquired(server: Server) -> None:
    """Signals at random moments of a busy loop: each hold is either used or released."""
    source = """
import signal
client = snib.connect(URL)
lock = client.lock("hot")
turns = interrupts = 0
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
say("ready")
while interrupts < 50:
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        while True:
            with lock:
                turns += 1
    except KeyboardInterrupt:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        interrupts += 1
        say("interrupted")
    except snib.Error as error:
        say("failed", repr(error))
assert lock.acquire(timeout=60)
lock.release()
say("done", turns)
"""
    program = Program(source, server.url)
    assert program.hear() == "ready"
    for _ in range(50):
        program.process.send_signal(signal.SIGINT)
        assert program.hear() == "interrupted"
    assert program.end().startswith("done")


# ---- Fork ----------------------------------------------------------------------------------------

FORK = """
import asyncio, gc, threading, warnings
warnings.simplefilter("ignore", DeprecationWarning)
client = snib.connect(URL, lease=6)
aclient = snib.aio.connect(URL)
parent_id = client.id
lock = client.lock("parent")
family = [client.semaphore("s"), client.permits("p"), snib.MultiLock([lock, client.fair_lock("f")])]
latch = client.latch("l")
queue = hold = waiter = None
state = sys.argv[2]

def child():
    calls = []
    if hold is not None:
        calls += [hold.check, hold.release, hold.remaining, hold.lost.is_set]
    if queue is not None:
        calls += [queue.drain, lambda: queue.acquire(lock)]
    for number, call in enumerate(calls):
        try:
            call()
        except snib.Forked:
            continue
        raise SystemExit(f"{state}: call {number} did not raise Forked")
    assert client.id != parent_id and client.id == client.id and client.id in repr(client)
    client.ping()
    with client.lock("child") as mine:
        mine.check()
        assert "child" in client.list()
    again = client.rlock("child:r")
    with again, again: pass
    if hold is not None and state != "losing":
        assert not lock.acquire(timeout=0) and lock.locked()
    elif state != "busy":
        snib.Queue(client).acquire(lock)
    for each in family[2:] if state in ("unused", "idle", "closed") else ():
        with each: pass
    with snib.connect(URL) as own, own.lock("child") as mine:
        mine.check()
    async def main():
        async with aclient.lock("child") as mine:
            mine.check()
        await aclient.ping()
    asyncio.run(main())
    client.close()
    try: client.ping()
    except snib.Closed: pass
    else: raise SystemExit(f"{state}: a client that is closed in the child works there")

calm = threading.Event()

def fork():
    global lock, client, hold, queue
    pid = os.fork()
    calm.set()  # the busy threads leave the processor to the child
    if pid == 0:
        child()
        lock = client = hold = queue = None
        gc.collect()
        sys.exit()
    _, status = os.waitpid(pid, 0)
    calm.clear()
    assert status == 0, status

def eventfds():
    links = []
    for fd in os.listdir("/proc/self/fd"):
        try: links.append(os.readlink("/proc/self/fd/" + fd))
        except FileNotFoundError: pass
    return links.count("anon_inode:[eventfd]")

async def looping():
    global hold
    async with aclient.lock("loop") as held, aclient.lock("parent") as hold:
        waiting = asyncio.ensure_future(aclient.lock("loop").acquire())
        await asyncio.sleep(0.01)
        before = eventfds()
        pid = os.fork()
        if pid == 0:
            try:
                hold.check()
            except snib.Forked:
                os._exit(0 if eventfds() < before else 2)  # the queue was dropped
            os._exit(1)
        _, status = os.waitpid(pid, 0)
        assert status == 0
        await aclient.ping()
        waiting.cancel()
        hold.check()
        held.check()

if state == "unused":
    fork()
elif state == "idle":
    with lock: pass
    fork()
elif state == "queue":
    queue = snib.Queue(client)
    queue.acquire(lock)
    fork()
    del queue
elif state == "holding":
    hold = lock.hold()
    fork()
    before = client.stats().renewals
    while client.stats().renewals < before + 4: time.sleep(0.01)  # longer than the lease
    hold.check()
    hold.release()
elif state == "waiting":
    hold = lock.hold()
    waiter = threading.Thread(target=lambda: lock.hold(timeout=60).release())
    waiter.start()
    while not client.stats().waiting: time.sleep(0.001)
    fork()
    hold.check()
    hold.release()
    waiter.join()
elif state == "busy":
    stop = threading.Event()
    def work(name):
        while not stop.is_set():
            with client.lock(name): pass
            while calm.is_set(): time.sleep(0.01)
    threads = [threading.Thread(target=work, args=(f"busy{n % 2}",)) for n in range(4)]
    for thread in threads: thread.start()
    for _ in range(10):
        before = client.stats().acquisitions
        while client.stats().acquisitions < before + 20: time.sleep(0.001)  # all of them are in the middle of it
        fork()
    stop.set()
    for thread in threads: thread.join()
elif state == "losing":
    hold = brief(client.lock("losing", lease=2))
    assert hold.lost.wait(60)
    fork()
elif state == "loop":
    asyncio.run(looping())
elif state == "closed":
    client.close()
    pid = os.fork()
    if pid == 0:
        try: client.ping()
        except snib.Closed: sys.exit()
        sys.exit(1)
    assert os.waitpid(pid, 0)[1] == 0
if state != "closed":
    client.ping()
    assert lock.acquire(timeout=60)
    lock.release()
say("parent fine")
"""

STATES = ["unused", "idle", "queue", "holding", "waiting", "busy", "losing", "loop", "closed"]


@pytest.mark.parametrize("state", STATES)
def test_fork(server: Server, state: str) -> None:
    """Clients continue in the child with a new identity; holds and queues belong to the parent."""
    program = Program(FORK, server.url, state)
    assert program.end() == "parent fine\n"


DAEMON = """
import asyncio, warnings, snib.aio
warnings.simplefilter("ignore")  # those about os.fork() while there are threads, and about open files
folder, used = sys.argv[2:]
client = snib.connect(URL)
with client.lock("daemon"): pass

def own():
    sys.own = files = [open(f"{folder}/{n}", "w") for n in range(24)]
    if used == "used":
        with client.lock("daemon"): pass
    elif used == "async":
        async def main():
            async with snib.aio.connect(URL) as other:
                async with other.lock("daemon"): pass
        asyncio.run(main())
    for file in files: file.write("last words")

pid = os.fork()
if pid == 0:
    os.closerange(3, 1024)
    own()
    sys.exit()
assert os.waitpid(pid, 0)[1] == 0
client.ping()
say("parent fine")
"""


@pytest.mark.parametrize("used", ["unused", "used", "async"])
def test_files_of_a_daemon(server: Server, tmp_path: Path, used: str) -> None:
    """A daemon closes what it inherits, and opens files of its own under the same numbers: they are written to the end."""
    program = Program(DAEMON, server.url, str(tmp_path), used)
    assert program.end() == "parent fine\n"
    assert {path.read_text() for path in tmp_path.iterdir()} == {"last words"}


# ---- Exit ----------------------------------------------------------------------------------------

# A program that is not to continue without its lock; its end is no loss.
WATCHED = """
hold = lock.hold()
def watch():
    {wait}
    os._exit(3)
threading.Thread(target=watch, daemon=True).start()
atexit.unregister(snib._client._close_all)
atexit.register(time.sleep, 0.05)  # a handler that lets other threads run when all clients are closed
atexit.register(snib._client._close_all)
"""
EXITS = {
    "unused": "",
    "holding": "lock.acquire()",
    "holding by hold": "hold = lock.hold()",
    "holding in a cycle": "hold = lock.hold(); cycle = [hold]; cycle.append(cycle); del hold",
    "holding in a module": "sys.hold = lock.hold()",
    "holding re-entrant": "r = client.rlock('x'); r.acquire(); r.acquire()",
    "losing": "hold = brief(client.lock('x', lease=2)); hold.lost.wait()",
    "waiting in a daemon thread": """
hold = lock.hold()
threading.Thread(target=lock.acquire, daemon=True).start()
while not client.stats().waiting: time.sleep(0.001)
""",
    "waiting for a loss in a daemon thread": """
hold = lock.hold()
threading.Thread(target=hold.lost.wait, daemon=True).start()
""",
    "ending on a loss in a daemon thread": WATCHED.format(wait="hold.lost.wait()"),
    "asking for a loss in a daemon thread": WATCHED.format(wait="while not hold.lost.is_set(): time.sleep(0.001)"),
    "asking for the rest in a daemon thread": WATCHED.format(wait="while hold.remaining(): time.sleep(0.001)"),
    "busy in daemon threads": """
def work():
    while True:
        with client.lock("busy"): pass
for _ in range(4): threading.Thread(target=work, daemon=True).start()
while client.stats().acquisitions < 100: time.sleep(0.001)
""",
    "naming locks in daemon threads": """
def work():
    while True: client.lock("busy")
for _ in range(4): threading.Thread(target=work, daemon=True).start()
lock.acquire()
""",
    "asyncio in a daemon thread": """
async def main():
    async def work():
        while True:
            async with c.lock("busy"): pass
    async with snib.aio.connect(URL) as c:
        for _ in range(4): asyncio.ensure_future(work())
        while c.stats().acquisitions < 100: await asyncio.sleep(0.001)
        busy.set()
        await work()
busy = threading.Event()
threading.Thread(target=lambda: asyncio.run(main()), daemon=True).start()
busy.wait()
""",
    "queue": "q = snib.Queue(client); q.acquire(lock); q.acquire(lock)",
    "asyncio": """
async def main():
    c = snib.aio.connect(URL)
    global kept
    kept = await c.lock("x").hold()
    asyncio.ensure_future(c.lock("y").acquire())
asyncio.run(main())
""",
    "sys.exit": "lock.acquire(); sys.exit(0)",
    "close in atexit": "atexit.register(client.close); lock.acquire()",
}


@pytest.mark.parametrize("state", EXITS)
def test_exit(server: Server, state: str) -> None:
    """Holds are released at exit, long before their leases end, quietly, and nothing is left."""
    source = "import asyncio, atexit, threading\nclient = snib.connect(URL, lease=600)\n"
    source += "lock = client.lock('name')\n" + EXITS[state]
    Program(source, server.url).end()


def test_exit_without_an_answer(new_server: NewServer) -> None:
    """The interpreter's end waits a second for releases, not for the client's patience."""
    server = new_server()
    source = "patient = {'patience': 60, 'reply_timeout': 60, 'lease': 600}\n"
    source += "a, b = snib.connect(URL, **patient), snib.connect(URL, **patient)\n"
    source += "x, y = a.lock('x').hold(), b.lock('y').hold()\nsay('held')\ninput()\n"
    program = Program(source, server.url)
    assert program.hear() == "held"
    with server.stopped():
        program.tell()
        program.end()


LATE_HANDLER = """
import atexit, threading
box = {{}}
def release():
    try: box["hold"].release()
    except snib.Error as error: say(type(error).__name__)
def end():
    {how}
    say("the handler has ended")
atexit.unregister(snib._client._close_all)
atexit.register(end)
atexit.register(snib._client._close_all)  # as if snib were imported after this handler was set
box["hold"] = snib.connect(URL).lock("x").hold()
work = threading.Event()
def wait_and_release(): work.wait(); release()
worker = threading.Thread(target=wait_and_release, daemon=True)
worker.start()
"""


@pytest.mark.parametrize("how", ["release()", "work.set(); worker.join()"])
def test_exit_handlers_of_others_come_to_an_end(server: Server, how: str) -> None:
    """A handler that runs when all clients are closed gets the error, in any thread, and continues."""
    program = Program(LATE_HANDLER.format(how=how), server.url)
    said = program.end().splitlines()
    assert said == ["Lost", "the handler has ended"]


EMPTIED = """
def drop():
    global hold
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "snib":
            vars(module).update(dict.fromkeys(vars(module)))
    hold = None

client = snib.connect(URL, lease=600)
hold = client.lock("x").hold()
child = os.fork()
if not child:
    drop()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
client.close()
drop()
os._exit(0)
"""


def test_a_hold_that_is_dropped_when_modules_are_empty(server: Server) -> None:
    """As in a worker of uWSGI, which keeps the application longer than the interpreter keeps snib's modules."""
    Program("import os, warnings\nwarnings.simplefilter('ignore', DeprecationWarning)\n" + EMPTIED, server.url).end()


EMBEDDED = """
#include <Python.h>
#include <pthread.h>
static void *run(void *source)
{
    Py_Initialize();
    PyRun_SimpleString(source);
    printf("finalized %d\\n", Py_FinalizeEx());
    return NULL;
}
int main(int argc, char **argv)
{
    pthread_t thread;
    return pthread_create(&thread, NULL, run, argv[argc - 1]) || pthread_join(thread, NULL);
}
"""


def test_python_in_another_thread_than_the_first(server: Server, tmp_path: Path) -> None:
    """As embedded by servers and other languages: the main thread is where Python was started."""
    include, library = sysconfig.get_path("include"), sysconfig.get_config_var("LIBDIR")
    (tmp_path / "embed.c").write_text(EMBEDDED)
    flags = (sysconfig.get_config_var("LIBS") or "").split()
    name = f"-lpython{sysconfig.get_config_var('LDVERSION')}"
    build = ["gcc", "embed.c", "-o", "embed", f"-I{include}", f"-L{library}"]
    build += [f"-Wl,-rpath,{library}", "-Wl,-export-dynamic", name, "-lpthread", "-ldl", "-lutil"]
    done = subprocess.run([*build, "-lm", *flags], cwd=tmp_path, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("this Python cannot be embedded here")
    source = LATE_HANDLER.format(how="release()")
    paths = [path for path in sys.path if path]
    prelude = Program.PRELUDE.replace("sys.argv[1]", repr(server.url)).replace(
        "import signal, sys", f"import sys; sys.path[:0] = {paths!r}\nimport signal"
    )
    command = [str(tmp_path / "embed"), prelude + source]
    environment = {**os.environ, "PYTHONHOME": sys.base_prefix}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, env=environment
    )
    said = done.stdout.splitlines()
    assert said == ["Lost", "the handler has ended", "finalized 0"], done.stderr


def test_daemon_threads_stand_still_while_exit_releases(
    new_server: NewServer, tmp_path: Path
) -> None:
    """None continues its critical section while its lock is being released."""
    server = new_server()
    pauses = tmp_path / "pauses"
    pauses.write_bytes(bytes(16))
    source = f"""
import mmap, struct, threading
with open({str(pauses)!r}, "r+b") as file: shared = mmap.mmap(file.fileno(), 16)
hold = snib.connect(URL).lock("x").hold()
def work():
    last, longest = time.monotonic(), 0.0
    while True:
        now = time.monotonic()
        last, longest = now, max(longest, now - last)
        shared[:] = struct.pack("dd", last, longest)
threading.Thread(target=work, daemon=True).start()
say("held"); input()
"""
    program = Program(source, server.url)
    assert program.hear() == "held"
    with server.stopped():  # the exit waits a second for the release
        program.tell()
        program.end()
        last, longest = struct.unpack("dd", pauses.read_bytes())
        assert max(longest, time.monotonic() - last) > 0.9


def test_crash_leaves_the_lease(new_server: NewServer) -> None:
    server = new_server()
    program = Program(
        "h = snib.connect(URL, lease=6).lock('x').hold(); say(1); input()", server.url
    )
    program.hear()
    program.process.kill()
    program.rest()
    assert server.admin.exists("x")
    eventually(server.clean)


def test_sub_interpreters_are_refused() -> None:
    """One sentence says so, and the main interpreter is not affected."""
    pytest.importorskip("_testcapi")
    source = (
        "import _testcapi, snib\n"
        "code = 'try:\\n import snib\\nexcept ImportError as e: print(e, flush=True)'\n"
        "assert _testcapi.run_in_subinterp(code) == 0\nprint(snib.__version__)"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "snib cannot be used in a sub-interpreter; use the main one (with mod_wsgi: WSGIApplicationGroup %{GLOBAL})",
        snib.__version__,
    ], done.stderr


def test_free_threaded_pythons_are_refused() -> None:
    """One sentence says so, before anything can go wrong."""
    source = "import sys; sys.abiflags += 't'; import snib"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "ImportError: snib does not support free-threaded Python; use a build with the GIL"
    )


def test_sub_interpreters_with_a_gil_of_their_own_are_refused() -> None:
    try:
        import _xxsubinterpreters as interpreters
    except ImportError:
        import _interpreters as interpreters  # type: ignore[no-redef]
    interpreter = interpreters.create()
    source = """
try:
    import snib
except ImportError as error:
    assert "sub-interpreter" in str(error) or "subinterpreter" in str(error), error
else:
    raise SystemError("imported")
"""
    failed = interpreters.run_string(interpreter, source)
    assert failed is None
    interpreters.destroy(interpreter)


# ---- Types ---------------------------------------------------------------------------------------

TYPED = """
import contextlib

import snib
import snib.anyio
import snib.testing
from snib import aio, protocols


class Own(snib.Client):
    colour = "green"


class OwnServer(snib.testing.Server):
    colour = "green"


with Own() as own, OwnServer() as own_server:
    colours: list[str] = [own.colour, own_server.colour]
client = snib.connect("redis://localhost", lease=10, patience=1.5, password=None)
with client.lock("a", lease=3) as hold:
    number: int = hold.token
    left: float = hold.remaining()
    gone: bool = hold.lost.wait(1.0)
    state: snib.State = hold.state
with client.rlock("a").hold(timeout=2) as inner:
    inner.check()
ok: bool = client.lock("a").acquire(blocking=True, timeout=-1)
names: list[str] = client.list()
held: int = client.stats().held
owner: str = client.lock("a").info().owner
try:
    pass
except snib.InvalidName as error:
    code: int = error.code


async def main() -> None:
    async with snib.aio.connect(url="redis://localhost", lease=3.0) as c:
        async with c.lock("a") as hold:
            lost: bool = await hold.lost.wait()
        async with c.lock("a").hold(timeout=1) as second:
            second.check()
        third: aio.Hold = await c.rlock("a").hold()
        await third.release()
        async with contextlib.AsyncExitStack() as stack:
            fourth: aio.Hold = await stack.enter_async_context(await c.lock("a").hold())
            fifth: aio.Hold = await stack.enter_async_context(c.lock("b").hold())
            sixth: aio.Hold = await stack.enter_async_context(c.lock("c"))
            any_lock: protocols.AsyncLock = c.lock("d")
            seventh = await stack.enter_async_context(await any_lock.hold())
            seventh.check()
    async with snib.anyio.connect() as entered:
        same: snib.anyio.Client = entered


with contextlib.ExitStack() as stack:
    first: snib.Hold = stack.enter_context(client.lock("a").hold())
    other: snib.Hold = stack.enter_context(client.lock("b"))
"""

WRONG = """
import snib

snib.connect(lease="3")
snib.connect().lock(1)
snib.connect().lock("a").acquire(timeout="1")
lock: snib.protocols.Lock = snib.aio.connect().lock("a")
latch: snib.protocols.Lock = snib.connect().latch("a")
"""

# Every kind of lock, and locks that are none, under the protocols.
FAKES = [Path(__file__).with_name("fakes.py"), Path(__file__).parents[2] / "docs/examples/fake_lock.py"]


def test_types(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(TYPED)
    (tmp_path / "wrong.py").write_text(WRONG)
    for fakes in FAKES:
        shutil.copy(fakes, tmp_path)
    check = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", os.devnull]
    for name in ("good", "wrong", *(fakes.stem for fakes in FAKES)):
        check += ["-m", name]
    check += ["-p", "snib"]  # in one run: most of the time goes to what all of them import
    done = subprocess.run(check, cwd=tmp_path, capture_output=True, text=True)
    errors = [line.split(" error: ")[0] for line in done.stdout.splitlines() if " note: " not in line]
    assert errors == [f"wrong.py:{line}:" for line in (4, 5, 6, 7, 8)], done.stdout + done.stderr


def test_pyright(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(TYPED)
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "good.py", *map(str, FAKES)]
    quiet = {"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}  # it would check the network for a newer version
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=os.environ | quiet)
    assert done.returncode == 0, done.stdout


def test_the_stub_names_what_the_module_has() -> None:
    import ast

    stub = Path(snib.__file__).with_name("_core.pyi").read_text()
    described = {
        node.name
        for node in ast.parse(stub).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.decorator_list
    }
    there = {name for name in dir(snib._core) if not name.startswith(("_", "SWIG"))}
    assert there == described

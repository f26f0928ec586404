"""With gevent and eventlet, which replace threads by greenlets and remove epoll."""

from __future__ import annotations

import _thread
import signal
import threading
import time
from collections.abc import Callable

import pytest

import snib
from snib import _native
from support import Program, Server, eventually

PATCH = {
    "gevent, not select": "from gevent import monkey; monkey.patch_all(select=False)\n",
    "gevent": "from gevent import monkey; monkey.patch_all()\n",
    "eventlet": "import warnings; warnings.simplefilter('ignore')\n"  # eventlet is no longer developed, and warns of that
    "import eventlet; eventlet.monkey_patch()\nwarnings.simplefilter('default')\n",
}
SPAWN = {
    "gevent": "import gevent\nin_thread = gevent.get_hub().threadpool.apply\nspawn, sleep = gevent.spawn, gevent.sleep\n"
    "def hold(lock): return in_thread(lock.hold, (), {'timeout': 60})\n"
    "def join(all): gevent.joinall(all, raise_error=True)\n",
    "eventlet": "from eventlet import tpool\nspawn, sleep = eventlet.spawn, eventlet.sleep\n"
    "def hold(lock): return tpool.execute(lock.hold, timeout=60)\n"
    "def join(all): [each.wait() for each in all]\n",
}


def program(kind: str, source: str, server: Server) -> Program:
    class Patched(Program):
        PRELUDE = PATCH[kind] + Program.PRELUDE + SPAWN[kind.partition(",")[0]]

    return Patched(source, server.url)


@pytest.fixture(params=PATCH)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_greenlets_take_turns(server: Server, kind: str) -> None:
    """As in the guide: greenlets wait in a thread pool, and may release in any thread."""
    source = """
import collections
client = snib.connect(URL)
inside = turns = 0
def work():
    global inside, turns
    with hold(client.lock("x")) as mine:
        inside += 1
        sleep(0.01)
        assert inside == 1
        inside -= 1
        turns += 1
        mine.check()
ticks = 0
def tick():
    global ticks
    while turns < 8:
        ticks += 1
        sleep(0.001)
ticking = spawn(tick)
join([spawn(work) for _ in range(8)] + [ticking])
assert ticks > 8, ticks
client.close()
say("done")
"""
    assert program(kind, source, server).end() == "done\n"
    eventually(server.clean)


def test_owners_are_greenlets(server: Server, kind: str) -> None:
    source = """
client = snib.connect(URL)
lock = client.rlock("x")
def other():
    say(lock.acquire(blocking=False))
with lock, lock:
    join([spawn(other)])
"""
    assert program(kind, source, server).end() == "False\n"


def test_a_native_thread_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python crashes if it ends while a thread is about to begin."""
    ran = threading.Event()

    def slow_start(run: Callable[[], None], arguments: tuple[()]) -> int:
        def late() -> None:
            time.sleep(0.3)
            run(*arguments)

        return _thread.start_new_thread(late, ())

    originals = {"start_new_thread": slow_start, "allocate_lock": _thread.allocate_lock}
    monkeypatch.setattr(_native, "_patched", lambda: True)
    monkeypatch.setattr(_native, "_original", lambda module, name: originals[name])
    before = time.monotonic()
    _native.start(ran.set, (), "late")
    assert time.monotonic() - before >= 0.3
    assert ran.wait(60)


def test_records_and_credentials_do_not_wait(server: Server, kind: str) -> None:
    """Events from the core arrive in a native thread, even while a call blocks all greenlets."""
    source = """
class Handler(logging.Handler):
    def emit(self, record): os.write(1, b"record\\n")
logging.getLogger("snib").addHandler(Handler())
logging.getLogger("snib").setLevel(logging.INFO)
client = snib.connect(URL, credentials=lambda: "")
try:
    client.lock("x").acquire(timeout=1)
except snib.CredentialsError:
    say("refused")
"""
    lines = program(kind, source, server).end().splitlines()
    assert "refused" in lines, lines


def test_ctrl_c(server: Server, kind: str) -> None:
    source = """
client = snib.connect(URL)
say("calling")
try:
    client.lock("x").acquire()
except KeyboardInterrupt:
    say("interrupted")
"""
    with snib.connect(server.url) as holder, holder.lock("x"):
        waiter = program(kind, source, server)
        assert waiter.hear() == "calling"
        eventually(waiter.asleep)
        time.sleep(0.12)  # let it get beyond the first slice, which is not visible from outside
        waiter.process.send_signal(signal.SIGINT)
        assert waiter.hear() == "interrupted"
        waiter.end()

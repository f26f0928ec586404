"""Process ends that bypass the interpreter: children of multiprocessing, and SIGTERM."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support import PATIENCE, Program, Server, eventually

# ---- multiprocessing -----------------------------------------------------------------------------

CHILDREN = """
import sys
{imports}

URL, method, how = sys.argv[1:]


def hold(name):
    global kept
    client = snib.Client(URL, lease=600)
    kept = client.lock(name)
    assert kept.acquire(timeout=30)


def fail(name):
    hold(name)
    raise SystemExit(3)


def thread(name):
    def work():
        hold(name)
        time.sleep(0.2)
        kept.release()  # Lost, if the end of the main thread had given it back
    threading.Thread(target=work).start()


def idle(name):
    import concurrent.futures
    global executor  # whose thread waits for more work
    executor = concurrent.futures.ThreadPoolExecutor(1)
    executor.submit(hold, name).result()


def interrupted(name):
    hold(name)
    wait = threading._shutdown
    def interrupt():  # as Ctrl-C does before Python 3.13
        threading._shutdown = wait
        raise KeyboardInterrupt
    threading._shutdown = interrupt


def inherited(name):
    assert shared.acquire(timeout=30)


if __name__ == "__main__":
    shared = snib.Client(URL, lease=600).lock(how)
    context = multiprocessing.get_context(method)
    if how == "pool":
        with context.Pool(2) as pool:
            pool.map(hold, ["a", "b"])
            pool.close()
            pool.join()
    elif how == "executor":
        import concurrent.futures
        with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
            list(pool.map(hold, ["a", "b"]))
    else:
        child = context.Process(target=globals()[how], args=("a",))
        child.start()
        child.join()
        assert child.exitcode == {"fail": 3, "interrupted": 1}.get(how, 0), child.exitcode
    client = snib.Client(URL)
    left = [name for name in ("a", "b", how) if client.lock(name).locked()]
    print(left)
"""


@pytest.mark.parametrize("order", ["snib first", "multiprocessing first"])
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("how", ["hold", "fail", "thread", "idle", "interrupted", "inherited", "pool", "executor"])
def test_children_of_multiprocessing(
    server: Server, tmp_path: Path, method: str, how: str, order: str
) -> None:
    """Holds of such a child are released immediately when it ends."""
    if how == "inherited" and method != "fork":
        pytest.skip("nothing is inherited")
    if how == "interrupted" and method == "spawn":
        pytest.skip("its exit code is another one")
    if how != "hold" and order == "multiprocessing first":
        pytest.skip("the same")
    imports = ["import snib", "import multiprocessing"]
    if order == "multiprocessing first":
        imports.reverse()
    imports.append("import threading, time")
    program = tmp_path / "program.py"
    program.write_text(CHILDREN.replace("{imports}", "\n".join(imports)))
    done = subprocess.run(
        [sys.executable, str(program), server.url, method, how],
        capture_output=True, text=True, timeout=PATIENCE * 2, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


# ---- SIGTERM -------------------------------------------------------------------------------------

TERM = """
import asyncio, threading
client, other = snib.connect(URL, lease=600), snib.connect(URL, lease=600)
hold = client.lock("a").hold()
kept = other.fair_lock("b")
assert kept.acquire(timeout=30)
heard = []
def old(number, frame):
    heard.append(number)
    say("old", number == signal.SIGTERM, snib.connect(URL).lock("a").locked())
{source}
"""

WAIT = "say('ready')\nwhile True: time.sleep(60)"

# Code run before the signal, output after it, and how the program ends.
TERMS = {
    "default": (f"snib.release_on_sigterm()\n{WAIT}", [], -signal.SIGTERM),
    "twice": (f"snib.release_on_sigterm(); snib.release_on_sigterm()\n{WAIT}", [], -signal.SIGTERM),
    "chained": (
        "signal.signal(signal.SIGTERM, old)\nsnib.release_on_sigterm()\nsay('ready')\n"
        "while not heard: time.sleep(0.01)\nsay(hold.state.name)",
        ["old True False", "LOST"],
        0,
    ),
    "chained twice": (
        "signal.signal(signal.SIGTERM, old)\nsnib.release_on_sigterm()\n"
        "found = signal.getsignal(signal.SIGTERM)\n"
        "def library(number, frame):\n"
        "    say('library', snib.connect(URL).lock('a').locked())\n    found(number, frame)\n"
        "signal.signal(signal.SIGTERM, library)\nsnib.release_on_sigterm()\nsay('ready')\n"
        "while not heard: time.sleep(0.01)\n"
        "client = snib.connect(URL, lease=600)\nhold = client.lock('a').hold()\n"
        "os.kill(os.getpid(), signal.SIGTERM)\nsay(hold.state.name)",
        ["library False", "old True False"] * 2 + ["LOST"],
        0,
    ),
    "chained twice to none": (
        "snib.release_on_sigterm()\nfound = signal.getsignal(signal.SIGTERM)\n"
        "def library(number, frame):\n    say('library')\n    found(number, frame)\n"
        f"signal.signal(signal.SIGTERM, library)\nsnib.release_on_sigterm()\n{WAIT}",
        ["library"],
        -signal.SIGTERM,
    ),
    "exiting handler": (
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\nsnib.release_on_sigterm()\n" + WAIT,
        [],
        5,
    ),
    "a log that cannot be written": (
        "third = snib.connect(URL, lease=600, debug=True)\nheld = third.lock('c').hold()\n"
        "logging.getLogger('snib').addHandler(logging.StreamHandler())\nsys.stderr.close()\n"
        f"snib.release_on_sigterm()\n{WAIT}",
        [],
        -signal.SIGTERM,
    ),
    "ignored": (
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nsnib.release_on_sigterm()\nsay('ready')\n"
        "input()\nhold.check()\nsay('held')\nhold.release(); kept.release()",
        ["held"],
        0,
    ),
    "asyncio, after": (
        "async def main():\n"
        "    async with snib.aio.connect(URL) as c:\n"
        "        held = await c.lock('c').hold()\n"
        "        done = asyncio.Event()\n"
        "        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, done.set)\n"
        "        snib.release_on_sigterm()\n"
        "        say('ready')\n"
        "        await done.wait()\n"
        "        say(snib.connect(URL).lock('c').locked())\n"
        "        say(held.state.name)\n"
        "asyncio.run(main())",
        ["False", "LOST"],
        0,
    ),
    "asyncio, a body": (
        "async def main():\n"
        "    async with snib.aio.connect(URL) as c:\n"
        "        snib.release_on_sigterm()\n"
        "        async with c.lock('c'):\n"
        "            say('ready')\n"
        "            await asyncio.sleep(600)\n"
        "signal.signal(signal.SIGTERM, old)\n"
        "try: asyncio.run(main())\n"
        "except snib.Lost: say('stopped')",
        ["old True False", "stopped"],
        0,
    ),
    "in another thread's work": (
        "def work():\n"
        "    with other.lock('c'):\n"
        "        while True: time.sleep(0.001)\n"
        "threading.Thread(target=work, daemon=True).start()\n"
        f"snib.release_on_sigterm()\n{WAIT}",
        [],
        -signal.SIGTERM,
    ),
    "while it waits": (
        "threading.Thread(target=lambda: client.lock('b').acquire(), daemon=True).start()\n"
        f"snib.release_on_sigterm()\nsay('ready')\nother.lock('a').acquire()",
        [],
        -signal.SIGTERM,
    ),
}


@pytest.mark.parametrize("how", TERMS)
def test_sigterm(server: Server, how: str) -> None:
    """Everything is released, then the previous handler runs."""
    source, heard, code = TERMS[how]
    program = Program(TERM.replace("{source}", source), server.url)
    assert program.hear() == "ready"
    program.process.send_signal(signal.SIGTERM)
    if how == "ignored":
        program.tell()
    output, errors = program.rest()
    assert (program.process.returncode, output.splitlines()) == (code, heard), errors


def test_sigterm_in_a_child(server: Server) -> None:
    """A forked child releases its own holds; the parent's stay."""
    program = Program(
        "import warnings; warnings.simplefilter('ignore')\n"
        "client = snib.connect(URL, lease=600)\nhold = client.lock('a').hold()\n"
        "snib.release_on_sigterm()\npid = os.fork()\n"
        "if pid == 0:\n    client.lock('b').acquire()\n    say('ready')\n    time.sleep(600)\n"
        "input()\nos.kill(pid, signal.SIGTERM)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGTERM\n"
        "hold.check()\nsay(client.lock('b').locked())\nhold.release()",
        server.url,
    )
    assert program.hear() == "ready"
    program.tell()
    assert program.end() == "False\n"


def test_sigterm_is_off_by_default(server: Server) -> None:
    program = Program(TERM.replace("{source}", WAIT), server.url)
    assert program.hear() == "ready"
    program.process.send_signal(signal.SIGTERM)
    program.rest()
    assert server.admin.exists("a", "b") == 2
    server.admin.flushall()


def test_sigterm_wants_the_main_thread(server: Server) -> None:
    program = Program(
        "import threading\n"
        "def call():\n"
        "    try: snib.release_on_sigterm()\n"
        "    except ValueError: say('refused')\n"
        "t = threading.Thread(target=call); t.start(); t.join()",
        server.url,
    )
    assert program.end() == "refused\n"


# ---- Logging handlers that do not return ---------------------------------------------------------

STUCK = """
import atexit, threading
class Stuck(logging.Handler):
    def emit(self, record):
        inside.set()
        ever.wait()
inside, ever, handler = threading.Event(), threading.Event(), Stuck(logging.WARNING)
logging.getLogger("snib").addHandler(handler)
atexit.unregister(logging.shutdown)  # which would wait for the handler
client, other = snib.connect(URL, lease=600), snib.connect(URL, lease=600, debug=True)
for name in "first", "second":
    brief(client.lock(name, lease=0.2)).lost.wait()
    inside.wait()
holds = client.lock("a").hold(), other.lock("b").hold()
client.lock("c").acquire()
{source}
"""

# How the program ends, and its code.
STUCK_ENDS = {
    "exit": ("", 0),
    "sigterm": ("snib.release_on_sigterm(); signal.raise_signal(signal.SIGTERM)", -signal.SIGTERM),
    "chained": (
        "def old(number, frame):\n"
        "    assert [hold.reason for hold in holds] == ['closed'] * 2\n    os._exit(5)\n"
        "signal.signal(signal.SIGTERM, old)\nsnib.release_on_sigterm()\nsignal.raise_signal(signal.SIGTERM)",
        5,
    ),
}


@pytest.mark.parametrize("how", STUCK_ENDS)
def test_an_end_with_a_handler_that_blocks(server: Server, how: str) -> None:
    """Its client's holds are released, and those of other clients."""
    source, code = STUCK_ENDS[how]
    program = Program(STUCK.replace("{source}", source), server.url)
    _, errors = program.rest()
    assert (program.process.returncode, server.clean()) == (code, True), errors


def test_sigterm_within_a_handler(server: Server) -> None:
    """Which has its lock then, in the main thread: no other thread can tell the handler anything."""
    program = Program(
        """
class Ended(logging.Handler):
    def emit(self, record):
        if record.name == "program":
            signal.raise_signal(signal.SIGTERM)
logging.getLogger().addHandler(Ended())
snib.release_on_sigterm()
client = snib.connect(URL, lease=600, debug=True)
hold = client.lock("a").hold()
logging.getLogger("program").warning("ends")
""",
        server.url,
    )
    _, errors = program.rest()
    assert (program.process.returncode, server.clean()) == (-signal.SIGTERM, True), errors


def test_a_handler_is_told_of_the_end(server: Server) -> None:
    """By the thread: the last records are those of the end itself."""
    for end, code in [("", 0), (SIGTERM, -signal.SIGTERM)]:
        program = Program(
            "import threading\n"
            "class Telling(logging.Handler):\n"
            "    def emit(self, record):\n"
            "        say(threading.current_thread().name, 'is still held' in record.getMessage())\n"
            "logging.getLogger('snib').addHandler(Telling(logging.WARNING))\n"
            "client = snib.connect(URL, lease=600, debug=True)\nhold = client.lock('a').hold()\n" + end,
            server.url,
        )
        output, errors = program.rest()
        assert (program.process.returncode, output) == (code, "snib log True\n"), errors


# ---- Interrupts ----------------------------------------------------------------------------------

INTERRUPTED = """
from snib import _log
def interrupt(client, until):  # instead of the wait for a slow handler of log records
    signal.raise_signal(signal.SIGINT)
_log.deliver_all = interrupt
client = snib.connect(URL, lease=600)
assert client.lock("a").acquire(timeout=30)
{end}
"""
SIGTERM = "snib.release_on_sigterm(); signal.raise_signal(signal.SIGTERM)"


@pytest.mark.parametrize(("end", "code"), [("", 0), (SIGTERM, -signal.SIGTERM)])
def test_ctrl_c_as_the_end_waits_for_the_log(server: Server, end: str, code: int) -> None:
    """Everything is released nevertheless."""
    program = Program(INTERRUPTED.replace("{end}", end), server.url)
    program.rest()
    assert (program.process.returncode, server.clean()) == (code, True)

"""The test kit: memory servers, their clock and their faults, from Python."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import snib
import snib.aio
from support import eventually
from test_interrupts import Interrupt, Interrupted

testing = pytest.importorskip("snib.testing", reason="built without Lua")

LEASE = 30.0
SOON = 20.0


@pytest.fixture
def memory() -> Iterator[snib.testing.Server]:
    with testing.Server() as server:
        yield server


@pytest.fixture
def user(memory: snib.testing.Server) -> Iterator[snib.Client]:
    with snib.connect(memory.url) as client:
        yield client


def test_a_lock(memory: snib.testing.Server, user: snib.Client) -> None:
    with user.lock("name") as hold:
        hold.check()
        assert memory.has("name") and memory.connections > 0 and memory.requests > 0
        with snib.connect(memory.url) as other, pytest.raises(snib.Busy):
            other.lock("name").hold(timeout=0)
    assert not memory.has("name")


def test_a_silent_server_and_the_clock(memory: snib.testing.Server, user: snib.Client) -> None:
    hold = user.lock("name").hold()
    memory.stall()
    memory.advance(LEASE)
    with pytest.raises(snib.Lost) as caught:
        hold.check()
    assert caught.value.reason == "unreachable"
    assert hold.lost.wait(SOON)
    memory.resume()
    with user.lock("name").hold(timeout=SOON):
        pass


def test_mistakes_are_looked_for(memory: snib.testing.Server, caplog: pytest.LogCaptureFixture) -> None:
    def warned() -> bool:
        return any("debug: lock order" in record.getMessage() for record in caplog.records)

    for url, expected in ((memory.url + "?debug=no", False), (memory.url, True)):
        with snib.connect(url) as client:
            a, b = client.lock("a"), client.lock("b")
            with a, b:
                pass
            with b, a:
                pass
            if expected:
                eventually(warned)
        assert warned() is expected  # a closed client has told everything


def test_small_steps_of_the_clock_are_renewed(memory: snib.testing.Server, user: snib.Client) -> None:
    with user.lock("name").hold() as hold:
        for _ in range(4):
            memory.advance(LEASE / 3 + 0.001)
            eventually(lambda: hold.remaining() > LEASE * 2 / 3, SOON)
        hold.check()


def test_no_clock_seems_to_have_been_set(memory: snib.testing.Server, user: snib.Client) -> None:
    with user.lock("name").hold() as hold:
        for _ in range(200):
            memory.advance(LEASE / 3 + 0.001)
            eventually(lambda: hold.remaining() > LEASE * 2 / 3, SOON)
    assert user.stats().clock_moves == 0


def test_an_interrupted_step_of_the_clock(
    memory: snib.testing.Server, user: snib.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers ahead of the clients would end keys of holds that are believed to be safe."""

    def interrupted(ms: int) -> None:
        raise KeyboardInterrupt

    with user.lock("name").hold() as hold:
        monkeypatch.setattr("snib.testing._core.advance_clock", interrupted)
        with pytest.raises(KeyboardInterrupt):
            memory.advance(LEASE + 1)
        monkeypatch.undo()
        assert memory.has("name")
        user.ping()  # the server answers again
        hold.check()


def test_an_interrupt_at_any_step_leaves_no_server_standing(memory: snib.testing.Server, user: snib.Client) -> None:
    for n in itertools.count():
        with Interrupted(sys.maxsize, False):  # in some Pythons a function has steps only when it is traced again
            memory.advance(0)
        with Interrupted(n, False) as interrupted, contextlib.suppress(Interrupt):
            memory.advance(0.001)
        user.ping()
        if not interrupted.fired:
            break
    assert n > 5


def test_a_lost_reply(memory: snib.testing.Server, user: snib.Client) -> None:
    with user.lock("name").hold():
        pass
    memory.lose_reply()
    with user.lock("name").hold(timeout=SOON) as hold:
        hold.check()
    assert user.stats().reconnects > 0


def test_the_key_ends(memory: snib.testing.Server, user: snib.Client) -> None:
    hold = user.lock("name").hold()
    memory.expire("name")
    memory.advance(LEASE / 3 + 0.001)  # the client asks
    assert hold.lost.wait(SOON)


def test_a_failover(memory: snib.testing.Server, user: snib.Client) -> None:
    kept = user.lock("kept").hold()
    memory.snapshot()
    gone = user.lock("gone").hold()
    memory.failover()
    assert gone.lost.wait(SOON)
    kept.check()
    kept.release()


def test_refusals(memory: snib.testing.Server, user: snib.Client) -> None:
    memory.refuse()
    with pytest.raises(snib.NotConnected, match="no memory server of this name accepts"):
        user.lock("name").hold(timeout=0)
    memory.accept()
    memory.fault("oom")
    with pytest.raises(snib.OutOfMemory):
        user.lock("name").hold(timeout=0)
    memory.heal()
    memory.kill_connection()
    with user.lock("name").hold(timeout=SOON):
        pass


def test_asyncio(memory: snib.testing.Server) -> None:
    async def main() -> None:
        async with snib.aio.connect(memory.url) as client:
            hold = await client.lock("name").hold()
            memory.stall()
            memory.advance(LEASE)
            assert await asyncio.wait_for(hold.lost.wait(), SOON)
            memory.resume()  # the close gives back what the server still has

    asyncio.run(main())


@pytest.mark.parametrize(
    "name, argument, part",
    [
        ("explode", None, 'no fault "explode"; there are lose_reply, stall, '),
        ("stall", "1", "takes no argument"),
        ("lose_reply", "0", "1 to 1000000"),
        ("expire", None, "the name of a key"),
        ("expire", "nothing", 'no key "nothing"'),
        ("oom", "maybe", '"on" or "off"'),
        ("kill_connection", "9", "1 is the oldest"),
        ("expire", "a\0b", "NUL"),
    ],
)
def test_bad_faults(memory: snib.testing.Server, name: str, argument: str | None, part: str) -> None:
    with pytest.raises(snib.InvalidArgument) as caught:
        memory.fault(name, argument)
    assert part in str(caught.value)


def test_bad_arguments(memory: snib.testing.Server) -> None:
    for seconds in (-1, float("nan"), float("inf"), 1e9):
        with pytest.raises(snib.InvalidArgument):
            memory.advance(seconds)
    for name in ("", "a/b", "a.b", "x" * 65, "\0"):
        with pytest.raises(snib.InvalidArgument):
            testing.Server(name)
    with pytest.raises(TypeError):
        testing.Server(5)
    with testing.Server("twice"), pytest.raises(snib.InvalidArgument, match='"twice" already'):
        testing.Server("twice")
    memory.stop()
    memory.stop()
    with pytest.raises(snib.Closed, match="is stopped"):
        memory.stall()


NO_SERVER = """
import sys, snib
from snib import testing
client = snib.connect(sys.argv[1])
try:
    client.lock("name").hold(timeout=0)
except snib.NotConnected as error:
    assert "no memory server of this name" in str(error)
else:
    raise SystemExit("it reached the server of another program")
with testing.Server(sys.argv[1].removeprefix("memory://")):
    with client.lock("name").hold(timeout=20):
        pass
"""


def test_two_programs_have_two_servers() -> None:
    with testing.Server("shared") as server, snib.connect(server.url) as client:
        with client.lock("name").hold():
            subprocess.run([sys.executable, "-c", NO_SERVER, server.url], check=True, timeout=120)


NO_KIT = """
import snib
try:
    import snib.testing
except ImportError as error:
    print(error)
try:
    snib.connect("memory://kit").lock("name").hold(timeout=0)
except snib.NotConnected as error:
    print(error)
"""


@pytest.mark.parametrize(
    "library, said",
    [
        (None, "this build of Snib has no test kit: install Lua 5.1 (on Debian liblua5.1-0-dev) and build it again"),
        (b"of another machine", "the test kit needs Lua 5.1 (on Debian liblua5.1-0): "),
    ],
)
def test_a_build_without_the_kit(tmp_path: Path, library: bytes | None, said: str) -> None:
    (tmp_path / "snib").mkdir()
    for file in Path(snib.__file__).parent.iterdir():
        if file.name not in ("libsnib-testing.so", "__pycache__"):
            (tmp_path / "snib" / file.name).symlink_to(file)
    if library:
        (tmp_path / "snib" / "libsnib-testing.so").write_bytes(library)
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", NO_KIT], capture_output=True, text=True, env=env, timeout=120)
    imported, used = done.stdout.splitlines()
    assert imported.startswith(said), done.stdout
    assert "memory://kit (no memory server of this name accepts connections in this process; start one with" in used


def test_a_close_waits_for_a_silent_server(memory: snib.testing.Server) -> None:
    client = snib.connect(memory.url)
    hold = client.lock("name").hold()
    memory.stall()
    with pytest.raises(snib.Timeout, match="its lease will end it"):
        client.close(timeout=0.1)
    memory.resume()
    with pytest.raises(snib.Lost, match="closed"):
        hold.check()
    eventually(lambda: not memory.connections, SOON)


STOPPED_BESIDE_OTHERS = """
import os, threading, snib
from snib import testing

def use(server):
    try:
        while True:
            server.resume(), server.has("name"), server.connections, server.requests
    except snib.Closed:
        pass

for i in range(300):
    server = testing.Server()
    threads = [threading.Thread(target=use, args=(server,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    server.requests
    child = os.fork() if i % 10 == 0 else None
    server.stop()
    if child == 0:
        os._exit(0)
    if child:
        assert os.waitpid(child, 0)[1] == 0
    for thread in threads:
        thread.join()
"""


def test_a_server_is_not_copied(memory: snib.testing.Server) -> None:
    """The copy would use what the other one's stop() has freed."""
    with pytest.raises(TypeError, match="cannot be copied or pickled"):
        copy.copy(memory)


def test_a_stop_while_others_use_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", STOPPED_BESIDE_OTHERS], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr


def test_the_fixtures(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "def test_it(snib_server, snib_client):\n"
        "    with snib_client.lock('name').hold():\n"
        "        assert snib_server.has('name')\n"
        "def test_another(snib_server):\n"
        "    assert not snib_server.has('name')\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    env = {name: value for name, value in os.environ.items() if name != "PYTEST_DISABLE_PLUGIN_AUTOLOAD"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env, timeout=300)
    assert "2 passed" in done.stdout, done.stdout + done.stderr

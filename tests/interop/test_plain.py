"""The plain kind against other libraries that write it: redis-py's Lock, redsync and redislock."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

import pytest
import redis
from ours import Waiting, ours_waits, taking
from redis.lock import Lock as PyLock

import snib
from conftest import JARS, NEEDED, SharedServer
from support import RENEWED, eventually


def their_lock(server: SharedServer, name: str, lease: float = 20.0) -> PyLock:
    return server.admin.lock(name, timeout=lease, sleep=0.005, thread_local=False)


# ---- redis-py ------------------------------------------------------------------------------------


def test_ours_waits_for_redis_py(server: SharedServer, client: snib.Client, name: str) -> None:
    theirs, mine = their_lock(server, name), client.plain_lock(name)
    assert theirs.acquire(blocking=False)
    with pytest.raises(snib.Busy):
        mine.hold(timeout=0)
    taker = ours_waits(client, mine)
    theirs.release()
    with taker.get():
        assert not theirs.acquire(blocking=False)


def test_redis_py_waits_for_ours(server: SharedServer, client: snib.Client, name: str) -> None:
    theirs, mine = their_lock(server, name), client.plain_lock(name)
    hold = mine.hold()
    assert theirs.locked() and not theirs.owned()
    waiting = Waiting(lambda: theirs.acquire(blocking_timeout=30))
    calls = server.admin.info("commandstats")["cmdstat_set"]["calls"]
    eventually(lambda: server.admin.info("commandstats")["cmdstat_set"]["calls"] > calls + 3)
    assert waiting.waits
    hold.release()
    assert waiting.get() and theirs.owned()
    with pytest.raises(snib.Timeout):
        mine.hold(timeout=0.05)
    theirs.release()


def test_redis_py_cannot_release_ours(server: SharedServer, client: snib.Client, name: str) -> None:
    theirs, mine = their_lock(server, name), client.plain_lock(name)
    assert theirs.acquire(blocking=False)
    server.admin.delete(name)
    with mine.hold() as hold:
        with pytest.raises(redis.exceptions.LockNotOwnedError):
            theirs.release()
        hold.check()


def test_we_cannot_release_theirs(server: SharedServer, client: snib.Client, name: str) -> None:
    hold = client.plain_lock(name).hold()
    server.admin.delete(name)
    theirs = their_lock(server, name)
    assert theirs.acquire(blocking=False)
    with pytest.raises(snib.Lost):
        hold.release()
    assert theirs.owned()
    theirs.release()


def test_leases_of_both_run_out(server: SharedServer, client: snib.Client, name: str) -> None:
    assert their_lock(server, name, 0.3).acquire(blocking=False)
    hold = taking(client.plain_lock(name, lease=RENEWED)).get()
    theirs = their_lock(server, name)
    assert not theirs.acquire(blocking=False)
    assert theirs.acquire(blocking_timeout=30)
    assert hold.state is snib.State.LOST
    theirs.release()


def test_redis_py_waits_out_our_renewals(
    server: SharedServer, quick: snib.Client, name: str
) -> None:
    hold = quick.plain_lock(name).hold()
    theirs = their_lock(server, name)
    waiting = Waiting(lambda: theirs.acquire(blocking_timeout=30))
    eventually(lambda: quick.stats().renewals >= 4)
    assert waiting.waits
    hold.release()
    assert waiting.get()
    theirs.release()


# ---- redsync and redislock -----------------------------------------------------------------------


LONG_MS = 600_000  # redsync allows a server a twentieth of the lease for its answer


class GoPeer:
    def __init__(self, program: str, library: str, server: SharedServer) -> None:
        self.process = subprocess.Popen(
            [program, library, str(server.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __call__(self, *words: object) -> str:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(" ".join(str(word) for word in words) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


@pytest.fixture(params=["redsync", "redislock"])
def peer(request: pytest.FixtureRequest, server: SharedServer) -> Iterator[GoPeer]:
    program = shutil.which("gopeer", path=str(JARS))
    if program is None:
        reason = "REDSYNC AND REDISLOCK NOT TESTED: they were not built; see run.sh"
        (pytest.fail if NEEDED else pytest.skip)(reason)
    theirs = GoPeer(program, request.param, server)
    yield theirs
    theirs.process.kill()
    theirs.process.communicate()


def test_ours_waits_for_a_go_peer(peer: GoPeer, client: snib.Client, name: str) -> None:
    mine = client.plain_lock(name)
    assert peer("lock", name, LONG_MS) == "ok"
    with pytest.raises(snib.Busy):
        mine.hold(timeout=0)
    taker = ours_waits(client, mine)
    assert peer("extend", name) == "ok"
    assert peer("unlock", name) == "ok"
    with taker.get():
        assert peer("try", name, LONG_MS) == "taken"
    assert peer("unlock", name) == "lost"


def test_a_go_peer_waits_for_ours(
    peer: GoPeer, server: SharedServer, client: snib.Client, name: str
) -> None:
    hold = client.plain_lock(name).hold()
    assert peer("try", name, LONG_MS) == "taken"
    waiting = Waiting(lambda: peer("lock", name, LONG_MS))
    calls = server.admin.info("commandstats")["cmdstat_set"]["calls"]
    eventually(lambda: server.admin.info("commandstats")["cmdstat_set"]["calls"] > calls + 3)
    assert waiting.waits
    hold.release()
    assert waiting.get() == "ok"
    with pytest.raises(snib.Timeout):
        client.plain_lock(name).hold(timeout=0.05)
    assert peer("unlock", name) == "ok"

"""Holders in C, Python, Go and Java protect one row of a real PostgreSQL, and refuse each other's stale tokens.

Each peer is a program behind a pipe, and takes the fenced lock "row" of one Redis:

    lock                 TOKEN OWNER
    write TOKEN OWNER    adds one to the row in a transaction that checks the token: ok or stale
    unlock               ok or lost
    run ROUNDS           lock, write, unlock; "refused N" in the end
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from databases import Postgres, free_port
from redis import Redis, RedisError
from snib import fencing
from support import eventually

HERE = Path(__file__).resolve().parent
BUILD = Path(os.environ["SNIB_BUILD"]) / "fencing"


class Peer:
    def __init__(self, *command: object) -> None:
        self._process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self, *words: object) -> None:
        assert self._process.stdin
        print(*words, file=self._process.stdin, flush=True)

    def answer(self) -> str:
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert line, f"{self._process.args!r} has ended"
        return line.rstrip("\n")

    def ask(self, *words: object) -> str:
        self.tell(*words)
        return self.answer()

    def end(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()


class World:
    def __init__(self, postgres: Postgres, port: int) -> None:
        self.admin = Redis(port=port)
        self.database = psycopg.connect(postgres.url, autocommit=True)
        url = f"redis://127.0.0.1:{port}"
        java = f"{BUILD}/java/classes:{BUILD}/java/dependency/*"
        self.database.execute("DROP TABLE IF EXISTS stock, snib_fence")
        fencing.sql_create(self.database)
        self.database.execute("CREATE TABLE stock (item TEXT, number INTEGER)")
        self.database.execute("INSERT INTO stock VALUES ('book', 0)")
        accept = HERE.parent.parent / "bindings" / "fencing" / "accept.sql"
        self.peers = {
            "C": Peer(BUILD / "c", url, postgres.url),
            "Python": Peer(sys.executable, HERE / "peer.py", url, postgres.url),
            "Go": Peer(BUILD / "go", url, postgres.url),
            "Java": Peer(
                *("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", java),
                *("FencingPeer", url, postgres.jdbc, accept),
            ),
        }

    def number(self) -> int:
        row = self.database.execute("SELECT number FROM stock").fetchone()
        assert row
        return int(row[0])


def answers(port: int) -> bool:
    with contextlib.suppress(RedisError):
        return bool(Redis(port=port).ping())
    return False


@pytest.fixture(scope="module")
def world(postgres: Postgres) -> Iterator[World]:
    port = free_port()
    binary = os.environ.get("SNIB_TEST_SERVER", "redis-server")
    with tempfile.TemporaryDirectory(prefix="snib-fencing-") as folder:
        server = subprocess.Popen(
            [binary, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder],
            stdout=subprocess.DEVNULL,
        )
        eventually(lambda: answers(port))
        world = World(postgres, port)
        yield world
        for peer in world.peers.values():
            peer.end()
        world.database.close()
        server.kill()
        server.wait()


@pytest.mark.parametrize("late", ["C", "Python", "Go", "Java"])
def test_a_stale_token_is_refused_by_all(world: World, late: str) -> None:
    """An overtaken holder's token is refused, whatever the language of the newer holder."""
    peers = world.peers
    for newer in peers:
        if newer == late:
            continue
        before = world.number()
        stale = peers[late].ask("lock")
        assert peers[late].ask("write", stale) == "ok"
        world.admin.delete("row")  # its lease has ended, unnoticed
        fresh = peers[newer].ask("lock")
        assert int(fresh.split()[0]) > int(stale.split()[0])
        assert peers[newer].ask("write", fresh) == "ok"
        assert peers[late].ask("write", stale) == "stale", newer
        for carrier in peers.values():  # whichever peer sends it
            assert carrier.ask("write", stale) == "stale"
            assert carrier.ask("write", fresh) == "ok"
        assert peers[newer].ask("unlock") == "ok"
        assert peers[late].ask("unlock") == "lost"
        assert world.number() == before + 2 + len(peers)


def test_a_token_that_is_shown_at_the_read(world: World) -> None:
    """From then on nothing changes what has been read: the write of the holder before it, which was slow, is refused."""
    peers = list(world.peers.values())
    for late, newer in zip(peers, peers[1:] + peers[:1]):
        slow = late.ask("lock")  # it reads, computes, and stands still
        world.admin.delete("row")
        fresh = newer.ask("lock")
        token, owner = fresh.split()
        with world.database.transaction():
            fencing.sql_check(world.database, "stock", int(token), owner)
            number = world.number()
        assert late.ask("write", slow) == "stale"
        assert world.number() == number
        assert newer.ask("write", fresh) == "ok"
        assert newer.ask("unlock") == "ok"
        assert late.ask("unlock") == "lost"


def test_no_update_is_lost(world: World) -> None:
    rounds = 50
    before = world.number()
    for peer in world.peers.values():
        peer.tell("run", rounds)
    for language, peer in world.peers.items():
        assert peer.answer() == "refused 0", language
    assert world.number() == before + rounds * len(world.peers)

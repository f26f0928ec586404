"""Locks behind the proxies of docs/deployments.md that Debian has packages of: HAProxy, and Twemproxy, which cannot."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import snib
from deployment import Deployment
from load import BUILD, ROOT
from node import PATIENCE, Node, eventually, popen

sys.path.insert(0, str(Path(__file__).parent.parent / "docs"))

import rights  # noqa: E402

LEASE = 30.0  # a busy machine may stand still for seconds
BACKEND = (ROOT / "docs/deployments.md").read_text().partition("```\nbackend locks\n")[2].partition("```")[0]


class Pair(Deployment):
    """A master, and a replica that nobody promotes but the test, behind a proxy."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.proxy: subprocess.Popen[Any] | None = None
        try:
            self.one = self._node("one")
            self.two = self._node("two", [f"replicaof {self.one.host} {self.one.port}"])
            self._start(self.nodes)
            assert self._ports is not None
            self.port = self._ports.take()
            eventually(lambda: self.two.info("replication")["master_link_status"] == "up")
        except BaseException:
            self.end()
            raise

    def start(self, *words: str) -> None:
        with open(self.folder / "proxy.log", "wb") as log:
            self.proxy = popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def haproxy(self, idle_ms: int) -> None:
        """The documented back end; connections on which nothing happens are closed after idle_ms."""
        backend = BACKEND.replace("10.0.0.1:6379", self.one.address).replace("10.0.0.2:6379", self.two.address)
        assert self.one.address in backend and self.two.address in backend, "docs/deployments.md has another back end"
        path = self.folder / "haproxy.cfg"
        path.write_text(
            f"defaults\n    mode tcp\n    timeout connect 30s\n"
            f"    timeout client {idle_ms}ms\n    timeout server {idle_ms}ms\n"
            f"frontend clients\n    bind 127.0.0.1:{self.port}\n    default_backend locks\n"
            f"backend locks\n{backend}"
        )
        self.start("haproxy", "-db", "-f", str(path))

    def twemproxy(self) -> None:
        path = self.folder / "nutcracker.yml"
        path.write_text(
            f"locks:\n  listen: 127.0.0.1:{self.port}\n  redis: true\n  servers:\n   - {self.one.address}:1\n"
        )
        assert self._ports is not None
        self.start("nutcracker", "-c", str(path), "-a", "127.0.0.1", "-s", str(self._ports.take()))

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def client(self, lease: float = LEASE) -> snib.Client:
        return snib.connect(self.url, lease=lease, patience=60.0, try_timeout=60.0, reply_timeout=60.0)

    def end(self) -> None:
        if self.proxy is not None:
            self.proxy.kill()
            self.proxy.wait()
        super().end()


class Server:
    """What rights.py asks of a server."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def pubsub_channels(self) -> list[str]:
        return list(self._node.command("PUBSUB", "CHANNELS"))

    def keys(self, pattern: str) -> list[str]:
        return list(self._node.command("KEYS", pattern))


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with Pair(tmp_path / "pair") as made:
        yield made


def need(program: str) -> None:
    if not shutil.which(program):
        pytest.skip(f"there is no {program}")


@pytest.mark.parametrize("kind", rights.KINDS)
def test_kinds_through_haproxy(pair: Pair, kind: str) -> None:
    """Held, renewed, awaited and handed on."""
    need("haproxy")
    pair.haproxy(idle_ms=600_000)
    with pair.client(lease=6.0) as first, pair.client(lease=6.0) as second:
        rights.check_kind(kind, "x", first, second, Server(pair.one))  # type: ignore[arg-type]


def test_doctor_through_haproxy(pair: Pair) -> None:
    """The proxy blocks nothing."""
    need("haproxy")
    pair.haproxy(idle_ms=600_000)
    words = [str(BUILD / "core/snib"), "doctor", "--json", "--url", pair.url + "?patience=60s"]
    done = subprocess.run(words, capture_output=True, text=True)
    found = {each["what"]: each["verdict"] for each in json.loads(done.stdout)["findings"]}
    kinds = ("mutex", "fenced", "fair", "read", "write", "spin", "plain", "permits", "semaphore", "latch")
    assert {found[what] for what in (*kinds, "messages", "role", "server")} == {"ok"}, found
    assert "error" not in found.values(), found


def test_connections_that_haproxy_closes(pair: Pair) -> None:
    """A hold and a waiter survive it when connections that are silent for a while are closed again and again."""
    need("haproxy")
    pair.haproxy(idle_ms=400)

    def connections() -> int:
        return int(pair.one.info("stats")["total_connections_received"])

    with pair.client() as first, pair.client() as second:
        hold = first.lock("x").hold()
        got: list[snib.Hold] = []
        waiter = threading.Thread(target=lambda: got.append(second.lock("x").hold(timeout=PATIENCE)))
        waiter.start()
        eventually(lambda: second.stats().waiting == 1)
        before, renewals = connections(), first.stats().renewals
        eventually(lambda: connections() >= before + 6 and first.stats().renewals > renewals)
        hold.check()
        hold.release()
        waiter.join()
        got[0].check()
        got[0].release()


def test_failover_behind_haproxy(pair: Pair) -> None:
    """The replica is promoted and the master killed: the hold goes on at the other server, and excludes everybody."""
    need("haproxy")
    pair.haproxy(idle_ms=600_000)
    with pair.client() as first, pair.client() as second:
        hold = first.lock("x").hold()
        eventually(lambda: pair.two.command("EXISTS", "x"))
        pair.two.command("REPLICAOF", "NO", "ONE")
        pair.one.kill()
        renewed = pair.two.command("PEXPIRETIME", "x")
        eventually(lambda: pair.two.command("PEXPIRETIME", "x") > renewed)
        hold.check()
        with pytest.raises(snib.Busy):
            second.lock("x").hold(timeout=0)
        hold.release()
        assert not pair.two.command("EXISTS", "x")
        second.lock("x").hold(timeout=0).release()


def test_twemproxy_hangs_up(pair: Pair) -> None:
    """It closes the connection at a command that it does not support: one error that says so, and nothing is locked."""
    need("nutcracker")
    pair.twemproxy()
    with pytest.raises(snib.NotConnected) as caught:
        snib.connect(pair.url, patience=2.0).lock("x").hold(timeout=0)
    assert f"127.0.0.1:{pair.port}" in str(caught.value)
    assert not pair.one.command("EXISTS", "x")

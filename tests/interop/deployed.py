"""Deployments that Redisson and Snib share, as the tests see them: keys, listeners, which node serves what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent import Agent
from authority import Authority
from cluster import SLOTS, Cluster, slot_of
from deployment import Deployment, Single
from modes import Mode
from node import Node, eventually, find_server, has_tls
from peer import Call, JavaClient, JavaObject, Jvm, java_waits
from sentinels import Sentinels

import pytest

STEADY_MS = 30000  # no failover is wanted, though on a busy machine a server may be silent for a second


def make(mode: Mode, folder: Path, *, down_ms: int = STEADY_MS) -> Deployment:
    """A deployment in that mode, which takes a server that is silent for down_ms for dead."""
    tls = None
    if mode.tls:
        if not has_tls(find_server()):
            pytest.skip(f"{find_server()} was built without TLS")
        tls = Authority(folder / "authority")
    if mode.shape == "sentinel":
        return Sentinels(folder / "them", replicas=1, down_ms=down_ms, tls=tls)
    if mode.shape == "cluster":
        return Cluster(folder / "them", timeout_ms=down_ms, tls=tls)
    return Single(folder / "them", tls=tls)


class Deployed:
    """A deployment in one of the modes."""

    def __init__(self, mode: Mode, them: Deployment, folder: Path) -> None:
        self.mode, self.them, self._folder = mode, them, folder
        self._agents: dict[str, Agent] = {}
        self._clients: dict[tuple[str, int], JavaClient] = {}
        self.look()

    def look(self) -> None:
        """Find out which node serves what; the result is used from then on."""
        if isinstance(self.them, Cluster):
            self.masters = self.them.masters
            self._at = {s: n for n in self.masters for s in self.them.slots(n)}
            assert len(self._at) == SLOTS
        elif isinstance(self.them, Sentinels):
            self.masters = [self.them.master]
        else:
            self.masters = self.them.nodes
        if not isinstance(self.them, Cluster):
            self._at = dict.fromkeys(range(SLOTS), self.masters[0])

    # -- Clients

    def _options(self, ca: str) -> str:
        words = [f"{ca}={self.them.tls.ca.file}"] if self.them.tls else []
        words += ["publish=classic"] if self.mode.classic else []
        return "?" + "&".join(words) if words else ""

    @property
    def url(self) -> str:
        """The URL for Snib."""
        return self.them.url + self._options("tls_ca")  # type: ignore[attr-defined, no-any-return]

    @property
    def java_url(self) -> str:
        return self.them.url + self._options("ca")  # type: ignore[attr-defined, no-any-return]

    def agent(self, language: str) -> Agent:
        """Snib's program in that language, the same for all tests."""
        if language not in self._agents:
            self._agents[language] = self.new_agent(language)
        return self._agents[language].fresh()

    def new_agent(self, language: str, publish: str = "") -> Agent:
        """A private program for one test; `publish` selects how it announces releases."""
        log = self._folder / f"{language}{publish}.log"
        url = self.url + (f"?publish={publish}" if publish else "")
        return Agent(language, url, self.masters[0].socket, log)

    def java(self, jvm: Jvm, watchdog_ms: int = 30_000) -> JavaClient:
        key = jvm.version, watchdog_ms
        if key not in self._clients:
            name = f"{self.mode.title.replace(' ', '')}{watchdog_ms}"
            self._clients[key] = jvm.connect(name, self.java_url, watchdog_ms)
        return self._clients[key]

    def end(self) -> None:
        for agent in self._agents.values():
            agent.end()
        for client in self._clients.values():
            client.close()

    # -- Server state

    def at(self, key: str) -> Node:
        return self._at[slot_of(key)]

    def command(self, word: str, key: str, *words: object) -> Any:
        return self.at(key).command(word, key, *words)

    def keys_of(self, name: str) -> list[str]:
        """The remaining keys of a lock, except those meant to stay or to expire: see SharedServer."""
        stay = ("redisson_unlock_latch:", "redisson_lock_token:", "snib_")
        found = [key for node in self.masters for key in node.command("KEYS", f"*{name}*")]
        return sorted(key for key in found if not key.startswith(stay))

    def delete(self, name: str) -> None:
        for node in self.masters:
            for key in node.command("KEYS", f"*{name}*"):
                node.command("DEL", key)

    def listening(self, name: str) -> tuple[int, int]:
        """Connections subscribed to channels of the lock: classic, sharded."""
        return self._count("CHANNELS", "NUMSUB", name), self._count(
            "SHARDCHANNELS", "SHARDNUMSUB", name
        )

    def _count(self, channels: str, numsub: str, name: str) -> int:
        total = 0
        for node in self.masters if channels == "SHARDCHANNELS" else self.them.nodes:
            if getattr(node, "sentinel", False) or not node.running or node.stopped:
                continue
            found = node.command("PUBSUB", channels, f"*{name}*")
            total += sum(node.command("PUBSUB", numsub, *found)[1::2])
        return total

    def listeners(self, name: str) -> int:
        return sum(self.listening(name))

    def scripts(self) -> int:
        """Scripts run so far."""
        total = 0
        for node in self.masters:
            for word in ("eval", "evalsha"):
                stats = node.info("commandstats").get(f"cmdstat_{word}", "calls=0,")
                total += int(stats.partition("calls=")[2].partition(",")[0])
        return total

    # -- Waiters

    def snib_waits(self, lock: Any, name: str, **options: Any) -> None:
        """Make Snib's program wait, until it is subscribed to the kind of channel used here."""
        lock.submit(**options)
        assert lock.agent(f"waiting {lock.client} 1") == "ok"
        if lock.kind != "spin":
            self._heard_of(name)

    def java_waits(self, thing: JavaObject, name: str, *call: object) -> Call:
        waiting = java_waits(self, name, thing, *call)
        if thing.kind != "spin":
            self._heard_of(name)
        return waiting

    def _heard_of(self, name: str) -> None:
        """Check that there is a subscriber, perhaps a lingering one, and none on the other kind of channel."""
        here, elsewhere = (1, 0) if self.mode.sharded else (0, 1)
        eventually(lambda: self.listening(name)[here])
        assert self.listening(name)[elsewhere] == 0

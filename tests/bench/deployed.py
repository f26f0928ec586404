"""Realistic deployments: with TLS, with replicas and sentinels, in shards.  They are those of
tests/topology, with the server binary of all rows."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "topology"))

from announce import Watch  # noqa: E402
from authority import Authority  # noqa: E402
from cluster import Cluster, slot_of  # noqa: E402
from deployment import Deployment  # noqa: E402
from node import Node, eventually, has_tls  # noqa: E402
from sentinels import Sentinels  # noqa: E402
from servers import Between, Failed, Missing, Server, Site, find_binary, free_port  # noqa: E402
from wire import ReplyError  # noqa: E402

PROBLEMS = (AssertionError, OSError, ReplyError, subprocess.SubprocessError)


@contextmanager
def otherwise(kind: type[Exception], what: str) -> Iterator[None]:
    """Turn errors of a deployment into a row's own exceptions."""
    try:
        yield
    except PROBLEMS as problem:
        raise kind(f"{what}: {problem}") from problem


class Secure(Server):
    """One server with two ports, of which one speaks TLS."""

    def __init__(self, folder: Path) -> None:
        with otherwise(Missing, "no certificates"):
            binary = find_binary()
            if not has_tls(binary):
                raise Missing(f"{Path(binary).name} was built without TLS")
            authority = Authority(folder / "authority", client_certificates="no")
            words = [line.split(" ", 1) for line in authority.server_options("127.0.0.1")]
        tls_port = free_port()
        more = [word for name, value in words for word in (f"--{name}", value)]
        super().__init__(folder, "secure", ("--tls-port", tls_port, *more))
        self.secure_url = f"rediss://127.0.0.1:{tls_port}?tls_ca={authority.ca.file}"


class Deployed(Site):
    """A deployment whose nodes keep their roles."""

    def __init__(self, them: Deployment) -> None:
        self._them = them

    @property
    def url(self) -> str:
        return self._them.url

    def servers(self) -> list[Node]:
        return self._them.nodes

    def stop(self) -> None:
        self._them.end()


class Shards(Deployed):
    """A cluster of masters without replicas, optionally with a delay between it and its clients:
    the nodes then announce the ports of the delaying process."""

    # No node should be suspected while 64 threads use all cores.
    TIMEOUT_MS = 15000

    def __init__(
        self, folder: Path, masters: int = 3, delay: Path | None = None, delay_us: int = 0
    ) -> None:
        self._between: Between | None = None
        with otherwise(Missing, "no cluster"):
            super().__init__(
                Cluster(
                    folder,
                    masters=masters,
                    replicas=0,
                    timeout_ms=self.TIMEOUT_MS,
                    binary=find_binary(),
                )
            )
            self.own_ports = [node.port for node in self._them.nodes]  # in the order of the slots
            self.ports = self.own_ports
            try:
                if delay is not None:
                    self._announce(Between(delay, delay_us, self.own_ports))
            except BaseException:
                self.stop()
                raise

    def _announce(self, between: Between) -> None:
        self._between, self.ports = between, between.ports
        for node, port in zip(self._them.nodes, between.ports, strict=True):
            node.command("CONFIG", "SET", "cluster-announce-port", port)
        eventually(lambda: all(self._told(node) == self.ports for node in self._them.nodes))

    @staticmethod
    def _told(node: Node) -> list[int]:
        """The masters' ports according to this node, in the order of the slots."""
        return [master[1] for _, _, master, *_ in sorted(node.command("CLUSTER", "SLOTS"))]

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def between_cpu(self) -> float:
        return self._between.cpu() if self._between else 0.0

    def stop(self) -> None:
        if self._between:
            self._between.stop()
        super().stop()


class Followed(Deployed):
    """A master with replicas.  Clients use the master's own address."""

    def __init__(self, folder: Path, replicas: int = 2) -> None:
        with otherwise(Missing, "no replicas"):
            # The sentinels only link the replicas; they must not suspect a busy master.
            super().__init__(
                Sentinels(
                    folder, replicas=replicas, down_ms=60000, quick=False, binary=find_binary()
                )
            )

    @property
    def url(self) -> str:
        return f"redis://{self._them.servers[0].address}"

    def servers(self) -> list[Node]:
        return self._them.servers

    def asked(self) -> list[Node]:
        return self._them.servers[:1]


# ---- Failovers -----------------------------------------------------------------------------------


class FailingOver(Deployed):
    """In each turn one master is killed, and the time when the first node announced another is
    recorded. The killed one is back as a replica before the next turn."""

    counts = False
    LOCK = "{failover}"  # the prefix of all lock names of the subject
    LATER = 1.0  # how long the subject works before the kill

    def _master(self) -> tuple[Node, str]:
        """The master of the lock, and the name under which it is announced."""
        if isinstance(self._them, Sentinels):
            return self._them.master, self._them.master.address
        node = eventually(lambda: self._them.owner_of(self.LOCK))
        return node, self._them.id(node)

    def empty(self) -> None:
        with otherwise(Failed, "the deployment did not recover"):
            for node in self._them.nodes:
                if not node.running:
                    node.start()
            self._them.await_settled()
            # Holds from the end of a failover may have remained there.
            self._master()[0].command("FLUSHALL", "SYNC")

    def await_empty(self) -> None:
        pass

    def disturb(self) -> dict[str, float]:
        with otherwise(Failed, "no failover"), Watch(self._them, slot_of(self.LOCK)) as watch:
            time.sleep(self.LATER)
            old, told = self._master()
            killed = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
            old.kill()
            announced = eventually(lambda: watch.first(killed, told))
        return {"killed": killed, "announced": announced}

    def check(self, extra: dict[str, Any]) -> None:
        """The longest time without a grant must be that of the failover."""
        begins = (extra["gap_from"] - extra["killed"]) / 1e9
        if not -self.LATER < begins < self.LATER:
            raise Failed(f"the longest time without a grant began {begins:.1f} s after the kill")
        if extra["gap_to"] == 0:
            raise Failed("no grant after the failover until the end of the turn")


def failing_sentinels(folder: Path) -> FailingOver:
    with otherwise(Missing, "no sentinels"):
        return FailingOver(Sentinels(folder, replicas=2, binary=find_binary()))


def failing_cluster(folder: Path) -> FailingOver:
    with otherwise(Missing, "no cluster"):
        return FailingOver(
            Cluster(folder, masters=3, replicas=1, timeout_ms=1500, binary=find_binary())
        )

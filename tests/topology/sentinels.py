"""A master, its replicas and three sentinels."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deployment import Deployment
from node import PATIENCE, Node, eventually


class Sentinels(Deployment):
    """One master, its replicas, and three sentinels that know each other from the start.

    down_ms       how long a server is silent before a sentinel considers it down
    quick         sentinels publish and query twice a second, not every 2 and 10 s, where possible (7.0 and later)
    auth          a separate password for the sentinels
    min_replicas  min-replicas-to-write, with max_lag seconds
    """

    def __init__(
        self,
        folder: Path,
        *,
        replicas: int = 2,
        sentinels: int = 3,
        service: str = "mymaster",
        down_ms: int = 1000,
        failover_ms: int = 3000,
        quick: bool = True,
        auth: str = "",
        min_replicas: int = 0,
        max_lag: int = 1,
        **options: Any,
    ) -> None:
        super().__init__(folder, **options)
        self.service, self.auth = service, auth
        self._quick, self._failover_ms = quick, failover_ms
        self._timing = [
            f"sentinel down-after-milliseconds {service} {down_ms}",
            f"sentinel failover-timeout {service} {failover_ms}",
            f"sentinel parallel-syncs {service} {max(1, replicas)}",
        ]
        if min_replicas:
            lag = [f"min-replicas-to-write {min_replicas}", f"min-replicas-max-lag {max_lag}"]
            self.options += [*lag, "repl-ping-replica-period 1"]
        self.servers: list[Node] = []
        self.sentinels: list[Node] = []
        try:
            self._make(replicas, sentinels)
        except BaseException:
            self.end()
            raise

    def _make(self, replicas: int, sentinels: int) -> None:
        master = self._node("server0")
        follow = [f"replicaof {master.host} {master.port}"]
        self.servers = [master, *(self._node(f"server{i + 1}", follow) for i in range(replicas))]
        self._start(self.servers)
        eventually(lambda: self._linked(master, replicas))
        ids = [secrets.token_hex(20) for _ in range(sentinels)]
        for i in range(sentinels):
            self.sentinels.append(self._sentinel(f"sentinel{i}", ids[i], master))
        for i, node in enumerate(self.sentinels):
            with open(node.config, "a") as config:
                for j, other in enumerate(self.sentinels):
                    if i != j:
                        words = f"{self.service} {other.host} {other.port} {ids[j]}"
                        config.write(f"sentinel known-sentinel {words}\n")
        self._start(self.sentinels)
        for node in self.sentinels:
            self._hurry(node)
        eventually(self.settled)

    def _sentinel(self, name: str, identity: str, master: Node) -> Node:
        quorum = 2
        lines = [
            f"sentinel myid {identity}",
            f"sentinel monitor {self.service} {master.host} {master.port} {quorum}",
            *self._timing,
        ]
        if self.password:
            lines.append(f"sentinel auth-pass {self.service} {self.password}")
        if self.auth:
            lines += [f"requirepass {self.auth}", f"sentinel sentinel-pass {self.auth}"]
        for replica in self.servers[1:]:
            words = f"{self.service} {replica.host} {replica.port}"
            lines.append(f"sentinel known-replica {words}")
        return self._node(name, lines, sentinel=True, password=self.auth)

    def _hurry(self, sentinel: Node) -> None:
        if self._quick:
            sentinel.command("SENTINEL", "DEBUG", "INFO-PERIOD", 500, "PUBLISH-PERIOD", 500)

    @staticmethod
    def _linked(master: Node, replicas: int) -> bool:
        info = master.info("replication")
        online = sum("state=online" in value for value in info.values())
        return online == replicas

    # -- Roles

    @property
    def url(self) -> str:
        hosts = ",".join(node.address for node in self.sentinels)
        return f"{self.scheme}+sentinel://{self.login}{hosts}/{self.service}"

    def announced(self, sentinel: Node) -> tuple[str, int] | None:
        """The master that this sentinel reports to clients."""
        reply = sentinel.command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.service)
        return (reply[0], int(reply[1])) if reply else None

    def at(self, address: tuple[str, int] | None) -> Node:
        return next(node for node in self.servers if (node.host, node.port) == address)

    @property
    def master(self) -> Node:
        """The master according to most of the running sentinels."""
        seen = [self.announced(node) for node in self._asked(self.sentinels)]
        return self.at(max(seen, key=seen.count))

    @property
    def replicas(self) -> list[Node]:
        master = self.master
        return [node for node in self.servers if node is not master]

    # -- Waiting

    def agreed(self) -> Node | None:
        """The master, once all running sentinels report it and it reports that role itself."""
        seen = {self.announced(node) for node in self._asked(self.sentinels)}
        if len(seen) != 1:
            return None
        master = self.at(seen.pop())
        alive = master.running and not master.stopped
        return master if alive and master.role == "master" else None

    def settled(self) -> bool:
        """Whether all servers run, all replicas follow the one master, all sentinels know it, and none is in TILT (which
        a sentinel enters for 30 s when it could not run for 2 s, and in which it takes no part in a failover)."""
        master = self.agreed()
        if master is None or not all(node.running for node in self.nodes):
            return False
        if not self._linked(master, len(self.servers) - 1):
            return False
        return all(self._knows_all(sentinel) for sentinel in self.sentinels)

    def _knows_all(self, sentinel: Node) -> bool:
        told = _pairs(sentinel.command("SENTINEL", "MASTER", self.service))
        replicas = sentinel.command("SENTINEL", "REPLICAS", self.service)
        return (
            "sentinel_tilt:0" in sentinel.command("INFO", "sentinel")
            and told["flags"] == "master"
            and int(told["num-slaves"]) == len(self.servers) - 1
            and int(told["num-other-sentinels"]) == len(self.sentinels) - 1
            and all(_pairs(fields)["flags"] == "slave" for fields in replicas)
        )

    def await_failover(self, old: Node, seconds: float = PATIENCE) -> Node:
        """Wait until all running sentinels report another master than the old one; returns it."""

        def another() -> Node | None:
            new = self.agreed()
            return new if new is not old else None

        return eventually(another, seconds)  # type: ignore[no-any-return]

    def await_settled(self, seconds: float = PATIENCE) -> None:
        eventually(self.settled, seconds)

    # -- Changes

    def failover(self) -> Node:
        """SENTINEL FAILOVER, by hand with a healthy master.  Returns the new one.

        Repeated if the sentinels gave up, as they do when one of them mistakes the promoted replica for a master that
        has come back."""
        old = eventually(self.agreed)
        again = 0.0

        def another() -> Node | None:
            nonlocal again
            if time.monotonic() > again and self._failover_begun():
                again = time.monotonic() + 2 * self._failover_ms / 1000
            new = self.agreed()
            return new if new is not old else None

        return eventually(another, 2 * PATIENCE)  # type: ignore[no-any-return]

    def _failover_begun(self) -> bool:
        replies = (
            s.admin.ask("SENTINEL", "FAILOVER", self.service) for s in self._asked(self.sentinels)
        )
        return any(reply == "OK" for reply in replies)

    def restart_sentinel(self, node: Node) -> None:
        node.restart()
        self._hurry(node)


def _pairs(fields: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(fields[::2], fields[1::2], strict=True))

"""Deployments that a test starts and ends: one server here, more of them in sentinels.py and cluster.py.

    with Sentinels(folder, replicas=2) as them:
        old = them.master
        old.kill()
        new = them.await_failover(old)

Every server has its own folder, with its log, below the given one, and dies with this process.  Nothing here assumes a
speed: tests wait for expected events.
"""

from __future__ import annotations

import itertools
import ssl
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))

from authority import Authority  # noqa: E402
from network import Network  # noqa: E402
from node import Node, find_server  # noqa: E402
from ports import Ports  # noqa: E402
from wire import Link  # noqa: E402


class Deployment:
    """What all deployments have: nodes, passwords, certificates, a network, an end."""

    def __init__(
        self,
        folder: Path,
        *,
        binary: str = "",
        options: Sequence[str] = (),
        password: str = "",
        tls: Authority | None = None,
        network: Network | None = None,
    ) -> None:
        self.folder = folder
        self.folder.mkdir(exist_ok=True)
        self.binary = binary or find_server()
        self.options = list(options)
        self.password = password
        self.tls = tls
        self.network = network
        self.nodes: list[Node] = []
        self._ports = Ports() if network is None else None
        self._count = itertools.count()

    def _node(self, name: str, options: Sequence[str] = (), **more: Any) -> Node:
        """A node that is not started yet: on its own port, or at its own address in the network."""
        if self.network is not None:
            place = self.network.place(name)
            port = 26379 if more.get("sentinel") else 6379
            more |= {"host": place.address, "within": place.enter}
        else:
            assert self._ports is not None
            port = self._ports.take()
        lines = [*options]
        if not more.get("sentinel"):
            lines += self.options
            if self.password:
                lines += [f"requirepass {self.password}", f"masterauth {self.password}"]
            more.setdefault("password", self.password)
        if self.tls is not None:
            lines += self.tls.server_options(more.get("host", "127.0.0.1"))
            lines += ["tls-replication yes"]
        more.setdefault("tls", self.tls is not None)
        node = Node(self.folder, name, port, binary=self.binary, options=lines, **more)
        self.nodes.append(node)
        return node

    def _asked(self, nodes: Sequence[Node] | None = None) -> list[Node]:
        """The nodes that know the truth: they run and are not cut off."""
        apart = self.network.apart if self.network else ()
        chosen = self.nodes if nodes is None else nodes
        return [n for n in chosen if n.running and not n.stopped and n.name not in apart]

    def _start(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            node.start(wait=False)
        for node in nodes:
            node.wait()

    @property
    def scheme(self) -> str:
        return "rediss" if self.tls else "redis"

    @property
    def login(self) -> str:
        return f":{self.password}@" if self.password else ""

    def connect(self, node: Node) -> Link:
        """Connect like a client: over the network, with TLS where the deployment uses it."""
        tls: ssl.SSLContext | None = self.tls.client_context() if self.tls else None
        return Link((node.host, node.port), password=node.password, tls=tls, name=node.host)

    def end(self) -> None:
        for node in self.nodes:
            node.end()
        if self._ports is not None:
            self._ports.close()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


class Single(Deployment):
    """One server."""

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(folder, **options)
        try:
            self.node = self._node("server")
            self._start(self.nodes)
        except BaseException:
            self.end()
            raise

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.login}{self.node.address}"

"""A cluster of masters and replicas, created with CLUSTER commands, and the migration of its slots."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

from deployment import Deployment
from node import PATIENCE, Node, eventually
from wire import ReplyError

SLOTS = 16384


def slot_of(key: str | bytes) -> int:
    """CRC16 (XMODEM) of the key, or of its hash tag, as in the server."""
    data = key if isinstance(key, bytes) else key.encode()
    start = data.find(b"{")
    if start >= 0:
        end = data.find(b"}", start + 1)
        if end > start + 1:
            data = data[start + 1 : end]
    crc = 0
    for byte in data:
        crc ^= byte << 8
        for _ in range(8):
            crc = ((crc << 1) ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xFFFF
    return crc % SLOTS


class Cluster(Deployment):
    """Masters and their replicas.  Nodes 0 to masters - 1 start as masters, the others as their replicas in turn.

    timeout_ms  cluster-node-timeout
    """

    def __init__(
        self,
        folder: Path,
        *,
        masters: int = 3,
        replicas: int = 1,
        timeout_ms: int = 1000,
        **options: Any,
    ) -> None:
        super().__init__(folder, **options)
        self._timeout_ms = timeout_ms
        self._ids: dict[Node, str] = {}
        try:
            self._make(masters, replicas)
        except BaseException:
            self.end()
            raise

    def _make(self, masters: int, replicas: int) -> None:
        for _ in range(masters * (1 + replicas)):
            self._server()
        self._start(self.nodes)
        first = self.nodes[:masters]
        for i, node in enumerate(self.nodes):
            self.id(node)
            node.command("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
        for i, node in enumerate(first):
            low, high = SLOTS * i // masters, SLOTS * (i + 1) // masters - 1
            node.command("CLUSTER", "ADDSLOTSRANGE", low, high)
        # All pairs meet: gossip would achieve the same some rounds later.
        self._introduce(list(itertools.combinations(self.nodes, 2)))
        for i, node in enumerate(self.nodes[masters:]):
            self._replicate(node, first[i % masters])
        self.await_settled()

    def _server(self) -> Node:
        lines = [
            "cluster-enabled yes",
            "cluster-config-file nodes.conf",
            f"cluster-node-timeout {self._timeout_ms}",
            "cluster-replica-validity-factor 0",  # a replica that was away for a while may still take over
            "cluster-migration-barrier 100",  # replicas stay where the test has put them
            "cluster-require-full-coverage no",
        ]
        if self.tls is not None:
            lines.append("tls-cluster yes")
        return self._node(f"node{next(self._count)}", lines)

    def _introduce(self, pairs: list[tuple[Node, Node]]) -> None:
        """Repeat MEET where necessary: a node forgets a handshake that takes longer than the node timeout."""
        again = 0.0

        def done() -> bool:
            nonlocal again
            strangers = [
                (a, b)
                for a, b in pairs
                if self.id(a) not in self.view(b) or self.id(b) not in self.view(a)
            ]
            if strangers and time.monotonic() > again:
                again = time.monotonic() + 2 * self._timeout_ms / 1000
                for a, b in strangers:
                    a.command("CLUSTER", "MEET", b.host, b.port)
            return not strangers

        eventually(done)

    def _replicate(self, replica: Node, master: Node) -> None:
        identity = self.id(master)

        def done() -> bool:
            reply = replica.admin.ask(
                "CLUSTER", "REPLICATE", identity
            )  # refused until the replica knows the master
            return bool(reply == "OK")

        eventually(done)

    # -- Roles

    @property
    def url(self) -> str:
        hosts = ",".join(node.address for node in self.nodes)
        return f"{self.scheme}+cluster://{self.login}{hosts}/"

    def id(self, node: Node) -> str:
        if node not in self._ids:
            self._ids[node] = str(node.command("CLUSTER", "MYID"))
        return self._ids[node]

    def view(self, node: Node) -> dict[str, dict[str, Any]]:
        """The cluster as that node sees it: by node id, the flags, master, link and slots."""
        seen = {}
        for line in node.command("CLUSTER", "NODES").splitlines():
            words = line.split()
            slots: list[tuple[int, int]] = []
            for word in words[8:]:
                if not word.startswith("["):
                    low, _, high = word.partition("-")
                    slots.append((int(low), int(high or low)))
            flags = set(words[2].split(",")) - {"myself", "nofailover"}
            seen[words[0]] = {"flags": flags, "master": words[3], "link": words[7], "slots": slots}
        return seen

    def at(self, identity: str) -> Node:
        return next(node for node in self.nodes if self.id(node) == identity)

    def _told(self) -> dict[str, dict[str, Any]]:
        """The view of a running master: masters learn of changes first."""
        asked = self._asked()
        masters = (node for node in asked if node.role == "master")
        return self.view(next(masters, asked[0]))

    def owner(self, slot: int) -> Node | None:
        """The node that serves the slot, according to a running master."""
        for identity, seen in self._told().items():
            if any(low <= slot <= high for low, high in seen["slots"]):
                return self.at(identity)
        return None

    def owner_of(self, key: str) -> Node | None:
        return self.owner(slot_of(key))

    def replicas_of(self, master: Node) -> list[Node]:
        identity = self.id(master)
        return [self.at(i) for i, seen in self._told().items() if seen["master"] == identity]

    @property
    def masters(self) -> list[Node]:
        """The nodes that serve slots."""
        return [self.at(i) for i, seen in self._told().items() if seen["slots"]]

    def slots(self, node: Node) -> list[int]:
        """The slots that the node serves."""
        ranges = self._told()[self.id(node)]["slots"]
        return [slot for low, high in ranges for slot in range(low, high + 1)]

    def key_at(self, node: Node, prefix: str = "key", nth: int = 0) -> str:
        """The nth key of the form prefix<number> that the node serves."""
        slots = set(self.slots(node))
        keys = (f"{prefix}{i}" for i in itertools.count())
        return next(itertools.islice((k for k in keys if slot_of(k) in slots), nth, None))

    # -- Waiting

    def agreed(self) -> bool:
        """Whether all running nodes report the state ok, and the same masters with the same slots."""
        asked = self._asked()
        maps = set()
        for node in asked:
            info = dict(line.split(":") for line in node.command("CLUSTER", "INFO").splitlines())
            if info["cluster_state"] != "ok" or info["cluster_slots_ok"] != str(SLOTS):
                return False
            seen = self.view(node).items()
            maps.add(frozenset((i, tuple(s["slots"])) for i, s in seen if s["slots"]))
        return len(maps) == 1

    def settled(self) -> bool:
        """Whether all nodes run, agree and see each other as healthy, and the replicas follow."""
        if not all(node.running for node in self.nodes) or not self.agreed():
            return False
        roles = set()
        for node in self.nodes:
            seen = self.view(node)
            for each in seen.values():
                if each["flags"] not in ({"master"}, {"slave"}) or each["link"] != "connected":
                    return False
            if len(seen) != len(self.nodes):
                return False
            if node.role == "slave" and node.command("ROLE")[3] != "connected":
                return False
            roles.add(frozenset((identity, each["master"]) for identity, each in seen.items()))
        return len(roles) == 1

    def await_agreed(self, seconds: float = PATIENCE) -> None:
        eventually(self.agreed, seconds)

    def await_settled(self, seconds: float = PATIENCE) -> None:
        eventually(self.settled, seconds)

    def await_failover(self, slot: int, old: Node, seconds: float = PATIENCE) -> Node:
        """Wait until all running nodes say that another node than the old one serves the slot; returns that node."""

        def another() -> Node | None:
            new = self.owner(slot)
            return new if new is not None and new is not old and self.agreed() else None

        return eventually(another, seconds)  # type: ignore[no-any-return]

    # -- Changes

    def failover(self, replica: Node, how: str = "") -> None:
        """CLUSTER FAILOVER on a replica, repeated until it is the master.  how: "", FORCE or TAKEOVER.

        If a replica won an election less than two node timeouts ago, was then demoted by hand and loses its master, it
        takes the slots with its old votes and no node believes it (Redis 7.0): fail over other shards in between."""

        def done() -> bool:
            if replica.role == "master":
                return True
            replica.admin.ask("CLUSTER", "FAILOVER", *([how] if how else []))
            return False

        eventually(done, nap=0.1)

    def begin_move(self, slot: int, to: Node, source: Node | None = None) -> Move:
        source = source or self.owner(slot)
        assert source is not None and source is not to
        return Move(self, slot, source, to)

    def move(self, slot: int, to: Node, source: Node | None = None) -> None:
        """Move a slot with its keys to another master, as operators do."""
        move = self.begin_move(slot, to, source)
        move.keys()
        move.finish()

    def add(self, master: Node | None = None) -> Node:
        """Add a node: a replica of that master, or a master without slots."""
        node = self._server()
        node.start()
        self.id(node)
        self._introduce([(node, other) for other in self.nodes[:-1] if other.running])
        if master is not None:
            self._replicate(node, master)
        self.await_settled()
        return node

    def remove(self, node: Node) -> None:
        """Remove a node that no longer serves slots: it ends, and all others forget it."""
        identity = self.id(node)
        node.end()
        self.nodes.remove(node)
        for other in self._asked():
            other.admin.ask("CLUSTER", "FORGET", identity)
        self.await_settled()

    def empty(self, node: Node) -> None:
        """Move all slots of a master to the others in turn."""
        others = itertools.cycle([other for other in self.masters if other is not node])
        for slot in self.slots(node):
            self.move(slot, next(others), node)


class Move:
    """A slot migration in steps, so that tests may stop in between.  It begins with MIGRATING and IMPORTING."""

    def __init__(self, cluster: Cluster, slot: int, source: Node, to: Node) -> None:
        self.cluster, self.slot, self.source, self.to = cluster, slot, source, to
        self._masters = [
            n for n in cluster._asked() if n not in (to, source) and n.role == "master"
        ]
        self._set(to, "IMPORTING", source)
        self._set(source, "MIGRATING", to)

    def _set(self, node: Node, state: str, peer: Node) -> None:
        """Repeat SETSLOT: Valkey answers NOREPLICAS while the node's replicas are still connecting."""

        def done() -> bool:
            reply = node.admin.ask("CLUSTER", "SETSLOT", self.slot, state, self.cluster.id(peer))
            if isinstance(reply, ReplyError) and reply.code != "NOREPLICAS":
                raise reply
            return bool(reply == "OK")

        eventually(done)

    def _others(self) -> list[Node]:
        return [node for node in (self.source, *self._masters) if node.running]

    def _epoch(self, node: Node) -> int:
        info = node.command("CLUSTER", "INFO")
        return int(dict(line.split(":") for line in info.splitlines())["cluster_current_epoch"])

    def keys(self, count: int = 0) -> int:
        """Migrate up to count keys, or all; returns how many."""
        moved = 0
        while keys := self.source.command("CLUSTER", "GETKEYSINSLOT", self.slot, count or 1000):
            self.key(*keys)
            moved += len(keys)
            if count:
                break
        return moved

    def key(self, *keys: str) -> None:
        password = ["AUTH", self.cluster.password] if self.cluster.password else []
        words = ["MIGRATE", self.to.host, self.to.port, "", 0, 30000, *password, "KEYS", *keys]
        self.source.command(*words)

    def finish(self) -> None:
        """Assign the slot to the target: at the target, the source and the other masters, which tell the rest."""
        # The target takes the next epoch after the newest that it has heard of.  If another node had taken that one
        # already, the cluster would give the slot back to a node without its keys.
        eventually(lambda: all(self._epoch(self.to) >= self._epoch(n) for n in self._others()))
        self._set(self.to, "NODE", self.to)
        for node in (self.source, *self._masters):
            # Two refusals are fine: from a node that is a replica by now, as a master that loses its last slot becomes,
            # and from one without replicas at the moment.  Both have learned of the change from the target.
            reply = node.admin.ask(
                "CLUSTER", "SETSLOT", self.slot, "NODE", self.cluster.id(self.to)
            )
            if (
                reply != "OK"
                and reply.code != "NOREPLICAS"
                and "only with masters" not in str(reply)
            ):
                raise reply

    def give_up(self) -> None:
        """Both nodes drop the migration; clients find the migrated keys on neither node."""
        for node in (self.to, self.source):
            node.command("CLUSTER", "SETSLOT", self.slot, "STABLE")

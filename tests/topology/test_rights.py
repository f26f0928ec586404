"""The rights that `snib acl` prints suffice in a cluster, too, on every server: every kind is used with them alone."""

from __future__ import annotations

import functools
import shutil
import sys
from pathlib import Path

import pytest
import snib
from cluster import Cluster
from load import BUILD
from node import find_server
from wire import ReplyError

sys.path.insert(0, str(Path(__file__).parent.parent / "docs"))

import rights  # noqa: E402

SERVERS = ("redis-server", "redis-server-8", "valkey-server")
LOGIN = "locker:canary"
LEASE = 6.0  # a machine with much to do may stand still for longer than that of rights.py


class Server:
    """What rights.py asks of a server, of a whole cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def pubsub_channels(self) -> list[str]:
        found: list[str] = []
        for node in self._cluster.nodes:
            for words in (("CHANNELS",), ("SHARDCHANNELS",)):
                reply = node.admin.ask("PUBSUB", *words)
                found += [] if isinstance(reply, ReplyError) else reply  # no sharded ones before 7.0
        return found

    def keys(self, pattern: str) -> list[str]:
        return [key for node in self._cluster.nodes for key in node.command("KEYS", pattern)]

    def flushall(self) -> None:
        for node in self._cluster.nodes:
            node.command("FLUSHALL")


@pytest.mark.parametrize("program", SERVERS)
def test_cluster(tmp_path: Path, program: str) -> None:
    binary = shutil.which(Path(find_server()).parent / program)
    if not binary:
        pytest.skip(f"there is no {program} beside {find_server()}")
    with Cluster(tmp_path / "cluster", replicas=0, binary=binary, password="secret") as them:
        rules = rights.advised(BUILD / "core/snib", them.url)
        for node in them.nodes:
            node.command("ACL", "SETUSER", "locker", "on", ">canary", *rules)
        url, server = them.url.replace(":secret@", f"{LOGIN}@"), Server(them)
        connect = functools.partial(snib.connect, url, lease=LEASE, **rights.PATIENT)
        with connect() as first, connect() as second:
            name = rights.NAMES[0]
            for kind in rights.KINDS:
                rights.check_kind(kind, name, first, second, server)
                server.flushall()
            rights.check_questions(name, first)
            rights.refused("other", first)
            assert first.stats().polling + second.stats().polling == 0

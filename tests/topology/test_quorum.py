"""A quorum lock over every form of deployment at once: a server, TLS, sentinels, a cluster, and a cluster with TLS."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import snib
from authority import Authority
from cluster import Cluster
from deployment import Deployment, Single
from node import eventually
from sentinels import Sentinels

LEASE = 30.0
PATIENT = {"patience": 60.0, "try_timeout": 60.0, "reply_timeout": 60.0}  # a busy machine is slow at times


@contextlib.contextmanager
def quorum(deployments: list[Deployment], authority: Authority) -> Iterator[tuple[snib.QuorumLock, list[snib.Client]]]:
    with contextlib.ExitStack() as stack:
        clients = []
        for each in deployments:
            tls = {"tls_ca": authority.ca.file} if each.tls else {}
            clients.append(stack.enter_context(snib.connect(each.url, lease=LEASE, **PATIENT, **tls)))
        # A cluster cannot prove how long its memory reaches back, so it has a vote only without the quarantine.
        locks = [client.lock("{orders}") for client in clients]
        yield snib.QuorumLock(locks, quarantine=False), clients


@pytest.mark.usefixtures("tls_server")
def test_every_form(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    with (
        Single(tmp_path / "single", password="secret") as single,
        Single(tmp_path / "secure", tls=authority) as secure,
        Sentinels(tmp_path / "sentinels") as sentinels,
        Cluster(tmp_path / "cluster", replicas=0) as cluster,
        Cluster(tmp_path / "both", masters=3, replicas=0, tls=authority, password="secret") as both,
        quorum([single, secure, sentinels, cluster, both], authority) as (mine, clients),
        quorum([single, secure, sentinels, cluster, both], authority) as (other, _),
    ):
        with mine.hold(timeout=30.0) as hold:
            assert all(client.lock("{orders}").locked() for client in clients)
            with pytest.raises(snib.Busy):
                other.hold(timeout=0)
            # Two of the five may fail; a third one may follow its master, whose replica has the lock.
            single.node.kill()
            secure.node.kill()
            master = sentinels.master
            master.command("SET", "mark", "1")  # WAIT covers the writes of its own connection
            assert master.command("WAIT", 2, 60_000) == 2
            renewed = hold.remaining()
            sentinels.failover()
            hold.extend(2 * LEASE)
            assert hold.remaining() > max(renewed, LEASE)
            hold.check()
            with pytest.raises(snib.Busy):
                other.hold(timeout=0)
        assert [client.lock("{orders}").locked() for client in clients[2:]] == [False, False, False]
        single.node.start()
        with other.hold(timeout=30.0) as hold:
            hold.check()
            with pytest.raises(snib.Busy):
                mine.hold(timeout=0)
        secure.node.start()  # or closing would tell of releases that it has not confirmed
        eventually(lambda: not any(client.lock("{orders}").locked() for client in clients))

"""Servers that do not match the URL: one sentence says so, and which URL to use."""

from __future__ import annotations

from pathlib import Path

import pytest

import snib
from conftest import NewServer
from support import PATIENT, free_port, sentinel_of


def test_a_node_of_a_cluster(new_server: NewServer) -> None:
    port, bus = free_port(), free_port()
    new_server("--cluster-enabled", "yes", "--port", str(port), "--cluster-port", str(bus))
    says = rf"127.0.0.1:{port} is a cluster node: use redis\+cluster://127.0.0.1:{port}"
    with snib.connect(f"redis://127.0.0.1:{port}") as client, pytest.raises(snib.TopologyError, match=says):
        client.ping()


def test_a_server_that_is_no_cluster_and_no_sentinel(new_server: NewServer) -> None:
    port = free_port()
    new_server("--port", str(port))
    with snib.connect(f"redis+cluster://127.0.0.1:{port}") as client:
        with pytest.raises(snib.TopologyError, match=f"is not a cluster node: use redis://127.0.0.1:{port}"):
            client.ping()
    with snib.connect(f"redis+sentinel://127.0.0.1:{port}/main") as client:
        with pytest.raises(snib.TopologyError, match='is not a sentinel for "main"'):
            client.ping()


def test_a_sentinel_is_no_server(new_server: NewServer, tmp_path: Path) -> None:
    """Its address in a URL for servers gives the correct URL, which then works."""
    master = free_port()
    new_server("--port", str(master))
    with sentinel_of(master, tmp_path) as port:
        where = f"127.0.0.1:{port}"
        says = rf"^mutex \"x\": {where} is a sentinel: use redis\+sentinel://{where}/service$"
        for url in f"redis://{where}", f"redis://{where}/3", f"redis+cluster://{where}":
            with snib.connect(url) as client, pytest.raises(snib.TopologyError, match=says):
                client.lock("x").acquire()
        with snib.connect(f"redis+sentinel://{where}/other") as client:
            with pytest.raises(snib.TopologyError, match=r'no sentinel knows the service "other" \(1 of 1 answered\)'):
                client.lock("x").acquire()
        with snib.connect(f"redis+sentinel://{where}/main?{PATIENT}") as client, client.lock("x") as hold:
            hold.check()


def test_a_replica_is_no_master(new_server: NewServer) -> None:
    """At a replica's own address the error names its role and its address; nothing is written."""
    master, replica = free_port(), free_port()
    server = new_server("--port", str(master))
    copy = new_server("--port", str(replica), "--replicaof", "127.0.0.1", str(master))
    says = f'^mutex "x": 127.0.0.1:{replica} is a read-only replica; connect to its master'
    with snib.connect(f"redis://127.0.0.1:{replica}?patience=500ms") as client, pytest.raises(snib.ReadOnly, match=says):
        client.lock("x").acquire()
    assert not server.admin.keys()
    assert not copy.admin.keys()

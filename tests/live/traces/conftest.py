"""A server for the scripts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from scripts import Scripts, Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server"))
    yield server
    server.end()


@pytest.fixture
def run(server: Server) -> Iterator[Scripts]:
    server.admin.config_set("maxmemory", 0)
    server.admin.flushall()
    scripts = Scripts(server)
    yield scripts
    scripts.listener.close()
    scripts.ears.close()

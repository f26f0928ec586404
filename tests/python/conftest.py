from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

sys.path.insert(0, str(Path(__file__).parent))

pytest.register_assert_rewrite("support")

import snib  # noqa: E402
from support import TIDY, Server, eventually  # noqa: E402


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server"))
    yield server
    server.end()


@pytest.fixture
def server(shared_server: Server) -> Iterator[Server]:
    """A server; each test must leave it without keys and without subscriptions."""
    yield shared_server
    shared_server.admin.delete("snib_client:{orders}")  # it outlives the clients with the option debug
    try:
        eventually(shared_server.clean, TIDY)
    except AssertionError:
        left = shared_server.left()
        shared_server.admin.flushall()
        pytest.fail(f"left behind: {left}")


@pytest.fixture
def client(server: Server) -> Iterator[snib.Client]:
    with snib.connect(server.url) as client:
        yield client


class NewServer(Protocol):
    def __call__(self, *options: str) -> Server: ...


@pytest.fixture
def new_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NewServer]:
    """Servers for tests that stop, break or configure them."""
    servers: list[Server] = []

    def make(*options: str) -> Server:
        servers.append(Server(tmp_path_factory.mktemp("own"), *options))
        return servers[-1]

    yield make
    for server in servers:
        server.end()

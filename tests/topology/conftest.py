from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import network  # noqa: E402
from network import Network  # noqa: E402
from node import find_server, has_tls  # noqa: E402


@pytest.fixture
def net() -> Iterator[Network]:
    """A private network for this test; the test is skipped, with the reason, if it cannot be created."""
    reason = network.why_not()
    if reason:
        pytest.skip(reason)
    with Network() as made:
        yield made


@pytest.fixture(scope="session")
def tls_server() -> str:
    """A server built with TLS; without one the test is skipped."""
    binary = find_server()
    if not has_tls(binary):
        pytest.skip(f"{binary} was built without TLS")
    return binary

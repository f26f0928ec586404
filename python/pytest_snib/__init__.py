"""Fixtures for pytest: snib_server, a memory server, and snib_client, a client of it.

A package of its own, so that pytest's start does not import snib where no test uses it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import snib
    import snib.testing


@pytest.fixture
def snib_server() -> Iterator[snib.testing.Server]:
    """A memory server for this test; see snib.testing."""
    from snib import testing

    with testing.Server() as server:
        yield server


@pytest.fixture
def snib_client(snib_server: snib.testing.Server) -> Iterator[snib.Client]:
    """A client of snib_server, closed at the end of the test, when all faults are over."""
    import snib

    with snib.connect(snib_server.url) as client:
        yield client
        with contextlib.suppress(snib.Closed):  # the test has stopped the server
            snib_server.heal()

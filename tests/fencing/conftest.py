from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))

from databases import MariaDB, Postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    database = Postgres()
    yield database
    database.stop()


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDB]:
    database = MariaDB()
    yield database
    database.stop()

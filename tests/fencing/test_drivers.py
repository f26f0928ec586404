"""The check of tokens with every library that snib.fencing supports, on real databases."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import django.conf
import django.db
import psycopg
import pymysql
import pytest
import sqlalchemy
import sqlalchemy.ext.asyncio
import sqlalchemy.orm
from databases import MariaDB, Postgres
from snib import fencing

Transaction = Callable[[], contextlib.AbstractContextManager[Any]]


@contextlib.contextmanager
def by_sqlite3(path: Path) -> Iterator[Transaction]:
    database = sqlite3.connect(path)

    @contextlib.contextmanager
    def transaction() -> Iterator[Any]:
        with database:
            yield database

    yield transaction
    database.close()


@contextlib.contextmanager
def by_psycopg(url: str) -> Iterator[Transaction]:
    with psycopg.connect(url) as database:

        @contextlib.contextmanager
        def transaction() -> Iterator[Any]:
            with database.transaction():
                yield database

        yield transaction


@contextlib.contextmanager
def by_pymysql(mariadb: MariaDB) -> Iterator[Transaction]:
    database = pymysql.connect(unix_socket=str(mariadb.socket), user="root", database="snib")

    @contextlib.contextmanager
    def transaction() -> Iterator[Any]:
        try:
            database.begin()
            yield database
            database.commit()
        except BaseException:
            database.rollback()
            raise

    yield transaction
    database.close()


@contextlib.contextmanager
def by_sqlalchemy(url: str, session: bool) -> Iterator[Transaction]:
    engine = sqlalchemy.create_engine(url)

    @contextlib.contextmanager
    def transaction() -> Iterator[Any]:
        with sqlalchemy.orm.Session(engine) if session else engine.connect() as it, it.begin():
            yield it

    yield transaction
    engine.dispose()


@contextlib.contextmanager
def by_django(alias: str) -> Iterator[Transaction]:
    @contextlib.contextmanager
    def transaction() -> Iterator[Any]:
        with django.db.transaction.atomic(using=alias):
            yield django.db.connection if alias == "default" else django.db.connections[alias]

    yield transaction
    django.db.connections[alias].close()


@pytest.fixture(scope="session")
def django_databases(
    postgres: Postgres, mariadb: MariaDB, tmp_path_factory: pytest.TempPathFactory
) -> None:
    pymysql.version_info = (2, 2, 6, "final", 0)  # the mysqlclient version that Django requires
    pymysql.install_as_MySQLdb()
    path = tmp_path_factory.mktemp("django") / "database"
    server = {"HOST": "127.0.0.1", "PORT": postgres.port, "USER": "snib", "NAME": "postgres"}
    socket = {"HOST": str(mariadb.socket), "USER": "root", "NAME": "snib"}
    django.conf.settings.configure(
        DATABASES={
            "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": path},
            "postgres": {"ENGINE": "django.db.backends.postgresql"} | server,
            "mariadb": {"ENGINE": "django.db.backends.mysql"} | socket,
        }
    )
    django.setup()


WAYS: dict[str, Callable[..., contextlib.AbstractContextManager[Transaction]]] = {
    "sqlite3": lambda path, postgres, mariadb: by_sqlite3(path),
    "psycopg": lambda path, postgres, mariadb: by_psycopg(postgres.url),
    "pymysql": lambda path, postgres, mariadb: by_pymysql(mariadb),
    "sqlalchemy, sqlite": lambda path, postgres, mariadb: by_sqlalchemy(f"sqlite:///{path}", False),
    "sqlalchemy session, postgres": lambda path, postgres, mariadb: by_sqlalchemy(
        postgres.url.replace("postgresql:", "postgresql+psycopg:"), True
    ),
    "sqlalchemy, mariadb": lambda path, postgres, mariadb: by_sqlalchemy(
        f"mysql+pymysql://root@/snib?unix_socket={mariadb.socket}", False
    ),
    "sqlalchemy session, mariadb": lambda path, postgres, mariadb: by_sqlalchemy(
        f"mariadb+pymysql://root@/snib?unix_socket={mariadb.socket}", True
    ),
    "django, sqlite": lambda path, postgres, mariadb: by_django("default"),
    "django, postgres": lambda path, postgres, mariadb: by_django("postgres"),
    "django, mariadb": lambda path, postgres, mariadb: by_django("mariadb"),
}


@pytest.fixture(params=WAYS)
def transaction(
    request: pytest.FixtureRequest,
    postgres: Postgres,
    mariadb: MariaDB,
    django_databases: None,
    tmp_path: Path,
) -> Iterator[Transaction]:
    with WAYS[request.param](tmp_path / "database", postgres, mariadb) as transaction:
        with transaction() as connection:
            fencing.sql_create(connection)
            fencing.sql_create(connection)
        yield transaction


def accepts(transaction: Transaction, name: str, token: int, owner: str) -> bool:
    try:
        with transaction() as connection:
            fencing.sql_check(connection, name, token, owner)
    except fencing.StaleToken:
        return False
    return True


# Requests in the order in which they reach the resource; the Go tests use the same.
STEPS = [
    (7, "a", True),
    (7, "a", True),  # the same hold again
    (7, "b", False),  # a counter that was lost and starts again
    (7, "A", False),  # owners and names are case-sensitive
    (6, "a", False),
    (9, "b", True),
    (8, "a", False),
    (10, "a", True),
    (9, "b", False),
    (2**53 + 1, "a", True),
    (2**53, "b", False),
    (2**53 + 2, "b", True),
    (2**63 - 2, "a", True),
    (2**63 - 1, "b", True),
    (2**63 - 2, "a", False),
]


def test_steps(transaction: Transaction, request: pytest.FixtureRequest) -> None:
    name = request.node.name
    for step, (token, owner, accepted) in enumerate(STEPS):
        assert accepts(transaction, name, token, owner) == accepted, step
    assert accepts(transaction, name.upper(), 1, "a")
    assert accepts(transaction, "ä ☃ '\"%:?$1", 1, "a")
    assert not accepts(transaction, "ä ☃ '\"%:?$1", 1, "b")


def test_a_rolled_back_check_is_forgotten(
    transaction: Transaction, request: pytest.FixtureRequest
) -> None:
    name = request.node.name
    with contextlib.suppress(ZeroDivisionError), transaction() as connection:
        fencing.sql_check(connection, name, 5, "a")
        raise ZeroDivisionError
    assert accepts(transaction, name, 4, "b")


def test_a_transaction_that_began_earlier_sees_the_newer_token(mariadb: MariaDB) -> None:
    """MySQL reads the table as it was when a transaction began, unless the read locks the row."""
    with by_pymysql(mariadb) as old, by_pymysql(mariadb) as new:
        with old() as connection:
            fencing.sql_create(connection)
            fencing.sql_check(connection, "earlier", 1, "a")
        with pytest.raises(fencing.StaleToken), old() as connection:
            cursor = connection.cursor()
            cursor.execute("SELECT token FROM snib_fence WHERE name = 'earlier'")
            assert cursor.fetchone() == (1,)
            assert accepts(new, "earlier", 2, "b")
            fencing.sql_check(connection, "earlier", 1, "a")


def test_a_pipeline_is_refused(postgres: Postgres) -> None:
    """There no result is known before its end, and StaleToken would be a lie."""
    with psycopg.connect(postgres.url) as database:
        fencing.sql_create(database)
        database.commit()
        with pytest.raises(fencing.NotSupported, match="outside of a pipeline"):
            with database.transaction(), database.pipeline():
                fencing.sql_check(database, "piped", 1, "a")
        with database.transaction():
            fencing.sql_check(database, "piped", 1, "b")


@contextlib.contextmanager
def without(way: str, path: Path, postgres: Postgres, mariadb: MariaDB) -> Iterator[Any]:
    """A connection that commits each statement by itself."""
    library, _, where = way.partition(", ")
    urls = {
        "sqlite": f"sqlite:///{path}",
        "postgres": postgres.url.replace("postgresql:", "postgresql+psycopg:"),
        "mariadb": f"mysql+pymysql://root@/snib?unix_socket={mariadb.socket}",
    }
    if library.startswith("sqlalchemy"):
        engine = sqlalchemy.create_engine(urls[where], isolation_level="AUTOCOMMIT")
        with sqlalchemy.orm.Session(engine) if "session" in library else engine.connect() as it:
            yield it
        engine.dispose()
    elif library == "django":
        yield django.db.connections[{"sqlite": "default"}.get(where, where)]
    else:
        opened: dict[str, Callable[[], Any]] = {
            "sqlite3": lambda: sqlite3.connect(path, isolation_level=None),
            "psycopg": lambda: psycopg.connect(postgres.url, autocommit=True),
            "pymysql": lambda: pymysql.connect(
                unix_socket=str(mariadb.socket), user="root", database="snib", autocommit=True
            ),
        }
        with contextlib.closing(opened[library]()) as connection:
            yield connection


@pytest.mark.parametrize("way", WAYS)
def test_a_check_without_a_transaction_is_refused(
    way: str, postgres: Postgres, mariadb: MariaDB, django_databases: None, tmp_path: Path
) -> None:
    """It would be over before the change, and a newer hold could come between."""
    with without(way, tmp_path / "database", postgres, mariadb) as connection:
        fencing.sql_create(connection)
        for token, owner in [(5, "a"), (4, "b")]:
            with pytest.raises(fencing.InvalidArgument, match="in no transaction"):
                fencing.sql_check(connection, f"without {way}", token, owner)


@pytest.mark.parametrize("way", ["sqlite3", "psycopg", "pymysql"])
def test_a_transaction_that_the_program_begins_by_hand(
    way: str, postgres: Postgres, mariadb: MariaDB, tmp_path: Path
) -> None:
    with without(way, tmp_path / "database", postgres, mariadb) as connection:
        fencing.sql_create(connection)
        for statement in ("BEGIN", None, "COMMIT"):
            if statement:
                connection.cursor().execute(statement)
            else:
                fencing.sql_check(connection, f"by hand {way}", 1, "a")


# No hold has such a token: 0 is of a lock without tokens, and a negative number is an error's.
WRONG = [("fresh", 0, "a"), ("fresh", -1, "a"), ("wrong", -1, "b"), (None, 7, "a"), ("fresh", None, "a")]


@pytest.mark.parametrize("way", ["sqlite3", "psycopg", "pymysql"])
def test_the_table_refuses_what_no_hold_has(
    way: str, postgres: Postgres, mariadb: MariaDB, tmp_path: Path
) -> None:
    """In Java and C a program runs the statements itself."""
    statement = fencing.SQL_NOTE_MYSQL if way == "pymysql" else fencing.SQL_ACCEPT
    if way != "sqlite3":
        statement = fencing._pyformat(statement)
    refusals = (sqlite3.IntegrityError, psycopg.IntegrityError, pymysql.IntegrityError, pymysql.OperationalError)
    with WAYS[way](tmp_path / "database", postgres, mariadb) as transaction:
        with transaction() as connection:
            connection.cursor().execute("DROP TABLE IF EXISTS snib_fence")
            fencing.sql_create(connection)
            fencing.sql_check(connection, "wrong", 1, "a")
        for name, token, owner in WRONG:
            with pytest.raises(refusals), transaction() as connection:
                connection.cursor().execute(statement, {"name": name, "token": token, "owner": owner})
        with transaction() as connection:
            cursor = connection.cursor()
            cursor.execute("SELECT token, owner FROM snib_fence")
            assert len(cursor.fetchall()) == 1
        assert accepts(transaction, "wrong", 1, "a")


def test_unknown_connections_and_dialects() -> None:
    class Dialect:
        name = "oracle"

    class Other(sqlalchemy.Connection):
        def __init__(self) -> None:
            self.dialect = Dialect()  # type: ignore[assignment]

    with pytest.raises(fencing.NotSupported, match="for oracle"):
        fencing.sql_check(Other(), "x", 1, "a")
    with pytest.raises(TypeError, match="AsyncConnection is not a connection of"):
        fencing.sql_check(psycopg.AsyncConnection.__new__(psycopg.AsyncConnection), "x", 1, "a")
    scoped = sqlalchemy.ext.asyncio.async_scoped_session
    for call in [fencing.sql_create, lambda session: fencing.sql_check(session, "x", 1, "a")]:
        with pytest.raises(TypeError, match="async_scoped_session is not a connection of"):
            call(scoped.__new__(scoped))

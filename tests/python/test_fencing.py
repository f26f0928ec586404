"""The checks for the protected resource: newer tokens pass, stale ones do not."""

from __future__ import annotations

import contextlib
import itertools
import os
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy
import sqlalchemy.orm

import snib
from snib import fencing
from support import PATIENCE, Server
from test_interrupts import Interrupt, Interrupted

Check = Callable[[int, str], None]


def in_process(server: Server, folder: Path) -> Iterator[Check]:
    yield fencing.Fence().check


def in_guard(server: Server, folder: Path) -> Iterator[Check]:
    fence = fencing.Fence()

    def check(token: int, owner: str) -> None:
        with fence.guard(token, owner):
            pass

    yield check


def in_sqlite(server: Server, folder: Path) -> Iterator[Check]:
    database = sqlite3.connect(folder / "orders")
    fencing.sql_create(database)

    def check(token: int, owner: str) -> None:
        with database:
            fencing.sql_check(database, "orders", token, owner)

    yield check
    database.close()


def in_redis(server: Server, folder: Path) -> Iterator[Check]:
    yield lambda token, owner: fencing.redis_check(server.admin, "fence", token, owner)
    server.admin.delete("fence")


def in_redis_set(server: Server, folder: Path) -> Iterator[Check]:
    yield lambda token, owner: fencing.redis_set(server.admin, "key", "value", token, owner)
    server.admin.delete("key", "key:fence")


@pytest.fixture(params=[in_process, in_guard, in_sqlite, in_redis, in_redis_set])
def check(request: pytest.FixtureRequest, server: Server, tmp_path: Path) -> Iterator[Check]:
    yield from request.param(server, tmp_path)


def in_thread(call: Callable[[], object]) -> None:
    """It must not wait for another one."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_tokens_only_rise(check: Check) -> None:
    check(1, "a")
    check(1, "a")
    check(2, "b")
    for token, owner in [(1, "a"), (1, "b"), (2, "a"), (2, "")]:
        with pytest.raises(fencing.StaleToken, match=f"token {token} is stale"):
            check(token, owner)
    check(2, "b")
    check(9, "a")
    check(10, "b")
    with pytest.raises(snib.Lost):
        check(9, "a")


def test_great_tokens_are_exact(check: Check) -> None:
    """Neighbours above 2^53, which a float could not tell apart."""
    for token in [2**53, 2**53 + 1, 2**62, 2**63 - 1]:
        check(token, "a")
        check(token, "a")
        with pytest.raises(fencing.StaleToken):
            check(token, "b")
        with pytest.raises(fencing.StaleToken):
            check(token - 1, "b")


def test_bad_arguments_change_nothing(check: Check) -> None:
    check(5, "a")
    for token in [0, -1, 2**63, 10**400]:
        with pytest.raises(snib.InvalidArgument):
            check(token, "b")
    for token, owner in [(True, "b"), ("7", "b"), (7.0, "b"), (None, "b"), (7, None), (7, b"b")]:
        with pytest.raises(TypeError):
            check(token, owner)  # type: ignore[arg-type]
    check(5, "a")


def test_names_of_another_type(server: Server) -> None:
    """They could be other names, with tokens of their own: a stale one would pass."""
    database = sqlite3.connect(":memory:")
    fencing.sql_create(database)
    for name in [None, b"orders", 7, Path("orders")]:
        with pytest.raises(TypeError, match="name must be a str"):
            fencing.sql_check(database, name, 5, "a")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="fence must be a str"):
            fencing.redis_check(server.admin, name, 5, "a")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="key must be a str"):
            fencing.redis_set(server.admin, name, "value", 5, "a")  # type: ignore[arg-type]
        if name is not None:
            with pytest.raises(TypeError, match="fence must be a str"):
                fencing.redis_set(server.admin, "key", "value", 5, "a", fence=name)  # type: ignore[arg-type]
    assert database.execute("SELECT count(*) FROM snib_fence").fetchone() == (0,)
    database.close()


def test_a_fence_can_be_restored() -> None:
    fence = fencing.Fence(7, "a")
    assert (fence.token, fence.owner) == (7, "a")
    with pytest.raises(fencing.StaleToken):
        fence.check(6, "b")
    with pytest.raises(snib.InvalidArgument):
        fencing.Fence(-1, "a")


def test_guard_keeps_others_out() -> None:
    fence = fencing.Fence()
    written: list[int] = []
    passed = threading.Event()

    def newer() -> None:
        passed.set()
        with fence.guard(2, "b"):
            written.append(2)

    thread = threading.Thread(target=newer)
    with fence.guard(1, "a"):
        thread.start()
        assert passed.wait(PATIENCE)
        assert fence.token == 1
        written.append(1)
    thread.join()
    assert written == [1, 2]
    with pytest.raises(fencing.StaleToken), fence.guard(1, "a"):
        pytest.fail("ran with a stale token")
    with pytest.raises(ZeroDivisionError), fence.guard(3, "c"):
        raise ZeroDivisionError
    fence.check(3, "c")


def test_guard_does_not_wait_for_its_own_thread() -> None:
    fence = fencing.Fence()
    with fence.guard(2, "b"):
        with pytest.raises(snib.InvalidArgument, match="would wait for itself"):
            fence.check(2, "b")
        with pytest.raises(snib.InvalidArgument, match="asyncio.Lock"), fence.guard(3, "c"):
            pass
    assert (fence.token, fence.owner) == (2, "b")
    with fence.guard(3, "c"):
        pass
    fence.check(4, "d")


def test_guard_refuses_mistakes_at_the_call() -> None:
    fence = fencing.Fence()
    for token, owner, error in [(0, "a", snib.InvalidArgument), ("7", "b", TypeError), (7, None, TypeError)]:
        with pytest.raises(error):
            fence.guard(token, owner)  # type: ignore[arg-type]
    assert fence.token == 0


def test_guard_may_end_in_another_thread() -> None:
    """As a framework ends what a function that yields has begun."""
    fence = fencing.Fence()
    guard = fence.guard(1, "a")
    in_thread(guard.__enter__)
    guard.__exit__(None, None, None)
    with guard:  # once more
        pass
    in_thread(lambda: fence.check(2, "b"))
    with pytest.raises(fencing.StaleToken), guard:
        pytest.fail("stale")
    in_thread(lambda: fence.check(3, "c"))


def test_an_interrupt_in_guard_lets_other_threads_in() -> None:
    """Also while somebody keeps its exception, whatever the step of the block's beginning or end."""

    class AlsoInTheLibrary(Interrupted):
        files = (os.path.dirname(snib.__file__), contextlib.__file__)

    fence = fencing.Fence()
    kept: list[Interrupt] = []

    def write() -> None:
        with fence.guard(1, "a"):
            pass

    for n in itertools.count():
        with AlsoInTheLibrary(sys.maxsize, True) as steps:
            write()  # in some Pythons a function has steps only when it is traced again
            steps.left = n
            try:
                write()
            except Interrupt as error:
                kept.append(error)
        in_thread(lambda: fence.check(1, "a"))
        write()
        if not steps.fired:
            break
    assert len(kept) == n > 20


def test_sql_check_and_change_are_one(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "orders")
    fencing.sql_create(database)
    database.execute("CREATE TABLE stock (item TEXT, number INTEGER)")

    def write(number: int, token: int, owner: str) -> None:
        with database:
            database.execute("INSERT INTO stock VALUES ('book', ?)", (number,))
            fencing.sql_check(database, "stock", token, owner)

    write(1, 2, "b")
    with pytest.raises(fencing.StaleToken):
        write(2, 1, "a")
    fencing.sql_check(database, "other", 1, "a")
    assert database.execute("SELECT number FROM stock").fetchall() == [(1,)]
    database.close()


@pytest.mark.parametrize(
    "options",
    [
        {"isolation_level": None},
        pytest.param(
            {"autocommit": True}, marks=pytest.mark.skipif(sys.version_info < (3, 12), reason="sqlite3 of Python 3.12")
        ),
    ],
)
def test_sql_wants_a_transaction(tmp_path: Path, options: dict[str, object]) -> None:
    """Without one the check is over before the change, and a newer hold may come between."""
    database = sqlite3.connect(tmp_path / "orders", **options)  # type: ignore[call-overload]
    fencing.sql_create(database)
    for token in (2, 1):
        with pytest.raises(snib.InvalidArgument, match="in no transaction"):
            fencing.sql_check(database, "stock", token, "a")
    database.execute("BEGIN")
    fencing.sql_check(database, "stock", 3, "a")
    database.execute("COMMIT")
    database.close()


def test_sql_wants_a_connection_that_it_knows() -> None:
    for other in [None, object(), "sqlite3", sqlite3.connect]:
        with pytest.raises(TypeError, match="is not a connection of sqlite3"):
            fencing.sql_check(other, "stock", 1, "a")


def test_sql_wants_the_transaction_of_sqlalchemy() -> None:
    engine = sqlalchemy.create_engine("sqlite://")
    sessions = sqlalchemy.orm.sessionmaker(engine)
    raw = engine.raw_connection()
    for other in engine, raw, sessions:
        with pytest.raises(TypeError, match=f"must be a Connection or a Session of .*, not a .*{type(other).__name__}$"):
            fencing.sql_create(other)
        with pytest.raises(TypeError, match="must be a Connection or a Session of SQLAlchemy"):
            fencing.sql_check(other, "stock", 1, "a")
    raw.close()
    with engine.begin() as connection:
        fencing.sql_create(connection)
    for token, right in enumerate((engine.connect(), sessions(), sqlalchemy.orm.scoped_session(sessions)), 1):
        fencing.sql_check(right, "stock", token, "a")
        right.commit()
        with pytest.raises(fencing.StaleToken):
            fencing.sql_check(right, "stock", token, "b")
        right.close()
    engine.dispose()


def test_sql_wants_a_driver_that_says_what_was_changed() -> None:
    """A result that is not there yet, as in a pipeline of psycopg, does not mean that the token is stale."""

    class Later(sqlite3.Connection):
        class Cursor:
            rowcount = -1

        def execute(self, *statement: object) -> Cursor:  # type: ignore[override]
            return self.Cursor()

    database = sqlite3.connect(":memory:", factory=Later)
    with pytest.raises(snib.NotSupported, match="outside of a pipeline"):
        fencing.sql_check(database, "stock", 1, "a")
    database.close()


def test_redis_wants_a_client_that_waits(server: Server) -> None:
    """What is not an answer is not a stale token."""

    class Awaitable:
        async def eval(self, script: str, numkeys: int, /, *keys_and_args: object) -> int:
            return 1

    for redis in (Awaitable(), server.admin.pipeline()):
        with pytest.raises(TypeError, match="eval.. must wait for the answer"):
            fencing.redis_check(redis, "fence", 1, "a")
        with pytest.raises(TypeError, match="eval.. must wait for the answer"):
            fencing.redis_set(redis, "key", "value", 1, "a")


def test_redis_set_leaves_the_value_of_the_newer(server: Server) -> None:
    fencing.redis_set(server.admin, "key", "new", 2, "b", fence="noted")
    with pytest.raises(fencing.StaleToken):
        fencing.redis_set(server.admin, "key", "old", 1, "a", fence="noted")
    assert server.admin.get("key") == "new"
    assert server.admin.hgetall("noted") == {"token": "2", "owner": "b"}
    server.admin.delete("key", "noted")


def test_a_lock_and_its_fence(server: Server, client: snib.Client) -> None:
    fence = fencing.Fence()
    lock = client.fenced_lock("fenced")
    with lock as old:
        fence.check(old.token, old.owner)
    with lock as new:
        fence.check(new.token, new.owner)
        with pytest.raises(fencing.StaleToken):
            fence.check(1, "an older hold")
    server.admin.delete(*server.admin.keys("*fenced*"))
    with client.lock("unfenced") as hold, pytest.raises(snib.InvalidArgument):
        fence.check(hold.token, hold.owner)

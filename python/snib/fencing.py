"""Checks of fencing tokens, for the resource that a lock protects.

A lock cannot stop a holder that was suspended, lost its hold and writes anyway.  The resource can,
if each request to it carries the hold's token: the tokens of a lock increase from hold to hold, so
the resource refuses a token that is smaller than one it has seen.

    with client.fenced_lock("orders") as hold:
        send(order, token=hold.token, owner=hold.owner)

and where the order arrives, one of

    fence = Fence()                                   # one process is the resource
    with fence.guard(token, owner):
        write(order)

    sql_check(database, "orders", token, owner)       # first in the transaction that writes

    redis_set(redis, "order:7", text, token, owner)   # the value is in a Redis

All raise StaleToken for an outdated token.  Equal tokens pass only for the same owner, so one hold
may write many times.  Tokens are compared as integers below 2**63.

A new hold shows its token before it reads what its writes depend on, too: until then the resource
still accepts the hold before it, whose late write would change what has been read.
"""

from __future__ import annotations

import inspect
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from . import _core
from ._codes import InvalidArgument, Lost, NotSupported
from ._mutex import Mutex
from ._stays import stays
from ._statements import (
    REDIS_ACCEPT,
    REDIS_FUNCTION,
    SQL_ACCEPT,
    SQL_NOTE_MYSQL,
    SQL_TABLE,
    SQL_TABLE_MYSQL,
    SQL_VERIFY_MYSQL,
)

_TOKEN_MAX = 2**63 - 1


class StaleToken(Lost):
    """A newer token has been seen: the hold behind this one was lost."""


def _text(value: str, what: str) -> None:
    """Of another type it may be another name: bytes another row or hash than str, and None in SQLite a new row each time."""
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a str, not {type(value).__name__}")


def _checked(token: int, owner: str) -> None:
    if isinstance(token, bool) or not isinstance(token, int):
        raise TypeError(f"token must be an int, not {type(token).__name__}")
    _text(owner, "owner")
    if not 0 < token <= _TOKEN_MAX:
        raise InvalidArgument("token must be 1 to 2**63-1; take it from the hold of a fenced lock")


def _stale(token: int, what: str) -> StaleToken:
    return StaleToken(f"token {token} is stale: {what} has been used with a newer one")


# ---- In a process --------------------------------------------------------------------------------


_Inside = tuple[int, Iterator[None]]  # the thread, and what releases the mutex
_NOBODY: _Inside = 0, iter(())


class Fence:
    """Guards one resource in this process; thread-safe.

    token, owner  the last ones seen, if they were saved before a restart
    """

    __slots__ = ("_mutex", "_token", "_owner", "_inside")

    def __init__(self, token: int = 0, owner: str = "") -> None:
        if token != 0:
            _checked(token, owner)
        self._mutex = Mutex(threading.Lock())
        self._token = token
        self._owner = owner
        self._inside = _NOBODY  # the block of guard()

    __reduce_ex__ = stays  # a copy would not see what the other one has seen

    @property
    def token(self) -> int:
        """The greatest token seen; 0 if none."""
        return self._token

    @property
    def owner(self) -> str:
        """The owner that used that token."""
        return self._owner

    def _begin(self) -> None:
        if self._inside[0] == threading.get_ident():
            raise InvalidArgument(
                "this thread is inside guard() of this fence and would wait for itself; "
                "tasks of asyncio need an asyncio.Lock around guard()"
            )

    def _advance(self, token: int, owner: str) -> None:
        if token < self._token or (token == self._token and owner != self._owner):
            raise _stale(token, "the resource")
        self._token, self._owner = token, owner

    def check(self, token: int, owner: str) -> None:
        """Record a token, or raise StaleToken; a newer hold may still write first, see guard()."""
        with self.guard(token, owner):
            pass

    def guard(self, token: int, owner: str) -> AbstractContextManager[None]:
        """Like check(), and keep all other tokens out while the block writes.

        Other threads wait for the end of the block.  The thread itself cannot wait for it: there,
        guard() and check() raise InvalidArgument.  Tasks of asyncio that await inside the block
        therefore need an asyncio.Lock around it.
        """
        _checked(token, owner)
        return _Guard(self, token, owner)


class _Guard(_core.Scope):
    """What `with` enters and leaves, in the steps that bindings/python_scope.c calls."""

    __slots__ = ("_fence", "_token", "_owner")

    def __init__(self, fence: Fence, token: int, owner: str) -> None:
        self._fence = fence
        self._token = token
        self._owner = owner

    def _enter(self, slot: list[Any]) -> None:
        fence = self._fence
        fence._begin()
        fence._mutex._enter(slot)
        fence._advance(self._token, self._owner)
        fence._inside = threading.get_ident(), slot[0]

    def _leave(self, slot: list[Any], failed: bool) -> None:
        inside = self._fence._inside
        if not slot:
            slot.append(inside[1])
        if inside[1] is slot[0]:  # else it is the block of another thread already
            self._fence._inside = _NOBODY
        next(slot[0], None)


# ---- In an SQL database --------------------------------------------------------------------------

Execute = Callable[[str, Mapping[str, Any]], Any]

# Libraries by the first part of their module's name, with the dialect if there is only one.
_DIALECTS = {
    "sqlite3": "sqlite",
    "psycopg": "postgresql",
    "psycopg2": "postgresql",
    "pymysql": "mysql",
    "MySQLdb": "mysql",
    "mysql": "mysql",
    "mariadb": "mysql",
    "sqlalchemy": "",
    "django": "",
}


def _library(connection: Any) -> str:
    kinds = type(connection).__mro__
    if not any("async" in kind.__name__.lower() for kind in kinds):
        for kind in kinds:
            library = kind.__module__.partition(".")[0]
            if library in _DIALECTS:
                return library
    raise TypeError(
        f"a {type(connection).__module__}.{type(connection).__name__} is not a connection of sqlite3, psycopg, "
        "PyMySQL, mysqlclient, SQLAlchemy or Django; execute snib.fencing.SQL_ACCEPT yourself"
    )


def _pyformat(statement: str) -> str:
    """Parameters in the form that most drivers expect: %(name)s."""
    return re.sub(r":(name|token|owner)\b", r"%(\1)s", statement)


def _of(connection: Any) -> tuple[str, Execute]:
    """The dialect, and a function that runs a statement; its result has rowcount and fetchone()."""
    library = _library(connection)
    dialect = _DIALECTS[library]
    if library == "sqlalchemy":
        from sqlalchemy import text  # type: ignore[import-not-found, unused-ignore]

        if not hasattr(connection, "begin_nested"):
            raise TypeError(
                "connection must be a Connection or a Session of SQLAlchemy, which has the transaction, "
                f"not a {type(connection).__module__}.{type(connection).__name__}"
            )
        bind = connection.get_bind() if hasattr(connection, "get_bind") else connection
        return bind.dialect.name, lambda statement, values: connection.execute(text(statement), values)
    if library == "sqlite3":
        return dialect, connection.execute

    def execute(statement: str, values: Mapping[str, Any]) -> Any:
        cursor = connection.cursor()
        cursor.execute(_pyformat(statement), values)
        return cursor

    return dialect or connection.vendor, execute


def _is_over(connection: Any) -> bool:
    """Whether the last statement was a transaction of its own, as far as the library says."""
    library = _library(connection)
    if library == "django":
        return not connection.in_atomic_block and bool(connection.get_autocommit())
    if library == "sqlalchemy":
        pooled = (connection.connection() if hasattr(connection, "get_bind") else connection).connection
        connection = getattr(pooled, "dbapi_connection", None)
        library = type(connection).__module__.partition(".")[0]
    if library == "sqlite3":
        return not connection.in_transaction
    if library in ("psycopg", "psycopg2"):
        return bool(connection.info.transaction_status == 0)  # idle
    if library == "pymysql":
        return bool(connection.server_status & 3 == 2)  # it commits by itself, and is in no transaction
    return False


def sql_create(connection: Any) -> None:
    """Create the table snib_fence, unless it exists.  connection: as for sql_check()."""
    dialect, execute = _of(connection)
    execute(SQL_TABLE_MYSQL if dialect in ("mysql", "mariadb") else SQL_TABLE, {})


def sql_check(connection: Any, name: str, token: int, owner: str) -> None:
    """Record a token in the table snib_fence, or raise StaleToken; then roll the transaction back.

    Call it first in the transaction that changes what `name` stands for: check and change then happen
    together or not at all, and the row stays locked until the transaction ends.  Outside of a
    transaction it would protect nothing: then it raises snib.InvalidArgument, if the library says so
    (not mysqlclient and mysql.connector).

    connection  to SQLite, PostgreSQL or MariaDB, by sqlite3, psycopg (3 or 2; not in a pipeline),
                PyMySQL, mysqlclient or mysql.connector; a Connection or Session of SQLAlchemy; Django's
                connection.  MySQL gets the statements of MariaDB and should do; it is not tested, nor
                are psycopg2, mysqlclient and mysql.connector.  Table and statements are the same as
                in the C and Go packages.
    """
    _checked(token, owner)
    _text(name, "name")
    values = {"name": name, "token": token, "owner": owner}
    dialect, execute = _of(connection)
    if dialect in ("sqlite", "postgresql"):
        changed = execute(SQL_ACCEPT, values).rowcount
        if changed < 0:  # it is not known yet, which says nothing about the token
            raise NotSupported(
                "the driver does not say whether the token was accepted; call it outside of a pipeline"
            )
        accepted = changed == 1
    elif dialect in ("mysql", "mariadb"):
        execute(SQL_NOTE_MYSQL, values)
        accepted = execute(SQL_VERIFY_MYSQL, values).fetchone() is not None
    else:
        raise NotSupported(f"fencing tokens are not supported for {dialect}")
    if _is_over(connection):
        raise InvalidArgument(
            "the connection is in no transaction, so the check was over before the change: begin one first, with "
            "Django transaction.atomic()"
        )
    if not accepted:
        raise _stale(token, repr(name))


# ---- In a Redis ----------------------------------------------------------------------------------


class Evaluates(Protocol):
    """Any Redis client whose eval() waits for the answer, such as redis.Redis."""

    def eval(self, script: str, numkeys: int, /, *keys_and_args: Any) -> Any: ...


def _accepted(answer: Any) -> bool:
    if isinstance(answer, int):
        return answer == 1
    if inspect.iscoroutine(answer):
        answer.close()  # nothing was sent
    raise TypeError(
        f"eval() must wait for the answer, but gave a {type(answer).__name__}; with an asyncio "
        "client or a pipeline call snib.fencing.REDIS_ACCEPT yourself"
    )


def redis_check(redis: Evaluates, fence: str, token: int, owner: str) -> None:
    """Record a token in the hash `fence`, or raise StaleToken.

    The hash has no TTL: if the server evicts it, or loses it at a restart or a failover, stale tokens
    pass.  So that Redis needs the policy noeviction, and data that survive.

    A newer holder may get ahead of later, separate commands; see redis_set() and REDIS_FUNCTION.
    With a client whose eval() is awaitable, call the script directly: `await
    redis.eval(REDIS_ACCEPT, 1, fence, token, owner)` returns 1, or 0 for a stale token.
    """
    _checked(token, owner)
    _text(fence, "fence")
    if not _accepted(redis.eval(REDIS_ACCEPT, 1, fence, str(token), owner)):
        raise _stale(token, repr(fence))


def redis_set(
    redis: Evaluates,
    key: str,
    value: str | bytes,
    token: int,
    owner: str,
    *,
    fence: str | None = None,
) -> None:
    """Check the token and set a key in one step, or raise StaleToken.

    What the Redis needs is as for redis_check().

    fence  the hash that records tokens; None: `key` with the suffix ":fence".  In a cluster both
           must be in one slot, so the key then needs a hash tag, as in "{order:7}".
    """
    _checked(token, owner)
    _text(key, "key")
    noted = f"{key}:fence" if fence is None else fence
    _text(noted, "fence")
    if not _accepted(redis.eval(REDIS_ACCEPT, 2, noted, key, str(token), owner, value)):
        raise _stale(token, repr(key))


__all__ = [
    "REDIS_ACCEPT",
    "REDIS_FUNCTION",
    "SQL_ACCEPT",
    "SQL_NOTE_MYSQL",
    "SQL_TABLE",
    "SQL_TABLE_MYSQL",
    "SQL_VERIFY_MYSQL",
    "Evaluates",
    "Fence",
    "StaleToken",
    "redis_check",
    "redis_set",
    "sql_check",
    "sql_create",
]

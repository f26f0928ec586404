"""Checkers for fencing tokens, for the side that a lock protects.

A lock cannot stop a holder that was suspended, lost its hold and then writes all the same.  The
resource can, if each request to it carries the hold's token: tokens of a lock rise from hold to
hold, so the resource refuses whatever is older than what it has seen.

    with client.fenced_lock("orders") as hold:
        send(order, token=hold.token, owner=hold.owner)

and where the order arrives, one of

    fence = Fence()                                   # one process is the resource
    with fence.guard(token, owner):
        write(order)

    sql_check(database.execute, "orders", token, owner)  # first in the transaction that writes

    redis_set(redis, "order:7", text, token, owner)   # the value is in a Redis

All raise StaleToken for a token that was overtaken.  Equal tokens pass for the same owner only, so
one hold may write many times.  A token is compared as a whole number of any size below 2**63.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from ._codes import InvalidArgument, Lost

_TOKEN_MAX = 2**63 - 1


class StaleToken(Lost):
    """A newer token has been seen: the hold behind this one was lost."""


def _checked(token: int, owner: str) -> None:
    if isinstance(token, bool) or not isinstance(token, int):
        raise TypeError(f"token must be an int, not {type(token).__name__}")
    if not isinstance(owner, str):
        raise TypeError(f"owner must be a str, not {type(owner).__name__}")
    if not 0 < token <= _TOKEN_MAX:
        raise InvalidArgument("token must be 1 to 2**63-1; take it from the hold of a fenced lock")


def _stale(token: int, what: str) -> StaleToken:
    return StaleToken(f"token {token} is stale: {what} has been used with a newer one")


# ---- In a process --------------------------------------------------------------------------------


class Fence:
    """Guards one resource in this process; thread-safe.

    token, owner  what was seen last, if it was written down before a restart
    """

    __slots__ = ("_mutex", "_token", "_owner")

    def __init__(self, token: int = 0, owner: str = "") -> None:
        if token != 0:
            _checked(token, owner)
        self._mutex = threading.Lock()
        self._token = token
        self._owner = owner

    @property
    def token(self) -> int:
        """The greatest token seen; 0 none."""
        return self._token

    @property
    def owner(self) -> str:
        """Whose it was."""
        return self._owner

    def _advance(self, token: int, owner: str) -> None:
        if token < self._token or (token == self._token and owner != self._owner):
            raise _stale(token, "the resource")
        self._token, self._owner = token, owner

    def check(self, token: int, owner: str) -> None:
        """Note a token, or raise StaleToken; what follows may be overtaken, see guard()."""
        _checked(token, owner)
        with self._mutex:
            self._advance(token, owner)

    @contextlib.contextmanager
    def guard(self, token: int, owner: str) -> Iterator[None]:
        """As check(), and keep all others out while the block writes."""
        _checked(token, owner)
        with self._mutex:
            self._advance(token, owner)
            yield


# ---- In an SQL database --------------------------------------------------------------------------

SQL_TABLE = """
CREATE TABLE IF NOT EXISTS snib_fence (
    name VARCHAR(512) PRIMARY KEY,
    token BIGINT NOT NULL,
    owner VARCHAR(128) NOT NULL
)"""

# For SQLite, PostgreSQL and what else knows ON CONFLICT.  One row is changed, or none if the token
# is stale; the row stays locked until the transaction ends, so nobody overtakes it.
SQL_CHECK = """
INSERT INTO snib_fence (name, token, owner) VALUES (:name, :token, :owner)
ON CONFLICT (name) DO UPDATE SET token = excluded.token, owner = excluded.owner
WHERE snib_fence.token < excluded.token
   OR (snib_fence.token = excluded.token AND snib_fence.owner = excluded.owner)"""

# The same for drivers that write parameters as %(name)s, such as psycopg.
SQL_CHECK_PYFORMAT = (
    SQL_CHECK.replace(":name", "%(name)s")
    .replace(":token", "%(token)s")
    .replace(":owner", "%(owner)s")
)


class Cursor(Protocol):
    """What execute() of sqlite3 and of psycopg gives back."""

    @property
    def rowcount(self) -> int: ...


def sql_check(
    execute: Callable[[str, dict[str, Any]], Cursor],
    name: str,
    token: int,
    owner: str,
    *,
    statement: str = SQL_CHECK,
) -> None:
    """Note a token in table snib_fence, or raise StaleToken; then roll the transaction back.

    Call it first in the transaction that changes what `name` stands for: then check and change
    happen together or not at all.

    execute    of a connection of sqlite3 or psycopg 3
    statement  SQL_CHECK, or SQL_CHECK_PYFORMAT for psycopg
    """
    _checked(token, owner)
    if execute(statement, {"name": name, "token": token, "owner": owner}).rowcount != 1:
        raise _stale(token, repr(name))


# ---- In a Redis ----------------------------------------------------------------------------------

# A Lua function for scripts of your own.  Lua's numbers are exact up to 2^53 only, therefore tokens
# are compared as decimal texts without leading zeros: the longer is the greater.
REDIS_FUNCTION = """
local function fence_passes(fence, token, owner)
    local seen = redis.call('HMGET', fence, 'token', 'owner')
    local last = seen[1] or '0'
    if #token < #last or (#token == #last and token < last) then
        return false
    end
    if token == last and owner ~= seen[2] then
        return false
    end
    redis.call('HSET', fence, 'token', token, 'owner', owner)
    return true
end
"""

# KEYS: the fence.  ARGV: token, owner.  1, or 0 if the token is stale.
REDIS_CHECK = REDIS_FUNCTION + ("return fence_passes(KEYS[1], ARGV[1], ARGV[2]) and 1 or 0\n")

# KEYS: the fence, the key.  ARGV: token, owner, value.  1, or 0 if the token is stale.
REDIS_SET = (
    REDIS_FUNCTION
    + """
if not fence_passes(KEYS[1], ARGV[1], ARGV[2]) then
    return 0
end
redis.call('SET', KEYS[2], ARGV[3])
return 1
"""
)


class Evaluates(Protocol):
    """Any Redis client whose eval() waits for the answer, such as redis.Redis."""

    def eval(self, script: str, numkeys: int, /, *keys_and_args: Any) -> Any: ...


def redis_check(redis: Evaluates, fence: str, token: int, owner: str) -> None:
    """Note a token in the hash `fence`, or raise StaleToken.

    What is done in other commands afterwards may be overtaken; see redis_set() and REDIS_FUNCTION.
    A client with an awaitable eval() takes the script itself: `await redis.eval(REDIS_CHECK, 1,
    fence, token, owner)` gives 1, or 0 for a stale token.
    """
    _checked(token, owner)
    if redis.eval(REDIS_CHECK, 1, fence, str(token), owner) != 1:
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
    """Set a key in one step with the check of the token, or raise StaleToken.

    fence  the hash that notes tokens; None: `key` with the suffix ":fence".  In a cluster both must
           be in one slot, so the key then needs a hash tag, as in "{order:7}".
    """
    _checked(token, owner)
    noted = f"{key}:fence" if fence is None else fence
    if redis.eval(REDIS_SET, 2, noted, key, str(token), owner, value) != 1:
        raise _stale(token, repr(key))


__all__ = [
    "REDIS_CHECK",
    "REDIS_FUNCTION",
    "REDIS_SET",
    "SQL_CHECK",
    "SQL_CHECK_PYFORMAT",
    "SQL_TABLE",
    "Cursor",
    "Evaluates",
    "Fence",
    "StaleToken",
    "redis_check",
    "redis_set",
    "sql_check",
]

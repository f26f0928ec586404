"""Golden traces of the scripts of every kind of lock, on a bare server.

Each step is one EVAL of a file of core/lua with the keys and arguments that core/locks sends,
followed by a check of the whole state: reply, keys, fields, times, messages.  Where a trace differs
from Redisson's own scripts, a comment says why.

    pytest tests/live/traces
"""

from __future__ import annotations

import itertools
import os
import re
import sys
from pathlib import Path
from typing import Any

import redis

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "python"))
from support import Server, eventually  # noqa: E402

A, B, C, D = (f"8f1c0d2e-0000-8000-8000-00000000000{i}:{i}" for i in range(1, 5))  # Snib's: version 8
JAVA = "8f1c0d2e-0000-4000-8000-00000000000f:1"  # Redisson's: version 4
MUTEX = "redisson_lock__channel:{k}"
RW = "redisson_rwlock:{k}"
SC = "redisson_sc:{k}"
LATCH = "redisson_countdownlatch__channel__{k}"
PLAIN = "snib_plain_channel:{k}"
TOKEN = "redisson_lock_token:{k}"
MARK = "snib_writer_waits:{k}"
TAKEN = "{k}:timeout"
TOLD = 2  # the reply of a release: 1, plus 1 for the test, which receives the message
GET, INIT, ADD, SET, TOTAL, RELEASE, DRAIN, DOWN = range(1, 9)


def own(owner: str, hold: int = 1) -> str:
    """The key of a reader's lease."""
    return f"{{k}}:{owner}:rwlock_timeout:{hold}"


def ident(i: int) -> str:
    """A permit's id; latin-1 makes 16 characters of 16 bytes."""
    return f"\xff\x00\r\n permit{i:05}"


def raw(i: int) -> bytes:
    return ident(i).encode("latin-1")


def text(name: str) -> str:
    """A script, with the shared file that it begins with."""
    folder = Path(os.environ.get("SNIB_TEST_SCRIPTS") or ROOT / "core" / "lua")
    script = (folder / f"{name}.lua").read_text()
    shared = re.match(r"-- with (\w+\.lua)\n", script)
    return (folder / shared[1]).read_text() + script if shared else script


class Scripts:
    """A server, its scripts, and everything that is published."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.before = ""  # Lua ahead of each script
        self.redis: Any = self.connect()
        self.listener: Any = self.redis.pubsub()
        self.listener.psubscribe("*")
        self.listener.get_message(timeout=5)
        # A fair lock is granted only to a waiter that is subscribed: patterns do not count.
        self.ears: Any = self.redis.pubsub()
        self.ears.subscribe(*(f"{MUTEX}:{owner[:36]}" for owner in (A, B, C, D)))
        for _ in range(4):
            self.ears.get_message(timeout=5)
        self.number = itertools.count()

    def connect(self, **options: Any) -> Any:
        return redis.Redis(
            unix_socket_path=str(self.server.path),
            decode_responses=True,
            encoding="latin-1",
            **options,
        )

    def __call__(
        self, name: str, keys: str | list[str] = "k", *args: object, by: Any = None
    ) -> Any:
        keys = [keys] if isinstance(keys, str) else keys
        try:
            values = [arg.encode("latin-1") if isinstance(arg, str) else arg for arg in args]
            return (by or self.redis).eval(self.before + text(name), len(keys), *keys, *values)
        except redis.ResponseError as error:
            return error

    def heard(self) -> list[tuple[str, str]]:
        """The messages since the last call."""
        end = f"end {next(self.number)}"
        self.redis.publish("end", end)
        messages = []
        while (message := self.listener.get_message(timeout=5)) is not None:
            if message["data"] == end:
                return messages
            messages.append((message["channel"], message["data"]))
        raise AssertionError("no message came back")

    def state(self) -> dict[str, Any]:
        """All keys and their contents."""
        read = {
            "hash": self.redis.hgetall,
            "string": self.redis.get,
            "list": lambda key: self.redis.lrange(key, 0, -1),
            "zset": lambda key: dict(self.redis.zrange(key, 0, -1, withscores=True)),
        }
        return {key: read[self.redis.type(key)](key) for key in self.redis.keys()}

    def near(self, key: str, ms: int) -> None:
        """Check that the key's TTL is ms, less the time that the test has taken."""
        left = self.redis.pttl(key)
        assert ms - 3000 < left <= ms, f"{key}: {left} of {ms}"

    def full(self) -> None:
        self.redis.config_set("maxmemory", 1)

    def calls(self) -> dict[str, int]:
        """How often each command ran since the last call, including those inside scripts."""
        stats = self.redis.info("commandstats")
        self.redis.config_resetstat()
        ran = {word.removeprefix("cmdstat_"): one["calls"] for word, one in stats.items()}
        for own in ("config|resetstat", "info", "eval"):
            ran.pop(own, None)
        return ran

    def gone(self, key: str) -> None:
        eventually(lambda: not self.redis.exists(key))


def refused(reply: object, word: str) -> None:
    assert isinstance(reply, redis.ResponseError) and word in str(reply), reply


def near(value: int, ms: int) -> None:
    assert ms - 3000 < value <= ms, value


def read(run: Scripts, owner: str, lease: int = 30000, within: str | None = None) -> Any:
    """within: the write hold that lets it in; otherwise of the same number, as Redisson's are."""
    return run("read_acquire", ["k", own(owner), MARK], owner, lease, within or owner)


def unread(run: Scripts, owner: str) -> Any:
    return run("read_release", ["k", own(owner)], owner, RW)


def write(run: Scripts, owner: str, lease: int = 30000, mark: int = 0) -> Any:
    return run("write_acquire", ["k", MARK], owner, lease, mark)


def unwrite(run: Scripts, owner: str) -> Any:
    return run("write_release", "k", owner, RW)


def crowd(run: Scripts, n: int, lease: int) -> list[str]:
    owners = [f"8f1c0d2e-0000-8000-8000-0000000000ff:{i}" for i in range(n)]
    for owner in owners:
        read(run, owner, lease)
    return owners


def permits(run: Scripts, what: int, n: int = 0) -> Any:
    return run("permits_count", ["k", TAKEN], what, n, SC)


def take(run: Scripts, *ids: int, lease: int = 30000) -> Any:
    return run("permits_acquire", ["k", TAKEN], lease, SC, *map(ident, ids))


def give(run: Scripts, *ids: int) -> Any:
    return run("permits_release", ["k", TAKEN], SC, *map(ident, ids))


def expire(run: Scripts, *ids: int) -> None:
    for i in ids:
        run.redis.zadd(TAKEN, {raw(i): 1000}, xx=True)


# A multi lock with a member of each kind.
KINDS = "msfrw"
NAMES = ["{k}m", "{k}s", "{k}f", "{k}r", "{k}w"]
LEASES = f"{{k}}r:{A}:rwlock_timeout:1"
COUNTER, MARKED = "redisson_lock_token:{k}f", "snib_writer_waits:{k}r"
ACQUIRE_KEYS = [
    *("{k}m", "{k}m", "{k}m", "{k}s", "{k}s", "{k}s", "{k}f", COUNTER, "{k}f"),
    *("{k}r", LEASES, MARKED, "{k}w", "{k}w", "{k}w"),
]
HOLD_KEYS = ["{k}m", "{k}m", "{k}s", "{k}s", "{k}f", "{k}f", "{k}r", LEASES, "{k}w", "{k}w"]
CHANNELS = ["cm", "cs", "cf", "cr", "cw"]
ALL = {
    "{k}m": {A: "1"},
    "{k}s": {A: "1"},
    "{k}f": {A: "1"},
    "{k}r": {"mode": "read", A: "1"},
    "{k}w": {"mode": "write", f"{A}:write": "1"},
    LEASES: "1",
    COUNTER: "1",
}


def multi(run: Scripts, lease: int = 30000) -> Any:
    return run("multi_acquire", ACQUIRE_KEYS, A, lease, KINDS)


def unmulti(run: Scripts) -> Any:
    return run("multi_release", HOLD_KEYS, A, KINDS, *CHANNELS)

"""A slot that is being moved away: its node takes no key that is not there, also in the middle of a script.

A script that has written may be broken off so.  The client repeats it, and what it does must be complete then: the
same keys as if the slot had never moved.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from scripts import (
    ACQUIRE_KEYS,
    ADD,
    CHANNELS,
    COUNTER,
    DOWN,
    HOLD_KEYS,
    INIT,
    KINDS,
    LATCH,
    MARK,
    MARKED,
    MUTEX,
    PLAIN,
    RELEASE,
    RW,
    SC,
    SET,
    TAKEN,
    TOKEN,
    TOTAL,
    A,
    B,
    C,
    Scripts,
    Server,
    eventually,
    expire,
    give,
    ident,
    own,
    permits,
    read,
    take,
    unread,
    unwrite,
    write,
)
from test_fair import BEATS, KEYS, PLACES, QUEUE
from support import free_port

THIS, OTHER = "a" * 40, "b" * 40
RUN, EPOCH = "c" * 40, "{k}epoch"

Step = Callable[[Scripts], Any]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The node of a cluster that has all slots, beside one that does not run."""
    folder = tmp_path_factory.mktemp("node")
    port, bus, away, away_bus = (free_port() for _ in range(4))
    (folder / "nodes.conf").write_text(
        f"{THIS} 127.0.0.1:{port}@{bus} myself,master - 0 0 1 connected 0-16383\n"
        f"{OTHER} 127.0.0.1:{away}@{away_bus} master - 0 0 2 connected\n"
        "vars currentEpoch 2 lastVoteEpoch 0\n"
    )
    server = Server(
        folder,
        *("--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf"),
        *("--port", str(port), "--cluster-port", str(bus), "--bind", "127.0.0.1"),
        *("--cluster-node-timeout", "3600000"),
    )
    try:
        eventually(lambda: server.admin.execute_command("CLUSTER INFO")["cluster_state"] == "ok")
        yield server
    finally:
        server.end()


def slot(run: Scripts, *state: str) -> None:
    number = run.redis.execute_command("CLUSTER KEYSLOT", "k")
    run.redis.execute_command("CLUSTER SETSLOT", number, *state)


def content(run: Scripts) -> dict[str, Any]:
    """What is there, without times."""

    def timeless(key: str, value: Any) -> Any:
        if isinstance(value, str):
            return re.sub(r"(?m)^\d+ (?=\S+ )", "", value)  # a note on a board
        return sorted(value) if isinstance(value, dict) and key in (TAKEN, PLACES, BEATS) else value

    return {key: timeless(key, value) for key, value in run.state().items() if key != EPOCH}


def fair(owner: str, fenced: int = 1, queue: int = 1) -> Step:
    return lambda run: run("fair_acquire", KEYS, owner, 30000, queue, fenced, MUTEX, 0, 0)


def multi(run: Scripts, owner: str = A) -> Any:
    return run("multi_acquire", ACQUIRE_KEYS, owner, 30000, KINDS)


def mutexes(run: Scripts) -> Any:
    return run("mutexes_acquire", ["{k}m", "{k}s"], A, 30000)


def vote(run: Scripts) -> Any:
    return run("quorum_acquire", ["k", EPOCH], A, 30000, RUN, 1)


def voted(run: Scripts) -> None:
    eventually(lambda: vote(run) is None)


def mutex(run: Scripts) -> Any:
    return run("mutex_acquire", "k", A, 30000)


def fenced(run: Scripts) -> Any:
    return run("fenced_acquire", ["k", TOKEN], A, 30000)


def fenced_write(run: Scripts) -> Any:
    return run("write_acquire", ["k", MARK, TOKEN], A, 30000, 0)


def plain(run: Scripts) -> Any:
    return run("plain_acquire", "k", A, 30000)


def waiting(*owners: str) -> Step:
    """The first of these holds the fair lock, the others wait for it."""
    return lambda run: [fair(owner)(run) for owner in owners]


def marked(run: Scripts) -> None:
    run.redis.set(MARK, 1, px=60000)
    run.redis.set(MARKED, 1, px=60000)


def call(name: str, keys: str | list[str], *args: object) -> Step:
    return lambda run: run(name, keys, *args)


def one_permit(run: Scripts) -> None:
    permits(run, INIT, 1)
    take(run, 1)


def two_permits(run: Scripts) -> None:
    permits(run, INIT, 2)
    take(run, 1, 2)


def over(run: Scripts) -> None:
    """A permit whose lease has ended."""
    one_permit(run)
    expire(run, 1)


CASES: dict[str, tuple[list[Step], Step]] = {
    "mutex_acquire": ([mutex], mutex),
    "mutex_transfer": ([mutex], call("mutex_transfer", "k", A, B, 30000)),
    "mutex_renew": ([mutex], call("mutex_renew", "k", 60000, A)),
    "mutex_release": ([mutex], call("mutex_release", "k", A, MUTEX)),
    "mutex_force": ([mutex], call("mutex_force", "k", MUTEX)),
    "spin_release": ([mutex], call("spin_release", "k", A)),
    "spin_force": ([mutex], call("spin_force", "k")),
    "fenced_acquire": ([fenced], fenced),
    "fenced_transfer": ([fenced], call("fenced_transfer", ["k", TOKEN], A, B, 30000, MUTEX)),
    "plain_acquire": ([plain], plain),
    "plain_transfer": ([plain], call("plain_transfer", "k", A, B, 30000)),
    "plain_renew": ([plain], call("plain_renew", "k", 60000, A)),
    "plain_release": ([plain], call("plain_release", "k", A, PLAIN)),
    "plain_force": ([plain], call("plain_force", "k", PLAIN)),
    "quorum_acquire": ([voted], vote),
    "read_acquire": ([lambda run: read(run, A), marked], lambda run: read(run, A)),
    "read_renew": ([lambda run: read(run, A)], call("read_renew", ["k", own(A)], 60000, A)),
    "read_release": ([lambda run: read(run, A)], lambda run: unread(run, A)),
    "read_release, others read": ([lambda run: [read(run, A), read(run, B)]], lambda run: unread(run, A)),
    "read_release, a write goes on": (
        [lambda run: [write(run, A), read(run, A)]],
        lambda run: unread(run, A),
    ),
    "read_force": ([lambda run: read(run, A)], call("read_force", "k", RW)),
    "write_acquire": ([lambda run: write(run, A), marked], lambda run: write(run, A)),
    "write_acquire, fenced": ([fenced_write, marked], fenced_write),
    "write_acquire, nobody reads any more": (
        [lambda run: read(run, B), marked, lambda run: run.redis.delete(own(B))],
        lambda run: write(run, A),
    ),
    "write_transfer": ([lambda run: write(run, A)], call("write_transfer", "k", A, B, 30000, RW)),
    "write_transfer, fenced": ([fenced_write], call("write_transfer", ["k", TOKEN], A, B, 30000, RW)),
    "write_renew": ([lambda run: write(run, A)], call("write_renew", "k", 60000, A)),
    "write_release": ([lambda run: write(run, A)], lambda run: unwrite(run, A)),
    "write_release, a read goes on": (
        [lambda run: [write(run, A), read(run, A)]],
        lambda run: unwrite(run, A),
    ),
    "write_force": ([lambda run: write(run, A)], call("write_force", "k", RW)),
    "fair_acquire": ([waiting(A, B)], fair(A)),
    "fair_acquire, it waits on": ([waiting(A, B)], fair(B)),
    "fair_acquire, the next": (
        [waiting(A, B, C), lambda run: run.redis.hset("k", mapping={B: 1}), lambda run: run.redis.hdel("k", A)],
        fair(B),
    ),
    "fair_renew": ([waiting(A, B)], call("fair_renew", ["k", QUEUE, PLACES], 60000, A)),
    "fair_release": ([waiting(A, B, C)], call("fair_release", KEYS, A, MUTEX)),
    "fair_release, to the last": ([waiting(A, B)], call("fair_release", KEYS, A, MUTEX)),
    "fair_release, a place": ([waiting(A, B, C)], call("fair_release", KEYS, B, MUTEX)),
    "fair_release, the last place": ([waiting(A, B)], call("fair_release", KEYS, B, MUTEX)),
    "multi_acquire": ([multi, marked, lambda run: run.redis.set(COUNTER, 1)], multi),
    "multi_renew": ([multi], call("multi_renew", HOLD_KEYS, 60000, A, KINDS)),
    "multi_release": ([multi], call("multi_release", HOLD_KEYS, A, KINDS, *CHANNELS)),
    "mutexes_acquire": ([mutexes], mutexes),
    "mutexes_release": ([mutexes], call("mutexes_release", ["{k}m", "{k}s"], A, "cm", "cs")),
    "semaphore_acquire": ([call("semaphore_count", "k", INIT, 2, SC)], call("semaphore_acquire", "k", 2)),
    "semaphore_count": ([call("semaphore_count", "k", INIT, 2, SC)], call("semaphore_count", "k", RELEASE, 2, SC)),
    "semaphore_release": ([call("semaphore_count", "k", INIT, 2, SC)], call("semaphore_release", "k", 2, SC)),
    "semaphore_force": ([call("semaphore_count", "k", INIT, 2, SC)], call("semaphore_force", "k")),
    "latch_acquire": ([call("latch_count", "k", INIT, 1, LATCH)], call("latch_acquire", "k")),
    "latch_count": ([call("latch_count", "k", INIT, 1, LATCH)], call("latch_count", "k", DOWN, 0, LATCH)),
    "latch_force": ([call("latch_count", "k", INIT, 1, LATCH)], call("latch_force", "k", LATCH)),
    "permits_acquire": ([one_permit], lambda run: take(run, 1)),
    "permits_acquire, several": ([two_permits], lambda run: take(run, 1, 2)),
    "permits_acquire, one has ended": ([over], lambda run: take(run, 2)),
    "permits_renew": ([one_permit], call("permits_renew", TAKEN, 60000, 1, ident(1))),
    "permits_release": ([one_permit], lambda run: give(run, 1)),
    "permits_count, add": ([over], lambda run: permits(run, ADD, 1)),
    "permits_count, set": ([over], lambda run: permits(run, SET, 3)),
    "permits_count, total": ([over], lambda run: permits(run, TOTAL)),
    "permits_force": ([one_permit], call("permits_force", ["k", TAKEN])),
    "board": ([call("board", "k", 60, 4096, "one note\n")], call("board", "k", 60, 4096, "one note\n")),
}
# These read only; or they are not repeated: the program gets the error, and forces again.
APART = {"describe", "list", "fair_force"}
# What the server must take at once, as the first attempt: nobody repeats it, or a lock would be free meanwhile.
AT_ONCE = {
    name
    for name in CASES
    if not name.startswith(("fair_", "read_release, others", "write_acquire, nobody", "permits_acquire, one has"))
}


def test_every_script_is_here(run: Scripts) -> None:
    from scripts import ROOT

    names = {path.stem for path in (ROOT / "core" / "lua").glob("[a-z]*.lua")}
    infos = {name for name in names if name.endswith("_info")}
    assert names - infos - APART == {name.split(",")[0] for name in CASES}


@pytest.mark.parametrize("name", CASES)
def test_what_is_broken_off_is_completed(run: Scripts, name: str) -> None:
    before, step = CASES[name]
    slot(run, "STABLE")
    for one in before:
        one(run)
    stable = step(run)
    wanted = content(run)
    run.redis.flushall()
    for one in before:
        one(run)
    slot(run, "MIGRATING", OTHER)
    reply = step(run)
    slot(run, "STABLE")
    if isinstance(reply, Exception):
        assert "non local key" in str(reply)
        assert name not in AT_ONCE
        reply = step(run)
        assert not isinstance(reply, Exception)
    else:
        assert type(reply) is type(stable)
    assert content(run) == wanted

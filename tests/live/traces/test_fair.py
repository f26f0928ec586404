"""Fair locks."""

from __future__ import annotations

from typing import Any

from scripts import JAVA, MUTEX, TOKEN, A, B, C, D, Scripts, near

QUEUE, PLACES, BEATS = "redisson_lock_queue:{k}", "redisson_lock_timeout:{k}", "snib_lock_beats:{k}"
KEYS = ["k", QUEUE, PLACES, BEATS, TOKEN]
FIRST = 3000  # a granted waiter's lease until it confirms


def acquire(run: Scripts, owner: str, queue: int = 1, fenced: int = 0) -> Any:
    """The token, or the ms to wait and whether a Redisson client is ahead."""
    reply = run("fair_acquire", KEYS, owner, 30000, queue, fenced, MUTEX, 0)
    return reply[:2] if isinstance(reply, list) else reply


def release(run: Scripts, owner: str) -> Any:
    """How it went, the number of the client's own next holder, its lease, its token."""
    return run("fair_release", KEYS, owner, MUTEX)[:4]


def granted(run: Scripts, owner: str, token: int) -> None:
    """The one message says number, token, first lease and when."""
    ((channel, text),) = run.heard()
    assert channel == f"{MUTEX}:{owner[:36]}"
    assert text.split(":")[:3] == [owner[37:], str(token), str(FIRST)]


def test_first_come_first_served(run: Scripts) -> None:
    assert acquire(run, A) == "0"
    assert acquire(run, A) == "0", "a repeat"
    assert run.state() == {"k": {A: "1"}}
    left, foreign = acquire(run, B)
    near(left, 30000)
    assert foreign == 0
    acquire(run, C)
    acquire(run, B)
    near(acquire(run, D, queue=0)[0], 30000)
    state = run.state()
    assert state[QUEUE] == [B, C], "D was not queued"
    assert set(state[PLACES]) == {B, C}
    assert run.heard() == []
    # Ours is granted by the release itself; Redisson's would have to ask.
    assert release(run, A) == [1, 0, FIRST, "0"]
    granted(run, B, 0)
    assert run.state()["k"] == {B: "1"}
    run.near("k", FIRST)
    assert acquire(run, B) == "0"
    run.near("k", 30000)
    assert release(run, C)[0] == 2, "C gives up its place"
    assert run.state() == {"k": {B: "1"}, BEATS: run.redis.hgetall(BEATS)}
    assert release(run, C)[0] == 0
    assert release(run, B)[:2] == [1, 0]
    assert run.heard() == []
    assert run.state() == {}


def test_the_next_of_the_same_client(run: Scripts) -> None:
    brother = A[:36] + ":77"
    acquire(run, A)
    acquire(run, brother)
    assert release(run, A) == [1, 77, FIRST, "0"]
    assert run.heard() == [], "no message to oneself"
    assert run.redis.hgetall("k") == {brother: "1"}


def test_redisson_waits(run: Scripts) -> None:
    acquire(run, A)
    seconds, _ = run.redis.time()
    run.redis.rpush(QUEUE, JAVA)
    run.redis.zadd(PLACES, {JAVA: seconds * 1000 + 60000})
    acquire(run, B)
    near(int(run.redis.zscore(PLACES, B)) - seconds * 1000, 64000 + 1000)
    # Redisson would count a lock that was granted to it twice.
    assert release(run, A)[0] == 1
    assert run.heard() == [(f"{MUTEX}:{JAVA}", "0")]
    assert not run.redis.exists("k")
    left, foreign = acquire(run, B)
    assert (left, foreign) == (-2, 1)
    assert run.heard() == [(f"{MUTEX}:{JAVA}", "0")], "nudged"
    run.redis.zadd(PLACES, {JAVA: 1000})
    assert acquire(run, B) == "0", "its place has ended"
    assert release(run, B)[0] == 1
    assert run.state() == {}


def test_a_head_without_a_place(run: Scripts) -> None:
    """It would block Redisson for ever."""
    run.redis.rpush(QUEUE, JAVA, C)
    assert acquire(run, A) == "0"
    assert run.state() == {"k": {A: "1"}}


def test_tokens(run: Scripts) -> None:
    assert acquire(run, A, fenced=1) == "1"
    assert acquire(run, A, fenced=1) == "1", "a repeat"
    acquire(run, B, fenced=1)
    assert release(run, A) == [1, 0, FIRST, "0"]
    granted(run, B, 2)
    assert acquire(run, B, fenced=1) == "2"
    assert run("fair_info", ["k", QUEUE, TOKEN])[1:] == [B, 1, 0, "2"]


def test_renew_and_force(run: Scripts) -> None:
    acquire(run, A)
    acquire(run, B)
    assert run("fair_info", ["k", QUEUE, TOKEN])[3] == 1
    keys = ["k", QUEUE, PLACES]
    assert run("fair_renew", keys * 2, 40000, A, B) == [2, 1]
    run.near("k", 40000)
    assert run("fair_force", KEYS, MUTEX) == 1
    granted(run, B, 0)
    assert run("fair_renew", keys, 40000, A) == [1, 1]
    assert release(run, B)[0] == 1
    assert run("fair_force", KEYS, MUTEX) == 0

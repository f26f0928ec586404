"""Fair locks."""

from __future__ import annotations

from typing import Any

import pytest
from scripts import JAVA, MUTEX, TOKEN, A, B, C, D, Scripts, near, refused

QUEUE, PLACES, BEATS = "redisson_lock_queue:{k}", "redisson_lock_timeout:{k}", "snib_lock_beats:{k}"
KEYS = ["k", QUEUE, PLACES, BEATS, TOKEN]
FIRST = 3000  # a granted waiter's lease until it confirms


def acquire(run: Scripts, owner: str, queue: int = 1, fenced: int = 0, first: str | int = 1) -> Any:
    """Returns the token, or the ms to wait and whether a Redisson client is ahead.  first: the lowest number with which
    the client waits, if this is the waiter that asks for all; otherwise 0."""
    reply = run("fair_acquire", KEYS, owner, 30000, queue, fenced, MUTEX, 0, first)
    return reply[:2] if isinstance(reply, list) else reply


def release(run: Scripts, owner: str) -> Any:
    """Returns the outcome, and the number, lease and token of the client's own next holder."""
    return run("fair_release", KEYS, owner, MUTEX)[:4]


def granted(run: Scripts, owner: str, token: int, *warned: str) -> None:
    """Check the only messages: number, token, first lease and time; and to a Redisson waiter right behind."""
    (channel, text), *others = run.heard()
    assert others == [(f"{MUTEX}:{other}", "0") for other in warned]
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
    # The release itself grants the lock to a Snib waiter; Redisson's would have to ask.
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
    # Redisson would count a granted lock twice.
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


def stranger_waits(run: Scripts, ms: float, owner: str = JAVA) -> None:
    """Queue like a Redisson client: with the time at which it gives up."""
    run.redis.rpush(QUEUE, owner)
    run.redis.zadd(PLACES, {owner: now(run) + ms})


def now(run: Scripts) -> float:
    seconds, micros = run.redis.time()
    return float(seconds * 1000 + micros / 1000)


def patience(run: Scripts, owner: str) -> int:
    return int(run.redis.zscore(PLACES, owner) - now(run))


def test_a_beat_pushes_all_behind(run: Scripts) -> None:
    """The first Snib waiter keeps its place by moving it, and all places behind it move along."""
    acquire(run, A)
    stranger_waits(run, 20000)
    acquire(run, B)
    stranger_waits(run, 60000, JAVA + "2")
    acquire(run, C)
    before = run.state()[PLACES]
    run.redis.hincrby(BEATS, "push", -1000)
    acquire(run, C)
    assert run.state()[PLACES] == before, "C is not the first of ours, and B lives"
    acquire(run, B)
    pushed = {owner: score - before[owner] for owner, score in run.state()[PLACES].items()}
    assert pushed.pop(JAVA) == 0, "it is ahead, and what it counts on is not ours to move"
    assert set(pushed) == {B, C, JAVA + "2"} and len(set(pushed.values())) == 1
    assert 1000 <= pushed[B] <= 2500, "what has passed, but not more than a client may be silent"


def now_ms(run: Scripts) -> int:
    seconds, us = run.redis.time()
    return int(seconds * 1000 + us // 1000)


def test_many_beats_at_once(run: Scripts) -> None:
    """All the waiters of a process ask, as after a reconnect: the queue is not looked at and pushed for each of them."""
    acquire(run, A)
    waiting = [f"{B[:36]}:{number}" for number in range(1, 201)]
    for each in waiting:
        acquire(run, each, first=0)
    run.redis.hincrby(BEATS, "push", -1000)
    run.calls()
    for each in waiting:
        acquire(run, each, first=1 if each == waiting[0] else 0)
    calls = run.calls()
    assert calls["zincrby"] == 200, "once for all"
    looks = ("the stale places", "the push", "the clients that have gone")
    assert calls["lrange"] <= len(looks)


def test_a_beat_again_at_once(run: Scripts) -> None:
    """The first waiter asks more often than it has to: what has not passed is not pushed."""
    acquire(run, A)
    waiting = [f"{B[:36]}:{number}" for number in range(1, 201)]
    for each in waiting:
        acquire(run, each, first=0)
    run.redis.hincrby(BEATS, "push", -1000)
    run.calls()
    begin = now_ms(run)
    for _ in range(20):
        acquire(run, waiting[0])
    often = 1 + (now_ms(run) - begin) // 100
    assert 200 <= run.calls()["zincrby"] <= 200 * often, "and again as time passes"


@pytest.mark.parametrize("how", ["a place is kept", "a place is taken"])
def test_clients_that_have_gone_are_forgotten(run: Scripts, how: str) -> None:
    """While somebody always waits, the hash of beats does not end, but it must not grow with each client that ever came:
    neither where waiters ask again, nor where they are granted the lock before."""
    acquire(run, A)
    acquire(run, B)
    acquire(run, C)
    gone = [f"{A[:24]}{number:012}" for number in range(100, 120)]
    for old, one in enumerate(gone):
        run.redis.hset(BEATS, mapping={one: int(now(run)) - (3000 if old else 0), f"polls {one}": 1})
    run.redis.hset(BEATS, mapping={skipped(owner): 1 for owner in (A, C, gone[0] + ":1")})
    run.redis.hset(BEATS, C[:36], int(now(run)) - 3000)
    run.redis.hincrby(BEATS, "push", -1000)
    run.redis.hincrby(BEATS, "forget", -1000)
    came = {D[:36]} if how == "a place is taken" else set()
    acquire(run, D if came else B)
    beats = run.redis.hgetall(BEATS)
    stay = {"push", "forget", B[:36], C[:36], gone[0], f"polls {gone[0]}", skipped(C)}
    assert set(beats) == stay | came, "C has its place"
    assert run.state()[QUEUE] == [B, C, D][: 2 + len(came)]


def test_clients_that_have_gone_are_forgotten_in_time(run: Scripts) -> None:
    """Once a second, however many come; and of very many only some at a time."""
    acquire(run, A)
    acquire(run, B)
    run.redis.hincrby(BEATS, "forget", -1000)
    many = {f"{A[:24]}{number:012}": int(now(run)) - 3000 for number in range(100, 1100)}
    run.redis.hset(BEATS, mapping=many)
    run.calls()
    acquire(run, C)
    calls = run.calls()
    assert (calls["hgetall"], calls["hdel"]) == (1, 500)
    looked = int(run.redis.hget(BEATS, "forget"))
    acquire(run, D)
    calls = run.calls()
    assert "hgetall" not in calls or now_ms(run) - looked >= 1000
    run.redis.hset(BEATS, mapping={"forget": int(now(run)) + 60000, "push": looked - 1000})  # the clock was set back
    acquire(run, B)
    assert not many.keys() & run.redis.hgetall(BEATS).keys()


def test_leaving_takes_off_what_was_added(run: Scripts) -> None:
    """Behind a foreign waiter, a Snib place adds its patience, or what is left of it, to the next place."""
    acquire(run, A)
    stranger_waits(run, 20000)
    acquire(run, B)
    stranger_waits(run, 20000 + 4000 + 6000, JAVA + "2")
    assert release(run, B)[0] == 2
    near(patience(run, JAVA + "2"), 26000)
    assert patience(run, JAVA + "2") > 25000
    acquire(run, B)
    # The foreign waiter gets the lock and subtracts its wait from all places, as Redisson does: B has 1 s left.
    run.redis.lpop(QUEUE)
    run.redis.zrem(PLACES, JAVA)
    run.redis.zadd(PLACES, {JAVA + "2": now(run) - 1000, B: now(run) + 1000.5})
    run.redis.zadd(PLACES, {JAVA + "3": now(run) + 1000 + 6000})
    run.redis.rpush(QUEUE, JAVA + "3")
    assert release(run, B)[0] == 2
    near(patience(run, JAVA + "3"), 6000 + 50)
    assert patience(run, JAVA + "3") > 5500, "not 4 s less"


def test_leaving_a_free_lock_tells_the_next(run: Scripts) -> None:
    """The holder's lease has ended, and the head leaves without trying: nothing else would notify the next."""
    acquire(run, A)
    acquire(run, B)
    stranger_waits(run, 60000)
    run.redis.delete("k")
    assert release(run, B)[0] == 2
    assert run.heard() == [(f"{MUTEX}:{JAVA}", "0")]
    acquire(run, C)
    run.heard()
    run.redis.lrem(QUEUE, 0, JAVA)
    run.redis.zrem(PLACES, JAVA)
    acquire(run, D)
    granted(run, C, 0)


def test_a_queue_ends_by_itself(run: Scripts) -> None:
    """Unlike Redisson's: whatever happens to all its waiters."""
    acquire(run, A)
    for owner in (B, C):
        acquire(run, owner)
        assert all(300000 < run.redis.pttl(key) <= 605000 for key in (QUEUE, PLACES))
        run.near(BEATS, 10000)


@pytest.mark.parametrize("how", ["beats", "is granted the lock", "leaves", "leaves from behind"])
def test_a_queue_with_strangers_does_not(run: Scripts, how: str) -> None:
    """A Redisson waiter whose place has vanished with the queue would be told nothing."""
    acquire(run, A)
    acquire(run, C)
    acquire(run, B)
    stranger_waits(run, 300000)
    if how == "beats":
        acquire(run, C)
    elif how == "is granted the lock":
        assert release(run, A)[0] == 1
    else:
        assert release(run, C if how == "leaves" else B)[0] == 2
    assert JAVA in run.redis.lrange(QUEUE, 0, -1)
    assert [run.redis.pttl(key) for key in (QUEUE, PLACES)] == [-1, -1]
    if how == "beats":  # it has left, and only places that were chained to its are there
        acquire(run, D)
        run.redis.lrem(QUEUE, 0, JAVA)
        run.redis.zrem(PLACES, JAVA)
        acquire(run, C)
        assert all(300000 < run.redis.pttl(key) for key in (QUEUE, PLACES))


@pytest.mark.parametrize("chain", [False, True])
@pytest.mark.parametrize("how", ["leaves", "is granted the lock", "takes it"])
def test_a_stranger_behind_a_head_of_ours(run: Scripts, how: str, chain: bool) -> None:
    """Its place was based on one that its neighbour moved; from now on it depends on the holder's lease, as Redisson's do.
    20 ms are what Redisson adds for tryLock(20, SECONDS)."""
    acquire(run, A)
    if chain:
        stranger_waits(run, 1000, JAVA + "1")
    acquire(run, B)
    stranger_waits(run, 4020 + chain * 1000)
    stranger_waits(run, 4040 + chain * 1000, JAVA + "2")
    acquire(run, C)
    stranger_waits(run, 9000, JAVA + "3")
    if chain:
        run.redis.lrem(QUEUE, 0, JAVA + "1")
        run.redis.zrem(PLACES, JAVA + "1")
    if how == "leaves":
        assert release(run, B)[0] == 2
    elif how == "takes it":
        run.redis.delete("k")
        assert acquire(run, B) == "0"
    else:
        assert release(run, A)[0] == 1
        granted(run, B, 0, JAVA)
        assert 1000 <= patience(run, JAVA) <= 4020, "the first lease"
        assert acquire(run, B) == "0", "it confirms"
    near(patience(run, JAVA), 30000 + 1100)
    near(patience(run, JAVA + "2"), 30000 + 1100)
    assert patience(run, JAVA + "3") <= 9000, "the next of ours moves it"
    lease = run.redis.pttl("k")
    assert run("fair_renew", ["k", QUEUE, PLACES], 60000, A if how == "leaves" else B) == []
    near(patience(run, JAVA), 60000 + 1100)
    assert lease > 20000


def test_a_long_queue_costs_nobody_more(run: Scripts) -> None:
    """Joining, leaving, being granted the lock and confirming it, among hundreds of waiters."""
    acquire(run, A)
    for number in range(300):
        acquire(run, f"{B[:36]}:{number}")
    run.calls()
    acquire(run, C)
    assert release(run, f"{B[:36]}:200")[0] == 2
    assert release(run, A)[0] == 1
    assert acquire(run, f"{B[:36]}:0") == "0"
    cost = run.calls()
    assert sum(cost.values()) <= 75, cost
    assert "lrange" not in cost, "one call, but a look at all"


def test_out_of_memory(run: Scripts) -> None:
    """Nobody new comes in, but who waits keeps the place, and is granted the lock."""
    acquire(run, A)
    stranger_waits(run, 60000)
    for owner in (B, D):
        acquire(run, owner)
    run.redis.hset(BEATS, mapping={B[:36]: 1000, "push": int(now(run)) - 1000})
    before = run.state()
    run.full()
    refused(acquire(run, C), "maxmemory")
    assert run.state() == before
    acquire(run, B)
    assert now(run) - int(run.redis.hget(BEATS, B[:36])) < 3000
    assert run.redis.zscore(PLACES, D) - before[PLACES][D] >= 1000, "pushed"
    run.redis.lrem(QUEUE, 0, JAVA)
    run.redis.zrem(PLACES, JAVA)
    assert release(run, A)[0] == 1
    granted(run, B, 0)
    assert run("fair_renew", ["k", QUEUE, PLACES], 40000, B) == []
    run.redis.pexpire("k", FIRST)
    assert acquire(run, B) == "0", "confirmed by asking, as with a lease of its own"
    run.near("k", 30000)
    run.redis.delete("k")
    assert acquire(run, D) == "0"
    assert release(run, D)[0] == 1
    refused(acquire(run, C), "maxmemory")
    assert run.state() == {}


def test_a_beat_that_is_still_to_come(run: Scripts) -> None:
    """The clock was set back: a waiter that has died since is dead seconds later, and not only when that time has come."""
    acquire(run, A)
    run.ears.unsubscribe(f"{MUTEX}:{B[:36]}")
    run.ears.get_message(timeout=5)
    acquire(run, B)
    run.redis.hset(BEATS, B[:36], int(now(run)) + 3600000)
    run.redis.delete("k")
    assert acquire(run, D, queue=0)[0] == -2, "B may be alive"
    assert int(run.redis.hget(BEATS, B[:36])) <= now(run)
    run.redis.hincrby(BEATS, B[:36], -2600)
    assert acquire(run, D, queue=0) == "0"
    # Nor do others rely on it to move the places.
    stranger_waits(run, 60000)
    acquire(run, B)
    acquire(run, C)
    before = run.redis.zscore(PLACES, C)
    run.redis.hset(BEATS, mapping={B[:36]: int(now(run)) + 3600000, "push": int(now(run)) - 1000})
    acquire(run, C)
    run.redis.hincrby(BEATS, B[:36], -2600)
    assert run.redis.zscore(PLACES, C) == before
    acquire(run, C)
    assert run.redis.zscore(PLACES, C) >= before + 1000


def test_a_head_without_a_place(run: Scripts) -> None:
    """Such a head would block Redisson for ever."""
    run.redis.rpush(QUEUE, JAVA, C)
    assert acquire(run, A) == "0"
    assert run.state() == {"k": {A: "1"}}


@pytest.mark.parametrize("key", [QUEUE, PLACES, BEATS])
def test_a_release_whose_queue_is_other_data(run: Scripts, key: str) -> None:
    """The lock is given back, and the reply says so; who wants it is refused."""
    for give_back in (lambda: release(run, A), lambda: [run("fair_force", KEYS, MUTEX), 0, FIRST, "0"]):
        assert acquire(run, A) == "0"
        acquire(run, B)
        run.redis.delete(key)
        run.redis.set(key, "other data")
        assert give_back() == [1, 0, FIRST, "0"]
        assert not run.redis.exists("k")
        refused(acquire(run, B), "WRONGTYPE")
        assert run.redis.get(key) == "other data"
        run.redis.delete(QUEUE, PLACES, BEATS)
    assert run.heard() == []


def test_tokens(run: Scripts) -> None:
    run.redis.set(TOKEN, 0, px=10000)  # Redisson's multi lock has it end: see test_mutex.py
    assert acquire(run, A, fenced=1) == "1"
    assert run.redis.pttl(TOKEN) == -1
    run.redis.pexpire(TOKEN, 10000)
    assert acquire(run, A, fenced=1) == "1", "a repeat"
    acquire(run, B, fenced=1)
    assert release(run, A) == [1, 0, FIRST, "0"]
    granted(run, B, 2)
    assert run.redis.pttl(TOKEN) == -1
    assert acquire(run, B, fenced=1) == "2"
    assert run("fair_info", ["k", QUEUE, TOKEN])[1:] == [B, 1, 0, "2"]


def test_tokens_are_exact(run: Scripts) -> None:
    """Above 2^53, where Lua's numbers skip every other integer; for each way to get the lock."""
    run.redis.set(TOKEN, 2**53)
    assert acquire(run, A, fenced=1) == str(2**53 + 1)
    assert acquire(run, A, fenced=1) == str(2**53 + 1), "a repeat"
    brother = B[:36] + ":77"
    for owner in (B, brother):
        acquire(run, owner, fenced=1)
    run.redis.incr(TOKEN)
    release(run, A)
    granted(run, B, 2**53 + 3)
    run.redis.incr(TOKEN)
    assert release(run, B) == [1, 77, FIRST, str(2**53 + 5)]
    assert run("fair_info", ["k", QUEUE, TOKEN])[4] == str(2**53 + 5)


def test_tokens_below_1(run: Scripts) -> None:
    """They would be none, or errors: as with the fenced lock, nothing is held, whoever grants it."""
    run.redis.set(TOKEN, -5)
    refused(acquire(run, A, fenced=1), "below 1")
    assert run.state() == {TOKEN: "-4"}
    assert acquire(run, A) == "0", "a lock without tokens"
    acquire(run, B, fenced=1)
    assert release(run, A) == [1, 0, FIRST, "0"]
    assert run.heard() == []
    assert "k" not in run.state() and run.state()[QUEUE] == [B]
    refused(acquire(run, B, fenced=1), "below 1")
    run.redis.set(TOKEN, 0)
    assert acquire(run, B, fenced=1) == "1"
    run.redis.set(TOKEN, -5)
    refused(acquire(run, B, fenced=1), "below 1")


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


def test_places_that_are_gone(run: Scripts) -> None:
    """An abandoned slot migration has left the queue here and the places elsewhere: new places still expire."""
    assert acquire(run, A) == "0"
    acquire(run, B)
    acquire(run, C)
    run.redis.delete(PLACES)
    run.redis.hset(BEATS, "push", 0)
    acquire(run, B)
    assert run.redis.ttl(PLACES) != -1
    run.redis.delete(PLACES)
    run.redis.rpush(QUEUE, JAVA)
    run.redis.lrem(QUEUE, 0, B)
    run.redis.lrem(QUEUE, 0, C)
    run("fair_renew", ["k", QUEUE, PLACES], 90000, A)
    assert run.redis.ttl(PLACES) != -1


def test_a_queue_that_is_gone(run: Scripts) -> None:
    """The opposite, places without their queue: a place alone is none, whoever asks first."""
    for first, second in ((B, D), (D, B)):
        assert acquire(run, A) == "0"
        acquire(run, B)
        acquire(run, C)
        run.redis.delete(QUEUE)
        acquire(run, first)
        acquire(run, second)
        state = run.state()
        assert state[QUEUE] == [first, second]
        assert set(state[PLACES]) == {B, D}
        run.redis.delete(QUEUE, "k")
        assert acquire(run, A) == "0"
        assert run.state() == {"k": {A: "1"}}, "no queue, no places"
        stranger_waits(run, 60000)
        run.redis.zadd(PLACES, {C: now(run) + 60000})
        assert release(run, A)[:2] == [1, 0]
        assert set(run.state()[PLACES]) == {JAVA}, "without its TTL it would stay for ever"
        run.redis.delete(QUEUE, PLACES)


def test_a_grant_that_nobody_hears_of_is_not_said(run: Scripts) -> None:
    """Replicas and other nodes pass messages on, which would be believed; pattern subscribers do not count either."""
    run.ears.unsubscribe(f"{MUTEX}:{B[:36]}")
    run.ears.get_message(timeout=5)
    assert acquire(run, A) == "0"
    acquire(run, B)
    assert release(run, A)[:2] == [1, 0]
    assert run.heard() == []
    assert "k" not in run.state()
    assert acquire(run, B) == "0"


def unsubscribed(run: Scripts, *owners: str) -> None:
    for owner in owners:
        run.ears.unsubscribe(f"{MUTEX}:{owner[:36]}")
        run.ears.get_message(timeout=5)


def skipped(owner: str) -> str:
    return f"skipped {owner}"


def asks_later(run: Scripts, owner: str) -> None:
    """As if a release had skipped it some milliseconds ago."""
    run.redis.hincrby(BEATS, skipped(owner), -10)
    acquire(run, owner)


def test_a_waiter_that_hears_nothing_has_its_turn(run: Scripts) -> None:
    """Its process cannot subscribe, or listens elsewhere, but asks: it is not skipped for ever."""
    unsubscribed(run, B)
    for owner in (A, B, C, D):
        acquire(run, owner)
    assert release(run, A)[0] == 1
    granted(run, C, 0)
    assert run.state()[QUEUE] == [B, D]
    run.near(BEATS, 10000)
    asks_later(run, B)
    assert release(run, C)[0] == 1
    assert run.heard() == []
    assert run.state()["k"] == {B: "1"}
    run.near("k", FIRST)
    assert acquire(run, B) == "0", "it finds it"
    assert release(run, B)[0] == 1
    granted(run, D, 0)


def test_a_waiter_that_was_skipped_may_be_dead(run: Scripts) -> None:
    """Unless it has asked since, however often it is skipped."""
    unsubscribed(run, B)
    for owner in (A, B, C):
        acquire(run, owner)
    for holder, other in ((A, C), (C, A), (A, C)):
        assert release(run, holder)[0] == 1
        granted(run, other, 0)
        acquire(run, other)
        acquire(run, holder)


def test_what_the_dead_cost(run: Scripts) -> None:
    """One first lease, if a process dies after it was skipped and has asked, however many waiters it had."""
    brother = B[:36] + ":77"
    unsubscribed(run, B)
    for owner in (A, B, brother, C):
        acquire(run, owner)
    assert release(run, A)[0] == 1
    granted(run, C, 0)
    for owner in (B, brother):
        asks_later(run, owner)
    acquire(run, D)
    assert release(run, C)[0] == 1
    assert run.redis.hgetall("k") == {B: "1"}
    run.redis.delete("k")
    run.redis.hincrby(BEATS, B[:36], -FIRST // 2)
    run.redis.hincrby(BEATS, skipped(brother), -FIRST // 2)
    acquire(run, C)
    granted(run, D, 0)
    assert run.state()[QUEUE] == [brother, C], "it may only be slow"


def test_a_skip_that_is_still_to_come(run: Scripts) -> None:
    """The clock was set back: the waiter has its turn soon, and not only when that time has come."""
    unsubscribed(run, B)
    for owner in (A, B, C, D):
        acquire(run, owner)
    run.redis.hset(BEATS, skipped(B), int(now(run)) + 3600000)
    assert release(run, A)[0] == 1
    granted(run, C, 0)
    assert int(run.redis.hget(BEATS, skipped(B))) <= now(run)
    asks_later(run, B)
    assert release(run, C)[0] == 1
    assert run.redis.hgetall("k") == {B: "1"}


def test_a_release_that_may_not_publish(run: Scripts) -> None:
    """Who releases has not the right to tell anybody: those that ask have their turns, in order."""
    run.redis.acl_setuser(
        "mute", enabled=True, reset=True, nopass=True, keys=["*"], channels=["*"], commands=["+@all", "-publish"]
    )
    mute = run.connect(username="mute", password="-")
    for owner in (A, B, C):
        acquire(run, owner)
    assert run("fair_release", KEYS, A, MUTEX, by=mute)[:2] == [-1, 0]
    assert "k" not in run.state(), "they may be dead"
    acquire(run, D)
    granted(run, B, 0)
    acquire(run, B)
    asks_later(run, C)
    assert run("fair_release", KEYS, B, MUTEX, by=mute)[:2] == [-1, 0]
    assert run.redis.hgetall("k") == {C: "1"}
    assert run.heard() == []
    mute.close()
    run.redis.acl_deluser("mute")


def test_a_stranger_behind_the_granted_is_told(run: Scripts) -> None:
    """The granted client may never confirm, and its first lease is all that the stranger need wait for."""
    acquire(run, A)
    acquire(run, B)
    for number in range(4):
        acquire(run, f"{B[:36]}:{10 + number}")
    stranger_waits(run, 60000)
    assert release(run, A)[:2] == [1, 0]
    granted(run, B, 0, JAVA)
    run.near("k", FIRST)
    # Behind others of the same client, but not behind clients that ask by themselves, and not if that client gives it.
    assert release(run, f"{B[:36]}:10")[0] == 2
    assert release(run, B)[1] == 11
    assert run.heard() == []
    run.redis.flushall()
    for owner in (A, B, C):
        acquire(run, owner)
    stranger_waits(run, 60000)
    assert release(run, A)[:2] == [1, 0]
    granted(run, B, 0)


def test_a_stranger_behind_the_dead_is_told(run: Scripts) -> None:
    """It would otherwise sleep until the lease that it saw has ended.  It takes the lock as soon as their places end."""
    acquire(run, A)
    for dead in (B, C):
        run.ears.unsubscribe(f"{MUTEX}:{dead[:36]}")
        run.ears.get_message(timeout=5)
        acquire(run, dead)
    stranger_waits(run, 60000)
    assert release(run, A)[:2] == [1, 0]
    assert run.heard() == [(f"{MUTEX}:{JAVA}", "0")]
    assert run.state()[QUEUE] == [B, C, JAVA], "they may only be about to subscribe"
    assert patience(run, C) <= 4000
    run.redis.pexpire(QUEUE, 1000)
    run.redis.hset(BEATS, B[:36], int(now(run)) - 3000)
    acquire(run, D, queue=0)
    assert run.heard() == [(f"{MUTEX}:{JAVA}", "0")], "as by whoever finds the lock free"
    assert run.state()[QUEUE] == [C, JAVA]
    assert run.redis.pttl(QUEUE) == -1

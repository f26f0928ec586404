"""Several locks taken by one command."""

from __future__ import annotations

import pytest
from scripts import (
    ACQUIRE_KEYS,
    ALL,
    COUNTER,
    HOLD_KEYS,
    KINDS,
    LEASES,
    MARK,
    MARKED,
    NAMES,
    RW,
    TOKEN,
    A,
    B,
    C,
    Scripts,
    crowd,
    multi,
    near,
    own,
    read,
    refused,
    unmulti,
    write,
)


def test_multi(run: Scripts) -> None:
    assert multi(run) is None
    assert run.state() == ALL
    assert multi(run, 20000) is None, "a repeat"
    assert run.state() == ALL
    assert run("multi_renew", HOLD_KEYS, 0, A, KINDS) == []
    assert run("multi_renew", HOLD_KEYS, 40000, A, KINDS) == []
    for key in (*NAMES, LEASES):
        run.near(key, 40000)
    assert run.heard() == []
    assert unmulti(run) == 1
    assert run.state() == {COUNTER: "1"}
    assert run.heard() == [("cm", "0"), ("cf", "0"), ("cr", "1"), ("cr", "0"), ("cw", "1"), ("cw", "0")]
    assert unmulti(run) == 0
    assert run.heard() == []


@pytest.mark.parametrize("member", range(5))
def test_multi_is_refused_by_one(run: Scripts, member: int) -> None:
    name = NAMES[member]
    if KINDS[member] == "w":
        run("read_acquire", [name, f"{name}:{B}:rwlock_timeout:1", "x"], B, 20000)
    elif KINDS[member] == "r":
        run("write_acquire", [name, "x"], B, 20000, 0)
    else:
        run("mutex_acquire", name, B, 20000)
    before = run.state()
    blocker, left = multi(run)
    assert blocker == member
    near(left, 20000)
    assert run.state() == before
    assert unmulti(run) == 0
    assert run.state() == before


def test_multi_beside_others(run: Scripts) -> None:
    reader = f"{{k}}r:{B}:rwlock_timeout:1"
    run("read_acquire", ["{k}r", reader, MARKED], B, 60000)
    run.redis.set(MARKED, 1, px=5000)
    blocker, left = multi(run)
    assert blocker == 3
    near(left, 5000)
    run.redis.delete(MARKED)
    assert multi(run) is None
    run.near("{k}r", 60000)
    assert run("multi_renew", HOLD_KEYS, 30000, A, KINDS) == []
    run.near("{k}r", 60000)
    run.redis.hset("{k}w", A, 1)  # also reads, with a separate hold
    assert unmulti(run) == 1
    assert run.redis.hgetall("{k}r") == {"mode": "read", B: "1"}
    assert run.redis.hgetall("{k}w") == {"mode": "read", A: "1"}
    assert run.heard() == [("cm", "0"), ("cf", "0"), ("cw", "1"), ("cw", "0")]


def test_multi_gives_a_waiting_writer_its_moment(run: Scripts) -> None:
    run.redis.set(MARKED, 1, px=5000)
    blocker, left = multi(run)
    assert blocker == 3 and 0 < left <= 20, "free, and the writer has a moment to take it"
    while run.redis.exists(MARKED):
        pass
    assert multi(run) is None, "it has given up, and its mark has ended"
    run.redis.set(MARKED, 1, px=5000)
    assert multi(run) is None, "a repeat"
    run.near(MARKED, 5000)


def test_multi_takes_over_from_expired_readers(run: Scripts) -> None:
    own_lease = f"{{k}}w:{B}:rwlock_timeout:1"
    run("read_acquire", ["{k}w", own_lease, "x"], B, 60000)
    run.redis.delete(own_lease)
    assert multi(run) is None
    assert run.state() == ALL
    run.near("{k}w", 30000)


def test_multi_loses_a_member(run: Scripts) -> None:
    for member, name in enumerate(NAMES):
        run.redis.flushall()
        multi(run)
        multi_b = ["{b}m", "{b}m"]
        run("mutex_acquire", "{b}m", B, 30000)
        run.redis.delete(name)
        assert run("multi_renew", HOLD_KEYS + multi_b, 90000, A, KINDS, B, "m") == [1, 0]
        run.near(NAMES[member - 1], 30000)
        run.near("{b}m", 90000)
        run("mutex_acquire", name, C, 30000)
        assert run("multi_renew", multi_b + HOLD_KEYS, 90000, B, "m", A, KINDS) == [2, 1]
        assert unmulti(run) == 2
        assert run.redis.hgetall(name) == {C: "1"}


def test_multi_is_refused_in_the_middle(run: Scripts) -> None:
    run.redis.set(COUNTER, "text")
    refused(multi(run), "not an integer")
    assert run.state() == {COUNTER: "text"}
    run.redis.pexpire(COUNTER, 10000)
    refused(multi(run), "not an integer")
    assert run.redis.pttl(COUNTER) > 0, "it is other data, which stays as it is"
    run.redis.delete(COUNTER)
    run.redis.acl_setuser(
        "weak",
        enabled=True,
        nopass=True,
        keys=["*"],
        channels=["*"],
        commands=["+@all", "-pexpire"],
    )
    weak = run.connect(username="weak", password="x")
    refused(run("multi_acquire", ACQUIRE_KEYS, A, 30000, KINDS, by=weak), "run ")
    assert set(run.state()) <= {COUNTER, LEASES}, "nothing without a TTL but the counter"
    for kinds, keys in (("w", ["k", "k", "k"]), ("r", ["k", own(A), MARK])):
        refused(run("multi_acquire", keys, A, 30000, kinds, by=weak), "run ")
        assert not run.redis.exists("k"), kinds
    for script, keys, *args in (
        ("mutex_acquire", ["k"], A, 30000),
        ("fenced_acquire", ["k", TOKEN], A, 30000),
        ("read_acquire", ["k", own(A), MARK], A, 30000),
        ("write_acquire", ["k", MARK], A, 30000, 0),
        ("write_acquire", ["k", MARK, TOKEN], A, 30000, 0),
    ):
        refused(run(script, keys, *args, by=weak), "run ")
        assert not run.redis.exists("k"), script
    for script, field, keys, left in (
        ("mutex_transfer", A, ["k"], [A]),
        ("fenced_transfer", A, ["k", TOKEN], [A]),
        ("write_transfer", f"{A}:write", ["k"], []),
    ):
        run.redis.hset("k", field, 1)
        refused(run(script, keys, A, B, 30000, RW, by=weak), "run ")
        assert run.redis.hkeys("k") == left, script
        run.redis.delete("k")
    weak.close()


def test_multi_of_both_sides(run: Scripts) -> None:
    """A read lock and the write lock of the same name, by one owner."""
    lease = f"{{x}}:{A}:rwlock_timeout:1"
    for kinds, keys in (
        ("rw", ["x", lease, "m", "x", "x", "x"]),
        ("wr", ["x", "x", "x", "x", lease, "m"]),
    ):
        assert run("multi_acquire", keys, A, 30000, kinds) is None
        assert run("multi_acquire", keys, A, 30000, kinds) is None, "a repeat"
        assert run.redis.hgetall("x") == {"mode": "write", A: "1", f"{A}:write": "1"}
        run.redis.hdel("x", A)
        assert run("multi_acquire", keys, A, 30000, kinds) is None, "a repeat joins its own writer"
        hold = [key for i, key in enumerate(keys) if i % 3 != 2]
        assert run("multi_release", hold, A, kinds, "c", "c") == 1
        assert run.state() == {}
        run.heard()


def test_multi_beside_crowds(run: Scripts) -> None:
    owners = crowd(run, 9, 20000)
    assert run("multi_acquire", ["k", "k", "k"], A, 30000, "w")[0] == 0
    run.redis.delete(*(own(owner) for owner in owners))
    read(run, B, 50000)
    read(run, C, 10000)
    # More than nine fields: they are not all checked.
    near(run("multi_acquire", ["k", "k", "k"], A, 30000, "w")[1], 50000)
    assert run("multi_release", ["k", own(B)], B, "r", "c") == 1
    run.near("k", 50000)
    run.redis.hdel("k", *owners)
    near(run("multi_acquire", ["k", "k", "k"], A, 30000, "w")[1], 10000)
    read(run, B, 50000)
    assert run("multi_release", ["k", own(B)], B, "r", "c") == 1
    run.near("k", 10000)
    run.redis.delete(own(C))
    read(run, B, 50000)
    assert run("multi_release", ["k", own(B)], B, "r", "c") == 1
    assert run.state() == {}
    assert run.heard() == [("c", "1"), ("c", "0")]


def test_multi_keeps_what_others_need(run: Scripts) -> None:
    write(run, A, 60000)
    read(run, A, 10000)
    assert run("multi_release", ["k", own(A)], A, "r", "c") == 1
    run.near("k", 60000)
    run.redis.delete("k")
    run("multi_acquire", ["k", own(A), "m"], A, 20000, "r")
    run.redis.delete(own(A))
    assert run("multi_renew", ["k", own(A)], 30000, A, "r") == []
    run.near(own(A), 30000)
    run.redis.set("k", "data", ex=60)
    assert run("multi_renew", ["k", own(A)], 30000, A, "r") == [1, 1]
    assert run.redis.get("k") == "data"


def test_mutexes(run: Scripts) -> None:
    """Members that are all mutexes have scripts with one key for each."""
    keys, channels = ["a", "b"], ["ca", "cb"]
    assert run("mutexes_acquire", keys, A, 10000) is None
    assert run("mutexes_acquire", keys, A, 20000) is None, "a repeat"
    assert run.state() == {"a": {A: "1"}, "b": {A: "1"}}
    for key in keys:
        run.near(key, 20000)
    index, left = run("mutexes_acquire", ["c", "b"], B, 30000)
    assert index == 1, "which one is held; all or none"
    near(left, 20000)
    assert run.state() == {"a": {A: "1"}, "b": {A: "1"}}
    assert run("mutexes_release", keys, B, *channels) == 0
    run.redis.delete("a")
    assert run("mutexes_release", keys, A, *channels) == 2, "one of them had gone"
    assert run.state() == {}
    assert run("mutexes_release", keys, A, *channels) == 0

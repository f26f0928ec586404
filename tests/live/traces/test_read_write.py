"""Read/write locks."""

from __future__ import annotations

from scripts import (
    JAVA,
    MARK,
    MUTEX,
    RW,
    TOKEN,
    TOLD,
    A,
    B,
    C,
    Scripts,
    crowd,
    near,
    own,
    read,
    refused,
    unread,
    unwrite,
    write,
)

# 1 wakes all sleeping waiters, but misses a Redisson thread that is about to sleep; 0 does not.
TOLD_TWICE = [(RW, "1"), (RW, "0")]


def test_read_write(run: Scripts) -> None:
    assert write(run, A) is None
    # The leases are not added up, and the count stays 1: a repeated request is harmless.
    assert write(run, A) is None
    assert run.state() == {"k": {"mode": "write", f"{A}:write": "1"}}
    run.near("k", 30000)
    assert read(run, A) is None
    assert read(run, A) is None, "a repeat"
    both = {"mode": "write", f"{A}:write": "1", A: "1"}
    assert run.state() == {"k": both, own(A): "1"}
    near(read(run, B), 30000)
    near(write(run, B), 30000)
    assert unread(run, B) == 0
    assert unwrite(run, B) == 0
    assert run.heard() == []
    assert unwrite(run, A) == TOLD
    # Redisson downgrades silently; Snib wakes the waiting readers.
    assert run.heard() == TOLD_TWICE
    assert run.state() == {"k": {"mode": "read", A: "1"}, own(A): "1"}
    assert unwrite(run, A) == 0
    assert read(run, B) is None
    assert run.state()["k"] == {"mode": "read", A: "1", B: "1"}
    assert unread(run, A) == 1
    assert run.heard() == []
    assert run.state() == {"k": {"mode": "read", B: "1"}, own(B): "1"}
    assert unread(run, B) == TOLD
    # Redisson's 0 wakes one waiter per process, Snib wakes all: they may be readers.
    assert run.heard() == TOLD_TWICE
    # Redisson publishes a message when a vanished lock is released; it is not needed.
    assert unread(run, B) == 0
    assert run.heard() == []
    assert run.state() == {}


def test_reads_within_a_write(run: Scripts) -> None:
    """They have owners of their own, and end alone; the write hold that lets them in is named."""
    write(run, A)
    near(run("read_acquire", ["k", own(B), MARK], B, 30000), 30000)
    near(read(run, B, within=C), 30000)
    assert read(run, B, within=A) is None
    assert read(run, B, within=C) is None, "a repeat"
    assert read(run, C, within=A) is None
    both = {"mode": "write", f"{A}:write": "1", B: "1", C: "1"}
    assert run.state() == {"k": both, own(B): "1", own(C): "1"}
    assert unread(run, B) == 1
    assert unread(run, B) == 0, "a late copy of the release"
    assert run.state() == {"k": {"mode": "write", f"{A}:write": "1", C: "1"}, own(C): "1"}
    assert unwrite(run, A) == TOLD
    assert run.state() == {"k": {"mode": "read", C: "1"}, own(C): "1"}
    assert unread(run, C) == TOLD
    write(run, B)
    near(read(run, C, within=A), 30000), "that write hold has ended"


def test_read_keeps_the_longest_lease(run: Scripts) -> None:
    read(run, A, 60000)
    read(run, B, 10000)
    run.near("k", 60000)
    run.near(own(B), 10000)
    assert unread(run, A) == 1
    run.near("k", 10000)
    unread(run, B)
    write(run, A, 60000)
    read(run, A, 10000)
    assert unread(run, A) == 1
    run.near("k", 60000), "a writer's lease is not cut by its reads"
    read(run, A, 90000)
    run.near("k", 90000)
    assert write(run, A, 60000) is None
    run.near("k", 90000)


def test_read_release_when_the_others_expired(run: Scripts) -> None:
    read(run, A, 60000)
    read(run, B, 1)
    run.gone(own(B))
    assert unread(run, A) == TOLD
    assert run.state() == {}
    assert run.heard() == TOLD_TWICE


def test_readers_that_have_died_are_forgotten(run: Scripts) -> None:
    """While others always read, the lock does not end, but it must not grow with each reader that ever died."""
    for owner in (A, B, C, JAVA):
        assert read(run, owner) is None
    dead = [f"{A[:24]}{number:012}:1" for number in range(100, 120)]
    for owner in dead[:2]:
        run.redis.hset("k", owner, 1)
    run.redis.delete(own(B), own(JAVA))
    assert unread(run, A) == 1
    assert run.state()["k"] == {"mode": "read", C: "1", JAVA: "1"}, "Redisson's are its own business"
    for owner in dead:
        run.redis.hset("k", owner, 1)
    for number in range(100):
        assert read(run, A) is None
        assert unread(run, A) == 1
    assert run.redis.hlen("k") <= 10
    assert run.redis.hexists("k", C)


def test_no_upgrade(run: Scripts) -> None:
    read(run, A)
    near(write(run, A), 30000)
    assert run.state()["k"] == {"mode": "read", A: "1"}
    assert unwrite(run, A) == 0


def test_redissons_readers(run: Scripts) -> None:
    """Several holds of one owner, each with its own lease."""
    run.redis.hset("k", mapping={"mode": "read", JAVA: 2})
    run.redis.set(own(JAVA, 1), 1, px=9000)
    run.redis.set(own(JAVA, 2), 1, px=50000)
    run.redis.pexpire("k", 50000)
    read(run, A, 60000)
    assert unread(run, A) == 1
    run.near("k", 50000)
    run.redis.hset("k", JAVA, 5000)
    read(run, A, 60000)
    assert unread(run, A) == 1
    run.near("k", 60000)  # that many holds are not counted; they last as long as the lock
    run.redis.pexpire("k", 50000)
    # RLock.expire() by a reader extends only the lock: its own keys then tell a writer nothing.
    run.redis.delete(own(JAVA, 1), own(JAVA, 2))
    near(write(run, B), 50000)


def test_write_takes_over_from_expired_readers(run: Scripts) -> None:
    read(run, A, 60000)
    read(run, B, 20000)
    run.redis.delete(own(A))
    near(write(run, C), 20000)
    run.redis.delete(own(B))
    assert write(run, C) is None
    assert run.state() == {"k": {"mode": "write", f"{C}:write": "1"}}
    assert run("read_renew", ["k", own(A)], 30000, A) == [1, 1]
    unwrite(run, C)
    run.redis.hset("k", "mode", "read")
    run.redis.pexpire("k", 30000)
    assert write(run, C) is None, "a mode without owners"


def test_crowd_of_readers(run: Scripts) -> None:
    """The readers are not all checked, yet the lock lasts neither too short nor for ever."""
    owners = crowd(run, 40, 30000)
    near(write(run, C), 30000)
    read(run, A, 90000)
    run.near("k", 90000)
    read(run, B, 1000)
    # B had less than half of what is left, so another reader has the longest lease.
    run.redis.delete(*(own(owner) for owner in owners))
    assert unread(run, B) == 1
    run.near("k", 90000)
    # A had the longest lease and no other has half of it, so all are checked; one is left.
    run.redis.set(own(owners[7]), 1, px=30000)
    assert unread(run, A) == 1
    run.near("k", 30000)
    near(write(run, C), 30000)
    run.redis.delete(own(owners[7]))
    assert write(run, C) is None


def test_crowd_keeps_the_lease(run: Scripts) -> None:
    """Five others have more than half of it, which is close enough, so the rest are not checked."""
    crowd(run, 40, 30000)
    read(run, A, 50000)
    assert unread(run, A) == 1
    run.near("k", 50000)


def test_crowd_of_expired_readers(run: Scripts) -> None:
    owners = crowd(run, 40, 30000)
    run.redis.delete(*(own(owner) for owner in owners[1:]))
    assert unread(run, owners[0]) == TOLD
    assert run.state() == {}
    assert run.heard() == TOLD_TWICE


def test_a_crowd_costs_nobody_more(run: Scripts) -> None:
    """A reader that joins, renews or leaves, and a writer that asks, among a thousand readers."""
    crowd(run, 1000, 30000)
    run.calls()
    read(run, A)
    assert run("read_renew", ["k", own(A)], 30000, A) == []
    assert unread(run, A) == 1
    near(write(run, C), 30000)
    cost = run.calls()
    assert sum(cost.values()) <= 30, cost
    assert not {"hgetall", "hkeys", "hvals"} & set(cost), "one call, but a look at all"


def test_read_renew(run: Scripts) -> None:
    read(run, A, 20000)
    read(run, B, 60000)
    keys = ["k", own(A), "k", own(C), "x", own(A)]
    assert run("read_renew", keys, 0, A, C, A) == [2, 1, 3, 0]
    run.near(own(A), 20000)
    assert run("read_renew", keys[:2], 30000, A) == []
    run.near("k", 60000)
    run.near(own(A), 30000)
    run.redis.delete(own(A))
    assert run("read_renew", keys[:2], 90000, A) == []
    run.near("k", 90000)
    run.near(own(A), 90000)
    run.redis.set("x", "data")
    assert run("read_renew", ["x", "y"], 30000, A) == [1, 1]


def test_write_renew(run: Scripts) -> None:
    write(run, A, 20000)
    assert run("write_renew", ["k", "k", "x"], 0, A, B, A) == [2, 1, 3, 0]
    assert run("write_renew", "k", 30000, A) == []
    run.near("k", 30000)
    read(run, A, 60000)
    assert run("write_renew", "k", 30000, A) == []
    run.near("k", 60000)
    assert write(run, A, 90000) is None
    run.near("k", 90000)
    run.redis.set("x", "data")
    assert run("write_renew", ["k", "x"], 30000, A, A) == [2, 1]


def test_write_transfer(run: Scripts) -> None:
    write(run, A)
    assert run("write_transfer", "k", A, B, 15000, RW) == 1
    run.near("k", 15000)
    assert run("write_transfer", "k", A, B, 20000, RW) == 1, "a repeat"
    assert run("write_transfer", "k", A, C, 20000, RW) == 0
    assert run.state() == {"k": {"mode": "write", f"{B}:write": "1"}}
    run.near("k", 20000), "the lease counts from the repeat"
    assert run.heard() == []
    read(run, B)
    assert run("write_transfer", "k", B, C, 20000, RW) == 2, "B goes on reading"
    assert run.state() == {"k": {"mode": "read", B: "1"}, own(B): "1"}
    assert run.heard() == TOLD_TWICE


def test_write_fenced(run: Scripts) -> None:
    keys = ["k", MARK, TOKEN]
    assert run("write_acquire", keys, A, 30000, 0) == ["1"]
    assert run("write_acquire", keys, A, 30000, 0) == ["1"], "a repeat"
    near(run("write_acquire", keys, B, 30000, 0), 30000)
    assert run("write_transfer", ["k", TOKEN], A, B, 30000, RW) == ["2"]
    assert run("write_transfer", ["k", TOKEN], A, B, 30000, RW) == ["2"], "a repeat"
    run.redis.delete(TOKEN)
    assert run("write_transfer", ["k", TOKEN], A, B, 30000, RW) == ["1"], "a token, whatever happens"
    run.redis.set(TOKEN, 2)
    assert run("write_info", ["k", TOKEN], RW)[1:] == [B, 1, 0, "2"]
    run.redis.set(TOKEN, 2**53)
    assert run("write_transfer", ["k", TOKEN], B, A, 30000, RW) == [str(2**53 + 1)], "exact"
    unwrite(run, A)
    run.heard()
    run.redis.incr(TOKEN)
    assert run("write_acquire", keys, B, 30000, 0) == [str(2**53 + 3)]
    assert run("write_acquire", keys, B, 30000, 0) == [str(2**53 + 3)], "a repeat"
    assert run("write_info", ["k", TOKEN], RW)[4] == str(2**53 + 3)
    run.redis.set(TOKEN, 2**63 - 1)
    assert run("write_transfer", ["k", TOKEN], B, C, 30000, RW) == 2
    assert run.heard() == TOLD_TWICE
    refused(run("write_acquire", keys, A, 30000, 0), "overflow")
    assert list(run.state()) == [TOKEN], "nothing is held"


def test_writers_mark(run: Scripts) -> None:
    read(run, A)
    write(run, C)
    assert not run.redis.exists(MARK), "this writer did not ask for it"
    write(run, C, 30000, 5000)
    run.near(MARK, 5000)
    near(read(run, B), 5000)
    assert read(run, A) is None, "a reader that is in stays in"
    unread(run, A)
    assert write(run, C, 30000, 5000) is None
    assert not run.redis.exists(MARK)
    unwrite(run, C)
    run.redis.set(MARK, 1, px=5000)
    assert 0 < read(run, B) <= 20, "free, and the writer has a moment to take it"
    while run.redis.exists(MARK):
        pass
    assert read(run, B) is None, "it has given up, and its mark has ended"


def test_read_write_info_and_force(run: Scripts) -> None:
    assert run("read_info", "k", RW) == [-2, "", 0, 0, ""]
    assert run("write_info", ["k", TOKEN], RW) == [-2, "", 0, 0, ""]
    assert run("read_force", "k", RW) == run("write_force", "k", RW) == 0
    write(run, A)
    assert run("read_info", "k", RW)[:3] == [-2, "", 0]
    left, owner, count, *_ = run("write_info", ["k", TOKEN], RW)
    near(left, 30000)
    assert (owner, count) == (A, 1)
    read(run, A)
    assert run("read_info", "k", RW)[1:3] == [A, 1]
    refused(run("mutex_info", "k", MUTEX), "WRONGTYPE")
    refused(run("fair_info", ["k", "queue", TOKEN]), "WRONGTYPE")
    assert run("read_force", "k", RW) == 0
    assert run("write_force", "k", RW) == 1
    assert run.heard() == TOLD_TWICE
    read(run, A)
    read(run, B)
    assert run("read_info", "k", RW)[2] == 2
    assert run("write_info", ["k", TOKEN], RW)[0] == -2
    refused(run("mutex_info", "k", MUTEX), "WRONGTYPE")
    assert run("write_force", "k", RW) == 0
    assert run("read_force", "k", RW) == 1
    assert run.heard() == TOLD_TWICE
    run("mutex_acquire", "k", A, 30000)
    refused(run("read_info", "k", RW), "WRONGTYPE")
    refused(run("write_info", ["k", TOKEN], RW), "WRONGTYPE")
    refused(run("read_force", "k", RW), "WRONGTYPE")
    refused(run("write_force", "k", RW), "WRONGTYPE")
    near(read(run, B), 30000)
    near(write(run, B), 30000)


def test_other_data(run: Scripts) -> None:
    """Without a TTL it is no lock, whatever its field `mode` says, and is waited for; nor is it deleted by force."""
    for mode in ("read", "write"):
        for fields in ({"mode": mode}, {"mode": mode, "path": "/x"}):
            run.redis.hset("k", mapping=fields)
            assert read(run, A) == -1
            assert write(run, A) == -1
            for kind in "rw":
                assert run("multi_acquire", ["k", own(A), MARK], A, 30000, kind) == [0, -1]
            assert unread(run, A) == 0
            assert unwrite(run, A) == 0
            refused(run(f"{mode}_force", "k", RW), "WRONGTYPE")
            assert run.state() == {"k": fields}
            assert run.redis.pttl("k") == -1
            run.redis.delete("k")


def test_forced_release_of_other_data_with_an_end(run: Scripts) -> None:
    for mode in ("read", "write"):
        run.redis.hset("k", mapping={"mode": mode, "path": "/x"})
        run.redis.pexpire("k", 30000)
        refused(run(f"{mode}_force", "k", RW), "WRONGTYPE")
        assert run.state() == {"k": {"mode": mode, "path": "/x"}}
        run.redis.delete("k")

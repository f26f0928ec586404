"""A server that is out of memory, a user without rights, a replica."""

from __future__ import annotations

from scripts import (
    COUNTER,
    DOWN,
    DRAIN,
    HOLD_KEYS,
    INIT,
    KINDS,
    LATCH,
    MARK,
    RELEASE,
    SC,
    TAKEN,
    TOLD,
    A,
    B,
    Scripts,
    ident,
    multi,
    own,
    read,
    refused,
    unmulti,
    unread,
    unwrite,
    write,
)


def test_out_of_memory(run: Scripts) -> None:
    """Nothing new is granted, but every hold can be renewed, handed over and released."""
    run("mutex_acquire", "m", A, 20000)
    run("fenced_acquire", ["f", "ft"], A, 20000)
    run("plain_acquire", "p", A, 20000)
    run("write_acquire", ["w", MARK], A, 20000, 0)
    run("semaphore_count", "s", INIT, 5, SC)
    run("semaphore_acquire", "s", 2)
    run("latch_count", "l", INIT, 3, LATCH)
    read(run, A, 20000)
    multi(run)
    run("permits_count", ["e", "et"], INIT, 2, SC)
    run("permits_acquire", ["e", "et"], 20000, SC, ident(1), ident(2))
    run.heard()
    run.full()
    for script, keys, *args in (
        ("mutex_acquire", ["x"], A, 30000),
        ("fenced_acquire", ["x", "xt"], A, 30000),
        ("plain_acquire", ["x"], A, 30000),
        ("read_acquire", ["x", "xo", MARK], A, 30000),
        ("write_acquire", ["x", MARK], A, 30000, 0),
        ("semaphore_acquire", ["s"], 1),
        ("semaphore_count", ["x"], INIT, 1, SC),
        ("latch_count", ["x"], INIT, 1, LATCH),
        ("multi_acquire", ["x", "xt", "x"], A, 30000, "f"),
    ):
        refused(run(script, keys, *args), "maxmemory")
    assert not run.redis.exists("x", "xt", "xo")

    run.redis.delete(own(A))
    assert run("mutex_renew", "m", 30000, A) == []
    assert run("plain_renew", "p", 30000, A) == []
    assert run("read_renew", ["k", own(A)], 30000, A) == []
    assert run("write_renew", "w", 30000, A) == []
    assert run("permits_renew", "et", 30000, 2, ident(1), ident(2)) == []
    assert run("multi_renew", HOLD_KEYS, 30000, A, KINDS) == []
    run.near(own(A), 30000)
    assert run("fenced_transfer", ["f", "ft"], A, B, 30000, "c") == ["2"]
    assert run("plain_transfer", "p", A, B, 30000) == 1
    assert run("write_transfer", "w", A, B, 30000, "c") == 1

    assert run("mutex_release", "m", A, "c") == TOLD
    assert run("mutex_release", "f", B, "c") == TOLD
    assert run("plain_release", "p", B, "c") == TOLD
    assert run("write_release", "w", B, "c") == TOLD
    assert unread(run, A) == TOLD
    assert unmulti(run) == 1
    assert run("semaphore_release", "s", 2, SC) == TOLD
    assert run("semaphore_count", "s", RELEASE, 2, SC) == 7
    assert run("permits_release", ["e", "et"], SC, ident(1), ident(2)) == TOLD
    assert run("latch_count", "l", DOWN, 0, LATCH) == 2
    assert run.state() == {"ft": "2", "s": "7", "e": "2", "l": "2", COUNTER: "1"}


def test_downgrade_out_of_memory(run: Scripts) -> None:
    write(run, A)
    read(run, A)
    run.full()
    assert unwrite(run, A) == TOLD
    assert run.state()["k"] == {"mode": "read", A: "1"}


def test_no_right_to_publish(run: Scripts) -> None:
    """A release works, whether or not its message can be published, and says so."""
    run("mutex_acquire", "m", A, 20000)
    run("plain_acquire", "p", A, 20000)
    write(run, A)
    run("semaphore_count", "s", INIT, 5, SC)
    run("permits_count", ["e", "et"], INIT, 1, SC)
    run("permits_acquire", ["e", "et"], 20000, SC, ident(1))
    run.redis.acl_setuser(
        "mute", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-publish"]
    )
    mute = run.connect(username="mute", password="x")
    run.heard()
    assert run("mutex_release", "m", A, "c", by=mute) == -1
    assert run("plain_release", "p", A, "c", by=mute) == -1
    assert run("write_release", "k", A, "c", by=mute) == -1
    assert run("semaphore_release", "s", 1, "c", by=mute) == -1
    assert run("permits_release", ["e", "et"], "c", ident(1), by=mute) == -1
    assert run.heard() == []
    assert run.state() == {"s": "6", "e": "1"}
    mute.close()


def test_no_right_to_count(run: Scripts) -> None:
    """Permits are taken from the number and put into the set together, or not at all."""
    run("permits_count", ["e", "et"], INIT, 1, SC)
    run.redis.acl_setuser(
        "half", enabled=True, nopass=True, keys=["*"], channels=["*"], commands=["+@all", "-decrby"]
    )
    half = run.connect(username="half", password="x")
    refused(run("permits_acquire", ["e", "et"], 20000, SC, ident(1), by=half), "run ")
    assert run.state() == {"e": "1"}
    half.close()


def test_replica(run: Scripts) -> None:
    """A lock that a replica does not see may still be held, and a latch may still be shut."""
    run("latch_count", "shut", INIT, 2, LATCH)
    run("semaphore_count", "s", INIT, 0, SC)
    run("permits_count", ["e", "et"], INIT, 1, SC)
    run("write_acquire", ["w", "wm"], A, 60000, 0)
    run("read_acquire", ["r", "rl", "rm"], A, 60000)
    run.redis.replicaof("127.0.0.1", 1)
    try:
        for script, keys, *args in (
            ("mutex_renew", ["k"], 0, A),
            ("plain_renew", ["k"], 0, A),
            ("read_renew", ["k", own(A)], 0, A),
            ("write_renew", ["k"], 0, A),
            ("permits_renew", [TAKEN], 0, 1, ident(1)),
            ("multi_renew", ["k", "k"], 0, A, "m"),
            ("latch_acquire", ["k"]),
            ("mutex_force", ["k"], "c"),
            ("fair_force", ["k", "q", "p", "b", "t"], "c"),
            ("plain_force", ["k"], "c"),
            ("read_force", ["k"], "c"),
            ("write_force", ["k"], "c"),
            ("read_force", ["w"], "c"),
            ("write_force", ["r"], "c"),
            ("latch_count", ["k"], DOWN, 0, LATCH),
            ("latch_count", ["shut"], INIT, 1, LATCH),
            ("semaphore_count", ["s"], INIT, 1, SC),
            ("semaphore_count", ["s"], DRAIN, 0, SC),
            ("permits_count", ["e", "et"], INIT, 1, SC),
            ("permits_acquire", ["e", "et"], 20000, SC, ident(1), ident(2)),
            ("mutex_transfer", ["k"], A, B, 30000),
            ("fenced_transfer", ["k", COUNTER], A, B, 30000, "c"),
            ("write_transfer", ["k"], A, B, 30000, "c"),
            ("plain_transfer", ["k"], A, B, 30000),
            ("mutex_release", ["k"], A, "c"),
            ("plain_release", ["k"], A, "c"),
        ):
            refused(run(script, keys, *args), "replica")
    finally:
        run.redis.replicaof("no", "one")

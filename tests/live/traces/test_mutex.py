"""Mutex, fenced, spin and plain locks."""

from __future__ import annotations

import pytest
from scripts import MARK, MUTEX, PLAIN, RW, TOKEN, TOLD, A, B, C, Scripts, near, refused


def test_mutex(run: Scripts) -> None:
    assert run("mutex_acquire", "k", A, 30000) is None
    # The count stays 1: Snib counts re-entries in the process, so a repeated request is harmless.
    assert run("mutex_acquire", "k", A, 10000) is None
    run.near("k", 30000), "a late repeat does not shorten the lease"
    assert run("mutex_acquire", "k", A, 35000) is None
    assert run.state() == {"k": {A: "1"}}
    run.near("k", 35000)
    near(run("mutex_acquire", "k", B, 30000), 35000)
    assert run("mutex_release", "k", B, MUTEX) == 0
    assert run.heard() == []
    left, owner, count, waiting, token = run("mutex_info", "k", MUTEX)
    assert (owner, count, waiting, token) == (A, 1, 0, "")
    assert run("mutex_transfer", "k", A, B, 20000) == 1
    assert run("mutex_transfer", "k", A, B, 22000) == 1, "a repeat"
    run.near("k", 22000), "the lease counts from the repeat"
    assert run("mutex_transfer", "k", A, C, 20000) == 0
    assert run("mutex_renew", ["k", "x"], 40000, A, B) == [1, 1, 2, 0]
    assert run("mutex_renew", "k", 40000, B) == []
    run.near("k", 40000)
    assert run("mutex_renew", "k", 0, B) == [], "only a question"
    run.near("k", 40000)
    assert run.heard() == []
    assert run("mutex_release", "k", B, MUTEX) == TOLD
    assert run.heard() == [(MUTEX, "0")]
    assert run("mutex_release", "k", B, MUTEX) == 0
    assert run.heard() == []
    assert run.state() == {}


def test_mutex_force(run: Scripts) -> None:
    assert run("mutex_force", "k", MUTEX) == 0
    run("mutex_acquire", "k", A, 30000)
    assert run("mutex_force", "k", MUTEX) == 1
    assert run.heard() == [(MUTEX, "0")]
    run("write_acquire", ["k", MARK], A, 30000, 0)
    refused(run("mutex_force", "k", MUTEX), "WRONGTYPE")
    assert run.redis.exists("k")


def test_fenced(run: Scripts) -> None:
    keys = ["k", TOKEN]
    assert run("fenced_acquire", keys, A, 30000) == ["1"]
    # Redisson's re-entry takes a new token; Snib's is a repeated request with the same answer.
    assert run("fenced_acquire", keys, A, 30000) == ["1"]
    assert run.state() == {"k": {A: "1"}, TOKEN: "1"}
    near(run("fenced_acquire", keys, B, 30000), 30000)
    assert run("fenced_transfer", keys, A, B, 15000, MUTEX) == ["2"]
    assert run("fenced_transfer", keys, A, B, 20000, MUTEX) == ["2"], "a repeat"
    assert run("fenced_transfer", keys, A, C, 20000, MUTEX) == 0
    run.redis.delete(TOKEN)
    assert run("fenced_transfer", keys, A, B, 20000, MUTEX) == ["1"], "a token, whatever happens"
    run.redis.set(TOKEN, 2)
    run.near("k", 20000)
    assert run("mutex_info", keys, MUTEX)[1:] == [B, 1, 0, "2"]
    run.redis.hset("k", "mode", "other")
    assert run("mutex_info", keys, MUTEX)[1] == B, "a hash is a lock, whatever else is in it"
    run.redis.hdel("k", "mode")
    assert run("mutex_release", "k", B, MUTEX) == TOLD
    assert run.state() == {TOKEN: "2"}
    assert run.redis.pttl(TOKEN) == -1
    assert run("fenced_acquire", keys, C, 30000) == ["3"]


def test_a_counter_that_would_end(run: Scripts) -> None:
    """Redisson's multi lock with a lease gives the counter one, too; then tokens would begin again."""

    def stays(reply: object, expected: object) -> None:
        assert reply == expected and run.redis.pttl(TOKEN) == -1
        run.redis.pexpire(TOKEN, 10000)

    run.redis.set(TOKEN, 57, px=10000)
    stays(run("fenced_acquire", ["k", TOKEN], A, 30000), ["58"])
    stays(run("fenced_transfer", ["k", TOKEN], A, B, 30000, MUTEX), ["59"])
    run.redis.delete("k")
    stays(run("multi_acquire", ["k", TOKEN, "k"], A, 30000, "f"), None)
    run.redis.delete("k")
    stays(run("write_acquire", ["k", MARK, TOKEN], A, 30000, 0), ["61"])
    stays(run("write_transfer", ["k", TOKEN], A, B, 30000, RW), ["62"])


def test_fenced_counter_is_exact(run: Scripts) -> None:
    run.redis.set(TOKEN, 2**53 + 1)
    assert run("fenced_acquire", ["k", TOKEN], A, 30000) == [str(2**53 + 2)]
    assert run("fenced_transfer", ["k", TOKEN], A, B, 30000, MUTEX) == [str(2**53 + 3)]


@pytest.mark.parametrize("counter", [str(2**63 - 1), "text", "-5"])
def test_fenced_counter_refuses(run: Scripts, counter: str) -> None:
    run.redis.set(TOKEN, counter)
    refused(run("fenced_acquire", ["k", TOKEN], A, 30000), "")
    assert list(run.state()) == [TOKEN], "nothing is held"
    run("mutex_acquire", "k", A, 30000)
    assert run("fenced_transfer", ["k", TOKEN], A, B, 30000, MUTEX) == 2
    assert list(run.state()) == [TOKEN]
    assert run.heard() == [(MUTEX, "0")]


def test_spin(run: Scripts) -> None:
    run("mutex_acquire", "k", A, 30000)
    assert run("spin_release", "k", B) == 0
    assert run("spin_release", "k", A) == 1
    assert run("spin_release", "k", A) == 0
    assert run("spin_force") == 0
    run("mutex_acquire", "k", A, 30000)
    assert run("spin_force") == 1
    run.redis.hset("k", "field", 1)
    refused(run("spin_force"), "WRONGTYPE")
    assert run.heard() == [], "a spin lock sends no message"


def test_plain(run: Scripts) -> None:
    assert run("plain_acquire", "k", A, 10000) is None
    assert run("plain_acquire", "k", A, 20000) is None, "a repeat"
    assert run.state() == {"k": A}
    run.near("k", 20000)
    left, foreign = run("plain_acquire", "k", B, 30000)
    near(left, 20000)
    assert foreign == 0
    assert run("plain_release", "k", B, PLAIN) == 0
    assert run("plain_transfer", "k", A, B, 20000) == 1
    assert run("plain_transfer", "k", A, B, 25000) == 1, "a repeat"
    assert run("plain_transfer", "k", A, C, 30000) == 0
    run.near("k", 25000)
    assert run.state() == {"k": B}
    assert run("plain_renew", ["k", "k", "x"], 40000, B, A, A) == [2, 1, 3, 0]
    assert run("plain_renew", "k", 0, B) == [], "only a question"
    run.near("k", 40000)
    left, *rest = run("plain_info", "k", PLAIN)
    assert rest == [B, 1, 0, ""]
    assert run.heard() == []
    assert run("plain_release", "k", B, PLAIN) == TOLD
    assert run.heard() == [(PLAIN, "0")]
    assert run("plain_release", "k", B, PLAIN) == 0
    assert run("plain_info", "k", PLAIN) == [-2, "", 0, 0, ""]
    assert run.state() == {}


def test_plain_of_others(run: Scripts) -> None:
    run.redis.set("k", b"5f\x00\xe9 token", px=30000)
    left, foreign = run("plain_acquire", "k", A, 30000)
    near(left, 30000)
    assert foreign == 1
    assert run("plain_info", "k", PLAIN)[1] == "5f?? token"
    assert run("plain_renew", "k", 0, A) == [1, 1]
    assert run("plain_force", "k", PLAIN) == 1
    assert run.heard() == [(PLAIN, "0")]
    assert run("plain_force", "k", PLAIN) == 0
    run.redis.set("k", "data")
    assert run("plain_acquire", "k", A, 30000) == [-1, 1]
    assert run("plain_info", "k", PLAIN) == [-1, "data", 1, 0, ""], "of redis-py, without a timeout"
    for number in ("2", "-1"):
        run.redis.set("k", number)
        refused(run("plain_info", "k", PLAIN), "WRONGTYPE")
        run.redis.pexpire("k", 30000)
        assert run("plain_info", "k", PLAIN)[1] == number
    run.redis.set("k", "data")
    refused(run("plain_force", "k", PLAIN), "WRONGTYPE")
    run.redis.delete("k")
    run("mutex_acquire", "k", A, 30000)
    refused(run("plain_acquire", "k", A, 30000), "WRONGTYPE")
    assert run("plain_renew", "k", 30000, A) == [1, 1]


def test_quorum_epoch(run: Scripts) -> None:
    def vote(server: str = "run1", quarantine: int = 30000) -> object:
        return run("quorum_acquire", ["k", "epoch"], A, 30000, server, quarantine)

    def since() -> tuple[str, float]:
        server, ms = run.redis.get("epoch").split()
        return server, int(ms) - run.redis.time()[0] * 1000

    near(vote(), 30000), "a server without an epoch may have forgotten locks"
    run.redis.set("epoch", "run1 1")
    assert vote() is None
    assert run.redis.get("epoch") == "run1 1"
    assert vote("?") is None, "a client that may not know the run trusts the epoch"
    near(vote("run2"), 30000), "another run of the server"
    for server, written in (("run2", "run2"), ("?", "run2"), ("run3", "run3")):
        ahead = run.redis.time()[0] * 1000 + 3600000
        run.redis.set("epoch", f"run2 {ahead}")
        near(vote(server), 30000), "its clock was set back: a lease from now, and not an hour"
        name, ms = since()
        assert name == written and -3000 < ms < 3000

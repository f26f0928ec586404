"""Semaphores, latches and permits."""

from __future__ import annotations

from typing import Any

import pytest
from scripts import (
    ADD,
    DOWN,
    DRAIN,
    GET,
    INIT,
    LATCH,
    RELEASE,
    SC,
    SET,
    TAKEN,
    TOLD,
    TOTAL,
    Scripts,
    expire,
    give,
    ident,
    near,
    permits,
    raw,
    refused,
    take,
)


def sem(run: Scripts, what: int, n: int = 0) -> Any:
    return run("semaphore_count", "k", what, n, SC)


def test_semaphore(run: Scripts) -> None:
    assert run("semaphore_acquire", "k", 1) == -1
    assert sem(run, GET) == 0
    assert sem(run, INIT, 5) == 1
    assert sem(run, INIT, 6) == 0
    assert run.heard() == [(SC, "5")]
    run.redis.pexpire("k", 60000)
    assert run("semaphore_acquire", "k", 6) == -1
    assert run("semaphore_acquire", "k", 2) is None
    assert run("semaphore_release", "k", 1, SC) == TOLD
    assert run.heard() == [(SC, "4")]
    assert run("semaphore_info", "k", SC) == [-2, "", 4, 0, ""]
    assert sem(run, DRAIN) == 4
    assert sem(run, DRAIN) == 0
    assert run("semaphore_info", "k", SC) == [-1, "", 0, 0, ""]
    # Redisson's drain and add drop the TTL, and its add publishes permits that are not free.
    run.near("k", 60000)
    assert sem(run, ADD, -3) == -3
    assert sem(run, RELEASE, 2) == -1
    assert run("semaphore_release", "k", 1, SC) == 1
    assert run.heard() == []
    assert sem(run, ADD, 2) == 2
    assert run.heard() == [(SC, "2")]
    run.near("k", 60000)


def test_semaphore_refuses(run: Scripts) -> None:
    sem(run, INIT, 2147483647)
    run.heard()
    refused(sem(run, ADD, 1), "permits would")
    refused(sem(run, RELEASE, 1), "permits would")
    refused(run("semaphore_release", "k", 1, SC), "permits would")
    assert run.state() == {"k": "2147483647"}
    assert run("semaphore_force") == 1
    assert run("semaphore_force") == 0


# Lua takes most of these for numbers, too, but Redis does not count with them, so they are other data; and with the
# last ones Lua cannot count.
NO_COUNT = (
    *("text", "", "0.75", "nan", "-nan", "inf", "-inf", "0x10", "1e3", " 7", "7\n", "7\0", "+7", "007", "-0"),
    *("9007199254740992", "9007199254740993", "-9007199254740992"),
    *("9223372036854775807", "-9223372036854775808", "18446744073709551616", "9" * 400),
)


@pytest.mark.parametrize("data", NO_COUNT)
def test_counters_refuse_other_data(run: Scripts, data: str) -> None:
    run.redis.set("k", data)
    for script, *args in (
        ("semaphore_acquire", 1),
        ("semaphore_release", 1, SC),
        ("semaphore_count", GET, 0, SC),
        ("semaphore_info", SC),
        ("semaphore_force",),
        ("latch_acquire",),
        ("latch_count", DOWN, 0, LATCH),
        ("latch_info", LATCH),
        ("latch_force", LATCH),
    ):
        refused(run(script, "k", *args), "WRONGTYPE")
    assert run.state() == {"k": data}
    assert run.heard() == []


# Redis 7.2.0 to 7.2.4 give a script's numbers to commands in their shortest form.
SHORTEN = """
local server = redis
local function short(what, ...)
    local args = { ... }
    for i, arg in ipairs(args) do
        if type(arg) == 'number' and arg ~= 0 and arg % 100000000 == 0 then
            args[i] = string.format('%.1e', arg)
        end
    end
    return server[what](unpack(args))
end
local redis = {
    call = function(...) return short('call', ...) end,
    pcall = function(...) return short('pcall', ...) end,
    error_reply = server.error_reply,
}
"""


def test_counts_that_lua_could_shorten(run: Scripts) -> None:
    run.before = SHORTEN
    many = 1_200_000_000
    assert sem(run, INIT, many) == 1
    assert sem(run, RELEASE, 1) == many + 1
    assert run("semaphore_acquire", "k", 2) is None
    assert run("semaphore_release", "k", 1, SC) == TOLD
    assert sem(run, DRAIN) == many
    assert run.heard() == [(SC, str(many)), (SC, str(many + 1)), (SC, str(many))]
    run.redis.delete("k")
    assert permits(run, INIT, 5) == 1
    assert take(run, 1, 2) is None
    assert permits(run, SET, many + 5) == many + 3
    assert permits(run, ADD, -4) == many - 1
    assert give(run, 1) == TOLD
    assert take(run, 3) is None
    expire(run, 2)
    assert permits(run, GET) == many
    expire(run, 3)
    assert take(run, 4) is None
    assert run.heard() == [(SC, text) for text in ("5", str(many + 3), *[str(many)] * 3)]
    assert permits(run, SET, 5) == 4


def test_latch(run: Scripts) -> None:
    def count(what: int, n: int = 0) -> Any:
        return run("latch_count", "k", what, n, LATCH)

    assert run("latch_acquire") is None
    assert count(INIT, 2) == 1
    assert count(INIT, 3) == 0
    assert run.heard() == [(LATCH, "1")]
    assert run("latch_acquire") == -1
    assert run("latch_info", "k", LATCH) == [-1, "", 2, 0, ""]
    assert count(DOWN) == 1
    assert count(GET) == 1
    assert run.heard() == []
    assert count(DOWN) == 0
    assert run.heard() == [(LATCH, "0")]
    assert run.state() == {}
    assert count(DOWN) == 0
    assert run("latch_acquire") is None
    assert run("latch_info", "k", LATCH) == [-2, "", 0, 0, ""]
    assert run.heard() == []
    assert run.state() == {}
    count(INIT, 9)
    assert run("latch_force", "k", LATCH) == 1
    assert run("latch_force", "k", LATCH) == 0
    # Redisson publishes only 1, and its waiters sleep on.
    assert run.heard() == [(LATCH, "1"), (LATCH, "1"), (LATCH, "0")]


def test_permits(run: Scripts) -> None:
    assert take(run, 1) == -1
    assert permits(run, INIT, 2) == 1
    assert permits(run, INIT, 3) == 0
    assert run.heard() == [(SC, "2")]
    assert take(run, 1, lease=20000) is None
    assert take(run, 2) is None
    assert take(run, 2) is None, "a repeat"
    seconds, micros = run.redis.time()
    now = seconds * 1000 + micros // 1000
    assert set(run.state()[TAKEN]) == {ident(1), ident(2)}
    near(int(run.redis.zscore(TAKEN, raw(2))) - now, 30000)
    assert run.redis.get("k") == "0"
    near(take(run, 3), 20000)
    near(take(run, 3, 4), 20000)
    assert take(run, 3, 4, 5) == -3, "more than there are in all"
    left, *rest = run("permits_info", ["k", TAKEN], SC)
    near(left, 20000)
    assert rest == ["", 0, 0, ""]
    assert (permits(run, GET), permits(run, TOTAL)) == (0, 2)
    assert run.heard() == []
    assert give(run, 1) == TOLD
    assert run.heard() == [(SC, "1")]
    assert give(run, 1) == 0
    assert run.heard() == []
    assert take(run, 1) is None
    assert give(run, 1, 2) == TOLD
    assert run.heard() == [(SC, "2")]
    assert run.state() == {"k": "2"}
    assert run("permits_info", ["k", TAKEN], SC) == [-2, "", 2, 0, ""]


def test_permits_expire(run: Scripts) -> None:
    permits(run, INIT, 3)
    take(run, 1, 2)
    run.heard()
    expire(run, 1)
    assert run("permits_info", ["k", TAKEN], SC)[2] == 2
    assert run("permits_renew", [TAKEN, TAKEN], 40000, 1, ident(1), 1, ident(2)) == [1, 1]
    assert permits(run, GET) == 2
    assert run.heard() == [(SC, "2")]
    assert give(run, 1) == 0
    expire(run, 2)
    # Late, but the permit is free again.
    assert give(run, 2) == -2
    assert run.state() == {"k": "3"}
    assert run.heard() == [(SC, "3")]
    take(run, 1, 2, 3)
    expire(run, 1, 2)
    # Redisson tells waiters the number before the new owner took its permits.
    assert take(run, 4) is None
    assert run.heard() == [(SC, "1")]
    assert give(run, 1, 4) == -2, "one of them was gone"
    assert run.state()["k"] == "2"
    assert set(run.state()[TAKEN]) == {ident(3)}
    assert run("permits_renew", ["x"], 30000, 1, ident(1)) == [1, 0]


@pytest.mark.parametrize("gone", [1, 2])
@pytest.mark.parametrize("total", [2, 4])
def test_permits_of_which_some_are_gone(run: Scripts, gone: int, total: int) -> None:
    """Redisson takes back one by one, by its own clock; a repeated request leaves the total as it is."""
    permits(run, INIT, total)
    assert take(run, 1, 2) is None
    assert run.redis.zrem(TAKEN, raw(gone)) == 1
    run.redis.incr("k")
    if total == 4:
        assert take(run, 1, 2) is None
        assert run.state() == {"k": "2", TAKEN: run.state()[TAKEN]}
        assert set(run.state()[TAKEN]) == {ident(1), ident(2)}
    else:
        assert take(run, 3) is None  # who took it back
        near(take(run, 1, 2), 30000)
        assert run.state()["k"] == "1"
        assert set(run.state()[TAKEN]) == {ident(3)}
        assert run.heard()[-1] == (SC, "1")


def test_permits_renew(run: Scripts) -> None:
    permits(run, INIT, 3)
    take(run, 1, 2, lease=20000)
    take(run, 3, lease=90000)
    before = run.state()[TAKEN]
    args = (2, ident(1), ident(2), 1, ident(3), 2, ident(3), ident(4))
    assert run("permits_renew", [TAKEN] * 3, 0, *args) == [3, 1]
    assert run.state()[TAKEN] == before
    assert run("permits_renew", [TAKEN] * 3, 40000, *args) == [3, 1]
    after = run.state()[TAKEN]
    assert after[ident(3)] == before[ident(3)], "never shorter"
    assert 17000 < after[ident(1)] - before[ident(1)] < 23000 + 3000
    assert after[ident(1)] == after[ident(2)]
    run.redis.set("x", 1)
    assert run("permits_renew", "x", 30000, 1, ident(1)) == [1, 1]


def test_permits_by_the_thousand(run: Scripts) -> None:
    """Redisson's own script fails from 8,000 expired permits on."""
    permits(run, INIT, 9000)
    for start in range(0, 9000, 1000):
        assert take(run, *range(start, start + 1000), lease=3600000) is None
    run.heard()
    assert permits(run, GET) == 0
    expire(run, *range(8999))
    assert permits(run, GET) == 8999
    assert run.heard() == [(SC, "8999")]
    assert list(run.state()[TAKEN]) == [ident(8999)]
    assert give(run, 8999) == TOLD


def test_permits_are_taken_back_by_the_thousand(run: Scripts) -> None:
    """Any request for a permit reclaims all of them, with one message."""
    permits(run, INIT, 9000)
    for start in range(0, 9000, 1000):
        take(run, *range(start, start + 1000))
    expire(run, *range(9000))
    run.heard()
    assert take(run, 9000) is None
    assert run.heard() == [(SC, "8999")]
    assert run.state() == {"k": "8999", TAKEN: run.state()[TAKEN]}
    assert list(run.state()[TAKEN]) == [ident(9000)]


def test_permits_count(run: Scripts) -> None:
    assert permits(run, TOTAL) == 0
    assert permits(run, SET, 3) == 3
    assert run.heard() == [(SC, "3")]
    take(run, 1, 2)
    assert permits(run, SET, 1) == -1
    assert permits(run, TOTAL) == 1
    assert take(run, 3, 4) == -3
    assert permits(run, ADD, 1) == 0
    assert run.heard() == []
    assert permits(run, ADD, 4) == 4
    assert run.heard() == [(SC, "4")]
    refused(permits(run, ADD, 2147483647), "permits would")
    assert permits(run, SET, 6) == 4
    assert run.heard() == []
    run.redis.pexpire("k", 60000)
    take(run, 5)
    run.near(TAKEN, 60000)
    run.redis.persist("k")  # as Redisson's addPermits() does
    take(run, 6)
    assert run.redis.pttl(TAKEN) == -1, "otherwise the taken permits would vanish and never come back"
    assert run("permits_force", ["k", TAKEN]) == 1
    assert run("permits_force", ["k", TAKEN]) == 0
    assert run.state() == {}


@pytest.mark.parametrize("data", NO_COUNT)
def test_permits_refuse_other_data(run: Scripts, data: str) -> None:
    run.redis.set("k", data)
    refused(take(run, 1), "WRONGTYPE")
    refused(permits(run, GET), "WRONGTYPE")
    refused(run("permits_info", ["k", TAKEN], SC), "WRONGTYPE")
    refused(run("permits_force", ["k", TAKEN]), "WRONGTYPE")
    run.redis.set("k", 5)
    run.redis.set(TAKEN, "text")
    refused(take(run, 1), "WRONGTYPE")
    refused(run("permits_force", ["k", TAKEN]), "WRONGTYPE")
    assert run.state() == {"k": "5", TAKEN: "text"}


def test_permits_without_an_end(run: Scripts) -> None:
    """Redisson's permits may have no lease."""
    run.redis.set("k", 0)
    run.redis.zadd(TAKEN, {raw(1): 922337203685477})
    assert take(run, 2) == -1
    assert run("permits_info", ["k", TAKEN], SC) == [-1, "", 0, 0, ""]

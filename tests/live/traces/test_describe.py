"""The results of describe and list."""

from __future__ import annotations

from scripts import (
    INIT,
    JAVA,
    LATCH,
    MUTEX,
    PLAIN,
    RW,
    SC,
    TAKEN,
    TOKEN,
    A,
    B,
    C,
    Scripts,
    crowd,
    eventually,
    expire,
    ident,
    permits,
    raw,
    read,
    take,
    unwrite,
    write,
)

QUEUE, PLACES = "redisson_lock_queue:{k}", "redisson_lock_timeout:{k}"


def describe(run: Scripts) -> list[str]:
    """The texts, with every time replaced by T."""
    texts = run("describe", ["k", QUEUE, PLACES, TOKEN, TAKEN], MUTEX, RW, SC, LATCH, PLAIN)
    out = []
    for text in texts:
        words = text.split(" ")
        if words[0] in ("holder", "reader", "permit", "waiter") and 17000 < int(words[2]) <= 30000:
            words[2] = "T"
        out.append(" ".join(words))
    return out


def test_describe(run: Scripts) -> None:
    assert describe(run) == ["kind free", "waiting 0"]
    run("fenced_acquire", ["k", TOKEN], A, 30000)
    assert describe(run) == ["kind mutex", f"holder {A} T 1", "token 1", "waiting 0"]
    listener = run.redis.pubsub()
    listener.subscribe(MUTEX)
    listener.get_message(timeout=5)
    assert describe(run)[-1] == "waiting 1"
    listener.close()
    eventually(lambda: describe(run)[-1] == "waiting 0")
    run.redis.flushall()
    write(run, A)
    read(run, A)
    got = describe(run)
    assert got[0] == "kind write" and sorted(got[1:-1]) == [f"holder {A} T 1", f"reader {A} T 1"]
    unwrite(run, A)
    assert describe(run) == ["kind read", f"reader {A} T 1", "waiting 0"]
    run.redis.flushall()
    run.redis.set("k", b"a b\x00\xe9", px=30000)
    assert describe(run) == ["kind plain", "holder a?b?? T 1", "waiting 0"]
    run.redis.set("k", "a b")
    assert describe(run)[0] == "kind other"
    run.redis.set("k", 7)
    assert describe(run) == ["kind counter", "count 7", "waiting 0"]
    run.redis.delete("k")
    run.redis.hset("k", "field", 1)
    assert describe(run) == ["kind other", "waiting 0"]


def test_describe_permits(run: Scripts) -> None:
    permits(run, INIT, 5)
    take(run, 1, 2)
    expire(run, 1)
    hexed = raw(2).hex()
    assert describe(run) == [
        "kind permits",
        f"permit {hexed} T",
        "available 4",
        "total 5",
        "waiting 0",
    ]


def test_describe_numbers_of_many_digits(run: Scripts) -> None:
    run("fenced_acquire", ["k", TOKEN], A, 30000)
    for token in ("1000000000000000001", "9223372036854775807", "-9223372036854775807"):
        run.redis.set(TOKEN, token)
        assert describe(run)[2] == f"token {token}"
    for token in ("9223372036854775808", "99999999999999999999", "1e3", "-", ""):
        run.redis.set(TOKEN, token)
        assert describe(run)[2] == "token 0"
    run.redis.delete("k", TOKEN)
    run.redis.set("k", "9007199254740991")
    assert describe(run)[:2] == ["kind counter", "count 9007199254740991"]
    permits(run, INIT, 1)
    run.redis.zadd(TAKEN, {raw(1): "inf"})
    assert describe(run)[2:4] == ["available 9007199254740991", "total 9007199254740992"]
    # Beyond 2^53 it is no counter, but perhaps another library's holder of a plain lock.
    run.redis.set("k", "9007199254740992")
    assert describe(run)[0] == "kind other"
    run.redis.set("k", "9007199254740992", px=30000)
    assert describe(run)[:2] == ["kind plain", "holder 9007199254740992 T 1"]


def test_describe_fair(run: Scripts) -> None:
    seconds, _ = run.redis.time()
    run.redis.rpush(QUEUE, B, C)
    run.redis.zadd(PLACES, {B: seconds * 1000 + 30000, C: seconds * 1000 - 5})
    waiters = [f"waiter {B} T", f"waiter {C} 0"]
    assert describe(run) == ["kind fair", *waiters, "waiting 2"]
    run("mutex_acquire", "k", A, 30000)
    assert describe(run) == ["kind fair", f"holder {A} T 1", *waiters, "waiting 2"]


def test_describe_no_more_than_500(run: Scripts) -> None:
    crowd(run, 700, 30000)
    got = describe(run)
    assert len([text for text in got if text.startswith("reader")]) == 500
    assert got[-1] == "more 200"
    run.redis.flushall()
    permits(run, INIT, 700)
    take(run, *range(700))
    got = describe(run)
    assert len([text for text in got if text.startswith("permit")]) == 500
    assert got[-1] == "more 200"
    run.redis.flushall()
    run.redis.rpush(QUEUE, *range(700))
    got = describe(run)
    assert len([text for text in got if text.startswith("waiter")]) == 500
    assert got[-1] == "more 200"


def test_list(run: Scripts) -> None:
    run("mutex_acquire", "mutex", A, 30000)
    run("mutex_acquire", "java", JAVA, 30000)
    run("read_acquire", ["read", "{read}:x", "x"], A, 30000)
    run("write_acquire", ["write", "x"], A, 30000, 0)
    run("plain_acquire", "plain", A, 30000)
    run("permits_count", ["permits", "{permits}:timeout"], INIT, 1, SC)
    run("permits_acquire", ["permits", "{permits}:timeout"], 30000, SC, ident(1))
    run.redis.set("text", "text")
    run.redis.set("number", 1)
    run.redis.hset("hash", "field", 1)
    run.redis.hset("crowd", mapping={"mode": "read", **{f"{A}{i}": 1 for i in range(1100)}})
    run.redis.hset("big", mapping={f"{i}": 1 for i in range(1100)})
    run.redis.rpush("list", 1)

    def names(pattern: str) -> list[str]:
        cursor, found = "0", []
        while True:
            cursor, *some = run("list", [], cursor, pattern, 3)
            found += some
            if cursor == "0":
                return sorted(set(found))

    assert names("*") == ["crowd", "java", "mutex", "permits", "plain", "read", "write"]
    assert names("p*") == ["permits", "plain"]
    assert names("nothing*") == []

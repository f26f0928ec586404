"""Weaknesses of Redisson that Snib does not share: multi locks, fenced locks, counters.

Redisson's side, where it matters, is simulated by writing what its client would leave in the
server.
"""

from __future__ import annotations

import pytest
from foreign import STRANGER, listening
from ours import Waiting, ours_waits

import snib
from conftest import NewServer, SharedServer
from support import PATIENCE, TIDY, Program, eventually

# ---- D: multi ------------------------------------------------------------------------------------


def test_d_opposite_orders_do_not_embrace(server: SharedServer, name: str) -> None:
    """Multi locks over the same members, in opposite orders, 20 times each."""
    a, b = f"{name}a", f"{name}b"

    def many(members: tuple[str, str]) -> None:
        with snib.connect(server.url) as mine:
            # Fair locks cannot be taken by one command: only the fixed order prevents a deadlock.
            both = snib.MultiLock([mine.fair_lock(member) for member in members])
            for _ in range(20):
                both.hold(timeout=20).release()

    for crew in [Waiting(lambda: many((a, b))), Waiting(lambda: many((b, a)))]:
        crew.get(60)


def test_d_a_lease_is_not_multiplied(server: SharedServer, client: snib.Client, name: str) -> None:
    blocker = client.lock(f"{name}b").hold()
    with snib.connect(server.url, recheck=0.2) as other:
        locks = [other.lock(f"{name}{letter}") for letter in "ab"]
        taker = ours_waits(other, snib.MultiLock(locks, lease=60.0))
        rechecks = other.stats().rechecks
        eventually(lambda: other.stats().rechecks >= rechecks + 3)
        blocker.release()
        hold = taker.get()
        for letter in "ab":
            assert 40_000 < server.admin.pttl(f"{name}{letter}") <= 60_000
        hold.release()


# ---- F: fenced -----------------------------------------------------------------------------------


def test_f1_a_lock_without_ttl_is_held(
    server: SharedServer, client: snib.Client, name: str
) -> None:
    server.admin.hset(name, STRANGER, 1)
    with pytest.raises(snib.Busy):
        client.fenced_lock(name).hold(timeout=0)
    with pytest.raises(snib.Timeout):
        client.fenced_lock(name).hold(timeout=0.1)
    assert server.admin.hgetall(name) == {STRANGER: "1"}
    server.admin.delete(name)


def test_f3_a_fenced_lease_is_the_lease(
    server: SharedServer, client: snib.Client, name: str
) -> None:
    with client.fenced_lock(name, lease=60.0).hold() as hold:
        assert hold.token >= 1
        assert 40_000 < server.admin.pttl(name) <= 60_000


def test_f4_a_grant_nobody_heard_of_is_taken_back(new_server: NewServer) -> None:
    server = new_server()
    with snib.connect(server.url, patience=4, reply_timeout=0.2) as client:
        client.fenced_lock("f").hold().release()
        with server.stopped(), pytest.raises(snib.Error):
            client.fenced_lock("f").hold(timeout=5)
        eventually(lambda: int(server.admin.get("redisson_lock_token:{f}")) >= 2)
        eventually(lambda: not server.admin.exists("f"), TIDY)
        with client.fenced_lock("f").hold(timeout=0) as hold:
            assert hold.token >= 3


# ---- G: counters ---------------------------------------------------------------------------------


HOLD_A_PERMIT = """
client = snib.connect(URL, lease=6)
hold = client.permits(sys.argv[2]).hold()
say("held")
sys.stdin.read()
"""


def test_g1_permits_of_the_dead_come_back(
    server: SharedServer, client: snib.Client, gone: str
) -> None:
    client.permits(gone).init(1)
    dying = Program(HOLD_A_PERMIT, server.url, gone)
    try:
        assert dying.hear() == "held"
        with pytest.raises(snib.Busy):
            client.permits(gone).hold(timeout=0)
    finally:
        dying.process.kill()
        dying.process.communicate()
    client.permits(gone).hold(timeout=30).release()


def test_g2_changes_keep_the_ttl(server: SharedServer, client: snib.Client, gone: str) -> None:
    semaphore = client.semaphore(gone)
    server.admin.set(gone, 3, px=60_000)
    assert semaphore.add(2) == 5
    assert semaphore.drain() == 5
    assert semaphore.put_back(2) == 2
    semaphore.hold(n=2).release()
    assert 0 < server.admin.pttl(gone) <= 60_000


@pytest.mark.parametrize("expired", [8_000, 20_000])
def test_g3_any_number_of_permits_can_expire(
    server: SharedServer, client: snib.Client, gone: str, expired: int
) -> None:
    server.admin.set(gone, 0)
    ids = {f"{number:016}": 1_000 + number for number in range(expired)}
    server.admin.zadd(f"{{{gone}}}:timeout", ids)
    permits = client.permits(gone)
    eventually(lambda: permits.available() == expired)
    assert permits.total() == expired
    assert not server.admin.exists(f"{{{gone}}}:timeout")


def test_g4_a_late_release_says_so(server: SharedServer, client: snib.Client, gone: str) -> None:
    permits = client.permits(gone, lease=0.2)
    permits.init(1)
    late = permits.hold()
    assert late.lost.wait(PATIENCE)
    with pytest.raises(snib.Lost):
        late.release()
    eventually(lambda: permits.available() == 1)
    assert permits.total() == 1


def test_g5_a_deleted_latch_opens(server: SharedServer, client: snib.Client, gone: str) -> None:
    latch = client.latch(gone)
    latch.init(2)
    with listening(server, f"redisson_countdownlatch__channel__{{{gone}}}") as hear:
        assert latch.force_release()
        # Redisson's waiters ignore the first message; the second frees them.
        heard = [hear()]
        while heard[-1] != "0":
            heard.append(hear())
    assert heard in (["0"], ["1", "0"])

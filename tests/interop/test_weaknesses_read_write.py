"""Weaknesses of Redisson that Snib does not share: read and write locks.

Redisson's side, where it matters, is simulated by writing what its client would leave in the
server.
"""

from __future__ import annotations

import pytest
from foreign import listening
from ours import make, ours_waits, taking

import snib
from conftest import SharedServer
from support import eventually


def rw_channel(name: str) -> str:
    return f"redisson_rwlock:{{{name}}}"


def test_b1_a_downgrade_is_told_to_all(
    server: SharedServer, client: snib.Client, name: str
) -> None:
    lock = client.rwlock(name)
    lock.write.acquire()
    lock.read.acquire()
    with listening(server, rw_channel(name)) as hear:
        lock.write.release()
        assert hear() == "1"
    lock.read.release()


def test_b2_the_last_reader_wakes_all(server: SharedServer, client: snib.Client, name: str) -> None:
    hold = client.rwlock(name).read.hold()
    with listening(server, rw_channel(name)) as hear:
        hold.release()
        assert hear() == "1"


def test_b3_a_read_release_leaves_the_writers_lease(
    server: SharedServer, client: snib.Client, name: str
) -> None:
    lock = client.rwlock(name, lease=60.0)
    lock.write.acquire()
    inner = client.rwlock(name, lease=10.0).read.hold()
    inner.release()
    assert server.admin.pttl(name) > 50_000
    lock.write.release()


def test_b4_a_renewal_never_shortens(
    server: SharedServer, quick: snib.Client, client: snib.Client, name: str
) -> None:
    long = client.rwlock(name, lease=600.0).read.hold()
    short = quick.rwlock(name).read.hold()
    eventually(lambda: quick.stats().renewals >= 4)
    assert server.admin.pttl(name) > 500_000
    short.release()
    assert server.admin.pttl(name) > 500_000
    long.release()


def test_b5_a_read_release_leaves_the_writers_watchdog(
    server: SharedServer, quick: snib.Client, name: str
) -> None:
    lock = quick.rwlock(name)
    with lock.write as hold:
        with lock.read:
            pass
        renewals = quick.stats().renewals
        eventually(lambda: quick.stats().renewals >= renewals + 4)
        hold.check()
        assert server.admin.hget(name, "mode") == "write"


def test_b5_one_readers_release_leaves_the_others_watchdog(
    server: SharedServer, quick: snib.Client, name: str
) -> None:
    """Two read holds of one process have separate leases; one may end without the other."""
    stays, goes = quick.rwlock(name).read.hold(), taking(quick.rwlock(name).read).get()
    assert stays.owner != goes.owner
    goes.release()
    own = f"{{{name}}}:{stays.owner}:rwlock_timeout:1"
    renewals = quick.stats().renewals
    eventually(lambda: quick.stats().renewals >= renewals + 4)
    stays.check()
    assert 0 < server.admin.pttl(own) <= 6_000
    stays.release()


def test_b7_reentry_does_not_add_leases_up(
    server: SharedServer, client: snib.Client, name: str
) -> None:
    lock = client.rwlock(name, lease=60.0)
    for _ in range(3):
        lock.write.acquire()
    assert 40_000 < server.admin.pttl(name) <= 60_000
    for _ in range(3):
        lock.write.release()


def test_b8_releasing_a_vanished_read_is_a_loss(
    server: SharedServer, client: snib.Client, name: str
) -> None:
    hold = client.rwlock(name).read.hold()
    server.admin.delete(name, *server.keys_of(name))
    with pytest.raises(snib.Lost):
        hold.release()


def test_b9_an_inner_release_leaves_the_outer_lease(
    server: SharedServer, client: snib.Client, name: str
) -> None:
    """Redisson numbers a reader's holds, and any release ends the last number."""
    outer, inner = client.rwlock(name, lease=30.0).read, client.rwlock(name, lease=10.0).read
    assert outer.acquire() and inner.acquire()
    inner.release()
    (own,) = server.admin.keys(f"*{name}*:rwlock_timeout:*")
    assert server.admin.pttl(own) > 25_000 and server.admin.pttl(name) > 25_000
    outer.release()


def test_b11_writers_need_not_starve(server: SharedServer, client: snib.Client, name: str) -> None:
    reader = client.rwlock(name).read.hold()
    with snib.connect(server.url) as other, snib.connect(server.url) as third:
        writer = ours_waits(other, other.rwlock(name, prefer_writer=True).write)
        with pytest.raises(snib.Busy):
            third.rwlock(name).read.hold(timeout=0)
        reader.release()
        writer.get().release()
        third.rwlock(name).read.hold(timeout=30).release()


@pytest.mark.parametrize("side", ["read", "write"])
def test_b12_each_side_answers_for_itself(client: snib.Client, name: str, side: str) -> None:
    other = {"read": "write", "write": "read"}[side]
    with make(client, side, name).hold():
        assert make(client, side, name).locked() and make(client, side, name).info().held
        assert not make(client, other, name).locked() and not make(client, other, name).info().held

"""Weaknesses of Redisson that Snib does not share: those of all locks.

Redisson's side, where it matters, is simulated by writing what its client would leave in the server.
"""

from __future__ import annotations

import contextlib
import time

import pytest
from foreign import STRANGER
from ours import counted_waits, make, ours_waits

import snib
from conftest import SharedServer
from support import PATIENCE, eventually

WAITABLE = ["mutex", "fair", "read", "write", "fenced", "plain", "multi"]


def cut_subscriptions(server: SharedServer, times: int = 1) -> None:
    for _ in range(times):
        server.admin.execute_command("CLIENT", "KILL", "TYPE", "pubsub")


@pytest.mark.parametrize("kind", WAITABLE)
def test_c2_a_lost_message_costs_seconds(
    kind: str, server: SharedServer, client: snib.Client, name: str
) -> None:
    """The waiter's subscription is cut just before the release; the lease would be 30 s."""
    against = {"read": "write", "write": "read"}.get(kind, kind)
    names = f"{name}a,{name}b" if kind == "multi" else name
    hold = make(client, kind, names).hold()
    with snib.connect(server.url, recheck=0.5) as other:
        taker = ours_waits(other, make(other, against, names))
        cut_subscriptions(server)
        hold.release()
        taker.get(15).release()


def test_c2_also_for_counters(server: SharedServer, client: snib.Client, gone: str) -> None:
    semaphore, permits, latch = f"{gone}s", f"{gone}p", f"{gone}l"
    client.semaphore(semaphore).init(1)
    client.permits(permits).init(1)
    client.latch(latch).init(1)
    holds = [client.semaphore(semaphore).hold(), client.permits(permits).hold()]
    with snib.connect(server.url, recheck=0.5) as other:
        takers = [
            counted_waits(other, lambda: other.semaphore(semaphore).hold(timeout=20)),
            counted_waits(other, lambda: other.permits(permits).hold(timeout=20)),
        ]
        opened = counted_waits(other, lambda: other.latch(latch).wait(20))
        cut_subscriptions(server)
        for hold in holds:
            hold.release()
        client.latch(latch).count_down()
        for taker in takers:
            taker.get(15).release()
        assert opened.get(15)


SILENT = ["semaphore", "permits", "latch"]


@pytest.mark.parametrize("kind", SILENT)
def test_c2_a_change_without_a_message(
    kind: str, server: SharedServer, client: snib.Client, gone: str
) -> None:
    """Redisson's waiters that miss the message sleep for ever; Snib's ask again in time."""
    thing = getattr(client, kind)(gone)
    thing.init(1)
    hold = None if kind == "latch" else thing.hold()
    with snib.connect(server.url, recheck=0.3) as other:
        same = getattr(other, kind)(gone)
        call = (lambda: same.wait(30)) if kind == "latch" else (lambda: same.hold(timeout=30))
        taker = counted_waits(other, call)
        eventually(lambda: server.listeners(gone) == 1)
        if kind == "latch":
            server.admin.delete(gone)
        else:
            server.admin.incr(gone)
        assert taker.get(25)
    del hold


def test_c5_renewal_ends_with_the_release(server: SharedServer, name: str) -> None:
    """Releases at the moment a renewal is due: the key neither stays nor comes back."""
    with snib.connect(server.url, lease=0.1) as client:
        lock, kept = client.lock(name), 0
        for _ in range(30):
            due = client.stats().renewals + 1
            # Such a short lease ends if the process stalls.
            with contextlib.suppress(snib.Lost, snib.Unreachable):
                with lock.hold() as hold:
                    eventually(lambda due=due: hold.lost.is_set() or client.stats().renewals >= due)
                assert not server.admin.exists(name)
                kept += 1
            eventually(lambda: not server.admin.exists(name))
        assert kept
        # A renewal that is still in flight must not touch another owner's lease.
        server.admin.hset(name, STRANGER, 1)
        server.admin.pexpire(name, 300)
        eventually(lambda: not server.admin.exists(name))


@pytest.mark.parametrize("lease", [0, -1, 0.00001, 2**53, 2**63, float("nan"), float("inf")])
@pytest.mark.parametrize("kind", ["mutex", "fair", "read", "write", "fenced", "spin", "plain"])
def test_c7_leases_out_of_range_send_nothing(
    kind: str, lease: float, client: snib.Client, name: str
) -> None:
    client.ping()
    commands = client.stats().commands
    with pytest.raises((snib.UsageError, ValueError)):
        make(client, kind, name, lease=lease).hold(timeout=0)
    assert client.stats().commands == commands


@pytest.mark.parametrize("name", ["a{b", "a}b", "{}a", "{a", "}{", "a{}{b}"])
def test_c8_names_with_stray_braces_are_refused(name: str, client: snib.Client) -> None:
    """Their additional keys could be in other slots of a cluster."""
    client.ping()
    commands = client.stats().commands
    for kind in ["mutex", "fair", "read", "write", "fenced", "spin", "plain"]:
        with pytest.raises(snib.InvalidName):
            make(client, kind, name).hold(timeout=0)
    for kind in SILENT:
        with pytest.raises(snib.InvalidName):
            getattr(client, kind)(name).init(1)
    assert client.stats().commands == commands


def test_c9_a_silent_release_costs_one_recheck(
    server: SharedServer, client: snib.Client, name: str
) -> None:
    """A spin lock's release sends no message: a mutex waiting for the name asks again in time."""
    hold = client.spin_lock(name, lease=30.0).hold()
    with snib.connect(server.url, recheck=0.3) as other:
        taker = ours_waits(other, other.lock(name))
        hold.release()
        taker.get(15).release()


def test_c9_spinning_is_bounded_and_jittered(
    server: SharedServer, client: snib.Client, name: str
) -> None:
    """The pauses grow up to a limit and differ, so waiters do not poll in step."""
    hold = client.spin_lock(name).hold()
    with snib.connect(server.url) as other:
        taker = ours_waits(other, other.spin_lock(name))
        eventually(lambda: other.stats().rechecks >= 10)
        pauses = []
        for _ in range(12):
            rechecks, begun = other.stats().rechecks, time.monotonic()
            eventually(lambda n=rechecks: other.stats().rechecks > n)
            pauses.append(time.monotonic() - begun)
        hold.release()
        taker.get(15).release()
    # Twelve pauses between 64 and 192 ms.
    assert max(pauses[1:]) - min(pauses[1:]) > 0.03, pauses


def test_c12_a_shorter_reentry_does_not_shorten(
    server: SharedServer, client: snib.Client, name: str
) -> None:
    outer = client.rlock(name, lease=30.0)
    inner = client.rlock(name, lease=10.0)
    outer.acquire()
    inner.acquire()
    assert server.admin.pttl(name) > 25_000
    inner.release()
    assert server.admin.pttl(name) > 25_000
    outer.release()


def test_c13_a_hold_never_starts_with_a_neighbours_lease(
    server: SharedServer, client: snib.Client, name: str
) -> None:
    lost = client.lock(name, lease=0.2).hold()
    assert lost.lost.wait(PATIENCE)
    eventually(lambda: not server.admin.exists(name))
    with client.lock(name).hold():
        assert server.admin.pttl(name) > 25_000


def test_c14_the_holder_is_told_of_its_loss(
    server: SharedServer, quick: snib.Client, name: str
) -> None:
    hold = quick.lock(name).hold()
    server.admin.delete(name)
    assert hold.lost.wait(PATIENCE)
    with pytest.raises(snib.Lost):
        hold.release()

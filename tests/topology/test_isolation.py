"""Links that are cut silently: an unreachable shard, and an old master with clients on its side of the cut.

Measurements are appended to build/logs/isolation.jsonl; SNIB_TEST_ALL=1 takes longer.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from pathlib import Path

import pytest
from cluster import Cluster, slot_of
from history import MS, SECOND, Call, History
from load import BUILD, Load, now_ns
from network import Network
from node import Node, eventually
from report import quantile
from sentinels import Sentinels
from wire import Link, ReplyError

ALL = bool(os.environ.get("SNIB_TEST_ALL"))
LEASE_MS = 3000
LATE = 15 * SECOND
TICKS = os.sysconf("SC_CLK_TCK")


def note(**figures: object) -> None:
    folder = BUILD / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "isolation.jsonl", "a") as log:
        log.write(json.dumps(figures) + "\n")
    print(figures)


def cpu_s(load: Load) -> float:
    """Processor time that a load has used so far."""
    total = 0
    for process in load.processes.values():
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICKS


def takes_writes(server: Node) -> bool:
    """Whether the server accepts a write, or refuses it for want of replicas."""
    try:
        return bool(server.command("SET", "test", "1") == "OK")
    except ReplyError as error:
        assert "NOREPLICAS" in str(error)
        return False


def latencies(history: History, names: list[str], since: int, until: int) -> list[float]:
    """Latencies in ms of the calls that ended with a hold."""

    def counts(call: Call) -> bool:
        return call.name in names and not call.code and since <= call.asked and call.ended < until

    return [(call.ended - call.asked) / MS for call in history.calls if call.ended and counts(call)]


# ---- An unreachable shard ----------------------------------------------------------------------------


def test_black_holed_shard(tmp_path: Path, net: Network) -> None:
    """The other shards keep their holds and their latency, and the processor stays idle."""
    seconds = 60.0 if ALL else 6.0
    clients = net.place("clients")
    with Cluster(tmp_path / "cluster", network=net) as cluster:
        struck, *others = cluster.masters
        replica = cluster.replicas_of(struck)[0]
        names = [cluster.key_at(node, "n", nth) for node in others for nth in range(4)]
        held = [cluster.key_at(node, "held", nth) for node in others for nth in range(2)]
        dead = [cluster.key_at(struck, "dead", nth) for nth in range(2)]
        plan = {"counts": {"c": 1, "python": 1, "go": 1}, "within": clients.enter}
        quick = {"threads": 3, "hold_ms": 1, "lease_ms": LEASE_MS, "wait_ms": 300}
        long = {"threads": 2, "hold_ms": 12000, "check_ms": 5, "lease_ms": 6000, "wait_ms": 40000}
        with (
            Load(tmp_path / "quick", cluster.url, names + dead, **plan, **quick) as load,
            Load(tmp_path / "long", cluster.url, held, **plan, **long) as holders,
        ):
            load.await_back(now_ns())
            began, worked = now_ns(), cpu_s(load)
            time.sleep(seconds)
            cut, worked_before = now_ns(), cpu_s(load) - worked
            net.isolate(struck.name, replica.name)
            net.isolate(replica.name, struck.name)
            time.sleep(1)
            settled, worked = now_ns(), cpu_s(load)
            time.sleep(seconds)
            until, worked_during = now_ns(), cpu_s(load) - worked
            net.heal()
            since = now_ns()
            load.await_grant(since, dead)
            history, kept = load.end(), holders.end()
        changed = [node.name for node in others if node not in cluster.masters]
    assert history.unfinished() == kept.unfinished() == [], load.errors() + holders.errors()
    strange = [(h.name, h.who, h.code, h.reason) for h in kept.holds if h.code or h.lost]
    if strange and changed:
        pytest.skip(f"the machine was too busy to judge: the nodes took {changed} for dead, too")
    assert strange == []
    assert [h for h in history.holds if h.lost and h.name in names] == []
    assert [o for o in history.overlaps() if o.first.name in names] == []
    assert history.late(LATE) == []
    before = latencies(history, names, began, cut)
    during = latencies(history, names, settled, until)
    figures = {
        "seconds": seconds,
        "calls": [len(before), len(during)],
        "median_ms": [round(quantile(before, 0.5), 2), round(quantile(during, 0.5), 2)],
        "p99_ms": [round(quantile(before, 0.99), 2), round(quantile(during, 0.99), 2)],
        "cpu": [round(worked_before / seconds, 3), round(worked_during / seconds, 3)],
    }
    note(test="black-holed shard", **figures)
    assert during
    # A busy machine is slow at times; a client that waited for the dead shard would take 300 ms and more.
    assert quantile(during, 0.5) < max(3 * quantile(before, 0.5) + 20, 150)
    assert worked_during / seconds < worked_before / seconds + 0.5


# ---- An old master that is cut off, with clients ------------------------------------------------------


@pytest.mark.parametrize("guarded", [True, False])
def test_isolated_master(tmp_path: Path, net: Network, guarded: bool) -> None:
    """With min-replicas-to-write no name is granted on both sides; without it the old master continues."""
    names = ["a", "b", "c"]
    inside, outside = net.place("inside"), net.place("outside")
    # Replicas report their offsets once a second, and the master counts whole seconds: it continues for up to 2.5 s, so
    # a failover that completes sooner overlaps with it.
    lag_s = 1
    options = {"min_replicas": 1, "max_lag": lag_s, "down_ms": 4000} if guarded else {"down_ms": 600}
    apart_s = 15.0 if ALL else 8.0
    plan = {"threads": 2, "hold_ms": 20, "lease_ms": LEASE_MS, "wait_ms": 2000, "kind": "mutex"}
    plan["counts"] = {"c": 1, "python": 1, "go": 1}
    with (
        Sentinels(tmp_path / "world", failover_ms=1500, network=net, **options) as world,
        Load(tmp_path / "inside", world.url, names, within=inside.enter, **plan) as left,
        Load(tmp_path / "outside", world.url, names, within=outside.enter, **plan) as right,
    ):
        since = now_ns()
        left.await_back(since)
        right.await_back(since)
        old = world.master
        cut = now_ns()
        net.isolate("inside", old.name)  # first, or it would hear of the failover if this takes long
        net.isolate(old.name, "inside")
        world.await_failover(old)
        told = now_ns()
        right.await_back(told)
        time.sleep(max(0.0, apart_s - (now_ns() - cut) / SECOND))
        healed = now_ns()
        net.heal()
        eventually(lambda: old.role == "slave")
        demoted = now_ns()
        left.await_back(demoted)
        sides = [left.end(), right.end()]
    for side in sides:
        assert side.unfinished() == [], left.errors() + right.errors()
        assert side.late(LATE) == []
    granted_inside = [h.granted for h in sides[0].holds if cut <= h.granted < healed]
    granted_outside = [h.granted for h in sides[1].holds if told <= h.granted < healed]
    both = History([*sides[0].holds, *sides[1].holds])
    overlaps = [o.ns for o in both.overlaps() if cut <= o.second.granted < demoted]
    note(
        test="isolated master",
        guarded=guarded,
        apart_s=round((healed - cut) / SECOND, 2),
        announced_s=round((told - cut) / SECOND, 2),
        first_outside_s=round((min(granted_outside) - cut) / SECOND, 2),
        last_inside_s=round((max(granted_inside, default=cut) - cut) / SECOND, 2),
        demoted_after_s=round((demoted - healed) / SECOND, 2),
        grants_inside=sum(at > min(granted_outside) for at in granted_inside),
        overlaps=len(overlaps),
        longest_ms=round(max(overlaps, default=0) / MS, 1),
    )
    if guarded:
        assert max(granted_inside, default=cut) < min(granted_outside)
        assert overlaps == []
    else:
        assert max(granted_inside) > min(granted_outside)
    assert [o for o in both.overlaps() if o.second.granted >= demoted + LEASE_MS * MS] == []


class FormerReplica:
    """What a master hears of a replica whose packets were held up: acknowledgements, but of nothing new."""

    def __init__(self, master: Node) -> None:
        self.link = Link(master.socket)
        self.link.command("REPLCONF", "capa", "psync2")
        self.link.send("PSYNC", "?", -1)
        self.over = threading.Event()
        self.threads = [threading.Thread(target=run, daemon=True) for run in (self._listen, self._speak)]
        for thread in self.threads:
            thread.start()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while self.link.socket.recv(65536):
                pass

    def _speak(self) -> None:
        with contextlib.suppress(OSError):
            while not self.over.wait(0.1):
                self.link.send("REPLCONF", "ACK", 0)

    def end(self) -> None:
        self.over.set()
        with contextlib.suppress(OSError):
            self.link.socket.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join()
        self.link.close()


@pytest.mark.parametrize("durability", [0, 1])
def test_late_acknowledgements(tmp_path: Path, net: Network, durability: int) -> None:
    """With min-replicas-to-write an isolated master continues when packets of its former replicas reach it again: a
    server takes an acknowledgement for new whenever it arrives.  With `durability` it grants nothing even then."""
    inside = net.place("inside")
    options = {"min_replicas": 1, "max_lag": 1, "down_ms": 600, "failover_ms": 1500}
    plan = {"threads": 2, "hold_ms": 20, "lease_ms": LEASE_MS, "wait_ms": 2000, "kind": "mutex"}
    with (
        Sentinels(tmp_path / "world", network=net, **options) as world,
        Load(
            tmp_path / "load", f"{world.url}?durability={durability}", ["a", "b"], within=inside.enter, **plan
        ) as load,
    ):
        load.await_back(now_ns())
        old = world.master
        net.isolate("inside", old.name)  # first, or it would hear of the failover if this takes long
        net.isolate(old.name, "inside")
        world.await_failover(old)
        eventually(lambda: not takes_writes(old))
        refusing = now_ns()
        replica = FormerReplica(old)
        eventually(lambda: takes_writes(old))
        if durability:
            undone = now_ns()
            eventually(lambda: any(call.code and call.asked > undone for call in load.so_far().calls))
        else:
            load.await_grant(refusing)
        replica.end()
        healed = now_ns()
        net.heal()
        load.await_back(healed)
        history = load.end()
    assert history.unfinished() == [], load.errors()
    if durability:
        assert [hold for hold in history.holds if refusing <= hold.granted < healed] == []

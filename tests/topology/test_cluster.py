"""Locks on a cluster under load, with programs in C, Python and Go: slots that move, masters that fail."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from cluster import Cluster, slot_of
from history import SECOND
from load import Load, languages, now_ns

LATE = 15 * SECOND
NAMES = ["{one}a", "{one}b", "two", "three"]


@pytest.mark.parametrize("kind", ["mutex", "fair", "fenced"])
def test_moved_slots(tmp_path: Path, kind: str) -> None:
    """No program notices, in any language."""
    with (
        Cluster(tmp_path / "cluster") as cluster,
        Load(tmp_path / "load", cluster.url, NAMES, kind=kind, threads=2, hold_ms=10) as load,
    ):
        for i in range(12):
            slot = slot_of(NAMES[i % len(NAMES)])
            owner = cluster.owner(slot)
            cluster.move(slot, next(node for node in cluster.masters if node != owner))
            load.await_grant(now_ns(), names=[NAMES[i % len(NAMES)]])
        since = now_ns()
        load.await_back(since)
        history = load.end()
    assert len(history.started) == 2 * len(languages())
    assert history.unfinished() == history.missing(since) == [], load.errors()
    assert history.overlaps() == history.disorder() == []
    assert history.losses() == history.codes() == {}
    assert history.late(LATE) == []


def test_killed_master(tmp_path: Path) -> None:
    """All workers are back once its replica has taken over."""
    with (
        Cluster(tmp_path / "cluster") as cluster,
        Load(tmp_path / "load", cluster.url, NAMES, threads=2, hold_ms=10) as load,
    ):
        master = cluster.owner_of(NAMES[0])
        assert master is not None
        master.kill()
        cluster.await_failover(slot_of(NAMES[0]), master)
        since = now_ns()
        assert load.await_grant(since, names=NAMES[:2]) >= 0
        load.await_back(since)
        history = load.end()
    assert history.unfinished() == history.missing(since) == [], load.errors()
    assert history.late(LATE) == []
    assert set(history.losses()) <= {"failover", "unreachable", "taken", "deleted"}

"""A failover under load, by programs in C, Python and Go: everybody goes on, and what vanished is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from history import SECOND
from load import Load, languages, now_ns
from sentinels import Sentinels

LATE = 15 * SECOND
NAMES = ["a", "b", "c"]


@pytest.mark.parametrize("way", ["kill", "manual"])
def test_failover(tmp_path: Path, way: str) -> None:
    with (
        Sentinels(tmp_path / "world") as world,
        Load(tmp_path / "load", world.url, NAMES, kind="fenced", threads=2, hold_ms=10) as load,
    ):
        load.await_back(now_ns())  # all are at it
        if way == "kill":
            world.master.kill()
        else:
            world.failover()
        since = now_ns()
        load.await_back(since)
        history = load.end()
    assert len(history.started) == 2 * len(languages())
    assert history.unfinished() == history.missing(since) == [], load.errors()
    assert history.late(LATE) == []
    assert set(history.losses()) <= {"failover", "unreachable", "taken", "deleted"}

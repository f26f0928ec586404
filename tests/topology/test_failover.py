"""Failovers under load, with programs in C, Python and Go: all workers continue, and vanished holds are reported.

A few of each kind; with SNIB_TEST_ALL=1 two hundred, with figures in build/logs/failovers (report.py).
"""

from __future__ import annotations

import os
from pathlib import Path

import network
import pytest
from load import BUILD, languages
from report import Table
from rounds import LEASE_MS, NETWORKED, SHORT_LEASE_MS, TOPOLOGIES, WAYS, run

ALL = bool(os.environ.get("SNIB_TEST_ALL"))
ROUNDS = 200 if ALL else 2
# Generous, because a machine may be busy: the report judges short times.
LATE_MS, BACK_MS = 15_000, 30_000


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_failovers(tmp_path: Path, topology: str, way: str) -> None:
    if way in NETWORKED and (reason := network.why_not()):
        pytest.skip(reason)
    log = BUILD / "logs" / "failovers" if ALL else tmp_path / "log"
    (log / f"{topology}-{way}.jsonl").unlink(missing_ok=True)
    rounds = run(topology, way, ROUNDS, log, fine=ALL)
    assert len(rounds) == ROUNDS
    for each in rounds:
        assert len(each.back) == 2 * len(languages())
        assert max(each.back.values()) - each.announced < BACK_MS  # a slow machine's election takes longer
        assert len(each.taken) == 3
        assert max(each.taken.values()) - each.announced < BACK_MS < SHORT_LEASE_MS, each.taken
        assert each.late < LATE_MS
        # A hold that vanished is reported: another client was granted the lock after the failover, and the first holder
        # trusts its hold until its client has asked the new master, which is before the lease has ended.
        assert all(overlap["ms"] < LEASE_MS for overlap in each.overlaps), each.overlaps
        # Only a failover between two grants may do that, or let the tokens go back; by hand in a cluster nothing may.
        assert each.unexplained == [], each.unexplained
        # A release that was not confirmed within the patience reports that, or that the node is a replica by now.
        told = {"failover", "unreachable", "taken", "deleted", "release 4", "release -30", "release -33", "release -45"}
        assert set(each.lost) <= told, each.lost
        # Busy, timed out; or at its limit, while no node served the lock.
        assert set(each.codes) <= {1, 2, -30, -33, -45}, each.codes
    print(Table.read(log).text())

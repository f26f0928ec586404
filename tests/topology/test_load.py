"""The load harness reports the truth: for made-up histories, and for a healthy, broken and stopped server."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from deployment import Single
from history import MS, SECOND, History, histogram
from load import Load, languages, now_ns
from node import eventually

# Calls do not return to the microsecond, and a machine may be busy.
LATE = 15 * SECOND


def history(*logs: str, cut: str = "") -> History:
    made = History()
    for log in logs:
        made.add("\n".join(line.strip() for line in log.strip().splitlines()) + "\n" + cut)
    return made


# ---- Made-up histories -----------------------------------------------------------------------------


def test_overlap() -> None:
    told = history(
        f"""start 0 c/0
        ask 0 c/0 a 1000
        grant {10 * MS} c/0 a c-1 7
        lost {90 * MS} c/0 a c-1 {80 * MS} failover
        release {91 * MS} c/0 a c-1 {80 * MS} {90 * MS} 4""",
        f"""start 0 p/0
        ask 0 p/0 a 1000
        grant {50 * MS} p/0 a p-1 7
        release {61 * MS} p/0 a p-1 {60 * MS} {60 * MS} 0
        ask {62 * MS} p/0 b 1000
        grant {63 * MS} p/0 b p-2 0
        end {70 * MS} p/0""",
    )
    (overlap,) = told.overlaps()
    assert (overlap.first.id, overlap.second.id, overlap.ns) == ("c-1", "p-1", 10 * MS)
    assert overlap.told_after == 40 * MS
    assert told.untold() == []
    assert told.disorder() == []  # concurrent holds have no order
    assert told.losses() == {"failover": 1}
    assert told.unfinished() == ["c/0"]
    assert "below     16 ms: 1" in told.summary()


def test_untold_overlap_and_order() -> None:
    told = history(
        f"""start 0 c/0
        ask 0 c/0 a 1000
        grant {10 * MS} c/0 a c-1 7
        release {91 * MS} c/0 a c-1 {80 * MS} {90 * MS} 0""",
        f"""start 0 p/0
        ask 0 p/0 a 1000
        grant {50 * MS} p/0 a p-1 8
        release {61 * MS} p/0 a p-1 {60 * MS} {60 * MS} 0
        ask {99 * MS} p/0 a 1000
        grant {100 * MS} p/0 a p-2 8""",
    )
    assert len(told.untold()) == 1
    assert [(a.id, b.id) for a, b in told.disorder()] == [("p-1", "p-2")]


def test_a_hold_that_was_over_when_its_call_returned() -> None:
    """Its process was stopped in the call.  It has no place in the order; one that was valid then has."""
    for checked, found in ((60, []), (61, [("p-1", "c-1")])):
        told = history(
            f"""start 0 c/0
            ask 0 c/0 a 1000
            grant {60 * MS} c/0 a c-1 7
            lost {62 * MS} c/0 a c-1 {checked * MS} unreachable
            release {63 * MS} c/0 a c-1 {checked * MS} {62 * MS} 4""",
            f"""start 0 p/0
            ask 0 p/0 a 1000
            grant {50 * MS} p/0 a p-1 8
            release {56 * MS} p/0 a p-1 {55 * MS} {55 * MS} 0""",
        )
        assert [(a.id, b.id) for a, b in told.disorder()] == found


def test_calls() -> None:
    told = history(
        f"""start 0 c/0
        ask 0 c/0 a 100
        fail {101 * MS} c/0 a 0 2
        ask {200 * MS} c/0 a 100
        fail {250 * MS} c/0 a {200 * MS} -30
        ask {300 * MS} c/0 a 100
        grant {301 * MS} c/0 a c-1 0
        release {900 * MS} c/0 a c-1 {310 * MS} {310 * MS} 0
        ask {910 * MS} c/0 a 100""",
        cut="gra",
    )
    assert told.codes() == {2: 1, -30: 1}
    assert told.codes(since=200 * MS) == {-30: 1}
    assert [call.asked for call in told.late()] == [0, 910 * MS]
    assert [call.asked for call in told.late(by_ns=10 * MS)] == [910 * MS]
    assert told.longest_release() == 590 * MS


def test_back() -> None:
    told = history(
        "start 0 c/0\nask 0 c/0 a 100\ngrant 10 c/0 a c-1 0\nask 11 c/0 b 100\ngrant 50 c/0 b c-2 0",
        "start 0 p/0\nask 0 p/0 a 100\ngrant 40 p/0 a p-1 0",
    )
    assert told.first_grant(20) == 20
    assert told.first_grant(20, ["b"]) == 30
    assert told.first_grant(60) is None
    assert told.back(45) == {"c/0": 5, "p/0": None}
    assert told.missing(45) == ["p/0"]


def test_histogram() -> None:
    assert histogram([]) == []
    assert histogram([0, MS, 3 * MS, 3 * MS]) == [
        "  below      1 ms: 1",
        "  below      2 ms: 1",
        "  below      4 ms: 2",
    ]


# ---- Workers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["fenced", "mutex", "fair"])
def test_all_is_well(tmp_path: Path, kind: str) -> None:
    with (
        Single(tmp_path / "one") as one,
        Load(tmp_path / "load", one.url, ["a", "b"], kind=kind, threads=2, hold_ms=10) as load,
    ):
        since = now_ns()
        load.await_back(since)
        history = load.end()
    assert len(history.started) == 2 * len(languages())
    assert history.unfinished() == history.missing(since) == [], load.errors()
    assert history.overlaps() == history.disorder() == []
    assert history.losses() == history.codes() == {}
    assert history.late(LATE) == []
    assert all(hold.code == 0 and hold.released for hold in history.holds)
    assert all((hold.token > 0) == (kind == "fenced") for hold in history.holds)


def test_forgotten_locks(tmp_path: Path) -> None:
    """A server that loses its data again and again: holders overlap, and each learns of it by its next renewal."""
    plan = {"threads": 2, "hold_ms": 900, "lease_ms": 900, "think_ms": 0, "wait_ms": 40}

    def seen() -> bool:
        one.node.command("FLUSHALL")
        told = load.so_far()
        return bool(
            told.losses().get("deleted", 0) + told.losses().get("taken", 0) and told.overlaps()
        )

    with (
        Single(tmp_path / "one") as one,
        Load(tmp_path / "load", one.url, ["a"], **plan) as load,
    ):
        eventually(seen, nap=plan["lease_ms"] / 4000)  # a renewal finds the grant made in between
        history = load.end()
    assert history.unfinished() == [], load.errors()
    assert history.overlaps(), history.summary()
    assert history.untold() == []


def test_stopped_server(tmp_path: Path) -> None:
    with (
        Single(tmp_path / "one") as one,
        Load(tmp_path / "load", one.url, ["a", "b"], threads=2, lease_ms=1000, wait_ms=500) as load,
    ):
        one.node.stop()
        time.sleep(2.5)  # longer than two leases
        one.node.go_on()
        since = now_ns()
        assert load.await_grant(since) >= 0
        load.await_back(since)
        history = load.end()
    assert history.overlaps() == []
    assert history.late(LATE) == []
    assert set(history.losses()) <= {"unreachable", "expired"}


def test_killed_worker(tmp_path: Path) -> None:
    """The worker is missing, and its lock is granted again when the lease has ended."""
    with (
        Single(tmp_path / "one") as one,
        Load(tmp_path / "load", one.url, ["a"], counts={"c": 2}, lease_ms=1000) as load,
    ):
        load.processes["c0"].kill()
        since = now_ns()
        eventually(
            lambda: {who.split("/")[0] for who in load.so_far().missing(since)} == {"c0"}
        )
        history = load.end()
    assert {who.split("/")[0] for who in history.unfinished()} == {"c0"}
    assert {who.split("/")[0] for who in history.missing(since)} == {"c0"}
    assert history.overlaps() == []

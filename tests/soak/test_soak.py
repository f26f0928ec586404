"""The soak finds what it is for: a leak, an overlap, a token that goes back; and a minute of it in which all is well.

With SNIB_TEST_ALL=1 half an hour, beside an older version of the library.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), *(str(HERE.parent / folder) for folder in ("topology", "interop", "histories"))]

import older  # noqa: E402
import recorders  # noqa: E402
import rounds  # noqa: E402
from announce import Announcement, by_themselves  # noqa: E402
from arguments import OLD  # noqa: E402
from cluster import Cluster, slot_of  # noqa: E402
from flat import FEWEST, MOST, Curve  # noqa: E402
from history import MS, SECOND  # noqa: E402
from node import Node  # noqa: E402
from recorders import BUILD  # noqa: E402
from soak import prepare  # noqa: E402
from verdict import Failover, Verdict, explained, losses, read, writes  # noqa: E402
from worlds import PERMITS, Deployed, Plan, World, deal  # noqa: E402

ALL = bool(os.environ.get("SNIB_TEST_ALL"))


# ---- The plan ------------------------------------------------------------------------------------


def plan(seed: str, deployment: str = "single") -> list[tuple[float, str, str, float]]:
    return list(itertools.islice(Plan(deployment, "mutex", ["c", "python", "go", "java"], seed).faults(), 500))


@pytest.mark.parametrize("deployment", ["single", "cluster"])
def test_seed_repeats_the_plan(deployment: str) -> None:
    faults = plan("1", deployment)
    assert faults == plan("1", deployment)
    assert faults != plan("2", deployment)
    dying = {language for _, fault, language, _ in faults if fault in ("kill", "upgrade")}
    assert dying == {"python", "go"}  # the first language lives as long as the soak, and Java starts slowly


def test_deal() -> None:
    dealt = dict(deal(["single:mutex", "sentinel:fenced"], 7, ["c", "python", "go", "java"]))
    assert dealt == {"single:mutex": ["c", "python", "go", "java"], "sentinel:fenced": ["python", "go", "c"]}


# ---- Flat or not ---------------------------------------------------------------------------------


def curve(seconds: float, samples: int, *growth: float, me: str = "c0") -> Curve:
    """Noise and peaks above a warm-up; growth is that of KiB, descriptors and threads over all the time."""
    chance = random.Random(1)
    made = Curve(me)
    for i in range(samples):
        share = i / samples
        level = [2000 + min(1, 8 * share) * 8000 + chance.randrange(400), 20 + chance.randrange(3), 6]
        if chance.random() < 0.05:
            level = [level[0] + 30000, level[1] + 40, level[2] + 8]
        seen = [int(a + share * b) for a, b in itertools.zip_longest(level, growth, fillvalue=0)]
        made.add(share * seconds, (seen[0], seen[1], seen[2]))
    return made


@pytest.mark.parametrize("seconds", [60, 12 * 3600])
def test_flat(seconds: float) -> None:
    assert curve(seconds, 400).leaks() == []


def test_slow_leaks() -> None:
    """In twelve hours a megabyte or a descriptor an hour is found, and half a thread."""
    (memory,) = curve(12 * 3600, 400, 12 * 1024).leaks()
    assert "KiB" in memory
    (descriptors,) = curve(12 * 3600, 400, 0, 12).leaks()
    assert "descriptors" in descriptors
    (threads,) = curve(12 * 3600, 400, 0, 0, 6).leaks()
    assert "threads" in threads


def test_fast_leaks() -> None:
    assert len(curve(60, 40, 100 << 10, 100, 100).leaks()) == 3
    assert curve(60, 40, 4 << 10, 4, 4).leaks() == []  # which is still warming up
    assert curve(60, FEWEST - 1, 100 << 10, 100, 100).leaks() == []


def test_curves_are_bounded() -> None:
    long = curve(1e6, 6 * MOST, 0, 100)
    assert FEWEST < len(long.samples) <= MOST
    assert long.leaks()
    assert len(long.points()) == 12


# ---- Windows with failovers ----------------------------------------------------------------------


def judged(folder: Path, *failovers: tuple[int, int], of: str = "a", loses: bool = True) -> Verdict:
    """With failovers of the master that serves this name."""
    made = [Failover(a * MS, b * MS, [of], loses) for a, b in failovers]
    return explained(read(folder), writes(folder), losses(made, {"a": [], "b": []})[0], 3000)


def window(folder: Path, second: int, token: int, until: int = 80) -> None:
    """c holds from 10 ms and believes it until `until`; p holds from `second`, with that token."""
    (folder / "plan.log").write_text("plan 0 a fenced 0 3000\nwrote 1 a c0-1 7 1\n")
    (folder / "c0.log").write_text(
        f"""start 0 c0/0
ask 0 c0/0 a 1000
grant {10 * MS} c0/0 a c0-1 7 x owner
use {20 * MS} c0/0 a c0-1 {11 * MS} 0 1 {12 * MS}
lost {(until + 10) * MS} c0/0 a c0-1 {until * MS} failover
release {(until + 11) * MS} c0/0 a c0-1 {until * MS} {(until + 10) * MS} 4
"""
    )
    (folder / "python0.log").write_text(
        f"""start 0 python0/0
ask 0 python0/0 a 1000
grant {second * MS} python0/0 a python0-1 {token} x owner
release {(until + 90) * MS} python0/0 a python0-1 {(until + 80) * MS} {(until + 81) * MS} 0
"""
    )


def test_in_turn(tmp_path: Path) -> None:
    window(tmp_path, 85, 8)
    verdict = judged(tmp_path)
    assert (verdict.refused, verdict.overlaps, verdict.updates) == ([], 0, 1)


def test_overlap_needs_a_failover(tmp_path: Path) -> None:
    window(tmp_path, 50, 8)
    assert "no failover was between" in judged(tmp_path).refused[0]
    assert judged(tmp_path, (60, 70)).refused  # afterwards
    assert judged(tmp_path, (20, 40), of="b").refused  # which another master serves
    assert judged(tmp_path, (20, 40), loses=False).refused
    verdict = judged(tmp_path, (20, 40))
    assert (verdict.refused, verdict.overlaps) == ([], 1)


def test_overlap_ends_before_the_lease(tmp_path: Path) -> None:
    window(tmp_path, 50, 8, 5000)
    (refused,) = judged(tmp_path, (20, 40)).refused
    assert "longer than the lease" in refused


def test_tokens_go_back_in_failovers_only(tmp_path: Path) -> None:
    window(tmp_path, 85, 7)
    assert "token 7" in judged(tmp_path).refused[0]
    assert judged(tmp_path, (82, 84), of="b").refused and judged(tmp_path, (82, 84), loses=False).refused
    assert judged(tmp_path, (82, 84)).refused == []


def test_failovers_that_nobody_made() -> None:
    """What a node reports first is no change, and what a fault has changed is not found again."""
    a, b = (cast(Node, name) for name in "ab")
    told = [(1, a, "x"), (2, b, "x"), (9, a, "y"), (10, b, "y"), (11, b, "z"), (30, b, "x")]
    heard = [Announcement(at * SECOND, by, what) for at, by, what in told]
    known = [(8 * SECOND, 12 * SECOND)]
    assert by_themselves(heard, known) == [(8 * SECOND, 16 * SECOND), (27 * SECOND, 35 * SECOND)]
    assert by_themselves(heard[:4], known) == []
    assert by_themselves(heard[:5], known) == [(8 * SECOND, 16 * SECOND)]  # a second one, on the heels of the first
    assert by_themselves(heard[:4], []) == [(6 * SECOND, 15 * SECOND)]


@pytest.mark.parametrize("token", [8, 0])
def test_update_is_lost(tmp_path: Path, token: int) -> None:
    """Nothing is promised at the resource without tokens."""
    window(tmp_path, 85, token)
    with open(tmp_path / "plan.log", "a") as log:
        log.write(f"wrote 2 a python0-1 {token} 1\n")
    refused = judged(tmp_path).refused
    assert (len(refused) == 1 and "an update is lost" in refused[0]) if token else refused == []
    assert judged(tmp_path, (82, 84)).refused == []
    assert bool(token) == bool(judged(tmp_path, (82, 84), of="b").refused)


def test_failover_that_nobody_made_of_another_name() -> None:
    """A change of one name's master is none of another's, nor what a failover by hand has changed."""
    node = cast(Node, "a")
    heard = [Announcement(at * SECOND, node, what) for at, what in ((1, "x"), (9, "y"))]
    by_hand = Failover(8 * SECOND, 10 * SECOND, ["a"], loses=False)
    assert losses([], {"a": heard, "b": []}) == ({"a": [(6 * SECOND, 14 * SECOND)], "b": []}, 1)
    assert losses([by_hand], {"a": heard, "b": []}) == ({"a": [], "b": []}, 0)
    assert losses([by_hand], {"a": heard, "b": heard}) == ({"a": [], "b": [(6 * SECOND, 14 * SECOND)]}, 1)
    assert losses([], {"a": heard, "b": heard})[1] == 1  # sentinels have one master


@pytest.mark.parametrize(("way", "alarms", "loses"), [("kill", 0, True), ("manual", 0, False), ("manual", 1, True)])
def test_failover_in_a_cluster(tmp_path: Path, way: str, alarms: int, loses: bool) -> None:
    """It is one of the names that its master served; by hand nothing is lost, unless a node is taken for dead."""

    class Made(Deployed):
        def deploy(self) -> None:
            self.failovers = []
            self.rounds = Rounds()

    class Node:
        told = 0

        def command(self, *_: str) -> str:
            return f"cluster_state:ok\r\ncluster_stats_messages_fail_sent:{self.told}\r\n"

    class Them(Cluster):
        def __init__(self) -> None:
            self.nodes: Any = [Node()]

        await_failover: Any = lambda *_: None
        slots: Any = lambda self, name: [slot_of(name)]

    class Rounds(rounds.World):
        def __init__(self) -> None:
            self.them = Them()

        master: Any = property(lambda self: next(name for name in world.names if slot_of(name) == self.slot))
        rest: Any = lambda self: None
        heal: Any = lambda *_: None

        def strike(self, _: object) -> None:
            Node.told += alarms

    world = Made(Plan("cluster", "fenced", ["c"], "1"), tmp_path / "it", tmp_path)
    world.deploy()
    world.conductor.all_served = AsyncMock()  # type: ignore[method-assign]
    assert asyncio.run(world._failover(way))
    (made,) = world.failovers
    assert (made.loses, len(made.names)) == (loses, 1) and slot_of(made.names[0]) == world.rounds.slot
    assert made.begin < made.end


# ---- Whole soaks ---------------------------------------------------------------------------------


def soak(name: str, *words: str) -> list[str]:
    return [sys.executable, str(HERE / "soak.py"), "--report", str(BUILD / f"logs/soak-{name}"), *words]


def reported(name: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((BUILD / f"logs/soak-{name}/report.json").read_text())
    return told


TWO = ("--processes", "2", "--worlds", "single:mutex", "--languages", "c,python", "--old", "none", "--think-ms", "100")


@pytest.mark.parametrize(("kind", "keys", "left"), [
    ("mutex", {"mutex0": 5000, "snib_fence:{mutex0}": -1}, []),
    ("mutex", {"mutex1": -1}, ["mutex1"]),
    ("fair", {"redisson_lock_queue:{fair0}": -1, "{fair0}:other": -1}, ["{fair0}:other"]),
    ("permits", {}, []),
    ("permits", {"permits1:more": -1}, ["permits1:more"]),
    ("permits", {"permits0": 4}, ["5 permits of permits0"]),
])
def test_what_is_left(tmp_path: Path, kind: str, keys: dict[str, int], left: list[str]) -> None:
    class Server:
        def command(self, word: str, key: str) -> object:
            if word == "KEYS":
                return [each for each in keys if key.strip("*") in each]
            return {"GET": keys.get(key, PERMITS - 1), "ZCARD": 1, "TTL": keys.get(key)}[word]

    class Made(World):
        def server(self, name: str) -> Any:
            return Server()

    assert Made(Plan("single", kind, ["c"], "1"), tmp_path / "it", tmp_path)._left() == left


@pytest.mark.timeout(7200)
def test_all_is_well() -> None:
    if ALL:
        words = ["--seconds", "1800", "--processes", "32", "--old", OLD]
    else:
        worlds = "single:mutex,sentinel:fenced"
        words = ["--seconds", "60", "--processes", "7", "--worlds", worlds, "--old", "none", "--window", "20"]
        words += ["--gap", "2", "--think-ms", "250"]
    old = {f"{language}.old" for language in ("c", "python", "go")} if ALL else set()
    done = subprocess.run(soak("minute", *words), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    told = reported("minute")
    languages = set(os.environ.get("SNIB_SOAK_LANGUAGES", "c,python,go,java").split(","))
    granted = {language for world in told["worlds"] for language in world["grants"]}
    assert {language.partition(".")[0] for language in granted} == languages
    assert bool(told["old"]) == ALL and {language for language in granted if "." in language} == old
    assert all(world["windows"] and world["faults"] for world in told["worlds"])


def test_an_old_version_that_is_not_there() -> None:
    """Only if none was asked for there may be none."""
    done = subprocess.run(soak("old", "--seconds", "1", "--old", "no-such-commit"), capture_output=True, text=True)
    assert done.returncode == 1
    assert "soak: no old version: there is no commit no-such-commit here" in done.stderr


@pytest.mark.parametrize(("old", "ends"), [(None, False), ("none", False), ("HEAD", True)])
def test_an_old_version_that_is_not_built(monkeypatch: pytest.MonkeyPatch, old: str | None, ends: bool) -> None:
    def build(*_: object) -> None:
        raise RuntimeError("gcc: no such file")

    monkeypatch.setattr(older, "build", build)
    monkeypatch.setattr(recorders, "PROGRAMS", {**recorders.PROGRAMS})
    given = argparse.Namespace(old=old)
    if ends:
        with pytest.raises(SystemExit, match="no old version: gcc"):
            prepare(given)
    else:
        prepare(given)
        assert given.old == ""


@pytest.mark.timeout(1200)
def test_planted_leak() -> None:
    done = subprocess.run(soak("leak", "--plant", "leak", "--seconds", "600", *TWO), capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    wrong = " ".join(reported("leak")["wrong"])
    assert "python.leaky0" in wrong and "KiB" in wrong and "c0" not in wrong


@pytest.mark.timeout(1200)
def test_planted_overlap() -> None:
    words = ("--plant", "overlap", "--seconds", "600", "--window", "5", *TWO)
    done = subprocess.run(soak("overlap", *words), capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "not linearizable" in " ".join(reported("overlap")["wrong"])
    assert list((BUILD / "logs/soak-overlap").glob("single-mutex-window*/verdict"))


@pytest.mark.timeout(1200)
def test_interrupt() -> None:
    """Ctrl-C ends it in order: what was recorded is judged, and the report is written."""
    words = soak("interrupt", "--hours", "1", *TWO)
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        line = next(line for line in process.stdout if "take part" in line)
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
    assert process.returncode == 0, line + rest
    told = reported("interrupt")
    assert told["interrupted"] and told["worlds"][0]["windows"] == 1

"""What the simulators' worlds have contained: what is missing is found, and what should not be there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import seen  # noqa: E402
from seen import PROGRAMS, Seen, Table  # noqa: E402


@pytest.fixture
def table() -> Table:
    return Table()


def everything(table: Table) -> Seen:
    """Each pair and each transition, twice."""
    all_of = Seen()
    for simulator in PROGRAMS:
        for pair in seen.pairs_of(simulator):
            times = 0 if (simulator, pair) in table.apart else 2
            all_of.read(simulator, f"pair {' '.join(pair)} {times}")
    for one in table.transitions:
        all_of.read("sim", f"transition {' '.join(one)} 2")
    return all_of


def test_the_table_is_right(table: Table) -> None:
    assert table.problems() == []
    assert everything(table).problems(table, 2) == []


def test_a_pair_that_has_not_met(table: Table) -> None:
    all_of = everything(table)
    all_of.pairs["group"][frozenset({"cut", "restart"})] = 0
    assert all_of.problems(table, 1) == ["group: cut and restart have met in 0 worlds, not in 1"]
    assert len(everything(table).problems(table, 3)) == sum(map(len, all_of.pairs.values())) - len(table.apart)


def test_a_pair_that_cannot_meet_and_has(table: Table) -> None:
    all_of = everything(table)
    all_of.read("topology", "pair watch slot 1")
    assert all_of.problems(table, 1) == ["topology: slot and watch have met, which seen.toml calls impossible"]


def test_transitions(table: Table) -> None:
    all_of = everything(table)
    del all_of.transitions["exclusive-hold", "held", "lost"]
    all_of.read("sim", "transition exclusive-hold lost held 1\ntransition subscription on none 1")
    assert all_of.problems(table, 1) == [
        "exclusive-hold held lost was never seen",
        "exclusive-hold lost held was seen, and is not listed",
    ]


def test_what_is_seldom(table: Table) -> None:
    all_of = everything(table)
    del all_of.transitions["subscription", "refused", "on"]
    assert all_of.problems(table, 1, long=False) == []
    assert all_of.problems(table, 1) == ["subscription refused on was never seen"]


def test_wrong_tables(table: Table) -> None:
    table.several["lane", "ready", "connecting"] = [("lane", "ready", "down"), ("lane", "down", "ready")]
    table.several["lane", "ready", "down"] = [("lane", "ready", "down")]
    table.seldom.add(("lane", "ready", "gone"))
    table.apart["group", frozenset({"cut", "watch"})] = "no sentinels"
    assert table.problems() == [
        "lane ready down is in both lists",
        "lane ready connecting leads over lane down ready, which is no transition",
        "lane ready gone is seldom, and no transition",
        "the simulator group has no fault watch",
    ]


def test_a_simulator_that_fails(tmp_path: Path) -> None:
    program = tmp_path / PROGRAMS["group"]
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(SystemExit, match="sim_group --seen --focused --seeds 1-231 failed"):
        seen.run_rounds(tmp_path, "group", Seen(), 1)


def test_more_worlds_of_a_rare_pair(table: Table, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The pair is the subject of every 231st seed; the third of them shows it."""
    all_of, ran = everything(table), []
    pair = list(all_of.pairs["group"])[7]
    all_of.pairs["group"][pair] = 0

    def run(build: Path, simulator: str, first: int, last: int) -> str:
        ran.append((first, last))
        return f"pair {' '.join(pair)} {int(len(ran) == 3)}"

    monkeypatch.setattr(seen, "run", run)
    seen.run_more(tmp_path, "group", all_of, table, 1, 1)
    assert ran == [(231 * more + 7,) * 2 for more in (2, 3, 4)]
    assert all_of.problems(table, 1) == []

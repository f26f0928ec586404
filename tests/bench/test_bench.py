"""The benchmark harness itself: consistent rows, arguments, the page.  No row is run."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import report  # noqa: E402
from harness import Sample, Subject  # noqa: E402
from parts import Check, Row, throughput  # noqa: E402
from run import all_rows, main  # noqa: E402
from servers import Failed  # noqa: E402
from watch import follow  # noqa: E402


Bench = Callable[..., int]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Run the program with these arguments; returns its exit status."""

    def call(*words: object) -> int:
        monkeypatch.setattr(sys, "argv", ["run.py", *map(str, words)])
        try:
            return main()
        except SystemExit as end:
            return int(end.code or 0)

    return call


# ---- Rows ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("quick", [False, True])
def test_rows(quick: bool) -> None:
    rows = all_rows(quick)
    assert len({row.name for row in rows}) == len(rows)
    for row in rows:
        for check in row.checks:
            assert {*check.seats, *check.any_of} <= row.seats.keys(), (row.name, check.what)
        assert row.checks and all(seat.kinds for seat in row.seats.values())


# ---- Arguments -----------------------------------------------------------------------------------


def test_list(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("--list") == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert listed == [row.name for row in all_rows(False)]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--only", "c1", "--only", "nope"], "no such row: nope; --list names them"),
        (["--rounds", "0"], "'0' is not a number of rounds"),
        (["--rounds", "-1"], "'-1' is not a number of rounds"),
        (["--rounds", "many"], "'many' is not a number of rounds"),
        (["--json", "FOLDER"], "is a folder; name a file"),
        (["--markdown", "FOLDER/none/page.md"], "there is not a folder"),
        (["--plot", "FOLDER/none/plot.svg"], "there is not a folder"),
        (["--build", "FOLDER/file"], "is not a folder"),
        (["--beside", "FOLDER/none.json"], "cannot be read: No such file or directory"),
        (["--beside", "FOLDER/file"], "has no figures that --json has written"),
        (["--from", "FOLDER"], "cannot be read: Is a directory"),
        (["--quic"], "unrecognized arguments: --quic"),
        (["c1"], "unrecognized arguments: c1"),
    ],
)
def test_bad_input(
    bench: Bench, capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str], why: str
) -> None:
    (tmp_path / "file").touch()
    assert bench(*(word.replace("FOLDER", str(tmp_path)) for word in words)) == 2
    assert why in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_usable_arguments_are_only_looked_at(bench: Bench, tmp_path: Path) -> None:
    assert bench("--check", "--only", "c1", "--rounds", "3", "--build", tmp_path / "build") == 0
    assert list(tmp_path.iterdir()) == []


# ---- Subjects ------------------------------------------------------------------------------------

READY = "import sys; print('ready', flush=True)"


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("raise SystemExit('no such thing')", "ended with 1: no such thing"),
        ("print('hello', flush=True); input()", "is not ready"),
        (f"{READY}; sys.exit('gone between turns')", "ended with 1: gone between turns"),
        (f"{READY}; input(); sys.exit('gone in a turn')", "ended with 1: gone in a turn"),
    ],
)
def test_a_subject_that_fails(tmp_path: Path, program: str, why: str) -> None:
    with pytest.raises(Failed, match=why):
        subject = Subject([[sys.executable, "-c", program]], tmp_path, os.sched_getaffinity(0))
        try:
            if "between" in program:
                subject.processes[0].wait()
            subject.begin(0.01)
            subject.answers(0.01)
        finally:
            subject.stop()


# ---- The page ------------------------------------------------------------------------------------


def sample(rate: float) -> Sample:
    return Sample(rate, commands=2, client_us=10, server_us=20, others=0.01)


ROW = Row(
    "made-up",
    "a made-up row",
    dict.fromkeys(("snib", "one", "other"), None),
    [
        throughput("snib", ("one", "other"), "the best", 1.5),
        throughput("snib", ("other",), "the other", 2),
    ],
    notes=["A note."],
)


def page(row: Row, rounds: list[dict[str, Sample]], missing: dict[str, str], asked: int = 2) -> str:
    result = report.row_result(row, rounds, missing) | {"wakes": {}}
    facts = {"machine": "this one"}
    whole = {"command": "./dev bench", "day": "2026-01-02", "machine": facts, "rounds": asked}
    return report.markdown(whole | {"rows": [result]}, None)


def test_page() -> None:
    rounds = [{"snib": sample(300), "one": sample(100), "other": sample(n)} for n in (150, 250)]
    text = page(ROW, rounds, {})
    assert "| a made-up row | throughput against the best | >= 1.5 x | 1.60 x | 1.20 - 2.00 |" in text
    assert "1 of 2 targets reached; missed: made-up (throughput against the other)." in text
    assert "| a made-up row | snib | 300 | 10.0 | 20.0 | 2.00 |" in text
    assert "* a made-up row: A note." in text
    assert "missing" not in text


def test_page_with_something_missing() -> None:
    """The best of the available rivals, and why another one is missing."""
    rounds = [{"snib": sample(300), "one": sample(100)}]
    text = page(ROW, rounds, {"other": "other: not to be had"})
    assert "| a made-up row, *1 round* | throughput against the best | >= 1.5 x | 3.00 x |" in text
    assert "|  | throughput against the other | >= 2 x | - |  | missing |" in text
    assert "1 of 2 targets reached; missing: made-up (throughput against the other)." in text
    assert "* a made-up row: other: not to be had" in text


def test_page_without_anything() -> None:
    text = page(ROW, [], {name: f"{name}: no" for name in ROW.seats})
    assert "0 of 2 targets reached; missing: made-up (throughput against the best)," in text
    assert "* a made-up row: one: no; other: no; snib: no" in text


def test_what_are_no_pairs_has_no_pairs_a_second() -> None:
    check = Check("threads", "", ("snib",), lambda r: 1, 1, most=True, unit="")
    row = Row("holds", "many holds", {"snib": None}, [check], pairs=False)
    text = page(row, [{"snib": sample(300)}] * 2, {})
    assert "| many holds | threads | <= 1 | 1.00 | 1.00 - 1.00 | reached |" in text
    assert "300" not in text.partition("## Absolute")[2]


def test_commands_that_cannot_be_told() -> None:
    """Commands of Redisson and Snib clients together: their scripts call different commands."""
    row = Row("both", "both", {"snib": None}, [])
    text = page(row, [{"snib": Sample(300, commands=None, client_us=10, server_us=20)}] * 2, {})
    assert "| both | snib | 300 | 10.0 | 20.0 | - |" in text


# ---- The watch of fair locks -----------------------------------------------------------------------


def test_overtaking_is_seen() -> None:
    def script(*lines: bytes) -> list[bytes]:
        return [b'+1.0 [0 127.0.0.1:1] "EVALSHA"', *(b"+1.0 [0 lua] " + line for line in lines)]

    queue = b'"rpush" "redisson_lock_queue:{x}" "%b"'
    waits = [script(queue % name) for name in (b"a", b"b")]
    first = [script(b'"hset" "x" "a" "1"'), script(b'"hdel" "x" "a"', b'"hset" "x" "b" "1"')]
    last = [script(b'"hset" "x" "b" "1"'), script(b'"hdel" "x" "b"', b'"hset" "x" "a" "1"')]
    for grants, inversions in ((first, 0), (last, 1)):
        fairness = follow(sum([*waits, *grants], []), "x")
        assert (fairness.grants, fairness.inversions) == (2, inversions)


def test_page_with_another_machine(bench: Bench, tmp_path: Path) -> None:
    """An earlier run's page, with the figures of another machine; a row that it does not have is left empty."""

    def figures(rate: float, machine: dict[str, str], *names: str) -> dict:
        rounds = [{"snib": sample(rate), "one": sample(100), "other": sample(150)}]
        rows = [report.row_result(ROW, rounds, {}) | {"name": name, "title": name} for name in names]
        whole = {"command": "./dev bench", "day": "2026-01-02", "machine": machine, "rounds": 1}
        return whole | {"rows": rows}

    here = figures(300, {"machine": "this one", "core": "a"}, "both", "alone")
    there = figures(150, {"machine": "that one", "core": "a"}, "both")
    (tmp_path / "here").write_text(json.dumps(here))
    (tmp_path / "there").write_text(json.dumps(there | {"day": "2025-03-04"}))
    (tmp_path / "build").mkdir()
    words = ["--from", "here", "--beside", "there", "--markdown", "page", "--build", "build"]
    assert bench(*(word if word.startswith("--") else tmp_path / word for word in words)) == 0
    text = (tmp_path / "page").read_text()
    assert "by `./dev bench` on 2026-01-02" in text
    assert "| machine | this one | that one |\n| core | a | the same |\n" in text
    assert "of 2025-03-04, with 0 of 2 targets reached." in text
    assert "| both | throughput against the best | >= 1.5 x | 2.00 x | 2.00 - 2.00 | reached | 1.00 x missed |" in text
    assert "| alone | throughput against the best | >= 1.5 x | 2.00 x | 2.00 - 2.00 | reached |  |" in text

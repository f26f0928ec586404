"""The table of faults, the figures and the page: what is wrong is found."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import faults  # noqa: E402
import figures  # noqa: E402
import page  # noqa: E402
from faults import Fault  # noqa: E402

LIVE = "tests/faults/cuts.c: late_request"


@pytest.fixture
def table() -> list[Fault]:
    return faults.read()


def wrong_with(table: list[Fault], **changed: object) -> str:
    """What is wrong with the table when its first row is changed."""
    return "\n".join(faults.problems([replace(table[0], **changed), *table[1:]]))  # type: ignore[arg-type]


def test_the_table_is_right(table: list[Fault]) -> None:
    assert faults.problems(table) == []


@pytest.mark.parametrize(
    ("test", "wrong"),
    [
        ("tests/faults/cuts.c: late_requests", "tests/faults/cuts.c has no test late_requests"),
        ("tests/faults/cuts.c: late_request late", "has no test late"),
        ("tests/faults/cuts.c: world_new", "has no test world_new"),  # a function, and no test
        ("tests/faults/cut.c: late_request", "tests/faults/cut.c does not exist"),
        ("tests/faults/cuts.c", "no case is named"),
        ("tests/python/test_lock.py: test_nothing", "has no test test_nothing"),
        ("tests/python/test_lock.py: in_thread", "has no test in_thread"),  # a helper
        ("go/snib_test.go: TestNothing", "has no test TestNothing"),
        ("go/server_test.go: startServer", "has no test startServer"),
        ("tests/conformance/nothing.snib", "does not exist"),
        ("tests/driver/driver_sim.c: suspends", "has no test suspends"),
    ],
)
def test_a_test_that_does_not_exist(table: list[Fault], test: str, wrong: str) -> None:
    for where in ("one_server", "cluster", "scripted"):
        assert wrong in wrong_with(table, **{where: [test]})


@pytest.mark.parametrize(
    ("changed", "wrong"),
    [
        ({"number": 2}, "the numbers are not 1 to 48, in order"),
        ({"number": 49}, "the numbers are not 1 to 48, in order"),
        ({"holds": ""}, "no holds"),
        ({"one_server": [LIVE, "tests/faults/cuts.c: silent_connection"]}, "tests/faults/cuts.c twice in one_server"),
        ({"simulated": ["sim: nothing"]}, "the simulator sim has no fault nothing"),
        ({"simulated": ["sims: cut"]}, "there is no simulator sims"),
        ({"simulated": ["sim: clock"]}, "the simulator sim means by clock that a clock runs at another rate"),
        ({"simulated": ["group: errors"]}, "one of several errors, and nothing counts which"),
        ({"models": ["nothing"]}, "tests/models/nothing.pml does not exist"),
        ({"fuzz": ["nothing"]}, "tests/fuzz/nothing.c does not exist"),
        ({where: [] for where in faults.LIVE}, "no test with a real server, and it does not say why"),
    ],
)
def test_a_wrong_row(table: list[Fault], changed: dict[str, object], wrong: str) -> None:
    assert wrong in wrong_with(table, **changed)


def test_a_missing_row(table: list[Fault]) -> None:
    assert "the numbers are not 1 to 48" in faults.problems(table[:-1])[0]
    assert "the numbers are not 1 to 48" in faults.problems([*table, table[0]])[0]


def test_an_unknown_key(tmp_path: Path) -> None:
    (tmp_path / "table.toml").write_text("[[fault]]\nnumber = 1\nwhere = 'x'\n")
    with pytest.raises(TypeError, match="where"):
        faults.read(tmp_path / "table.toml")


def test_a_program_that_is_not_run(table: list[Fault], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "tests" / "faults").mkdir(parents=True)
    (tmp_path / "tests" / "CMakeLists.txt").write_text("set(tests live/answers)")
    (tmp_path / "tests/faults/cuts.c").write_text("CMUnitTest tests[] = {cmocka_unit_test(late_request)};")
    monkeypatch.setattr(faults, "ROOT", tmp_path)
    faults._wrong_test.cache_clear()
    assert faults._wrong_test(LIVE) == "tests/faults/cuts.c is not run"
    faults._wrong_test.cache_clear()


# ---- Figures -------------------------------------------------------------------------------------


def logs(build: Path, **texts: str) -> Path:
    """A run with these checks, and what each of them printed."""
    (build / "logs").mkdir()
    (build / "logs" / "times").write_text("".join(f"10 {check}\n" for check in texts))
    for check, text in texts.items():
        (build / "logs" / f"{re.sub('[^a-zA-Z0-9.]+', '-', check)}-.log").write_text(text)
    return build


def test_figures_are_read(tmp_path: Path) -> None:
    run = figures.Run(logs(tmp_path, models="ok a 1,200 states\nok b 34 states\n", mutants="mutants: 20 of 20 caught"))
    assert run.sum(*figures.SUMS["states"]) == 1234
    assert run.sum(*figures.SUMS["mutants"]) == 20


def test_figures_of_half_a_run(tmp_path: Path) -> None:
    run = figures.Run(logs(tmp_path, mutants="mutants: 19 of 20 caught"))
    with pytest.raises(figures.Missing, match="not a whole run"):
        run.sum(*figures.SUMS["states"])
    with pytest.raises(figures.Missing, match="the log of mutants has no"):
        run.sum(*figures.SUMS["mutants"])
    (tmp_path / "logs" / "failed").write_text("mutants, see its log\n")
    with pytest.raises(figures.Missing, match="not all checks passed"):
        figures.Run(tmp_path)


def test_figures_of_a_commit_that_draws_one_sanitizer(tmp_path: Path) -> None:
    """Its run is a whole one, but what the page says of the thread sanitizer is not in it."""
    both = {"address, undefined, leak": "83 test programs of asan", "live, asan, Redis 7.0.15": "33 test programs of asan"}
    run = figures.Run(logs(tmp_path, **both))
    assert (run.sum(*figures.SUMS["address"]), run.sum(*figures.SUMS["live_sanitized"])) == (83, 33)
    with pytest.raises(figures.Missing, match="its commit draws the address sanitizer only"):
        run.sum(*figures.SUMS["thread"])
    (tmp_path / "logs" / "times").write_text("10 address, undefined, leak\n")
    with pytest.raises(figures.Missing, match="the check thread is not in .*: not a whole run"):
        figures.Run(tmp_path).sum(*figures.SUMS["thread"])


def test_only_unit_tests_are_counted_as_such(tmp_path: Path) -> None:
    lines = ["  1/103 Test   #2: unit/arena ....................   Passed    0.01 sec",
             " 11/103 Test  #12: unit/a_long_name_that_leaves_no_room ...   Passed   10.01 sec",
             " 12/103 Test  #13: cli/run ........................   Passed    0.01 sec", "103 test programs of core"]
    run = figures.Run(logs(tmp_path, **{"unit, abi, command": "\n".join(lines)}))
    assert len(run.found(*figures.COUNTS["unit"])) == 2


def test_the_second_run_of_a_check_counts(tmp_path: Path) -> None:
    run = figures.Run(logs(tmp_path, mutants="mutants: 19 of 20 caught"))
    (tmp_path / "logs" / "mutants-again-.log").write_text("mutants: 20 of 20 caught")
    assert run.sum(*figures.SUMS["mutants"]) == 20


def test_the_second_run_of_some_programs_does_not_count(tmp_path: Path) -> None:
    run = figures.Run(logs(tmp_path, thread="The following tests FAILED:"))
    (tmp_path / "logs" / "thread-again-.log").write_text("1 test programs of tsan")
    with pytest.raises(figures.Missing, match="only a part"):
        run.sum(*figures.SUMS["thread"])


# ---- The page ------------------------------------------------------------------------------------


def test_a_fault_that_no_simulator_draws(table: list[Fault]) -> None:
    """Its row and its section say so."""
    counted = {"simulators": {"sim": {"faults": {"cut": 1234}}}}
    never, often = replace(table[0], simulated=[]), replace(table[0], simulated=["sim: cut"])
    assert "| none |" in page.row(never, counted) and "none of them injects it" in page.section(never, counted)
    assert "| 1,234 |" in page.row(often, counted) and "none of them" not in page.section(often, counted)


def test_what_is_else_exists() -> None:
    for draw in faults.ELSE:
        simulator, name = draw.split(": ")
        assert name in faults.drawn_by(simulator)


def test_a_page_of_other_figures(table: list[Fault], monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that is not what would be written is refused."""
    monkeypatch.setattr(sys, "argv", ["page.py", "--check"])
    page.main()
    other = [replace(table[0], inject="nothing at all"), *table[1:]]
    monkeypatch.setattr(faults, "read", lambda: other)
    with pytest.raises(SystemExit, match="reliability.md is not what"):
        page.main()
    monkeypatch.setattr(faults, "read", lambda: table[1:])
    with pytest.raises(SystemExit, match="the numbers are not 1 to 48"):
        page.main()

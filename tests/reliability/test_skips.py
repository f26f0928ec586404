"""tests/support/skips.py: a case that could not judge appears, with its reason, and hides no failure."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))

import skips  # noqa: E402

CMOCKA = """[==========] Running 3 test(s).
[ RUN      ] loud
          skipped: said by a case that goes on
[       OK ] loud
[ RUN      ] quiet
[  SKIPPED ] quiet
[ RUN      ] black_hole
          skipped: no <network>
[  SKIPPED ] black_hole
[==========] 3 test(s) run.
[  PASSED  ] 1 test(s).
[  SKIPPED ] 2 test(s), listed below:
[  SKIPPED ] quiet
[  SKIPPED ] black_hole

 2 SKIPPED TEST(S)
"""

UNITTEST = """test_a (__main__.A.test_a)
What it is about. ... skipped "it's absent"
test_b (__main__.A.test_b) ... ok
test_c (__main__.B.test_c) ...   test_c (__main__.B.test_c) (i=1) ... skipped 'part'

OK (skipped=2)
"""


def junit(**outputs: str) -> str:
    cases = [f'<testcase name="{name}"><system-out>{escape(output)}</system-out></testcase>' for name, output in outputs.items()]
    return f"<testsuite>{''.join(cases)}</testsuite>"


def test_c_and_the_command() -> None:
    assert list(skips.of_ctest(junit(one=CMOCKA, two="[ RUN      ] a\n[       OK ] a\n", three=UNITTEST))) == [
        "skipped: one, quiet: no reason given",
        "skipped: one, black_hole: no <network>",
        "skipped: three, test_a: it's absent",
        "skipped: three, test_c: part",
    ]


def test_a_real_ctest(tmp_path: Path) -> None:
    """A program with a skipped case and a failed one has failed, and its skipped case is found."""
    (tmp_path / "output").write_text("x\n" * 5000 + CMOCKA)
    (tmp_path / "CTestTestfile.cmake").write_text('add_test(one sh -c "cat output; exit 1")\nadd_test(two cat output)\n')
    options = ["--test-output-size-passed", "10000000", "--test-output-size-failed", "10000000"]
    ran = subprocess.run(["ctest", "--output-junit", "junit", *options], cwd=tmp_path, capture_output=True)
    assert ran.returncode != 0
    assert len(list(skips.of_ctest((tmp_path / "junit").read_text()))) == 4
    for option in ["--output-junit", *options]:
        assert option in (ROOT / "dev").read_text()


def event(action: str, test: str = "", output: str = "") -> str:
    return json.dumps({"Action": action, "Package": "p", "Test": test, "Output": output})


def go(*lines: str) -> list[str]:
    passed_on: list[str] = []
    skips.of_go(lines, passed_on.append)
    return "".join(passed_on).splitlines()


def test_go() -> None:
    assert go(
        "# p\n",
        event("output", "TestA", "=== RUN   TestA\n"),
        event("output", "TestA", "    a_test.go:7: no tool: none\n"),
        event("output", "TestB", "    b_test.go:7: never logged\n"),
        event("output", "TestA", "--- SKIP: TestA (0.00s)\n"),
        event("skip", "TestA"),
        event("output", "TestB", "--- FAIL: TestB (0.00s)\n"),
        event("fail", "TestB"),
        event("output", "TestC", "no news\n"),
        event("pass", "TestC"),
        event("output", "", "FAIL\n"),
        event("output", "TestD", "where it was killed\n"),
    ) == [
        "# p",
        "skipped: p, TestA: no tool: none",
        "    b_test.go:7: never logged",
        "--- FAIL: TestB (0.00s)",
        "FAIL",
        "where it was killed",
    ]


def test_summary(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        "skipped: p, TestA: no tool: none\n"
        "skipped: p, TestChild: for TestDebugOrderOfProcesses\n"
        "SKIPPED tests/python/test_end.py::test_a[x y-z] - Skipped: no tool - none\n"
        "SKIPPED tests/python/test_end.py::test_a[a] - Skipped: no tool - none\n"
        "SKIPPED tests/python/test_tls.py - Skipped: could not import 'x'\n"
        "SKIPPED [2] tests/python/test_end.py:78: nothing is inherited\n"
        "3 passed, 5 skipped\n"
    )
    assert skips.summary(skip for _ in range(2) for skip in skips.of_log(log.read_text().splitlines())) == [
        "skipped: p, TestA: no tool: none (2 times)",
        "skipped: tests/python/test_end.py, test_a: no tool - none (4 times)",
        "skipped: tests/python/test_tls.py, all of it: could not import 'x' (2 times)",
        "by design, on every machine: 4 the same as another case, 2 run by another test",
    ]
    assert skips.summary([]) == ["nothing was skipped"]


def test_pytest_says_so(tmp_path: Path) -> None:
    """With the options of ./dev."""
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "@pytest.mark.parametrize('a', ['[', '::'])\n"
        f"def test_a(a): pytest.skip('long: {'word ' * 50}end')\n"
    )
    options = re.search(r"PYTEST_ADDOPTS='(.*)'", (ROOT / "dev").read_text())
    assert options
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options[1].split()]
    alone = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ran = subprocess.run(command, cwd=tmp_path, env=alone, capture_output=True, text=True)
    assert list(skips.of_log(ran.stdout.splitlines())) == [("test_it.py, test_a", f"long: {'word ' * 50}end")] * 2


def test_each_skip_of_a_c_test_says_why() -> None:
    silent = []
    for path in (ROOT / "tests").rglob("*.c"):
        lines = path.read_text().splitlines()
        silent += [
            f"{path}: {line}"
            for before, line in zip(["", *lines], lines)
            if re.search(r"\bskip\(\)", line) and "          skipped: " not in before
        ]
    assert silent == []


@pytest.mark.parametrize("pattern", skips.BY_DESIGN)
def test_what_is_by_design_is_said_somewhere(pattern: str) -> None:
    """Each alternative matches what a test skips with."""
    said = set()
    for path in [*(ROOT / "tests").rglob("*.[ch]"), *(ROOT / "tests").rglob("*.py"), *(ROOT / "go").rglob("*_test.go")]:
        said |= {text for _, text in re.findall(r"""(?i)skip(?:_because|test|ped: |)\b.*?(["'])(.+?)\1""", path.read_text())}
        said |= set(re.findall(r'reason="(.+?)"', path.read_text())) | set(re.findall(r"skipped: (.+?)\\n", path.read_text()))
    for alternative in pattern.split("|"):
        assert any(re.fullmatch(alternative, text) for text in said), alternative

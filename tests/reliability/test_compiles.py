"""tests/support/compiles.py, with which `./dev lint` lets each Python that there is read every file."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VERSIONS = subprocess.check_output(["./dev", "_run", "all_pythons"], cwd=ROOT, text=True).split()
CASES = {  # a text, and the first version for which it is right
    "print(f'{1}')": (3, 0),
    "if True:\n    import tomllib": (3, 0),  # by a condition
    "print(f'{'1'}')": (3, 12),
    "import sys, tomllib": (3, 11),
    "from tomllib import load": (3, 11),
    "return 1": (99, 0),
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("text", CASES)
def test_text(tmp_path: Path, text: str, version: str) -> None:
    file = tmp_path / "a.py"
    file.write_text(text)
    python = subprocess.check_output(["./dev", "_run", "python_of", version], cwd=ROOT, text=True).strip()
    done = subprocess.run([python, "tests/support/compiles.py", file], cwd=ROOT, capture_output=True, text=True)
    right = tuple(map(int, version.split("."))) >= CASES[text]
    assert (done.returncode == 0) == right, done.stderr
    assert right or f"{file}:" in done.stderr and f"in Python {version}" in done.stderr

"""The rule for the ports of tests: no two processes have the same ones, whatever their languages and surroundings."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAME = "/tmp/snib-ports-"
OPEN = "import os, ports; it = ports.Ports(); print(os.readlink(f'/proc/self/fd/{it._lock.fileno()}'))"


@pytest.mark.parametrize("set_it", [False, True])
def test_folder_of_the_locks(tmp_path: Path, set_it: bool) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests/support")}
    environment |= {"TMPDIR": str(tmp_path)} if set_it else {}
    said = subprocess.check_output([sys.executable, "-c", OPEN], env=environment, text=True)
    assert re.fullmatch(rf"{NAME}{os.getuid()}-\d+", said.strip())


@pytest.mark.parametrize("path", ["tests/support/ports.c", "go/ports_test.go"])
def test_other_languages(path: str) -> None:
    assert f'"{NAME}%' in (ROOT / path).read_text()

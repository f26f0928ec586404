"""tests/interop: what is our own is not skipped because it does not compile."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/interop"))

import agent  # noqa: E402


@pytest.mark.parametrize(("needed", "there", "ends"), [
    (False, False, pytest.skip.Exception), (False, True, pytest.fail.Exception), (True, False, pytest.fail.Exception),
])
def test_no_interpreter_in_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, needed: bool, there: bool, ends: type[BaseException]
) -> None:
    """Only where there is no Go either."""
    monkeypatch.setattr(agent, "BUILD", tmp_path)
    monkeypatch.setattr(agent, "NEEDED", needed)
    monkeypatch.setattr(shutil, "which", lambda name, path=None: "/bin/go" if there and name == "go" else None)
    with pytest.raises(ends, match="no Go beside Redisson"):
        agent.command("go")


def test_go_that_does_not_compile(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    programs = {
        **{"mvn": "exit 1", "java": "exit 1"},
        **{"python": '[ "$2" != pytest ] || : >"$SNIB_BUILD/tested"', "go": '[ "$3" != ../conformance/go ] || exit 7'},
    }
    for name, does in programs.items():
        (tools / name).write_text(f"#!/bin/sh\n{does}\n")
        (tools / name).chmod(0o755)
    ran = subprocess.run(
        [ROOT / "tests/interop/run.sh"], env={**os.environ, "SNIB_BUILD": str(tmp_path)}, capture_output=True, text=True
    )
    assert ran.returncode == 7, ran.stderr
    assert not (tmp_path / "tested").exists()

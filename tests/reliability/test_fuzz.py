"""tests/fuzz/run.py: only an input that breaks something finds a planted mistake."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/fuzz"))

from mistakes import Mistake  # noqa: E402

SPEC = importlib.util.spec_from_file_location("fuzz_run", ROOT / "tests/fuzz/run.py")
assert SPEC and SPEC.loader
fuzz = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(fuzz)

MISTAKE = Mistake("no end", "net/resp.c", "", "", "reply")
ENDS = {  # of a target's program, and whether the mistake is found then; None: nobody knows
    "of libFuzzer": (': >"${prefix}crash-0"; exit 77', True),
    "of a sanitizer": (': >"${prefix}crash-0"; exit 1', True),
    "of memory that is lost": (': >"${prefix}leak-0"; exit 77', True),
    "in order": ("exit 0", False),
    "out of time": (': >"${prefix}timeout-0"; exit 70', None),
    "out of memory": (': >"${prefix}oom-0"; exit 71', None),
    "killed": ("kill -9 $$", None),
    "without an input": ("exit 1", None),
}


class Built:
    """A build whose program ends as it is told."""

    def __init__(self, end: str) -> None:
        self.end = end

    def changed(self, _target: str, _source: Path, _text: str, work: Path) -> Path:
        program = work / "program"
        program.write_text(
            f'#!/bin/sh\nfor word; do case $word in -artifact_prefix=*) prefix=${{word#*=}};; esac; done\n{self.end}\n'
        )
        program.chmod(0o755)
        return program


@pytest.mark.parametrize("end", ENDS)
def test_what_finds_a_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    monkeypatch.setattr(fuzz, "changed_text", lambda mistake: "")
    fuzzer = fuzz.Fuzzer("reply", tmp_path / "build/fuzz", tmp_path)
    words, found = ENDS[end]
    if found is None:
        with pytest.raises(fuzz.Failed, match="and no crash with this planted mistake: no end"):
            fuzz.find(fuzzer, MISTAKE, Built(words), tmp_path)
    else:
        assert fuzz.find(fuzzer, MISTAKE, Built(words), tmp_path) == found

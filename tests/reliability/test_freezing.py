"""tests/support/freezing.py and limited.py: whoever is told to end while others stand still leaves none of them behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

SUPPORT = Path(__file__).resolve().parents[1] / "support"
sys.path.insert(0, str(SUPPORT))

import freezing  # noqa: E402

FREEZING = [sys.executable, str(SUPPORT / "freezing.py")]
ALWAYS = ["--least", "600000", "--most", "600000", "--every", "0.1"]  # soon, and for longer than any test
SLEEP = ["sleep", f"86400.{os.getpid()}"]  # those of this process
LIMITED = [sys.executable, str(SUPPORT / "limited.py")]


def eventually(made: str) -> None:
    """Until the only such process is in that state; "": until there is none."""
    end = time.monotonic() + 300
    while list((states := sleepers()).values()) != ([made] if made else []):
        assert time.monotonic() < end, states
        time.sleep(0.02)


def sleepers() -> dict[int, str]:
    """Whether they are frozen."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "cmdline").read_text().split("\0")[:2] == SLEEP:
                group = freezing.Freezer.of(int(entry.name))
                found[int(entry.name)] = state(group) if group else "free"
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def state(group: freezing.Freezer) -> str:
    if group.v1:
        return (group.path / "freezer.state").read_text().strip()
    return "FROZEN" if "frozen 1" in (group.path / "cgroup.events").read_text() else "THAWED"


# Only ./dev test --all lets a check stand still.
pytestmark = pytest.mark.skipif(not os.environ.get("SNIB_TEST_ALL"), reason="only with --all")


@pytest.fixture(autouse=True)
def none_left() -> Iterator[None]:
    if subprocess.run([*FREEZING, "true"], capture_output=True).returncode:
        pytest.skip("processes may not be frozen here")
    assert not sleepers()
    yield
    for pid in sleepers():
        if group := freezing.Freezer.of(pid):
            group.freeze(False)
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_freezing_is_told_to_end(number: signal.Signals) -> None:
    with subprocess.Popen([*FREEZING, *ALWAYS, *SLEEP]) as process:
        try:
            eventually("FROZEN")
            group = freezing.Freezer.of(next(iter(sleepers())))
            process.send_signal(number)
            assert process.wait(300) == 128 + number
        finally:
            process.kill()
    eventually("")
    assert group and not group.path.exists()


def test_limited_ends_what_stands_still() -> None:
    with subprocess.Popen([*LIMITED, "86400", *FREEZING, *ALWAYS, *SLEEP]) as process:
        try:
            eventually("FROZEN")
            group = freezing.Freezer.of(next(iter(sleepers())))
            process.terminate()
            assert process.wait(300) == 128 + signal.SIGTERM
        finally:
            process.kill()
    eventually("")
    assert group and not group.path.exists()

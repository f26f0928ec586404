"""The table of faults, faults.toml: reads it, and finds what is wrong with it.

A test is written as "FILE: CASE CASE", a conformance program as its file alone, a fault that the simulators draw as
"SIMULATOR: FAULT".  What is named must exist, and be run by the file that it is in.
"""

from __future__ import annotations

import functools
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
COUNT = 48
# The deployments that tests with real servers use, by their names in the table.
LIVE = {"one_server": "one server", "sentinels": "replicas, sentinels", "cluster": "cluster", "quorum": "quorum"}
SIMULATORS = {"sim": "tests/sim/sim.c", "group": "tests/sim/group_sim.c", "topology": "tests/sim/topo_sim.c"}
# What the simulators draw as well, and is none of the faults of the table.
RATE = "that a clock runs at another rate, which is no fault of the table"
ELSE = {
    "sim: clock": RATE,
    "group: clock": RATE,
    "group: errors": "one of several errors, and nothing counts which",
}


@dataclass
class Fault:
    number: int
    group: str  # the heading under which it stands
    name: str
    inject: str
    holds: str
    one_server: list[str] = field(default_factory=list)
    sentinels: list[str] = field(default_factory=list)
    cluster: list[str] = field(default_factory=list)
    quorum: list[str] = field(default_factory=list)
    scripted: list[str] = field(default_factory=list)  # tests without a server, of one situation each
    simulated: list[str] = field(default_factory=list)
    models: list[str] = field(default_factory=list)
    fuzz: list[str] = field(default_factory=list)
    open: str = ""  # what no test injects, and why

    def live(self) -> list[str]:
        return [test for where in LIVE for test in getattr(self, where)]


def read(path: Path = HERE / "faults.toml") -> list[Fault]:
    with open(path, "rb") as file:
        rows: list[dict[str, Any]] = tomllib.load(file)["fault"]
    return [Fault(**row) for row in rows]


def split(test: str) -> tuple[str, list[str]]:
    """The file of a test, and the cases in it."""
    path, _, cases = test.partition(": ")
    return path, cases.split()


def count(tests: list[str]) -> int:
    return sum(max(1, len(split(test)[1])) for test in tests)


# ---- What there is -------------------------------------------------------------------------------


@functools.cache
def cases_of(path: Path) -> set[str]:
    """The cases that a file of tests runs."""
    text = path.read_text()
    if path.suffix == ".go":
        return set(re.findall(r"^func (Test\w+)\(", text, re.MULTILINE))
    if path.suffix == ".py" and path.parent.name == "histories":  # the faults of its worlds
        return set(re.findall(r"^ *(?:async )?def (\w+)\(", text, re.MULTILINE))
    if path.suffix == ".py":
        return set(re.findall(r"^ *(?:async )?def (test\w*)\(", text, re.MULTILINE))
    registered = re.findall(r"CMUnitTest \w+\[\] = \{(.*?)\};", text, re.DOTALL)
    stories = re.findall(r'^ *\{"[\w -]+", (\w+)', text, re.MULTILINE)  # of the simulators
    return {*re.findall(r"\((\w+)", " ".join(registered)), *stories}


@functools.cache
def drawn_by(simulator: str) -> set[str]:
    """The faults that a simulator draws, by the names in its closing line."""
    return set(re.findall(r'\[[A-Z]+_\w+\] = "([\w-]+)"', (ROOT / SIMULATORS[simulator]).read_text()))


# ---- What is wrong -------------------------------------------------------------------------------


@functools.cache
def _wrong_test(test: str) -> str:
    path, cases = split(test)
    file = ROOT / path
    if not file.is_file():
        return f"{path} does not exist"
    if file.suffix == ".snib":
        return f"{path} has no cases" if cases else ""
    if not cases:
        return f"{path}: no case is named"
    if file.parent.name in ("live", "faults") and file.suffix == ".c":
        if f"{file.parent.name}/{file.stem}" not in (ROOT / "tests/CMakeLists.txt").read_text().split():
            return f"{path} is not run"
    missing = [case for case in cases if case not in cases_of(file)]
    return f"{path} has no test {', '.join(missing)}" if missing else ""


def _wrong_draw(draw: str) -> str:
    simulator, _, fault = draw.partition(": ")
    if simulator not in SIMULATORS:
        return f"there is no simulator {simulator}"
    if draw in ELSE:
        return f"the simulator {simulator} means by {fault} {ELSE[draw]}"
    return "" if fault in drawn_by(simulator) else f"the simulator {simulator} has no fault {fault}"


def _wrong_file(folder: str, name: str, suffix: str) -> str:
    return "" if (ROOT / folder / (name + suffix)).is_file() else f"{folder}/{name}{suffix} does not exist"


def _wrong(fault: Fault) -> list[str]:
    wrong = [_wrong_test(test) for test in fault.live() + fault.scripted]
    wrong += [_wrong_draw(draw) for draw in fault.simulated]
    wrong += [_wrong_file("tests/models", name, ".pml") for name in fault.models]
    wrong += [_wrong_file("tests/fuzz", name, ".c") for name in fault.fuzz]
    wrong += [f"no {name}" for name in ("group", "name", "inject", "holds") if not getattr(fault, name)]
    for name in (*LIVE, "scripted"):
        files = [split(test)[0] for test in getattr(fault, name)]
        wrong += [f"{file} twice in {name}" for file in {file for file in files if files.count(file) > 1}]
    if not fault.live() and not fault.open:
        wrong.append("no test with a real server, and it does not say why")
    return [f"fault {fault.number}: {what}" for what in wrong if what]


def problems(faults: list[Fault]) -> list[str]:
    """What is wrong with the table, in sentences."""
    numbers = [fault.number for fault in faults]
    wrong = [] if numbers == list(range(1, COUNT + 1)) else [f"the numbers are not 1 to {COUNT}, in order: {numbers}"]
    return wrong + [what for fault in faults for what in _wrong(fault)]

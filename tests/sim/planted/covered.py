"""Which test programs execute which lines of the core, and how long each of them takes.

They run once in a build of their own, build/coverage.  What is known of a program is kept there until the program
changes.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from .plant import CORE, ROOT, run

FEW_SEEDS = 40
MEASURED = 400  # worlds of a simulator: what is rare is executed by few of them
AT_ONCE = 4  # most of them wait more than they work
# They end processes that have no time left to say what they executed.
SILENT = ("faults/exit", "faults/fork", "faults/fork_during", "faults/frozen", "faults/stopped", "cli_guard", "cli_cli")


class Test(NamedTuple):
    """A test of ctest."""

    name: str
    target: str  # the program with the core in it
    command: list[str]
    environment: dict[str, str]


def tests_of(folder: Path) -> Iterator[Test]:
    """The tests of a build that run the core's code."""
    shown = json.loads(run(["ctest", "--show-only=json-v1"], folder))
    for entry in shown["tests"]:
        name, command = entry["name"], entry["command"]
        properties = {each["name"]: each["value"] for each in entry["properties"]}
        environment = dict(each.split("=", 1) for each in properties.get("ENVIRONMENT", []))
        if name.startswith("cli_"):
            target = "snib_command"
        elif name.startswith("conformance"):
            target = "conform"
        else:
            target = Path(command[0]).name
        if not name.startswith(("abi_", "unit_embed", "sim_model_check")):
            yield Test(name, target, command, environment)


class Covered:
    """What each test executes, measured where it is not known yet."""

    def __init__(self, folder: Path, tests: list[Test]) -> None:
        self.folder = folder
        self.known = folder / "covered"
        self.known.mkdir(parents=True, exist_ok=True)
        self._build()
        made = [test for test in tests_of(folder) if test.name in {each.name for each in tests}]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            self.of = dict(zip([test.name for test in made], pool.map(self._measured, made), strict=True))

    def _build(self) -> None:
        options = ["-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_C_FLAGS=--coverage"]
        run(["cmake", "-S", str(ROOT), "-B", str(self.folder), "-G", "Ninja", *options], ROOT)
        run(["ninja"], self.folder)

    def _measured(self, test: Test) -> dict:
        if test.target == "snib_command":
            programs = [self.folder / "snib", *self.folder.glob("libsnib.so.*.*.*")]
        elif test.target == "conform":
            programs = [self.folder / "tests" / "conform"]
        else:
            programs = [Path(test.command[0])]
        digest = hashlib.sha256(b"".join(path.read_bytes() for path in programs)).hexdigest()
        kept = self.known / (test.name.replace("/", "_") + ".json")
        if kept.exists():
            known = json.loads(kept.read_text())
            if known["digest"] == digest:
                return known
        data = self.known / "data" / test.name.replace("/", "_")
        shutil.rmtree(data, ignore_errors=True)
        begin = time.monotonic()
        done = subprocess.run(
            test.command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | test.environment | {"GCOV_PREFIX": str(data), "SNIB_SIM_SEEDS": str(MEASURED)},
            start_new_session=True,
        )
        seconds = time.monotonic() - begin
        if test.name.startswith("sim"):  # of few worlds
            seconds *= FEW_SEEDS / MEASURED
        known = {"digest": digest, "seconds": seconds, "lines": self._lines(data)}
        if done.returncode != 0:
            print(f"automatic: {test.name} fails while it is measured", file=sys.stderr)
        else:
            kept.write_text(json.dumps(known))
        shutil.rmtree(data, ignore_errors=True)
        return known

    def _lines(self, data: Path) -> dict[str, dict[str, list[int]]]:
        """By file of the core: the lines that were executed, and those that could be."""
        found = [path for path in data.rglob("*.gcda") if "/core/" in str(path)]
        for path in found:
            notes = path.with_suffix(".gcno")
            if not notes.exists():
                notes.symlink_to("/" / notes.relative_to(data))
        lines: dict[str, dict[str, list[int]]] = {}
        if not found:
            return lines
        for text in run(["gcov", "--json-format", "--stdout", *map(str, found)], data).splitlines():
            for entry in json.loads(text)["files"]:
                path = Path(entry["file"])
                if path.is_relative_to(CORE):
                    both = lines.setdefault(str(path.relative_to(CORE)), {"hit": [], "all": []})
                    both["hit"] += [line["line_number"] for line in entry["lines"] if line["count"]]
                    both["all"] += [line["line_number"] for line in entry["lines"]]
        return lines

    def executing(self, file: str, places: list[tuple[int, int]]) -> list[str]:
        """The tests that execute the innermost of the places (first and last line) that has code, cheapest first."""
        wanted: set[int] = set()
        code = {line for known in self.of.values() for line in known["lines"].get(file, {"all": []})["all"]}
        for first, last in places:
            wanted = code & set(range(first, last + 1))
            if wanted:
                break
        names = []
        for name, known in self.of.items():
            lines = known["lines"].get(file)
            if lines and (not wanted or wanted & set(lines["hit"]) or name in SILENT):
                names.append(name)
        return sorted(names, key=lambda name: self.of[name]["seconds"])

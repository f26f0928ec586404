"""Which branches of the core the tests take: the report of `./dev coverage`.

    python tests/coverage/report.py BUILD      after the C tests of a build with -DSNIB_COVERAGE=ON

The table has a row for each folder.  A branch is one outcome of a condition, of each operand of && and || by itself, or
one case of a switch; assertions have none, because they are compiled out.  The last row has the lines that set a state,
a phase or a mode.  All branches that were never taken are listed under the table.

Only C tests count, because what they do not finish writes no counts: a process that is killed, for example.  So the
true coverage is a little higher, and differs a little between two runs: threads and the clock take part.

`unreachable.toml` names branches that no test can take, with the reason.  They do not count as missed.  An entry that
fits no such branch any more (it is taken, or the code is another) fails, as a folder below its limit does.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LIMITS = {"core/locks": 95, "core/engine": 95, "core/net": 95, "core/driver": 90, "core/api": 90}  # percent of branches
STATES = re.compile(r"(->|\.)(state|phase|mode) = ")


@dataclass
class Line:
    function: str
    text: str
    count: int = 0
    branches: list[int] = field(default_factory=list)
    excepted: int = 0

    def missed(self) -> int:
        return self.branches.count(0)


Lines = dict[tuple[str, int], Line]  # by file and number


# ---- What was counted ----------------------------------------------------------------------------


def counted(build: Path) -> list[dict[str, Any]]:
    """What gcov says of each object of the core; also of those that no program executed."""
    objects = [path for folder in ("snib_objects", "sim_engine") for path in build.glob(f"**/{folder}.dir/**/*.gcno")]
    command = ["gcov", "--json-format", "--stdout", "--branch-probabilities", *map(str, sorted(objects))]
    said = subprocess.run(command, capture_output=True, text=True, cwd=build)
    if said.returncode != 0:
        raise SystemExit(f"gcov failed: {said.stderr}")
    return [file for line in said.stdout.splitlines() if line for file in json.loads(line)["files"]]


def merged(files: list[dict[str, Any]]) -> Lines:
    """The core is compiled several times, and functions of headers in each file that calls them: the sums."""
    lines: Lines = {}
    texts: dict[str, list[str]] = {}
    for file in files:
        path = Path(file["file"])
        name = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else ""
        if str(Path(name).parent) not in LIMITS:
            continue
        if name not in texts:
            texts[name] = path.read_text().splitlines()
        for entry in file["lines"]:
            number = entry["line_number"]
            branches = [branch["count"] for branch in entry["branches"]]
            line = lines.setdefault((name, number), Line(entry["function_name"], texts[name][number - 1].strip()))
            line.count += entry["count"]
            line.branches = line.branches or [0] * len(branches)
            line.branches = [a + b for a, b in zip(line.branches, branches, strict=True)]
    return lines


# ---- What cannot be taken ------------------------------------------------------------------------


def problem(lines: Lines, entry: dict[str, Any]) -> str | None:
    """Take an entry's branches out of those that are missed; or say why it fits none."""
    where = f"{entry['file']}: {entry['function']}: {entry['line']}"
    found = [
        line
        for (name, _), line in lines.items()
        if (name, line.function) == (entry["file"], entry["function"]) and entry["line"] == line.text
    ]
    if len(found) != 1:
        return f"{where}: {len(found)} such lines"
    branches = entry.get("branches", 1)
    if found[0].missed() != branches:
        return f"{where}: {found[0].missed()} branches are never taken, and not {branches}"
    found[0].excepted = branches
    return None


# ---- The report ----------------------------------------------------------------------------------


def percent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 100.0


def report(lines: Lines) -> list[str]:
    """Print it, and return what is below its limit."""
    folders: dict[str, list[Line]] = defaultdict(list)
    for (name, _), line in lines.items():
        folders[str(Path(name).parent)].append(line)
    below = []
    print(f"{'':16} {'lines':>15} {'':>8} {'branches':>15} {'':>8} {'limit':>8}  unreachable")
    for folder, limit in LIMITS.items():
        rows = folders[folder]
        run, all_lines = sum(row.count > 0 for row in rows), len(rows)
        excepted = sum(row.excepted for row in rows)
        branches = sum(len(row.branches) for row in rows) - excepted
        taken = branches - sum(row.missed() - row.excepted for row in rows)
        print(
            f"{folder:16} {run:>7,} /{all_lines:>6,} {percent(run, all_lines):>7.2f}% {taken:>7,} /{branches:>6,} "
            f"{percent(taken, branches):>7.2f}% {limit:>7}%  {excepted}"
        )
        if branches == 0 or percent(taken, branches) < limit:
            below.append(f"{folder}: {taken} of {branches} branches, below {limit}%")
    states = {where: line for where, line in lines.items() if STATES.search(line.text)}
    run = sum(line.count > 0 for line in states.values())
    print(f"{'changes of state':16} {run:>7,} /{len(states):>6,} {percent(run, len(states)):>7.2f}%")
    below += [f"{name}:{number}: never: {line.text}" for (name, number), line in states.items() if not line.count]
    if not states:
        below.append("no line sets a state")
    return below


def main() -> None:
    lines = merged(counted(Path(sys.argv[1]).resolve()))
    entries = tomllib.loads((HERE / "unreachable.toml").read_text())["branch"]
    problems = [f"unreachable.toml: {text}" for entry in entries if (text := problem(lines, entry))]
    problems += report(lines)
    print("\nnever taken:")
    for (name, number), line in sorted(lines.items()):
        if missed := line.missed() - line.excepted:
            print(f"  {name}:{number}: {line.function}: {missed} of {len(line.branches)}: {line.text}")
    missed = sum(line.missed() - line.excepted for line in lines.values())
    branches = sum(len(line.branches) - line.excepted for line in lines.values())
    if problems:
        raise SystemExit("\n".join(["", *problems]))
    print(f"\ncoverage: {branches - missed} of {branches} branches, {len(entries)} lines have unreachable ones")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Write the tables of docs/redisson.md from the results of a test run, or check them.

A short run covers only some of the deployments, and with half of the cases only some of everything; what it does not
contradict keeps the page's results there.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from modes import MODES
from versions import JAVA_WAITS, SNIB_WAITS, VERSIONS

PAGE = Path(__file__).resolve().parents[2] / "docs/redisson.md"
BEGIN, END = "<!-- seen: begin -->\n", "<!-- seen: end -->\n"
TYPES = {
    "mutex": "mutex, `RLock`",
    "fair": "fair, `RFairLock`",
    "read": "read, `readLock()`",
    "write": "write, `writeLock()`",
    "fenced": "fenced, `RFencedLock`",
    "spin": "spin, `RSpinLock`",
    "multi": "multi, `RMultiLock`",
    "semaphore": "semaphore, `RSemaphore`",
    "permits": "permits, `RPermitExpirableSemaphore`",
    "latch": "latch, `RCountDownLatch`",
}
DIRECTIONS = (SNIB_WAITS, JAVA_WAITS)
ELSEWHERE = [
    f"{version} {mode.title}"
    for version in VERSIONS
    for mode in MODES.values()
    if version in mode.versions
]
ABSENT, NOT_RUN = "no such type", "not run"

# The content of a cell: a word, and its notes.  The key is kind, column, direction.
Cell = tuple[str, tuple[str, ...]]
Cells = dict[tuple[str, str, str], Cell]


def read_run(path: Path) -> Cells:
    cells: Cells = {}
    for cell in json.loads(path.read_text())["cells"]:
        word = {"absent": ABSENT, "differs": "ok"}.get(cell["word"], cell["word"])
        key = cell["kind"], cell["column"], cell["direction"]
        cells[key] = word, tuple(sorted(cell["notes"]))
    return cells


def read_page(text: str) -> Cells:
    notes = dict(re.findall(r"(?m)^(\d+)\. (.*)$", text))
    kinds = {title: kind for kind, title in TYPES.items()}
    cells: Cells = {}
    columns: list[str] = []
    for line in text.splitlines():
        words = [word.strip() for word in line.strip().strip("|").split("|")]
        if words[0] == "type":
            columns = words[2:]
        elif words[0] in kinds:
            for column, said in zip(columns, words[2:], strict=True):
                word, _, numbers = said.partition(", note ")
                found = tuple(notes.get(one, "") for one in numbers.split(", ") if one)
                cells[kinds[words[0]], column, words[1]] = word, found
    return cells


def merged(page: Cells, run: Cells, half: bool) -> Cells:
    """The cells of the run, or those of the page where the run did not test as much."""
    cells = dict(run)
    for key, (word, notes) in page.items():
        if half or key[1] in ELSEWHERE:
            said = run.get(key)
            if said is None or (said[0] == word and set(said[1]) <= set(notes)):
                cells[key] = word, notes
    return cells


def render(cells: Cells) -> str:
    notes: list[str] = []
    lines = [*table(cells, VERSIONS, notes), "", *table(cells, ELSEWHERE, notes)]
    lines += ["", *(f"{place}. {note}" for place, note in enumerate(notes, 1))]
    return "\n".join(lines).rstrip() + "\n"


def table(cells: Cells, columns: Sequence[str], notes: list[str]) -> list[str]:
    lines = ["| type | direction | " + " | ".join(columns) + " |"]
    lines.append("|---|---|" + "---|" * len(columns))
    for kind, title in TYPES.items():
        for direction in DIRECTIONS:
            row = [said(cells.get((kind, column, direction)), notes) for column in columns]
            lines.append(f"| {title} | {direction} | " + " | ".join(row) + " |")
    return lines


def said(cell: Cell | None, notes: list[str]) -> str:
    word, behind = cell or (NOT_RUN, ())
    notes += [note for note in behind if note not in notes]
    numbers = ", ".join(str(notes.index(note) + 1) for note in behind)
    return f"{word}, note {numbers}" if numbers else word


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether the page is right")
    parser.add_argument("--all", action="store_true", help="the run has tried everything")
    parser.add_argument("--half", action="store_true", help="the run has tried half of the cases")
    parser.add_argument("seen", type=Path, help="interop.json")
    options = parser.parse_args()
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    now, _, after = rest.partition(END)
    cells = read_run(options.seen)
    if not options.all:
        cells = merged(read_page(now), cells, options.half)
    right = before + BEGIN + render(cells) + END + after
    if options.check and right != page:
        print(f"{PAGE.name} does not say what was seen; run table.py {options.seen}")
        return 1
    if not options.check:
        PAGE.write_text(right)
    return 0


if __name__ == "__main__":
    sys.exit(main())

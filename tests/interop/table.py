#!/usr/bin/env python3
"""Write the table of docs/redisson.md from what a run of the tests has seen, or check it."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from versions import JAVA_WAITS, OURS_WAITS, VERSIONS

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


def render(cells: list[dict[str, Any]]) -> str:
    seen = {(cell["kind"], cell["version"], cell["direction"]): cell for cell in cells}
    notes: list[str] = []
    lines = [
        "| type | direction | " + " | ".join(VERSIONS) + " |",
        "|---|---|" + "---|" * len(VERSIONS),
    ]
    for kind, title in TYPES.items():
        for direction in (OURS_WAITS, JAVA_WAITS):
            row = [word(seen.get((kind, version, direction)), notes) for version in VERSIONS]
            lines.append(f"| {title} | {direction} | " + " | ".join(row) + " |")
    lines += ["", *(f"{place}. {note}" for place, note in enumerate(notes, 1))]
    return "\n".join(lines).rstrip() + "\n"


def word(cell: dict[str, Any] | None, notes: list[str]) -> str:
    if cell is None:
        return "not run"
    if cell["word"] == "absent":
        return "no such type"
    if cell["word"] != "differs":
        return str(cell["word"])
    for note in cell["notes"]:
        if note not in notes:
            notes.append(note)
    return "ok, note " + ", ".join(str(notes.index(note) + 1) for note in cell["notes"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether the page is right")
    parser.add_argument("seen", type=Path, help="interop.json")
    options = parser.parse_args()
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    right = before + BEGIN + render(json.loads(options.seen.read_text())["cells"]) + END + after
    if options.check and right != page:
        print(f"{PAGE.name} does not say what was seen; run table.py {options.seen}")
        return 1
    if not options.check:
        PAGE.write_text(right)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The results of rounds.py as a table and a histogram.

    python report.py build/logs/failovers [--into docs/guarantees.md]

--into replaces what is between the lines "<!-- failovers -->" and "<!-- end -->".
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- failovers -->", "<!-- end -->"
BOUNDS = (1, 10, 30, 100, 300, 1000, 3000)
WORDS = {"sentinel": "sentinels", "cluster": "cluster"}
ORDER = {"kill": "killed", "stop": "stopped (SIGSTOP)", "cut": "cut off", "manual": "by hand", "lag": "killed, 0.7 s unreplicated"}


def quantile(values: Sequence[float], part: float) -> float:
    """The value that this fraction of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0


@dataclass
class Row:
    """All rounds of one kind."""

    topology: str
    way: str
    rounds: list[dict[str, Any]]

    @property
    def ratios(self) -> list[float]:
        """For each worker in each round, the time until it had a lock divided by that until the announcement."""
        return [time / r["announced"] for r in self.rounds for time in r["back"].values()]

    @property
    def last(self) -> float:
        """How long after the announcement the last worker of all had a lock, in ms."""
        return max((max(r["back"].values()) - r["announced"] for r in self.rounds), default=0.0)

    @property
    def overlaps(self) -> list[float]:
        return [overlap["ms"] for r in self.rounds for overlap in r["overlaps"]]

    @property
    def untold(self) -> int:
        """Overlaps whose first holder released its lock without ever learning of the loss."""
        return sum(o["told_ms"] is None and o["release"] == 0 for r in self.rounds for o in r["overlaps"])

    def cells(self) -> list[str]:
        announced = [r["announced"] for r in self.rounds]
        first = [r["first"] / r["announced"] for r in self.rounds]
        lost = sum(sum(r["lost"].values()) for r in self.rounds)
        holds = sum(r["holds"] for r in self.rounds)
        late = max((r["late"] for r in self.rounds), default=0)
        return [
            f"{WORDS[self.topology]}, {ORDER[self.way]}",
            str(len(self.rounds)),
            f"{quantile(announced, 0.5) / 1000:.2f} s",
            f"{quantile(first, 0.5):.2f}",
            ", ".join(f"{quantile(self.ratios, part):.2f}" for part in (0.5, 0.95, 1)),
            f"{self.last:.0f} ms",
            f"{max(0.0, late):.0f} ms",
            f"{lost} of {holds}",
            str(sum(sum(r["codes"].values()) for r in self.rounds)),
        ]

    def histogram(self) -> list[str]:
        left, cells = sorted(self.overlaps), []
        for bound in BOUNDS:
            cells.append(str(sum(value < bound for value in left) or ""))
            left = [value for value in left if value >= bound]
        cells.append(str(len(left) or ""))
        longest = f"{max(self.overlaps, default=0):.0f} ms"
        return [f"{WORDS[self.topology]}, {ORDER[self.way]}", *cells, longest, str(self.untold or "")]


class Table:
    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows

    @classmethod
    def read(cls, folder: Path) -> Table:
        rows = []
        for topology in WORDS:
            for way in ORDER:
                path = folder / f"{topology}-{way}.jsonl"
                if path.exists():
                    lines = path.read_text().splitlines()
                    rows.append(Row(topology, way, [json.loads(line) for line in lines]))
        return cls(rows)

    def text(self) -> str:
        heads = [
            "master",
            "rounds",
            "announced after",
            "first grant",
            "each worker back: median, 95 %, last",
            "the last after the announcement",
            "latest call past its limit",
            "holds lost",
            "calls without a lock",
        ]
        bounds = [f"< {b} ms" if b < 1000 else f"< {b // 1000} s" for b in BOUNDS]
        over = ["overlaps", *bounds, "more", "longest", "never told"]
        return "\n".join(
            [
                *_table(heads, [row.cells() for row in self.rows]),
                "",
                *_table(over, [row.histogram() for row in self.rows]),
            ]
        )


def _table(heads: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *rows)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--into", type=Path)
    given = parser.parse_args()
    text = Table.read(given.folder).text()
    if given.into:
        page = given.into.read_text()
        before, rest = page.split(BEGIN, 1)
        given.into.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.split(END, 1)[1]}")
    else:
        print(text)


if __name__ == "__main__":
    main()

"""Whether the memory, descriptors and threads of a process stay flat.

A process is looked at in /proc again and again.  Its first quarter is for warming up; then the median of the last quarter is
compared with the median of the second one: a leak lifts the one above the other however slow it is, while single peaks, as
in a failover, move neither.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

WHAT = ("KiB", "descriptors", "threads")
FEWEST = 16  # samples of a process that is judged
MOST = 2048  # samples that are kept of one
FINE_S = 1200  # a process that has lived shorter is still warming up, and has only a gross bound


@dataclass(frozen=True)
class Allowance:
    """How much more of each may be there later; memory also in part of what was there."""

    kib: int
    part: float
    descriptors: int
    threads: int


FINE = {"java": Allowance(96 << 10, 0.1, 8, 8), "": Allowance(3 << 10, 0.1, 3, 2), "go": Allowance(6 << 10, 0.1, 3, 4)}
GROSS = {"java": Allowance(256 << 10, 1.0, 48, 48), "": Allowance(24 << 10, 0.25, 24, 12)}


def look(pid: int) -> tuple[int, int, int] | None:
    """KiB of memory that belong to the process alone, descriptors and threads; None if it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        descriptors = len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return None
    words = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    if "RssAnon" not in words:
        return None  # dead, and not waited for yet
    kib = int(words["RssAnon"].split()[0]) + int(words["VmSwap"].split()[0])
    return kib, descriptors, int(words["Threads"])


@dataclass
class Curve:
    """All that was seen of a process."""

    me: str
    samples: list[tuple[float, int, int, int]] = field(default_factory=list)
    every: int = 1  # of the looks, one in so many is kept
    looks: int = 0

    def add(self, at: float, seen: tuple[int, int, int]) -> None:
        if self.looks % self.every == 0:
            self.samples.append((at, *seen))
        self.looks += 1
        if len(self.samples) > MOST:
            self.samples = self.samples[::2]
            self.every *= 2

    @property
    def seconds(self) -> float:
        return self.samples[-1][0] - self.samples[0][0] if self.samples else 0.0

    @property
    def allowance(self) -> Allowance:
        language = self.me.rstrip("0123456789").partition(".")[0]
        table = FINE if self.seconds >= FINE_S else GROSS
        return table.get(language, table[""])

    @property
    def long(self) -> bool:
        """Whether there is enough of it to be judged."""
        return len(self.samples) >= FEWEST

    def medians(self) -> list[tuple[float, float]]:
        """Of each kind, in the second quarter and in the last one."""
        n = len(self.samples)
        early, late = self.samples[n // 4 : n // 2], self.samples[-(n // 4) :]
        return [tuple(statistics.median(s[i] for s in part) for part in (early, late)) for i in (1, 2, 3)]  # type: ignore[misc]

    def leaks(self) -> list[str]:
        """A sentence for each kind that is not flat."""
        if not self.long:
            return []
        may = self.allowance
        found = []
        for what, (early, late), more in zip(WHAT, self.medians(), (may.kib, may.descriptors, may.threads)):
            if what == "KiB":
                more += int(early * may.part)
            if late - early > more:
                found.append(f"{self.me}: {early:.0f} {what} became {late:.0f} in {self.seconds:.0f} s; {more} more are allowed")
        return found

    def points(self, count: int = 12) -> list[list[float]]:
        """A few of the samples: seconds since the first, KiB, descriptors, threads."""
        n = len(self.samples)
        chosen = sorted({i * (n - 1) // (count - 1) for i in range(count)}) if n else []
        return [[round(self.samples[i][0] - self.samples[0][0], 1), *self.samples[i][1:]] for i in chosen]


def most(curves: Sequence[Curve]) -> tuple[int, int, int]:
    """The highest that any of them has now."""
    last = [curve.samples[-1][1:] for curve in curves if curve.samples]
    return tuple(max((one[i] for one in last), default=0) for i in range(3))  # type: ignore[return-value]

"""The subject's side of the benchmarks: answer each "go SECONDS" with one line of JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator


def turns() -> Iterator[float]:
    """Print "ready", and yield the length of each turn until the input ends."""
    print("ready", flush=True)
    for line in sys.stdin:
        yield float(line.split()[1])


def answer(done: int, seconds: float) -> None:
    print(json.dumps({"done": done, "seconds": seconds}), flush=True)

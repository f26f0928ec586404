#!/usr/bin/env python3
"""Whether the log of a failed check shows what no stall of the machine explains.

    final.py LOG    prints the first such line; fails if there is none

What only depends on what was computed, not on when: there is no second run for it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable

# What a line shows, and an expression for it.
FINAL = {
    "a history that was refused": r"(?:.*: )?REFUSED \S+ \S+ \S+: (?!undecided after)",
    "a seed of a simulator": r".*; replay(?: with)?: sim\w* .*--trace \d+$|replay: sim_driver |sim_stories: .*, at [\d.]+ s: "
    r"|sim\w*: seed \d+ does not leave the same trace twice$",
    "a broken fuzz target": r"fuzz: broken: |FAILED: \w+: (?:fuzz: broken: "
    r"|SUMMARY: (?!libFuzzer: timeout)|==\d+==\s*ERROR: (?!libFuzzer: timeout))",
    "a difference from a model": r"replay \w+: difference, line \d+: ",
    # Not one whose test was skipped, as on a machine that is too busy.
    "a planted bug that was missed": r"MISSED +(?!.*SKIPPED TEST)\S|FAILED: \w+: the planted mistake was missed: "
    r"|    traces of \w+: no trace differs from what the core does$",
    "an error of a compiler": r"\S+\.(?:c|h|cc|cpp|hpp|inc):\d+:\d+: (?:fatal )?error: |\S+\.(?:java|py):\d+(?::\d+)?: error: "
    r"|(?:vet: )?\S+\.go:\d+:\d+: |.*: undefined reference to |collect2: error: ",
}

# Reports of sanitizers, and of Go's race detector, which is one.  Behind a failed case of the same program they prove
# nothing: it has left behind what its threads still use, and what nobody frees.
REPORT = (
    r"WARNING: ThreadSanitizer: |WARNING: DATA RACE$|\S+:\d+:\d+: runtime error: "
    r"|==\d+==\s*ERROR: (?:Address|Leak|Thread|UndefinedBehavior)Sanitizer: "
)
PROGRAM = r" *\d+/\d+ Test +#\d+: "  # its output follows
FAILED_CASE = r"\[  (?:FAILED|ERROR ) *\] "


def first(log: Iterable[str]) -> str | None:
    """What the log shows, and the line."""
    failed = False
    for line in log:
        line = line.rstrip()
        if re.match(PROGRAM, line):
            failed = False
        elif re.match(FAILED_CASE, line):
            failed = True
        elif re.match(REPORT, line) and not failed:
            return f"a report of a sanitizer: {line.strip()}"
        for what, pattern in FINAL.items():
            if re.match(pattern, line):
                return f"{what}: {line.strip()}"
    return None


def main(path: str) -> int:
    with open(path, errors="replace") as log:
        found = first(log)
    if found is None:
        return 1
    print(found[:300])
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))

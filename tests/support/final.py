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
    # Not a worker of pytest-xdist that crashed: that is what it says of a test that takes too long, too.
    "a crash": r"Fatal Python error: (?!_enter_buffered_busy)|SIG(?:SEGV|BUS|ILL|FPE|ABRT): |fatal error: (?!newosproc|.*out of memory)"
    r"|\S+: line \d+: +\d+ (?:Segmentation fault|Bus error|Illegal instruction|Aborted) ",
}

# Reports of sanitizers, and of Go's race detector, which is one; and crashes.  Behind a failed case of the same program they
# prove nothing: it has left behind what its threads still use, and what nobody frees.
REPORTS = {
    "a report of a sanitizer": r"WARNING: ThreadSanitizer: |WARNING: DATA RACE$|\S+:\d+:\d+: runtime error: "
    r"|==\d+==\s*ERROR: (?:Address|Leak|Thread|UndefinedBehavior)Sanitizer: ",
    "a crash": r"\[  ERROR   \] --- Test failed with exception: |double free or corruption|corrupted (?:size vs|double-linked)"
    r"|(?:free|malloc|realloc|malloc_consolidate|munmap_chunk)\(\): |\*\*\* (?:stack smashing|buffer overflow) detected \*\*\*",
}
PROGRAM = r" *\d+/\d+ Test +#\d+: "  # its output follows
CRASHED = PROGRAM + r"\S+ \.*(?:Subprocess aborted\*\*\*Exception: |\*\*\*Exception: (?:SegFault|Illegal|Numerical))"
FAILED_CASE = r"\[  (?:FAILED|ERROR ) *\] "


def _what(patterns: dict[str, str], line: str) -> str | None:
    return next((f"{what}: {line.strip()}" for what, pattern in patterns.items() if re.match(pattern, line)), None)


def first(log: Iterable[str]) -> str | None:
    """What the log shows, and the line."""
    failed, crashed = False, None  # of a program: whether a case has failed so far, and how ctest says that it ended
    for line in log:
        line = line.rstrip()
        if re.match(PROGRAM, line):
            if crashed and not failed:
                return crashed
            failed, crashed = False, _what({"a crash": CRASHED}, line)
        elif not failed and (found := _what(REPORTS, line)):
            return found
        elif re.match(FAILED_CASE, line):
            failed = True
        if found := _what(FINAL, line):
            return found
    return crashed if not failed else None


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

#!/usr/bin/env python3
"""Which cases could not judge, and why.

    skips.py --ctest FILE  a line for each skipped case in what ctest --output-junit has written into FILE
    skips.py --go          passes on the output of go test -json that go test has without -v, and such lines
    skips.py LOG...        sums up the logs of checks, which have such lines, or those of pytest -rs --no-fold-skipped

Such a line is "skipped: PROGRAM, CASE: REASON".  To ctest and go a skipped case is one that passed; and ctest's own
SKIP_REGULAR_EXPRESSION would hide a failure of another case of the same program.
"""

from __future__ import annotations

import json
import re
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

UNSAID = "no reason given"

# Reasons that are the same on every machine, and what they have in common.
BY_DESIGN = {
    r"for Test\w+|for live/\w+": "run by another test",
    r"sanitizers .*": "not with sanitizers",
    r".*\(a sanitized build has none\)": "not with sanitizers",
    r"Redisson .* has no .*": "another version of Redisson",
    r"its permits have another form on the wire": "another version of Redisson",
    r"nothing is inherited|the same": "the same as another case",
    r"this server moves .*": "another version of the server",
    r"tasks do not count their cancels|needs Python 3.11": "another version of Python",
}


# ---- From each kind of test to lines ---------------------------------------------------------------


def of_cmocka(output: Iterable[str]) -> Iterator[tuple[str, str]]:
    case = reason = ""
    for line in output:
        if begun := re.match(r"\[ RUN      \] (\S+)$", line):
            case, reason = begun[1], UNSAID
        elif said := re.match(r" +skipped: (.*)", line):
            reason = said[1]
        elif case and line == f"[  SKIPPED ] {case}":  # at the end they are listed once more
            yield case, reason
            case = ""


def of_unittest(output: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Of the output with -v."""
    case = ""
    for line in output:
        if named := re.match(r" *(\w+) \([\w.]+\)", line):
            case = named[1]
        if said := re.search(r"\.\.\. skipped (['\"])(.*)\1$", line):
            yield case, said[2]


def of_ctest(text: str) -> Iterator[str]:
    for program in ElementTree.fromstring(text).iter("testcase"):
        output = (program.findtext("system-out") or "").splitlines()
        for case, reason in [*of_cmocka(output), *of_unittest(output)]:
            yield f"skipped: {program.get('name')}, {case}: {reason}"


def of_go(lines: Iterable[str], pass_on: Callable[[str], object]) -> None:
    """Output of a test is kept until its end is known; what was running at the end of all is passed on."""
    kept: dict[tuple[str, str], list[str]] = defaultdict(list)
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:  # from go itself
            pass_on(line)
            continue
        test = (event.get("Package", ""), event.get("Test", ""))
        output = event.get("Output", "")
        if not test[1]:
            if output != "PASS\n":
                pass_on(output)
            continue
        if not output.startswith("=== "):
            kept[test].append(output)
        if event["Action"] in ("pass", "fail", "skip"):
            said = kept.pop(test)
            if event["Action"] == "fail":
                pass_on("".join(said))
            if event["Action"] == "skip":
                pass_on(f"skipped: {test[0]}, {test[1]}: {reason_in_go(said)}\n")
    for said in kept.values():
        pass_on("".join(said))


def reason_in_go(output: Iterable[str]) -> str:
    said = [match[1] for line in output if (match := re.match(r" +\w+\.go:\d+: (.*)", line))]
    return said[-1] if said else UNSAID


# ---- All of them ------------------------------------------------------------------------------------


def of_log(log: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Cases and reasons; all cases that a test of pytest was parametrized with are one."""
    for line in log:
        if match := re.match(r"skipped: (.+?): (.+)", line):
            yield match[1], match[2]
        elif match := re.match(r"SKIPPED (\S+?\.py)(?:::([^[]+?)(?:\[.*\])?)? - (?:Skipped: )?(.+)", line):
            yield f"{match[1]}, {match[2] or 'all of it'}", match[3]
        elif match := re.match(r"SKIPPED \[(\d+)\] (\S+?\.py)(?::\d+)?: (.+)", line):
            yield from [(match[2], match[3])] * int(match[1])


def design(reason: str) -> str | None:
    return next((kind for pattern, kind in BY_DESIGN.items() if re.fullmatch(pattern, reason)), None)


def summary(skips: Iterable[tuple[str, str]]) -> list[str]:
    found = Counter(skips)
    kinds: Counter[str] = Counter()
    lines = []
    for (case, reason), times in sorted(found.items()):
        if kind := design(reason):
            kinds[kind] += times
        else:
            lines.append(f"skipped: {case}: {reason}" + (f" ({times} times)" if times > 1 else ""))
    lines = lines or ["nothing was skipped"]
    if kinds:
        each = ", ".join(f"{times} {kind}" for kind, times in kinds.most_common())
        lines.append(f"by design, on every machine: {each}")
    return lines


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--ctest"] and len(arguments) == 2:
        for line in of_ctest(Path(arguments[1]).read_text()):
            print(line)
    elif arguments == ["--go"]:
        of_go(sys.stdin, lambda text: print(text, end="", flush=True))
    elif arguments and not arguments[0].startswith("-"):
        logs = [Path(log).read_text(errors="replace").splitlines() for log in arguments]
        print(*summary(skip for log in logs for skip in of_log(log)), sep="\n")
    else:
        sys.exit(__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

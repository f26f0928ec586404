"""The figures of a whole run of `./dev test`, from its logs: for docs/reliability.md.

    python tests/reliability/figures.py BUILD      after a run in which all checks passed; writes figures.json

Fails if a check did not run or a log does not say what it should: a figure is never left out, guessed, or from another
run.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
FILE = HERE / "figures.json"
# Each figure is the sum of all such numbers in the logs of the checks whose names begin so.
SUMS = {
    "stories": ("simulator", r"^sim_stories: (\d+) good"),
    "walks": ("simulator", r"^sim_walk: (\d+) walks good"),
    "compared": ("simulator", r"^model_check: (\d+) calls"),
    "driver": ("address", r"^driver: \w+, (\d+) worlds"),
    "states": ("models", r"^ok .* ([\d,]+) states"),
    "steps": ("models", r"^ok .* ([\d,]+) steps taken by the core"),
    "mistakes_in_models": ("models", r"(\d+) of \d+ mutants caught"),
    "targets": ("fuzz", r"^fuzz: (\d+) of \1 targets without a failure"),
    "inputs": ("fuzz", r"(\d+) runs, corpus"),
    "mistakes_by_fuzzing": ("fuzz", r"(\d+) of \1 planted mistakes found"),
    "mutants": ("mutants", r"^mutants: (\d+) of \1 caught"),
    "histories": ("histories", r"^(\d+) histories, .* all in order"),
    "operations": ("histories", r"^\d+ histories, (\d+) operations in .* all in order"),
    "losses": ("histories", r"(\d+) losses: all in order"),
    "live": ("live and faults", r"^(\d+) test programs"),
    "live_sanitized": ("live, ", r"^(\d+) test programs"),
    "deployments": ("deployments", r"^(\d+) test programs"),
    "address": ("address", r"^(\d+) test programs"),
    "thread": ("thread", r"^(\d+) test programs"),
    "topology": ("topology", r"^(\d+) passed"),
    "redisson": ("redisson", r"^(\d+) passed"),
    "scripts": ("scripts", r"^(\d+) passed"),
    "fencing": ("fencing", r"^(\d+) passed"),
    "soak_operations": ("soak", r"^[\d:]+, \d+ processes: (\d+) operations, .*nothing lost, nothing leaked"),
    "soak_faults": ("soak", r" (\d+) faults, nothing lost, nothing leaked"),
}
# Each is the largest such number: the same programs are counted on real servers and, most of them, on the kit's.
LARGEST = {
    "conformance": ("conformance", r"^(\d+) programs, .* 0 logs differ"),
}
# Each is the number of such lines.
COUNTS = {
    "unit": ("unit", r"^ *\d+/\d+ Test +#\d+: unit/\S+ \.+ +Passed"),
    "models": ("models", r"^ok .* states"),
    "replayed": ("models", r"^ok .* steps taken by the core"),
}
WORLDS = {"sim": "sim", "group": "sim_group", "topology": "sim_topo"}


class Missing(Exception):
    """What a run did not say."""


class Run:
    """The logs of a run."""

    def __init__(self, build: Path) -> None:
        self.logs = build / "logs"
        failed = self.logs / "failed"
        if failed.exists() and failed.read_text().strip():
            raise Missing(f"not all checks passed: {failed.read_text().strip()}")
        self.checks = [line.split(" ", 1)[1] for line in (self.logs / "times").read_text().splitlines()]

    def named(self, begin: str) -> list[str]:
        found = [check for check in self.checks if check.startswith(begin)]
        if not found and begin == "thread" and any(check.startswith("live, asan") for check in self.checks):
            raise Missing("its commit draws the address sanitizer only: use a run of one that draws the thread sanitizer, or of `--all`")
        if not found:
            raise Missing(f"the check {begin} is not in {self.logs / 'times'}: not a whole run")
        return found

    def log(self, check: str) -> str:
        """The log of a check; of its second run if there was one, unless that had only the programs that had failed."""
        names = [re.sub(r"[^a-zA-Z0-9.]+", "-", f"{check}{again}\n") + ".log" for again in ("", " again")]
        paths = [path for name in names if (path := self.logs / name).exists()]
        path = max(paths, key=lambda path: path.stat().st_mtime)
        text = path.read_text()
        if "again" in path.name and re.search(r"^\d+ test programs", text, re.MULTILINE):
            raise Missing(f"{check} was run again, and its log has only a part")
        return text

    def found(self, begin: str, pattern: str) -> list[str]:
        numbers: list[str] = []
        for check in self.named(begin):
            found = re.findall(pattern, self.log(check), re.MULTILINE)
            if not found:
                raise Missing(f"the log of {check} has no {pattern}")
            numbers += found
        return numbers

    def sum(self, begin: str, pattern: str) -> int:
        return sum(int(number.replace(",", "")) for number in self.found(begin, pattern))

    def worlds(self, program: str) -> dict[str, Any]:
        """What a simulator says of its worlds when it ends."""
        pattern = rf"^{program}: (\d+) seeds good, (\d+) events, .*granted (\d+).*faults: (.*)$"
        line = re.search(pattern, self.log(self.named("simulator")[0]), re.MULTILINE)
        if not line:
            raise Missing(f"the log of the simulators has no line of {program}")
        words = line[4].split()
        faults = {name: int(number) for name, number in zip(words[::2], words[1::2], strict=True)}
        return {"worlds": int(line[1]), "events": int(line[2]), "granted": int(line[3]), "faults": faults}


def collect(build: Path) -> dict[str, Any]:
    run = Run(build)
    commit, date = (run.logs / "commit").read_text().split()
    labels = sorted(check.partition(", ")[2] for check in run.named("live and faults"))
    pythons = [int(n) for n in re.findall(r"^(\d+) passed", run.log(run.named("pythons")[0]), re.MULTILINE)]
    return {
        "run": f"a run at commit {commit} of {date}, in which every check passed",
        "servers": labels,
        "pythons": pythons,
        **{name: run.sum(*where) for name, where in SUMS.items()},
        **{name: max(map(int, run.found(*where))) for name, where in LARGEST.items()},
        **{name: len(run.found(*where)) for name, where in COUNTS.items()},
        "simulators": {name: run.worlds(program) for name, program in WORLDS.items()},
    }


def main() -> None:
    try:
        figures = collect(Path(sys.argv[1]).resolve())
    except (Missing, OSError) as error:
        raise SystemExit(f"figures.json is left as it is: {error}") from None
    FILE.write_text(json.dumps(figures, indent=2) + "\n")
    subprocess.run([sys.executable, str(HERE / "page.py")], check=True)


if __name__ == "__main__":
    main()

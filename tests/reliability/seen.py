"""What the worlds of the simulators have contained: pairs of faults, and transitions of the engine's objects.

    python tests/reliability/seen.py                          each pair is the subject of a world
    python tests/reliability/seen.py --rounds 100 --least 100 ... of 100, and must have met in 100 worlds or more

A pair that has not met often enough is the subject of further worlds, up to a limit.

Two faults have met if both took effect in one world within one lease.  seen.toml lists the pairs that cannot meet, and
the transitions that there are.  Fails if a pair has met too rarely, if a transition of the list was not seen, or if one
was seen that is not in the list.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import faults
from faults import ROOT, tomllib

HERE = Path(__file__).resolve().parent
# The programs, below the build folder, by the simulators' names; and the worlds of the driver's in a round.
PROGRAMS = {
    "sim": "tests/sim/sim",
    "group": "tests/sim/sim_group",
    "topology": "tests/sim/sim_topo",
    "driver": "tests/driver/sim_driver",
}
DRIVER_WORLDS = 60
MORE = 20  # further worlds of a pair, for each in which it must have met
LONG = 50  # rounds, after which even the rarest transitions have been seen

Pair = frozenset[str]
Transition = tuple[str, str, str]  # of which object, from one state to another


# ---- The table -----------------------------------------------------------------------------------


class Table:
    def __init__(self, path: Path = HERE / "seen.toml") -> None:
        with open(path, "rb") as file:
            table: dict[str, Any] = tomllib.load(file)
        self.apart = {(row["simulator"], frozenset(row["pair"])): row["why"] for row in table["apart"]}
        self.transitions = {
            (what, start, end)
            for what, states in table["transitions"].items()
            for start, ends in states.items()
            for end in ends
        }
        self.seldom = {(what, *way.split()) for what, ways in table["seldom"].items() for way in ways}
        self.several: dict[Transition, list[Transition]] = {}
        for what, ways in table["several"].items():
            for states in (way.split() for way in ways):
                steps = list(zip(states, states[1:], strict=False))
                self.several[what, states[0], states[-1]] = [(what, *step) for step in steps]

    def problems(self) -> list[str]:
        """What is wrong with the table itself."""
        wrong = [f"{' '.join(one)} is in both lists" for one in self.several.keys() & self.transitions]
        wrong += [
            f"{' '.join(one)} leads over {' '.join(step)}, which is no transition"
            for one, steps in self.several.items()
            for step in steps
            if step not in self.transitions
        ]
        wrong += [f"{' '.join(one)} is seldom, and no transition" for one in self.seldom - self.transitions]
        for simulator, pair in self.apart:
            unknown = sorted(pair - drawn_by(simulator))
            wrong += [f"the simulator {simulator} has no fault {name}" for name in unknown]
        return wrong


def drawn_by(simulator: str) -> set[str]:
    """The faults that a simulator draws."""
    if simulator in faults.SIMULATORS:
        return faults.drawn_by(simulator)
    names = re.search(r"fault_names\[\] = \{(.*?)\}", (ROOT / "tests/driver/driver_sim.c").read_text(), re.DOTALL)
    return set(re.findall(r'"([\w-]+)"', names[1])) if names else set()


def pairs_of(simulator: str) -> set[Pair]:
    """All pairs of them."""
    return {frozenset(pair) for pair in combinations(sorted(drawn_by(simulator)), 2)}


def pairs_that_meet(table: Table) -> int:
    return sum(len(pairs_of(simulator)) for simulator in PROGRAMS) - len(table.apart)


# ---- What was seen -------------------------------------------------------------------------------


class Seen:
    """What the simulators have said."""

    def __init__(self) -> None:
        self.pairs: dict[str, Counter[Pair]] = {}
        self.transitions: Counter[Transition] = Counter()

    def read(self, simulator: str, text: str) -> None:
        pairs = self.pairs.setdefault(simulator, Counter())
        for words in (line.split() for line in text.splitlines()):
            if words[:1] == ["pair"]:
                pairs[frozenset(words[1:3])] += int(words[3])
            elif words[:1] == ["transition"]:
                self.transitions[words[1], words[2], words[3]] += int(words[4])

    def problems(self, table: Table, least: int, *, long: bool = True) -> list[str]:
        wrong = []
        for simulator, met in self.pairs.items():
            for pair in sorted(met, key=sorted):
                both, excused = " and ".join(sorted(pair)), (simulator, pair) in table.apart
                if excused and met[pair]:
                    wrong.append(f"{simulator}: {both} have met, which seen.toml calls impossible")
                elif not excused and met[pair] < least:
                    wrong.append(f"{simulator}: {both} have met in {met[pair]} worlds, not in {least}")
        unseen = table.transitions - self.transitions.keys() - (set() if long else table.seldom)
        unlisted = self.transitions.keys() - table.transitions - table.several.keys()
        wrong += [f"{' '.join(one)} was never seen" for one in sorted(unseen)]
        wrong += [f"{' '.join(one)} was seen, and is not listed" for one in sorted(unlisted)]
        return wrong

    def show(self) -> None:
        """Everything, for the log."""
        for simulator, met in self.pairs.items():
            for name in sorted({name for pair in met for name in pair}):
                others = sorted((*(pair - {name}), met[pair]) for pair in met if name in pair)
                print(f"{simulator}, {name} with: " + ", ".join(f"{other} {n}" for other, n in others))
        for one, n in sorted(self.transitions.items()):
            print(f"{one[0]}: {one[1]} to {one[2]} {n}")


def run(build: Path, simulator: str, first: int, last: int) -> str:
    """What a simulator says of the worlds of these seeds."""
    command = [str(build / PROGRAMS[simulator]), "--seen"]
    command += [] if simulator == "driver" else ["--focused", "--seeds", f"{first}-{last}"]
    done = subprocess.run(
        command, text=True, stdout=subprocess.PIPE, env=os.environ | {"SNIB_SIM_SEEDS": str(last)}, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed")
    return done.stdout


def run_rounds(build: Path, simulator: str, seen: Seen, rounds: int) -> None:
    pairs = DRIVER_WORLDS if simulator == "driver" else len(pairs_of(simulator))
    seen.read(simulator, run(build, simulator, 1, rounds * pairs))
    if set(seen.pairs[simulator]) != pairs_of(simulator):
        raise SystemExit(f"{simulator} does not speak of exactly the pairs of its faults")


def run_more(build: Path, simulator: str, seen: Seen, table: Table, rounds: int, least: int) -> None:
    """Worlds of those pairs that have met too rarely; all pairs take turns, in the order in which they are printed."""
    met = seen.pairs[simulator]
    for turn, pair in enumerate(list(met)):
        for more in range(1, MORE * least + 1):
            if met[pair] >= least or (simulator, pair) in table.apart:
                break
            seed = (rounds + more) * len(met) + turn
            seen.read(simulator, run(build, simulator, seed, seed))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "core", help="where the simulators are")
    parser.add_argument("--rounds", type=int, default=1, help="worlds in which each pair is the subject")
    parser.add_argument("--least", type=int, default=1, help="worlds in which each pair must have met")
    options = parser.parse_args()
    table, seen = Table(), Seen()
    if wrong := table.problems():
        raise SystemExit("\n".join(["tests/reliability/seen.toml:", *wrong]))
    for simulator in PROGRAMS:
        run_rounds(options.build, simulator, seen, options.rounds)
        if simulator != "driver":
            run_more(options.build, simulator, seen, table, options.rounds, options.least)
    seen.show()
    if wrong := seen.problems(table, options.least, long=options.rounds >= LONG):
        sys.exit("\n".join(wrong))
    met_in = {(simulator, pair): n for simulator, met in seen.pairs.items() for pair, n in met.items()}
    rarest = min(n for where, n in met_in.items() if where not in table.apart)
    transitions = len(table.transitions)
    print(f"{pairs_that_meet(table)} pairs of faults, each in {rarest} worlds or more; {transitions} transitions")


if __name__ == "__main__":
    main()

"""Bugs to be planted in the core, by the rooms they are planted in."""

import importlib
from typing import NamedTuple


class Mutant(NamedTuple):
    """One textual change, which stands for a bug, and what has to find it.

    `file` lies in core/, or in bindings/.  `old` is there exactly once, whatever white space lies
    between its words.  `by` is the test program of ctest that finds the bug, "unit_timer" or
    "live/queue", or a file of pytest, of the Python package, "python/test_lock.py", or of the
    scripts alone, "traces/test_fair.py"; after a space the one test in it.  "": the simulators.
    """

    name: str
    file: str
    old: str
    new: str
    by: str = ""


ROOMS = ("links", "lanes", "durable", "routes", "holds", "waits", "scripts", "groups", "driver", "api", "urls")


def all_mutants() -> list[Mutant]:
    """The mutants of all rooms, each under a name of its own."""
    mutants: list[Mutant] = []
    for room in ROOMS:
        mutants += importlib.import_module(f"{__name__}.{room}").MUTANTS
    names = [mutant.name for mutant in mutants]
    assert len(set(names)) == len(names), "two mutants have one name"
    return mutants

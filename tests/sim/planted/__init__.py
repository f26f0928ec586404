"""Bugs to be planted in the core, by area."""

import importlib
from typing import NamedTuple


class Mutant(NamedTuple):
    """One textual change that represents a bug, and the test that must find it.

    `file` is below core/, or in bindings/.  `old` must occur in it exactly once, with any white
    space between its words.  `by` is the ctest program that finds the bug, "unit_timer" or
    "live/queue", or a pytest file, either of the Python package, "python/test_lock.py", or of the
    scripts alone, "traces/test_fair.py"; after a space, a single test in it.  "": the simulators.
    """

    name: str
    file: str
    old: str
    new: str
    by: str = ""


ROOMS = (
    "extend", "identity", "peers", "links", "lanes", "durable", "routes", "moves", "holds", "waits", "tenure",
    "scripts", "groups", "driver", "api", "urls",
)


def all_mutants() -> list[Mutant]:
    """The mutants of all areas; their names are unique."""
    mutants: list[Mutant] = []
    for room in ROOMS:
        mutants += importlib.import_module(f"{__name__}.{room}").MUTANTS
    names = [mutant.name for mutant in mutants]
    assert len(set(names)) == len(names), "two mutants have one name"
    return mutants

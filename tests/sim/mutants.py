#!/usr/bin/env python3
"""Known bugs of lock clients, planted one at a time: the tests must find every one.

    mutants.py [--build FOLDER] [--seeds N] [--sample N [--draw WORD]] [--fit] [NAME...]

The bugs are listed in planted/, each with the test that must find it.  A change that no longer applies to
its source, or no longer compiles, is an error, whichever are drawn, so that the list cannot go stale unnoticed.
The unchanged core must pass first.
--sample draws some at random, seeded with WORD, which is today's date by default.
--fit plants none and only checks that each still applies.
"""

import argparse
import datetime
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from planted import Mutant, all_mutants
from planted.plant import CORE, ROOT, Build, NotMade, changed_text, planted_scripts

WORLDS = 5000  # of the simulators that tests name, as in ./dev test
PATIENCE = 1800  # seconds after which a program is considered hung, on a busy machine,
EFFORT = 600  # ... or of processor time: one that runs in circles,
GRACE = 10  # ... or after its first failed test, which leaves time for its clean-up

# Tests that load a module with the core in it, which has the bug, too; and what tells them where it is.
MODULES = {"faults/unload": ("test_whole_plugin", "SNIB_TEST_WHOLE_PLUGIN")}


class Verdict(NamedTuple):
    good: bool
    how: str


def run_program(command: list[str], patience: float = PATIENCE, **environment: str) -> Verdict:
    """Whether the program succeeded; else how it failed.  It is killed soon after its first failure."""
    # In a separate session, so that its child processes can be killed with it.
    process = subprocess.Popen(
        command,
        text=True,
        errors="replace",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | {"SNIB_TEST_ALL": "", "SNIB_SIM_SEEDS": "1000"} | environment,
        start_new_session=True,
    )
    resource.prlimit(process.pid, resource.RLIMIT_CPU, (EFFORT, EFFORT))
    assert process.stdout
    killer = threading.Timer(patience, os.killpg, (process.pid, signal.SIGKILL))
    killer.start()
    failed = last = ""
    for line in process.stdout:
        found = re.search(r"^\[  (?:FAILED|ERROR ) *\] (?!\d)(\w+)|^FAILED \S*::(\w+)", line)
        if found and not failed:
            failed = f"{found[1] or found[2]} fails"
            killer.cancel()
            killer = threading.Timer(GRACE, os.killpg, (process.pid, signal.SIGKILL))
            killer.start()
        if line.strip() and not line.startswith("replay"):
            last = line.strip()
    code = process.wait()
    killer.cancel()
    if code == -signal.SIGKILL:
        last = "does not come to an end"
    elif code < 0:
        last = f"{signal.Signals(-code).name}: {last}"
    return Verdict(code == 0, failed or re.sub(r"^sim\w*: |; replay.*$", "", last))


def run_test(program: Path, test: str, worlds: int, patience: float, **environment: str) -> Verdict:
    """A test program; for slow programs, only the test in question.  The driver's simulator has many stories,
    one after another: a few worlds of each first."""
    if program.name == "sim_driver" and worlds == WORLDS:
        verdict = run_program([str(program)], SNIB_SIM_SEEDS=str(WORLDS // 16))
        if not verdict.good:
            return verdict
    environment |= {"SNIB_TEST_ONLY": test, "SNIB_SIM_SEEDS": str(worlds)}
    return run_program([str(program)], patience, **environment)


def run_pytest(by: str, folder: Path, patience: float, **environment: str) -> Verdict:
    """A file of tests, or one test in it."""
    name, _, test = by.partition(" ")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-rf", "-p", "no:cacheprovider"]
    command += [f"{folder}/{name.split('/')[1]}", *(["-k", test] if test else [])]
    return run_program(command, patience, PYTHONDONTWRITEBYTECODE="1", **environment)


def run_python(module: Path, by: str, work: Path, patience: float) -> Verdict:
    """Tests of the Python package, with this extension module."""
    package = work / "package"
    shutil.copytree(ROOT / "python" / "snib", package / "snib", dirs_exist_ok=True)
    shutil.copy(module, package / "snib" / module.name)
    return run_pytest(by, ROOT / "tests" / "python", patience, PYTHONPATH=str(package))


def simulators_for(changed: str) -> tuple[str, ...]:
    """Code that only locks of several servers use needs their worlds, which are larger."""
    if not changed:
        return ("sim_group", "sim_stories", "sim")
    return ("sim_group",) if changed.endswith(("/group.c", "/carrier.c")) else ("sim_stories", "sim")


def run_sim(programs: dict[str, Path], seeds: int) -> Verdict:
    """The stories, worlds of all kinds of locks, and worlds of mutexes only, whose races are the rarest: a
    few of each first."""
    runs = []
    if "sim_group" in programs:
        runs.append([str(programs["sim_group"]), "--seeds", f"1-{max(1, seeds // 3)}"])
    if "sim" in programs:
        runs.append([str(programs["sim_stories"])])
        few = min(seeds, 300)
        for first, last in ((1, few), (few + 1, seeds)):
            for option in ([], ["--mutexes"]):
                if first <= last:
                    runs.append([str(programs["sim"]), *option, "--seeds", f"{first}-{last}"])
    for command in runs:
        verdict = run_program(command)
        if not verdict.good:
            return verdict
    return Verdict(True, "")


class Bench:
    """The builds that the chosen mutants need, and a folder for the mutated programs."""

    def __init__(self, build: Path, chosen: list[Mutant], work: Path, seeds: int) -> None:
        self.work = work
        self.seeds = seeds
        self.took: dict[str, float] = {}  # seconds, on the unchanged core
        self.tests = sorted({mutant.by for mutant in chosen})
        targets = {self.target(by) for by in self.tests if by and not self.is_pytest(by)}
        targets |= {MODULES[by.split(" ")[0]][0] for by in self.tests if by.split(" ")[0] in MODULES}
        targets |= set(simulators_for("")) if "" in self.tests else set()
        python = any(by.startswith("python/") for by in self.tests)
        self.core = Build(build / "core", sorted(targets)) if targets else None
        self.python = Build(build / "python", ["_core"]) if python else None

    @staticmethod
    def is_pytest(by: str) -> bool:
        return by.startswith(("python/", "traces/"))

    @staticmethod
    def target(by: str) -> str:
        name = by.split(" ")[0].replace("/", "_")
        return "sim_topo" if name == "sim_topology" else name

    def run(self, by: str, mutant: Mutant | None, work: Path, seeds: int) -> Verdict:
        """Run the test that must find the mutant; None: on the unchanged core."""

        def made(build: Build | None, target: str) -> Path:
            assert build
            return build.planted(mutant, target, work) if mutant else build.program(target)

        if by == "":
            changed = mutant.file if mutant else ""
            wanted = simulators_for(changed)
            return run_sim({name: made(self.core, name) for name in wanted}, seeds)
        patience = self.patience(by) if mutant else PATIENCE
        if by.startswith("traces/"):
            scripts = planted_scripts(mutant, work) if mutant else CORE / "lua"
            return run_pytest(by, ROOT / "tests/live/traces", patience, SNIB_TEST_SCRIPTS=str(scripts))
        if by.startswith("python/"):
            return run_python(made(self.python, "_core"), by, work, patience)
        worlds = seeds if seeds < self.seeds else WORLDS
        name, _, test = by.partition(" ")
        module, variable = MODULES.get(name, ("", ""))
        environment = {variable: str(made(self.core, module))} if module else {}
        return run_test(made(self.core, self.target(by)), test, worlds, patience, **environment)

    def patience(self, by: str) -> float:
        """For a mutant: far more than the unchanged core has taken just now.  Simulators run longer than then."""
        took = self.took.get(by)
        return PATIENCE if by.startswith("sim") or took is None else min(PATIENCE, 120 + 20 * took)

    def check_compile(self, mutants: list[Mutant]) -> None:
        """Each source of the core that a mutant changes still compiles."""
        core = self.core
        if core is None:
            return

        def check(mutant: Mutant) -> None:
            with tempfile.TemporaryDirectory(dir=self.work) as folder:
                try:
                    core.check(mutant, Path(folder))
                except NotMade as error:
                    raise NotMade(f"{mutant.name}: {error}") from None

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(check, mutants))

    def check_unchanged(self, seeds: int) -> None:
        for by in self.tests:
            begin = time.monotonic()
            verdict = self.run(by, None, self.work / "unchanged", seeds)
            if not verdict.good:
                sys.exit(f"mutants: the unchanged core fails: {by}: {verdict.how}")
            self.took[by] = time.monotonic() - begin

    def try_mutant(self, mutant: Mutant) -> Verdict:
        with tempfile.TemporaryDirectory(dir=self.work) as folder:
            try:
                return self.run(mutant.by, mutant, Path(folder), self.seeds)
            except NotMade as error:
                return Verdict(True, f"is no program: {error}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=os.environ.get("SNIB_BUILD", ROOT / "build"))
    parser.add_argument("--seeds", type=int, default=3000, help="of the simulators")
    parser.add_argument("--sample", type=int, help="so many of them, drawn at random")
    parser.add_argument("--draw", default=str(datetime.date.today()), help="which draw; the date")
    parser.add_argument("--fit", action="store_true", help="plant none")
    parser.add_argument("names", nargs="*", help="only mutants whose name contains one of these")
    arguments = parser.parse_args()
    chosen = []
    mutants = all_mutants()
    for mutant in mutants:
        changed_text(mutant)  # each must apply, chosen or not
        if not arguments.names or any(name in mutant.name for name in arguments.names):
            chosen.append(mutant)
    if arguments.fit:
        return
    if arguments.sample:
        chosen = random.Random(arguments.draw).sample(chosen, min(arguments.sample, len(chosen)))
    missed = []
    with tempfile.TemporaryDirectory(prefix="snib-mutants-") as folder:
        bench = Bench(arguments.build, chosen, Path(folder), arguments.seeds)
        if not arguments.names:
            bench.check_compile(mutants)
        # For a sample, ./dev test has already seen the simulators pass: a few of their worlds do.
        bench.check_unchanged(100 if arguments.sample else arguments.seeds)
        for mutant in chosen:
            begin = time.monotonic()
            verdict = bench.try_mutant(mutant)
            print(
                f"{'MISSED' if verdict.good else 'caught'}  {mutant.name:<58} "
                f"{time.monotonic() - begin:6.1f} s  {verdict.how[: 2000 if verdict.good else 90]}",
                flush=True,
            )
            if verdict.good:
                missed.append(mutant.name)
    drawn = f", drawn by {arguments.draw}" if arguments.sample else ""
    print(f"mutants: {len(chosen) - len(missed)} of {len(chosen)} caught{drawn}")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    try:
        main()
    except NotMade as error:
        sys.exit(f"mutants: {error}")

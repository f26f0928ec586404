#!/usr/bin/env python3
"""Small mistakes made at random places of the core's C, one at a time: how many of them do the tests find?

    automatic.py --draw WORD [--sample N] [--only api,driver] [--seeds N] [--live SECONDS] [--jobs N] [--build FOLDER]
    automatic.py --draw WORD --quick  without looking what executes the line: unit tests and simulators alone
    automatic.py --draw WORD --list   only show what is drawn
    automatic.py --holes [--only ...] show the lines that no test executes

mutants.py asks whether known bugs are found; this asks it of mistakes that nobody has chosen (planted/operators.py).
The word draws them, lines first, so that what is written densely counts no more.  One that does not compile, or gives
the same code, is drawn again.  Only tests that execute the changed line are run (planted/covered.py), cheapest first,
until one fails; a failure of a live test counts if it fails a second time, alone.  Not run are the tests of Python,
Go, Redisson, whole topologies and sanitizers, and a simulator runs fewer worlds than `./dev test`: of what survives
here some would be found there.
"""

import argparse
import hashlib
import os
import random
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

from planted.covered import FEW_SEEDS, Covered, Test, tests_of
from planted.operators import Change, changes
from planted.plant import CORE, ROOT, Build, NotMade, run

FOLDERS = ("api", "driver", "engine", "locks", "net", "cli")
AT_ONCE = 4  # live tests of one mutant: they wait more than they work
CHEAP = 1.5  # seconds: what takes no longer runs alone and first
MEMORY = 8 << 30


class Drawn:
    """A mistake in a file of the core."""

    def __init__(self, file: str, text: str, change: Change) -> None:
        self.file, self.change = file, change
        raw = text.encode()
        self.text = (raw[: change.begin] + change.new.encode() + raw[change.end :]).decode()
        self.line = raw[: change.begin].count(b"\n") + 1
        self.old = text.splitlines()[self.line - 1].strip()
        self.new = self.text.splitlines()[self.line - 1].strip()

    def __str__(self) -> str:
        return f"{self.file}:{self.line}  {self.change.what}\n    - {self.old}\n    + {self.new}"


def draw(word: str, only: list[str]) -> list[Drawn]:
    """Every line's mistake, in the order in which the word draws them."""
    chance = random.Random(word)
    drawn = []
    for path in sorted(CORE.glob("*/*.c")):
        file = str(path.relative_to(CORE))
        if not any(file.startswith(part) for part in only):
            continue
        text = path.read_text()
        by_line: dict[int, list[Change]] = {}
        for change in changes(text):
            by_line.setdefault(text.encode()[: change.begin].count(b"\n"), []).append(change)
        drawn += [Drawn(file, text, chance.choice(found)) for _, found in sorted(by_line.items())]
    chance.shuffle(drawn)
    return drawn


class Programs:
    """The tests, and the mutant in the programs that they need."""

    def __init__(self, build: Path, seeds: int, live: float, quick: bool) -> None:
        self.folder = build / "core"
        self.tests = {test.name: test for test in tests_of(self.folder)}
        self.build = Build(self.folder, sorted({test.target for test in self.tests.values()}))
        for link in self.build.link.values():  # most of the time goes into linking
            link += ["-Wl,-S", *(["-fuse-ld=gold"] if shutil.which("ld.gold") else [])]
        self.covered = None if quick else Covered(build / "coverage", list(self.tests.values()))
        self.seeds, self.live = seeds, live
        self.same: dict[str, str] = {}

    def is_changed(self, mutant: Drawn, work: Path) -> bool:
        """Whether it compiles, to another object than the source without it."""
        source = CORE / mutant.file
        made, (_, line) = next((made, each) for made, each in self.build.compile.items() if each[0] == source)

        def digest(text: str) -> str:
            (work / source.name).write_text(text)
            command = list(line)
            command[command.index("-o") + 1] = str(work / "same.o")
            command[command.index("-c") + 1] = str(work / source.name)
            run([*command, f"-I{source.parent}", "-g0", "-w"], self.folder)
            return hashlib.sha256((work / "same.o").read_bytes()).hexdigest()

        if made not in self.same:
            self.same[made] = digest(source.read_text())
        return digest(mutant.text) != self.same[made]

    def planted(self, test: Test, mutant: Drawn, work: Path) -> tuple[list[str], dict[str, str]]:
        """The command that runs the test with the mutant, and its environment."""
        environment = dict(test.environment)
        if test.target == "snib_command":
            made = self.build.changed("snib_command", CORE / mutant.file, mutant.text, work)
            return test.command, environment | {"SNIB_COMMAND": str(made)}
        made = self.build.changed(test.target, CORE / mutant.file, mutant.text, work)
        if test.target == "conform":
            return [str(made.parent) if each == str(self.folder / "tests") else each for each in test.command], environment
        return [str(made), *test.command[1:]], environment

    def quick_tests_for(self, mutant: Drawn) -> list[tuple[Test, int, float]]:
        """All unit tests, that of the file itself first, and few worlds of the simulators."""
        stem = Path(mutant.file).stem
        order = [f"unit_{stem}", "unit_wander", "unit_cluster", "unit_links", "unit_lanes", "unit_hold"]
        unit = sorted(
            (name for name in self.tests if name.startswith("unit_")),
            key=lambda name: (order.index(name) if name in order else len(order), name in ("unit_tls", "unit_tls_files")),
        )
        sims = sorted(name for name in self.tests if name.startswith("sim"))
        return [(self.tests[name], FEW_SEEDS, CHEAP) for name in unit] + [
            (self.tests[name], self.seeds, 2 * CHEAP) for name in sims
        ]

    def tests_for(self, mutant: Drawn) -> list[tuple[Test, int, float]]:
        """What is to find it: test, worlds, seconds that it takes; the cheapest first."""
        if not self.covered:
            return self.quick_tests_for(mutant)
        chosen = []
        for name in self.covered.executing(mutant.file, list(mutant.change.places)):
            if name not in self.tests or (name.startswith("cli_") and not mutant.file.startswith("cli/")):
                continue
            seconds = self.covered.of[name]["seconds"]
            is_sim = name.startswith("sim")
            if not is_sim and seconds > self.live:
                continue
            chosen.append((self.tests[name], FEW_SEEDS, seconds))
            if is_sim and name != "sim_stories":
                chosen.append((self.tests[name], self.seeds, seconds * self.seeds / FEW_SEEDS))
        return sorted(chosen, key=lambda each: each[2])


def worked(process: subprocess.Popen) -> float:
    """The seconds of processor time that it has used."""
    try:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except OSError:
        return 0


def passes(command: list[str], environment: dict[str, str], seeds: int, limit: float, stop: threading.Event) -> str:
    """"" if the test passes, else how it fails; it is ended when `stop` is set, as if it passed.

    On a busy machine it may take ten times the limit, unless it has worked for as long as that.
    """
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        env=os.environ | {"SNIB_TEST_ALL": "", "SNIB_SIM_SEEDS": str(seeds)} | environment,
        start_new_session=True,
    )
    begin = time.monotonic()
    while process.poll() is None:
        passed = (time.monotonic() - begin) / limit
        over = passed > 10 or (passed > 1 and worked(process) > limit)
        if stop.wait(0.01 if passed * limit < 2 else 0.1) or over:
            os.killpg(process.pid, signal.SIGTERM)  # a test that can ends its servers
            try:
                process.wait(1)
            except subprocess.TimeoutExpired:
                pass
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
            return "" if stop.is_set() else "does not come to an end"
    if process.returncode == 0:
        return ""
    return f"fails ({process.returncode})"


def end_strays(work: Path) -> None:
    """What a test has left that was ended in its middle: processes of programs that lie in this folder."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "exe").readlink().is_relative_to(work):
                os.kill(int(process.name), signal.SIGKILL)
        except OSError:
            pass  # it has ended, or is somebody else's


class Judge:
    def __init__(self, programs: Programs, folder: Path) -> None:
        self.programs, self.folder = programs, folder
        self.lock = threading.Lock()  # two tests may want the same object

    def verdict(self, mutant: Drawn) -> str | None:
        """What finds it; "" for nothing; None: it is no program, or the same one."""
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            work = Path(name)
            try:
                if not self.programs.is_changed(mutant, work):
                    return None
                return self._found(mutant, work)
            except NotMade:
                return None
            finally:
                end_strays(work)

    def _found(self, mutant: Drawn, work: Path) -> str:
        tests = self.programs.tests_for(mutant)
        cheap = [each for each in tests if each[2] <= CHEAP]
        for each in cheap:
            how = self._run(each, mutant, work, threading.Event())
            if how:
                return how
        stop = threading.Event()
        lock = threading.Lock()
        found: list[str] = []

        def one(each: tuple[Test, int, float]) -> None:
            if not stop.is_set():
                how = self._run(each, mutant, work, stop)
                if how:
                    with lock:
                        found.append(how)
                        stop.set()

        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(one, tests[len(cheap) :]))
        return found[0] if found else ""

    def _run(self, each: tuple[Test, int, float], mutant: Drawn, work: Path, stop: threading.Event) -> str:
        test, seeds, seconds = each
        with self.lock:
            command, environment = self.programs.planted(test, mutant, work)
        limit = 20 + 10 * seconds
        how = passes(command, environment, seeds, limit, stop)
        if how and test.name.startswith(("live/", "faults/", "conformance", "cli_", "support/")):
            how = passes(command, environment, seeds, limit, threading.Event())
        return how and f"{test.name} {how}"


def holes(programs: Programs, only: list[str]) -> None:
    """The lines of code that no test executes."""
    assert programs.covered
    for path in sorted(CORE.glob("*/*.c")):
        file = str(path.relative_to(CORE))
        if not any(file.startswith(part) for part in only):
            continue
        every = [known["lines"][file] for known in programs.covered.of.values() if file in known["lines"]]
        code = {line for lines in every for line in lines["all"]}
        hit = {line for lines in every for line in lines["hit"]}
        for line in sorted(code - hit):
            print(f"{file}:{line}: {path.read_text().splitlines()[line - 1]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=os.environ.get("SNIB_BUILD", ROOT / "build"))
    parser.add_argument("--draw", default="", help="the word that draws")
    parser.add_argument("--sample", type=int, default=40, help="so many mutants")
    parser.add_argument("--only", default=",".join(f"{each}/" for each in FOLDERS), help="files whose path begins so")
    parser.add_argument("--seeds", type=int, default=400, help="worlds of each simulator")
    parser.add_argument("--live", type=float, default=1e9, help="no tests but simulators that take more seconds")
    parser.add_argument("--quick", action="store_true", help="all unit tests and the simulators, nothing else")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time")
    parser.add_argument("--list", action="store_true", help="plant none")
    parser.add_argument("--holes", action="store_true", help="show what no test executes")
    arguments = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    only = arguments.only.split(",")
    drawn = draw(arguments.draw, only)
    if arguments.list:
        print("\n".join(map(str, drawn[: arguments.sample])))
        return
    programs = Programs(arguments.build, arguments.seeds, arguments.live, arguments.quick)
    if arguments.holes:
        holes(programs, only)
        return
    lock = threading.Lock()
    rates: dict[str, list[int]] = {}

    with tempfile.TemporaryDirectory(prefix="snib-automatic-") as folder:
        judge = Judge(programs, Path(folder))
        left = iter(drawn)

        def work() -> None:
            while True:
                with lock:
                    mutant = next(left, None)
                    if not mutant or sum(each[1] for each in rates.values()) >= arguments.sample:
                        return
                begin = time.monotonic()
                found = judge.verdict(mutant)
                if found is None:
                    continue
                with lock:
                    rate = rates.setdefault(mutant.file.split("/")[0], [0, 0])
                    rate[0] += bool(found)
                    rate[1] += 1
                    print(
                        f"{'found   ' if found else 'SURVIVED'} {mutant}\n    "
                        f"{found or 'by no test'}  ({time.monotonic() - begin:.0f} s)",
                        flush=True,
                    )

        with ThreadPoolExecutor(arguments.jobs) as pool:
            for each in [pool.submit(work) for _ in range(arguments.jobs)]:
                each.result()
    for name, (found_n, all_n) in sorted(rates.items()):
        print(f"{name}: {found_n} of {all_n}")
    found_n, all_n = (sum(each[i] for each in rates.values()) for i in (0, 1))
    print(f"automatic: {found_n} of {all_n} found ({100 * found_n // max(1, all_n)} %), drawn by {arguments.draw!r}")


if __name__ == "__main__":
    try:
        main()
    except NotMade as error:
        sys.exit(f"automatic: {error}")

#!/usr/bin/env python3
"""Fuzz the core with clang's libFuzzer: the corpus in the tree, then new inputs for some seconds a target.

    run.py [--build FOLDER] [--seconds N] [--jobs N] [--fuzzed N] [--planted N] [--draw WORD] [TARGET...]
    run.py --repeat FILE TARGET    one input, as an earlier run wrote it
    run.py --long HOURS [TARGET...]    for people: fuzz for hours, and put what was found into the corpus
    run.py --fit    only check that the planted mistakes still apply

Each target's head comment says what it checks.  An input that fails is kept in build/logs.  --fuzzed: only so many of
the targets, drawn by WORD, get new inputs, the others their corpus.  --planted also plants some of the mistakes of
mistakes.py, which the targets must find from their corpus within the number of runs that is stated there; by default,
all of them when targets are named, else none.
"""

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "tests" / "sim")]

from packed import encode, pack, unpack  # noqa: E402
from planted.plant import Build, NotMade, changed_text, source_of  # noqa: E402
from mistakes import MISTAKES, Mistake  # noqa: E402

TARGETS = ("reply", "core", "url", "names", "scripts", "cluster", "sentinel", "handles")
LENGTHS = {"reply": 600, "url": 1000, "names": 700}  # of inputs; of the others, in bytes:
LENGTH = 1200
SECONDS = 10  # of fuzzing a target
HANG = 300  # seconds for one input, which takes some milliseconds: only what has no end is found
MEGABYTES = 1500  # of memory
CRASHED = (1, 77)  # exit codes: of a sanitizer that ends the program, and of libFuzzer; 70: out of time, 71: out of memory
PRINT = threading.Lock()


class Failed(Exception):
    pass


def say(text: str) -> None:
    with PRINT:
        print(text, flush=True)


def run(command: list[str | Path]) -> tuple[int, str]:
    done = subprocess.run(
        command,
        text=True,
        errors="replace",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | {"ASAN_OPTIONS": "detect_leaks=1:allocator_may_return_null=1", "SNIB_URL": ""},
    )
    return done.returncode, done.stdout


def make(build: Path) -> None:
    options = ["-DCMAKE_C_COMPILER=clang", "-DSNIB_FUZZ=ON", "-DSNIB_CLI=OFF"]
    commands = [["cmake", "--build", str(build), "--target", "fuzz"]]
    if not (build / "build.ninja").exists():  # otherwise the build sees to that
        commands.insert(0, ["cmake", "-S", str(ROOT), "-B", str(build), "-G", "Ninja", *options])
    for command in commands:
        code, output = run(command)
        if code:
            raise Failed(f"{' '.join(command)}:\n{output[-5000:]}")


class Fuzzer:
    """The target's program and its corpus, in a folder of this run."""

    def __init__(self, target: str, build: Path, work: Path) -> None:
        self.target = target
        self.program = build / "tests" / "fuzz" / f"fuzz_{target}"
        self.logs = build.parent / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        self.corpus = work / target / "corpus"
        self.found = work / target / "found"
        self.corpus.mkdir(parents=True)
        self.found.mkdir()
        unpack(target, self.corpus)

    def options(self, logs: Path) -> list[str | Path]:
        options = [f"-timeout={HANG}", f"-rss_limit_mb={MEGABYTES}", "-malloc_limit_mb=500", "-print_final_stats=1"]
        options += [f"-max_len={LENGTHS.get(self.target, LENGTH)}", f"-artifact_prefix={logs}/fuzz-{self.target}-"]
        words = HERE / f"{self.target}.dict"
        return [*options, f"-dict={words}"] if words.exists() else options

    def fuzz(self, seconds: float) -> str:
        """A line about the run; Failed: with the end of its output."""
        limit = f"-max_total_time={max(1, round(seconds))}" if seconds else "-runs=0"
        code, output = run([self.program, *self.options(self.logs), limit, self.found, self.corpus])
        log = self.logs / f"fuzz-{self.target}.log"
        log.write_text(output)
        if code:
            raise Failed(self.complaint(output, log))
        states = re.findall(r"cov: (\d+) ft: (\d+) corp: (\d+)/", output)
        runs = re.search(r"number_of_executed_units: (\d+)", output)
        return (
            f"{self.target:<9} {int(runs[1]) if runs else 0:>8} runs, corpus {len(list(self.corpus.iterdir()))} "
            f"+ {len(list(self.found.iterdir()))}, coverage {states[-1][0] if states else '?'} edges"
        )

    def complaint(self, output: str, log: Path) -> str:
        written = re.search(r"Test unit written to (\S+)", output)
        what = re.search(r"^(fuzz: broken: .*|SUMMARY: .*|==\d+==\s*ERROR: .*)$", output, re.M)
        text = f"FAILED: {self.target}: {what[1] if what else output[-2000:]}; all of it is in {log}"
        if written:
            text += f"\n    again: {sys.argv[0]} --repeat {written[1]} {self.target}"
            line = encode(self.target, Path(written[1]).read_bytes())
            text += f"\n    as a line of corpus/{self.target}-kept.txt:\n    {line}"
        return text

    def merge(self) -> None:
        """The smallest corpus that covers the most of what is known and found."""
        control = self.corpus.parent / "control"
        command = [self.program, *self.options(self.logs), "-merge=1", f"-merge_control_file={control}"]
        out = self.corpus.parent / "merged"
        out.mkdir()
        code, output = run([*command, out, self.corpus, self.found])
        if code:
            raise Failed(f"{self.target}: the merge failed:\n{output[-3000:]}")
        say(f"{self.target}: {pack(self.target, control)}")


def find(fuzzer: Fuzzer, mistake: Mistake, build: Build, work: Path) -> bool:
    """Plant a mistake; whether the target has found it: with an input that it has written down.  Failed: the run has ended
    in another way, as for lack of time or memory, which proves nothing."""
    with tempfile.TemporaryDirectory(dir=work) as folder:
        made = Path(folder)
        program = build.changed(f"fuzz_{mistake.by}", source_of(mistake), changed_text(mistake), made)
        command = [program, *fuzzer.options(made), "-seed=1", f"-runs={mistake.runs}", fuzzer.corpus]
        code, _ = run(command)
        written = [path.name for path in made.glob(f"fuzz-{mistake.by}-*") if re.search("-(crash|leak)-", path.name)]
        if code == 0 or (code in CRASHED and written):
            return code != 0
        raise Failed(f"FAILED: {mistake.by}: exit code {code} and no crash with this planted mistake: {mistake.name}")


def plant(fuzzers: list[Fuzzer], chosen: list[Mistake], build: Path, jobs: int, work: Path) -> list[str]:
    """What was not found."""
    of = {fuzzer.target: fuzzer for fuzzer in fuzzers}
    programs = Build(build, sorted({f"fuzz_{mistake.by}" for mistake in chosen}))

    def try_one(mistake: Mistake) -> str:
        try:
            found = find(of[mistake.by], mistake, programs, work)
        except Failed as failed:
            say(str(failed))
            return str(failed)
        say(f"{'found ' if found else 'MISSED'}    {mistake.by}: {mistake.name}")
        return "" if found else f"FAILED: {mistake.by}: the planted mistake was missed: {mistake.name}"

    with ThreadPoolExecutor(jobs) as pool:
        return [text for text in pool.map(try_one, chosen) if text]


def fuzz_all(fuzzers: list[Fuzzer], fuzzed: set[str], seconds: float, jobs: int) -> list[str]:
    """What failed; of those that are not to be fuzzed, with their corpus."""

    def one(fuzzer: Fuzzer) -> str:
        try:
            say(fuzzer.fuzz(seconds if fuzzer.target in fuzzed else 0))
        except Failed as failed:
            say(str(failed))
            return str(failed)
        return ""

    with ThreadPoolExecutor(jobs) as pool:
        return [text for text in pool.map(one, fuzzers) if text]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=os.environ.get("SNIB_BUILD", ROOT / "build"))
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"of fuzzing a target; default {SECONDS}")
    parser.add_argument("--jobs", type=int, default=2, help="targets at once; default 2")
    parser.add_argument("--planted", type=int, help="how many of the planted mistakes to try")
    parser.add_argument("--fuzzed", type=int, help="how many of the targets get more than their corpus; default all")
    parser.add_argument("--draw", default="", help="with --fuzzed and --planted: which of them")
    parser.add_argument("--repeat", type=Path, metavar="FILE", help="run one input")
    parser.add_argument("--long", type=float, metavar="HOURS", help="fuzz, and put what is found into the corpus")
    parser.add_argument("--fit", action="store_true", help="check that the planted mistakes apply")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=" ".join(TARGETS))
    parsed = parser.parse_args()
    for target in parsed.targets:
        if target not in TARGETS:
            parser.error(f"there is no target {target}")
    if parsed.repeat and len(parsed.targets) != 1:
        parser.error("--repeat needs one target")
    return parsed


def drawn(given: argparse.Namespace, targets: list[str]) -> list[Mistake]:
    """The mistakes to plant: all of the named targets, or some, of as many targets as possible."""
    of = [mistake for mistake in MISTAKES if mistake.by in targets]
    if given.planted is None:
        return of if given.targets and not given.long else []
    random.Random(given.draw).shuffle(of)
    seen: list[str] = []
    for mistake in of:
        seen.append(mistake.by)
    order = sorted(range(len(of)), key=lambda i: seen[:i].count(of[i].by))
    return [of[i] for i in order[: given.planted]]


def main() -> None:
    given = arguments()
    for mistake in MISTAKES:
        changed_text(mistake)  # each must apply
    if given.fit:
        return
    build = Path(given.build).resolve() / "fuzz"
    targets = given.targets or list(TARGETS)
    make(build)
    if given.repeat:
        program = build / "tests" / "fuzz" / f"fuzz_{targets[0]}"
        sys.exit(subprocess.run([program, f"-timeout={HANG}", given.repeat]).returncode)
    with tempfile.TemporaryDirectory(prefix="snib-fuzz-") as folder:
        work = Path(folder)
        fuzzers = [Fuzzer(target, build, work) for target in targets]
        seconds = given.long * 3600 * given.jobs / len(targets) if given.long else given.seconds
        order = random.Random(given.draw).sample(targets, len(targets))
        bad = fuzz_all(fuzzers, set(order[: given.fuzzed]), seconds, given.jobs)
        chosen = [] if bad else drawn(given, targets)
        missed = plant(fuzzers, chosen, build, given.jobs, work) if chosen else []
        if given.long and not bad:
            for fuzzer in fuzzers:
                fuzzer.merge()
    for text in bad + missed:
        print(text)
    planted = f", {len(chosen) - len(missed)} of {len(chosen)} planted mistakes found" if chosen else ""
    print(f"fuzz: {len(targets) - len(bad)} of {len(targets)} targets without a failure{planted}")
    sys.exit(1 if bad or missed else 0)


if __name__ == "__main__":
    try:
        main()
    except (Failed, NotMade) as error:
        sys.exit(f"fuzz: {error}")

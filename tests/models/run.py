#!/usr/bin/env python3
"""Models of the protocol, checked by Spin: each must hold, and each planted mistake must be found.

    run.py [--full] [--only NAME] [--json FILE] [--replay PROGRAM] [--traces N] [--mutants N [--draw WORD]]

A model is one file NAME.pml.  Its head says what it models and how it is run ("run:", with the options of cc and of
the verifier), and lists its mutants: MUTANT_x is defined, and the model must fail.  A run counts only if the whole
state space was searched within all limits.  Statements that no run reaches fail it too, unless their line says
"unreached": a model that does not do what it is about proves nothing.
--full: larger bounds.
--mutants: so many of each model's mutants, drawn by WORD.
--replay: also have the real core take the steps of random walks through the models, with build/core/tests/models/replay.
It must do what the model does, every kind of step must come up, and a walk through each mutant must show a difference,
unless the model's head says with "unseen:" that none can.
"""

import argparse
import concurrent.futures
import json
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
DEPTH = {False: 500_000, True: 20_000_000}  # of the search; no model comes near it
MEMORY = {False: 1500, True: 6000}  # MB, by whether the bounds are full
LIMITS = (
    "max search depth too small",
    "out of memory",
    "memory limit",
    "Search not completed",
    "Bit statespace",
    "hash-compact",
    "VECTORSZ",
    "truncated",
)
JOBS = 2
# Most searches take less time than a compiler that optimises; clang compiles twice as fast as gcc without it.  The whole
# search of a model is longer: gcc's -Og halves it, while -O1 and above need ten seconds and more for the longest model.
QUICK = ["clang" if shutil.which("clang") else "cc", "-O0"]
WHOLE = {False: ["cc", "-Og"], True: ["cc", "-O2"]}
TABLE = {False: 20, True: 24}  # log2 of the places in the hash table: to fill more costs more than most searches

# Random walks through a model, and how long they are, unless its head says "walks:"; with --full there are more.  Their
# seeds are far apart, because Spin's generator starts alike from seeds that are close.
WALKS, MORE = [20, 6000], 20
SEED = 100_003


class Model(NamedTuple):
    path: Path
    mutants: list[str]
    runs: list[list[str]]
    ltl: bool
    traced: bool  # it says what it does, so the core can do the same
    unseen: list[str]  # mutants that a trace does not show
    walks: int  # how many random walks
    steps: int  # of each


class Search(NamedTuple):
    """What one run of a verifier said."""

    violation: str  # the first one, or ""
    trouble: str  # why the run does not count, or ""
    states: int
    depth: int
    unreached: list[int]  # lines of the model


class Broken(Exception):
    """A model is no program."""


def read_model(path: Path) -> Model:
    text = path.read_text()
    head = text[: text.index("*/")]
    used = set(re.findall(r"\bMUTANT_\w+", text[len(head) :]))
    mutants = re.findall(r"^ \*.*?\b(MUTANT_\w+) +\S", head, re.M)
    if sorted(mutants) != sorted(used):
        raise Broken(f"{path.name}: its head lists {sorted(mutants)}, it has {sorted(used)}")
    if len(mutants) < 3:
        raise Broken(f"{path.name} has only {len(mutants)} mutants")
    runs = [run.split() for run in re.findall(r"^ \* run: *(.*)$", head, re.M)]
    if not runs:
        raise Broken(f"{path.name} does not say how it is run")
    unseen = " ".join(re.findall(r"^ \* unseen: *(.*)$", head, re.M)).split()
    walks = [int(n) for found in re.findall(r"^ \* walks: (\d+) of (\d+)$", head, re.M) for n in found] or WALKS
    if set(unseen) - set(mutants):
        raise Broken(f"{path.name}: of the unseen it has only {sorted(set(unseen) & set(mutants))}")
    return Model(path, mutants, runs, bool(re.search(r"^ltl ", text, re.M)), '"trace.inc"' in text, unseen, *walks)


def call(command: list[str], folder: str) -> str:
    done = subprocess.run(command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        raise Broken(f"{' '.join(command[:3])}...: {done.stdout[-1500:]}")
    return done.stdout


def search(model: Model, run: list[str], defines: list[str], full: bool, whole: bool) -> Search:
    """Make the verifier and run it; whole if the search is not expected to end early, with a violation."""
    with tempfile.TemporaryDirectory(prefix="snib-models-") as folder:
        made = call(["spin", *defines, "-a", str(model.path)], folder)
        if "rror" in made:
            raise Broken(f"{model.path.name}: {made}")
        options = [word for word in run if word.startswith("-D")]
        if model.ltl and "-a" not in run:
            options.append("-DNOCLAIM")
        options.append(f"-DMEMLIM={MEMORY[full]}")
        if full:
            options.append("-DCOLLAPSE")
        compiler = WHOLE[full] if full or whole else QUICK
        call([*compiler, "-w", "-DNFAIR=3", *options, "-o", "pan", "pan.c"], folder)
        words = [word for word in run if not word.startswith("-D")]
        command = ["./pan", f"-m{DEPTH[full]}", f"-w{TABLE[full]}", *words]
        done = subprocess.run(command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        source = Path(folder, "pan.c").read_text()
    return judge(model, done.stdout, done.returncode, source)


def unreached_lines(model: Model, said: str, source: str) -> list[int]:
    """Lines of which no statement was reached.

    An inline's lines have statements for each of its uses, and Spin does not report those that it has merged with others:
    a line of an inline with such statements counts as reached.
    """
    lost: dict[int, set[tuple[str, int]]] = {}
    process = ""
    for text in said.splitlines():
        if text.startswith("unreached in "):
            process = text
        elif found := re.match(rf"\t\S*{model.path.name}:(\d+), state (\d+)", text):
            lost.setdefault(int(found[1]), set()).add((process, int(found[2])))
    statements: dict[int, int] = {}
    silent: set[int] = set()
    for k, lines in re.findall(r"^short src_ln(\d+) \[\] = \{([^}]*)\}", source, re.M):
        marks = re.search(rf"^uchar reached{k} \[\] = \{{([^}}]*)\}}", source, re.M)
        for line, mark in zip(re.findall(r"\d+", lines), re.findall(r"\d+", marks[1] if marks else "")):
            statements[int(line)] = statements.get(int(line), 0) + (mark == "0")
            if mark != "0":
                silent.add(int(line))
    silent &= inline_lines(model.path.read_text())
    return [line for line, states in lost.items() if len(states) >= statements.get(line, 0) and line not in silent]


def inline_lines(text: str) -> set[int]:
    found, inside = set(), False
    for number, line in enumerate(text.splitlines(), 1):
        inside = inside or line.startswith("inline ")
        if inside:
            found.add(number)
        if line.startswith("}") or (line.startswith("inline ") and line.endswith("}")):
            inside = False
    return found


def judge(model: Model, said: str, code: int, source: str) -> Search:
    errors = re.search(r"errors: (\d+)", said)
    states = re.search(r"^ *(\d+) states, stored", said, re.M)
    depth = re.search(r"depth reached (\d+)", said)
    found = re.search(r"^pan:\d+: (.*) \(at depth", said, re.M)
    violation = found[1] if found else ""
    trouble = ""
    if not (errors and states and depth):
        trouble = f"no result, exit {code}: {said[-300:]}"
    elif "Full statespace search for" not in said:
        trouble = "not a search of the full state space"
    elif violation == "" and (int(errors[1]) or code != 0):
        trouble = f"exit {code}: {said[:300]}"
    elif violation == "":
        trouble = next((limit for limit in LIMITS if limit.lower() in said.lower()), "")
    unreached = unreached_lines(model, said, source)
    number = lambda match: int(match[1]) if match else 0  # noqa: E731
    return Search(violation, trouble, number(states), number(depth), unreached)


def unmarked(model: Model, searches: list[Search]) -> list[str]:
    """Lines that no run reaches and whose text does not say that this is expected."""
    lines = model.path.read_text().splitlines()
    never = set.intersection(*(set(one.unreached) for one in searches))
    return [f"{model.path.name}:{n} is never reached: {lines[n - 1].strip()}" for n in sorted(never)
            if "unreached" not in lines[n - 1]]


class Result(NamedTuple):
    model: str
    variant: str  # "" or the mutant
    seconds: float
    good: bool
    how: str
    states: int
    depth: int


def check(model: Model, variant: str, full: bool) -> Result:
    """The plain model must hold in all its runs, a mutant must fail in one."""
    begin = time.monotonic()
    defines = (["-DFULL"] if full else []) + ([f"-D{variant}"] if variant else [])
    searches: list[Search] = []
    try:
        for run in model.runs:
            searches.append(search(model, run, defines, full, whole=not variant))
            if searches[-1].violation:
                break
    except Broken as error:
        return Result(model.path.stem, variant, time.monotonic() - begin, False, str(error), 0, 0)
    states, depth = sum(one.states for one in searches), max(one.depth for one in searches)
    violation = searches[-1].violation
    trouble = [one.trouble for one in searches if one.trouble]
    if variant:
        good, how = bool(violation), violation or "; ".join(trouble) or "no run fails"
    else:
        lost = [] if violation or trouble else unmarked(model, searches)
        how = "\n    ".join(([violation] if violation else []) + trouble + lost)
        good = how == ""
    return Result(model.path.stem, variant, time.monotonic() - begin, good, how, states, depth)


def replay(model: Model, program: Path, seed: int, defines: list[str]) -> tuple[int, str, str]:
    """Have the core take the steps of one walk: replay's exit code, what it has counted, what it has to say."""
    walk = ["spin", "-T", "-DREPLAY", *defines, f"-n{seed}", f"-u{model.steps}", str(model.path)]
    with (
        tempfile.TemporaryDirectory(prefix="snib-models-") as folder,  # Spin leaves files where it runs
        subprocess.Popen(walk, cwd=folder, stdout=subprocess.PIPE) as spin,
    ):
        done = subprocess.run([program, model.path.stem], stdin=spin.stdout, text=True, capture_output=True)
        for _ in spin.stdout or ():
            pass  # behind a difference
    command = f"{' '.join(walk)} | {program} {model.path.stem}"
    return done.returncode, done.stdout, f"{done.stderr}    {command}"


def check_traces(model: Model, program: Path, full: bool, traces: int) -> Result:
    begin = time.monotonic()
    counts: dict[str, int] = {}
    how = ""
    for number in range(1, (traces or model.walks * (MORE if full else 1)) + 1):
        code, counted, said = replay(model, program, number * SEED, [])
        if code != 0:
            how = f"exit {code}\n{said}"
            break
        for name, count in re.findall(r"^(\S+) (\d+)$", counted, re.M):
            counts[name] = counts.get(name, 0) + int(count)
    never = sorted(name for name, count in counts.items() if count == 0)
    if not how and (never or not counts):
        how = f"no trace has these steps: {', '.join(never)}"
    return Result(model.path.stem, "traces", time.monotonic() - begin, how == "", how, sum(counts.values()), 0)


def check_unlike(model: Model, program: Path, mutant: str) -> Result:
    """The core does not do what the mutant does, and the replay must show it: otherwise it compares nothing."""
    begin = time.monotonic()
    how = "no trace differs from what the core does"
    for number in range(1, 4 * model.walks + 1):
        code, _, said = replay(model, program, number * SEED, [f"-D{mutant}"])
        if code != 0:
            how = said if code == 1 else f"exit {code}\n{said}"
            break
    return Result(model.path.stem, f"traces of {mutant}", time.monotonic() - begin, code == 1, how, 0, 0)


def tell_traces(model: Model, results: list[Result]) -> None:
    state = "ok  " if all(one.good for one in results) else "FAIL"
    caught = sum(one.good for one in results[1:])
    print(
        f"{state} {model.path.stem:<10} {results[0].states:>12,} steps taken by the core, "
        f"{caught} of {len(results) - 1} mutants differ, {sum(one.seconds for one in results):.1f} s",
        flush=True,
    )
    for one in results:
        if not one.good:
            print(f"    {one.variant}: {one.how}", flush=True)


def tell(model: Model, results: list[Result]) -> None:
    plain = next(one for one in results if not one.variant)
    mutants = [one for one in results if one.variant.startswith("MUTANT_")]
    caught = sum(one.good for one in mutants)
    state = "ok  " if all(one.good for one in results) else "FAIL"
    seconds = sum(one.seconds for one in results)
    print(
        f"{state} {model.path.stem:<10} {plain.states:>12,} states, depth {plain.depth:>9,}, "
        f"{caught} of {len(mutants)} mutants caught, {seconds:.1f} s",
        flush=True,
    )
    for one in results:
        if not one.good:
            print(f"    {one.variant or 'the model'}: {one.how}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="larger bounds")
    parser.add_argument("--only", help="a model's name")
    parser.add_argument("--replay", type=Path, help="the program that has the core take a model's steps")
    parser.add_argument("--traces", type=int, default=0, help="how many walks through each model, and nothing else")
    parser.add_argument("--mutants", type=int, help="so many of each model; by default all")
    parser.add_argument("--draw", default="", help="which of them")
    parser.add_argument("--json", type=Path, help="write all results to this file")
    arguments = parser.parse_args()
    try:
        models = [read_model(path) for path in sorted(HERE.glob("*.pml"))]
    except Broken as error:
        sys.exit(f"models: {error}")
    if arguments.only:
        models = [model for model in models if model.path.stem == arguments.only]
    if arguments.mutants:
        draw = random.Random(arguments.draw)
        some = lambda mutants: draw.sample(mutants, min(arguments.mutants, len(mutants)))  # noqa: E731
        models = [model._replace(mutants=some(model.mutants)) for model in models]
    everything: list[Result] = []
    failed = 0
    program = arguments.replay.resolve() if arguments.replay else None
    if program and not program.exists():
        sys.exit(f"models: there is no {program}")
    searched = [] if arguments.traces else models
    walked = [model for model in models if program and model.traced]
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        work = []
        for model in searched:
            tasks = [pool.submit(check, model, variant, arguments.full) for variant in ["", *model.mutants]]
            work.append((model, tasks))
        for model, tasks in work:
            results = [task.result() for task in tasks]
            tell(model, results)
            failed += not all(one.good for one in results)
            everything += results
        walks = []
        for model in walked:
            tasks = [pool.submit(check_traces, model, program, arguments.full, arguments.traces)]
            for mutant in model.mutants:
                if mutant not in model.unseen:
                    tasks.append(pool.submit(check_unlike, model, program, mutant))
            walks.append((model, tasks))
        for model, tasks in walks:
            results = [task.result() for task in tasks]
            tell_traces(model, results)
            failed += not all(one.good for one in results)
            everything += results
    if arguments.json:
        arguments.json.write_text(json.dumps([one._asdict() for one in everything], indent=1) + "\n")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = used.ru_utime + used.ru_stime
    total = len(searched) + len(walked)
    print(f"models: {total - failed} passed, {failed} failed, {seconds:.0f} s of processor time")
    sys.exit(1 if failed or not total else 0)


if __name__ == "__main__":
    main()

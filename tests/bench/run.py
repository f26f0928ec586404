#!/usr/bin/env python3
"""Run the benchmarks: build the programs, start a private server, let rivals take turns.

No figure makes this fail: the table shows which targets were reached.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import report  # noqa: E402
from deployments import deployment_rows  # noqa: E402
from family import family_rows  # noqa: E402
from harness import ROOT, Builder, Sample, Subject, measure  # noqa: E402
from parts import Row, Setting  # noqa: E402
from rows import mutex_rows  # noqa: E402
from servers import Failed, Missing, Server  # noqa: E402
from watch import Watch  # noqa: E402

WARM_TURNS = 3
WAKES_SECONDS = 0.6
ROUNDS = 7


def take_turn(row: Row, name: str, subject: Subject, setting: Setting, seconds: float) -> Sample:
    seat = row.seats[name]
    watching = Watch(setting.server, seat.watched) if seat.watched else nullcontext()
    with watching as watch:
        site = setting.site(seat)
        return measure(subject, site, seconds, seat.inside, row.keeps_keys, watch)


def warm_up(row: Row, name: str, subject: Subject, setting: Setting, seconds: float) -> None:
    """Uncounted turns.  A JVM keeps compiling for seconds after a turn, at the others' cost."""
    for _ in range(WARM_TURNS):
        take_turn(row, name, subject, setting, seconds)
        subject.await_quiet()


def seat_subjects(row: Row, setting: Setting, missing: dict[str, str]) -> dict[str, Subject]:
    cores = os.sched_getaffinity(0)
    chosen = {max(cores)} if row.pinned else cores
    for site in setting.sites():
        site.pin(chosen)
    subjects: dict[str, Subject] = {}
    for name, seat in row.seats.items():
        try:
            for kind in seat.kinds:
                setting.builder.need(kind)
            subjects[name] = Subject(seat.argvs(setting), setting.folder, chosen)
            if seat.warm:
                warm_up(row, name, subjects[name], setting, seat.warm)
        except (Missing, Failed) as problem:
            missing[name] = f"{name}: {problem}"
            if name in subjects:
                subjects.pop(name).stop()
    return subjects


def play_rounds(
    row: Row, subjects: dict[str, Subject], setting: Setting, count: int, missing: dict[str, str]
) -> list[dict[str, Sample]]:
    """Rounds in which every subject has a turn; each round begins with a different one."""
    rounds: list[dict[str, Sample]] = []
    seconds = row.seconds * (0.4 if setting.quick and row.rounds is None else 1)
    for number in range(min(row.rounds or count, count)):
        names = list(subjects)
        taken: dict[str, Sample] = {}
        for name in names[number % len(names) :] + names[: number % len(names)]:
            try:
                taken[name] = take_turn(row, name, subjects[name], setting, seconds)
            except Failed as problem:
                missing[name] = f"{name}: {problem}"
                subjects.pop(name).stop()
        rounds.append(taken)
        if not subjects:
            break
    return rounds


def run_row(row: Row, setting: Setting, count: int) -> dict:
    missing: dict[str, str] = {}
    rounds: list[dict[str, Sample]] = []
    subjects: dict[str, Subject] = {}
    setting.server.empty()
    try:
        setting.own = row.site(setting) if row.site else None
        subjects = seat_subjects(row, setting, missing)
        if setting.own:
            setting.own.seated()
        rounds = play_rounds(row, subjects, setting, count, missing) if subjects else []
    except Missing as problem:
        missing |= {name: f"{name}: {problem}" for name in row.seats}
    finally:
        for subject in subjects.values():
            subject.stop()
        if setting.own:
            setting.own.stop()
            setting.own = None
    return report.row_result(row, rounds, missing)


def wakes(setting: Setting) -> dict[str, float | None]:
    """The current cost of waking a thread; empty if the C program is missing."""
    try:
        setting.builder.need("c")
        subject = Subject([setting.c("wakes")], setting.folder, os.sched_getaffinity(0))
    except (Missing, Failed):
        return {}
    subject.begin(WAKES_SECONDS)
    (told,) = subject.answers(WAKES_SECONDS)
    subject.stop()
    return {name: told[name] for name in report.WAKES}


# ---- Command line --------------------------------------------------------------------------------


def count_of_rounds(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of rounds; give 1 or more")
    return int(text)


def writable(text: str) -> Path:
    """Check a path at the beginning, not after an hour."""
    path = Path(text).absolute()
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is a folder; name a file")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is not a folder {path.parent} to write to")
    return Path(text)


def folder(text: str) -> Path:
    if Path(text).exists() and not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is not a folder")
    return Path(text)


def figures(text: str) -> dict:
    """What --json wrote."""
    try:
        found = json.loads(Path(text).read_text())
    except OSError as problem:
        raise argparse.ArgumentTypeError(f"{text!r} cannot be read: {problem.strerror}") from None
    except ValueError:
        found = None
    if not isinstance(found, dict) or not {"command", "day", "machine", "rounds", "rows"} <= set(found):
        raise argparse.ArgumentTypeError(f"{text!r} has no figures that --json has written")
    return found


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__, allow_abbrev=False)
    parser.add_argument(
        "--only", action="append", metavar="ROW", help="only this row; may be repeated"
    )
    parser.add_argument("--list", action="store_true", help="name the rows and end")
    parser.add_argument("--quick", action="store_true", help="shorter turns and fewer holds")
    parser.add_argument(
        "--check", action="store_true", help="say whether these arguments can be used, and end"
    )
    parser.add_argument(
        "--rounds",
        type=count_of_rounds,
        default=ROUNDS,
        help=f"rounds of each row (default {ROUNDS})",
    )
    parser.add_argument("--json", type=writable, metavar="FILE", help="write all figures")
    parser.add_argument(
        "--markdown", type=writable, metavar="FILE", help="write the documentation's page"
    )
    parser.add_argument("--plot", type=writable, metavar="FILE", help="draw the figures (SVG)")
    parser.add_argument(
        "--beside",
        type=figures,
        metavar="FILE",
        help="figures that --json wrote on another machine, to show beside these",
    )
    parser.add_argument(
        "--from",
        dest="again",
        type=figures,
        metavar="FILE",
        help="run nothing: write the page and the drawing of the figures in FILE",
    )
    build = Path(os.environ.get("SNIB_BUILD", ROOT / "build")) / "bench"
    parser.add_argument("--build", type=folder, default=build, metavar="FOLDER")
    options = parser.parse_args()
    known = [row.name for row in all_rows(options.quick)]
    unknown = sorted(set(options.only or []) - set(known))
    if unknown:
        parser.error(f"no such row: {', '.join(unknown)}; --list names them")
    return options


def command_line(options: argparse.Namespace) -> str:
    """The command to reproduce this page, without local file names."""
    words = ["./dev bench", *(f"--only {name}" for name in options.only or [])]
    words += ["--quick"] * options.quick
    words += [f"--rounds {options.rounds}"] * (options.rounds != ROUNDS)
    return " ".join(words)


def all_rows(quick: bool) -> list[Row]:
    return [*mutex_rows(quick), *family_rows(), *deployment_rows(quick)]


def write_outputs(options: argparse.Namespace, result: dict, builder: Builder) -> None:
    kept = options.json or builder.folder / "results.json"
    kept.write_text(json.dumps(result, indent=1) + "\n")
    if options.markdown:
        picture = options.plot and os.path.relpath(options.plot, options.markdown.parent)
        options.markdown.write_text(report.markdown(result, picture))
    if options.plot:  # last: it needs a package that may be unavailable
        plotter = [builder.plotter(), Path(__file__).with_name("plot.py"), kept, options.plot]
        if subprocess.run([str(word) for word in plotter]).returncode != 0:
            raise Missing(f"{options.plot} could not be drawn; the figures are in {kept}")


def run(options: argparse.Namespace, builder: Builder, folder: Path) -> dict:
    server = Server(folder)
    results = []
    try:
        setting = Setting(builder, server, folder, options.quick)
        for row in all_rows(options.quick):
            if options.only is None or row.name in options.only:
                before = wakes(setting)
                results.append(run_row(row, setting, options.rounds) | {"wakes": before})
                report.print_row(results[-1])
        facts = report.machine(server, builder, results, options.rounds)
    finally:
        server.stop()
    return {
        "command": command_line(options),
        "day": date.today().isoformat(),
        "machine": facts,
        "rounds": options.rounds,
        "rows": results,
    }


def main() -> int:
    options = parse()
    if options.list:
        print("\n".join(f"{row.name:<16} {row.title}" for row in all_rows(options.quick)))
    if options.list or options.check:
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # ends the servers
    options.build.mkdir(parents=True, exist_ok=True)
    builder = Builder(options.build.resolve())
    with tempfile.TemporaryDirectory(prefix="snib-bench-") as name:
        try:
            result = options.again or run(options, builder, Path(name))
            if options.beside:
                result["beside"] = options.beside
            print(f"\n{report.tally(result['rows'])}")
            write_outputs(options, result, builder)
        except Missing as problem:
            print(problem, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

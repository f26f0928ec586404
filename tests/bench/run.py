#!/usr/bin/env python3
"""Runs the benchmarks: builds what is needed, starts a private server, lets rivals take turns.

Nothing here fails because of a time: the table says which targets were reached.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import report  # noqa: E402
from family import family_rows  # noqa: E402
from harness import ROOT, Builder, Sample, Subject, measure  # noqa: E402
from rows import Row, Setting, all_rows  # noqa: E402
from servers import Failed, Missing, Nodes, Server  # noqa: E402
from watch import Watch  # noqa: E402

WARM_TURNS = 3


def take_turn(row: Row, name: str, subject: Subject, setting: Setting, seconds: float) -> Sample:
    seat = row.seats[name]
    watching = Watch(setting.server, seat.watched) if seat.watched else nullcontext()
    with watching as watch:
        return measure(subject, setting.site, seconds, seat.inside, row.keeps_keys, watch)


def warm_up(row: Row, name: str, subject: Subject, setting: Setting, seconds: float) -> None:
    """Turns that do not count.  A JVM compiles on for seconds after a turn, at the others' cost."""
    for _ in range(WARM_TURNS):
        take_turn(row, name, subject, setting, seconds)
        subject.await_quiet()


def seat_subjects(row: Row, setting: Setting, missing: dict[str, str]) -> dict[str, Subject]:
    cores = os.sched_getaffinity(0)
    chosen = {max(cores)} if row.pinned else cores
    setting.site.pin(chosen)
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
    """Rounds in which every subject has a turn; each round begins with another one."""
    rounds: list[dict[str, Sample]] = []
    seconds = row.seconds * (0.4 if setting.quick and row.rounds is None else 1)
    for number in range(row.rounds or count):
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


def make_nodes(row: Row, setting: Setting) -> Nodes | None:
    if row.links is None:
        return None
    setting.builder.need("c")
    return Nodes(setting.folder, row.links.nodes, setting.builder.delay, row.links.delay_us)


def run_row(row: Row, setting: Setting, count: int) -> dict:
    missing: dict[str, str] = {}
    rounds: list[dict[str, Sample]] = []
    subjects: dict[str, Subject] = {}
    setting.server.empty()
    try:
        setting.nodes = make_nodes(row, setting)
        subjects = seat_subjects(row, setting, missing)
        if setting.nodes:
            setting.nodes.stall()
        rounds = play_rounds(row, subjects, setting, count, missing) if subjects else []
    except Missing as problem:
        missing |= {name: f"{name}: {problem}" for name in row.seats}
    finally:
        for subject in subjects.values():
            subject.stop()
        if setting.nodes:
            setting.nodes.stop()
            setting.nodes = None
    return report.row_result(row, rounds, missing)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", action="append", metavar="ROW", help="only this row; may be repeated"
    )
    parser.add_argument("--list", action="store_true", help="name the rows and end")
    parser.add_argument("--quick", action="store_true", help="shorter turns and fewer holds")
    parser.add_argument("--rounds", type=int, default=7, help="rounds of each row (default 7)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    parser.add_argument(
        "--markdown", type=Path, metavar="FILE", help="write the documentation's page"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the figures (SVG)")
    build = Path(os.environ.get("SNIB_BUILD", ROOT / "build")) / "bench"
    parser.add_argument("--build", type=Path, default=build, metavar="FOLDER")
    return parser.parse_args()


def command_line() -> str:
    """How to get this page again, without the names of this machine's files."""
    words = [word for word in sys.argv[1:] if word in ("--quick",)]
    return " ".join(["./dev bench", *words])


def write_outputs(options: argparse.Namespace, result: dict, builder: Builder) -> None:
    figures = options.json or builder.folder / "results.json"
    figures.write_text(json.dumps(result, indent=1) + "\n")
    if options.plot:
        plotter = [builder.plotter(), Path(__file__).with_name("plot.py"), figures, options.plot]
        subprocess.run([str(word) for word in plotter], check=True)
    if options.markdown:
        picture = options.plot and os.path.relpath(options.plot, options.markdown.parent)
        options.markdown.write_text(report.markdown(result, picture))


def main() -> int:
    options = parse()
    rows = [*all_rows(options.quick), *family_rows()]
    names = [row.name for row in rows]
    if options.list:
        print("\n".join(f"{row.name:<16} {row.title}" for row in rows))
        return 0
    unknown = set(options.only or []) - set(names)
    if unknown:
        print(f"no such row: {', '.join(sorted(unknown))}; --list names them", file=sys.stderr)
        return 2
    options.build.mkdir(parents=True, exist_ok=True)
    builder = Builder(options.build.resolve())
    results = []
    with tempfile.TemporaryDirectory(prefix="snib-bench-") as name:
        try:
            server = Server(Path(name))
        except Missing as problem:
            print(problem, file=sys.stderr)
            return 1
        try:
            setting = Setting(builder, server, Path(name), options.quick)
            for row in rows:
                if options.only is None or row.name in options.only:
                    results.append(run_row(row, setting, options.rounds))
                    report.print_row(results[-1])
            facts = report.machine(server, builder)
        finally:
            server.stop()
    result = {"command": command_line(), "machine": facts, "rows": results}
    write_outputs(options, result, builder)
    print(f"\n{report.tally(results)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

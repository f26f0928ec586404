"""Turns the results into text: a table for the terminal and the page for the documentation."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import textwrap
from datetime import date
from pathlib import Path
from statistics import median

from harness import BENCH, Builder, Sample
from rows import Check, Row
from servers import Server


def _first_line(*words: object) -> str:
    try:
        done = subprocess.run([str(w) for w in words], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    lines = (done.stdout or done.stderr).strip().splitlines()
    return lines[0] if lines else ""


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def machine(server: Server, builder: Builder) -> dict[str, str]:
    """What the figures depend on, by name."""
    facts = {
        "machine": f"{len(os.sched_getaffinity(0))} cores of {_cpu_model()}",
        "system": f"{platform.system()} {platform.release()}, {' '.join(platform.libc_ver())}",
        "server": f"{server.version()}, TCP loopback, no persistence",
        "core": builder.source_hash(),
        "compiler": _first_line(shutil.which("gcc") or "cc", "--version"),
    }
    if builder.python.exists():
        names = ("redis", "hiredis", "uvloop")
        program = (
            f"import importlib.metadata as m; print(*(n + ' ' + m.version(n) for n in {names}))"
        )
        facts["python"] = (
            f"{platform.python_version()}, {_first_line(builder.python, '-c', program)}"
        )
    if builder.go.exists():
        modules = (BENCH / "go" / "go.mod").read_text().partition(")")[0].splitlines()
        used = [line.split() for line in modules if line.startswith("\t") and "/snib/" not in line]
        peers = ", ".join(f"{path.removeprefix('github.com/')} {tag}" for path, tag in used)
        facts["go"] = f"{_first_line('go', 'env', 'GOVERSION')}, {peers}"
    jars = sorted((builder.folder / "java" / "dependency").glob("redisson-*.jar"))
    if jars:
        facts["java"] = f"{_first_line('java', '-version')}, {jars[0].stem}"
    return facts


# ---- Results as plain data -----------------------------------------------------------------------


def _verdict(check: Check, value: float) -> str:
    if check.goal is None:
        return ""
    return "reached" if check.reached(value) else "missed"


def check_result(check: Check, rounds: list[dict[str, Sample]], missing: dict[str, str]) -> dict:
    result = {
        "what": check.what,
        "against": check.against,
        "goal": check.goal,
        "most": check.most,
        "unit": check.unit,
    }
    absent = [missing[name] for name in check.seats if name in missing]
    if absent or not rounds:
        return result | {"verdict": "skipped"}
    values = [check.value(r) for r in rounds]
    middle = median(values)
    return result | {"values": values, "median": middle, "verdict": _verdict(check, middle)}


def row_result(row: Row, rounds: list[dict[str, Sample]], missing: dict[str, str]) -> dict:
    seats = {}
    for name in row.seats:
        samples = [r[name] for r in rounds if name in r]
        if samples:
            seats[name] = {
                field: median(getattr(sample, field) for sample in samples)
                for field in ("rate", "commands", "client_us", "server_us")
            }
    return {
        "name": row.name,
        "title": row.title,
        "pinned": row.pinned,
        "rounds": len(rounds),
        "others": median([s.others for r in rounds for s in r.values()] or [0]),
        "checks": [check_result(check, rounds, missing) for check in row.checks],
        "seats": seats,
        "notes": row.notes,
        "missing": sorted(missing.values()),
    }


# ---- Text ----------------------------------------------------------------------------------------


QUIET = 0.05  # what others may take of the machine before it is worth a word


def number(value: float, unit: str = "") -> str:
    """Three digits that mean something."""
    if value == 0:
        text = "0"
    elif abs(value) >= 100:
        text = f"{value:,.0f}"
    elif abs(value) >= 10:
        text = f"{value:.1f}"
    else:
        text = f"{value:.3f}" if abs(value) < 0.1 else f"{value:.2f}"
    return f"{text} {unit}".strip()


def _goal(check: dict) -> str:
    if check["goal"] is None:
        return ""
    return f"{'<=' if check['most'] else '>='} {check['goal']:g} {check['unit']}".strip()


def _figures(check: dict) -> tuple[str, str]:
    if "median" not in check:
        return "-", ""
    low, high = min(check["values"]), max(check["values"])
    return number(check["median"], check["unit"]), f"{number(low)} - {number(high)}"


def _lines(row: dict) -> list[list[str]]:
    lines = []
    for check in row["checks"]:
        what = check["what"] + (f" against {check['against']}" if check["against"] else "")
        middle, spread = _figures(check)
        lines.append([what, _goal(check), middle, spread, check["verdict"]])
    return lines


def print_row(row: dict) -> None:
    manner = f"{row['rounds']} rounds{', pinned' * row['pinned']}"
    print(f"\n{row['title']}  [{row['name']}, {manner}]")
    for what, goal, middle, spread, verdict in _lines(row):
        print(f"  {what:<62} {goal:>10}  {middle:>10}  {spread:<17} {verdict}")
    for name, seat in row["seats"].items():
        print(
            f"    {name:<12} {number(seat['rate']):>9} /s"
            f"   client {number(seat['client_us'])} us   server {number(seat['server_us'])} us"
            f"   {number(seat['commands'])} commands"
        )
    for note in row["notes"]:
        print(textwrap.fill(note, 96, initial_indent="  ", subsequent_indent="  "))
    if row["others"] > QUIET:
        print(f"  NOISY: other processes took {row['others']:.0%} of the machine")
    for why in row["missing"]:
        print(f"  MISSING: {why}")
    sys.stdout.flush()


def tally(rows: list[dict]) -> str:
    verdicts = [
        (row, check) for row in rows for check in row["checks"] if check["goal"] is not None
    ]
    reached = sum(check["verdict"] == "reached" for _, check in verdicts)
    missed = [
        f"{row['name']} ({check['what']})"
        for row, check in verdicts
        if check["verdict"] == "missed"
    ]
    skipped = sorted({row["name"] for row, check in verdicts if check["verdict"] == "skipped"})
    text = f"{reached} of {len(verdicts)} targets reached"
    if missed:
        text += "; missed: " + ", ".join(missed)
    if skipped:
        text += "; skipped: " + ", ".join(skipped)
    return text


PAGE = """# Benchmarks

Generated by `{command}` on {day}; do not edit.

Every ratio is taken between subjects that take turns on the same private server (a quorum: on the
same five) within one round, and the table gives the median over the rounds with the lowest and the
highest.  Rows marked *pinned* run the server and the clients on one core, because waking a thread
on another core costs more at some times than at others.  Servers run in a session of their own, as
services do, so that the scheduler does not weigh them as one of 64 client threads.  Compare ratios;
absolute figures belong to this machine alone.  Where threads contend for a lock, a counter of its holders is shared by all
processes and watched: had it ever exceeded one, the row would have no figures.  *Others took* says
how much of the machine went to processes outside the benchmark, where that was not negligible.

| | |
|---|---|
{facts}

{picture}{tally}.

| workload | figure | target | median | lowest - highest | |
|---|---|---|---|---|---|
{targets}

{notes}## Absolute figures

Medians.  A pair is one lock and one unlock; microseconds are CPU time a pair.

| workload | subject | pairs a second | client us | server us | commands a pair |
|---|---|---|---|---|---|
{absolute}
"""


def _notes(rows: list[dict]) -> str:
    noted = [row for row in rows if row["notes"]]
    lines = [f"* {row['title']}: {' '.join(row['notes'])}" for row in noted]
    return "\n".join(["How it was measured:", "", *lines, "", ""]) if lines else ""


def markdown(result: dict, picture: str | None) -> str:
    targets, absolute = [], []
    for row in result["rows"]:
        title = row["title"] + (", *pinned*" if row["pinned"] else "")
        title += f", *others took {row['others']:.0%}*" if row["others"] > QUIET else ""
        for cells in _lines(row):
            targets.append(f"| {' | '.join([title, *cells])} |")
            title = ""
        title = row["title"]
        for name, seat in row["seats"].items():
            cells = [
                number(seat[field]) for field in ("rate", "client_us", "server_us", "commands")
            ]
            absolute.append(f"| {' | '.join([title, name, *cells])} |")
            title = ""
    return PAGE.format(
        command=result["command"],
        day=date.today().isoformat(),
        facts="\n".join(f"| {name} | {value} |" for name, value in result["machine"].items()),
        picture=f"![ratios to the targets]({picture})\n\n" if picture else "",
        tally=tally(result["rows"]),
        targets="\n".join(targets),
        notes=_notes(result["rows"]),
        absolute="\n".join(absolute),
    )

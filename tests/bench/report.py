"""Turn the results into text: a table for the terminal and the page for the documentation."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path
from statistics import median

from harness import BENCH, Builder, Sample
from parts import Check, Row
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


WAYS = ("futex", "socket", "eventfd")
WAKES = tuple(f"{way}_{place}" for place in ("across", "one") for way in WAYS)


def _wakes(rows: list[dict], place: str) -> str:
    """The median of each way over the run, with the lowest and the highest."""
    told = []
    for way in WAYS:
        values = [row["wakes"].get(f"{way}_{place}") for row in rows]
        values = [value for value in values if value is not None]
        if values:
            spread = f"{number(min(values))} - {number(max(values))}"
            told.append(f"{way} {number(median(values), 'us')} ({spread})")
    return ", ".join(told)


def machine(server: Server, builder: Builder, rows: list[dict], rounds: int) -> dict[str, str]:
    """What the figures depend on, by name."""
    facts = {
        "machine": f"{len(os.sched_getaffinity(0))} cores of {_cpu_model()}",
        "waking a thread on another core": _wakes(rows, "across"),
        "waking a thread on the same core": _wakes(rows, "one"),
        "system": f"{platform.system()} {platform.release()}, {' '.join(platform.libc_ver())}",
        "server": f"{server.version()}, TCP loopback, no persistence",
        "core": builder.build_id(),
        "rounds": f"{rounds} of each row, if it does not say otherwise",
    }
    if builder.used("c"):
        facts["compiler"] = _first_line(builder.compiler(), "--version")
    if builder.used("python"):
        names = ("redis", "hiredis", "uvloop")
        program = (
            "import importlib.metadata as m, platform as p;"
            f"print(p.python_version() + ',', *(n + ' ' + m.version(n) for n in {names}))"
        )
        facts["python"] = _first_line(builder.python, "-c", program)
    if builder.used("go"):
        modules = (BENCH / "go" / "go.mod").read_text().partition(")")[0].splitlines()
        used = [line.split() for line in modules if line.startswith("\t") and "/snib/" not in line]
        peers = ", ".join(f"{path.removeprefix('github.com/')} {tag}" for path, tag in used)
        facts["go"] = f"{_first_line('go', 'env', 'GOVERSION')}, {peers}"
    if builder.used("java"):
        jars = sorted((builder.folder / "java" / "dependency").glob("redisson-*.jar"))
        facts["java"] = ", ".join([_first_line("java", "-version"), *(jar.stem for jar in jars)])
    return {name: text for name, text in facts.items() if text}


# ---- Results as plain data -----------------------------------------------------------------------


def _verdict(check: Check, value: float) -> str:
    if check.goal is None:
        return ""
    return "reached" if check.reached(value) else "missed"


def check_result(check: Check, rounds: list[dict[str, Sample]]) -> dict:
    result = {
        "what": check.what,
        "against": check.against,
        "goal": check.goal,
        "most": check.most,
        "unit": check.unit,
    }
    if not check.has_figures(rounds):
        return result | {"verdict": "missing"}
    values = [check.value(r) for r in rounds]
    middle = median(values)
    return result | {"values": values, "median": middle, "verdict": _verdict(check, middle)}


FIELDS = ("rate", "commands", "client_us", "server_us")


def _median(samples: list[Sample], field: str) -> float | None:
    values = [getattr(sample, field) for sample in samples]
    return None if None in values else median(values)


def row_result(row: Row, rounds: list[dict[str, Sample]], missing: dict[str, str]) -> dict:
    seats = {}
    for name in row.seats if row.pairs else ():
        samples = [r[name] for r in rounds if name in r]
        if samples:
            seats[name] = {field: _median(samples, field) for field in FIELDS}
    return {
        "name": row.name,
        "title": row.title,
        "pinned": row.pinned,
        "rounds": len(rounds),
        "others": median([s.others for r in rounds for s in r.values()] or [0]),
        "checks": [check_result(check, rounds) for check in row.checks],
        "seats": seats,
        "notes": row.notes,
        "missing": sorted(missing.values()),
    }


# ---- Text ----------------------------------------------------------------------------------------


QUIET = 0.05  # the share that others may take of the machine before it is mentioned


def number(value: float | None, unit: str = "") -> str:
    """Three significant digits."""
    if value is None:
        text = "-"
    elif value == 0:
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


def _what(check: dict) -> str:
    return check["what"] + (f" against {check['against']}" if check["against"] else "")


def _lines(row: dict) -> list[list[str]]:
    return [
        [_what(check), _goal(check), *_figures(check), check["verdict"]] for check in row["checks"]
    ]


def _times(rounds: int) -> str:
    return f"{rounds} round{'s' if rounds != 1 else ''}"


def print_row(row: dict) -> None:
    manner = f"{_times(row['rounds'])}{', pinned' * row['pinned']}"
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
    text = f"{reached} of {len(verdicts)} targets reached"
    for verdict in ("missed", "missing"):
        found = [f"{row['name']} ({_what(c)})" for row, c in verdicts if c["verdict"] == verdict]
        if found:
            text += f"; {verdict}: " + ", ".join(found)
    return text


PAGE = """# Benchmarks

Generated by `{command}` on {day}; do not edit.

Every ratio is taken between subjects that take turns within one round, on the same private server
or deployment where the row does not say otherwise, and the table gives the median over the rounds
with the lowest and the highest.  Rows marked *pinned* run the server and the clients on one core,
because waking a thread on another core costs more at some times than at others.  What it costs here
was measured before each row: half of the time that two threads need to wake each other in turn, by
a futex, a loopback TCP connection and an eventfd; the median over the run with the lowest and the
highest.  Ratios of rows that are not pinned depend on it.  Servers run in separate sessions,
as services do, so that the scheduler does not weigh them as one of 64 client threads.  Compare
ratios; absolute figures belong to this machine alone.  Where threads contend for a lock, a counter
of its holders is shared by all processes and watched: had it ever exceeded one, the row would have
no figures.  *Others took* says how much of the machine went to processes outside the benchmark,
where that was not negligible and no server came or went.

{columns}
{facts}

{picture}{tally}.{there}

| workload | figure | target | median | lowest - highest | |{head}
|---|---|---|---|---|---|{rule}
{targets}

{missing}{notes}## Absolute figures

Medians.  A pair is one lock and one unlock, of all locks where several are taken as one;
microseconds are CPU time a pair, of all servers together.

| workload | subject | pairs a second | client us | server us | commands a pair |
|---|---|---|---|---|---|
{absolute}
"""


BESIDE = """

*Beside* are the medians of a run on another machine, of {day}, with {tally}."""


def _missing(rows: list[dict]) -> str:
    lines = [f"* {row['title']}: {'; '.join(row['missing'])}" for row in rows if row["missing"]]
    return "\n".join(["What is missing, and why:", "", *lines, "", ""]) if lines else ""


def _notes(rows: list[dict]) -> str:
    noted = [row for row in rows if row["notes"]]
    lines = [f"* {row['title']}: {' '.join(row['notes'])}" for row in noted]
    return "\n".join(["How it was measured:", "", *lines, "", ""]) if lines else ""


def _targets(row: dict, rounds: int, there: list[str] | None) -> list[str]:
    manner = ["pinned"] * row["pinned"]
    manner += [_times(row["rounds"])] * (row["rounds"] != rounds)
    manner += [f"others took {row['others']:.0%}"] * (row["others"] > QUIET)
    title = row["title"] + "".join(f", *{word}*" for word in manner)
    titles = [title] + [""] * len(row["checks"])
    lines = [[title, *cells] for title, cells in zip(titles, _lines(row), strict=False)]
    if there is not None:
        lines = [[*cells, text] for cells, text in zip(lines, there, strict=True)]
    return [f"| {' | '.join(cells)} |" for cells in lines]


# ---- Another machine -----------------------------------------------------------------------------


def _named(checks: list[dict]) -> dict[tuple[str, int], dict]:
    """By what they say; several of a row may say the same, and are counted."""
    named: dict[tuple[str, int], dict] = {}
    seen: Counter[str] = Counter()
    for check in checks:
        what = _what(check)
        named[what, seen[what]] = check
        seen[what] += 1
    return named


def _elsewhere(beside: dict, row: dict) -> list[str]:
    """What the row's figures came to on the other machine: medians and verdicts."""
    others = [_named(other["checks"]) for other in beside["rows"] if other["name"] == row["name"]]
    texts = []
    for key in _named(row["checks"]):
        check = others[0].get(key) if others else None
        texts.append(f"{_figures(check)[0]} {check['verdict']}".strip() if check else "")
    return texts


def _facts(here: dict[str, str], there: dict[str, str] | None) -> str:
    """A line for each; the other machine's beside, where they are others."""
    lines = []
    for name, value in here.items():
        cells = [name, value]
        if there is not None:
            cells.append("the same" if there.get(name) == value else there.get(name, ""))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _absolute(row: dict) -> list[str]:
    lines = []
    for i, (name, seat) in enumerate(row["seats"].items()):
        cells = [number(seat[field]) for field in ("rate", "client_us", "server_us", "commands")]
        lines.append(f"| {' | '.join([row['title'] if i == 0 else '', name, *cells])} |")
    return lines


def markdown(result: dict, picture: str | None) -> str:
    rows, beside = result["rows"], result.get("beside")
    elsewhere = [_elsewhere(beside, row) if beside else None for row in rows]
    return PAGE.format(
        command=result["command"],
        day=result["day"],
        facts=_facts(result["machine"], beside and beside["machine"]),
        columns="| | | beside |\n|---|---|---|" if beside else "| | |\n|---|---|",
        picture=f"![ratios to the targets]({picture})\n\n" if picture else "",
        tally=tally(rows),
        there=BESIDE.format(day=beside["day"], tally=tally(beside["rows"]).partition(";")[0]) if beside else "",
        head=" beside |" if beside else "",
        rule="---|" if beside else "",
        targets="\n".join(
            line
            for row, there in zip(rows, elsewhere, strict=True)
            for line in _targets(row, result["rounds"], there)
        ),
        missing=_missing(rows),
        notes=_notes(rows),
        absolute="\n".join(line for row in rows for line in _absolute(row)),
    )

"""docs/reliability.md, from the table of faults, the figures of a whole run, and the text of page.md.

    python tests/reliability/page.py            write it
    python tests/reliability/page.py --check    check the table, and fail if the page is not what would be written
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
from itertools import groupby
from pathlib import Path
from string import Template
from typing import Any

import faults
import seen
from faults import LIVE, ROOT, Fault

HERE = Path(__file__).resolve().parent
PAGE = ROOT / "docs" / "reliability.md"
FOLDERS = {"models": ("tests/models", ".pml"), "fuzz": ("tests/fuzz", ".c")}


def number(n: int) -> str:
    return f"{n:,}"


def item(text: str) -> str:
    return textwrap.fill(f"* {text}", 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def anchor(title: str) -> str:
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def heading(fault: Fault) -> str:
    return f"{fault.number}. {fault.name[0].upper()}{fault.name[1:]}"


def drawn(fault: Fault, figures: dict[str, Any]) -> int:
    """How often the simulators drew a fault."""
    draws = [draw.split(": ") for draw in fault.simulated]
    return sum(figures["simulators"][simulator]["faults"][name] for simulator, name in draws)


# ---- The overview --------------------------------------------------------------------------------


def row(fault: Fault, figures: dict[str, Any]) -> str:
    live = [str(faults.count(getattr(fault, where)) or "-") for where in LIVE]
    scripted = str(faults.count(fault.scripted) or "-")
    simulated = number(drawn(fault, figures)) if fault.simulated else "none"
    searched = ", ".join([*fault.models, *fault.fuzz]) or "-"
    name = f"[{fault.number}](#{anchor(heading(fault))}) {fault.name}"
    return "| " + " | ".join([name, *live, scripted, simulated, searched]) + " |"


def overview(table: list[Fault], figures: dict[str, Any]) -> str:
    titles = ["fault", *LIVE.values(), "one situation", "drawn at random", "models, fuzzing"]
    return "\n".join(
        [
            f"| {' | '.join(titles)} |",
            "|---" * len(titles) + "|",
            *(row(fault, figures) for fault in table),
        ]
    )


# ---- The faults ----------------------------------------------------------------------------------


def said(tests: list[str]) -> str:
    """Tests by their files and cases."""
    parts = []
    for test in tests:
        path, cases = faults.split(test)
        parts.append(f"`{path}`" + (f" ({', '.join(cases)})" if cases else ""))
    return "; ".join(parts)


def section(fault: Fault, figures: dict[str, Any]) -> str:
    items = [f"Injected: {fault.inject}.", f"Must hold: {fault.holds}"]
    items += [f"Tests, {title}: {said(tests)}." for where, title in LIVE.items() if (tests := getattr(fault, where))]
    if fault.scripted:
        items.append(f"One situation, in virtual time: {said(fault.scripted)}.")
    if fault.simulated:
        items.append(f"Drawn by simulators, {number(drawn(fault, figures))} times: {', '.join(fault.simulated)}.")
    else:
        items.append("Drawn by simulators: none of them injects it.")
    for key, (folder, suffix) in FOLDERS.items():
        if names := getattr(fault, key):
            files = ", ".join(f"`{folder}/{name}{suffix}`" for name in names)
            items.append(f"{'Models' if key == 'models' else 'Fuzzing'}: {files}.")
    if fault.open:
        items.append(f"Not tested: {fault.open}")
    return f"#### {heading(fault)}\n\n" + "\n".join(map(item, items))


def sections(table: list[Fault], figures: dict[str, Any]) -> str:
    return "\n\n".join(
        "\n\n".join([f"### {group}", *(section(fault, figures) for fault in rows)])
        for group, rows in groupby(table, key=lambda fault: fault.group)
    )


def gaps(table: list[Fault]) -> str:
    return "\n".join(
        item(f"[Fault {fault.number}](#{anchor(heading(fault))}), {fault.name}. {fault.open}")
        for fault in table
        if fault.open
    )


# ---- The page ------------------------------------------------------------------------------------


def words(figures: dict[str, Any]) -> dict[str, str]:
    """What the text may mention."""
    out = {key: number(value) for key, value in figures.items() if isinstance(value, int)}
    for simulator, said_of in figures["simulators"].items():
        out |= {f"{simulator}_{key}": number(value) for key, value in said_of.items() if key != "faults"}
        out[f"{simulator}_faults"] = number(sum(said_of["faults"].values()))
    *first, last = figures["servers"]
    servers = f"{', '.join(first)} and {last}" if first else last
    pythons = " and ".join(map(number, figures["pythons"]))
    run = f"The figures are those of {figures['run']}. `./dev test --all` does the same with more of everything."
    return out | {"run": textwrap.fill(run, 120), "servers": servers, "pythons": pythons}


def page(table: list[Fault], figures: dict[str, Any]) -> str:
    live = sum(bool(fault.live()) for fault in table)
    met = seen.Table()
    parts = {
        "overview": overview(table, figures),
        "sections": sections(table, figures),
        "gaps": gaps(table),
        "pairs": number(seen.pairs_that_meet(met)),
        "transitions": number(len(met.transitions)),
        "injected": "all" if live == len(table) else f"{live} of them",
    }
    return Template((HERE / "page.md").read_text()).substitute(words(figures) | parts)


def main() -> None:
    table = faults.read()
    if wrong := faults.problems(table):
        raise SystemExit("\n".join(["tests/reliability/faults.toml:", *wrong]))
    text = page(table, json.loads((HERE / "figures.json").read_text()))
    if "--check" not in sys.argv:
        PAGE.write_text(text)
    elif not PAGE.exists() or PAGE.read_text() != text:
        raise SystemExit("docs/reliability.md is not what tests/reliability/page.py writes")


if __name__ == "__main__":
    main()

"""What a soak shows: its counters while it runs, and the report at its end."""

from __future__ import annotations

import collections
import json
import platform
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import flat
from flat import Curve

if TYPE_CHECKING:
    from soak import Soak
    from worlds import World

LINE_S = 60.0


def length(seconds: float) -> str:
    minutes, left = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{left:02}"


def counted(world: World, event: str) -> collections.Counter[str]:
    """Lines of the logs, by their second word: a language, a code or a reason."""
    counts: collections.Counter[str] = collections.Counter()
    for words, n in sorted(world.counts.items()):
        if words[0] == event:
            counts[words[1]] += n
    return counts


def lost(world: World) -> dict[str, int]:
    """Holds that were lost, by reason; those that learned it from their release, too."""
    reasons = counted(world, "lost")
    at_release = counted(world, "release")["4"] - reasons.total()
    if at_release > 0:
        reasons["at release"] = at_release
    return dict(sorted(reasons.items()))


def operations(world: World) -> int:
    return world.conductor.operations + world.conductor.recent


def curves(soak: Soak) -> list[tuple[World, Curve]]:
    return [(w, c) for w in soak.worlds for c in [*w.curves, *(m.curve for m in w.processes.values())]]


def table(heads: list[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{' --- |' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(map(str, row))} |"


def listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{word} {n}" for word, n in counts.items()) or "none"


# ---- While it runs -------------------------------------------------------------------------------


class Screen:
    """A table that is drawn anew each second on a terminal; otherwise a line a minute."""

    def __init__(self, soak: Soak) -> None:
        self.soak = soak
        self.terminal = sys.stdout.isatty()
        self.next = time.monotonic() + LINE_S

    def show(self) -> None:
        if self.terminal:
            print("\x1b[H\x1b[J" + "\n".join(self._lines()), flush=True)
        elif time.monotonic() >= self.next:
            self.next += LINE_S
            print(self._line(), flush=True)

    def _line(self) -> str:
        them = self.soak.worlds
        return (
            f"{length(time.monotonic() - self.soak.began)}  {sum(map(operations, them))} operations,"
            f" {sum(w.met.total() for w in them)} faults, {sum(sum(lost(w).values()) for w in them)} holds lost,"
            f" {sum(w.windows for w in them)} windows judged, wrong {len(self.soak.wrong)}"
        )

    def _lines(self) -> Iterator[str]:
        soak = self.soak
        yield f"Snib soak  {self._line()}  of {length(soak.given.seconds)}  seed {soak.given.seed}"
        yield ""
        yield f"{'world':18}{'processes':>10}{'operations':>12}{'grants':>10}{'lost':>7}{'faults':>8}{'windows':>9}{'overlaps':>10}"
        for world in soak.worlds:
            yield (
                f"{world.plan.title:18}{len(world.processes):10}{operations(world):12}{sum(counted(world, 'grant').values()):10}"
                f"{sum(lost(world).values()):7}{world.met.total():8}{world.windows:9}{world.judged.overlaps:10}"
            )
        yield ""
        by_language: dict[str, list[Curve]] = collections.defaultdict(list)
        for world in soak.worlds:
            for member in world.processes.values():
                by_language[member.language].append(member.curve)
        yield f"{'most of a process':18}{'processes':>10}{'MiB':>12}{'descriptors':>13}{'threads':>9}"
        for language, those in sorted(by_language.items()):
            kib, descriptors, threads = flat.most(those)
            yield f"{language:18}{len(those):10}{kib / 1024:12.1f}{descriptors:13}{threads:9}"
        met = sum((world.met for world in soak.worlds), collections.Counter())
        yield ""
        yield f"faults: {listed(dict(sorted(met.items())))}"
        yield from (f"WRONG: {text.splitlines()[0][:150]}" for text in soak.wrong[-5:])


# ---- At its end ----------------------------------------------------------------------------------


def result(soak: Soak) -> str:
    them = soak.worlds
    return (
        f"{length(soak.seconds)}, {soak.given.processes} processes: {sum(map(operations, them))} operations,"
        f" {sum(w.met.total() for w in them)} faults, "
        + (f"{len(soak.wrong)} THINGS WRONG" if soak.wrong else "nothing lost, nothing leaked")
        + (" (ended early)" if soak.interrupted else "")
    )


def report(soak: Soak) -> None:
    given = soak.given
    told = {
        **{"result": result(soak), "seed": given.seed, "seconds": round(soak.seconds, 1), "processes": given.processes},
        **{"old": given.old, "machine": platform.platform(), "interrupted": soak.interrupted, "wrong": soak.wrong},
        "worlds": [
            {
                **{"world": w.plan.title, "processes": w.plan.languages, "operations": operations(w)},
                **{"grants": counted(w, "grant"), "lost": lost(w), "faults": w.met},
                "calls without a hold": {" ".join(words[1:]): n for words, n in sorted(w.counts.items()) if words[0] == "fail"},
                "longest fault, in s": {fault: round(s, 1) for fault, s in w.longest.items()},
                **{"windows": w.windows, **{k: v for k, v in vars(w.judged).items() if isinstance(v, int)}},
            }
            for w in soak.worlds
        ],
        "curves": [
            {"world": w.plan.title, "process": c.me, "seconds": round(c.seconds, 1), "points": c.points()}
            for w, c in curves(soak)
        ],
    }
    (given.report / "report.json").write_text(json.dumps(told, indent=1))
    (given.report / "report.md").write_text("\n".join(text(soak)) + "\n")


def text(soak: Soak) -> Iterator[str]:
    given, them = soak.given, soak.worlds
    yield "# Soak"
    yield ""
    yield f"Seed `{given.seed}`; {f'the older version is {given.old}' if given.old else 'no old version'}; {platform.platform()}."
    yield ""
    yield from (f"* WRONG: {text.strip()}" for text in soak.wrong)
    yield ""
    heads = ["world", "operations", "grants", "holds lost", "calls without a hold, by code", "windows", "overlaps, untold", "updates, stale writes refused"]
    rows: list[list[object]] = [
        [
            *(w.plan.title, operations(w), listed(counted(w, "grant")), listed(lost(w)), listed(counted(w, "fail")), w.windows),
            *(f"{w.judged.overlaps}, {w.judged.untold}", f"{w.judged.updates}, {w.judged.stale}"),
        ]
        for w in them
    ]
    yield from table(heads, rows)
    yield ""
    every = sorted({fault for w in them for fault in w.met})
    cells = ([f, *(f"{w.met[f]}, {w.longest[f]:.1f}" if f in w.met else "" for w in them)] for f in every)
    yield from table(["fault: how often, seconds at most", *(w.plan.title for w in them)], cells)
    yield ""
    yield "Memory that belongs to a process alone, in its second quarter and in its last one (medians):"
    yield ""
    yield from table(
        ["process", "lived", "samples", "MiB", "descriptors", "threads"],
        ([f"{w.plan.title} {c.me}", length(c.seconds), len(c.samples), *medians(c)] for w, c in chosen(soak)),
    )
    yield ""
    yield result(soak)


def chosen(soak: Soak, count: int = 80) -> list[tuple[World, Curve]]:
    """The processes that lived longest; all of them are in the JSON."""
    judged = [(w, c) for w, c in curves(soak) if c.long]
    return sorted(judged, key=lambda one: -one[1].seconds)[:count]


def medians(curve: Curve) -> Iterator[str]:
    (kib, descriptors, threads) = curve.medians()
    yield f"{kib[0] / 1024:.1f}, {kib[1] / 1024:.1f}"
    yield f"{descriptors[0]:.0f}, {descriptors[1]:.0f}"
    yield f"{threads[0]:.0f}, {threads[1]:.0f}"

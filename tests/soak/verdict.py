"""The judges of a window.

On one server two holders are never excused: Porcupine and the counter at the resource judge the window as they judge a
history; see tests/histories.  Where a failover may take away what was acknowledged, the intervals in which holders
believed in their locks are compared: an overlap must have a failover as its cause and be over before the lease is.  Tokens go
back only then, and only then may an update be lost at the resource that checks them.  Such a failover is one of the master
that served the name, and by hand in a cluster none loses anything: there the old master stops first.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from announce import Announcement, by_themselves  # of tests/topology
from history import MS, SECOND, History


@dataclass
class Verdict:
    """What a window was found to be."""

    refused: list[str] = field(default_factory=list)
    text: str = ""
    overlaps: int = 0  # those that a failover has caused
    untold: int = 0  # of them: whose first holder gave its lock back without having learned of it
    updates: int = 0
    stale: int = 0
    refusals: int = 0


async def linearizable(judge: Path, folder: Path) -> Verdict:
    """By the judge of the histories."""
    command = ["nice", str(judge), "-html", str(folder), "-counts", str(folder / "counts"), str(folder)]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, start_new_session=True
    )
    said, errors = await process.communicate()
    text = said.decode()
    assert process.returncode in (0, 1), errors.decode()
    counts: dict[str, Any] = json.loads((folder / "counts").read_text())
    refused = [line for line in text.splitlines() if line.startswith("REFUSED")]
    return Verdict(refused, text, updates=counts["updates"], stale=counts["stale"], refusals=counts["refusals"])


def read(folder: Path) -> History:
    """The window as a history of tests/topology, whose logs have no lines about the resource."""
    made = History()
    for path in folder.glob("*.log"):
        if path.name != "plan.log":
            lines = path.read_text().splitlines(keepends=True)
            made.add("".join(line for line in lines if not line.startswith("use ")))
    made.holds.sort(key=lambda hold: hold.granted)
    return made


@dataclass
class Write:
    """What the resource accepted: a number that should be one more than the last."""

    name: str
    hold: str
    token: int
    value: int


def writes(folder: Path) -> list[Write]:
    words = (line.split() for line in (folder / "plan.log").read_text().splitlines())
    return [Write(w[2], w[3], int(w[4]), int(w[5])) for w in words if w[0] == "wrote"]


@dataclass
class Failover:
    """One that was made."""

    begin: int
    end: int
    names: list[str]  # that its master served
    loses: bool  # whether it may lose what the master has answered


Spans = dict[str, list[tuple[int, int]]]  # by name, each with its begin and its end


def losses(made: list[Failover], heard: dict[str, list[Announcement]]) -> tuple[Spans, int]:
    """The failovers that may have lost something of each name, of whose master this was heard; and how many nobody made."""
    alone, may = set(), {}
    for name, announcements in heard.items():
        known = [each for each in made if name in each.names]
        spans = by_themselves(announcements, [(each.begin, each.end) for each in known])
        alone.update(spans)
        may[name] = spans + [(each.begin, each.end) for each in known if each.loses]
    return may, len(alone)


def explained(history: History, made: list[Write], failovers: Spans, lease_ms: int) -> Verdict:
    """By what failovers may have done."""
    verdict = Verdict(untold=len(history.untold()))

    def between(name: str, first: int, second: int) -> bool:
        return any(begin <= second and first <= end for begin, end in failovers.get(name, []))

    for overlap in history.overlaps():
        a, b = overlap.first, overlap.second
        words = f"{a.name}: {a.id} and {b.id} held it together for {overlap.ns / MS:.1f} ms"
        if not between(a.name, a.granted, b.granted):
            verdict.refused.append(f"{words}, and no failover was between")
        elif overlap.ns > lease_ms * MS:
            verdict.refused.append(f"{words}, longer than the lease of {lease_ms} ms")
        else:
            verdict.overlaps += 1
    for a, b in history.disorder():
        if not between(a.name, a.granted, b.granted):
            verdict.refused.append(
                f"{a.name}: {b.id} has token {b.token} after {a.id} had {a.token}, and no failover was between"
            )
    granted = {hold.id: hold.granted for hold in history.holds}
    last: dict[str, Write] = {}
    for write in made:
        before, last[write.name] = last.get(write.name), write
        verdict.updates += 1
        # Without a token a holder that was stopped may write too late.
        late = before is not None and write.token and write.value <= before.value
        if before and late and not between(write.name, granted[before.hold], granted[write.hold]):
            verdict.refused.append(
                f"{write.name}: {write.hold} wrote {write.value} after {before.hold} had written {before.value}: an update is lost"
            )
    verdict.text = "\n".join(verdict.refused)
    return verdict

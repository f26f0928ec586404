"""What the workers of a load saw, and what follows from it.

One line per event, times in nanoseconds of CLOCK_BOOTTIME, which all processes of a machine share:

    start   <at> <who>
    ask     <at> <who> <name> <wait_ms>                               a call for the lock begins
    grant   <at> <who> <name> <hold> <token>                          and ends with a hold
    fail    <at> <who> <name> <asked> <code>                          or with this code of snib.h
    lost    <at> <who> <name> <hold> <checked> <reason>               a check has reported the loss
    release <at> <who> <name> <hold> <checked> <asked> <code>         the hold has ended after this call
    end     <at> <who>

`checked` is when the worker last began a check that reported the hold as valid: up to then it worked under the lock.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SECOND = 1_000_000_000
MS = 1_000_000


@dataclass
class Hold:
    """A hold as its holder saw it; times of events that did not happen are 0."""

    id: str
    name: str
    who: str
    token: int
    granted: int
    checked: int
    lost: int = 0
    reason: str = ""
    release_asked: int = 0
    released: int = 0
    code: int = 0


@dataclass
class Call:
    """A call for a lock, with its limit; `ended` is 0 if it has not returned."""

    who: str
    name: str
    asked: int
    deadline: int
    ended: int = 0
    code: int = 0


@dataclass
class Overlap:
    """The second hold was granted while the first one's checks still reported it valid, for ns nanoseconds."""

    first: Hold
    second: Hold
    ns: int

    @property
    def told_after(self) -> int | None:
        """How long after the second grant the first holder learned of its loss; None: never."""
        return self.first.lost - self.second.granted if self.first.lost else None


@dataclass
class History:
    holds: list[Hold] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    started: dict[str, int] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, paths: Iterable[Path]) -> History:
        made = cls()
        for path in paths:
            made.add(path.read_text(errors="replace"))
        made.holds.sort(key=lambda hold: hold.granted)
        made.calls.sort(key=lambda call: call.asked)
        return made

    def add(self, text: str) -> None:
        """Add the log of one process.  An incomplete last line was cut off when the process died."""
        holds: dict[str, Hold] = {}
        open_calls: dict[str, Call] = {}
        for line in text.splitlines(keepends=True):
            if line.endswith("\n"):
                self._line(line.split(), holds, open_calls)
        self.holds += holds.values()
        self.calls += open_calls.values()  # calls that have not returned

    def _line(self, words: list[str], holds: dict[str, Hold], open_calls: dict[str, Call]) -> None:
        event, at, who = words[0], int(words[1]), words[2]
        if event == "start":
            self.started[who] = at
        elif event == "end":
            self.ended[who] = at
        elif event == "ask":
            open_calls[who] = Call(who, words[3], at, at + int(words[4]) * MS)
        elif event in ("grant", "fail"):
            call = open_calls.pop(who)
            call.ended = at
            self.calls.append(call)
            if event == "fail":
                call.code = int(words[5])
            else:
                holds[words[4]] = Hold(words[4], words[3], who, int(words[5]), at, at)
        else:
            hold = holds[words[4]]
            hold.checked = int(words[5])
            if event == "lost":
                hold.lost, hold.reason = at, " ".join(words[6:])
            else:
                hold.release_asked, hold.code, hold.released = int(words[6]), int(words[7]), at

    # -- Exclusion

    def overlaps(self) -> list[Overlap]:
        """Every pair of holds of one name that were believed valid at the same time."""
        found = []
        held: dict[str, list[Hold]] = defaultdict(list)
        for hold in sorted(self.holds, key=lambda hold: hold.granted):
            still = [other for other in held[hold.name] if other.checked > hold.granted]
            for other in still:
                together = min(other.checked, hold.checked) - hold.granted
                found.append(Overlap(other, hold, max(together, 0)))
            held[hold.name] = [*still, hold]
        return found

    def untold(self) -> list[Overlap]:
        """Overlaps whose first holder never learned of its loss, although its release was answered."""
        return [
            o
            for o in self.overlaps()
            if not o.first.lost and o.first.code == 0 and o.first.released
        ]

    def disorder(self) -> list[tuple[Hold, Hold]]:
        """Pairs of successive holds whose tokens do not increase.

        A hold that was over when its call returned, because the process was stopped in the call, has been none since.
        """
        found = []
        by_name: dict[str, list[Hold]] = defaultdict(list)
        for hold in self.holds:
            was_over = hold.checked <= hold.granted and (hold.lost or hold.code)
            if hold.token > 0 and not was_over:
                by_name[hold.name].append(hold)
        for holds in by_name.values():
            ends = sorted(holds, key=lambda hold: hold.checked)
            highest: Hold | None = None
            i = 0
            for hold in sorted(holds, key=lambda hold: hold.granted):
                while i < len(ends) and ends[i].checked < hold.granted:
                    if highest is None or ends[i].token > highest.token:
                        highest = ends[i]
                    i += 1
                if highest is not None and hold.token <= highest.token:
                    found.append((highest, hold))
        return found

    # -- Recovery

    def grants(self, since: int, names: Sequence[str] = ()) -> list[Hold]:
        """Holds granted from then on, of these names or any."""
        return [h for h in self.holds if h.granted >= since and (not names or h.name in names)]

    def first_grant(self, since: int, names: Sequence[str] = ()) -> int | None:
        """Time from then until a lock was granted; None: never again."""
        holds = self.grants(since, names)
        return min(hold.granted for hold in holds) - since if holds else None

    def back(self, since: int, names: Sequence[str] = ()) -> dict[str, int | None]:
        """For each worker, the time from then until it had a lock; None: it never had one."""
        times: dict[str, int | None] = dict.fromkeys(self.started)
        for hold in self.grants(since, names):
            waited = hold.granted - since
            before = times.get(hold.who)
            times[hold.who] = waited if before is None else min(before, waited)
        return times

    def taken(self, since: int, names: Sequence[str]) -> dict[str, int | None]:
        """For each name, the time from then until anybody had its lock; None: nobody had it."""
        times: dict[str, int | None] = dict.fromkeys(names)
        for hold in self.grants(since, names):
            before = times[hold.name]
            waited = hold.granted - since
            times[hold.name] = waited if before is None else min(before, waited)
        return times

    def missing(self, since: int, names: Sequence[str] = ()) -> list[str]:
        return sorted(who for who, time in self.back(since, names).items() if time is None)

    def unfinished(self) -> list[str]:
        """Workers that did not end on request."""
        return sorted(set(self.started) - set(self.ended))

    # -- Calls

    def late(self, by_ns: int = 0) -> list[Call]:
        """Calls that returned more than by_ns after their limit, or never."""
        return [c for c in self.calls if not c.ended or c.ended - c.deadline > by_ns]

    def longest_release(self) -> int:
        return max((h.released - h.release_asked for h in self.holds if h.released), default=0)

    def codes(self, since: int = 0) -> dict[int, int]:
        """Counts of the codes of calls that ended without a hold, ordinary outcomes (busy, timed out) included."""
        counts: dict[int, int] = defaultdict(int)
        for call in self.calls:
            if call.code and call.ended >= since:
                counts[call.code] += 1
        return dict(counts)

    def losses(self) -> dict[str, int]:
        counts: dict[str, int] = defaultdict(int)
        for hold in self.holds:
            if hold.lost:
                counts[hold.reason] += 1
        return dict(counts)

    # -- Report

    def summary(self) -> str:
        overlaps = self.overlaps()
        late = self.late()
        hung = sum(not call.ended for call in late)
        worst = max((c.ended - c.deadline for c in late if c.ended), default=0)
        lines = [
            f"{len(self.holds)} holds of {len({h.name for h in self.holds})} names,"
            f" {len(self.started)} workers, {len(self.calls)} calls",
            f"calls that ended otherwise, by code: {self.codes() or 'none'}",
            f"lost: {self.losses() or 'none'}",
            f"calls past their limit: {len(late)}, the worst by {worst / MS:.1f} ms, {hung} never back",
            f"longest release: {self.longest_release() / MS:.1f} ms",
            f"tokens out of order: {len(self.disorder())}",
            f"workers that did not end: {', '.join(self.unfinished()) or 'none'}",
            f"overlaps: {len(overlaps)}, {len(self.untold())} of them never reported",
        ]
        return "\n".join([*lines, *histogram([o.ns for o in overlaps])])


def histogram(
    values: Sequence[int], unit: int = MS, bound: Callable[[int], int] = lambda i: 2**i
) -> list[str]:
    """Lines of a histogram: below 1, 2, 4 ... milliseconds."""
    lines, left, i = [], sorted(values), 0
    while left:
        limit = bound(i) * unit
        count = sum(value < limit for value in left)
        if count:
            lines.append(f"  below {bound(i):6d} ms: {count}")
        left, i = left[count:], i + 1
    return lines


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Tell what the logs of workers say.")
    parser.add_argument("log", nargs="+", type=Path)
    print(History.read(parser.parse_args().log).summary())

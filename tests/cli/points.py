"""Three loads on a real server, counted there, and beside them what snib plan says.

    python tests/cli/points.py [--write]      SNIB_COMMAND, SNIB_LOAD: snib and cli_load; by default those of build/core

With --write they, and the example, go to docs/capacity.md.

Nothing depends on how fast anything runs: a load lasts until enough has happened, and the plan is made for as much a
second, or compared by how much belongs to each renewal and each attempt of a waiter.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests/bench"))

from capacity import PAGE, Bed, Load

SNIB = os.environ.get("SNIB_COMMAND", str(ROOT / "build/core/snib"))
LOAD = os.environ.get("SNIB_LOAD", str(ROOT / "build/core/tests/cli/cli_load"))
EXAMPLE = "--locks 20000 --rate 1000 --clients 50 --contended 5 --waiters 100"
TRIES = 8
COMMANDS = ("evalsha", "time", "ping", "subscribe", "unsubscribe", "set", "info", "client|setinfo") # that clients send


@dataclass
class Row:
    what: str
    planned: float
    counted: float
    tolerance: float # how far apart they may be, as a share
    is_limit: bool = False # the plan is only not to be exceeded

    def fits(self):
        ratio = self.counted / self.planned
        return ratio <= 1 + self.tolerance and (self.is_limit or ratio >= 1 - self.tolerance)


def plan(*words):
    """What snib plan says; it may also say that this is too much for one server."""
    done = subprocess.run([SNIB, "plan", *map(str, words), "--json"], stdout=subprocess.PIPE, text=True)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"snib plan {words} ended with {done.returncode}")
    return json.loads(done.stdout)


class TooBusy(Exception):
    """This machine allows no judgement just now."""


class Point:
    """A load, and what it has cost since it was ready."""

    def __init__(self, folder):
        self.bed = Bed(pathlib.Path(folder), "server")

    def load(self, lease_ms, clients):
        return Load(LOAD, lease_ms, clients, self.bed.server.url)

    def calls(self):
        stats = self.bed.server.info("commandstats")
        return {name: int(stats.get(f"cmdstat_{name}", "calls=0,").split("=")[1].split(",")[0]) for name in COMMANDS}

    def counted(self, work):
        """(commands of clients, cost, seconds, what work returned)"""
        result = []
        calls, begun = self.calls(), time.monotonic()
        cost = self.bed.spent(lambda: result.append(work()))
        seconds = time.monotonic() - begun
        calls = {name: n - calls[name] for name, n in self.calls().items()}
        own = 4 + 1 # what spent() and calls() asked with INFO
        return sum(calls.values()) - own, cost, seconds, result[0]

    def counted_growth(self, load, what, by):
        """The same while so much more of what happens.  The clients and the server are asked one after the other, so it is
        counted again if the machine stood still between: then too much happened that only one of them counts."""
        for _ in range(TRIES):
            before = load("stats")[what]
            counted = self.counted(lambda: grown(load, what, by))
            if load("stats")[what] - before < counted[3] * 1.03:
                return counted
        raise TooBusy(f"{what} could not be counted: the machine stood still {TRIES} times")


def pairs(point, count=3000, clients=50):
    """Pairs, uncontended.  With so long a lease nobody asks for the time, however long it takes."""
    load = point.load(3600000, clients)
    load(f"pairs mutex p {clients}") # every client has loaded the scripts
    commands, cost, seconds, _ = point.counted(lambda: load(f"pairs mutex p {count}"))
    memory = load("stats")["memory"] / clients
    load.stop()
    told = plan("--rate", f"{count / seconds:.3f}", "--clients", clients, "--lease", "1h")
    server = told["server"]
    return [Row("commands a pair", server["commands"] * seconds / count, commands / count, .03),
            Row("bytes received a pair", server["received"] * seconds / count, cost.received / count, .03),
            Row("bytes sent a pair", server["sent"] * seconds / count, cost.sent / count, .15),
            Row("bytes of a client", told["client"]["memory"], memory, .25)]


def grown(load, what, by):
    """Wait until so much more has happened; returns how much."""
    first = load("stats")[what]
    while (now := load("stats")[what]) < first + by:
        time.sleep(.05)
    return now - first


def renewed(point, holds=20000, clients=10, lease_ms=15000):
    """Renewed holds."""
    load = point.load(lease_ms, clients)
    memory = point.bed.memory()
    load(f"hold mutex r {holds}")
    memory = point.bed.memory() - memory
    client = load("stats")["memory"] / clients # before a stall can make it renew all of them at once, in larger buffers
    grown(load, "renewals", holds) # by then each client's are spread over the period
    # After a stall all are renewed at once again: of three such moments the first and the last are only two periods apart.
    commands, cost, seconds, renewals = point.counted_growth(load, "renewals", 3 * holds)
    stats = load("stats")
    load.stop()
    told = plan("--locks", holds, "--clients", clients, "--lease", f"{lease_ms}ms")
    server, share = told["server"], renewals / 1000
    each = server["renewals"] / 1000
    return [Row("holds that are still there", holds, stats["held"], 0),
            Row("commands for 1,000 renewals", server["commands"] / each, commands / share, .5),
            Row("bytes received for 1,000 renewals", server["received"] / each, cost.received / share, .1),
            Row("renewals a second", server["renewals"], renewals / seconds, .6, is_limit=True),
            Row("bytes of a lock at the server", (server["memory"] - plan("--locks", 1, "--clients", clients)["server"]
                                                  ["memory"]) / (holds - 1), memory / holds, .6),
            Row("bytes of a client", told["client"]["memory"], client, .25)]


def waiting(point, locks=50, clients=10):
    """Waiters: each client waits for each lock, and another client holds them all."""
    holder, load = point.load(30000, 1), point.load(30000, clients)
    holder(f"hold mutex w {locks}")
    load(f"wait mutex w {locks}")
    waiters = locks * clients
    grown(load, "rechecks", waiters) # by then all have subscribed, and ask at times of their own
    commands, cost, seconds, rechecks = point.counted_growth(load, "rechecks", 2 * waiters)
    stats = load("stats")
    load.stop()
    holder.stop()
    told = plan("--locks", locks, "--clients", clients + 1, "--waiters", waiters)
    server, share = told["server"], rechecks / 1000
    each = waiters / 2.625 / 1000 # attempts of waiters, in thousands a second
    return [Row("waiters that are still there", waiters, stats["waiting"], 0),
            Row("commands for 1,000 attempts", server["commands"] / each, commands / share, .1),
            Row("bytes received for 1,000 attempts", server["received"] / each, cost.received / share, .1),
            Row("bytes sent for 1,000 attempts", server["sent"] / each, cost.sent / share, .2),
            Row("attempts a second", waiters / 2.625, rechecks / seconds, .2, is_limit=True)]


def table():
    lines = ["| load | | planned | counted |", "|---|---|---|---|"]
    for measure in (pairs, renewed, waiting):
        with tempfile.TemporaryDirectory(prefix="snib-points-") as folder:
            point = Point(folder)
            try:
                rows = measure(point)
            finally:
                point.bed.stop()
        for row in rows:
            name = re.split("[:.]", measure.__doc__)[0].lower()
            lines.append(f"| {name} | {row.what} | {row.planned:,.5g} | {row.counted:,.5g} |"
                         f"{'' if row.fits() else ' does not fit'}")
    return "\n".join(lines) + "\n"


def example():
    """The plan of docs/capacity.md."""
    done = subprocess.run([SNIB, "plan", *EXAMPLE.split()], stdout=subprocess.PIPE, text=True, check=True)
    return f"```\n$ snib plan {EXAMPLE}\n{done.stdout}```\n"


def put(page, what, text):
    """The page with another text between its marks."""
    begin, end = f"<!-- {what}: by tests/cli/points.py --write -->\n", f"<!-- end of {what} -->"
    before, _, rest = page.partition(begin)
    return before + begin + text + end + rest.partition(end)[2]


def main():
    rows = table()
    print(rows, end="")
    if "--write" in sys.argv[1:]:
        PAGE.write_text(put(put(PAGE.read_text(), "example", example()), "points", rows))


if __name__ == "__main__":
    main()

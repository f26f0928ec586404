"""Records histories of locks from clients in several languages, on real servers and under faults, and has them judged.

The histories of a set have one kind, one server and the same recorders (see recorders.py and conductor.py), and meet the same
faults (faults.py).  Then judge/ looks for an order that explains each of them, and for updates that were lost under a lock.
Prints a line for each set.

Fails if a history is refused; it is kept in $SNIB_BUILD/logs/histories.  Fails as well if a fault or a kind of loss never
occurred, even in a few sets more, or if the judge accepts what was recorded on two servers that know nothing of each other.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import ctypes
import json
import multiprocessing
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "topology"), str(HERE.parent / "interop")]

import faults  # noqa: E402
import snib  # noqa: E402
from conductor import Conductor, now_ns  # noqa: E402
from node import Node  # noqa: E402
from proxy import Proxy  # noqa: E402
from queues import Sampler  # noqa: E402
from recorders import BUILD, Process  # noqa: E402

KINDS = ("mutex", "fenced", "rw", "permits", "fair")
EACH = 10  # histories of a set
PERMITS = 3
LEASE_MS = 500
PLAN = {"workers": 2, "lease_ms": LEASE_MS, "fixed_ms": 400, "recheck_ms": 300, "patience_ms": 2000}
# What must be refused, and why: histories on two servers, where all clients but those in the first language use the second;
# and fair locks that the clients in the last language take as a mutex, whatever the queue.
CONTROLS = {
    "split": ["not linearizable", "an update is lost"],
    "barge": ["not linearizable"],
}
REFUSING = ("mutex", "fenced", "permits")  # the kinds whose refusals are judged
CALM = 0.15  # of the operations: before the first fault, when a refusal must be true
FAULTY = 0.85
QUIET_S = 600
CONTROL_SETS = 5  # of one control, at most
MORE_SETS = 4  # of a kind, at most, while something has never occurred
SPARE = 50  # operations of processes that are killed, which nobody writes down


class Set:
    """Histories that are recorded together."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.folder, self.plan, self.kind = folder, plan, plan.kind
        self.chance = random.Random(plan.seed)
        names = [f"{plan.kind}{i}" for i in range(plan.histories)]
        self.conductor = Conductor(folder, plan.kind, names, plan.operations + SPARE, plan.seed)
        number = PERMITS if plan.kind == "permits" else 0
        for name in names:
            self.conductor.note("plan", now_ns(), name, plan.kind, number, LEASE_MS)
        # What is written before the answer survives the process; only a machine that dies needs the disk.
        options = ["appendonly yes", "appendfsync no"]
        self.nodes = [
            Node(folder, name, 0, options=options)
            for name in ["server", *(["other"] if plan.control == "split" else [])]
        ]
        self.node = self.nodes[0]
        self.processes: dict[str, Process] = {}
        self.proxies: dict[str, Proxy] = {}
        self.met: collections.Counter[str] = collections.Counter()

    async def start(self, language: str) -> None:
        """A new process in a language."""
        me = f"{language}{sum(p.language == language for p in self.processes.values())}"
        node = self.nodes[0 if language == self.plan.languages[0] else -1]
        proxy = self.proxies[me] = Proxy(str(node.socket))
        url = f"redis://127.0.0.1:{await proxy.listen()}"
        names = ",".join(self.conductor.names)
        barges = self.plan.control == "barge" and language == self.plan.languages[-1]
        kind = "mutex" if barges else self.kind
        words = {**PLAN, "kind": kind, "names": names, "conductor": self.port}
        self.processes[me] = Process(me, self.folder, url, words)

    async def joined(self) -> None:
        """Until every thread of the process that was started last takes part."""
        await self.conductor.joined(int(PLAN["workers"]) * len(self.conductor.names))

    async def record(self) -> None:
        try:
            for node in self.nodes:
                node.start()
                if self.kind == "permits":
                    with snib.connect(f"unix://{node.socket}") as client:
                        for name in self.conductor.names:
                            client.permits(name).init(PERMITS)
            self.port = await self.conductor.listen()
            for language in self.plan.languages:
                await self.start(language)
            await self._watched(self._faults())
            killed = [me for me, process in self.processes.items() if process.killed]
            self.conductor.note("over", now_ns(), *(killed or ["-"]))
        finally:
            for process in self.processes.values():
                process.kill()
            for proxy in self.proxies.values():
                proxy.end()
            for node in self.nodes:
                node.end()

    async def _watched(self, work: Coroutine[Any, Any, None]) -> None:
        names = list(self.conductor.names)
        sampler = Sampler(self.folder, self.node.socket, names) if self.kind == "fair" else None
        if sampler and self.plan.control == "barge":
            self.conductor.barger = self.plan.languages[-1]
            self.conductor.waited_for = lambda name: sampler.waiting.get(name, False)
        tasks = [asyncio.ensure_future(work), asyncio.ensure_future(self._watch())]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            if sampler:
                await sampler.end()

    async def _watch(self) -> None:
        """Until all recorders have ended; fails if one failed, or if nothing is heard of them any more."""
        while True:
            running = [p for p in self.processes.values() if p.process.poll() is None]
            for process in self.processes.values():
                assert not process.failure(), process.failure()
            if not running and all(name.over for name in self.conductor.names.values()):
                return
            quiet = time.monotonic() - self.conductor.last_heard
            assert quiet < QUIET_S, f"nothing was heard of the recorders for {quiet:.0f} s"
            await asyncio.sleep(0.05)

    async def _faults(self) -> None:
        for _ in self.plan.languages:
            await self.joined()
        plan = list(self.plan.faults())
        self.chance.shuffle(plan)
        if plan:
            self.conductor.allow(CALM)
            await self.conductor.reached(CALM)
        self.conductor.alone = False
        if self.plan.control == "split":
            self.conductor.crowd = 1 + (PERMITS if self.kind == "permits" else 1)
        for i, (fault, language) in enumerate(plan):
            begin, end = (CALM + (FAULTY - CALM) * j / len(plan) for j in (i, i + 1))
            self.conductor.allow(begin)
            await self.conductor.reached(begin)
            self.conductor.allow(end)
            from_ns = now_ns()
            hold = await faults.ALL[fault](self, language)
            self.conductor.free = None
            if hold:
                self.met[f"{fault} {language}".strip()] += 1
                self.conductor.note("fault", now_ns(), from_ns, fault, hold.name.name, hold.id)
        self.conductor.allow(1.0)


@dataclass
class Plan:
    """What a set is to be."""

    kind: str
    histories: int
    operations: int
    languages: list[str]
    seed: str
    control: str = ""  # what the judge must refuse: one of CONTROLS

    @property
    def words(self) -> list[str]:
        """What the judge must say of a control."""
        return CONTROLS[self.control][: 1 if self.kind in ("fenced", "permits") else 2]

    def faults(self) -> Iterator[tuple[str, str]]:
        """The faults, each with the language of the process that they meet."""
        if self.control:
            return
        for language in self.languages:
            for fault in ("stop", "cut", "silence", "chop", "chop"):
                yield fault, language
            if self.kind != "permits":  # whose number would be gone
                yield "delete", language
            if language != "java":  # whose next process would be the most expensive part of all
                yield "kill", language
        for fault in ("clients", "clients", "restart", "restart", "freeze"):
            yield fault, ""
        if self.kind not in ("permits", "fenced"):  # whose tokens would begin again
            yield "wipe", ""


@dataclass
class Result:
    """What became of a set."""

    plan: Plan
    refused: int
    verdict: str  # the judge's words
    counts: dict[str, Any]
    met: dict[str, int]
    seconds: float
    kept: str = ""
    missing: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        spoken, lost = (
            ", ".join(f"{word} {n}" for word, n in sorted(self.counts[what].items()))
            for what in ("operations", "lost")
        )
        return (
            f"{self.plan.kind:8}{self.counts['histories']} histories, {self.operations} operations ({spoken});"
            f" lost {sum(self.counts['lost'].values())} ({lost}), died {self.counts['died']},"
            f" keys deleted {self.counts['deleted']}, unknown {self.counts['unknown']}; judged: refusals"
            f" {self.counts['refusals']}, updates {self.counts['updates']}, stale writes {self.counts['stale']},"
            f" places {self.counts['places']}; {f'REFUSED {self.refused}' if self.refused else 'accepted'}"
            f" ({self.seconds:.0f} s)"
        )

    @property
    def operations(self) -> int:
        return sum(self.counts["operations"].values())


def record(plan: Plan) -> Result:
    """Record a set and have it judged."""
    with tempfile.TemporaryDirectory(prefix="snib-histories-") as name:
        folder, begin = Path(name), time.monotonic()
        made = Set(folder, plan)
        try:
            asyncio.run(made.record())
        except BaseException:
            print(f"not ended: {plan}; kept in {keep(folder, plan, '')}", flush=True)
            raise
        command = [str(BUILD / "histories/judge"), "-html", name, "-counts", f"{name}/counts", name]
        judged = subprocess.run(command, capture_output=True, text=True)
        assert judged.returncode in (0, 1), judged.stderr
        counts = json.loads((folder / "counts").read_text())
        refused = sum(line.startswith("REFUSED") for line in judged.stdout.splitlines())
        result = Result(plan, refused, judged.stdout, counts, dict(made.met), time.monotonic() - begin)
        if refused and not plan.control:
            result.kept = str(keep(folder, plan, judged.stdout))
        return result


def record_until_refused(plan: Plan) -> Result:
    """Record a set.  A control is recorded anew until it is refused as it must be: on a machine that is slow just then,
    few clients are seen to be where the judge can tell."""
    for number in range(CONTROL_SETS if plan.control else 1):
        result = record(replace(plan, seed=f"{plan.seed} {number}" if number else plan.seed))
        if not plan.control or not list(told_apart(result)):
            break
        print(f"{plan.kind}: not refused, set {number + 1} of the control {plan.control}", flush=True)
    return result


def keep(folder: Path, plan: Plan, verdict: str) -> Path:
    kept = BUILD / "logs/histories" / f"{plan.kind}-{plan.seed.replace(' ', '-')}"
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(folder, kept)
    (kept / "verdict").write_text(verdict)
    return kept


def never(results: list[Result]) -> Iterator[str]:
    """What should have occurred in the sets of a kind, and did not."""
    kind, languages = results[0].plan.kind, results[0].plan.languages

    def count(what: str, *words: str) -> int:
        return sum(sum(r.counts[what].get(w, 0) for w in words) if words else r.counts[what] for r in results)

    for fault, language in dict.fromkeys(results[0].plan.faults()):
        if not any(r.met.get(f"{fault} {language}".strip()) for r in results):
            yield f"the fault {fault} {language}".strip()
    for language in languages:
        if not count("operations", language):
            yield f"an operation in {language}"
    for reason in ("expired", "unreachable", *(["gone"] if "java" in languages else [])):
        if not count("lost", reason):
            yield f"a loss: {reason}"
    if not count("died"):
        yield "the death of a holder"
    for what, kinds in {"updates": ("mutex", "fenced", "rw", "fair"), "stale": ("fenced",), "places": ("fair",)}.items():
        if kind in kinds and not count(what):
            yield what
    for r in results:
        if r.operations < r.plan.operations * r.plan.histories:
            yield f"as many operations as planned ({r.operations})"


def told_apart(result: Result) -> Iterator[str]:
    """What the judge should have found in a control, and did not."""
    enough = 1 if result.plan.control == "barge" else result.plan.histories
    if result.refused < enough:
        yield f"{result.plan.histories - result.refused} histories were accepted: {result.plan.control}"
    for word in result.plan.words:
        if word not in result.verdict:
            yield f'nothing was refused as "{word}": {result.plan.control}'


def missing(results: list[Result]) -> Iterator[tuple[str, str]]:
    """What never occurred, with the kind whose sets should have had it."""
    own = [r for r in results if not r.plan.control]
    judged = [r for r in own if r.plan.kind in REFUSING]
    if judged and not any(r.counts["refusals"] for r in judged):
        yield judged[-1].plan.kind, "a refusal that could be judged"
    for kind in dict.fromkeys(r.plan.kind for r in own):
        for text in never([r for r in own if r.plan.kind == kind]):
            yield kind, text


def more_sets(results: list[Result]) -> Iterator[Result]:
    """On a machine that is slow just then, a fault may meet nobody, and every refusal is in doubt."""
    for number in range(MORE_SETS):
        kinds = {kind: text for kind, text in missing(results)}
        if not kinds or any(r.refused for r in results if not r.plan.control):
            return
        for kind, text in kinds.items():
            print(f"{kind}: one set more, for this never occurred: {text}", flush=True)
            plan = next(r.plan for r in results if r.plan.kind == kind and not r.plan.control)
            result = record(replace(plan, seed=f"{plan.seed} more {number}"))
            results.append(result)
            yield result


def report(results: list[Result]) -> list[str]:
    """What is wrong with all of them."""
    wrong = []
    for result in results:
        if result.plan.control:
            wrong += [f"{result.plan.kind}: {text}" for text in told_apart(result)]
        elif result.refused:
            wrong.append(f"{result.plan.kind}: {result.refused} histories were refused, kept in {result.kept}")
    return wrong + [f"{kind}: this never occurred: {text}" for kind, text in missing(results)]


def show(result: Result) -> None:
    if not result.plan.control:
        print(result, flush=True)
        print(result.verdict if result.refused else "", end="", flush=True)


def die_with_parent() -> None:
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--histories", type=int, default=50)
    parser.add_argument("--operations", type=int, default=1000, help="of each history")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--languages", default="c,python,go,java")
    parser.add_argument("--seed", default=str(time.time_ns() // 1000000), help="of what is left to chance")
    parser.add_argument("--jobs", type=int, default=2, help="sets at a time")
    given = parser.parse_args()
    kinds, languages = given.kinds.split(","), given.languages.split(",")
    plans = [
        Plan(kinds[i % len(kinds)], EACH, given.operations, languages, f"{given.seed} {i}")
        for i in range(-(-given.histories // EACH))
    ]
    snibs = [language for language in languages if language != "java"]
    plans += [Plan(kind, 2, 200, snibs, f"{given.seed} split", "split") for kind in kinds]
    if "fair" in kinds:
        plans.append(Plan("fair", 4, 600, snibs, f"{given.seed} barge", "barge"))
    results: list[Result] = []
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(given.jobs, fresh, die_with_parent) as pool:
        for result in pool.map(record_until_refused, plans):
            results.append(result)
            show(result)
    for result in more_sets(results):
        show(result)
    wrong = report(results)
    for text in wrong:
        print("WRONG:", text)
    good = [r for r in results if not r.plan.control]
    print(
        f"{sum(r.counts['histories'] for r in good)} histories, {sum(r.operations for r in good)} operations in"
        f" {', '.join(languages)}, {sum(sum(r.counts['lost'].values()) for r in good)} losses:"
        f" {'not as they should be' if wrong else 'all in order'}"
    )
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())

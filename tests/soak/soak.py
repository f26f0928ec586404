"""A soak: many processes in C, Python, Go and Java (Redisson) contend for locks, for hours, while servers, connections and
processes fail and versions of the library change.  Nothing may be lost, and nothing may leak.

    soak.py --hours 12                      64 processes in eight worlds; see worlds.py
    soak.py --seconds 60 --processes 7 --worlds single:mutex,sentinel:fenced --old none

Shows its counters once a second on a terminal, otherwise a line a minute.  Ctrl-C ends it in order.  The report is in
$SNIB_BUILD/logs/soak: report.md, report.json, the logs of every window that was refused.  Exit code 1: something was wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import shutil
import signal
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / folder) for folder in ("topology", "interop", "histories")]

import arguments  # noqa: E402
import flat  # noqa: E402
import older  # noqa: E402
import recorders  # noqa: E402
import view  # noqa: E402
import worlds  # noqa: E402

THREADS = 40  # for what blocks: a world has one such thing at a time


class Soak:
    def __init__(self, given: argparse.Namespace, folder: Path, kept: Path) -> None:
        self.given, self.kept = given, kept
        self.began = time.monotonic()
        self.seconds = 0.0  # since all processes took part
        self.interrupted = False
        self.over = asyncio.Event()
        languages = given.languages.split(",")
        self.worlds = []
        for world, members in worlds.deal(given.worlds.split(","), given.processes, languages):
            deployment, kind = world.split(":")
            plan = worlds.Plan(deployment, kind, members, given.seed)
            plan.gap_s, plan.think_s, plan.plant = given.gap, given.think_ms / 1000, given.plant
            plan.window_s, plan.old = given.window, bool(given.old)
            self.worlds.append(worlds.make(plan, folder / plan.title, kept))

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(THREADS))
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.interrupt)
        tasks = [asyncio.ensure_future(world.run()) for world in self.worlds]
        watching = asyncio.ensure_future(self._watch())
        try:
            await asyncio.gather(*(world.ready.wait() for world in self.worlds))
            self.began = time.monotonic()
            given = self.given
            print(f"{given.processes} processes in {len(self.worlds)} worlds take part; seed {given.seed}", flush=True)
            await self._last(tasks)
            self.seconds = time.monotonic() - self.began
            for world in self.worlds:
                world.ending.set()
            await asyncio.gather(*tasks)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        for world in self.worlds:
            world.wrong += [f"{world.plan.title}: {text}" for curve in world.curves for text in curve.leaks()]

    def interrupt(self) -> None:
        """In order for the first time; the second time at once."""
        asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
        self.interrupted = True
        self.over.set()

    async def _last(self, worlds: list[asyncio.Task[None]]) -> None:
        """Until the time is over, or something planted was found, or every world has come to a bad end."""

        async def ended() -> None:
            await asyncio.wait(worlds)
            self.over.set()

        waiting = asyncio.ensure_future(ended())
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.over.wait(), self.given.seconds)
        waiting.cancel()

    async def _watch(self) -> None:
        """Look at every process, and show the counters."""
        screen = view.Screen(self)
        look = 0.0
        while True:
            if time.monotonic() >= look:
                look = time.monotonic() + self.given.sample
                self._look()
            screen.show()
            if any(world.wrong for world in self.worlds) and self.given.plant:
                self.over.set()
            await asyncio.sleep(1)

    def _look(self) -> None:
        for world in self.worlds:
            for member in list(world.processes.values()):
                if seen := flat.look(member.process.pid):
                    member.curve.add(time.monotonic(), seen)
                    if self.given.plant == "leak" and member.curve.leaks():
                        self.over.set()

    @property
    def wrong(self) -> list[str]:
        return [text for world in self.worlds for text in world.wrong]


def prepare(given: argparse.Namespace) -> None:
    """The commands of the recorders: their own sessions, so that Ctrl-C reaches only this process.

    Without an older version processes are replaced by those of the same; but not if one was asked for."""
    build = recorders.BUILD / "soak"
    # With a small heap, because it uses what it may.
    changes = {str(recorders.BUILD / "histories/java"): str(build / "java"), "-Xmx512m": "-Xmx160m"}
    java = recorders.PROGRAMS["java"]
    for old, new in changes.items():
        java = [word.replace(old, new) for word in java]
    programs = {
        "c": [str(build / "recorder")],
        "python": recorders.PROGRAMS["python"],
        "python.leaky": [sys.executable, str(HERE / "leaky.py")],
        "go": [str(build / "recorder-go")],
        "java": java,
    }
    asked, given.old = given.old, ""
    ref = asked or arguments.OLD
    if ref != "none":
        print(f"building the older version, {ref}, unless it is there", flush=True)
        try:
            programs |= older.build(ref, recorders.BUILD / "soak-old")
            given.old = older.commit_of(ref)[:12]
        except RuntimeError as error:
            if asked:
                sys.exit(f"soak: no old version: {error}")
            print(f"no old version: {error}", flush=True)
    else:
        print("no old version: processes are replaced by new ones of the same version", flush=True)
    recorders.PROGRAMS.update({language: ["setsid", *command] for language, command in programs.items()})


def main() -> int:
    given = arguments.parse(__doc__)
    prepare(given)
    shutil.rmtree(given.report, ignore_errors=True)
    given.report.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="snib-soak-") as name:

        async def made() -> Soak:
            soak = Soak(given, Path(name), given.report)
            await soak.run()
            return soak

        soak = asyncio.run(made())
    view.report(soak)
    print((given.report / "report.md").read_text())
    return bool(soak.wrong)


if __name__ == "__main__":
    sys.exit(main())

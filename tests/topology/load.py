"""A load on a few locks: processes in C, Python and Go that take and release them in a loop.

    with Load(folder, url, ["a", "b"]) as load:
        ...                                # break something
        history = load.end()

or by hand: python load.py redis://127.0.0.1:6379 --seconds 10

Each worker program is started as `program URL LOG word=value...`, runs until its standard input ends, and writes the
events of history.py to its log.  The words:

    me=c0            its name        names=a,b        the locks       threads=4     as many workers
    kind=fenced      mutex, fair     wait_ms=10000    of each call    hold_ms=20    at most, at random
    think_ms=5       between calls   lease_ms=        the client's    patience_ms=  the client's
    check_ms=1       between checks of a hold
"""

from __future__ import annotations

import argparse
import functools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from history import History
from node import PATIENCE, eventually, popen

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = Path(os.environ.get("SNIB_BUILD", ROOT / "build"))


def now_ns() -> int:
    """The clock of the workers' logs."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


@functools.cache
def program(language: str) -> list[str]:
    """The command of a worker; the Go worker is built first, once in each process of the tests."""
    if language == "c":
        path = BUILD / "core" / "tests" / "topology_worker"
        assert path.exists(), f"{path} is not there; build the core with its tests"
        return [str(path)]
    if language == "python":
        return [sys.executable, str(HERE / "worker.py")]
    path = BUILD / "topology-worker-go"
    words = ["go", "build", "-C", str(HERE / "go"), "-o", str(path), "."]
    built = subprocess.run(words, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return [str(path)]


def languages() -> list[str]:
    """The languages in which a worker is available here."""
    return ["c", "python", *(["go"] if shutil.which("go") else [])]


class Load:
    """Workers, which start immediately and run until end().

    counts   processes per language; by default one of each available language
    within   words to put before the commands, to start them in a network: a place's `enter`
    plan     more words
    """

    def __init__(
        self,
        folder: Path,
        url: str,
        names: Sequence[str],
        *,
        counts: dict[str, int] | None = None,
        within: Sequence[str] = (),
        **plan: object,
    ) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True, parents=True)
        self.names = list(names)
        self.processes: dict[str, subprocess.Popen[Any]] = {}
        self.logs: dict[str, Path] = {}
        words = [f"names={','.join(names)}", *(f"{key}={value}" for key, value in plan.items())]
        try:
            for language, count in (counts or dict.fromkeys(languages(), 1)).items():
                command = program(language)
                for i in range(count):
                    self._start(f"{language}{i}", [*within, *command], url, words)
            eventually(self._works, nap=0.02)
        except BaseException:
            self.kill()
            raise

    def _start(self, me: str, command: Sequence[str], url: str, words: Sequence[str]) -> None:
        self.logs[me] = self.folder / f"{me}.log"
        with open(self.folder / f"{me}.errors", "wb") as errors:
            self.processes[me] = popen(
                [*command, url, str(self.logs[me]), f"me={me}", *words],
                stdin=subprocess.PIPE,
                stdout=errors,
                stderr=errors,
            )

    def _works(self) -> bool:
        """Whether every process has had an answer to a call, or has ended and said why."""
        for me, process in self.processes.items():
            errors = (self.folder / f"{me}.errors").read_text()
            assert process.poll() is None, f"{me} has ended: {errors}"
            log = self.logs[me].read_text() if self.logs[me].exists() else ""
            if "\ngrant " not in log and "\nfail " not in log:
                return False
        return True

    def errors(self) -> str:
        """What the programs wrote to stderr."""
        texts = ((me, (self.folder / f"{me}.errors").read_text()) for me in self.processes)
        return "".join(f"{me}: {text}" for me, text in texts if text)

    def so_far(self) -> History:
        return History.read(path for path in self.logs.values() if path.exists())

    def await_grant(self, since: int, names: Sequence[str] = (), seconds: float = PATIENCE) -> int:
        """Wait until one of the names is granted again; returns how long after `since` that was."""
        eventually(lambda: self.so_far().first_grant(since, names) is not None, seconds)
        waited = self.so_far().first_grant(since, names)
        assert waited is not None
        return waited

    def await_back(self, since: int, seconds: float = PATIENCE) -> None:
        """Wait until every worker has had a lock since then; fail with the ones that have not."""
        start = time.monotonic()
        while missing := self.so_far().missing(since):
            waited = time.monotonic() - start
            assert waited < seconds, f"not back after {seconds} s: {', '.join(missing)}"
            time.sleep(min(0.2, 0.02 + waited / 10))  # all that was ever logged is read each time

    def end(self, seconds: float = PATIENCE) -> History:
        """Ask the workers to end, wait for them, and read their logs.  Workers that do not end are killed, and are
        missing from the history's `ended`."""
        for process in self.processes.values():
            if process.stdin and not process.stdin.closed:
                process.stdin.close()
        end = time.monotonic() + seconds
        for process in self.processes.values():
            try:
                process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        return self.so_far()

    def kill(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()

    def __enter__(self) -> Load:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


class Tail:
    """Follows the logs of a load: which workers have started, and when each last had a lock, and each lock was had."""

    def __init__(self, load: Load) -> None:
        self._logs = load.logs
        self._read = dict.fromkeys(load.logs, 0)
        self.started: set[str] = set()
        self.granted: dict[str, int] = {}
        self.taken: dict[str, int] = {}

    def read(self) -> None:
        for me, path in self._logs.items():
            with open(path, "rb") as log:
                log.seek(self._read[me])
                text = log.read()
            text = text[: text.rfind(b"\n") + 1]
            self._read[me] += len(text)
            for line in text.decode().splitlines():
                words = line.split()
                if words[0] == "start":
                    self.started.add(words[2])
                elif words[0] == "grant":
                    self.granted[words[2]] = self.taken[words[3]] = int(words[1])


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Load a deployment, and tell what its workers saw."
    )
    parser.add_argument("url")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--names", type=int, default=3)
    parser.add_argument("--counts", default="", help="for example c=2,python=1,go=1")
    parser.add_argument("words", nargs="*", help="word=value for the workers")
    given = parser.parse_args()
    counts = {k: int(v) for k, v in (w.split("=") for w in given.counts.split(",") if w)}
    plan = dict(word.split("=", 1) for word in given.words)
    names = [f"load{i}" for i in range(given.names)]
    with tempfile.TemporaryDirectory(prefix="snib-load-") as folder:
        with Load(Path(folder), given.url, names, counts=counts or None, **plan) as load:
            time.sleep(given.seconds)
            print(load.end().summary())


if __name__ == "__main__":
    main()

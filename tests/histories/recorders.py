"""The recorders: a process for each language, whose threads take the locks of a set of histories, and write down what
they were told.

    program URL LOG word=value...

    me=c0           its name: the language and a number        kind=mutex      fenced, rw, permits, fair
    names=a,b       the locks                                  workers=2       threads for each name
    conductor=4711  a port; see conductor.py for what is said there
    lease_ms=500    of renewed holds, fixed_ms=400 of others   recheck_ms, patience_ms: the client's

A thread asks the conductor for a turn and takes the lock.  Under it, it reads a number from the conductor and writes the
next one, or reads it again if it only shares the lock; before, between and afterwards it checks that its hold is valid.
Then it releases the lock.  judge/log.go has the lines of the log, judge/counter.go what is expected of the numbers.

The clock of the logs is CLOCK_MONOTONIC, which the processes of a machine share, Java's among them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from node import eventually, popen  # of tests/topology
from versions import VERSIONS  # of tests/interop

HERE = Path(__file__).resolve().parent
BUILD = Path(os.environ.get("SNIB_BUILD", HERE.parents[1] / "build"))
PROGRAMS = {
    "c": [str(BUILD / "histories/recorder")],
    "python": [sys.executable, str(HERE / "recorder.py")],
    "go": [str(BUILD / "histories/recorder-go")],
    "java": [
        # It does not run for long: the second compiler would not pay.
        *("java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"),
        "-cp",
        f"{BUILD / 'histories/java'}:{BUILD / 'interop' / VERSIONS[0] / 'dependency'}/*",
        "Recorder",
    ],
}


class Process:
    """A recorder."""

    def __init__(self, me: str, folder: Path, url: str, plan: dict[str, object]) -> None:
        self.me, self.language = me, me.rstrip("0123456789")
        self.errors = folder / f"{me}.errors"
        self.killed = False
        words = [f"{word}={value}" for word, value in {"me": me, **plan}.items()]
        with open(self.errors, "wb") as errors:
            self.process: subprocess.Popen[Any] = popen(
                [*PROGRAMS[self.language], url, str(folder / f"{me}.log"), *words],
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
            )

    def state(self) -> str:
        return Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0]

    def stop(self) -> None:
        self.process.send_signal(signal.SIGSTOP)
        eventually(lambda: self.state() == "T")

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.killed = True
        self.process.kill()
        self.process.wait()

    def failure(self) -> str:
        """What went wrong with a process that has ended by itself."""
        code = self.process.poll()
        if code is None or code == 0 or self.killed:
            return ""
        return f"{self.me} ended with {code}: {self.errors.read_text(errors='replace')[-2000:]}"

#!/usr/bin/env python3
"""Run a command on a machine that seems to stall now and then.

    freezing.py [--least MS] [--most MS] [--every S] COMMAND...

COMMAND and all its processes are frozen for --least to --most milliseconds (200 to 900), on average every --every
seconds (1.5) of running time, as if the host had taken the processors away.  Clocks continue.  A test that fails only
under it assumes a speed.  It needs the freezer of Linux control groups, and the right to create a group.
"""

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

V1 = Path("/sys/fs/cgroup/freezer")
V2 = Path("/sys/fs/cgroup")


class Freezer:
    """A separate control group, version 1 or 2."""

    def __init__(self, path: Path) -> None:
        self.v1 = V1.is_dir()
        self.path = path

    @classmethod
    def new(cls) -> "Freezer":
        made = cls((V1 if V1.is_dir() else V2) / f"freezing-{os.getpid()}")
        made.path.mkdir()
        return made

    @classmethod
    def of(cls, pid: int) -> "Freezer | None":
        """The one that a process is in.  What is frozen there cannot be killed, with version 1."""
        try:
            found = re.search(r"/(freezing-\d+)$", Path(f"/proc/{pid}/cgroup").read_text(), re.MULTILINE)
        except (FileNotFoundError, ProcessLookupError):
            return None
        return cls((V1 if V1.is_dir() else V2) / found[1]) if found else None

    def join(self) -> None:
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def freeze(self, still: bool) -> None:
        if self.v1:
            (self.path / "freezer.state").write_text("FROZEN" if still else "THAWED")
        else:
            (self.path / "cgroup.freeze").write_text("1" if still else "0")

    def processes(self) -> list[int]:
        return [int(pid) for pid in (self.path / "cgroup.procs").read_text().split()]

    def close(self) -> None:
        self.freeze(False)
        for _ in range(100):
            for pid in self.processes():
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            try:
                self.path.rmdir()
                return
            except OSError:
                time.sleep(0.05)


ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def pause(seconds: float) -> None:
    """Or end now, if that is told.  The exception of a handler could be lost, for example where a file is closed."""
    if told := signal.sigtimedwait(ENDS, seconds):
        sys.exit(128 + told.si_signo)  # what is frozen goes on before it is killed


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--least", type=float, default=200, metavar="MS")
    parser.add_argument("--most", type=float, default=900, metavar="MS")
    parser.add_argument("--every", type=float, default=1.5, metavar="S")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND")
    args = parser.parse_args()
    try:
        freezer = Freezer.new()
    except OSError as error:
        print(f"freezing: no freezer: {error}", file=sys.stderr)
        return 77
    times = 0

    def begin() -> None:
        freezer.join()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDS)

    signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)
    try:
        for number in ENDS:  # an ignored one would not be told
            signal.signal(number, signal.SIG_DFL)
        process = subprocess.Popen(args.command, preexec_fn=begin)
        while process.poll() is None:
            pause(random.uniform(0.05, 2 * args.every))
            freezer.freeze(True)
            pause(random.uniform(args.least, args.most) / 1000)
            freezer.freeze(False)
            times += 1
    finally:
        freezer.close()
    print(f"stood still {times} times", file=sys.stderr)
    return process.returncode


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Run a command with a time limit.

    limited.py [--used FILE] SECONDS COMMAND...

After SECONDS it prints what each process started by COMMAND is doing, with thread stacks if gdb is available, kills
them all and exits with 124.  They are also killed when this program is terminated; and processes that COMMAND leaves
running are listed and killed after its end, if they do not end soon by themselves.  The processor time that all of them
have used goes into FILE, in seconds.
"""

import contextlib
import ctypes
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from freezing import Freezer

SHOWN = 40  # most processes to show
GRACE_S = 2.0  # for what COMMAND leaves running


PR_SET_CHILD_SUBREAPER = 36


def descendants() -> list[int]:
    """All descendants of this process.  None escapes: an orphan becomes a child of this process."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if fields[0] != "Z":
                parents[int(entry.name)] = int(fields[1])
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found - {os.getpid()})


def describe(pid: int) -> str:
    """The process's command, and where each of its threads waits."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip()
        threads = []
        for task in sorted(Path(f"/proc/{pid}/task").iterdir()):
            state = (task / "stat").read_text().rpartition(")")[2].split()[0]
            threads.append(f"{state}:{(task / 'wchan').read_text() or '-'}")
    except (FileNotFoundError, ProcessLookupError):
        return f"{pid} has ended"
    return f"{pid}  {command[:200]}\n    threads: {' '.join(threads)}"


def stacks(pid: int) -> str:
    gdb = ["gdb", "-p", str(pid), "-batch", "-nx", "-ex", "set pagination off", "-ex", "thread apply all bt 30"]
    try:
        done = subprocess.run(gdb, capture_output=True, text=True, errors="replace", timeout=120)
    except subprocess.TimeoutExpired:
        return "    gdb did not answer"
    lines = [line for line in done.stdout.splitlines() if line.startswith(("#", "Thread "))]
    return "\n".join("    " + line[:180] for line in lines)


def report() -> None:
    for pid in descendants()[:SHOWN]:
        print(describe(pid), flush=True)
        name = Path(f"/proc/{pid}/comm")
        server = name.exists() and name.read_text().startswith(("redis-", "valkey-", "postgres", "java"))
        if shutil.which("gdb") and not server:
            print(stacks(pid), flush=True)


def reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        pass


def settle() -> None:
    """Some end by themselves when the command has ended."""
    until = time.monotonic() + GRACE_S
    while descendants() and time.monotonic() < until:
        reap()
        time.sleep(0.02)


def end() -> None:
    """Kill all until none is left: one may start another meanwhile, or freeze others."""
    groups = {}
    while left := descendants():
        for pid in left:
            if group := Freezer.of(pid):
                groups[group.path] = group
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for group in groups.values():
            with contextlib.suppress(OSError):  # it is gone
                group.freeze(False)
        time.sleep(0.01)
    reap()
    for path in groups:
        with contextlib.suppress(OSError):
            path.rmdir()


class Overdue(Exception):
    pass


def wait(child: int) -> int:
    """Reap all processes, like init, until the child ends; returns its exit code."""
    while True:
        pid, status = os.wait()
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def used() -> float:
    """Seconds of processor time of all descendants that have ended and were waited for, by whomever."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> int:
    arguments = sys.argv[1:]
    file = None
    if arguments[:1] == ["--used"]:
        file = Path(arguments[1])
        del arguments[:2]
    if len(arguments) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    limit = float(arguments[0])
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def told(number: int, _frame: object) -> None:
        end()
        sys.exit(128 + number)

    def overdue(_number: int, _frame: object) -> None:
        raise Overdue

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, told)
    signal.signal(signal.SIGALRM, overdue)
    child = os.posix_spawnp(arguments[1], arguments[1:], os.environ, setsigdef=[signal.SIGPIPE])
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        code = wait(child)
        signal.setitimer(signal.ITIMER_REAL, 0)
        settle()
        for pid in descendants():
            print(f"left running: {describe(pid)}", flush=True)
    except Overdue:
        print(f"not ended after {limit:g} s; what was running:", flush=True)
        report()
        code = 124
    end()
    if file:
        file.write_text(f"{used():.1f}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Run conformance programs in every language and compare what they print; README.md says more."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from served import Served

HERE = Path(__file__).resolve().parent
CODES = HERE.parents[1] / "core/net/codes.def"
FACES = ("c", "threads", "asyncio", "go")
PYTHON = ("threads", "asyncio")
LIMIT = 300
# Concurrent runs: most of the time they wait for leases, which are long because a machine may stall.
AT_ONCE = 16


def servers_needed(program: Path) -> int:
    """A program with `server N` needs N servers, any other needs one."""
    return max([1, *map(int, re.findall(r"^server (\d+)", program.read_text(), re.M))])


@contextlib.contextmanager
def server() -> Iterator[str]:
    binary = (
        os.environ.get("SNIB_TEST_SERVER")
        or shutil.which("redis-server")
        or shutil.which("valkey-server")
    )
    if not binary:
        sys.exit("no server: set SNIB_TEST_SERVER or install redis-server or valkey-server")
    with tempfile.TemporaryDirectory(prefix="snib-test-") as folder:
        path = f"{folder}/s"
        arguments = [
            "--port",
            "0",
            "--unixsocket",
            path,
            "--save",
            "",
            "--appendonly",
            "no",
            "--dir",
            folder,
        ]
        process = subprocess.Popen([binary, *arguments], stdout=subprocess.DEVNULL)
        try:
            end = time.monotonic() + 60
            while socket.socket(socket.AF_UNIX).connect_ex(path) != 0:
                if process.poll() is not None or time.monotonic() > end:
                    sys.exit(f"{binary} does not start")
                time.sleep(0.005)
            yield path
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()


# Programs that are not run on memory servers, and what these do not have.
NOT_IN_MEMORY = {
    "family_rights": "users with rights (ACL)",
    "rights": "users with rights (ACL), passwords",
}
# What differs by nature: why a server that has gone is not reached.
UNREACHED = r"\(no memory server of this name accepts connections in this process; start one with [^;]*\(\)\)"

Run = Callable[[list[str], str], "subprocess.CompletedProcess[str]"]


def started(command: list[str]) -> Run:
    """How to run programs with an interpreter that is started for each."""
    return lambda arguments, _folder: subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=LIMIT
    )


def forked(served: Served, face: str) -> Run:
    """How to run programs with a Python interpreter."""
    return lambda arguments, folder: served.run([face, *arguments], folder, LIMIT)


def interpreters(build: Path, faces: list[str], served: Served | None) -> dict[str, Run]:
    go = build / "conform-go"
    if "go" in faces:
        subprocess.run(["go", "build", "-o", str(go.resolve()), "."], cwd=HERE / "go", check=True)
    found = shutil.which("conform", path=f"{build}:{build / 'tests'}")
    if "c" in faces and not found:
        sys.exit(f"{build} has no conform")
    every = {"c": started([found or ""]), "go": started([str(go), str(CODES)])}
    if served:
        every |= {face: forked(served, face) for face in PYTHON}
    return {face: every[face] for face in faces}


def log(run: Run, program: Path, memory: bool = False) -> str:
    with contextlib.ExitStack() as stack:
        if memory:
            paths = [f"memory://conform-{i}" for i in range(servers_needed(program))]
        else:
            paths = [stack.enter_context(server()) for _ in range(servers_needed(program))]
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="snib-test-"))
        try:
            done = run([str(program), *paths], folder)
        except subprocess.TimeoutExpired as late:
            return f"{(late.stdout or b'').decode()}no end within {LIMIT} s\n"
    # Remove the script's digest and line from its errors.
    printed = re.sub(r" script: ([0-9a-f]{40}, )?on @user_script:\d+\.", "", done.stdout)
    # Also remove the server's address, and wording that differs between versions.
    for number, path in enumerate(paths, 1):
        printed = printed.replace(path, f"server {number}")
    printed = re.sub(r"; the server said: .*", "; the server said so", printed)
    # Which of a quorum's servers an error names depends on their addresses.
    printed = re.sub(r"(such as: [^;]*)server \d", r"\1a server", printed)
    if memory:
        printed = re.sub(UNREACHED, "(No such file or directory)", printed)
    tail = f"exit code {done.returncode}\n{done.stderr}" if done.returncode else ""
    return printed + tail


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, required=True, help="folder with the conform program")
    parser.add_argument(
        "--only", default=",".join(FACES), help="interpreters, by comma: " + ",".join(FACES)
    )
    parser.add_argument(
        "--update", action="store_true", help="write the expected logs from the first interpreter"
    )
    parser.add_argument(
        "--memory", action="store_true", help="on memory servers, without the programs that need more"
    )
    parser.add_argument("programs", nargs="*", help="names without .snib; all if none is given")
    options = parser.parse_args()
    programs = [HERE / f"{name}.snib" for name in options.programs] or sorted(HERE.glob("*.snib"))
    faces = options.only.split(",")
    if options.memory and not options.programs:
        programs = [program for program in programs if program.stem not in NOT_IN_MEMORY]
    wrong = 0
    with contextlib.ExitStack() as stack:
        served = None
        if set(faces) & set(PYTHON):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="snib-test-"))
            served = Served(HERE / "conform.py", folder, *["memory"] * options.memory)
            stack.callback(served.end)
        run = interpreters(options.build, faces, served)
        pool = stack.enter_context(ThreadPoolExecutor(2 * AT_ONCE if options.memory else AT_ONCE))
        logs = {
            program: [pool.submit(log, face, program, options.memory) for face in run.values()]
            for program in programs
        }
    for program in programs:
        expected = program.with_suffix(".log")
        for face, got in zip(run, [each.result() for each in logs[program]], strict=True):
            if options.update and face == next(iter(run)):
                expected.write_text(got)
            want = expected.read_text() if expected.exists() else ""
            if got != want:
                wrong += 1
                names = f"{expected.name} expected", f"{face} printed"
                print(
                    "\n".join(
                        difflib.unified_diff(
                            want.splitlines(), got.splitlines(), *names, lineterm=""
                        )
                    )
                )
    print(f"{len(programs)} programs, {len(run)} interpreters, {wrong} logs differ")
    return 1 if wrong or not programs else 0


if __name__ == "__main__":
    sys.exit(main())

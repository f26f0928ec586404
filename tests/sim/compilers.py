#!/usr/bin/env python3
"""The same seeds leave the same traces whichever compiler made the simulators: gcc or clang.

    compilers.py [--build FOLDER] [--seeds N]

A trace is a hash over all that happens in a world.  Where two compilers differ, something is undefined, uninitialized or
depends on an address.
"""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = {"sim": 1, "sim_group": 10, "sim_topo": 5, "sim_walk": 1}  # of the seeds each gets one in so many
COMPILERS = ("gcc", "clang")


def make(compiler: str, build: Path) -> Path:
    folder = build / f"simulators-{compiler}"
    options = [f"-DCMAKE_C_COMPILER={compiler}", "-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DSNIB_CLI=OFF"]
    commands = [
        ["cmake", "-S", str(ROOT), "-B", str(folder), "-G", "Ninja", *options],
        ["cmake", "--build", str(folder), "--target", *PROGRAMS],
    ]
    for command in commands:
        done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode:
            sys.exit(f"{' '.join(command)}:\n{done.stdout[-5000:]}")
    return folder / "tests" / "sim"


def trace(program: Path, seeds: int) -> str:
    done = subprocess.run([program, "--seeds", f"1-{seeds}"], text=True, capture_output=True)
    found = re.search(r"^trace of seeds 1 to \d+: (\w+)$", done.stdout, re.M)
    if done.returncode or not found:
        sys.exit(f"{program} --seeds 1-{seeds}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return found[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", type=Path, default=Path(os.environ.get("SNIB_BUILD", ROOT / "build")))
    parser.add_argument("--seeds", type=int, default=2000)
    given = parser.parse_args()
    folders = [make(compiler, given.build.resolve()) for compiler in COMPILERS]
    differ = []
    for program, share in PROGRAMS.items():
        seeds = max(1, given.seeds // share)
        traces = [trace(folder / program, seeds) for folder in folders]
        print(f"{program}, {seeds} seeds: {', '.join(map(' '.join, zip(COMPILERS, traces)))}")
        if len(set(traces)) > 1:
            differ.append(program)
    print(f"compilers: {len(differ)} of {len(PROGRAMS)} simulators differ between {' and '.join(COMPILERS)}")
    return bool(differ)


if __name__ == "__main__":
    sys.exit(main())

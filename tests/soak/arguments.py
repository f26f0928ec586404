"""The arguments of a soak: the standard library is enough, so that ./dev reads them before it builds anything."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

BUILD = Path(os.environ.get("SNIB_BUILD", Path(__file__).resolve().parents[2] / "build"))
WORLDS = (
    "single:mutex,single:fenced,sentinel:fenced,cluster:fenced,single:rw,single:permits,single:fair,sentinel:mutex"
)
DEPLOYMENTS, KINDS = ("single", "sentinel", "cluster"), ("mutex", "fenced", "rw", "permits", "fair")
LANGUAGES = ("c", "python", "go", "java")
OLD = "HEAD~20"


def _worlds(text: str) -> str:
    for world in text.split(","):
        deployment, _, kind = world.partition(":")
        if deployment not in DEPLOYMENTS or kind not in KINDS:
            raise argparse.ArgumentTypeError(f"no world {world!r}: {'|'.join(DEPLOYMENTS)}:{'|'.join(KINDS)}")
    return text


def _languages(text: str) -> str:
    for language in text.split(","):
        if language not in LANGUAGES:
            raise argparse.ArgumentTypeError(f"no language {language!r}: {', '.join(LANGUAGES)}")
    return text


def parse(description: str | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("soak", description=description, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--hours", type=float, default=0)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--processes", type=int, default=64)
    parser.add_argument(
        "--worlds", type=_worlds, default=WORLDS, help="deployment:kind,...; the processes are dealt out to them"
    )
    parser.add_argument(
        "--languages", type=_languages, default=os.environ.get("SNIB_SOAK_LANGUAGES", ",".join(LANGUAGES))
    )
    parser.add_argument("--old", help=f"a commit with an older version of the library, or none; if there is one {OLD}")
    parser.add_argument("--gap", type=float, default=5.0, help="mean seconds between two faults of a world")
    parser.add_argument("--think-ms", type=int, default=1000, help="mean time between two turns of a thread")
    parser.add_argument("--window", type=float, default=60.0, help="seconds after which what was recorded is judged")
    parser.add_argument("--sample", type=float, default=0, help="seconds between two looks at the memory")
    parser.add_argument("--seed", default=str(time.time_ns() // 1000000), help="repeats the plan of the faults")
    parser.add_argument("--plant", default="", choices=["", "leak", "overlap"], help="what must be found")
    parser.add_argument("--report", type=Path, default=BUILD / "logs/soak")
    given = parser.parse_args()
    given.seconds = given.seconds or given.hours * 3600 or 60.0
    given.sample = given.sample or min(30.0, max(1.0, given.seconds / 100))
    return given


if __name__ == "__main__":
    parse("A soak of locks in several languages, while servers, connections and processes fail: see README.md.")

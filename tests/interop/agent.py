"""Snib in C, Python and Go, each behind a pipe: the interpreters of tests/conformance, fed line by line."""

from __future__ import annotations

import itertools
import os
import queue
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("SNIB_BUILD", ROOT / "build"))
CONFORMANCE = ROOT / "tests/conformance"
LANGUAGES = ("c", "python", "go")

# Longer than the interpreters' own patience, after which they say "stuck".
PATIENCE = 60.0
# A client that receives no message asks again only after this time, and leases are as long: a waiter that gets the lock
# sooner was notified.
SILENCE_MS = 60_000
RENEWED_MS = 9_000  # a lease that is renewed every three seconds, which leaves six to a busy machine
LIMIT_MS = 30_000  # when an interpreter's `await` gives up: far sooner


# Whether what is missing is a failure.
NEEDED = os.environ.get("SNIB_NEED_JAVA") == "1"


def command(language: str) -> list[str]:
    """The command of the interpreter for a language; without one the test fails, or is skipped."""
    if language == "python":
        return [sys.executable, str(CONFORMANCE / "conform.py"), "threads"]
    if language == "c":
        program = shutil.which("conform", path=f"{BUILD / 'core/tests'}")
        if program is None:
            pytest.fail(f"no C beside Redisson: {BUILD / 'core'} has no conform")
        return [program]
    program = shutil.which("conform-go", path=f"{BUILD / 'interop'}")
    if program is None:
        (pytest.fail if NEEDED or shutil.which("go") else pytest.skip)("no Go beside Redisson: see run.sh")
    return [program, str(ROOT / "core/net/codes.def")]


@dataclass
class Answer:
    """The output of an operation, and its time by time.monotonic()."""

    line: str
    text: str = ""
    at: float = 0.0
    ended: threading.Event = field(default_factory=threading.Event)

    def get(self) -> str:
        assert self.ended.wait(PATIENCE), f"no answer within {PATIENCE} s: {self.line}"
        return self.text


class Agent:
    """A Snib program with two clients: `slow`, which only messages wake, and `quick`, which renews often."""

    def __init__(self, language: str, url: str, socket: Path, log: Path) -> None:
        self.language = language
        self._names = itertools.count(1)
        self._asked: queue.Queue[Answer] = queue.Queue()
        with log.open("w") as errors:
            self.process = subprocess.Popen(
                [*command(language), "/dev/stdin", str(socket)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        threading.Thread(target=self._read, daemon=True).start()
        slow = f"client slow recheck={SILENCE_MS} lease={SILENCE_MS} patience=30000 url={url}"
        assert self(slow) == "ok"
        assert self(f"client quick recheck={SILENCE_MS} lease={RENEWED_MS} url={url}") == "ok"

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self._end(line.rstrip("\n").partition(" -> ")[2])
        while not self._asked.empty():
            self._end("the program ended")

    def _end(self, text: str) -> None:
        answer = self._asked.get()
        answer.text, answer.at = text, time.monotonic()
        answer.ended.set()

    def start(self, line: str) -> Answer:
        """Start an operation; the next one starts when it has ended."""
        assert self.process.stdin
        answer = Answer(f"{self.language}: {line}")
        self._asked.put(answer)
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return answer

    def __call__(self, line: str) -> str:
        return self.start(line).get()

    def fresh(self) -> Agent:
        """Forget all names: an interpreter has room for few."""
        self._names = itertools.count(1)
        return self

    def name(self) -> str:
        return f"x{next(self._names)}"

    def lock(self, kind: str, name: str, client: str = "slow", **options: Any) -> Lock:
        """A lock of the kind that Peer.java has under the same word."""
        words = " ".join(f"{key}={value}" for key, value in options.items())
        thing = self.name()
        if kind != "multi":
            self(f"lock {thing} {client} {name} kind={kind} {words}")
            return Lock(self, client, kind, thing)
        members = [self.lock("mutex", part, client).thing for part in name.split(",")]
        self(f"multi {thing} {' '.join(members)} {words}")
        return Lock(self, client, kind, thing)

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@dataclass
class Lock:
    """A lock, latch or counter of a program; one hold of it at a time."""

    agent: Agent
    client: str
    kind: str
    thing: str
    hold: str = ""

    def acquire(self, wait: int | None = None, **options: Any) -> str:
        """`ok`, `busy`, `timedout` or an error."""
        self.hold = self.agent.name()
        words = [f"wait={wait}"] if wait is not None else []
        words += [f"{key}={value}" for key, value in options.items()]
        if self.kind in ("read", "write"):
            words.append("owner=1")
        return self.agent(f"acquire {self.hold} {self.thing} {' '.join(words)}")

    def submit(self, **options: Any) -> None:
        """Begin to wait; taken() returns the result."""
        self.hold = self.agent.name()
        words = " ".join(f"{key}={value}" for key, value in options.items())
        assert self.agent(f"submit {self.hold} {self.thing} {words}") == "started"

    def taken(self) -> Answer:
        return self.agent.start(f"await {self.hold}")

    def of_hold(self, verb: str) -> str:
        return self.agent(f"{verb} {self.hold}")

    def release(self) -> str:
        return self.of_hold("release")

    def of_lock(self, verb: str, *words: object) -> str:
        return self.agent(" ".join(map(str, (verb, self.thing, *words))))

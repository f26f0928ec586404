"""One server, one JVM a version of Redisson, and the table of what was seen to work."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FOLDERS = (HERE, HERE.parent / "python")
sys.path[:0] = [str(folder) for folder in FOLDERS]

pytest.register_assert_rewrite("support")

from peer import JavaClient, Jvm  # noqa: E402
from versions import SINCE, VERSIONS  # noqa: E402

import snib  # noqa: E402
from support import TIDY, Server, eventually  # noqa: E402

BUILD = Path(os.environ.get("SNIB_BUILD", ROOT / "build"))
JARS = BUILD / "interop"
# Where everything has to be there, what is not there is a failure.
NEEDED = os.environ.get("SNIB_NEED_JAVA") == "1"

SEEN = pytest.StashKey[dict[str, dict[str, Any]]]()


# ---- Servers and clients -------------------------------------------------------------------------


class SharedServer(Server):
    """A server that a JVM can reach, too."""

    def __init__(self, folder: Path, *options: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            self.port = taken.getsockname()[1]
        super().__init__(folder, "--port", str(self.port), "--bind", "127.0.0.1", *options)

    def keys_of(self, name: str) -> list[str]:
        """What is left of a lock, but for what is meant to stay: tokens, unlock latches."""
        stay = ("redisson_unlock_latch:", "redisson_lock_token:")
        keys = sorted(key for key in self.admin.keys(f"*{name}*") if not key.startswith(stay))
        # Keys that Redisson does not know go by themselves.
        return [k for k in keys if not (k.startswith("snib_") and self.admin.pttl(k) > 0)]

    def listeners(self, name: str) -> int:
        """Connections that listen on channels of this lock."""
        channels = self.admin.pubsub_channels(f"*{name}*")
        return sum(count for _, count in self.admin.pubsub_numsub(*channels))

    def scripts(self) -> int:
        """Scripts run so far."""
        stats = self.admin.info("commandstats")
        return sum(stats.get(f"cmdstat_{word}", {}).get("calls", 0) for word in ("eval", "evalsha"))


NewServer = Callable[..., SharedServer]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedServer]:
    server = SharedServer(tmp_path_factory.mktemp("server"))
    yield server
    server.end()


@pytest.fixture
def new_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NewServer]:
    """Servers for tests that stop or spoil them."""
    servers: list[SharedServer] = []

    def make(*options: str) -> SharedServer:
        servers.append(SharedServer(tmp_path_factory.mktemp("own"), *options))
        return servers[-1]

    yield make
    for server in servers:
        server.end()


_numbers = itertools.count(1)


@pytest.fixture
def name(server: SharedServer) -> Iterator[str]:
    """A name nobody used before; the test must leave nothing of it."""
    name = f"n{next(_numbers):05}"
    yield name
    try:
        eventually(lambda: server.keys_of(name) == [], TIDY)
    except AssertionError:
        pytest.fail(f"left behind: {server.keys_of(name)}")


@pytest.fixture
def gone(server: SharedServer) -> Iterator[str]:
    """A name for what stays by design, such as a semaphore; deleted afterwards."""
    name = f"n{next(_numbers):05}"
    yield name
    server.admin.delete(name, *server.keys_of(name))


@pytest.fixture
def client(server: SharedServer) -> Iterator[snib.Client]:
    with snib.connect(server.url) as client:
        yield client


@pytest.fixture
def quick(server: SharedServer) -> Iterator[snib.Client]:
    """A client of ours whose leases are short, so that it renews often."""
    with snib.connect(server.url, lease=0.6) as client:
        yield client


# ---- Java ----------------------------------------------------------------------------------------


def jvm_missing() -> str:
    if not shutil.which("java"):
        return "there is no java"
    missing = [version for version in VERSIONS if not (JARS / version / "classes").is_dir()]
    return f"Redisson {', '.join(missing)} was not built; see run.sh" if missing else ""


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if reason := jvm_missing():
        terminalreporter.section("REDISSON WAS NOT TESTED", sep="!", red=True, bold=True)
        terminalreporter.line(f"All tests against real jars were skipped: {reason}")


@pytest.fixture(scope="session")
def jvms() -> Iterator[dict[str, Jvm]]:
    if reason := jvm_missing():
        (pytest.fail if NEEDED else pytest.skip)(f"REDISSON NOT TESTED: {reason}")
    # All at once: starting takes a JVM longer than most tests.
    jvms = {version: Jvm(version, JARS / version) for version in VERSIONS}
    yield jvms
    for jvm in jvms.values():
        jvm.kill()


@pytest.fixture(scope="session", params=VERSIONS)
def java(request: pytest.FixtureRequest, jvms: dict[str, Jvm], server: SharedServer) -> JavaClient:
    """A client of each version."""
    return jvms[request.param].open("main", server.port)


@pytest.fixture(scope="session")
def newest(jvms: dict[str, Jvm], server: SharedServer) -> JavaClient:
    return jvms[VERSIONS[0]].open("newest", server.port)


@pytest.fixture
def new_jvm() -> Iterator[Callable[[], Jvm]]:
    """JVMs of the newest version for tests that kill them."""
    made: list[Jvm] = []

    def make() -> Jvm:
        if reason := jvm_missing():
            (pytest.fail if NEEDED else pytest.skip)(f"REDISSON NOT TESTED: {reason}")
        made.append(Jvm(VERSIONS[0], JARS / VERSIONS[0]))
        return made[-1]

    yield make
    for jvm in made:
        jvm.kill()


# ---- The table -----------------------------------------------------------------------------------


class Cell:
    """What one test says of one cell of the table; the worst word of all its tests stands there."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._properties = request.node.user_properties

    def __call__(self, kind: str, java: JavaClient, direction: str) -> None:
        if not self.has(kind, java):
            self._properties.append(("cell", (kind, java.jvm.version, direction, "absent", "")))
            pytest.skip(f"Redisson {java.jvm.version} has no {kind}")
        self._properties.append(("cell", (kind, java.jvm.version, direction, "ok", "")))

    @staticmethod
    def has(kind: str, java: JavaClient) -> bool:
        return java.jvm.number >= SINCE.get(kind, ())

    def differs(self, kind: str, java: JavaClient, direction: str, note: str) -> None:
        """Works, but not as between two of the newest: the note says how."""
        self._properties.append(("cell", (kind, java.jvm.version, direction, "differs", note)))


@pytest.fixture
def cell(request: pytest.FixtureRequest) -> Cell:
    return Cell(request)


WORST = ("absent", "ok", "differs", "failed")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[SEEN] = {}


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if report.when == "setup" and report.passed:
        return
    for key, value in item.user_properties:
        if key != "cell":
            continue
        kind, version, direction, word, note = value
        word = "failed" if report.failed else word
        seen = item.config.stash[SEEN]
        now = seen.setdefault(
            f"{kind}|{version}|{direction}", {"word": "absent", "notes": [], "tests": 0}
        )
        now["word"] = max(now["word"], word, key=WORST.index)
        if report.when == "call":
            now["tests"] += 1
        if note and note not in now["notes"]:
            now["notes"].append(note)


def pytest_sessionfinish(session: pytest.Session) -> None:
    seen = session.config.stash[SEEN]
    if seen:
        BUILD.mkdir(parents=True, exist_ok=True)
        words = ("kind", "version", "direction")
        cells = [
            dict(zip(words, key.split("|"), strict=True), **value) for key, value in seen.items()
        ]
        text = json.dumps({"versions": VERSIONS, "cells": cells}, indent=1)
        (BUILD / "interop.json").write_text(text + "\n")

"""Servers and deployments, a JVM with all versions of Redisson, and the table of what works."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FOLDERS = (HERE, HERE.parent / "python")
sys.path[:0] = [str(folder) for folder in FOLDERS]
sys.path.append(str(HERE.parent / "topology"))

pytest.register_assert_rewrite("support")

from agent import LANGUAGES  # noqa: E402
from deployed import Deployed, make  # noqa: E402
from kinds import KINDS  # noqa: E402
from modes import MODES  # noqa: E402
from peer import Host, JavaClient, Jvm  # noqa: E402
from versions import ALL, SINCE, VERSIONS  # noqa: E402

import snib  # noqa: E402
from support import RENEWED, TIDY, Server, eventually, free_port  # noqa: E402

BUILD = Path(os.environ.get("SNIB_BUILD", ROOT / "build"))
JARS = BUILD / "interop"
# Whether a missing JVM or jar is a failure.
NEEDED = os.environ.get("SNIB_NEED_JAVA") == "1"


# ---- Servers and clients -------------------------------------------------------------------------


class SharedServer(Server):
    """A server that a JVM can also reach."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.port = free_port()
        super().__init__(folder, "--port", str(self.port), "--bind", "127.0.0.1", *options)

    def keys_of(self, name: str) -> list[str]:
        """The remaining keys of a lock, except those meant to stay: tokens, unlock latches."""
        stay = ("redisson_unlock_latch:", "redisson_lock_token:")
        keys = sorted(key for key in self.admin.keys(f"*{name}*") if not key.startswith(stay))
        # Keys that Redisson does not know expire by themselves.
        return [k for k in keys if not (k.startswith("snib_") and self.admin.pttl(k) > 0)]

    def listeners(self, name: str) -> int:
        """Connections subscribed to channels of this lock."""
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
    """Servers for tests that stop or break them."""
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
    """An unused name; the test must leave no keys of it."""
    name = f"n{next(_numbers):05}"
    yield name
    try:
        eventually(lambda: server.keys_of(name) == [], TIDY)
    except AssertionError:
        pytest.fail(f"left behind: {server.keys_of(name)}")


@pytest.fixture
def gone(server: SharedServer) -> Iterator[str]:
    """A name for something that stays by design, such as a semaphore; deleted afterwards."""
    name = f"n{next(_numbers):05}"
    yield name
    server.admin.delete(name, *server.keys_of(name))


@pytest.fixture
def client(server: SharedServer) -> Iterator[snib.Client]:
    with snib.connect(server.url) as client:
        yield client


@pytest.fixture
def slow(server: SharedServer) -> Iterator[snib.Client]:
    """A Snib client that asks again only after a minute: if it gets a lock sooner, it was notified."""
    with snib.connect(server.url, recheck=60) as client:
        yield client


@pytest.fixture
def quick(server: SharedServer) -> Iterator[snib.Client]:
    """A Snib client with short leases, so that it renews often."""
    with snib.connect(server.url, lease=RENEWED) as client:
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


HOST = pytest.StashKey[Host]()


def host_of(config: pytest.Config) -> Host:
    """The JVM of this process, which ends with it."""
    if HOST not in config.stash:
        config.stash[HOST] = Host(JARS)
        config.add_cleanup(config.stash[HOST].end)
    return config.stash[HOST]


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """All test processes share the JVM of the one that directs them."""
    node.workerinput["jvm"] = 0 if jvm_missing() else host_of(node.config).port


class Jvms:
    """One connection and one client for each version, made for the first test of this process that needs it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._made: dict[str, Jvm] = {}
        self._clients: dict[str, JavaClient] = {}

    def new(self, version: str) -> Jvm:
        return Jvm(version, self._port)

    def __getitem__(self, version: str) -> Jvm:
        if version not in self._made:
            self._made[version] = self.new(version)
        return self._made[version]

    def client(self, version: str, server: SharedServer) -> JavaClient:
        if version not in self._clients:
            self._clients[version] = self[version].open("main", server.port)
        return self._clients[version]

    def end(self) -> None:
        for jvm in self._made.values():
            jvm.end()


@pytest.fixture(scope="session")
def jvms(request: pytest.FixtureRequest) -> Iterator[Jvms]:
    if reason := jvm_missing():
        (pytest.fail if NEEDED else pytest.skip)(f"REDISSON NOT TESTED: {reason}")
    given = getattr(request.config, "workerinput", {})
    jvms = Jvms(given["jvm"] if given else host_of(request.config).port)
    yield jvms
    jvms.end()


@pytest.fixture(params=VERSIONS)
def java(request: pytest.FixtureRequest, jvms: Jvms, server: SharedServer) -> JavaClient:
    """A client in each version."""
    return jvms.client(request.param, server)


@pytest.fixture
def newest(jvms: Jvms, server: SharedServer) -> JavaClient:
    return jvms.client(VERSIONS[0], server)


@pytest.fixture
def visitor(jvms: Jvms) -> Iterator[Jvm]:
    """The newest version, for clients that end with the test."""
    visitor = jvms.new(VERSIONS[0])
    yield visitor
    visitor.end()


@pytest.fixture
def own_host(jvms: Jvms) -> Iterator[Host]:
    """A JVM for a test that kills it."""
    host = Host(JARS)
    yield host
    host.end()


# ---- Deployments ---------------------------------------------------------------------------------


@pytest.fixture(scope="session", params=MODES)
def there(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, jvms: Jvms
) -> Iterator[Deployed]:
    """A deployment in each mode, started once, and ended before the JVMs."""
    folder = tmp_path_factory.mktemp(request.param)
    with make(MODES[request.param], folder) as them:
        there = Deployed(MODES[request.param], them, folder)
        yield there
        there.end()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """End a deployment with its last test: a dozen idle servers, and Redisson's polling of them, add up."""
    yield
    if mode_of(item) and mode_of(item) != mode_of(nextitem):
        item._fixtureinfo.name2fixturedefs["there"][-1].finish(item._request)  # type: ignore[attr-defined]


def mode_of(item: pytest.Item | None) -> str:
    return item.callspec.params.get("there", "") if hasattr(item, "callspec") else ""


@pytest.fixture(params=sorted({version for mode in MODES.values() for version in mode.versions}))
def beside(request: pytest.FixtureRequest, jvms: Jvms, there: Deployed) -> JavaClient:
    """A client of the deployment, in the versions that are tested there."""
    return there.java(jvms[request.param])


@pytest.fixture
def lock(there: Deployed) -> Iterator[str]:
    """An unused name in the deployment; the test must leave no keys of it."""
    name = f"n{next(_numbers):05}"
    yield name
    try:
        eventually(lambda: there.keys_of(name) == [], TIDY)
    except AssertionError:
        pytest.fail(f"left behind: {there.keys_of(name)}")


@pytest.fixture
def counter(there: Deployed) -> Iterator[str]:
    """A name in the deployment for something that stays by design; deleted afterwards."""
    name = f"n{next(_numbers):05}"
    yield name
    there.delete(name)


# ---- What is run, and where ----------------------------------------------------------------------


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that share a client of Redisson or a deployment run in one process; without SNIB_TEST_ALL some deployments are left out."""
    left = []
    for item in items:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        if "there" in params and not wanted(params):
            left.append(item)
        elif "there" in params:
            item.add_marker(pytest.mark.xdist_group(MODES[params["there"]].shape))
        elif "java" in params:
            item.add_marker(pytest.mark.xdist_group(params["java"]))
    gone = set(left)
    items[:] = [item for item in items if item not in gone]
    config.hook.pytest_deselected(items=left)


def wanted(params: dict[str, Any]) -> bool:
    """The short run: every kind in every mode, with alternating languages, and few tests of older versions."""
    mode, kind = params["there"], params.get("kind", "mutex")
    version = params.get("beside", VERSIONS[0])
    if ALL or version not in MODES[mode].versions:
        return version in MODES[mode].versions
    if MODES[mode].all_only or (version != VERSIONS[0] and kind != "mutex"):
        return False
    turn = list(MODES).index(mode) + KINDS.index(kind)
    return params.get("language", "") in ("", LANGUAGES[turn % len(LANGUAGES)])


# ---- The table -----------------------------------------------------------------------------------


class Cell:
    """The result of one test for a cell of the table, which shows the worst result of all its tests."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._properties = request.node.user_properties
        params = request.node.callspec.params if hasattr(request.node, "callspec") else {}
        self._mode = MODES[params["there"]].title if "there" in params else ""

    def __call__(self, kind: str, java: JavaClient, *directions: str) -> None:
        for direction in directions:
            self._say(kind, java, direction, "ok" if self.has(kind, java) else "absent")
        if not self.has(kind, java):
            pytest.skip(f"Redisson {java.jvm.version} has no {kind}")

    def _say(self, kind: str, java: JavaClient, direction: str, word: str, note: str = "") -> None:
        column = f"{java.jvm.version} {self._mode}".rstrip()
        self._properties.append(("cell", (kind, column, direction, word, note)))

    @staticmethod
    def has(kind: str, java: JavaClient) -> bool:
        return java.jvm.number >= SINCE.get(kind, ())

    def differs(self, kind: str, java: JavaClient, direction: str, note: str) -> None:
        """It works, but not as with the newest version: the note says how."""
        self._say(kind, java, direction, "differs", note)


@pytest.fixture
def cell(request: pytest.FixtureRequest) -> Cell:
    return Cell(request)


WORST = ("absent", "ok", "differs", "failed")
_seen: dict[str, dict[str, Any]] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Collect the cells; even with several test processes, this one gets all reports."""
    if report.when == "setup" and report.passed:
        return
    for key, value in report.user_properties:
        if key != "cell":
            continue
        kind, column, direction, word, note = value
        word = "failed" if report.failed else word
        now = _seen.setdefault(
            f"{kind}|{column}|{direction}", {"word": "absent", "notes": [], "tests": 0}
        )
        now["word"] = max(now["word"], word, key=WORST.index)
        if report.when == "call":
            now["tests"] += 1
        if note and note not in now["notes"]:
            now["notes"].append(note)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _seen and not hasattr(session.config, "workerinput"):
        BUILD.mkdir(parents=True, exist_ok=True)
        words = ("kind", "column", "direction")
        cells = [
            # Sorted, because the order of the notes determines their numbers, and tests run in any order.
            dict(zip(words, key.split("|"), strict=True), **value)
            for key, value in sorted(_seen.items())
        ]
        (BUILD / "interop.json").write_text(json.dumps({"cells": cells}, indent=1) + "\n")

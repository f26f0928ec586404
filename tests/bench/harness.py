"""The basis of the benchmark rows: builds, and subjects that take turns.

A subject is one or more processes that prepare their work, print "ready" and then answer each line
"go SECONDS" by working for that long and printing one line of JSON with at least "done" and
"seconds".
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import astuple, dataclass, field
from pathlib import Path

from servers import Failed, Missing, Site, process_cpu
from watch import Watch

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "tests" / "bench"
QUIET_TIMEOUT = 15.0
WATCHERS = ("prometheus_client>=0.17", "opentelemetry-sdk>=1.20")  # what rows with metrics or spans need
LINE_TIMEOUT = 120.0  # for one answer of a subject, in addition to its working time


def machine_cpu() -> tuple[float, float]:
    """CPU seconds that all processes have used so far, and CPU seconds available."""
    ticks = [int(n) for n in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    idle = ticks[3] + ticks[4]
    return (sum(ticks) - idle) / os.sysconf("SC_CLK_TCK"), sum(ticks) / os.sysconf("SC_CLK_TCK")


# ---- Subjects ------------------------------------------------------------------------------------


@dataclass
class Sample:
    """One subject's turn in one round."""

    # Where servers come and go, only the subject's own work is counted.
    rate: float  # done per second
    commands: float | None = 0  # sent by clients, per done; None: unknown
    scripts: float = 0  # script calls among them
    client_us: float = 0  # CPU time per done
    server_us: float = 0
    others: float = 0  # share of the machine that processes outside the benchmark took meanwhile
    extra: dict = field(default_factory=dict)  # the subject's own fields, summed over its processes


class Subject:
    """The processes of one contender in one row, alive for all its rounds."""

    def __init__(self, argvs: list[list[str]], folder: Path, cores: set[int]) -> None:
        self._errors = tempfile.TemporaryFile(dir=folder)
        self.processes = [
            subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                preexec_fn=lambda: os.sched_setaffinity(0, cores),
            )
            for argv in argvs
        ]
        try:
            for process, argv in zip(self.processes, argvs, strict=True):
                if self._line(process, LINE_TIMEOUT) != "ready":
                    raise Failed(f"{Path(argv[0]).name} is not ready: {self._complaint()}")
        except Failed:
            self.stop()
            raise

    def _complaint(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        # Python prints the reason last, other programs first.
        last = bool(lines) and lines[0].startswith("Traceback")
        return lines[-1 if last else 0] if lines else "it said nothing"

    def _line(self, process: subprocess.Popen, timeout: float) -> str:
        # A subject writes whole lines, one per turn, so nothing is left in the reader's buffer.
        if not select.select([process.stdout], [], [], timeout)[0]:
            raise Failed(f"no answer within {timeout:.0f} s: {self._complaint()}")
        line = process.stdout.readline().decode().strip()
        if not line:
            raise Failed(f"ended with {process.wait()}: {self._complaint()}")
        return line

    def begin(self, seconds: float) -> None:
        for process in self.processes:
            try:
                process.stdin.write(b"go %.3f\n" % seconds)
                process.stdin.flush()
            except BrokenPipeError:
                raise Failed(f"ended with {process.wait()}: {self._complaint()}") from None

    def answers(self, seconds: float) -> list[dict]:
        return [
            json.loads(self._line(process, seconds + LINE_TIMEOUT)) for process in self.processes
        ]

    def cpu(self) -> float:
        return sum(process_cpu(process.pid) for process in self.processes)

    def await_quiet(self) -> None:
        """Wait until its processes use less than a twentieth of a core, or for QUIET_TIMEOUT."""
        until = time.monotonic() + QUIET_TIMEOUT
        used = self.cpu()
        while time.monotonic() < until:
            time.sleep(0.5)
            used, before = self.cpu(), used
            if used - before < 0.5 / 20:
                break

    def stop(self) -> None:
        for process in self.processes:
            with suppress(BrokenPipeError):  # it has ended with data unsent
                process.stdin.close()
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()
        self._errors.close()


def merge(answers: list[dict]) -> dict:
    """Sum the processes' fields and join lists; the longest time counts, the oracle is shared."""
    merged: dict = {}
    for answer in answers:
        for key, value in answer.items():
            if key in merged:
                value = (
                    max(merged[key], value)
                    if key in ("seconds", "violations")
                    else merged[key] + value
                )
            merged[key] = value
    return merged


SCRIPTS = ("evalsha", "eval")
OTHERS = ("subscribe", "unsubscribe", "ssubscribe", "sunsubscribe", "set", "del", "wait")


def client_commands(calls: dict[str, int], inside: tuple[str, ...], pairs: int) -> int:
    """Commands that clients sent.  The server also counts commands inside scripts, so those that a
    subject's scripts call once per pair (`inside`) are subtracted."""
    return sum(calls.get(name, 0) for name in (*SCRIPTS, *OTHERS)) - len(inside) * pairs


@dataclass
class Spent:
    """CPU seconds so far, or since a moment."""

    client: float
    server: float
    between: float
    busy: float  # used by all processes
    total: float  # available

    @staticmethod
    def now(subject: Subject, site: Site) -> Spent:
        server = site.cpu() if site.counts else 0.0
        return Spent(subject.cpu(), server, site.between_cpu(), *machine_cpu())

    def since(self, then: Spent) -> Spent:
        return Spent(*(a - b for a, b in zip(astuple(self), astuple(then), strict=True)))

    @property
    def others(self) -> float:
        """The share of the available time that went to processes outside the benchmark."""
        return max(0.0, self.busy - self.client - self.server - self.between) / self.total


def measure(
    subject: Subject,
    site: Site,
    seconds: float,
    inside: tuple[str, ...] | None = (),
    keeps_keys: bool = False,
    watch: Watch | None = None,
) -> Sample:
    """One turn of a subject on empty servers."""
    if not keeps_keys:
        site.empty()
    calls = site.calls() if site.counts else {}
    spent = Spent.now(subject, site)
    subject.begin(seconds)
    disturbed = site.disturb()
    extra = merge(subject.answers(seconds)) | disturbed
    spent = Spent.now(subject, site).since(spent)
    done = extra["done"]
    if extra.get("violations"):
        raise Failed(f"{extra['violations']} times two held the lock at once")
    if done == 0:
        raise Failed("nothing was done")
    site.check(extra)
    if not keeps_keys:
        site.await_empty()
    sample = Sample(done / extra["seconds"], extra=extra)
    if site.counts:
        calls = {name: n - calls.get(name, 0) for name, n in site.calls().items()}
        sample.commands = None
        if inside is not None:
            sample.commands = client_commands(calls, inside, done) / done
        sample.scripts = sum(calls.get(name, 0) for name in SCRIPTS) / done
        sample.client_us = spent.client / done * 1e6
        sample.server_us = spent.server / done * 1e6
        sample.others = spent.others
    if watch:
        extra["inversions"] = watch.inversions(done)
    return sample


# ---- Builds --------------------------------------------------------------------------------------


class Builder:
    """Builds each kind of program once, when the first row needs it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._done: dict[str, Missing | None] = {}

    def need(self, kind: str) -> None:
        if kind not in self._done:
            print(f"building: {kind}", file=sys.stderr, flush=True)
            try:
                getattr(self, f"_{kind}")()
                self._done[kind] = None
            except Missing as missing:
                self._done[kind] = missing
        problem = self._done[kind]
        if problem is not None:
            raise problem

    def _run(self, kind: str, *words: object, cwd: Path = ROOT) -> None:
        log = self.folder / f"{kind}.log"
        with open(log, "ab") as out:
            result = subprocess.run([str(w) for w in words], cwd=cwd, stdout=out, stderr=out)
        if result.returncode != 0:
            raise Missing(
                f"{kind}: {Path(words[0]).name} failed, see {os.path.relpath(log, ROOT)}"
            )

    def _tool(self, kind: str, name: str) -> str:
        path = shutil.which(name)
        if path is None:
            raise Missing(f"{kind}: no {name} on the PATH")
        return path

    @property
    def scripts(self) -> Path:
        """The scripts as the library sends them: without comments and blank lines."""
        return self._scripts("scripts", "'publish'")

    @property
    def sharded_scripts(self) -> Path:
        """The scripts as the library sends them to a cluster."""
        return self._scripts("scripts-sharded", "'spublish'")

    def _scripts(self, folder: str, publish: str) -> Path:
        out = self.folder / folder
        out.mkdir(exist_ok=True)
        for name in ("mutex_acquire", "mutex_release"):
            lines = (ROOT / "core" / "lua" / f"{name}.lua").read_text().splitlines()
            kept = [line for line in lines if line.strip() and not line.lstrip().startswith("--")]
            text = "".join(line + "\n" for line in kept).replace("'publish'", publish)
            (out / f"{name}.lua").write_text(text)
        return out

    def _c(self) -> None:
        cmake, build = self._tool("c", "cmake"), self.folder / "c"
        options = ["-DCMAKE_BUILD_TYPE=Release", "-DSNIB_BENCH=ON"]
        self._run("c", cmake, "-S", ROOT, "-B", build, *options)
        self._run("c", cmake, "--build", build, "--target", "snib_bench", "snib_delay", "-j2")

    @property
    def c(self) -> Path:
        return next((self.folder / "c").rglob("snib_bench"))

    @property
    def delay(self) -> Path:
        return self.c.with_name("snib_delay")

    def _python(self) -> None:
        if not self.python.exists():
            self._run("python", sys.executable, "-m", "venv", self.folder / "venv")
        pip = [self.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        self._run("python", *pip, "redis>=5", "hiredis>=3", "uvloop", *WATCHERS)
        self._run("python", *pip, "--force-reinstall", "--no-deps", ROOT)

    @property
    def python(self) -> Path:
        return self.folder / "venv" / "bin" / "python"

    def _go(self) -> None:
        self._run("go", self._tool("go", "go"), "build", "-o", self.go, ".", cwd=BENCH / "go")

    @property
    def go(self) -> Path:
        return self.folder / "gobench"

    def _java(self) -> None:
        self._tool("java", "java")
        maven, pom = self._tool("java", "mvn"), BENCH / "java" / "pom.xml"
        goals = ["package", "dependency:copy-dependencies"]
        self._run(
            "java", maven, "-q", "-B", "-f", pom, f"-Dbench.build={self.folder / 'java'}", *goals
        )

    @property
    def java(self) -> list[str]:
        classes, jars = self.folder / "java" / "classes", self.folder / "java" / "dependency"
        return ["java", "-cp", f"{classes}:{jars}/*", "RedissonBench"]

    def plotter(self) -> Path:
        """The environment's Python, with the packages for the picture."""
        if not self.python.exists():
            self._run("plot", sys.executable, "-m", "venv", self.folder / "venv")
        self._run("plot", self.python, "-m", "pip", "install", "--quiet", "matplotlib")
        return self.python

    def used(self, kind: str) -> bool:
        """Whether a row of this run has needed it, and got it."""
        return kind in self._done and self._done[kind] is None

    def build_id(self) -> str:
        """The state of the measured core, as in snib_build_id()."""
        script = ROOT / "cmake" / "build_id.cmake"
        words = [self._tool("core", "cmake"), f"-DDIR={ROOT / 'core'}", "-P", str(script)]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()

    def compiler(self) -> str:
        """The compiler of the C programs."""
        cache = self.folder / "c" / "CMakeCache.txt"
        for line in cache.read_text().splitlines() if cache.exists() else []:
            if line.startswith("CMAKE_C_COMPILER:"):
                return line.partition("=")[2]
        return "cc"

"""What the benchmark rows stand on: builds, and subjects that take turns.

A subject is one or several processes that prepare their work, say "ready" and then answer each
line "go SECONDS" by working for so long and printing one line of JSON with at least "done" and
"seconds".
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from servers import Failed, Missing, Nodes, Server, process_cpu
from watch import Watch

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "tests" / "bench"
QUIET_TIMEOUT = 15.0
LINE_TIMEOUT = 30.0  # for one answer of a subject, over the seconds it was told to work


def machine_cpu() -> tuple[float, float]:
    """CPU seconds that all processes used so far, and that there were."""
    ticks = [int(n) for n in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    idle = ticks[3] + ticks[4]
    return (sum(ticks) - idle) / os.sysconf("SC_CLK_TCK"), sum(ticks) / os.sysconf("SC_CLK_TCK")


# ---- Subjects ------------------------------------------------------------------------------------


@dataclass
class Sample:
    """One subject's turn in one round."""

    rate: float  # done per second
    commands: float  # sent by clients, per done
    scripts: float  # those of them that are calls of scripts
    client_us: float  # CPU time per done
    server_us: float
    others: float  # share of the machine that processes outside the benchmark took meanwhile
    extra: dict = field(default_factory=dict)  # the subject's own fields, summed over its processes


class Subject:
    """The processes of one contender in one row, alive for all its rounds."""

    def __init__(self, argvs: list[list[str]], folder: Path, cores: set[int]) -> None:
        self._errors = tempfile.TemporaryFile(dir=folder)
        self._processes = [
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
            for process, argv in zip(self._processes, argvs, strict=True):
                if self._line(process, LINE_TIMEOUT) != "ready":
                    raise Failed(f"{argv[0]} is not ready: {self._complaint()}")
        except Failed:
            self.stop()
            raise

    def _complaint(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        # Python ends with the reason, others begin with it.
        last = bool(lines) and lines[0].startswith("Traceback")
        return lines[-1 if last else 0] if lines else "it said nothing"

    def _line(self, process: subprocess.Popen, timeout: float) -> str:
        # A subject writes whole lines, one per turn: nothing can be left in the reader's buffer.
        if not select.select([process.stdout], [], [], timeout)[0]:
            raise Failed(f"no answer within {timeout:.0f} s: {self._complaint()}")
        line = process.stdout.readline().decode().strip()
        if not line:
            raise Failed(f"ended with {process.wait()}: {self._complaint()}")
        return line

    def go(self, seconds: float) -> list[dict]:
        for process in self._processes:
            process.stdin.write(b"go %.3f\n" % seconds)
            process.stdin.flush()
        return [
            json.loads(self._line(process, seconds + LINE_TIMEOUT)) for process in self._processes
        ]

    def cpu(self) -> float:
        return sum(process_cpu(process.pid) for process in self._processes)

    def await_quiet(self) -> None:
        """Until its processes use less than a twentieth of a core, or for QUIET_TIMEOUT."""
        until = time.monotonic() + QUIET_TIMEOUT
        used = self.cpu()
        while time.monotonic() < until:
            time.sleep(0.5)
            used, before = self.cpu(), used
            if used - before < 0.5 / 20:
                break

    def stop(self) -> None:
        for process in self._processes:
            process.stdin.close()
        for process in self._processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()
        self._errors.close()


def merge(answers: list[dict]) -> dict:
    """Sums the processes' fields, joins lists; the longest time counts, the oracle is shared."""
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


def client_commands(calls: dict[str, int], inside: tuple[str, ...], pairs: int) -> int:
    """Commands that clients sent.  The server counts those inside scripts as well, so what a
    subject's scripts call once a pair (`inside`) is taken off."""
    names = (*SCRIPTS, "subscribe", "unsubscribe", "set", "del")
    return sum(calls.get(name, 0) for name in names) - len(inside) * pairs


def measure(
    subject: Subject,
    site: Server | Nodes,
    seconds: float,
    inside: tuple[str, ...] = (),
    keeps_keys: bool = False,
    watch: Watch | None = None,
) -> Sample:
    """One turn of a subject on an empty server, or on several."""
    if not keeps_keys:
        site.empty()
    calls, server_cpu, client_cpu = site.calls(), site.cpu(), subject.cpu()
    between = site.between_cpu()
    busy, total = machine_cpu()
    extra = merge(subject.go(seconds))
    client_cpu, server_cpu = subject.cpu() - client_cpu, site.cpu() - server_cpu
    between = site.between_cpu() - between
    busy, total = (now - then for now, then in zip(machine_cpu(), (busy, total), strict=True))
    done = extra["done"]
    if extra.get("violations"):
        raise Failed(f"{extra['violations']} times two held the lock at once")
    if done == 0:
        raise Failed("nothing was done")
    if not keeps_keys:
        site.await_empty()
    calls = {name: n - calls.get(name, 0) for name, n in site.calls().items()}
    if watch:
        extra["inversions"] = watch.inversions(done)
    return Sample(
        rate=done / extra["seconds"],
        commands=client_commands(calls, inside, done) / done,
        scripts=sum(calls.get(name, 0) for name in SCRIPTS) / done,
        client_us=client_cpu / done * 1e6,
        server_us=server_cpu / done * 1e6,
        others=max(0.0, busy - client_cpu - server_cpu - between) / total,
        extra=extra,
    )


# ---- Builds --------------------------------------------------------------------------------------


class Builder:
    """Builds each kind of program once, when the first row asks for it."""

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
            raise Missing(f"{kind}: {words[0]} failed, see {log}")

    def _tool(self, kind: str, name: str) -> str:
        path = shutil.which(name)
        if path is None:
            raise Missing(f"{kind}: no {name} on the PATH")
        return path

    @property
    def scripts(self) -> Path:
        """The scripts as the library sends them: without comment lines and blank lines."""
        out = self.folder / "scripts"
        out.mkdir(exist_ok=True)
        for name in ("mutex_acquire", "mutex_release"):
            lines = (ROOT / "core" / "lua" / f"{name}.lua").read_text().splitlines()
            kept = [line for line in lines if line.strip() and not line.lstrip().startswith("--")]
            (out / f"{name}.lua").write_text("".join(line + "\n" for line in kept))
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
        self._run("python", *pip, "redis>=5", "hiredis>=3", "uvloop")
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
        """The environment's Python, with what the picture needs."""
        if not self.python.exists():
            self._run("plot", sys.executable, "-m", "venv", self.folder / "venv")
        self._run("plot", self.python, "-m", "pip", "install", "--quiet", "matplotlib")
        return self.python

    def source_hash(self) -> str:
        """Names the state of the core that was measured."""
        digest = hashlib.sha256()
        for path in sorted((ROOT / "core").rglob("*")):
            if path.suffix in (".c", ".h", ".lua"):
                digest.update(path.read_bytes())
        return digest.hexdigest()[:12]

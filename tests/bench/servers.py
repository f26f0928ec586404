"""The servers of the benchmarks: one for most rows, several with their own links for the quorum."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path


class Missing(Exception):
    """Something that a row needs cannot be had on this machine."""


class Failed(Exception):
    """A subject ended, answered nonsense or broke a rule: the row has no figures."""


def process_cpu(pid: int) -> float:
    """CPU seconds of a process, its ended threads included (see clock_getcpuclockid(3))."""
    return time.clock_gettime((~pid << 3) | 2)


class Server:
    """A private Redis or Valkey on a free loopback port, without persistence."""

    def __init__(self, folder: Path, name: str = "server") -> None:
        binary = os.environ.get("SNIB_BENCH_SERVER") or shutil.which("redis-server")
        binary = binary or shutil.which("valkey-server")
        if not binary:
            raise Missing(
                "no redis-server or valkey-server on the PATH (or name one in SNIB_BENCH_SERVER)"
            )
        self.binary = binary
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        options = ["--port", self.port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        options += ["--daemonize", "no", "--dir", folder, "--loglevel", "warning"]
        options += ["--maxclients", 4000]
        log = open(folder / f"{name}.log", "wb")
        # In a session of its own, as a service has: Linux shares the cores between sessions first, so
        # the number of client threads does not decide how often the server runs.
        self.process = subprocess.Popen(
            [binary, *map(str, options)], stdout=log, stderr=log, start_new_session=True
        )
        log.close()
        self._connect()

    def _connect(self) -> None:
        until = time.monotonic() + 10
        while True:
            try:
                self._socket = socket.create_connection(("127.0.0.1", self.port))
                break
            except OSError:
                if time.monotonic() > until or self.process.poll() is not None:
                    raise Missing(f"{self.binary} does not start") from None
                time.sleep(0.01)
        self._replies = self._socket.makefile("rb")
        self.command("PING")

    def between_cpu(self) -> float:
        """CPU seconds of what lies between clients and servers."""
        return 0.0

    def command(self, *words: str) -> str:
        """Sends one command; only replies of a single string or number are understood."""
        parts = [b"$%d\r\n%s\r\n" % (len(w), w) for w in (word.encode() for word in words)]
        self._socket.sendall(b"*%d\r\n" % len(parts) + b"".join(parts))
        line = self._replies.readline()
        if line[:1] == b"-":
            raise Failed(f"{words[0]}: {line[1:].decode().strip()}")
        if line[:1] != b"$":
            return line[1:].decode().strip()
        return self._replies.read(int(line[1:]) + 2)[:-2].decode()

    def info(self, section: str) -> dict[str, str]:
        lines = self.command("INFO", section).splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def calls(self) -> dict[str, int]:
        """How often each command was called so far, those inside scripts included."""
        stats = self.info("commandstats")
        return {
            name.removeprefix("cmdstat_"): int(text.split(",")[0].removeprefix("calls="))
            for name, text in stats.items()
        }

    def cpu(self) -> float:
        return process_cpu(self.process.pid)

    def version(self) -> str:
        info = self.info("server")
        name = "Valkey" if "valkey_version" in info else "Redis"
        return f"{name} {info.get('valkey_version', info['redis_version'])}"

    def empty(self) -> None:
        # Not when there is nothing to flush: clients that track keys would hear of it.
        if self.command("DBSIZE") != "0":
            self.command("FLUSHALL", "SYNC")

    def await_empty(self) -> None:
        """A release that left its key would make the next one look fast."""
        until = time.monotonic() + 5
        while self.command("DBSIZE") != "0":
            if time.monotonic() > until:
                raise Failed("keys were left in the server")
            time.sleep(0.005)

    def pin(self, cores: set[int]) -> None:
        for task in os.listdir(f"/proc/{self.process.pid}/task"):
            os.sched_setaffinity(int(task), cores)

    def stop(self) -> None:
        self._socket.close()
        self.process.terminate()
        self.process.wait()


class Nodes:
    """Several independent servers.  Clients reach them by `ports`: with a delay, a process between
    them holds back what passes, in each direction alike.  The last server can be made to stall: its
    kernel accepts everything, and nobody answers."""

    def __init__(self, folder: Path, count: int, delay: Path, delay_us: int) -> None:
        self._servers: list[Server] = []
        self._between: subprocess.Popen | None = None
        self._stalled: Server | None = None
        try:
            for i in range(count):
                self._servers.append(Server(folder, f"node{i}"))
            self.ports = [server.port for server in self._servers]
            if delay_us:
                self._hold_back(delay, delay_us)
        except Missing:
            self.stop()
            raise

    def _hold_back(self, delay: Path, delay_us: int) -> None:
        words = [str(word) for word in (delay, delay_us, *self.ports)]
        self._between = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.ports = [int(self._between.stdout.readline()) for _ in self.ports]

    def stall(self) -> None:
        """For the whole row: clients have connected, and are not to learn of it by a refusal."""
        self._stalled = self._servers.pop()
        self._stalled.process.send_signal(signal.SIGSTOP)

    def between_cpu(self) -> float:
        return process_cpu(self._between.pid) if self._between else 0.0

    def calls(self) -> dict[str, int]:
        sums: dict[str, int] = {}
        for server in self._servers:
            for name, n in server.calls().items():
                sums[name] = sums.get(name, 0) + n
        return sums

    def cpu(self) -> float:
        return sum(server.cpu() for server in self._servers)

    def empty(self) -> None:
        for server in self._servers:
            server.empty()

    def await_empty(self) -> None:
        for server in self._servers:
            server.await_empty()

    def pin(self, cores: set[int]) -> None:
        for server in self._servers:
            server.pin(cores)

    def stop(self) -> None:
        if self._between:
            self._between.stdin.close()
            self._between.wait()
            self._between.stdout.close()
        if self._stalled:
            self._stalled.process.send_signal(signal.SIGCONT)
            self._servers.append(self._stalled)
        for server in self._servers:
            server.stop()

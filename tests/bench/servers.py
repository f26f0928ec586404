"""The servers of the benchmarks: the base class, the server of most rows, and several servers with
separate links for the quorum.  Those with TLS, replicas and shards are in deployed.py."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))

from ports import free_port  # noqa: E402

# How many keys there are, but for what clients say about themselves, which stays until they end.
KEYS = "return #redis.call('keys', '*') - #redis.call('keys', 'snib_client:*')"


class Missing(Exception):
    """Something that a row needs is not available on this machine."""


class Failed(Exception):
    """A subject ended, gave an invalid answer or broke a rule: the row has no figures."""


def process_cpu(pid: int) -> float:
    """CPU seconds of a process, its ended threads included (see clock_getcpuclockid(3))."""
    return time.clock_gettime((~pid << 3) | 2)


def find_binary() -> str:
    named = os.environ.get("SNIB_BENCH_SERVER")
    if named and not shutil.which(named):
        raise Missing(f"SNIB_BENCH_SERVER names no program: {named}")
    binary = shutil.which(named or "redis-server") or shutil.which("valkey-server")
    if not binary:
        raise Missing(
            "no redis-server or valkey-server on the PATH (or name one in SNIB_BENCH_SERVER)"
        )
    return binary


class Site:
    """The servers on which a row's subjects work, and what happens to them around each turn."""

    counts = True  # commands and CPU time can be counted, because no server comes or goes
    url = ""  # in the form of Snib's clients

    def servers(self) -> list[Any]:
        """Each with info(), command() and its process."""
        raise NotImplementedError

    def asked(self) -> list[Any]:
        """The servers that clients send commands to."""
        return self.servers()

    def seated(self) -> None:
        """Called when all of a row's subjects have connected."""

    def disturb(self) -> dict[str, float]:
        """Break something while a subject works; returns figures about it."""
        return {}

    def check(self, extra: dict[str, Any]) -> None:
        """Check what a turn has reported; raises Failed."""

    def between_cpu(self) -> float:
        """CPU seconds of processes between clients and servers."""
        return 0.0

    def calls(self) -> dict[str, int]:
        """How often each command was called so far, those inside scripts included."""
        sums: dict[str, int] = {}
        for server in self.asked():
            for name, text in server.info("commandstats").items():
                name, n = name.removeprefix("cmdstat_"), text.split(",")[0].removeprefix("calls=")
                sums[name] = sums.get(name, 0) + int(n)
        return sums

    def cpu(self) -> float:
        return sum(process_cpu(server.process.pid) for server in self.servers())

    def empty(self) -> None:
        for server in self.asked():
            # Not if there is nothing to flush: clients that track keys would be notified.
            if int(server.command("DBSIZE")) != 0:
                server.command("FLUSHALL", "SYNC")

    def await_empty(self) -> None:
        """Wait until no key is left: a key left by a release would make the next one look fast."""
        until = time.monotonic() + 30
        for server in self.asked():
            while int(server.command("EVAL", KEYS, "0")) != 0:
                if time.monotonic() > until:
                    raise Failed("keys were left in the server")
                time.sleep(0.005)

    def pin(self, cores: set[int]) -> None:
        for server in self.servers():
            for task in os.listdir(f"/proc/{server.process.pid}/task"):
                os.sched_setaffinity(int(task), cores)

    def stop(self) -> None:
        raise NotImplementedError


class Server(Site):
    """A private Redis or Valkey on a free loopback port, without persistence."""

    def __init__(self, folder: Path, name: str = "server", more: tuple[object, ...] = ()) -> None:
        self.binary = find_binary()
        self.port = free_port()
        options = ["--port", self.port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        options += ["--daemonize", "no", "--dir", folder, "--loglevel", "warning"]
        options += ["--maxclients", 4000, *more]
        log = open(folder / f"{name}.log", "wb")
        # In a separate session, like a service: Linux shares the cores between sessions first, so
        # the number of client threads does not determine how often the server runs.
        self.process = subprocess.Popen(
            [self.binary, *map(str, options)], stdout=log, stderr=log, start_new_session=True
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
                    self.process.kill()
                    self.process.wait()
                    raise Missing(f"{Path(self.binary).name} does not start") from None
                time.sleep(0.01)
        self._replies = self._socket.makefile("rb")
        self.command("PING")

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def servers(self) -> list[Server]:
        return [self]

    def command(self, *words: str) -> str:
        """Send one command; only replies of a single string or number are supported."""
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

    def version(self) -> str:
        info = self.info("server")
        name = "Valkey" if "valkey_version" in info else "Redis"
        return f"{name} {info.get('valkey_version', info['redis_version'])}"

    def stop(self) -> None:
        self._socket.close()
        self.process.terminate()
        self.process.wait()


class Between:
    """A process that forwards ports, and delays the data equally in both directions."""

    def __init__(self, delay: Path, delay_us: int, ports: list[int]) -> None:
        words = [str(word) for word in (delay, delay_us, *ports)]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.ports = [int(self._process.stdout.readline()) for _ in ports]

    def cpu(self) -> float:
        return process_cpu(self._process.pid)

    def stop(self) -> None:
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


class Independent(Site):
    """Several independent servers.  Clients reach them by `urls`, with a delay through another
    process. The last server stalls when all have connected: its kernel accepts everything, but
    there is no answer."""

    def __init__(self, folder: Path, count: int, delay: Path, delay_us: int) -> None:
        self._servers: list[Server] = []
        self._between: Between | None = None
        self._stalled: Server | None = None
        try:
            for i in range(count):
                self._servers.append(Server(folder, f"node{i}"))
            ports = [server.port for server in self._servers]
            if delay_us:
                self._between = Between(delay, delay_us, ports)
                ports = self._between.ports
            self.urls = [f"redis://127.0.0.1:{port}" for port in ports]
        except Missing:
            self.stop()
            raise

    def servers(self) -> list[Server]:
        return self._servers

    def seated(self) -> None:
        """The server is stopped for the whole row, so clients never see a refusal."""
        self._stalled = self._servers.pop()
        self._stalled.process.send_signal(signal.SIGSTOP)

    def between_cpu(self) -> float:
        return self._between.cpu() if self._between else 0.0

    def stop(self) -> None:
        if self._between:
            self._between.stop()
        if self._stalled:
            self._stalled.process.send_signal(signal.SIGCONT)
            self._servers.append(self._stalled)
        for server in self._servers:
            server.stop()

"""Redisson's side: a JVM with every version of Redisson, and connections to one of them; see java/Host.java."""

from __future__ import annotations

import contextlib
import itertools
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from support import eventually
from versions import VERSIONS

# Generous: several JVMs may be starting on two cores, with TLS handshakes to do.
PATIENCE = 120.0


class JavaError(Exception):
    """An exception raised by a call in the JVM; `kind` is its class."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


@dataclass
class Call:
    """A call that runs in the JVM."""

    what: str
    ended: threading.Event = field(default_factory=threading.Event)
    answer: str = ""
    at: float = 0.0  # when it ended, by time.monotonic(); both processes read the same clock

    @property
    def waits(self) -> bool:
        return not self.ended.is_set()

    def get(self, seconds: float = PATIENCE) -> str:
        """Its value as Java prints it; raises JavaError."""
        assert self.ended.wait(seconds), f"no answer within {seconds} s: {self.what}"
        kind, _, text = self.answer.partition(" ")
        if kind == "ok":
            return text
        name, _, message = text.partition(" ")
        raise JavaError(name, message)


class Host:
    """A process that can load any version."""

    def __init__(self, builds: Path) -> None:
        with tempfile.TemporaryFile("w+") as log:
            self.process = subprocess.Popen(
                # It does not run for long: the second compiler would not pay.  It is told of one processor, so that it
                # does not spin for others; its threads use them all.
                [
                    *("java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
                    *("-XX:ActiveProcessorCount=1", "-Xshare:auto"),
                    *("-cp", str(builds / VERSIONS[0] / "classes"), "Host", str(builds)),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
            assert self.process.stdout
            line = self.process.stdout.readline()
            if not line:
                self.end()
                log.seek(0)
                raise RuntimeError(f"the JVM ended: {log.read()}")
        self.port = int(line)

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


class Jvm:
    """One version of Redisson, in a process that may be shared."""

    def __init__(self, version: str, port: int) -> None:
        self.version = version
        self.number = tuple(int(part) for part in version.split("."))
        self._calls: dict[str, Call] = {}
        self._tags = itertools.count(1)
        self._threads = itertools.count(1)
        self._lock = threading.Lock()
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(f"{version}\n".encode())
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with contextlib.suppress(OSError), self._socket.makefile(encoding="utf-8", newline="\n") as lines:
            for line in lines:
                tag, nanos, answer = line.rstrip("\n").split(" ", 2)
                call = self._calls.pop(tag)
                call.at, call.answer = int(nanos) / 1e9, answer
                call.ended.set()
        with self._lock:
            for call in self._calls.values():
                call.at, call.answer = time.monotonic(), "error Killed the JVM ended"
                call.ended.set()

    def tell(self, *words: object) -> Call:
        text = " ".join(str(word) for word in words)
        call = Call(f"Redisson {self.version}: {text}")
        with self._lock:
            tag = str(next(self._tags))
            self._calls[tag] = call
            self._socket.sendall(f"{tag} {text}\n".encode())
        return call

    def open(self, name: str, port: int, watchdog_ms: int = 30_000) -> JavaClient:
        return self.connect(name, f"redis://127.0.0.1:{port}", watchdog_ms)

    def connect(self, name: str, url: str, watchdog_ms: int = 30_000) -> JavaClient:
        """A client for a URL; java/Deployed.java lists the supported forms."""
        uuid = self.tell("open", name, url, watchdog_ms).get()
        return JavaClient(self, name, uuid)

    def new_thread(self) -> str:
        return f"t{next(self._threads)}"

    def end(self) -> None:
        """Close its clients; other connections keep theirs."""
        self._socket.shutdown(socket.SHUT_RDWR)


@dataclass
class JavaClient:
    """One RedissonClient in a JVM."""

    jvm: Jvm
    name: str
    uuid: str

    def object(self, kind: str, name: str, thread: str | None = None) -> JavaObject:
        """An object used by one thread of the JVM, a new one unless named."""
        return JavaObject(self, kind, name, thread or self.jvm.new_thread())

    def close(self) -> None:
        self.jvm.tell("close", self.name)


@dataclass
class JavaObject:
    client: JavaClient
    kind: str
    name: str
    thread: str

    def start(self, verb: str, *numbers: object) -> Call:
        """Start a call that may have to wait."""
        return self.client.jvm.tell(
            *("do", self.thread, self.client.name, self.kind, self.name, verb), *numbers
        )

    def __call__(self, verb: str, *numbers: object) -> str:
        return self.start(verb, *numbers).get()

    def also(self) -> JavaObject:
        """The same object in another thread."""
        return self.client.object(self.kind, self.name)

    def lock(self, lease_ms: int = -1) -> Call:
        return self.start("lock", lease_ms)

    def asleep(self) -> bool:
        """Whether it waits for a message; between its last attempt and that it can miss one."""
        return self.client.jvm.tell("asleep", self.thread).get() == "true"

    def interrupt(self) -> None:
        self.client.jvm.tell("interrupt", self.thread).get()


def median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


class Watched(Protocol):
    def listeners(self, name: str) -> int: ...
    def scripts(self) -> int: ...


def java_waits(server: Watched, name: str, thing: JavaObject, *lock: object) -> Call:
    """Start lock(), or another blocking call, in Java; return once it was refused and is asleep."""
    scripts = server.scripts()
    call = thing.start(*lock) if lock else thing.lock()
    if thing.kind == "spin":  # polls
        eventually(lambda: server.scripts() >= scripts + 2)
    else:
        eventually(thing.asleep)
    assert call.waits, call.answer
    return call


def java_listens(server: Watched, name: str, thing: JavaObject, *call: object) -> Call:
    """Start a call in Java; return once it has subscribed, perhaps before it asks again or
    sleeps."""
    eventually(lambda: server.listeners(name) == 0)
    waiting = thing.start(*call)
    eventually(lambda: server.listeners(name) > 0)
    return waiting

"""Redisson's side: a JVM with one version of Redisson behind a pipe; see java/Peer.java."""

from __future__ import annotations

import itertools
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from support import eventually

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


class Jvm:
    """One process; `version` is Redisson's."""

    def __init__(self, version: str, folder: Path) -> None:
        self.version = version
        self.number = tuple(int(part) for part in version.split("."))
        self._calls: dict[str, Call] = {}
        self._tags = itertools.count(1)
        self._threads = itertools.count(1)
        self._lock = threading.Lock()
        with (folder / "peer.log").open("w") as log:
            self.process = subprocess.Popen(
                # A small JVM that starts quickly; it does not run for long.
                [
                    *("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
                    *("-Xshare:auto", "-cp", f"{folder / 'classes'}:{folder / 'dependency'}/*"),
                    "Peer",
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            tag, nanos, answer = line.rstrip("\n").split(" ", 2)
            call = self._calls.pop(tag)
            call.at, call.answer = int(nanos) / 1e9, answer
            call.ended.set()
        for call in self._calls.values():
            call.at, call.answer = time.monotonic(), "error Killed the JVM ended"
            call.ended.set()

    def tell(self, *words: object) -> Call:
        text = " ".join(str(word) for word in words)
        call = Call(f"Redisson {self.version}: {text}")
        assert self.process.stdin
        with self._lock:
            tag = str(next(self._tags))
            self._calls[tag] = call
            self.process.stdin.write(f"{tag} {text}\n")
            self.process.stdin.flush()
        return call

    def open(self, name: str, port: int, watchdog_ms: int = 30_000) -> JavaClient:
        return self.connect(name, f"redis://127.0.0.1:{port}", watchdog_ms)

    def connect(self, name: str, url: str, watchdog_ms: int = 30_000) -> JavaClient:
        """A client for a URL; java/Deployed.java lists the supported forms."""
        uuid = self.tell("open", name, url, watchdog_ms).get()
        return JavaClient(self, name, uuid)

    def new_thread(self) -> str:
        return f"t{next(self._threads)}"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


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

"""Servers, processes and patience for the tests."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import redis
import snib
import snib.aio
from snib import _kept

sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))

from ports import free_port  # noqa: E402, F401


# How long a test waits for expected events.  Generous, because a machine may be slow or busy; an event that must not be
# late is compared with one that would take longer than this.
PATIENCE = 30.0
# The same for a key that must not stay: less than what is left of a default lease.
TIDY = 15.0
# A lease that is renewed every two seconds, for tests of renewals: a process may stall for that long.
RENEWED = 6.0
# URL options of clients that tolerate a stalled server.
PATIENT = "patience=30s&try_timeout=30s&reply_timeout=30s&connect_timeout=30s"


def kept_clients() -> set[int]:
    """The numbers of the clients with a hold that acquire() or `with` got, and that is kept for that alone."""
    kept = [*_kept._strong.values()]
    return {hold._lock._client._number for one in kept for _, hold, _, _ in one._holds.values()}


def eventually(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Wait until the condition is true; fail with its last value."""
    start = time.monotonic()
    end = start + seconds
    while True:
        value = condition()
        if value:
            return
        now = time.monotonic()
        assert now < end, f"still {value!r} after {seconds} s"
        time.sleep(min(0.02, max(0.002, (now - start) / 10)))  # what takes long is not asked often


def brief(lock: Any) -> snib.Hold:
    """A hold with a short lease; acquired once more if the lease had ended before the answer came."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return lock.hold()
        except snib.Unreachable:
            if time.monotonic() > end:
                raise


async def brief_in_task(lock: Any) -> snib.aio.Hold:
    """The same in asyncio."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return await lock.hold()
        except snib.Unreachable:
            if time.monotonic() > end:
                raise


def find_server() -> str:
    chosen = os.environ.get("SNIB_TEST_SERVER")
    found = chosen or shutil.which("redis-server") or shutil.which("valkey-server")
    assert found, "no redis-server or valkey-server; set SNIB_TEST_SERVER"
    return found


class Server:
    """A private server on a unix socket in its own folder."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.path = folder / "s"
        self.url = f"unix://{self.path}?{PATIENT}"
        self.process = subprocess.Popen(
            [
                find_server(),
                *("--port", "0", "--unixsocket", str(self.path), "--dir", str(folder)),
                *("--save", "", "--appendonly", "no", "--daemonize", "no"),
                *options,
            ],
            stdout=subprocess.DEVNULL,
        )
        self.admin = redis.Redis(unix_socket_path=str(self.path), decode_responses=True)
        try:
            eventually(self._answers)
        except BaseException:
            self.end()
            raise

    def _answers(self) -> bool:
        assert self.process.poll() is None, "the server ended"
        with contextlib.suppress(redis.RedisError):
            return bool(self.admin.ping())
        return False

    def left(self) -> tuple[list[str], list[str]]:
        """Keys and subscribed channels that are left.  What a killed client said about itself ends with its lease."""
        keys = [key for key in self.admin.keys() if not key.startswith("snib_client:")]
        return sorted(keys), sorted(self.admin.pubsub_channels())

    def clean(self) -> bool:
        return self.left() == ([], [])

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop the server with SIGSTOP, so that it does not answer."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def sentinel_of(master: int, folder: Path, *further: str) -> Iterator[int]:
    """The port of a single sentinel, for the master "main" at the given port; with further lines in its file."""
    port, config = free_port(), folder / "sentinel.conf"
    lines = [f"port {port}", f"dir {folder}", f"sentinel monitor main 127.0.0.1 {master} 1", *further]
    config.write_text("\n".join(lines) + "\n")
    process = subprocess.Popen([find_server(), str(config), "--sentinel"], stdout=subprocess.DEVNULL)
    try:
        with redis.Redis(port=port) as admin:

            def answers() -> bool:
                assert process.poll() is None, "the sentinel ended"
                with contextlib.suppress(redis.RedisError):
                    return bool(admin.ping())
                return False

            eventually(answers)
        yield port
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def canned_server(reply: bytes) -> Iterator[str]:
    """A TCP server that answers any request with the same bytes; yields its URL."""
    listener = socket.create_server(("127.0.0.1", 0))
    ends: list[socket.socket] = []

    def serve(peer: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := peer.recv(65536):
                # One reply for each RESP command, at least one for anything else.
                peer.sendall(reply * max(1, data.count(b"\r\n*") + data.startswith(b"*")))

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                peer, _ = listener.accept()
                ends.append(peer)
                threading.Thread(target=serve, args=(peer,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
        for end in ends:
            end.close()


class Program:
    """A Python program in a separate process; its `say` prints a line for hear()."""

    # The parent may have ignored SIGINT, as shells do for background jobs.
    PRELUDE = "import signal, sys, os, time, snib\nURL = sys.argv[1]\n" + (
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        # Without a buffer: a signal's handler may say something, too, before the line is out.
        "def say(*words): os.write(1, (' '.join(map(str, words)) + '\\n').encode())\n"
        # A hold with a short lease, acquired once more if the lease had ended before the answer came.
        "def brief(lock):\n"
        "    while True:\n"
        "        try: return lock.hold()\n"
        "        except snib.Unreachable: pass\n"
        # Warnings caused by a slow machine do not matter here.
        "import logging; logging.getLogger('snib').addHandler(logging.NullHandler())\n"
    )

    def __init__(self, source: str, url: str, *arguments: str) -> None:
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-X", "dev", "-c", self.PRELUDE + source, url, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )
        assert self.process.stdout and self.process.stdin
        self.output = self.process.stdout
        self.input = self.process.stdin

    @contextlib.contextmanager
    def limit(self, seconds: float) -> Iterator[None]:
        """Kill a program that takes longer, so that no test waits for it for ever."""
        timer = threading.Timer(seconds, self.process.kill)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()

    def hear(self) -> str:
        with self.limit(4 * PATIENCE):
            line = self.output.readline().strip()
        if not line:
            _, errors = self.rest()
            raise AssertionError(f"the program ended: {self.process.returncode}\n{errors}")
        return line

    def rest(self, seconds: float = 4 * PATIENCE) -> tuple[str, str]:
        """Wait for the end; returns the rest of the output, and all of stderr."""
        with self.limit(seconds):
            with contextlib.suppress(BrokenPipeError):
                self.input.close()
            output = self.output.read()
            self.output.close()
            self.process.wait()
        with self.errors:
            self.errors.seek(0)
            return output, self.errors.read()

    def tell(self, line: str = "") -> None:
        self.input.write(line + "\n")
        self.input.flush()

    def asleep(self) -> bool:
        """Whether the main thread is blocked in a system call."""
        status = Path(f"/proc/{self.process.pid}/stat").read_text()
        return status.rpartition(")")[2].split()[0] == "S"

    def end(self, seconds: float = 4 * PATIENCE) -> str:
        """Wait for a clean end; returns the rest of the output."""
        output, errors = self.rest(seconds)
        # In development mode asyncio logs slow callbacks.
        lines = [line for line in errors.splitlines() if not line.startswith("Executing <")]
        assert (self.process.returncode, lines) == (0, []), errors
        return output


def thread_count() -> int:
    """The number of threads of this process, including those of C."""
    return len(os.listdir("/proc/self/task"))

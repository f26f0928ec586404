"""One server process of a deployment: its ports, its folder, its start and end."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from wire import Link, ReplyError

# How long tests wait for expected events: long, because a machine may be slow or busy.
PATIENCE = 180.0


def eventually(condition: Callable[[], Any], seconds: float = PATIENCE, nap: float = 0.1) -> Any:
    """Wait until the condition is true, and return its value; fail with its last value.  What takes long is asked less
    and less often, down to every `nap` seconds: most conditions query every node of a deployment."""
    start = time.monotonic()
    while not (value := condition()):
        waited = time.monotonic() - start
        assert waited < seconds, f"still {value!r} after {seconds} s"
        time.sleep(min(nap, 0.005 + waited / 20))
    return value


def find_server() -> str:
    found = os.environ.get("SNIB_TEST_SERVER")
    found = found or shutil.which("redis-server") or shutil.which("valkey-server")
    assert found, "no redis-server or valkey-server; set SNIB_TEST_SERVER"
    return found


def version_of(binary: str) -> tuple[str, tuple[int, ...]]:
    """The product and its version: ("Redis", (7, 0, 15))."""
    text = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
    match = re.match(r"(\w+) server v=([\d.]+)", text)
    assert match, text
    return match[1], tuple(map(int, match[2].split(".")))


def has_tls(binary: str) -> bool:
    """Whether this server was built with TLS: if so, it complains about the missing certificate."""
    with tempfile.TemporaryDirectory(prefix="snib-tls-") as folder:
        words = [binary, "--port", "0", "--tls-port", "1", "--dir", folder, "--save", ""]
        text = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE).stdout
    return "No tls-" in text


# ---- Processes -----------------------------------------------------------------------------------

# A child with PR_SET_PDEATHSIG dies with the thread that started it, so one thread, which lives as long as this
# process, starts them all.
_maker = ThreadPoolExecutor(1, "processes")


def popen(words: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
    """A process that dies with this one, however this one dies."""
    command = ["setpriv", "--pdeathsig", "KILL", "--", *words]
    return _maker.submit(subprocess.Popen, command, **options).result()


class Node:
    """A server or a sentinel.  The test reaches it over its unix socket even when the network is cut."""

    def __init__(
        self,
        folder: Path,
        name: str,
        port: int,
        *,
        binary: str = "",
        host: str = "127.0.0.1",
        options: Sequence[str] = (),
        sentinel: bool = False,
        tls: bool = False,
        password: str = "",
        within: Sequence[str] = (),
    ) -> None:
        self.name, self.host, self.port = name, host, port
        self.folder = folder / name
        self.folder.mkdir()
        self.binary = binary or find_server()
        self.sentinel, self.tls, self.password = sentinel, tls, password
        self.within = list(within)  # words to put before the command, to start it in a network
        # A socket's path may have 107 bytes at most; pytest's folders come close.
        self._short = tempfile.mkdtemp(prefix="snib-")
        self.socket = Path(self._short) / "s"
        self.log = self.folder / "log"
        self.config = self.folder / "conf"
        listen = [f"port {port}"] if not tls else ["port 0", f"tls-port {port}"]
        lines = [*listen, f"bind {host}", f"unixsocket {self.socket}", f"dir {self.folder}"]
        lines += ["protected-mode no", "daemonize no"]
        if not sentinel:
            lines += ["save ''", "appendonly no", "enable-debug-command local"]
            lines += ["repl-diskless-sync yes", "repl-diskless-sync-delay 0"]
        self.config.write_text("\n".join([*lines, *options]) + "\n")
        self.process: subprocess.Popen[Any] | None = None
        self._admin: Link | None = None

    # -- Start and end

    def start(self, *, wait: bool = True) -> None:
        mode = ["--sentinel"] if self.sentinel else []
        with open(self.log, "ab") as log:
            self.process = popen(
                [*self.within, self.binary, str(self.config), *mode],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        if wait:
            self.wait()

    def wait(self) -> None:
        """Wait until it answers."""
        eventually(self._answers)

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, f"{self.name} ended: {self.log.read_text()[-2000:]}"
        with contextlib.suppress(OSError, ConnectionError, ReplyError):
            return bool(self.command("PING") == "PONG")
        return False

    @property
    def stopped(self) -> bool:
        return self.running and self._state() == "T"

    @property
    def running(self) -> bool:
        process = self.process  # another thread may kill it meanwhile
        return process is not None and process.poll() is None

    def kill(self) -> None:
        """Send SIGKILL; all peers see their connections end."""
        if self._admin:
            self._admin.close()
            self._admin = None
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
        self.socket.unlink(missing_ok=True)

    def stop(self) -> None:
        """Send SIGSTOP and wait until it has stopped: its connections stay open, but silent."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        eventually(lambda: self._state() == "T")

    def go_on(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def _state(self) -> str:
        """The state letter of ps; empty if the process does not exist, perhaps any more."""
        process = self.process
        if process is not None:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                stat = Path(f"/proc/{process.pid}/stat").read_text()
                return stat.rpartition(")")[2].split()[0]
        return ""

    def restart(self) -> None:
        """Kill it, and start it with the configuration that it wrote and no data."""
        self.kill()
        self.start()

    def end(self) -> None:
        self.kill()
        os.rmdir(self._short)

    # -- Queries

    @property
    def admin(self) -> Link:
        if self._admin is None:
            self._admin = Link(self.socket, password=self.password)
        return self._admin

    def command(self, *words: object) -> Any:
        """Run a command over the unix socket; an error reply is raised.  Reconnects if necessary."""
        try:
            return self.admin.command(*words)
        except ConnectionError:
            if self._admin:
                self._admin.close()
                self._admin = None
            return self.admin.command(*words)

    def info(self, section: str) -> dict[str, str]:
        lines = self.command("INFO", section).split("\r\n")
        return dict(line.split(":", 1) for line in lines if ":" in line)

    @property
    def role(self) -> str:
        """The role that it reports: master, slave or sentinel."""
        return str(self.command("ROLE")[0])

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def __repr__(self) -> str:
        return f"<{self.name} {self.address}>"

"""Processes forked for one program each, by a process that has already started: `conform.py serve`.

A request is one line of JSON: the program's arguments, and the files for its stdout and stderr.  The answer is two
lines: its process id, and in the end its exit code.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path


def serve(path: str) -> list[str]:
    """Answer requests; returns only in the forked processes, with the program's arguments."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(64)
        waiting: set[int] = set()
        while True:
            peer, _ = listener.accept()
            waiting -= {pid for pid in waiting if os.waitpid(pid, os.WNOHANG)[0]}
            pid = os.fork()
            if pid == 0:
                break
            waiting.add(pid)
            peer.close()
    with peer, peer.makefile("r") as lines:
        request = lines.readline()
        if not request:  # it only wanted to know whether somebody answers
            os._exit(0)
        arguments, *outputs = json.loads(request)
        pid = os.fork()
        if pid == 0:
            for number, output in enumerate(outputs, 1):
                file = os.open(output, os.O_WRONLY | os.O_CREAT)
                os.dup2(file, number)
                os.close(file)
            return list(arguments)
        with contextlib.suppress(OSError):  # the asking side may have gone
            peer.sendall(b"%d\n" % pid)
            _, status = os.waitpid(pid, 0)
            peer.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
    os._exit(0)


class Served:
    """A serving process, for as long as it is needed."""

    def __init__(self, program: Path, folder: str, *more: str) -> None:
        self._path = f"{folder}/serve"
        self._process = subprocess.Popen([sys.executable, str(program), "serve", self._path, *more])
        end = time.monotonic() + 60
        while True:
            with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
                probe.connect(self._path)
                return
            if self._process.poll() is not None or time.monotonic() > end:
                self.end()
                sys.exit(f"{program} does not start")
            time.sleep(0.01)

    def run(self, arguments: list[str], folder: str, limit: float) -> subprocess.CompletedProcess[str]:
        """As subprocess.run with its output captured."""
        outputs = [f"{folder}/stdout", f"{folder}/stderr"]

        def printed() -> list[str]:
            return [Path(output).read_text() if Path(output).exists() else "" for output in outputs]

        with socket.socket(socket.AF_UNIX) as peer, peer.makefile("r") as lines:
            peer.connect(self._path)
            peer.settimeout(limit)
            peer.sendall(json.dumps([arguments, *outputs]).encode() + b"\n")
            pid = int(lines.readline())
            try:
                code = int(lines.readline())
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(arguments, limit, printed()[0].encode()) from None
        return subprocess.CompletedProcess(arguments, code, *printed())

    def end(self) -> None:
        self._process.kill()
        self._process.wait()

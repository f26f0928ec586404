"""Ports for the servers of tests: ports.c, and go/ports_test.go, follow the same rule.

A port that the system gave away and that was closed again may be an outgoing connection's before the server has it: those
come and go all the time.  So these are below the system's range, in blocks.  A block belongs to the process that has locked
its file, so a server that is down keeps its port.
"""
from __future__ import annotations

import contextlib
import fcntl
import os
import socket

FOLDER = "/tmp"  # whatever $TMPDIR is: it is one for all languages
FIRST, BLOCK, BLOCKS = 11000, 32, 300
BUS = 10000  # each has a second port, so much higher, for a cluster's bus


class Ports:
    """A block of ports reserved for this process."""

    def __init__(self) -> None:
        for i in range(BLOCKS):
            block = (os.getpid() + i) % BLOCKS
            path = f"{FOLDER}/snib-ports-{os.getuid()}-{block}"
            self._lock = open(path, "w")
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._first = FIRST + block * BLOCK
                self._taken = 0
                return
            self._lock.close()
        raise AssertionError("every block of ports is taken")

    def _try(self) -> int | None:
        while self._taken < BLOCK:
            port = self._first + self._taken
            self._taken += 1
            if all(self._is_free(p) for p in (port, port + BUS)):
                return port
        return None

    def take(self) -> int:
        """A port that was not taken before and is not in use, even by a process that ignores the rule."""
        port = self._try()
        assert port is not None, "a deployment has no more ports than a block has"
        return port

    def take_any(self) -> int:
        """The same, but perhaps one that was taken long ago."""
        port = self._try()
        if port is None:
            self._taken = 0
            port = self.take()
        return port

    @staticmethod
    def _is_free(port: int) -> bool:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind(("0.0.0.0", port))
                return True
        return False

    def close(self) -> None:
        self._lock.close()


_own: tuple[int, Ports] | None = None  # and whose: a child has none of its parent's


def free_port() -> int:
    """One of this process' own ports, in turn."""
    global _own
    if _own is None or _own[0] != os.getpid():
        _own = os.getpid(), Ports()
    return _own[1].take_any()

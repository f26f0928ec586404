"""A Redis server inside the process, for tests of programs that take locks.

    from snib import testing

    with testing.Server() as server, snib.connect(server.url) as client:
        hold = client.lock("orders").hold()
        server.stall()
        server.advance(30.0)  # as if the machine had slept: the hold is lost
        assert hold.lost.is_set()

The server runs the library's real scripts on data in memory.  Its clock and that of all clients of
the process are moved forward by hand, and faults are caused by name.  With pytest, the fixtures
snib_server and snib_client give each test its own.  Asyncio programs use it in the same way: no
function waits for more than the server's thread.

It answers only what Snib sends, persists nothing, and is no cluster, sentinel or replica.  A name
belongs to the process: two programs that use the same name have two servers.
"""

from __future__ import annotations

import ctypes
import math
import os
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from . import _core, _errors
from ._mutex import Mutex
from ._stays import stays

__all__ = ["Server"]

S = TypeVar("S", bound="Server")


class _Error(ctypes.Structure):
    """snib_error."""

    _fields_ = [
        ("code", ctypes.c_int32),
        ("os_error", ctypes.c_int32),
        ("reason", ctypes.c_int32),
        ("server", ctypes.c_int32),
        ("text", ctypes.c_char * 496),
    ]


def _load() -> ctypes.CDLL:
    path = Path(__file__).with_name("libsnib-testing.so")
    if not path.exists():
        raise ImportError(
            "this build of Snib has no test kit: install Lua 5.1 (on Debian liblua5.1-0-dev) and build it again"
        )
    try:
        lib = ctypes.CDLL(str(path))
    except OSError as error:
        raise ImportError(
            f"the test kit needs Lua 5.1 (on Debian liblua5.1-0): {error}"
        ) from error
    text, handle, number = ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int64
    lib.snib_memory_start.argtypes = [text, ctypes.POINTER(handle), ctypes.POINTER(_Error)]
    lib.snib_memory_stop.argtypes = [handle]
    lib.snib_memory_stop.restype = None
    lib.snib_memory_url.argtypes = [handle]
    lib.snib_memory_url.restype = text
    lib.snib_memory_stand.restype = None
    lib.snib_memory_advance.argtypes = [number, ctypes.POINTER(_Error)]
    lib.snib_memory_fault.argtypes = [handle, text, text, ctypes.POINTER(_Error)]
    lib.snib_memory_has.argtypes = [handle, text]
    for name in ("snib_memory_connections", "snib_memory_requests"):
        getattr(lib, name).argtypes = [handle]
        getattr(lib, name).restype = number
    return lib


_lib = _load()
_mutex = Mutex(threading.RLock())  # stop() frees what other threads may be using
os.register_at_fork(
    before=_mutex.lock.acquire, after_in_parent=_mutex.lock.release, after_in_child=_mutex.lock.release
)


def _made(error: _Error) -> Exception:
    return _errors.make(error.code, error.text.decode("utf-8", "replace"), error.os_error)


def _call(function: Any, *arguments: object) -> None:
    error = _Error()
    if function(*arguments, ctypes.byref(error)) != 0:
        raise _made(error)


def _text(value: str, what: str) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a str, not {type(value).__name__}")
    if "\0" in value:
        raise _errors.make(-1, f"{what} contains a NUL")
    return value.encode("utf-8", "surrogatepass")


class Server:
    """A memory server; it runs until stop(), or the end of a `with`.

    Without a name it gets one that nothing else uses.  A name is for programs that take their URL
    from elsewhere: memory://NAME.  A second server of the same name raises snib.InvalidArgument.
    """

    def __init__(self, name: str | None = None) -> None:
        handle = ctypes.c_void_p()
        self._handle: ctypes.c_void_p | None = None
        given = None if name is None else _text(name, "name")
        _call(_lib.snib_memory_start, given, ctypes.byref(handle))
        self._handle = handle
        self._url: str = _lib.snib_memory_url(handle).decode()

    __reduce_ex__ = stays

    def __enter__(self: S) -> S:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<snib.testing.Server {self._url}{'' if self._handle else ', stopped'}>"

    def stop(self) -> None:
        """End the server, with its data and connections.  It may be called again."""
        with _mutex:
            handle, self._handle = self._handle, None
            if handle:
                _lib.snib_memory_stop(handle)

    def _running(self) -> ctypes.c_void_p:
        if self._handle is None:
            raise _errors.make(-60, f"the memory server {self._url} is stopped")
        return self._handle

    @property
    def url(self) -> str:
        """memory://NAME, for snib.connect() and snib.aio.connect()."""
        return self._url

    def advance(self, seconds: float) -> None:
        """Move the clocks of all memory servers and of all clients of this process forward.

        It is as if the whole machine had been suspended for that time: a hold whose lease ends
        meanwhile is lost.  To let holds be renewed, advance by a third of a lease at a time, and
        wait until hold.remaining() has grown.
        """
        if not 0 <= seconds <= 31536000:  # also false for a NaN
            raise _errors.make(-1, "the clock can be moved by 0 to 31536000 seconds")
        ms = math.ceil(seconds * 1000)
        moved = 0  # an interrupted step may move the clients alone, but never the servers alone
        error = _Error()
        reference = ctypes.byref(error)
        with _mutex:
            try:
                _lib.snib_memory_stand()  # until both have moved, no server answers
                _core.advance_clock(ms)
                moved = ms
            finally:  # called from here: a signal's handler could raise at the start of a function in Python
                code = _lib.snib_memory_advance(moved, reference)
        if code != 0:
            raise _made(error)

    def fault(self, name: str, argument: str | None = None) -> None:
        """Cause a fault by its name, as snib_memory_fault() in snib_testing.h describes it."""
        given = None if argument is None else _text(argument, "argument")
        with _mutex:
            _call(_lib.snib_memory_fault, self._running(), _text(name, "name"), given)

    def lose_reply(self, times: int = 1) -> None:
        """Execute the next script, but lose its reply and cut its connection; so often."""
        self.fault("lose_reply", str(times))

    def stall(self) -> None:
        """Read and answer nothing until resume().

        The close of a client that still holds locks waits for its patience, as at a real server that hangs.
        """
        self.fault("stall")

    def resume(self) -> None:
        """End stall()."""
        self.fault("resume")

    def refuse(self) -> None:
        """Cut all connections and accept none until accept()."""
        self.fault("refuse")

    def accept(self) -> None:
        """End refuse()."""
        self.fault("accept")

    def kill_connection(self, which: int | None = None) -> None:
        """Cut one connection, 1 is the oldest, or all."""
        self.fault("kill_connection", None if which is None else str(which))

    def expire(self, key: str) -> None:
        """End a key, usually the lock's, now; nobody is told."""
        self.fault("expire", key)

    def snapshot(self) -> None:
        """Remember the data for failover()."""
        self.fault("snapshot")

    def failover(self) -> None:
        """Replace the server by another one, with the data of the last snapshot or without data."""
        self.fault("failover")

    def heal(self) -> None:
        """End all faults that last."""
        self.fault("heal")

    def has(self, key: str) -> bool:
        """Whether the server has this key."""
        with _mutex:
            return bool(_lib.snib_memory_has(self._running(), _text(key, "key")))

    @property
    def connections(self) -> int:
        """How many connections there are."""
        with _mutex:
            return int(_lib.snib_memory_connections(self._running()))

    @property
    def requests(self) -> int:
        """How many requests the server has executed."""
        with _mutex:
            return int(_lib.snib_memory_requests(self._running()))

"""The end of the process: of multiprocessing children, and by SIGTERM."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from types import FrameType, ModuleType
from typing import Any

from . import _client, _log
from ._error import Error

# ---- multiprocessing -----------------------------------------------------------------------------


class _Anchor:
    """An object for multiprocessing's registry, which keeps only a weak reference to it."""


_anchor = _Anchor()
_watched = False


def _end_of_child() -> None:
    """A multiprocessing child ends with os._exit(), without atexit handlers."""
    # Let threads finish under their locks.  Until Python 3.12 this comes before multiprocessing's own call of it, and
    # only this call ends the idle threads of an executor.
    try:
        threading._shutdown()  # type: ignore[attr-defined]
    finally:  # a Ctrl-C ends the wait for them, as it does at the end of any other process
        _client._close_all()


def _arm(_: object) -> None:
    """Make a multiprocessing child release its holds when it ends."""
    util: Any = sys.modules["multiprocessing.util"]
    util.Finalize(None, _end_of_child, exitpriority=-100)


def _watch_multiprocessing() -> None:
    """Prepare a process that may be, or may start, a multiprocessing child.

    A child calls the functions registered for "after fork" when it starts, however it was
    started; a module that is imported later notices that it is in a child.  Without
    multiprocessing nothing is imported.
    """
    global _watched
    util: Any = sys.modules.get("multiprocessing.util")
    process: ModuleType | None = sys.modules.get("multiprocessing.process")
    if util is None or process is None or _watched:
        return
    _watched = True  # in children too, which inherit the registry
    util.register_after_fork(_anchor, _arm)
    if process.parent_process() is not None:
        _arm(_anchor)


# ---- SIGTERM -------------------------------------------------------------------------------------


class _OnSigterm:
    """A handler, and the one that it replaced.

    There may be several: a library's, which calls the one that it found, may stand between two.
    """

    _is_closed = False  # the clients, by the first of them that is called

    def __init__(self, before: Any) -> None:
        self._before = before

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if not callable(self._before):
            self._end(number)
        if _OnSigterm._is_closed:
            self._before(number, frame)
            return
        _close_each()
        _OnSigterm._is_closed = True
        try:
            self._before(number, frame)
        finally:
            _OnSigterm._is_closed = False  # the program may go on, with other clients

    def _end(self, number: int) -> None:
        try:
            if not self._is_closed:
                _client._close_all()  # meanwhile no other thread runs
        finally:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            os._exit(128 + number)  # the first process of a container is not ended by the signal


def release_on_sigterm() -> None:
    """Make SIGTERM release what this process holds, and then have its previous effect.

    Nothing happens unless you call this, in the main thread.  When SIGTERM arrives, every client of
    the process is closed, which takes a second at most, and another one where a logging handler does
    not return: holds are released, waits end.  Then the previous handler is called; if there was none,
    the signal ends the process.  Without this call, if SIGTERM ends a process, its locks become free
    only when their leases end.

    Call it after other libraries have set their handlers, and after asyncio's
    loop.add_signal_handler(), whose callback still runs.  If the existing handler shuts the program
    down cleanly, so that with statements and atexit release the locks, this call is not needed;
    with it, work that still runs learns from its hold (lost, check()) that the lock is gone.  A
    SIGTERM that is ignored stays ignored.

    Python runs handlers in the main thread between two steps of the program, so C code that does
    not return delays this one.  Calling it again is allowed, also after a library has set a handler
    that calls the one it found.  The child of a fork releases its own holds.

    ValueError    called in a thread other than the main thread
    RuntimeError  the existing handler was not set from Python, so it cannot be called
    """
    if threading.current_thread() is not threading.main_thread():
        raise ValueError("release_on_sigterm() works in the main thread only")
    found = signal.getsignal(signal.SIGTERM)
    if found is None:
        raise RuntimeError("SIGTERM has a handler that was not set from Python")
    if found is not signal.SIG_IGN and not isinstance(found, _OnSigterm):
        signal.signal(signal.SIGTERM, _OnSigterm(found))


def _close_each() -> None:
    """Release what is held while the program continues."""
    end = time.monotonic() + _client._EXIT_MS / 1000
    clients = _client.living_clients()
    for client in clients:
        left = max(0.0, end - time.monotonic())
        with contextlib.suppress(Error):  # a hold not released in time ends with its lease
            client._end(int(left * 1000), untold=True)
    for client in clients:  # afterwards: a handler that does not return would take the time of all others
        _log.deliver_all(client, end)


_watch_multiprocessing()
os.register_at_fork(after_in_child=_watch_multiprocessing)

"""Native threads, even where gevent or eventlet has replaced them by greenlets.

A call that waits inside the core for the life of the program would block every greenlet.
"""

from __future__ import annotations

import _thread
import importlib
import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any


def _patched() -> bool:
    return _original("_thread", "start_new_thread") is not _thread.start_new_thread


def _original(module: str, name: str) -> Any:
    gevent: Any = sys.modules.get("gevent.monkey")
    eventlet: Any = sys.modules.get("eventlet.patcher")
    if gevent is not None:
        return gevent.get_original(module, name)
    if eventlet is not None:
        return getattr(eventlet.original(module), name)
    return getattr(importlib.import_module(module), name)


def epoll() -> select.epoll:
    """An epoll object to wait on in a native thread."""
    made: select.epoll = _original("select", "epoll")()
    return made


def sleep(seconds: float) -> None:
    """In this thread, also where a greenlet may not wait: a signal's handler may have interrupted their hub."""
    _original("time", "sleep")(seconds)


def start(run: Callable[..., None], arguments: tuple[object, ...], name: str) -> None:
    """Run a function in a daemon thread, which has begun on return.

    Python crashes if it ends while a thread is about to begin.

    Raises RuntimeError if no more threads can be started.
    """
    if _patched():
        begun = _original("_thread", "allocate_lock")()
        begun.acquire()

        def begin() -> None:
            begun.release()
            run(*arguments)

        _original("_thread", "start_new_thread")(begin, ())
        begun.acquire()
    else:
        threading.Thread(target=run, args=arguments, name=name, daemon=True).start()


def without_signals(call: Callable[[], None]) -> None:
    """Block all signals of this thread meanwhile, and so those of a thread that it starts for its life.

    What a handler raises comes out as it is, even if the call handles exceptions of that class.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:  # from here on: the call that blocks them may raise what a handler does
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        call()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def main_thread() -> int:
    """The identity of the thread in which Python calls signal handlers."""
    if _patched() and threading.get_native_id() == os.getpid():
        here: int = _original("_thread", "get_ident")()
        return here
    return threading.main_thread().ident or 0

"""Threads of the system, also where gevent or eventlet has put greenlets in their place.

What waits inside the core for as long as the program lives would stop every greenlet there.
"""

from __future__ import annotations

import _thread
import importlib
import os
import select
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
    """A set of descriptors to wait for in a thread of the system."""
    made: select.epoll = _original("select", "epoll")()
    return made


def start(run: Callable[..., None], arguments: tuple[object, ...], name: str) -> None:
    """Run a function in a daemon thread.

    RuntimeError: there can be no more threads.
    """
    if _patched():
        _original("_thread", "start_new_thread")(run, arguments)
    else:
        threading.Thread(target=run, args=arguments, name=name, daemon=True).start()


def main_thread() -> int:
    """The identity of the thread in which Python calls the handlers of signals."""
    if _patched() and threading.get_native_id() == os.getpid():
        here: int = _original("_thread", "get_ident")()
        return here
    return threading.main_thread().ident or 0

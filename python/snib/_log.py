"""The core's log records, for the logger `snib`.

A separate thread delivers them, so no handler can delay a lock.  A slow handler only delays further
records; at most 256 per client wait, and older ones are dropped and counted.  The thread starts
with the first operation of a client, if the logger is enabled for errors.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import threading
import traceback
import weakref
from typing import TYPE_CHECKING

from . import _core
from ._error import Error

if TYPE_CHECKING:
    from ._client import BaseClient

logger = logging.getLogger("snib")

_ALL = 3  # of snib_log_level
_LEVELS = {1: logging.ERROR, 2: logging.WARNING, 3: logging.INFO}


class _Reader:
    """What waits for records of all clients of the process."""

    def __init__(self) -> None:
        self._epoll = select.epoll()  # which forgets what is closed
        self._clients: dict[int, weakref.ref[BaseClient]] = {}
        # Signals are for the program's threads, whatever those let through.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            threading.Thread(target=self._run, name="snib log", daemon=True).start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def add(self, client: BaseClient, queue: _core.QueueHandle) -> None:
        descriptor = _core.queue_fd(queue)
        self._clients[descriptor] = weakref.ref(client)
        self._epoll.register(descriptor, select.EPOLLIN)

    def _run(self) -> None:
        while True:
            for descriptor, _ in self._epoll.poll():
                client = self._clients[descriptor]()
                if client is not None:
                    deliver(client)
                del client


_reader: _Reader | None = None


def begin(client: BaseClient) -> None:
    """Before a client's first operation."""
    global _reader
    client._logs = True
    if not logger.isEnabledFor(logging.ERROR):
        return
    with contextlib.suppress(Error, OSError, RuntimeError):  # it can do without
        queue = _core.queue_new(client._handle)
        _core.client_log(client._handle, queue, _ALL)
        client._log_queue = queue
        if _reader is None:
            _reader = _Reader()
        _reader.add(client, queue)


def deliver(client: BaseClient) -> None:
    """Hand over what is there."""
    queue = client._log_queue
    if queue is None:
        return
    with contextlib.suppress(Error):  # another thread is at it
        while events := _core.queue_drain(queue):
            for _, dropped, level, text in events:
                _tell(client, level, str(text), dropped)


def _tell(client: BaseClient, level: int, text: str, dropped: int) -> None:
    try:
        if dropped:
            logger.warning("%d log records were dropped", dropped, extra={"client": client.id})
        logger.log(_LEVELS.get(level, logging.ERROR), "%s", text, extra={"client": client.id})
    except Exception:  # of a filter; handlers see to their own
        if logging.raiseExceptions:
            traceback.print_exc()


def _forget() -> None:
    """In a forked child: the thread is the parent's."""
    global _reader
    _reader = None


os.register_at_fork(after_in_child=_forget)

"""Deliver the core's log records to the logger `snib`.

A separate thread delivers them, so no handler can delay a lock.  A slow handler only delays further
records; at most 256 per client wait, and older ones are dropped and counted.  The thread starts
with the first operation of a client, if the logger is enabled for errors.
"""

from __future__ import annotations

import contextlib
import logging
import time
from typing import TYPE_CHECKING, Any

from . import _core, _native
from ._error import Error
from ._reader import Reader, print_failure

if TYPE_CHECKING:
    from ._client import BaseClient

logger = logging.getLogger("snib")

_ALL = 3  # of snib_log_level
_LEVELS = {1: logging.ERROR, 2: logging.WARNING, 3: logging.INFO}


_reader = Reader("snib log")


def begin(client: BaseClient) -> None:
    """Called before a client's first operation."""
    if logger.isEnabledFor(logging.ERROR):
        _native.without_signals(lambda: _begin(client))  # whose handlers may raise an OSError: TimeoutError


def _begin(client: BaseClient) -> None:
    with contextlib.suppress(Error, OSError, RuntimeError):  # a client works without a log
        queue = _core.queue_new(client._handle)
        _core.client_log(client._handle, queue, _ALL)
        client._log_queue = queue
        _reader.add(client, queue, _deliver_in_thread)


def _deliver_in_thread(client: BaseClient) -> None:
    client._logging = True
    try:
        deliver(client)
    finally:
        client._logging = False


def deliver_all(client: BaseClient, until: float) -> None:
    """Deliver the last records; wait for the thread, which may have some in its hands, until then."""
    deliver(client)
    while client._logging and time.monotonic() < until:
        time.sleep(0.001)
    deliver(client)


def deliver(client: BaseClient) -> None:
    """Deliver the records that are waiting."""
    queue = client._log_queue
    if queue is None:
        return
    with contextlib.suppress(Error):  # another thread is delivering them
        while events := _core.queue_drain(queue, []):
            for _, dropped, level, text in events:
                _tell(client, level, str(text), dropped)


def _tell(client: BaseClient, level: int, text: str, dropped: int) -> None:
    if dropped:
        write(client, logging.WARNING, "%d log records were dropped", dropped)
    write(client, _LEVELS.get(level, logging.ERROR), "%s", text)


def write(
    client: BaseClient | None, level: int, text: str, *arguments: object, **more: Any
) -> None:
    """Log a record, of one client or of none; a program's format may name the client in either case."""
    try:
        extra = {"client": "" if client is None else client.id}
        logger.log(level, text, *arguments, extra=extra, **more)
    except Exception:  # raised by a filter; handlers catch their own
        if logging.raiseExceptions:
            print_failure()

"""Deliver the core's log records to the logger `snib`.

A separate thread delivers them, so no handler can delay a lock.  A slow handler only delays further
records; at most 256 per client wait, and older ones are dropped and counted.  The thread starts
with the first operation of a client, if the logger is enabled for errors.  The end of a client, or of
the process, waits for it for a moment; what no handler has taken then is told later, or by nobody.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from . import _core, _native
from ._error import Error
from ._reader import Reader, print_failure

if TYPE_CHECKING:
    from ._client import BaseClient

logger = logging.getLogger("snib")

_ALL = 3  # of snib_log_level
_LEVELS = {1: logging.ERROR, 2: logging.WARNING, 3: logging.INFO}
_PAUSE = 0.001  # seconds between two looks at what another thread does

_reader = Reader("snib log")
_fetching = True  # the thread may do so

# Clients that have ended before all their records were told, for which the thread keeps them.
_late: dict[int, BaseClient] = {}
os.register_at_fork(after_in_child=_late.clear)


def begin(client: BaseClient) -> None:
    """Called before a client's first operation."""
    if logger.isEnabledFor(logging.ERROR):
        _native.without_signals(lambda: _begin(client))  # whose handlers may raise an OSError: TimeoutError


def _begin(client: BaseClient) -> None:
    with contextlib.suppress(Error, OSError, RuntimeError):  # a client works without a log
        queue = _core.queue_new(client._handle)
        _core.client_log(client._handle, queue, _ALL)
        client._log_queue = queue
        try:
            _reader.add(client, queue, _deliver)
        except BaseException:
            client._log_queue = None  # nobody reads it
            raise


def runs_here() -> bool:
    """Whether the caller is, or is called by, a handler or a filter that has one of these records."""
    return _reader.runs_here()


def _deliver(client: BaseClient) -> None:
    """In the thread, and nowhere else: a handler may never return."""
    records = client._log_records
    while True:
        client._logging = True
        try:
            while records:
                _, dropped, level, text = records.pop(0)
                _tell(client, level, str(text), dropped)
        finally:
            client._logging = False
        if not _fetching:
            _native.sleep(_PAUSE)
            return
        _fetch(client)
        if not records:
            _late.pop(id(client), None)
            return


def _fetch(client: BaseClient) -> None:
    """Take records out of the core, in one step: at any moment each is there, in the list, or being told."""
    queue = client._log_queue
    if queue is not None:
        with contextlib.suppress(Error):  # in the child of a fork that Python does not know of
            _core.queue_drain(queue, client._log_records)


def deliver_all(client: BaseClient, until: float) -> None:
    """Have the thread deliver what there is, and wait for that, but not longer than until then.

    Not by the caller itself, which may be a signal's handler: a logging handler that is stuck has its lock, and so has
    the code that a signal has interrupted.
    """
    queue = client._log_queue
    if queue is None:
        return
    while True:
        if not (client._log_records or client._logging):
            _fetch(client)
            if not (client._log_records or client._logging):
                return
            _wake(queue)
        if time.monotonic() >= until:
            break
        _native.sleep(_PAUSE)
    _late[id(client)] = client
    _wake(queue)


def _wake(queue: _core.QueueHandle) -> None:
    with contextlib.suppress(Error):
        _core.queue_wake(queue)


@contextlib.contextmanager
def only_told() -> Iterator[None]:
    """Meanwhile the caller alone fetches: the thread would rest as it does so, see snib__py_rest_if_exiting()."""
    global _fetching
    _fetching = False
    try:
        yield
    finally:
        _fetching = True


def _tell(client: BaseClient, level: int, text: str, dropped: int) -> None:
    try:
        if dropped:
            write(client, logging.WARNING, "%d log records were dropped", dropped)
        write(client, _LEVELS.get(level, logging.ERROR), "%s", text)
    except BaseException:  # a filter's SystemExit, say: the thread goes on with the next record
        print_failure()


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

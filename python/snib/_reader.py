"""A thread that reads the queues of many clients."""

from __future__ import annotations

import contextlib
import os
import select
import threading
import traceback
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from . import _core, _native
from ._mutex import Mutex

if TYPE_CHECKING:
    from ._client import BaseClient

Deliver = Callable[["BaseClient"], None]


class Reader:
    """One for each kind of queue; its thread starts with the first queue."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._epoll: select.epoll | None = None
        self._forget()
        os.register_at_fork(after_in_child=self._forget)  # the thread belongs to the parent

    def _forget(self) -> None:
        if self._epoll is not None:
            self._epoll.close()  # which the thread's frame keeps, even in a child
        self._mutex = Mutex(threading.RLock())  # which a signal's handler that uses a client may find locked by its thread
        self._epoll = None
        self._thread = 0
        self._clients: dict[int, tuple[weakref.ref[BaseClient], Deliver]] = {}

    def _start(self) -> select.epoll:
        epoll = _native.epoll()  # drops closed descriptors by itself
        # Signals are left to the program's threads.
        _native.without_signals(lambda: _native.start(self._run, (epoll,), self._name))
        return epoll

    def add(self, client: BaseClient, queue: _core.QueueHandle, deliver: Deliver) -> None:
        """Call deliver(client) when the client's queue has events.

        Raises OSError or RuntimeError if there is no descriptor or thread left.
        """
        descriptor = _core.queue_fd(queue)
        with self._mutex:
            if self._epoll is None:
                self._epoll = self._start()
            self._clients[descriptor] = weakref.ref(client), deliver
            self._epoll.register(descriptor, select.EPOLLIN)

    def runs_here(self) -> bool:
        return self._thread == threading.get_native_id()

    def _run(self, epoll: select.epoll) -> None:
        self._thread = threading.get_native_id()
        clients = self._clients
        while True:
            for descriptor, _ in epoll.poll():
                known, deliver = clients[descriptor]
                client = known()
                if client is not None:
                    _call(deliver, client)
                del client


def _call(deliver: Deliver, client: BaseClient) -> None:
    try:
        deliver(client)
    except BaseException:  # a filter's SystemExit, say: the thread goes on, for all other clients
        print_failure()


def print_failure() -> None:
    """Print the exception that is being handled, unless the program has closed its stderr."""
    with contextlib.suppress(Exception):
        traceback.print_exc()

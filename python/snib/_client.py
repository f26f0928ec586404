"""What both clients share: options, statistics, and how they end at exit and in forked children."""

from __future__ import annotations

import _thread
import atexit
import functools
import itertools
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import starmap
from typing import Any, TypeVar
from weakref import KeyedRef

from . import _core, _credentials, _debug, _kept, _log, _native
from ._options import Options
from ._stays import stays

T = TypeVar("T")

# Time limit at interpreter exit for the releases of all clients together.
_EXIT_MS = 1000

# How long, in seconds, an end waits for a handler of log records that does not return.
_LAST_RECORDS = 1.0

_exiting = False

_new_number = itertools.count(1).__next__

# Keyed by identity: a set cannot be iterated while other threads add to it.
_clients: dict[int, KeyedRef[int, BaseClient]] = {}

_gone = functools.partial(_core.forget_dead, _clients)  # runs no Python, see bindings/python_drop.c


def living_clients() -> list[BaseClient]:
    return [client for ref in [*_clients.values()] if (client := ref()) is not None]


def _address(url: str | None) -> str:
    """Where the locks are: the URL without user, password and options."""
    url = url or os.environ.get("SNIB_URL") or "redis://127.0.0.1:6379"
    where, _, options = url.partition("?")
    scheme, _, rest = where.partition("://")
    host, slash, path = rest.partition("/")  # a path may have an @
    db = ["?" + option for option in options.split("&") if option.startswith("db=")]
    return "".join([scheme, "://", host.rpartition("@")[2], slash, path, *db])


@dataclass(frozen=True)
class Stats:
    """A snapshot of a client's counters; snib.h says what each of them counts."""

    acquisitions: int
    reentries: int
    releases: int
    waits: int
    handovers: int
    timeouts: int
    cancels: int
    renewals: int
    renewal_commands: int
    renewal_failures: int
    lost_expired: int
    lost_taken: int
    lost_deleted: int
    lost_unreachable: int
    lost_max_hold: int
    lost_closed: int
    abandoned: int
    rechecks: int
    messages: int
    polling: int
    connects: int
    reconnects: int
    commands: int
    writes: int
    reads: int
    wakes: int
    clock_moves: int
    watchdog_late_us: int
    held: int
    waiting: int
    memory: int
    wait_time: tuple[int, ...]
    hold_time: tuple[int, ...]
    lost_failover: int
    debug_warnings: int


class BaseClient(Options):
    __doc__ = Options.__doc__

    def _open(self, url: str | None, values: tuple[int | str | None, ...]) -> None:
        self._handle = _core.client_open(url, (*values, int(self._credentials is not None)))
        self._number = _new_number()
        self._address = _address(url)
        self._debug = _core.client_debugs(self._handle)
        self._begun = False
        self._ready = False  # nothing is to be done before an operation
        self._logging = False  # the thread that delivers log records does so just now
        self._log_queue: _core.QueueHandle | None = None
        self._log_records: list[Any] = []  # fetched, and not delivered yet
        self._login_queue: _core.QueueHandle | None = None
        self._begin()
        _clients[id(self)] = KeyedRef(self, _gone, id(self))

    __reduce_ex__ = stays

    def _begin(self) -> None:
        """What a subclass needs to set up."""

    @property
    def id(self) -> str:
        """The client's UUID, the first part of its owners; the child of a fork gets a new one."""
        return _core.client_id(self._handle)

    def set_label(self, label: str | None) -> None:
        """Change what this client says about itself, such as the order it works on; None: nothing.

        At most 128 bytes without control characters.  Whoever asks for its identity sees it at once if the client
        has told who it is, else when it does.  The child of a fork begins with the option's label again.  Raises
        InvalidArgument, and NotSupported with identity=False.
        """
        _core.client_set_label(self._handle, label)

    def stats(self) -> Stats:
        """The client's counters now; no round trip."""
        counters, wait_time, hold_time, more = _core.client_stats(self._handle)
        values: tuple[Any, ...] = (*counters, wait_time, hold_time, *more)
        return Stats(*values)

    def _end(self, wait: int, untold: bool = False) -> None:
        """Close; afterwards nothing is held.

        untold  do not wait for the records of the close, as one of their handlers cannot: they come after it
        """
        until = time.monotonic() + wait / 1000
        try:
            _core.client_close(self._handle, wait)
        finally:
            _kept.forget(self._number)
            if not untold:
                last = time.monotonic() + _LAST_RECORDS
                _log.deliver_all(self, last if wait < 0 else min(last, until))

    def _used(self) -> None:
        """Called before each operation."""
        if not self._begun:
            self._begun = True  # before anything that lets other threads run, each of which would make queues
            self._ready = not self._debug
            self._begin_queues()
        if self._debug:
            _core.debug_here(_debug.here(self._who()), self._actor())

    def _begin_queues(self) -> None:
        """Other threads go on meanwhile: the core keeps their requests for credentials until it has the queue."""
        try:
            if self._credentials is not None and self._login_queue is None:
                _credentials.begin(self)
        except BaseException:
            self._begun = self._ready = False  # the next operation begins anew
            raise
        _log.begin(self)

    def _actor(self) -> int:
        """A number for who acquires: threads are even, tasks are odd; 0: not known."""
        raise NotImplementedError

    def _who(self) -> str | None:
        """The name of who acquires; None: not known."""
        return _debug.thread()

    def _after_fork(self) -> None:
        """In a forked child: let go of what belongs to the parent."""
        self._begun = self._ready = self._logging = False
        self._log_queue = self._login_queue = None
        self._log_records = []

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.Client {self.id}>"


def wait_for(call: Callable[..., T], *arguments: object) -> T:
    """The result of a call of the core that cannot be cut into slices; a signal ends the wait, and not the call.

    Without threading.Thread and Future: what a handler raises within them comes out as another exception, such as
    "cannot release un-acquired lock", or not at all.
    """
    results: list[T] = []
    errors: list[BaseException] = []
    ended = _thread.allocate_lock()
    ended.acquire()

    def run() -> None:
        try:
            results.append(call(*arguments))
        except BaseException as error:
            errors.append(error)
        finally:
            ended.release()

    started: list[int] = []
    try:
        if _exiting:
            run()
        else:  # from C, which leaves no step between the start and the list
            started.extend(starmap(_thread.start_new_thread, [(run, ())]))
    except RuntimeError:
        if started:  # it is a handler's
            raise
        run()
    ended.acquire()
    if errors:
        raise errors.pop()
    return results.pop()


def in_thread(
    call: Callable[..., T], *arguments: object, in_place: tuple[object, ...]
) -> Future[T]:
    """The same for a task, whose end does not end the call either.

    Where no thread can be started, the call runs in place, with other arguments if these would
    block the loop.
    """
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # from here on it cannot be cancelled

    def run(arguments: tuple[object, ...] = arguments) -> None:
        try:
            future.set_result(call(*arguments))
        except BaseException as error:
            future.set_exception(error)

    thread = threading.Thread(target=run, name="snib", daemon=True)
    try:
        if _exiting:
            run()
        else:
            thread.start()
    except RuntimeError:
        if thread.ident is not None:  # it is a handler's
            raise
        run(in_place)
    return future


def _close_all() -> None:
    global _exiting
    _exiting = True
    clients = living_clients()
    begun = time.monotonic()
    left = _LAST_RECORDS
    # Before the close, which wakes daemon threads: they are not to run while this thread waits.
    try:
        for client in clients:
            _log.deliver_all(client, begun + left)
    finally:  # a Ctrl-C ends the wait for a slow handler, and no more
        left -= time.monotonic() - begun
        with _log.only_told():
            _core.close_at_exit([client._handle for client in clients], _EXIT_MS)
            begun = time.monotonic()
            for client in clients:
                _log.deliver_all(client, begun + left)


def _know_main_thread() -> None:
    _core.set_main_thread(_native.main_thread())


def _drop_all() -> None:
    _know_main_thread()
    for client in living_clients():
        client._after_fork()


_know_main_thread()
atexit.register(_close_all)
os.register_at_fork(after_in_child=_drop_all)

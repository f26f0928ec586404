"""Clients for anyio, on asyncio and on trio: `snib.aio` with anyio's cancellation.

    import snib.anyio

    async with snib.anyio.connect("redis://127.0.0.1:6379") as client:
        async with client.lock("orders").hold(timeout=2.0) as hold:
            ...  # in a cancel scope that is cancelled when the lock is lost; then Lost is raised

The locks, holds and their methods are those of `snib.aio`.  As within any cancel scope, a generator must
not yield within such a block: `async with await lock.hold():` has none.  Requires the package anyio 4.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
from asyncio import AbstractEventLoop
from collections.abc import Generator
from typing import Any

import anyio

from . import _core, _log, aio
from ._client import BaseClient, in_thread
from ._codes import Lost
from ._hold import LEAVING
from ._times import wait_ms
from .aio._client import detach_all
from .aio._guard import Guard, NoGuard
from .aio._loop import Loop, Result

__all__ = ["Client", "connect"]


class _ScopeGuard(Guard):
    """Runs a body in a cancel scope that is cancelled when its hold is lost."""

    __slots__ = ("_scope",)

    def __init__(self, hold: aio.Hold, loop: Loop) -> None:
        self._hold = hold
        self._lost: Lost | None = None
        self._scope = anyio.CancelScope()
        self._scope.__enter__()
        loop.watch(hold, self._tell)
        try:
            # After watch(): an earlier loss was not reported here.
            hold.check()
        except BaseException as error:
            hold._stage = LEAVING
            self.end(error)
            raise

    def _tell(self, lost: bool) -> None:
        if lost:
            self._lost = self._hold._loss()
            self._scope.cancel()

    def end(self, error: BaseException | None) -> BaseException | None:
        self._unwatch()
        try:
            caught = self._scope.__exit__(
                type(error) if error else None, error, error.__traceback__ if error else None
            )
        except BaseException as rest:  # a group without the scope's own cancellations
            return rest
        return self._lost if error is None or caught else None


class _AsyncioLoop(Loop):
    def guard(self, hold: aio.Hold) -> Guard:
        return NoGuard() if hold._lock.kind == "semaphore" else _ScopeGuard(hold, self)


class _Future:
    """What a trio task waits for; behaves like asyncio.Future."""

    __slots__ = ("_event", "_result", "_error")

    def __init__(self) -> None:
        self._event = anyio.Event()
        self._result: Result | None = None
        self._error: BaseException | None = None

    def done(self) -> bool:
        return self._result is not None or self._error is not None

    def cancelled(self) -> bool:
        return False

    def exception(self) -> BaseException | None:
        return self._error

    def result(self) -> Result:
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result

    def set_result(self, result: Result) -> None:
        self._result = result
        self._event.set()

    def set_exception(self, error: BaseException) -> None:
        self._error = error
        self._event.set()

    def __await__(self) -> Generator[Any, Any, Result]:
        yield from self._event.wait().__await__()
        return self.result()


class _TrioLoop(_AsyncioLoop):
    """A client's queue in one run of trio, watched by a trio system task."""

    corks = False

    def __init__(self, client: BaseClient, token: Any) -> None:
        import trio

        self.loop: Any = token
        self.queue = _core.queue_new(client._handle)
        self.new_token = itertools.count(1).__next__
        self.new_future: Any = _Future
        self.waiting: dict[int, Any] = {}
        self.losses = {}
        self._scope = trio.CancelScope()
        trio.lowlevel.spawn_system_task(self._watch)

    async def _watch(self) -> None:
        import trio

        with self._scope:
            while True:
                await trio.lowlevel.wait_readable(_core.queue_fd(self.queue))
                self._drain()

    def tell_release(self, hold: aio.Hold, releaser: Loop) -> None:
        if releaser is self:
            self.end_waits(hold)
        else:
            self._soon(self.end_waits, hold)

    def detach(self) -> None:
        while self._drain():
            pass
        self._scope.cancel()

    def detach_soon(self) -> None:
        self._soon(self.detach)

    def _soon(self, call: Any, *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the run is over
            self.loop.run_sync_soon(call, *arguments)


def _trio_token() -> Any:
    """The token of the calling trio run; None under asyncio."""
    trio = sys.modules.get("trio")
    if trio is not None:
        with contextlib.suppress(RuntimeError):
            return trio.lowlevel.current_trio_token()
    return None


class Client(aio.Client):
    __doc__ = BaseClient.__doc__

    def _task(self) -> object | None:
        if _trio_token() is None:
            return super()._task()
        import trio

        return trio.lowlevel.current_task()

    def _running(self) -> Any:
        return _trio_token() or super()._running()

    def _soon(self) -> Any:
        """Calls a function in the running loop, from any thread."""
        token = _trio_token()
        return super()._running().call_soon_threadsafe if token is None else token.run_sync_soon

    def _make_loop(self, running: AbstractEventLoop) -> Loop:
        make: type[Loop] = _AsyncioLoop if _trio_token() is None else _TrioLoop
        return make(self, running)

    async def close(self, timeout: float | None = None) -> None:
        """End every operation with Closed and release every hold; may be called again.

        Raises Timeout if a release was not confirmed in time (None: the client's patience); the
        lock is then free when its lease ends.  A cancelled close continues.
        """
        loops, soon, closed = self._loops, self._soon(), anyio.Event()

        def tell(_: object) -> None:
            detach_all(loops)  # before the task goes on
            with contextlib.suppress(RuntimeError):  # the task was cancelled, and the run is over
                soon(closed.set)

        closing = in_thread(self._end, wait_ms(timeout), _log.runs_here(), in_place=(0,))
        closing.add_done_callback(tell)
        await closed.wait()
        closing.result()


connect = Client

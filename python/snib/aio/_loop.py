"""A client's queue in a running event loop."""

from __future__ import annotations

import contextlib
import itertools
from asyncio import AbstractEventLoop, Future
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from .. import _core
from .._client import BaseClient
from ._guard import Guard, NoGuard

if TYPE_CHECKING:
    from ._lock import Hold

OK, BUSY, TIMEDOUT, NOT_HELD = 0, 1, 2, 6

Result = tuple[int, Any]
Tell = Callable[[bool], None]


class Loop:
    """A client's queue in one running loop.

    A loop does not announce that it closes, but it drops its readers.  Nothing else keeps this
    object for long, so queue and waiting operations end with the loop.  If the loop lives on,
    they end when the client is closed or collected: see detach().
    """

    corks: ClassVar[bool] = True

    def __init__(self, client: BaseClient, loop: AbstractEventLoop) -> None:
        self.loop = loop
        self.queue = _core.queue_new(client._handle)
        self.new_token = itertools.count(1).__next__
        self.new_future: Callable[[], Future[Result]] = loop.create_future
        self.waiting: dict[int, Future[Result]] = {}
        self.losses: dict[int, list[tuple[Hold, Tell]]] = {}  # by hold_id()
        loop.add_reader(_core.queue_fd(self.queue), self._drain)

    async def run(self, submit: Callable[..., int], *arguments: object) -> Result:
        """Submit an operation and wait for its code and value."""
        token = self.new_token()
        operation = submit(*arguments, self.queue, token)
        future = self.waiting[token] = self.new_future()
        try:
            return await future
        except BaseException:
            self.abandon(token, operation, future)
            raise

    def abandon(self, token: int, operation: int, future: Future[Result]) -> None:
        """The task was cancelled, or discarded with its loop.

        Either the core releases whatever it may still be granted, or the hold has already arrived:
        in the queue, where the drain drops it because its token has no waiter, or in the future.
        """
        self.waiting.pop(token, None)
        _core.op_cancel(operation)
        if future.done() and not future.cancelled() and not future.exception():
            _core.hold_drop(future.result()[1])

    def _drain(self) -> int:
        count = _core.queue_settle(self.queue, self.waiting, self.end_losses)
        if count and self.corks:
            # The tasks woken above run before the uncork, so their requests leave in one write.  It is scheduled first
            # and runs no Python: what a signal's handler raises meanwhile would leave the queue corked.
            self.loop.call_soon(_core.queue_uncork, self.queue)
            _core.queue_cork(self.queue)
        return count

    def watch(self, hold: Hold, tell: Tell) -> None:
        """Call tell once when the hold is lost (True) or released (False)."""
        self.losses.setdefault(_core.hold_id(hold._handle), []).append((hold, tell))

    def unwatch(self, hold: Hold, tell: Tell) -> None:
        hold_id = _core.hold_id(hold._handle)
        watches = self.losses.get(hold_id, [])
        if (hold, tell) in watches:  # or else it has been called
            watches.remove((hold, tell))
        if not watches:
            self.losses.pop(hold_id, None)

    def is_watched(self, hold: Hold) -> bool:
        """Whether it is worth finding out if the hold has ended."""
        return bool(self.losses) and _core.hold_id(hold._handle) in self.losses

    def end_losses(self, hold_id: int, lost: bool) -> None:
        """The core's hold has ended, and with it all that its owner has."""
        for _, tell in self.losses.pop(hold_id, ()):
            tell(lost)

    def end_waits(self, hold: Hold) -> None:
        """This hold was released; its owner may have others, which go on."""
        for held, tell in self.losses.get(_core.hold_id(hold._handle), []).copy():
            if held is hold:
                self.unwatch(hold, tell)
                tell(False)

    def tell_release(self, hold: Hold, releaser: Loop) -> None:
        """End the waits for the loss, even if another loop released the hold."""
        if releaser is self:
            self.end_waits(hold)
        else:
            with contextlib.suppress(RuntimeError):  # the loop was closed
                self.loop.call_soon_threadsafe(self.end_waits, hold)

    def guard(self, hold: Hold) -> Guard:
        """The guard for the body of an `async with`."""
        return NoGuard() if hold._lock.kind == "semaphore" else Guard(hold, self)

    def detach(self) -> None:
        """In the loop's thread, after the client has ended: deliver the last events and stop."""
        while self._drain():
            pass
        self.loop.remove_reader(_core.queue_fd(self.queue))

    def detach_soon(self) -> None:
        """Call detach() from any thread; a closed loop needs nothing."""
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.detach)

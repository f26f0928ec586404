"""Cancel the body of an `async with` when its hold is lost."""

from __future__ import annotations

import sys
from asyncio import CancelledError, Handle, Task, current_task
from typing import TYPE_CHECKING, Any
from weakref import ref

from .._codes import Lost
from .._hold import LEAVING

if TYPE_CHECKING:
    from ._lock import Hold
    from ._loop import Loop


class Guard:
    """Cancels the task that works under a hold when the hold is lost, like asyncio.timeout().

    end() returns the Lost to raise, unless the task was also cancelled from elsewhere: that
    remains a cancellation.  Python 3.10 cannot tell: there, a cancellation from elsewhere between
    the loss and the task's next step may end as Lost.
    """

    __slots__ = ("_hold", "_task", "_before", "_lost", "_message", "_later")

    def __init__(self, hold: Hold, loop: Loop) -> None:
        task = current_task()
        assert task is not None
        self._hold = hold
        # Weak: the lock has this object, and would keep a task whose loop is gone, and with it the hold, for ever.
        self._task: ref[Task[Any]] = ref(task)
        self._before = 0
        if sys.version_info >= (3, 11):
            self._before = task.cancelling()
        self._lost: Lost | None = None
        self._message: str | None = None
        self._later: Handle | None = None
        loop.watch(hold, self._tell)
        try:
            # After watch(): an earlier loss was not reported here.
            hold.check()
        except BaseException:
            loop.unwatch(hold, self._tell)
            hold._stage = LEAVING
            raise

    def _tell(self, lost: bool) -> None:
        if not lost:
            return
        self._lost = self._hold._loss()
        task = self._task()
        if task is not None and task is current_task():  # the task itself closes the client
            self._later = task.get_loop().call_soon(self._cancel)
        else:
            self._cancel()

    def _cancel(self) -> None:
        self._later = None
        task = self._task()
        if task is not None:
            self._message = str(self._lost)
            task.cancel(self._message)

    def is_over(self) -> bool:
        """Whether the task has ended, though not this block, as far as that is known."""
        known: ref[Task[Any]] | None = getattr(self, "_task", None)
        if known is None:
            return False
        task = known()
        return task is None or task.done()

    def _unwatch(self) -> None:
        loop = self._hold._loop
        if loop is not None:
            loop.unwatch(self._hold, self._tell)

    def end(self, error: BaseException | None) -> BaseException | None:
        """Called when the body has ended: the exception to raise instead, after the release."""
        self._unwatch()
        lost = self._lost
        if lost is None:
            return None
        if self._later is not None:
            self._later.cancel()
        cancelled = self._message is not None and self._alone(error)
        if error is None or (cancelled and isinstance(error, CancelledError)):
            return lost
        _insert(error, lost)
        for part in getattr(error, "exceptions", ()):  # error is a group
            _insert(part, lost)
        return None

    def _alone(self, error: BaseException | None) -> bool:
        """Whether the task was not cancelled from elsewhere."""
        if sys.version_info >= (3, 11):
            task = self._task()
            return task is None or task.uncancel() <= self._before
        while error is not None:
            if error.args and error.args[0] is self._message:
                return True
            error = error.__context__
        return False


def _insert(error: BaseException, lost: Lost) -> None:
    """Show the loss as the cause of the program's own error."""
    while error.__context__ is not None:
        if isinstance(error.__context__, CancelledError):
            lost.__cause__ = error.__context__
            error.__context__ = lost
            return
        error = error.__context__


class NoGuard(Guard):
    """For holds that cannot be lost."""

    __slots__ = ()

    def __init__(self) -> None:
        pass

    def end(self, error: BaseException | None) -> BaseException | None:
        return None

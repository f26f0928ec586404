"""Locks for programs with threads."""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import threading
from collections.abc import Callable, Hashable
from dataclasses import replace
from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, ParamSpec, TypeVar

from . import _core
from ._base import (
    BaseHoldable,
    BaseNamed,
    BaseRWLock,
    FairKind,
    FencedKind,
    MutexKind,
    PlainKind,
    ReadKind,
    SpinKind,
    WriteKind,
    refuse_descriptor,
)
from ._error import Error
from ._hold import GIVEN_BACK, OWNED, BaseHold, LockInfo, State, make_info, unrepeatable
from ._identity import make_identity
from ._kept import HERE, block_at
from ._times import acquire_ms, event_ms, lease_ms, wait_ms

P = ParamSpec("P")
T = TypeVar("T")

_owners = itertools.count(1)


class _Thread(threading.local):
    """Owners of re-entrant locks: a number per thread, never reused, unlike the identity."""

    def __init__(self) -> None:
        self.owner = next(_owners)


_thread = _Thread()


def thread_owner() -> int:
    """The calling thread's number; with gevent or eventlet, the greenlet's."""
    return _thread.owner


def _later(function: object) -> TypeError:
    name = getattr(function, "__qualname__", repr(function))  # a partial has none
    return TypeError(
        f"{name} would run after its call, without the lock; "
        "coroutines want a lock of snib.aio, generators a `with` inside"
    )


def _is_begun_later(result: object) -> bool:
    """Whether it is the function's body, which has not run."""
    if isinstance(result, contextlib._GeneratorContextManagerBase):
        result = result.gen
    return inspect.iscoroutine(result) or inspect.isgenerator(result) or inspect.isasyncgen(result)


def let_go(release: Callable[..., None], *arguments: object) -> None:
    """Release what was acquired.

    A signal's exception may come between the moment when a hold is taken out of what is kept and its release.  A hold
    that is dropped then is released; so it lies in no frame that the traceback keeps for as long as somebody has it.
    """
    try:
        release(*arguments)
    except Error:
        raise
    except BaseException as error:
        trace = error.__traceback__ and error.__traceback__.tb_next
        while trace is not None:
            if trace.tb_frame.f_code.co_filename.startswith(HERE):
                with contextlib.suppress(RuntimeError):  # it runs: the exception was raised there before, too
                    trace.tb_frame.clear()
            trace = trace.tb_next
        raise


class Loss:
    """The loss of a hold, which is asked for and waited for like a threading.Event."""

    __slots__ = ("_hold",)

    def __init__(self, hold: Hold) -> None:
        self._hold = hold

    def is_set(self) -> bool:
        """Whether the hold is lost; accurate at the moment of the call."""
        return self._hold.state is State.LOST

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the hold is lost (True), or released, or the timeout ends (False).

        timeout  None: no limit; a negative one, even -1, is like 0, which only asks, as in threading.Event
        """
        hold = self._hold
        limit = hold._lock._given(event_ms, timeout)
        if hold._stage == GIVEN_BACK:
            return self.is_set()
        return hold._asked(_core.hold_wait, limit)


class Hold(_core.HeldScope, BaseHold):
    """One successful acquisition.  `with` releases it; any thread may.

    It must be released.  A hold that is dropped instead is no longer renewed, and the lock is free
    when its lease has ended; a ResourceWarning says so.
    """

    __slots__ = ()

    @property
    def lost(self) -> Loss:
        return Loss(self)

    def release(self) -> None:
        """Release the lock and wake a waiter.

        Raises Lost if it was no longer held, NotHeld if this hold was already released, and
        Unreachable if no answer came; then the client keeps trying until the lease has ended.
        """
        if self._stage == GIVEN_BACK:
            raise self._given_back()
        self._stage = GIVEN_BACK
        try:
            _core.release(self._handle)
        except Error as error:
            raise self._named(unrepeatable(error))

    def extend(self, lease: float | None = None) -> None:
        """Give the hold another lease, counted from now.

        lease  seconds, 0.1 to 86400: fixed, and not renewed; None: the client's lease, renewed
               from now on

        It never ends earlier than it would have, except that a longer fixed lease counts no more
        once the client's is renewed instead.  Raises Lost if the hold was lost, NotHeld if it
        was released, NotSupported for a semaphore, InvalidLease for a quorum lock by more than
        the lease that it was made for.  If no answer came, it raises Unreachable; where a request
        that was left on a broken connection may still shorten the lease, NotSupported, with the
        remedy: then the hold keeps the lease that it had.
        """
        if self._stage == GIVEN_BACK:
            self.check()
        self._asked(_core.extend, self._lock._given(lease_ms, lease))

    def _leave(self, slot: list[Hold], failed: bool) -> None:
        """The steps of __exit__, see bindings/python_scope.c."""
        try:
            if slot:  # an earlier call was interrupted
                _core.release(self._handle)
            else:
                slot.append(self)
                self.release()
        except Error:
            if not failed:  # otherwise the program's own error takes precedence
                raise


class Named(BaseNamed):
    """A name at a client, used as one kind of lock."""

    __slots__ = ()

    def _ask(self) -> LockInfo:
        """The server's answer, without the process behind the owner."""
        self._client._used()
        try:
            return make_info(_core.lock_info(self._handle))
        except Error as error:
            raise self._named(error)

    def info(self) -> LockInfo:
        """Ask the server who holds the lock, and which process that is.

        Raises WrongType if the name is used for another kind, as far as the server's data show it, and
        NotSupported for a lock over several: ask its members.
        """
        info = self._ask()
        if not info.owner:
            return info
        try:
            lines = _core.client_identity(self._client._handle, info.owner)[1]
        except Error:  # the rest is true without it
            return info
        return replace(info, identity=make_identity(lines, info.owner))

    def force_release(self) -> bool:
        """Delete the lock, whoever holds it, and wake the waiters; False if it was free.

        Raises NotSupported for a lock over several: do it with its members.
        """
        self._client._used()
        try:
            return _core.lock_force_release(self._handle)
        except Error as error:
            raise self._named(error)


class Holdable(_core.Scope, Named, BaseHoldable[Hold]):
    """Anything that can be held: all locks, semaphores and permits."""

    __slots__ = ()

    _acquire: ClassVar[staticmethod[[_core.LockHandle, int, int], _core.HoldHandle | None]]
    _submit: ClassVar[staticmethod[[_core.LockHandle, int, int, _core.QueueHandle, int], int]]

    _caller = staticmethod(get_ident)

    def _try(self, caller: int, n: int, wait: int) -> Hold | None:
        if not self._client._ready:
            self._client._used()
        try:
            handle = self._acquire(self._handle, self._number(caller, n), wait)
        except Error as error:
            raise self._named(error)
        if handle is None:
            return None
        try:
            hold = Hold(self, handle)
        except BaseException:  # of a signal: its traceback would keep the hold for as long as somebody has it
            _core.hold_drop(handle)
            raise
        return hold

    def _try_to_keep(self, n: int, wait: int) -> bool:
        caller = self._caller()
        hold = self._try(caller, n, wait)
        if hold is None:
            return False
        try:
            self._keep(caller, hold, n)
        except BaseException:  # likewise
            self._kept().take_this(hold)
            _core.hold_drop(hold._handle)
            raise
        return True

    def _hold(self, n: int, wait: int) -> Hold:
        """Acquire; until the caller marks the hold OWNED, one dropped by a signal is released."""
        hold = self._try(self._caller(), n, wait)
        if hold is None:
            raise self._refusal(wait)
        return hold

    def _protect(self, n: int, wait: int) -> Callable[[Callable[P, T]], Callable[P, T]]:
        def protect(function: Callable[P, T]) -> Callable[P, T]:
            refuse_descriptor(function)
            for later in (
                inspect.iscoroutinefunction,
                inspect.isgeneratorfunction,
                inspect.isasyncgenfunction,
            ):
                if later(function):
                    raise _later(function)

            @functools.wraps(function)
            def protected(*args: P.args, **kwargs: P.kwargs) -> T:
                with self._hold(n, wait):
                    result = function(*args, **kwargs)
                    if _is_begun_later(result):  # another decorator has hidden its function
                        if inspect.iscoroutine(result):
                            result.close()
                        raise _later(function)
                    return result

            return protected

        return protect

    def locked(self) -> bool:
        raise NotImplementedError

    # The steps of __enter__ and __exit__, see bindings/python_scope.c.  A signal's exception may
    # end each of them between any two operations; another call of _leave() then finishes the work.

    def _enter(self, slot: list[Hold]) -> Hold:
        caller = self._caller()
        hold = self._try(caller, 1, -1)
        assert hold is not None  # a wait without limit ends with a hold or an exception
        slot.append(hold)
        self._keep(caller, hold, block=block_at())
        return hold

    def _leave(self, slot: list[Hold], failed: bool) -> None:
        caller = self._caller()
        kept = self._kept()
        try:
            again = bool(slot)  # an earlier call was interrupted
            if not again:
                own = kept.ending(caller, block_at(), self._others)
                if own is None:
                    raise self._not_held(block=True)
                slot.append(own)
            hold = slot[0]
            kept.take_this(hold)
            if again:
                hold._stage = GIVEN_BACK
                _core.release(hold._handle)
            else:
                hold.release()
        except Error:
            if not failed:
                raise

    if TYPE_CHECKING:

        def __enter__(self) -> Hold: ...


class AnyLock(Holdable):
    """What all locks have in common, regardless of their owner."""

    __slots__ = ()

    _acquire = staticmethod(_core.acquire)
    _submit = staticmethod(_core.lock_acquire_submit)

    def acquire(self, blocking: bool = True, timeout: float | None = -1) -> bool:
        """Get the lock, waiting if necessary; False if it was not free in time.

        timeout  -1 or None: no limit; any other negative time raises InvalidArgument, a ValueError

        This client holds it under this name until release(), or until the client is closed,
        whatever happens to this object.
        """
        return self._try_to_keep(1, self._given(acquire_ms, blocking, timeout))

    def release(self) -> None:
        """Release what acquire() got, even through another object for the same lock.

        Raises NotHeld if there is nothing to release; otherwise like Hold.release().
        """
        let_go(self._give_back)

    def _give_back(self) -> None:
        self._take(self._caller()).release()

    def hold(self, *, timeout: float | None = None) -> Hold:
        """Acquire and return the hold: `with lock.hold(timeout=2.0) as hold:`.

        Raises Timeout after the timeout, or Busy if the timeout is 0 (one attempt).  None and -1 mean no limit.
        """
        hold = self._hold(1, self._given(wait_ms, timeout))
        hold._stage = OWNED
        return hold

    def protect(self, *, timeout: float | None = None) -> Callable[[Callable[P, T]], Callable[P, T]]:
        """A decorator: each call of the function runs under the lock.

        Like hold(), a call may raise Timeout or Busy, without running the function.  It raises Lost
        if the lock was lost meanwhile.
        """
        return self._protect(1, self._given(wait_ms, timeout))

    def locked(self) -> bool:
        """Ask the server whether the lock is held."""
        return self._ask().held


class Lock(MutexKind, AnyLock):
    """A named lock that behaves like threading.Lock.

    Each acquisition has its own owner: a second one waits until the first is released, even in
    the same thread.  Any thread may release: its own hold, or else the oldest.
    """

    __slots__ = ()


class FairLock(FairKind, Lock):
    __slots__ = ()


class FencedLock(FencedKind, Lock):
    __slots__ = ()


class SpinLock(SpinKind, Lock):
    __slots__ = ()


class PlainLock(PlainKind, Lock):
    __slots__ = ()


class RLock(MutexKind, AnyLock):
    """A named lock that behaves like threading.RLock.

    The owner is the thread: it may acquire again, immediately and without a round trip, and must
    release as often.  Another thread cannot release it.  For a threading.Condition use a Lock.
    """

    __slots__ = ()

    _others = False

    def _caller(self) -> int:
        return _thread.owner

    def _number(self, caller: int, n: int) -> int:
        return caller

    def _key(self) -> Hashable:
        return "re-entrant", self._KIND, self.name


class ReadLock(ReadKind, RLock):
    __slots__ = ()


class WriteLock(WriteKind, RLock):
    __slots__ = ()


class RWLock(BaseRWLock[ReadLock, WriteLock]):
    """Many readers, or one writer: `with rwlock.read:`, `with rwlock.write as hold:`.

    The owner of either side is the thread, as for RLock.  The holder of `write` may also take
    `read` and keep it when `write` is released: the writer becomes a reader, with no other writer
    in between.  The opposite raises UpgradeRefused immediately, because such a reader would wait
    for itself.
    """

    __slots__ = ()

    _READ = ReadLock
    _WRITE = WriteLock

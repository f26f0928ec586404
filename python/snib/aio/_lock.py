"""Locks for asyncio."""

from __future__ import annotations

import functools
import inspect
import itertools
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Generator, Hashable
from contextvars import ContextVar
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, TypeVar
from warnings import warn

from .. import _core
from .._base import (
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
from .._codes import InvalidArgument
from .._error import Error
from .._hold import GIVEN_BACK, LEAVING, OWNED, BaseHold, LockInfo, State, make_info, unrepeatable
from .._kept import Block, Kept, Places, block_at, is_of_stack, likeness
from .._stays import stays
from .._times import acquire_ms, lease_ms, wait_ms
from ._guard import Guard
from ._loop import BUSY, NOT_HELD, OK, TIMEDOUT, Loop

if TYPE_CHECKING:
    from ._client import Client

P = ParamSpec("P")
T = TypeVar("T")
H = TypeVar("H", bound="Hold")

_hold_release_submit = _core.hold_release_submit  # hot path

# Owners of re-entrant locks: a number per task that, unlike its identity, is never reused.
_owners = itertools.count(1)
_task_owners: weakref.WeakKeyDictionary[object, int] = weakref.WeakKeyDictionary()


def task_owner(task: object) -> int:
    """The task's number."""
    owner = _task_owners.get(task)
    if owner is None:
        owner = _task_owners[task] = next(_owners)
    return owner


class Loss:
    """The loss of a hold, which is asked for and waited for like an asyncio.Event."""

    __slots__ = ("_hold",)

    def __init__(self, hold: Hold) -> None:
        self._hold = hold

    def is_set(self) -> bool:
        """Whether the hold is lost; accurate at the moment of the call."""
        return self._hold.state is State.LOST

    async def wait(self) -> bool:
        """Wait until the hold is lost (True) or released (False)."""
        hold = self._hold
        if self._is_over():  # even if the hold's event loop is gone, or its client's queue there
            return self.is_set()
        loop = hold._lock._client._loop()
        if loop is not hold._loop:
            raise hold._named(InvalidArgument("the hold was acquired in another event loop"))
        future = loop.new_future()

        def tell(lost: bool) -> None:
            if not future.done():
                future.set_result((OK, lost))

        loop.watch(hold, tell)
        try:
            # After watch(): an earlier loss was not reported here.
            if self._is_over():
                return self.is_set()
            _, lost = await future
            return bool(lost)
        finally:
            loop.unwatch(hold, tell)

    def _is_over(self) -> bool:
        return self._hold.state in (State.LOST, State.RELEASED)


class Hold(BaseHold):
    """One successful acquisition.  `async with` releases it; any task may.

    It must be released.  A hold that is dropped instead is no longer renewed, and the lock is free
    when its lease has ended; a ResourceWarning says so.
    """

    __slots__ = ("_known",)

    _lock: Holdable

    def __init__(self, lock: Holdable, handle: _core.HoldHandle, loop: Loop) -> None:
        super().__init__(lock, handle)
        # Weak: a hold may outlive its event loop, whose waits end with it, see Loop.
        self._known = weakref.ref(loop)

    @property
    def _loop(self) -> Loop | None:
        """Of the task that acquired; None if that event loop is gone."""
        return self._known()

    def _guard(self) -> Guard:
        """For the body of an `async with`, in the task that has just acquired."""
        return (self._loop or self._lock._client._loop()).guard(self)

    @property
    def lost(self) -> Loss:
        return Loss(self)

    async def release(self) -> None:
        """Release the lock and wake a waiter; a cancelled release continues.

        Raises Lost if it was no longer held, NotHeld if this hold was already released, and
        Unreachable if no answer came; then the client keeps trying until the lease has ended.
        """
        await self._end(None)

    async def extend(self, lease: float | None = None) -> None:
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
        loop = self._lock._client._loop()
        try:
            _, value = await loop.run(_core.hold_extend_submit, self._handle, lease_ms(lease))
            if value is not None:
                raise value
        except Error as error:
            raise self._named(error)

    async def _end(self, error: BaseException | None) -> None:
        """Release; a failure is raised unless the program's own error is propagating."""
        try:
            if self._stage == GIVEN_BACK:
                raise self._given_back()
            self._stage = LEAVING  # until the release has begun: if it cannot, it may be tried again
            try:
                loop = self._lock._client._loop()
            except RuntimeError:  # none runs: the block of a task that is dropped with its loop, or in the child of a fork
                self._stage = GIVEN_BACK
                _core.hold_drop(self._handle)
                if error is not None:
                    return
                _core.hold_remaining_ms(self._handle)  # in that child it raises Forked
                raise
            token = loop.new_token()
            operation = _hold_release_submit(self._handle, loop.queue, token)
            self._stage = GIVEN_BACK
            origin = self._loop
            if origin and origin.is_watched(self) and self.state is State.RELEASED:
                origin.tell_release(self, loop)
            future = loop.waiting[token] = loop.new_future()
            try:
                code, value = await future
            except BaseException:
                loop.abandon(token, operation, future)
                raise
            if code != OK:
                raise value
        except Error as failure:
            if error is None:
                raise self._named(unrepeatable(failure))  # also if it could not begin

    async def __aenter__(self: H) -> H:
        if self._stage == GIVEN_BACK:
            raise self._given_back()
        return self

    if TYPE_CHECKING:  # pyright tells what is `async` from what returns the same: see AsyncExitStack

        async def __aexit__(
            self,
            kind: type[BaseException] | None,
            error: BaseException | None,
            trace: TracebackType | None,
        ) -> None: ...

    else:

        def __aexit__(self, kind, error, trace):
            return self._end(error)


_Known = weakref.ref[Hold] | None

# What the innermost block of this context has: a task that ends the generator of another one has a copy of its context.
_innermost: ContextVar[_Known] = ContextVar("snib-block", default=None)


_Begun = tuple[int, Hold, Guard, _Known, Block]  # first the caller


class _Blocks:
    """The `async with` blocks on one object that have begun and not ended.

    Loops of several threads may use it at the same time, so each step is one operation on a dict.
    """

    __slots__ = ("_begun", "_numbers", "_places")

    def __init__(self) -> None:
        self._begun: dict[int, _Begun] = {}
        self._numbers = itertools.count()
        self._places = Places()

    def begin(self, caller: int, hold: Hold, guard: Guard, block: Block) -> None:
        number = next(self._numbers)
        self._places.note(caller, block, number)  # first: it may raise, near the limit of recursion
        self._begun[number] = caller, hold, guard, _innermost.get(), block
        _innermost.set(weakref.ref(hold))

    def end(self, ending: int, block: Block, kept: Kept[Hold] | None = None) -> tuple[int, Hold, Guard] | None:
        """The block that ends, with its caller; if its frame does not tell, the innermost one of the task that ends it; or
        None.  kept: there, acquire() may have taken something for that task, which has been pushed, see Kept.ending().

        Its number is given: near the limit of recursion, there is room to find it where __aenter__ did, and not here.
        """
        usual = self._places.find(ending, block)
        begun = None if usual is None else self._begun.get(usual)
        if begun is None or begun[4] != block:
            usual = self._find(ending, block, kept is not None and kept.has_acquired(ending))
        return self._pop(usual)

    def end_left(self) -> tuple[int, Hold, Guard] | None:
        """The newest one whose task has ended without it, as wait_for() may make one for __aenter__(); or None."""
        begun = self._begun.copy()
        for number in reversed(begun):
            if begun[number][2].is_over():
                return self._pop(number)
        return None

    def _pop(self, number: int | None) -> tuple[int, Hold, Guard] | None:
        begun = None if number is None else self._begun.get(number)
        if number is None or begun is None:
            return None
        caller, hold, guard, outer, block = begun
        self._places.drop(caller, block, number, self._begun)  # first: a signal's exception may leave what it has dropped
        if self._begun.pop(number, None) is None:
            return None
        if self._is_here(hold):
            _innermost.set(outer)
        return caller, hold, guard

    def _find(self, caller: int, block: Block, acquired: bool) -> int | None:
        newest, found, best = None, None, 0
        is_pushed = acquired and is_of_stack(block)
        begun = self._begun.copy()
        for number in reversed(begun):  # no generator: what a signal raises there is lost
            other, _, _, _, at = begun[number]
            own = other == caller
            if own and at == block:
                return number
            like = 2 * likeness(at, block, own) + own
            if like > best and like > 1:  # the newest of those that are as like
                found, best = number, like
            if own:
                newest = number if newest is None else newest
                is_pushed = is_pushed and not is_of_stack(at)
        return newest if found is None and not is_pushed else found

    def _is_here(self, hold: Hold) -> bool:
        known = _innermost.get()
        return known is not None and known() is hold


class Holding(_core.Droppable):
    """What hold() of a lock returns: `async with` it, or `await` it for the hold.

    `async with` cancels its body if the hold is lost, and then raises Lost.  A hold that was
    awaited cancels nothing, not even in `async with hold:`, which only releases it.  Each use
    acquires anew, also of several tasks at the same time.  One that is never used acquires
    nothing, and is warned of.
    """

    __slots__ = ("_lock", "_caller", "_n", "_wait", "_blocks", "_stage")
    __reduce_ex__ = stays

    def __init__(self, lock: Holdable, n: int, wait: int) -> None:
        self._lock = lock
        self._caller = lock._caller()
        self._n = n
        self._wait = wait
        self._blocks = _Blocks()
        self._stage = OWNED  # until it is used

    def _abandon(self) -> None:
        """Called when it is dropped while it is OWNED: nothing in Python runs as one that was used goes."""
        self._stage = LEAVING
        warn(
            f"hold() of {self._lock!r} was neither awaited nor entered, so nothing is locked",
            RuntimeWarning,
            stacklevel=2,
        )

    async def _get(self, caller: int) -> Hold:
        self._stage = GIVEN_BACK
        hold = await self._lock._try(caller, self._n, self._wait)
        if hold is None:
            raise self._lock._refusal(self._wait)
        return hold

    async def _own(self) -> Hold:
        hold = await self._get(self._caller)
        hold._stage = OWNED
        return hold

    def __await__(self) -> Generator[Any, None, Hold]:
        return self._own().__await__()

    @property
    def _asyncio_future_blocking(self) -> None:
        """What asyncio asks of an object that it is to wait for; None: it is no future.

        That is a use: wait_for() or gather() makes a task for it, which may be cancelled before its first step.
        """
        self._stage = GIVEN_BACK

    async def __aenter__(self) -> Hold:
        caller = self._lock._caller()  # several tasks may use this object, and none has another one's lock
        hold = await self._get(caller)  # the block's, not the program's: released if a signal's exception drops it
        guard = None
        try:
            guard = hold._guard()
            self._blocks.begin(caller, hold, guard, block_at())
        except BaseException as error:  # of recursion, say: its traceback would keep the hold as long as somebody has it
            try:
                if guard is not None:
                    guard.end(error)
            finally:
                _core.hold_drop(hold._handle)
            raise
        return hold

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        begun = self._blocks.end(self._lock._caller(), block_at()) or self._blocks.end_left()
        if begun is None:
            raise self._lock._not_held(block=True)
        _, hold, guard = begun
        lost = guard.end(error)
        await hold._end(lost or error)
        if lost is not None:
            raise lost from error


class Named(BaseNamed):
    """A name at a client, used as one kind of lock."""

    __slots__ = ()

    _client: Client

    async def _run(self, submit: Callable[..., int], *arguments: object) -> tuple[int, Any]:
        """Submit an operation on the lock; returns its code and value, and raises real errors."""
        try:
            code, value = await self._client._loop().run(submit, self._handle, *arguments)
            if isinstance(value, Error) and code not in (BUSY, TIMEDOUT, NOT_HELD):
                raise value
        except Error as error:
            raise self._named(error)
        return code, value

    async def _ask(self) -> LockInfo:
        """The server's answer, without the process behind the owner."""
        return make_info((await self._run(_core.lock_info_submit))[1])

    async def info(self) -> LockInfo:
        """Ask the server who holds the lock, and which process that is.

        Raises WrongType if the name is used for another kind, as far as the server's data show it, and
        NotSupported for a lock over several: ask its members.
        """
        info = await self._ask()
        if not info.owner:
            return info
        try:
            return replace(info, identity=await self._client.identity(info.owner))
        except Error:  # the rest is true without it
            return info

    async def force_release(self) -> bool:
        """Delete the lock, whoever holds it, and wake the waiters; False if it was free.

        Raises NotSupported for a lock over several: do it with its members.
        """
        return (await self._run(_core.lock_force_release_submit))[0] == OK


class Holdable(Named, BaseHoldable[Hold]):
    """Anything that can be held: all locks, semaphores and permits."""

    __slots__ = ("_blocks",)

    _submit: ClassVar[staticmethod[[_core.LockHandle, int, int, _core.QueueHandle, int], int]]

    def _begin(self) -> None:
        super()._begin()
        self._blocks = _Blocks()  # of `async with` on the lock itself

    def _caller(self) -> int:
        """The calling task, not necessarily the one that awaits; 0 if there is none."""
        task = self._client._task()
        return 0 if task is None else id(task)

    async def _try(self, caller: int, n: int, wait: int) -> Hold | None:
        loop = self._client._loop()
        token = loop.new_token()
        try:
            number = self._number(caller or self._caller(), n)
            if self._client._debug:
                self._client._used()
            operation = self._submit(self._handle, number, wait, loop.queue, token)
        except Error as error:
            raise self._named(error)
        future = loop.waiting[token] = loop.new_future()
        try:
            code, value = await future
        except BaseException:
            loop.abandon(token, operation, future)
            raise
        if code == OK:
            return Hold(self, value, loop)
        if code == BUSY or code == TIMEDOUT:
            return None
        raise self._named(value)

    async def _try_to_keep(self, caller: int, n: int, wait: int) -> bool:
        hold = await self._try(caller, n, wait)
        if hold is None:
            return False
        self._keep(caller or self._caller(), hold, n)
        return True

    def _protect(
        self, n: int, wait: int
    ) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Coroutine[Any, Any, T]]]:
        def protect(function: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
            refuse_descriptor(function)
            if not inspect.iscoroutinefunction(function):
                raise TypeError("a lock of snib.aio protects coroutine functions only")

            @functools.wraps(function)
            async def protected(*args: P.args, **kwargs: P.kwargs) -> T:
                async with Holding(self, n, wait):
                    return await function(*args, **kwargs)

            return protected

        return protect

    async def locked(self) -> bool:
        raise NotImplementedError

    async def __aenter__(self) -> Hold:
        caller = self._caller()
        hold = await self._try(caller, 1, -1)
        assert hold is not None  # a wait without limit ends with a hold or an exception
        guard = None
        try:
            guard = hold._guard()
            block = block_at()
            self._keep(caller, hold, block=block)
            self._blocks.begin(caller, hold, guard, block)
        except BaseException as error:  # likewise
            try:
                self._kept().take_this(hold)
                if guard is not None:
                    guard.end(error)
            finally:
                _core.hold_drop(hold._handle)
            raise
        return hold

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        caller, kept = self._caller(), self._kept()
        begun = self._blocks.end(caller, block_at(), kept)
        acquired = None if begun else kept.take(caller, others=False)  # by acquire(), as for AsyncExitStack.push_async_exit()
        begun = begun or (None if acquired else self._blocks.end_left())
        if begun is None:
            await self._end_acquired(acquired, error)
            return
        caller, hold, guard = begun
        lost = guard.end(error)
        try:
            if not kept.take_this(hold):  # the body released it, and perhaps acquired again
                again = kept.take(caller, others=False)
                if again is None:
                    raise self._not_held(block=True)
                hold = again
            await hold._end(lost or error)
        except Error:
            if error is None and lost is None:
                raise
        if lost is not None:
            raise lost from error

    async def _end_acquired(self, hold: Hold | None, error: BaseException | None) -> None:
        try:
            if hold is None:
                raise self._not_held(block=True)
            await hold._end(error)
        except Error:
            if error is None:
                raise


class AnyLock(Holdable):
    """What all locks have in common, regardless of their owner."""

    __slots__ = ()

    _submit = staticmethod(_core.lock_acquire_submit)

    def acquire(
        self, blocking: bool = True, timeout: float | None = -1
    ) -> Coroutine[Any, Any, bool]:
        """Get the lock, waiting if necessary; False if it was not free in time.

        timeout  -1 or None: no limit; any other negative time raises InvalidArgument, a ValueError

        This client holds it under this name until release(), or until the client is closed,
        whatever happens to this object.
        """
        return self._try_to_keep(self._caller(), 1, self._given(acquire_ms, blocking, timeout))

    def release(self) -> Coroutine[Any, Any, None]:
        """Release what acquire() got, even through another object for the same lock.

        Raises NotHeld if there is nothing to release; otherwise like Hold.release().
        """
        return self._give_back(self._caller())

    async def _give_back(self, caller: int) -> None:
        await self._take(caller or self._caller())._end(None)

    def hold(self, *, timeout: float | None = None) -> Holding:
        """Acquire: `async with lock.hold(timeout=2.0) as hold:` or `hold = await lock.hold()`.

        Raises Timeout after the timeout, or Busy if the timeout is 0 (one attempt).  None and -1 mean no limit.
        """
        return Holding(self, 1, self._given(wait_ms, timeout))

    def protect(
        self, *, timeout: float | None = None
    ) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Coroutine[Any, Any, T]]]:
        """A decorator: each call of the coroutine function runs under the lock.

        Like hold(), a call may raise Timeout or Busy, without running the function.  It is
        cancelled and raises Lost if the lock is lost meanwhile.
        """
        return self._protect(1, self._given(wait_ms, timeout))

    async def locked(self) -> bool:
        """Ask the server whether the lock is held."""
        return (await self._ask()).held


class Lock(MutexKind, AnyLock):
    """A named lock that behaves like asyncio.Lock, across processes.

    Each acquisition has its own owner: a second one waits until the first is released, even in
    the same task.  Any task may release: its own hold, or else the oldest.
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
    """A named re-entrant lock whose owner is the task that calls acquire(), hold() or release().

    The owner may acquire again, immediately and without a round trip, and must release as often.
    Another task cannot release it.  The owner is the task that makes the call, not the task that
    awaits it: `asyncio.wait_for(lock.acquire(), 2)` acquires for its caller.  Of a block it is the
    task that enters, also if another one has called hold().
    """

    __slots__ = ()

    _others = False

    def _caller(self) -> int:
        task = self._client._task()
        return 0 if task is None else task_owner(task)

    def _number(self, caller: int, n: int) -> int:
        if not caller:
            raise InvalidArgument("a re-entrant lock needs a task to own it")
        return caller

    def _key(self) -> Hashable:
        return "re-entrant", self._KIND, self.name


class ReadLock(ReadKind, RLock):
    __slots__ = ()


class WriteLock(WriteKind, RLock):
    __slots__ = ()


class RWLock(BaseRWLock[ReadLock, WriteLock]):
    """Many readers, or one writer: `async with rwlock.read:`, `async with rwlock.write:`.

    The owner of either side is the task, as for RLock.  The holder of `write` may also take `read`
    and keep it when `write` is released: the writer becomes a reader, with no other writer in
    between.  The opposite raises UpgradeRefused immediately, because such a reader would wait for
    itself.
    """

    __slots__ = ()

    _READ = ReadLock
    _WRITE = WriteLock

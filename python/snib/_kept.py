"""The holds that acquire() got and release() has not released yet, by client, kind and name.

They belong to no lock object: another object for the same lock finds them, and they stay after all
such objects are gone.  No step needs a mutex, which a fork, a signal handler or the end of the
interpreter could find locked: each step is one operation on a dict.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import sys
from collections.abc import Container, Hashable, Iterator
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR, CO_ITERABLE_COROUTINE
from types import CodeType
from typing import Any, Generic, TypeVar
from weakref import KeyedRef, _remove_dead_weakref, ref  # type: ignore[attr-defined]

from . import _core
from ._hold import LEAVING, OWNED, BaseHold

H = TypeVar("H", bound=BaseHold)

# By which the end of a block is told from that of another one on the same lock: the frame of the `with`, and whether
# anything is between; then the context managers that are, the innermost first, and whether each is an ExitStack.  They
# are not kept alive.  A frame need not be: it lives for as long as the block.  (That of a function which is given an
# ExitStack does not; then the others tell, and no block of another caller is taken for that of such a frame.)  A stack
# does not survive pop_all(), and another manager may get its address: so there is a weak reference, if it can have one.
_Key = tuple[int, CodeType | None, bool, "ref[object] | None"]
Block = tuple[_Key, ...]

HERE = os.path.dirname(__file__) + os.sep
_STACKS = contextlib.ExitStack.enter_context.__code__.co_filename
_MANAGING = {"__enter__", "__exit__", "__aenter__", "__aexit__", "enter_context", "enter_async_context"}
_RESUMED = CO_GENERATOR | CO_COROUTINE | CO_ITERABLE_COROUTINE | CO_ASYNC_GENERATOR


def block_at() -> Block:
    """The block of the program to which the caller, a step of a `with`, belongs."""
    try:
        frame = sys._getframe(2)
    except ValueError:
        frame = sys._getframe(1)  # a program in C calls the step
    code = frame.f_code
    if code.co_name not in _MANAGING and not code.co_filename.startswith(HERE):  # the usual case, first
        return ((id(frame), code, False, None),)
    managers: list[_Key] = []
    while frame.f_back is not None:
        code = frame.f_code
        if not code.co_filename.startswith(HERE):
            if code.co_name not in _MANAGING and code.co_filename != _STACKS:
                break
            if code.co_argcount:  # it is a method
                manager = _manager(frame.f_locals.get(code.co_varnames[0]), code.co_filename == _STACKS)
                if manager not in managers:
                    managers.append(manager)
        frame = frame.f_back
    return (id(frame), frame.f_code, bool(managers), None), *managers


def _manager(manager: object, is_stack: bool) -> _Key:
    """Two are equal only if they are of the same object: as long as it lives, it has one such reference."""
    try:
        return id(manager), None, is_stack, ref(manager)
    except TypeError:  # its class has slots
        return id(manager), None, is_stack, None


class Places:
    """The newest block of each place, by number: however many are open, the usual end of one finds it at once.

    A place is a caller with the identities in a block.  As they may have come to others since, what is found is to be
    compared; and where nothing is found, one that is older than another may be there all the same.
    """

    __slots__ = ("_newest", "_earlier")

    def __init__(self) -> None:
        self._newest: dict[tuple[int, ...], int] = {}
        self._earlier: dict[int, int] = {}  # of a number, the one before it at its place

    def note(self, caller: int, block: Block, number: int) -> None:
        place = (caller, block[0][0]) if len(block) == 1 else (caller, *[key[0] for key in block])
        earlier = self._newest.get(place)
        if earlier is not None:
            self._earlier[number] = earlier
        self._newest[place] = number

    def find(self, caller: int, block: Block) -> int | None:
        place = (caller, block[0][0]) if len(block) == 1 else (caller, *[key[0] for key in block])
        return self._newest.get(place)

    def drop(self, caller: int, block: Block, number: int, known: Container[int]) -> None:
        """known: the numbers that are there."""
        place = (caller, block[0][0]) if len(block) == 1 else (caller, *[key[0] for key in block])
        earlier = self._earlier.pop(number, None)
        if self._newest.get(place) != number:
            return
        if earlier is not None and earlier in known:
            self._newest[place] = earlier
        else:
            self._newest.pop(place, None)


def likeness(begun: Block | None, ended: Block, own: bool, others: bool = True) -> int:
    """How certainly the block that ends is the one that began so, where 0 is not at all: the outermost context manager
    counts most.  That of another caller may be it by its managers, or if it is that of a generator, say, which is
    collected; where others may not release, not by a manager that callers may share.
    """
    if begun is None:
        return 0
    if begun == ended and own:  # the usual case, first
        return 1 << len(ended)
    like = 0
    for n, key in enumerate(ended):  # no generator: what a signal raises as one is dropped is lost
        if key in begun and (own or _may_move(key, others)):
            like += 1 << n
    return like


def is_of_stack(block: Block) -> bool:
    """Whether an ExitStack is among its managers."""
    for _, code, is_stack, _ in block:
        if code is None and is_stack:
            return True
    return False


def _may_move(key: _Key, others: bool) -> bool:
    _, code, between, _ = key
    if code is None:
        return others or between
    return not between and bool(code.co_flags & _RESUMED)


class Kept(Generic[H]):
    """The holds of one lock at one client: each with its caller (a thread, a task, an owner), and the block if `with`
    took it and will give it back.
    """

    __slots__ = ("_holds", "_newest", "_places", "__weakref__")

    def __init__(self) -> None:
        self._holds: dict[int, tuple[int, H, int, Block | None]] = {}
        self._places = Places()  # of those with a block
        self._newest = -1  # the number of the newest, which may have gone

    def keep(self, caller: int, hold: H, permits: int = 1, block: Block | None = None) -> None:
        number = hold._number = _new_number()
        if block:
            self._places.note(caller, block, number)
        self._holds[number] = caller, hold, permits, block
        self._newest = number
        _strong[number] = self
        hold._stage = OWNED

    def take(self, caller: int, others: bool) -> H | None:
        """The caller's newest hold, rather not one of `with`; else, where others may release, the oldest of all; or None.
        """
        # Fast path: the newest hold of all is nearly always the caller's.
        newest = self._newest
        entry = self._holds.get(newest)
        if entry is not None and entry[0] == caller and not entry[3]:
            entry = self._pop(newest)
            if entry is not None:
                return entry[1]
        for number in self._order(caller, others):
            entry = self._pop(number)
            if entry is not None:  # else another thread was faster
                return entry[1]
        return None

    def ending(self, caller: int, block: Block, others: bool) -> H | None:
        """What a block that ends gives back: its own hold, which need be neither the caller's newest nor the
        caller's; or else the caller's newest, rather one of `with`.  Without removing it.  But an ExitStack that no block
        of the caller knows has been given what acquire() took, by push().
        """
        at = self._places.find(caller, block)
        usual = None if at is None else self._holds.get(at)
        if usual is not None and usual[3] == block:
            return usual[1]
        found = within = acquired = None
        is_pushed = is_of_stack(block)
        best = 0
        for held_by, hold, _, taken_in in reversed(self._holds.copy().values()):
            own = held_by == caller
            like = 2 * likeness(taken_in, block, own, others) + own
            if like > best and like > 1:
                if taken_in == block and own:
                    return hold
                found, best = hold, like
            if own and taken_in is not None:
                within = within or hold
                is_pushed = is_pushed and not is_of_stack(taken_in)
            elif own:
                acquired = acquired or hold
        if found is None and is_pushed:
            found = acquired
        return found or within or acquired

    def has_acquired(self, caller: int) -> bool:
        """Whether the caller has a hold that no `with` took."""
        for held_by, _, _, block in self._holds.copy().values():
            if held_by == caller and block is None:
                return True
        return False

    def take_this(self, hold: H) -> bool:
        """This hold, unless it was already taken."""
        entry = self._holds.get(hold._number)
        return entry is not None and entry[1] is hold and self._pop(hold._number) is not None

    def take_permits(self, caller: int, wanted: int) -> list[H]:
        """Holds that add up to the wanted permits, in the order of take(); none if impossible.

        Permits that were acquired together stay together.
        """
        order = [
            (number, entry[2])
            for number in self._order(caller, True)
            if (entry := self._holds.get(number)) is not None
        ]
        numbers = _next_that_fit(order, wanted) or _any_that_fit(order, wanted)
        taken = [entry for number in numbers if (entry := self._pop(number)) is not None]
        if len(taken) < len(numbers):  # another thread was faster
            for entry in taken:
                self.keep(*entry)
            return self.take_permits(caller, wanted)
        return [hold for _, hold, _, _ in taken]

    def count(self) -> int:
        """How many permits there are in all."""
        return sum(permits for _, _, permits, _ in self._holds.copy().values())

    def _order(self, caller: int, others: bool) -> Iterator[int]:
        """The caller's come first, among them what its process has acquired since it was forked.  Its parent's are next: a
        thread that unwinds in the child releases those, which fails, and not what another thread of the child has acquired.
        """
        holds = self._holds.copy()
        since = [number for number in holds if number >= _inherited]
        before = [number for number in holds if number < _inherited]
        for numbers in since, before:
            own = [number for number in reversed(numbers) if holds[number][0] == caller]
            yield from sorted(own, key=lambda number: holds[number][3] is not None)
        if others:
            for numbers in since, before:
                yield from (number for number in numbers if holds[number][0] != caller)

    def _pop(self, number: int) -> tuple[int, H, int, Block | None] | None:
        found = self._holds.get(number)
        if found is not None and found[1]._stage == OWNED:
            found[1]._stage = LEAVING  # in case a signal interrupts before the release
        if found is not None and found[3]:
            self._places.drop(found[0], found[3], number, self._holds)
        entry = self._holds.pop(number, None)
        _strong.pop(number, None)
        if number == self._newest:  # or else each of thousands that follow would have to be looked for
            left = [*self._holds]
            self._newest = left[-1] if left else -1
        return entry

    def forget(self, client: int) -> None:
        """Let go of a client's holds but what `with` took, whose blocks find it lost; such a block alone keeps it.

        A lock over several is kept at one of its clients, whichever comes first in its list.  A quorum outlives the
        others.
        """
        for number, entry in self._holds.copy().items():
            if entry[1]._lock._client._number != client:
                continue
            _strong.pop(number, None)
            if not entry[3]:
                self._pop(number)


_Order = list[tuple[int, int]]  # numbers of holds, each with its permits


def _next_that_fit(order: _Order, wanted: int) -> list[int]:
    """Take each that still fits: enough unless the permits were taken in different amounts."""
    numbers = []
    for number, permits in order:
        if permits <= wanted:
            numbers.append(number)
            wanted -= permits
    return [] if wanted else numbers


def _any_that_fit(order: _Order, wanted: int) -> list[int]:
    """Try all sums."""
    sums: dict[int, list[int]] = {0: []}
    for number, permits in order:
        for total, numbers in [*sums.items()]:
            if total + permits <= wanted and total + permits not in sums:
                sums[total + permits] = [*numbers, number]
    return sums.get(wanted, [])


_new_number = itertools.count().__next__
_inherited = 0  # the first number of this process, if it was forked


def _begin_child() -> None:
    global _inherited
    _inherited = _new_number()


os.register_at_fork(after_in_child=_begin_child)

# Keeps every Kept with holds alive, and with it the holds and their client.
_strong: dict[int, Kept[Any]] = {}

_Name = tuple[int, Hashable]  # of a client's

_names: dict[_Name, KeyedRef[_Name, Kept[Any]]] = {}


_gone = functools.partial(_core.forget_dead, _names)  # runs no Python, see bindings/python_drop.c


def kept_for(client: int, key: Hashable) -> Kept[Any]:
    """The Kept of a lock; it lives while it is in use or has holds."""
    new: Kept[Any] = Kept()
    known = KeyedRef(new, _gone, (client, key))
    while True:
        found = _names.setdefault(known.key, known)()
        if found is not None:
            return found
        _remove_dead_weakref(_names, known.key)  # only if it is still dead


def forget(client: int) -> None:
    """Drop the holds of a client that was closed."""
    for kept in set([*_strong.values()]):
        kept.forget(client)

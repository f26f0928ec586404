"""The conductor of a set of histories: it deals out the turns, is the resource that the locks protect, and lets a fault
meet a holder in the middle of its work.

Every thread of a recorder has a connection to it, and says a line at a time:

    turn <name> <who>                        -> go <wait_ms> <x or r> <0 or 1: a fixed lease>, or over
    read <name> <hold> <token> <owner>       -> <value or -1> <1: stay until the hold is lost>
    lost <name> <hold>                       -> ok
    again <name> <hold> <token>              -> <value or -1>
    write <name> <hold> <token> <value>      -> <value or -1>

-1: refused, because of a greater token that was seen before.  What the resource accepts is in plan.log.  A history ends
after a number of operations (calls for the lock, and holds), not after a time.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


def now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


@dataclass
class Name:
    """One history, and its number at the resource."""

    name: str
    kind: str
    limit: int
    operations: int = 0
    value: int = 0
    token: int = 0  # the greatest that was seen
    writes: int = 0
    refused: int = 0
    parked: list[tuple[Worker, str]] = field(default_factory=list)
    kept: list[Hold] = field(default_factory=list)  # see Conductor.crowd

    @property
    def over(self) -> bool:
        return self.operations >= self.limit


@dataclass
class Hold:
    """A holder that has asked for the number, and waits for it."""

    name: Name
    id: str
    token: int
    owner: str
    shared: bool
    fixed: bool
    worker: Worker
    value: int = 0  # the number when it asked

    @property
    def process(self) -> str:
        return self.id.rpartition("-")[0]

    @property
    def language(self) -> str:
        return self.process.rstrip("0123456789")

    def answer(self, stay: bool) -> None:
        self.worker.say(f"{self.value} {int(stay)}")


class Worker(asyncio.Protocol):
    """The connection of one thread."""

    def __init__(self, conductor: Conductor) -> None:
        self.all = conductor
        self.rest = b""
        self.language = ""  # not known yet
        self.shared = self.fixed = False
        self.served = True  # whether its last call gave it the lock

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        lines = (self.rest + data).split(b"\n")
        self.rest = lines.pop()
        for line in lines:
            words = line.decode().split()
            self.all.last_heard = time.monotonic()
            self.all.verbs[words[0]](self, self.all.names[words[1]], *words[2:])

    def say(self, text: str) -> None:
        self.transport.write(text.encode() + b"\n")


class Conductor:
    def __init__(self, folder: Path, kind: str, names: list[str], operations: int, seed: str) -> None:
        self.names = {name: Name(name, kind, operations) for name in names}
        self.kind = kind
        self.chance = random.Random(seed)
        self.log = open(folder / "plan.log", "w", buffering=1)
        self.share = 0.0  # of its operations, how many a history may have begun by now
        self.joining = self.present = 0  # threads that are to ask for a turn, and those that have
        self.alone = True  # one thread of each process takes part in a history, so that its attempts ask the server
        self.free: Name | None = None  # the one whose turns go on whatever the share
        self.crowd = 0  # holders are kept until there are so many at once, more than the lock allows
        self.barger = ""  # a language whose holders go on only when somebody is waiting
        self.waited_for: Callable[[str], bool] = lambda name: False  # whether somebody was seen waiting for a lock
        self.victim: tuple[str, asyncio.Future[Hold]] | None = None  # in which language
        self.events: dict[asyncio.Future[bool], Callable[[str, Hold | Name], bool]] = {}
        self.last_heard = time.monotonic()
        self.verbs: dict[str, Callable[..., None]] = {
            **{"turn": self.turn, "read": self.read, "lost": self.lost},
            **{"again": self.again, "write": self.write},
        }

    async def listen(self) -> int:
        loop = asyncio.get_running_loop()
        self.server = await loop.create_server(lambda: Worker(self), "127.0.0.1", 0)
        return int(self.server.sockets[0].getsockname()[1])

    def note(self, event: str, *words: object) -> None:
        self.log.write(f"{event} {' '.join(map(str, words))}\n")

    # -- Turns

    def turn(self, worker: Worker, name: Name, who: str) -> None:
        if not worker.language:
            worker.language = who.partition("/")[0].rstrip("0123456789")
            self.present += 1
            self._tell("present", name)
        if name.over:
            self._let_go(name)
            worker.say("over")
            self._tell("over", name)
        elif self.alone and int(who.partition("/")[2]) % 2:
            name.parked.append((worker, who))
        elif name.operations < name.limit * self.share or name is self.free or self._wanted(worker):
            self._go(worker, name)
        else:
            name.parked.append((worker, who))

    def _wanted(self, worker: Worker) -> bool:
        """Whether its next hold may be the one that a fault is waiting for."""
        return self.victim is not None and self.victim[0] in ("", worker.language)

    def _go(self, worker: Worker, name: Name) -> None:
        name.operations += 1
        # One that was refused waits next, or it would use up the operations while nothing happens.
        wait = self.chance.choice((0, 0, 5, 2000, 2000, 2000)) if worker.served else 2000
        worker.served = False
        worker.shared = self.kind == "rw" and self.chance.random() < 0.6
        worker.fixed = self.chance.random() < 0.1
        worker.say(f"go {wait} {'r' if worker.shared else 'x'} {int(worker.fixed)}")
        self._tell("operation", name)

    def allow(self, share: float) -> None:
        self.share = share
        self._unpark()

    def _unpark(self) -> None:
        for name in self.names.values():
            parked, name.parked = name.parked, []
            for worker, who in parked:
                self.turn(worker, name, who)

    async def joined(self, threads: int) -> None:
        """Until so many more threads have asked for their first turn."""
        self.joining += threads
        wanted = self.joining
        await self.until(lambda: self.present >= wanted)

    async def reached(self, share: float) -> None:
        """Until every history has begun that part of its operations."""
        await self.until(lambda: all(n.operations >= n.limit * share for n in self.names.values()))

    # -- The resource

    def read(self, worker: Worker, name: Name, hold: str, token: str, owner: str) -> None:
        name.operations += 1
        worker.served = True
        seen = name.token
        name.token = max(seen, int(token))
        value = name.value if int(token) >= seen else -1
        held = Hold(name, hold, int(token), owner, worker.shared, worker.fixed, worker, value)
        self._tell("read", held)
        if self._wanted(worker) and not (held.shared or held.fixed or self.victim[1].done()):
            self.victim[1].set_result(held)
        elif self.crowd and not (held.shared or held.fixed or name.over):
            self._keep(held)
        elif worker.language == self.barger:
            self._when_waited_for(held)
        elif held.fixed and self.chance.random() < 0.1:
            held.answer(stay=True)
        elif self.chance.random() < 0.1:
            asyncio.get_running_loop().call_later(self.chance.random() / 200, held.answer, False)
        else:
            held.answer(stay=False)

    def _keep(self, held: Hold) -> None:
        held.name.kept.append(held)
        if len(held.name.kept) == self.crowd:
            self._let_go(held.name)

    def _let_go(self, name: Name) -> None:
        kept, name.kept = name.kept, []
        for held in kept:
            held.answer(stay=False)

    def _when_waited_for(self, held: Hold) -> None:
        if held.name.over or self.waited_for(held.name.name):
            held.answer(stay=False)
        else:
            asyncio.get_running_loop().call_later(0.005, self._when_waited_for, held)

    def lost(self, worker: Worker, name: Name, hold: str) -> None:
        worker.say("ok")
        self._tell("lost", Hold(name, hold, 0, "", False, False, worker))

    def again(self, worker: Worker, name: Name, hold: str, token: str) -> None:
        worker.say(str(name.value if int(token) >= name.token else -1))

    def write(self, worker: Worker, name: Name, hold: str, token: str, value: str) -> None:
        if int(token) < name.token:
            name.refused += 1
            worker.say("-1")
            return
        name.value = int(value)
        name.writes += 1
        if self.kind != "permits":  # whose holders are several
            self.note("wrote", name.writes, name.name, hold, token, value)
        worker.say(value)

    # -- Faults

    async def until(self, condition: Callable[[], bool]) -> None:
        if not condition():
            await self.event(lambda *_: condition())

    def event(self, matches: Callable[[str, Hold | Name], bool]) -> asyncio.Future[bool]:
        """Done when something matches: read and lost with the hold, operation and over with the name."""
        future = asyncio.get_running_loop().create_future()
        self.events[future] = matches
        return future

    def _tell(self, what: str, about: Hold | Name) -> None:
        for future, matches in list(self.events.items()):
            if matches(what, about):
                del self.events[future]
                if not future.done():
                    future.set_result(True)

    async def holder(self, language: str) -> Hold | None:
        """The next holder in that language, or any if "", in the middle of its work: it waits for an answer.

        Nobody shares the lock with it, and its lease is renewed.  None: all histories are over."""
        future: asyncio.Future[Hold] = asyncio.get_running_loop().create_future()
        self.victim = language, future
        self._unpark()
        end = asyncio.ensure_future(self.until(lambda: all(n.over for n in self.names.values())))
        await asyncio.wait((future, end), return_when=asyncio.FIRST_COMPLETED)
        end.cancel()
        self.victim = None
        if not future.done():
            return None
        self.free = future.result().name
        self._unpark()
        return future.result()

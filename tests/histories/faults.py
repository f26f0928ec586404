"""What is done to a set of histories while it is recorded.

Most faults meet a holder in the middle of its work, and wait for what must come of it: the lock is gone at the server,
the holder has been told, somebody else has it.  None waits for a time.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from conductor import Hold, Name, now_ns
from proxy import some_bytes

if TYPE_CHECKING:
    from run import Set

Fault = Callable[["Set", str], Awaitable[Hold | None]]


def key(hold: Hold) -> list[str]:
    """The command that shows the owners of a lock."""
    if hold.name.kind == "permits":
        return ["ZRANGE", f"{{{hold.name.name}}}:timeout", "0", "-1", "WITHSCORES"]
    return ["HKEYS", hold.name.name]


async def gone(s: Set, hold: Hold) -> None:
    """Until the server does not know the hold any more, or its lease has ended."""
    while True:
        shown = s.node.command(*key(hold))
        if hold.name.kind == "permits":
            clock = s.node.command("TIME")
            now = int(clock[0]) * 1000 + int(clock[1]) // 1000
            ends = dict(zip(shown[::2], map(float, shown[1::2])))
            if ends.get(hold.owner, 0) < now:
                return
        elif not any(f == hold.owner or f.startswith(f"{hold.owner}:") for f in shown):
            return
        await asyncio.sleep(0.02)


async def passed_on(s: Set, hold: Hold) -> None:
    """Until another process has the lock, or nobody wants it any more."""

    def other(what: str, about: Hold | Name) -> bool:
        if isinstance(about, Hold):
            return what == "read" and about.name is hold.name and about.process != hold.process
        return about is hold.name and about.over

    if not hold.name.over:
        await s.conductor.event(other)


def told(s: Set, hold: Hold) -> asyncio.Future[bool]:
    """Done when the holder says that it has lost the lock."""
    return s.conductor.event(
        lambda what, about: what == "lost" and isinstance(about, Hold) and about.id == hold.id
    )


# ---- Faults of a process and its connections -----------------------------------------------------


async def stop(s: Set, language: str) -> Hold | None:
    """The holder's process stands still until another one has the lock; then it goes on to write."""
    if hold := await s.conductor.holder(language):
        process = s.processes[hold.process]
        process.stop()
        await gone(s, hold)
        await passed_on(s, hold)
        hold.answer(stay=False)
        process.go_on()
    return hold


async def kill(s: Set, language: str) -> Hold | None:
    """The holder's process dies; another one takes its place."""
    if hold := await s.conductor.holder(language):
        s.processes[hold.process].kill()
        await s.start(hold.language)
        await gone(s, hold)
        await passed_on(s, hold)
        s.conductor.free = None
        await s.joined()
    return hold


async def cut(s: Set, language: str) -> Hold | None:
    """The holder's process has no connection until it knows that it has lost the lock, and another one has it."""
    if hold := await s.conductor.holder(language):
        proxy = s.proxies[hold.process]
        proxy.cut()
        await _stay_until_passed_on(s, hold)
        proxy.mend()
    return hold


async def silence(s: Set, language: str) -> Hold | None:
    """The same with connections that stay open; what was sent on them meanwhile arrives afterwards."""
    if hold := await s.conductor.holder(language):
        proxy = s.proxies[hold.process]
        proxy.silence()
        await _stay_until_passed_on(s, hold)
        proxy.speak()
    return hold


async def _stay_until_passed_on(s: Set, hold: Hold) -> None:
    known = told(s, hold)
    hold.answer(stay=True)
    await gone(s, hold)
    await passed_on(s, hold)
    s.conductor.free = None  # what follows takes Redisson seconds, and the others no operations
    await known


async def chop(s: Set, language: str) -> Hold | None:
    """A client's connections end somewhere in a message."""
    if hold := await s.conductor.holder(language):
        s.proxies[hold.process].cut_after(some_bytes(s.chance))
        hold.answer(stay=False)
    return hold


# ---- Faults of the server ------------------------------------------------------------------------


async def delete(s: Set, language: str) -> Hold | None:
    """The lock's key is deleted; the holder stays until it is told."""
    if hold := await s.conductor.holder(language):
        known = told(s, hold)
        begin = now_ns()
        s.node.command("DEL", hold.name.name)
        s.conductor.note("delete", now_ns(), begin, hold.name.name)
        hold.answer(stay=True)
        await passed_on(s, hold)
        s.conductor.free = None
        await known
    return hold


async def clients(s: Set, _language: str) -> Hold | None:
    """The server closes all connections of one kind."""
    if hold := await s.conductor.holder(""):
        s.node.command("CLIENT", "KILL", "TYPE", s.chance.choice(("normal", "pubsub")))
        hold.answer(stay=False)
    return hold


async def restart(s: Set, _language: str) -> Hold | None:
    """The server dies and comes back with all that it had acknowledged."""
    if hold := await s.conductor.holder(""):
        await asyncio.to_thread(s.node.restart)
        hold.answer(stay=False)
    return hold


async def wipe(s: Set, _language: str) -> Hold | None:
    """The server dies and comes back with nothing."""
    if hold := await s.conductor.holder(""):
        begin = now_ns()

        def work() -> None:
            s.node.kill()
            shutil.rmtree(s.node.folder / "appendonlydir")
            s.node.start()

        await asyncio.to_thread(work)
        end = now_ns()
        for name in s.conductor.names:
            s.conductor.note("delete", end, begin, name)
        hold.answer(stay=False)
    return hold


async def freeze(s: Set, _language: str) -> Hold | None:
    """The server stands still until the holder knows that it has lost the lock."""
    if hold := await s.conductor.holder(""):
        s.node.stop()
        known = told(s, hold)
        hold.answer(stay=True)
        await known
        s.node.go_on()
    return hold


ALL: dict[str, Fault] = {
    **{"stop": stop, "kill": kill, "cut": cut, "silence": silence, "chop": chop},
    **{"delete": delete, "clients": clients, "restart": restart, "wipe": wipe, "freeze": freeze},
}

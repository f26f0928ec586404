"""What a soak adds to the conductor of the histories: turns at a steady pace, without an end; pauses, in which nobody holds
anything; processes that are asked to end.  And the logs of the recorders: read from named pipes, because files would grow
for as long as the soak lasts.
"""

from __future__ import annotations

import asyncio
import collections
import os
from pathlib import Path
from typing import TextIO

from conductor import Conductor, Hold, Name, Worker, now_ns  # of tests/histories

ENDLESS = 1 << 62


class Steady(Conductor):
    """The conductor of a world.  A turn begins after a time for thought, unless a fault is waiting for a holder."""

    def __init__(self, folder: Path, kind: str, names: list[str], seed: str, think_s: float) -> None:
        super().__init__(folder, kind, names, ENDLESS, seed)
        self.alone, self.share, self.think_s = False, 1.0, think_s
        self.pausing, self.crowded = False, 0
        self.who: dict[Worker, str] = {}  # every connection that has asked for a turn
        self.thinking: set[Worker] = set()
        self.out: set[Worker] = set()  # those that were told to go, and have not come back
        self.retired: set[str] = set()  # processes that are asked to end
        self.served: dict[str, int] = {}  # when each process last had a lock
        self.operations = 0  # of all windows that are closed

    # -- Turns

    def turn(self, worker: Worker, name: Name, who: str) -> None:
        if worker.transport.is_closing():
            return
        self.who[worker] = who
        self.out.discard(worker)
        if who.partition("/")[0] in self.retired:
            worker.say("over")
        else:
            super().turn(worker, name, who)
        self._tell("turn", name)

    def _go(self, worker: Worker, name: Name) -> None:
        swift = name is self.free or self._wanted(worker)
        if self.pausing:
            name.parked.append((worker, self.who[worker]))
        elif not swift and worker not in self.thinking:
            self.thinking.add(worker)
            delay = self.chance.random() * 2 * self.think_s
            loop = asyncio.get_running_loop()
            loop.call_later(delay, self.turn, worker, name, self.who[worker])
        elif worker not in self.out:
            self.thinking.discard(worker)
            self.out.add(worker)
            super()._go(worker, name)

    def read(self, worker: Worker, name: Name, hold: str, token: str, owner: str) -> None:
        self.served[hold.rpartition("-")[0]] = now_ns()
        super().read(worker, name, hold, token, owner)

    # -- Pauses and ends

    async def pause(self) -> None:
        """Until nobody holds or asks for anything."""
        self.pausing, self.crowded, self.crowd = True, self.crowd, 0
        for name in self.names.values():
            self._let_go(name)
        await self.until(lambda: not self.out)

    def begin(self, folder: Path) -> None:
        """A window: its log is in the folder, and its numbers begin anew."""
        self.log.close()
        self.log = open(folder / "plan.log", "w", buffering=1)
        for name in self.names.values():
            self.operations += name.operations
            name.operations = name.value = name.token = name.writes = 0
        if self.pausing:
            self.pausing, self.crowd = False, self.crowded
        self._unpark()

    @property
    def recent(self) -> int:
        """Operations of this window."""
        return sum(name.operations for name in self.names.values())

    def retire(self, me: str) -> None:
        """Ask a process to end at its next turns."""
        self.retired.add(me)
        self._unpark()

    def forget(self, me: str) -> None:
        """A process has died."""
        dead = {worker for worker, who in self.who.items() if who.partition("/")[0] == me}
        for worker in dead:
            worker.transport.abort()
            del self.who[worker]
        self.out -= dead
        self.thinking -= dead
        self.served.pop(me, None)
        self.retired.discard(me)
        for name in self.names.values():
            name.parked = [(worker, who) for worker, who in name.parked if worker not in dead]
            name.kept = [held for held in name.kept if held.worker not in dead]
            self._tell("turn", name)

    def end(self) -> None:
        """Everybody is told that it is over."""
        for name in self.names.values():
            name.limit = 0
        self.pausing, self.crowd = False, 0
        self._unpark()

    def close(self) -> None:
        self.log.close()
        if hasattr(self, "server"):
            self.server.close()

    async def all_served(self, since: int) -> None:
        """Until every process has had a lock since then."""
        await self.until(lambda: all(at > since for at in self.served.values()))


class Log:
    """What one recorder writes: counted, and kept in a file of the present window."""

    def __init__(self, path: Path, counts: collections.Counter[tuple[str, ...]]) -> None:
        os.mkfifo(path)
        self.path, self.counts = path, counts
        # For both: with a writer there is always one, and no end of file.
        self.pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self.rest = b""
        self.file: TextIO | None = None
        self.language = path.stem.rstrip("0123456789")
        asyncio.get_running_loop().add_reader(self.pipe, self.drain)

    def drain(self) -> None:
        """Take what is there."""
        while True:
            try:
                data = os.read(self.pipe, 1 << 16)
            except BlockingIOError:
                return
            lines = (self.rest + data).split(b"\n")
            self.rest = lines.pop()
            for line in lines:
                self._line(line.decode())

    def _line(self, line: str) -> None:
        words = line.split()
        event = words[0]
        if event in ("grant", "start"):
            self.counts[event, self.language] += 1
        elif event in ("fail", "lost", "release"):  # with a code, or a reason
            self.counts[event, words[-1], self.language] += 1
        if self.file:
            self.file.write(line + "\n")

    def begin(self, folder: Path) -> None:
        """What comes from now on belongs to this window."""
        self.drain()
        if self.file:
            self.file.close()
        self.file = open(folder / f"{self.path.stem}.log", "w")

    def close(self) -> None:
        """The process has ended."""
        if self.pipe >= 0:
            self.drain()
            asyncio.get_running_loop().remove_reader(self.pipe)
            os.close(self.pipe)
            self.pipe = -1
            self.path.unlink()
        if self.file:
            self.file.close()
            self.file = None


__all__ = ["Hold", "Log", "Steady", "now_ns"]

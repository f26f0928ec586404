"""What the queues of fair locks are, looked at over and over: the log `queue.log` for judge/.

The order is promised to waiters that can be reached.  A release passes over a waiter whose client is not subscribed at
that moment, and drops one whose client has not asked for 2.5 s.  Such a waiter is written with a question mark before it;
so is every waiter when a subscriber's connection has ended between two looks, and a Redisson client's, whose places
depend on its own clock.  In the first case a line begins with an exclamation mark: those that are not there any more may
have been passed over.

Between two looks a client may also leave a channel and come back, as when a waiter comes just as the last one has gone.  The
scripts note whom a release could not notify: such a waiter is written with a question mark, too.  But there are few of whom
no look sees that they could not be reached; more of them are a fault.
"""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import Any

from conductor import now_ns
from wire import Link  # of tests/topology

PASSED = 6  # so many in a set of histories, of some 600 that were seen to wait
SILENT_MS = 1500  # far from 2500, so that a drop is not missed between two looks of judge/'s `gap`


class Sampler:
    """Looks until end()."""

    def __init__(self, folder: Path, socket: Path, names: list[str]) -> None:
        self.socket, self.names = socket, names
        self.log = open(folder / "queue.log", "w", buffering=1)
        self.subscribers: set[str] = set()
        self.waiting: dict[str, bool] = {}  # for which names somebody waits without a doubt
        self.sure: set[str] = set()  # of whom all looks saw that they could be reached
        self.passed: set[str] = set()  # of these, whom a release could not notify
        self.over = False
        self.task = asyncio.ensure_future(asyncio.to_thread(self._run))

    async def end(self) -> None:
        self.over = True
        await self.task
        self.log.close()
        passed = sorted(self.passed & self.sure)
        assert len(passed) <= PASSED, f"passed over, although they could be reached: {' '.join(passed)}"

    def _run(self) -> None:
        link: Link | None = None
        while not self.over:
            begin = now_ns()
            try:
                link = link or Link(self.socket)
                found = self._look(link)
            except OSError:
                link, found = None, None
            end = now_ns()
            for i, name in enumerate(self.names):
                queue = " ".join(found[i]) if found else "?"
                self.waiting[name] = bool(found) and any(word[0] not in "?!" for word in found[i])
                self.log.write(f"queue {end} {begin} {name} {queue}\n")
            time.sleep(0.003)

    def _look(self, link: Link) -> list[list[str]] | None:
        """The queues at one moment; None if the server does not tell."""
        link.send("MULTI")
        link.send("TIME")
        link.send("PUBSUB", "CHANNELS")
        link.send("CLIENT", "LIST", "TYPE", "PUBSUB")
        for name in self.names:
            link.send("LRANGE", f"redisson_lock_queue:{{{name}}}", 0, -1)
            link.send("HGETALL", f"snib_lock_beats:{{{name}}}")
        link.send("EXEC")
        replies = [link.receive() for _ in range(5 + 2 * len(self.names))]
        if not isinstance(replies[-1], list):
            return None
        clock, channels, clients, *rest = replies[-1]
        subscribers = set(re.findall(r"^id=(\d+)", clients, re.MULTILINE))
        steady = self.subscribers <= subscribers
        self.subscribers = subscribers
        now = int(clock[0]) * 1000 + int(clock[1]) // 1000
        heard = {channel[-36:] + channel[: -37] for channel in channels} if steady else set()
        return [
            ([] if steady else ["!"]) + [self._marked(name, owner, heard, now, rest[2 * i + 1]) for owner in rest[2 * i]]
            for i, name in enumerate(self.names)
        ]

    def _marked(self, name: str, owner: str, heard: set[str], now: int, beats: list[Any]) -> str:
        client, noted = owner[:36], dict(zip(beats[::2], beats[1::2]))
        alive = now - int(noted.get(client, 0)) < SILENT_MS
        reached = f"{client}redisson_lock__channel:{{{name}}}" in heard
        if not (alive and reached and owner[14] == "8"):
            self.sure.discard(owner)
            self.passed.discard(owner)
            return f"?{owner}"
        if f"skipped {owner}" in noted:
            self.passed.add(owner)
            return f"?{owner}"
        self.sure.add(owner)
        return owner

"""When a topology announced a change: every sentinel or cluster node is polled over its unix socket."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cluster import Cluster
from history import SECOND
from node import Node
from sentinels import Sentinels
from wire import Link, ReplyError


@dataclass(frozen=True)
class Announcement:
    """From this time on (CLOCK_BOOTTIME, as in the workers' logs) the node reported this address or id."""

    at: int
    by: Node
    what: str


class Watch:
    """Polls from creation to end.  The announcement is the master's address as sentinels report it, or the id of the
    node that serves the slot.  A change is seen some milliseconds late: one round over all nodes."""

    def __init__(self, them: Sentinels | Cluster, slot: int = 0, round_s: float = 0.005) -> None:
        self.heard: list[Announcement] = []
        self._last: dict[Node, str] = {}
        self._links: dict[Node, Link] = {}
        self._round_s = round_s
        self._nodes: list[Node] = them.sentinels if isinstance(them, Sentinels) else them.nodes
        self._ask: Callable[[Link], str]
        if isinstance(them, Sentinels):
            service = them.service
            self._ask = lambda link: ":".join(
                link.command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", service)
            )
        else:
            self._ask = lambda link: _owner(link, slot)
        self._over = threading.Event()
        self._first = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._first.wait(30), "no node of the topology has published anything"

    def _run(self) -> None:
        while not self._over.is_set():
            for node in list(self._nodes):
                if node.running and not node.stopped:
                    self._hear(node)
            self._first.set()
            time.sleep(self._round_s)
        for link in self._links.values():
            link.close()

    def _hear(self, node: Node) -> None:
        try:
            if node not in self._links:
                self._links[node] = Link(node.socket, password=node.password, limit=1)
            what = self._ask(self._links[node])
        except (OSError, ReplyError):  # currently killed, stopped or cut off
            if link := self._links.pop(node, None):
                link.close()
            return
        if what and self._last.get(node) != what:
            self._last[node] = what
            self.heard.append(Announcement(time.clock_gettime_ns(time.CLOCK_BOOTTIME), node, what))

    def changes(self, since: int, old: str) -> list[Announcement]:
        """Announcements since then that differ from the old one."""
        return [each for each in self.heard if each.at >= since and each.what != old]

    def first(self, since: int, old: str) -> int | None:
        """When the first node announced another one; None: never."""
        return min((each.at for each in self.changes(since, old)), default=None)

    def last(self, since: int, old: str) -> int | None:
        """When the last node had announced another one."""
        firsts: dict[Node, int] = {}
        for each in self.changes(since, old):
            firsts.setdefault(each.by, each.at)
        return max(firsts.values(), default=None)

    def end(self) -> None:
        self._over.set()
        self._thread.join()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


def by_themselves(heard: Iterable[Announcement], known: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The failovers that are none of the known ones: on a busy machine a master that has no time to answer is taken for dead.
    The new one may grant some seconds before it is announced, where a sentinel has no time either, and the old one for some
    seconds after.  During a known one each node announces one change; a second one is another failover."""
    last: dict[object, str] = {}
    found: list[tuple[int, int]] = []
    told: set[tuple[object, int, int]] = set()
    for each in heard:
        if last.setdefault(each.by, each.what) != each.what:
            within = {(each.by, a, b) for a, b in known if a <= each.at <= b}
            begin, end = each.at - 3 * SECOND, each.at + 5 * SECOND
            if not within or within <= told:
                if found and begin <= found[-1][1]:  # another node tells the same
                    begin = min(begin, found.pop()[0])
                found.append((begin, end))
            told |= within
        last[each.by] = each.what
    return found


def _owner(link: Link, slot: int) -> str:
    """The id of the node that serves the slot according to this node; empty if none does."""
    for low, high, master, *_ in link.command("CLUSTER", "SLOTS"):
        if low <= slot <= high:
            return str(master[2])
    return ""

"""A world of a soak: one deployment, one kind of lock, and processes that contend for a few names of it while faults go on.

Time is cut into windows.  At the end of each the conductor pauses until nobody holds anything, the logs of the window are
judged and dropped, and the next one begins with the same processes.  A fault is drawn from the seed after each gap, one at a
time in a world; most of them meet a holder in the middle of its work (faults.py of tests/histories).
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import itertools
import random
import re
import shutil
import time
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faults  # of tests/histories
import recorders
import rounds  # of tests/topology
import snib
from announce import Watch
from cluster import Cluster, slot_of
from flat import Curve
from node import Node
from proxy import Proxy
from sentinels import Sentinels
from steady import Log, Steady, now_ns
from verdict import Failover, Verdict, explained, linearizable, losses, read, writes
from wire import ReplyError

BUILD = recorders.BUILD
JUDGE = BUILD / "soak/judge"
KEPT = 10  # refused windows of a soak
NAMES, WORKERS, PERMITS = 2, 2, 3
WINDOW_OPERATIONS = 4000
ABSENT = (OSError, ReplyError)  # a server that is failing over
STUCK_S = 900.0  # for what has to come to an end; far more than a slow machine needs
LEASE_MS = rounds.LEASE_MS
# How often each fault comes, relative to the others.
PROCESS = {"stop": 4, "kill": 2, "upgrade": 2}
SINGLE = {"cut": 3, "silence": 3, "chop": 6, "clients": 4, "delete": 2, "restart": 2, "freeze": 2, "wipe": 1}
FAILOVERS = {"master killed": 2, "master stopped": 2, "failover by hand": 2}
ALONE = "failover by itself"  # that no fault was meant to be
SPARED = {"permits": ("delete", "wipe"), "fenced": ("wipe",)}  # whose number, or tokens, would begin again
STAY = ("redisson_unlock_latch:", "redisson_lock_token:", "redisson_lock_queue:", "redisson_lock_timeout:", "snib_")


async def within(work: Coroutine[Any, Any, Any], what: str) -> Any:
    """What has to come to its end does."""
    try:
        return await asyncio.wait_for(work, STUCK_S)
    except asyncio.TimeoutError:
        raise AssertionError(f"not within {STUCK_S:.0f} s: {what}") from None


@dataclass
class Plan:
    """What a world is to be."""

    deployment: str  # single, sentinel or cluster
    kind: str
    languages: list[str]  # of its processes
    seed: str
    gap_s: float = 5.0
    think_s: float = 0.2
    window_s: float = 60.0
    old: bool = False  # whether there is an older version of the library
    plant: str = ""

    @property
    def title(self) -> str:
        return f"{self.deployment}-{self.kind}"

    def faults(self) -> Iterator[tuple[float, str, str, float]]:
        """Gaps in seconds, each with a fault, the language of the process that it meets, and which of them, from 0 to 1."""
        chance = random.Random(f"{self.seed} {self.title}")
        weights = {**PROCESS, **(SINGLE if self.deployment == "single" else FAILOVERS)}
        for spared in SPARED.get(self.kind, ()):
            weights.pop(spared, None)
        elder = self.languages[0]  # whose processes live as long as the soak
        mortal = sorted({each for each in self.languages if each not in (elder, "java")})
        if not mortal:
            del weights["kill"], weights["upgrade"]
        while True:
            (fault,) = chance.choices(list(weights), list(weights.values()))
            languages = mortal if fault in ("kill", "upgrade") else sorted(set(self.languages))
            yield chance.expovariate(1 / self.gap_s), fault, chance.choice(languages), chance.random()


class Member(recorders.Process):
    """A recorder of a world, with its log and what was seen of its memory."""

    def __init__(self, world: World, me: str, url: str, words: dict[str, object]) -> None:
        self.world = world
        self.curve = Curve(me)
        self.log = Log(world.live / f"{me}.log", world.counts)
        super().__init__(me, world.live, url, words)

    def kill(self) -> None:
        super().kill()
        self.world.leave(self)


class World:
    """What all worlds have in common."""

    def __init__(self, plan: Plan, folder: Path, kept: Path) -> None:
        self.plan, self.folder, self.kept = plan, folder, kept
        self.live = folder / "live"
        self.live.mkdir(parents=True)
        self.chance = random.Random(f"{plan.seed} {plan.title} bytes")
        self.names = [f"{plan.kind}{i}" for i in range(NAMES)]
        self.conductor = Steady(folder, plan.kind, self.names, plan.seed, plan.think_s)
        self.processes: dict[str, Member] = {}
        self.born: collections.Counter[str] = collections.Counter()
        self.counts: collections.Counter[tuple[str, ...]] = collections.Counter()  # lines of the logs
        self.met: collections.Counter[str] = collections.Counter()  # faults
        self.longest: dict[str, float] = {}  # how many seconds one of each took at most
        self.curves: list[Curve] = []  # of processes that have ended
        self.wrong: list[str] = []
        self.windows, self.judged = 0, Verdict()
        self.ready, self.ending = asyncio.Event(), asyncio.Event()

    # -- Processes

    async def url(self, me: str) -> str:
        raise NotImplementedError

    async def start(self, language: str) -> None:
        """A new process in a language, or in an older version of it."""
        me = f"{language}{self.born[language]}"
        self.born[language] += 1
        words = {
            **{"kind": self.plan.kind, "names": ",".join(self.names), "workers": WORKERS, "conductor": self.port},
            **{"lease_ms": LEASE_MS, "fixed_ms": LEASE_MS * 4 // 5},
            **{"recheck_ms": LEASE_MS * 3 // 5, "patience_ms": 2 * LEASE_MS},
        }
        member = Member(self, me, await self.url(me), words)
        member.log.begin(self.window)
        self.processes[me] = member

    async def joined(self) -> None:
        """Until every thread of the process that was started last takes part."""
        await self.conductor.joined(WORKERS * NAMES)

    def leave(self, member: Member) -> None:
        """A process has ended, by itself or by a fault."""
        if self.processes.pop(member.me, None):
            member.log.close()
            self.conductor.forget(member.me)
            if member.curve.long:
                self.curves.append(member.curve)
            if not member.errors.stat().st_size:
                member.errors.unlink()

    async def _ended(self, members: list[Member]) -> None:
        """Until these have ended by themselves."""
        while any(member.process.poll() is None for member in members):
            await asyncio.sleep(0.05)
        for member in members:
            assert not member.failure(), member.failure()
            self.leave(member)

    async def upgrade(self, language: str) -> bool:
        """A process ends in order, and another version of the library takes its place if there is one."""
        member = next(m for m in self.processes.values() if m.language == language)
        self.conductor.retire(member.me)
        await self._ended([member])
        base, _, old = language.partition(".")
        await self.start(base if old or not self.plan.old else f"{base}.old")
        await self.joined()
        return True

    # -- Life

    async def run(self) -> None:
        """Until `ending` is set; what goes wrong is in `wrong`."""
        tasks = [asyncio.ensure_future(self._live()), asyncio.ensure_future(self._watch())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
        except Exception as error:  # the report has it, and the other worlds end in order
            self.wrong.append(f"{self.plan.title}: {type(error).__name__}: {error}")
            self.keep(f"failed in window {self.windows}")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.ready.set()
            for member in list(self.processes.values()):
                member.kill()
            self.conductor.close()
            await asyncio.to_thread(self.close)

    async def _live(self) -> None:
        await within(self._begin(), "its processes take part")
        plan = self.plan.faults()
        while not self.ending.is_set():
            await self._window(plan)
        await within(self._end(), "its processes end")
        await self.nothing_left()

    async def _begin(self) -> None:
        self.begin_window()
        await asyncio.to_thread(self.deploy)
        self.port = await self.conductor.listen()
        for language in self.first_languages():
            await self.start(language)
        for _ in self.plan.languages:
            await self.joined()
        self.ready.set()

    def first_languages(self) -> Iterator[str]:
        """Every second process of a language begins with the older version."""
        seen: collections.Counter[str] = collections.Counter()
        for i, language in enumerate(self.plan.languages):
            seen[language] += 1
            if language == "python" and self.plan.plant == "leak":
                yield "python.leaky"
            elif self.plan.old and language != "java" and (seen[language] % 2 == 0 or i == len(self.plan.languages) - 1):
                yield f"{language}.old"
            else:
                yield language

    async def _watch(self) -> None:
        """Fails when a process has ended that should not, or when nothing is heard of them any more."""
        while True:
            for member in list(self.processes.values()):
                assert not member.failure(), member.failure()
            quiet = time.monotonic() - self.conductor.last_heard
            assert not self.ready.is_set() or quiet < STUCK_S, f"nothing was heard of the processes for {quiet:.0f} s"
            await asyncio.sleep(0.2)

    async def _end(self) -> None:
        self.conductor.end()
        await self._ended(list(self.processes.values()))

    # -- Windows

    @property
    def window(self) -> Path:
        return self.folder / f"window{self.windows}"

    def begin_window(self) -> None:
        self.window.mkdir()
        for member in self.processes.values():
            member.log.begin(self.window)
        self.conductor.begin(self.window)
        number = PERMITS if self.plan.kind == "permits" else 0
        for name in self.names:
            self.conductor.note("plan", now_ns(), name, self.plan.kind, number, LEASE_MS)

    async def _window(self, plan: Iterator[tuple[float, str, str, float]]) -> None:
        end = time.monotonic() + self.plan.window_s

        def over() -> bool:
            full = self.conductor.recent >= WINDOW_OPERATIONS or time.monotonic() >= end
            return full or self.ending.is_set()

        while not over():
            gap, fault, language, which = next(plan)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.ending.wait(), gap)
            if not self.ending.is_set():
                await self._fault(fault, language, which)
        await within(self.conductor.pause(), "nobody asks for anything or holds it")
        await within(self.released(), "nothing is held on the server")
        for member in self.processes.values():
            member.log.drain()
        last, self.windows = self.window, self.windows + 1
        self.begin_window()
        await self._judge(last)

    async def _fault(self, fault: str, language: str, which: float) -> None:
        begin = now_ns()
        versions = sorted({m.language for m in self.processes.values() if m.language.partition(".")[0] == language})
        chosen = versions[int(which * len(versions))]
        try:
            met = await within(self.fault(fault, chosen), f"the fault {fault} {chosen} comes to its end")
        finally:
            self.conductor.free = None
        if met:
            self.met[fault] += 1
            self.longest[fault] = max(self.longest.get(fault, 0.0), (now_ns() - begin) / 1e9)
            self.conductor.note("fault", now_ns(), begin, fault.replace(" ", "-"), chosen)

    async def _judge(self, folder: Path) -> None:
        verdict = await self.verdict(folder)
        for count in ("overlaps", "untold", "updates", "stale", "refusals"):
            setattr(self.judged, count, getattr(self.judged, count) + getattr(verdict, count))
        if verdict.refused:
            (folder / "verdict").write_text(verdict.text)
            self.wrong += [f"{self.plan.title} in {folder.name}: {text}" for text in verdict.refused]
            self.keep(folder.name, folder)
        shutil.rmtree(folder)

    def keep(self, word: str, folder: Path | None = None) -> None:
        """What is needed to understand what went wrong."""
        target = self.kept / f"{self.plan.title}-{word.replace(' ', '-')}"
        if len(list(self.kept.glob("*-*"))) < KEPT and not target.exists():
            shutil.copytree(folder or self.window, target)
            for errors in self.live.glob("*.errors"):
                if errors.stat().st_size:
                    shutil.copy(errors, target)

    # -- What is on the servers

    def _held(self, name: str) -> bool:
        node = self.server(name)
        if self.plan.kind != "permits":
            return bool(node.command("EXISTS", name))
        seconds, us = map(int, node.command("TIME"))
        now = seconds * 1000 + us // 1000
        return bool(node.command("ZCOUNT", f"{{{name}}}:timeout", now, "+inf"))

    async def released(self) -> None:
        """Until nothing has been held for a lease: what a dead process or a call without an answer left behind has ended."""
        free = time.monotonic()
        while time.monotonic() - free < LEASE_MS / 1000:
            held = True
            with contextlib.suppress(*ABSENT):
                held = any([self._held(name) for name in self.names])
            free = time.monotonic() if held else free
            await asyncio.sleep(0.05)

    def _left(self) -> list[str]:
        """The keys that have neither an end nor a reason to stay, and names of which permits are missing."""
        left = []
        for name in self.names:
            node = self.server(name)
            taken = f"{{{name}}}:timeout"
            if self.plan.kind == "permits":  # whose number stays
                number = int(node.command("GET", name) or 0) + node.command("ZCARD", taken)
                left += [f"{number} permits of {name}"] if number != PERMITS else []
            stays = (name, taken) if self.plan.kind == "permits" else ()
            keys = [key for key in node.command("KEYS", f"*{name}*") if key not in stays and not key.startswith(STAY)]
            left += [key for key in keys if node.command("TTL", key) == -1]
        return left

    async def nothing_left(self) -> None:
        """Until all that is left ends by itself, or stays for a reason."""
        end, left = time.monotonic() + STUCK_S, ["unknown"]
        while left:
            assert time.monotonic() < end, f"{self.plan.title}: after {STUCK_S:.0f} s there still are {', '.join(left)}"
            with contextlib.suppress(*ABSENT):
                left = self._left()
            await asyncio.sleep(0.1)

    # -- What the deployments do differently

    def deploy(self) -> None: ...

    def close(self) -> None: ...

    async def fault(self, fault: str, language: str) -> Any: ...

    def server(self, name: str) -> Node:
        """The one that serves the name now."""
        raise NotImplementedError

    async def verdict(self, folder: Path) -> Verdict: ...  # type: ignore[empty-body]


class Single(World):
    """One server, and a proxy before it for each process."""

    def deploy(self) -> None:
        # What is written before the answer survives the process; only a machine that dies needs the disk.
        options = ["appendonly yes", "appendfsync no"]
        servers = ["server", "other"] if self.plan.plant == "overlap" else ["server"]
        self.nodes = [Node(self.folder, name, 0, options=options) for name in servers]
        self.node, self.proxies = self.nodes[0], dict[str, Proxy]()
        for node in self.nodes:
            node.start()
        if len(self.nodes) > 1:
            self.conductor.crowd = 1 + (PERMITS if self.plan.kind == "permits" else 1)
        if self.plan.kind == "permits":
            with snib.connect(f"unix://{self.node.socket}") as client:
                for name in self.names:
                    client.permits(name).init(PERMITS)

    def close(self) -> None:
        for node in getattr(self, "nodes", []):
            node.end()

    async def url(self, me: str) -> str:
        node = self.nodes[0 if me.rstrip("0123456789") == self.plan.languages[0] else -1]
        proxy = self.proxies[me] = Proxy(str(node.socket))
        return f"redis://127.0.0.1:{await proxy.listen()}"

    def leave(self, member: Member) -> None:
        super().leave(member)
        if proxy := self.proxies.pop(member.me, None):
            proxy.end()

    async def fault(self, fault: str, language: str) -> Any:
        if self.plan.plant:
            return None
        if fault == "upgrade":
            return await self.upgrade(language)
        return await faults.ALL[fault](self, language)  # type: ignore[arg-type]

    def server(self, name: str) -> Node:
        return self.node

    async def verdict(self, folder: Path) -> Verdict:
        return await linearizable(JUDGE, folder)


class Deployed(World):
    """Sentinels or a cluster, whose masters fail; the processes are stopped, killed and upgraded meanwhile."""

    WAYS = {"master killed": "kill", "master stopped": "stop", "failover by hand": "manual"}

    def deploy(self) -> None:
        self.rounds = rounds.World(self.plan.deployment, "kill", self.folder / "them", None)
        self.node = self  # for faults that ask where a lock is: see command()
        self.failovers: list[Failover] = []
        if isinstance(self.rounds.them, Sentinels):
            self.watches = dict.fromkeys(self.names, Watch(self.rounds.them, 0, 0.2))
        else:
            self.watches = {name: Watch(self.rounds.them, slot_of(name), 0.2) for name in self.names}

    def close(self) -> None:
        for watch in getattr(self, "watches", {}).values():
            watch.end()
        if hasattr(self, "rounds"):
            self.rounds.them.end()

    async def url(self, me: str) -> str:
        return self.rounds.them.url

    def server(self, name: str) -> Node:
        self.rounds.slot = slot_of(name)
        return self.rounds.master

    def command(self, *words: str) -> Any:
        """A command to the master that serves the key."""
        return self.server(words[1]).command(*words)

    async def fault(self, fault: str, language: str) -> Any:
        if fault == "upgrade":
            return await self.upgrade(language)
        if fault in self.WAYS:
            return await self._failover(self.WAYS[fault])
        return await faults.ALL[fault](self, language)  # type: ignore[arg-type]

    async def _failover(self, way: str) -> bool:
        """A master fails; it comes back when every process has had a lock again."""
        self.rounds.way, self.rounds.slot = way, slot_of(self.chance.choice(self.names))
        begin, alarms = now_ns(), await asyncio.to_thread(self._alarms)
        old, names = await asyncio.to_thread(self._strike)
        await self.conductor.all_served(now_ns())
        await asyncio.to_thread(self.rounds.heal, old)
        # One by hand that a master was too slow for becomes one like all others.
        loses = self.rounds.loses or await asyncio.to_thread(self._alarms) != alarms
        self.failovers.append(Failover(begin, now_ns(), names, loses))
        return True

    def _alarms(self) -> list[str]:
        """How often the nodes of a cluster have told each other that one is dead; those who were never told say nothing."""
        if not isinstance(self.rounds.them, Cluster) or self.rounds.loses:
            return []
        told = "".join(node.command("CLUSTER", "INFO") for node in self.rounds.them.nodes)
        return re.findall(r"cluster_stats_messages_fail_\w+:\d+", told)

    def _strike(self) -> tuple[Node, list[str]]:
        """The master, and the names that it served."""
        them, slot = self.rounds.them, self.rounds.slot
        self.rounds.rest()
        old = self.rounds.master
        served = range(1 << 14) if isinstance(them, Sentinels) else them.slots(old)
        names = [name for name in self.names if slot_of(name) in served]
        self.rounds.strike(old)
        if self.rounds.way != "manual":
            if isinstance(them, Sentinels):
                them.await_failover(old, STUCK_S)
            else:
                them.await_failover(slot, old, STUCK_S)
        return old, names

    async def verdict(self, folder: Path) -> Verdict:
        failovers, alone = losses(self.failovers, {name: watch.heard for name, watch in self.watches.items()})
        if alone:
            self.met[ALONE], self.longest[ALONE] = alone, 0.0
        verdict = await asyncio.to_thread(lambda: explained(read(folder), writes(folder), failovers, LEASE_MS))
        verdict.stale = sum(name.refused for name in self.conductor.names.values()) - self.judged.stale
        return verdict


def deal(worlds: list[str], processes: int, languages: list[str]) -> list[tuple[str, list[str]]]:
    """The worlds with the languages of their processes; Redisson is at home on one server."""
    counts = collections.Counter(itertools.islice(itertools.cycle(worlds), processes))
    dealt = []
    for i, world in enumerate(worlds):
        fit = [each for each in languages if each != "java" or world.startswith("single")]
        turn = i % len(fit)
        dealt.append((world, list(itertools.islice(itertools.cycle(fit[turn:] + fit[:turn]), counts[world]))))
    return dealt


def make(plan: Plan, folder: Path, kept: Path) -> World:
    return (Single if plan.deployment == "single" else Deployed)(plan, folder, kept)

"""A series of failovers under one load: when each worker was back, and which holds overlapped.

    python rounds.py sentinel kill --rounds 200 --log build/logs/failovers

A round: the master fails, the topology announces another, every worker of the load gets a lock again, and the old
master returns as a replica.  Each round is a line of JSON in LOG/TOPOLOGY-WAY.jsonl; report.py makes a table of them.

    kill    SIGKILL                 stop    SIGSTOP, later SIGCONT     manual  by hand
    cut     packets to and from it vanish
    lag     its replicas no longer receive anything, then it is killed: its grants meanwhile vanish

Two loads: one of short holds, whose workers must be back, and whose locks must all be taken again, long before a lease
ends: what the new master has of a hold that was released is released again.  And one of long holds, which last from before
a failover until after it, with workers that wait for them.  Where replicas lag there is a third, which releases its locks so
often that they lack hundreds of releases; these, too, must be taken again.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import network
from announce import Watch, by_themselves
from cluster import Cluster, slot_of
from history import MS, History
from load import Load, Tail, now_ns
from network import Network
from node import PATIENCE, Node, eventually
from sentinels import Sentinels

WAYS = ("kill", "stop", "manual", "cut", "lag")
NETWORKED = ("cut", "lag")
LAG_S = 0.7
TOPOLOGIES = ("sentinel", "cluster")
LEASE_MS, LONG_MS = 3000, 4000  # of the long holds, and how long they are
SHORT_LEASE_MS = 600_000  # longer than PATIENCE
CLUSTER_TIMEOUT_MS = 1000
LANGUAGES = {"c": 1, "python": 1, "go": 1}


@dataclass
class Round:
    """The result of one failover, in milliseconds."""

    announced: float  # from the failure until a sentinel, or a node, announced another master
    first: float  # ... until any worker had a lock after that
    back: dict[str, float]  # ... until each worker had one
    taken: dict[str, float]  # ... until each lock was taken
    late: float  # by how much the latest call exceeded its limit; below 0: none did
    overlaps: list[dict[str, Any]] = field(default_factory=list)
    lost: dict[str, int] = field(default_factory=dict)
    codes: dict[int, int] = field(default_factory=dict)
    holds: int = 0
    unexplained: list[str] = field(default_factory=list)  # overlaps, and tokens that go back, without a failover that may do that


class World:
    """A deployment whose master for some names fails again and again."""

    def __init__(self, topology: str, way: str, folder: Path, net: Network | None) -> None:
        self.way, self.net = way, net
        self._struck = 0.0
        self.within = net.place("clients").enter if net else ()
        self.them: Sentinels | Cluster
        if topology == "sentinel":
            self.them = Sentinels(folder, down_ms=600, failover_ms=1500, network=net)
            tag = ""
        else:
            self.them = Cluster(folder, timeout_ms=CLUSTER_TIMEOUT_MS, network=net)
            tag = "{x}"
        self.names, self.long_names = [tag + n for n in "abc"], [tag + n for n in "defg"]
        self.busy_names = [tag + n for n in "hi"]
        self.slot = slot_of(self.names[0])

    @property
    def master(self) -> Node:
        if isinstance(self.them, Sentinels):
            return self.them.master
        return eventually(lambda: self.them.owner(self.slot))  # type: ignore[no-any-return, union-attr]

    @property
    def loses(self) -> bool:
        """Whether a failover may lose what the master has answered.  By hand in a cluster the old master stops first."""
        return self.way != "manual" or isinstance(self.them, Sentinels)

    def known_as(self, node: Node) -> str:
        return self.them.id(node) if isinstance(self.them, Cluster) else node.address

    def rest(self) -> None:
        """Wait until a cluster can fail over again.  A master votes for another master's replica once in two node
        timeouts.  A replica that has to fail over sooner takes the slots with its old votes, no node believes it, and
        the old master pauses for 5 s."""
        if isinstance(self.them, Cluster):
            time.sleep(max(0.0, self._struck + 2.5 * CLUSTER_TIMEOUT_MS / 1000 - time.monotonic()))
        self._struck = time.monotonic()

    def prepare(self, master: Node) -> None:
        if self.way != "lag":
            return
        assert self.net
        them = self.them
        for other in them.replicas if isinstance(them, Sentinels) else them.replicas_of(master):
            self.net.part(master.name, other.name)
        time.sleep(LAG_S)

    def strike(self, master: Node) -> None:
        if self.way in ("kill", "lag"):
            master.kill()
        elif self.way == "stop":
            master.stop()
        elif self.way == "cut":
            assert self.net
            self.net.isolate(master.name)
        elif isinstance(self.them, Sentinels):
            self.them.failover()
        else:
            self.them.failover(self.them.replicas_of(master)[0])

    def heal(self, master: Node) -> None:
        if self.way == "lag":
            assert self.net
            self.net.heal()
        if self.way in ("kill", "lag"):
            master.start()
        elif self.way == "stop":
            master.go_on()
        elif self.way == "cut":
            assert self.net
            self.net.heal()
        self.them.await_settled()


@contextmanager
def world(topology: str, way: str, folder: Path) -> Iterator[World]:
    with ExitStack() as stack:
        net = stack.enter_context(Network()) if way in NETWORKED else None
        made = World(topology, way, folder, net)
        stack.enter_context(made.them)
        yield made


def _await_back(tails: dict[Tail, tuple[int, list[str]]], since: int) -> None:
    """Wait until each of so many workers of a load has had a lock since then, and each of its locks was taken."""

    def missing(tail: Tail, workers: int, names: list[str]) -> list[str]:
        tail.read()
        late = [who for who in sorted(tail.started) if tail.granted.get(who, 0) <= since]
        late += [name for name in names if tail.taken.get(name, 0) <= since]
        return late if len(tail.started) == workers else ["a worker that has not started"]

    eventually(lambda: not any(missing(tail, *what) for tail, what in tails.items()), PATIENCE, 0.02)


def _ms(ns: int) -> float:
    return round(ns / MS, 1)


def _judge(histories: list[History], names: list[str], struck: int, announced: int, until: int) -> Round:
    """Judge the part of the histories that belongs to one round; all workers and names of the first must be back."""
    back = {who: at for who, at in histories[0].back(announced).items() if at is not None}
    taken = {name: at for name, at in histories[0].taken(announced, names).items() if at is not None}
    told = Round(
        announced=_ms(announced - struck),
        first=_ms(min(back.values()) + announced - struck),
        back={who: _ms(at + announced - struck) for who, at in sorted(back.items())},
        taken={name: _ms(at + announced - struck) for name, at in sorted(taken.items())},
        late=-1.0,
    )
    for history in histories:
        _add(told, history, struck, until)
    return told


def _add(told: Round, history: History, struck: int, until: int) -> None:
    for call in history.calls:
        if struck <= call.ended < until:
            told.late = max(told.late, _ms(call.ended - call.deadline))
            if call.code:
                told.codes[call.code] = told.codes.get(call.code, 0) + 1
    for hold in history.holds:
        told.holds += struck <= hold.granted < until
        word = hold.reason or f"release {hold.code}"
        if (hold.lost or hold.code) and struck <= (hold.lost or hold.released) < until:
            told.lost[word] = told.lost.get(word, 0) + 1
    for overlap in history.overlaps():
        if struck <= overlap.second.granted < until:
            first, after = overlap.first, overlap.told_after
            told.overlaps.append(
                {
                    "ms": _ms(overlap.ns),
                    "told_ms": None if after is None else _ms(after),
                    "reason": first.reason,
                    "release": first.code,
                    "by": first.who,
                    "to": overlap.second.who,
                    "at_ms": _ms(overlap.second.granted - struck),
                }
            )


def _unexplained(history: History, failovers: list[tuple[int, int]]) -> Iterator[tuple[int, str]]:
    """What two holds of a name show that only a failover between them may have done, where there was none, and when."""
    overlaps = [(o.first, o.second, f"held together for {_ms(o.ns)} ms") for o in history.overlaps()]
    disorder = [(a, b, f"token {b.token} after {a.token}") for a, b in history.disorder()]
    for a, b, what in overlaps + disorder:
        if not any(begin <= b.granted and a.granted <= end for begin, end in failovers):
            yield b.granted, f"{a.name}: {a.id} and {b.id}: {what}"


def batch(made: World, folder: Path, rounds: int, fine: bool = True) -> list[Round]:
    """Run a number of rounds under one load.  fine: for figures to the millisecond, at the cost of the processor."""
    marks: list[tuple[int, int]] = []
    healed: list[int] = []
    plan: dict[str, Any] = {"counts": LANGUAGES, "within": made.within, "kind": "fenced", "threads": 2}
    quick: dict[str, Any] = {"hold_ms": 20, "lease_ms": SHORT_LEASE_MS}
    lasting: dict[str, Any] = {"hold_ms": LONG_MS, "lease_ms": LEASE_MS, "think_ms": 50, "check_ms": 1 if fine else 5}
    busy: dict[str, Any] = {**plan, **quick, "counts": {"c": 1}, "hold_ms": 1, "think_ms": 1}
    url = made.them.url
    with ExitStack() as stack:
        load = stack.enter_context(Load(folder / "short", url, made.names, **quick, **plan))
        long = stack.enter_context(Load(folder / "long", url, made.long_names, **lasting, **plan))
        watch = stack.enter_context(Watch(made.them, made.slot, 0.01 if fine else 0.05))
        tails = {Tail(load): (2 * len(LANGUAGES), made.names)}
        loads = [load, long]
        if made.way == "lag":
            loads.append(stack.enter_context(Load(folder / "busy", url, made.busy_names, **busy)))
            tails[Tail(loads[-1])] = 2, made.busy_names
        for _ in range(rounds):
            _await_back(tails, now_ns())
            made.rest()
            old = made.master
            made.prepare(old)
            struck = now_ns()
            made.strike(old)
            name = made.known_as(old)
            announced = eventually(lambda s=struck, n=name: watch.first(s, n), 2 * PATIENCE, 0.02)
            _await_back(tails, announced)
            made.heal(old)
            marks.append((struck, announced))
            healed.append(now_ns())
        history, others, *_ = ended = [each.end() for each in loads]
        errors = "".join(each.errors() for each in loads)
    assert [who for each in ended for who in each.unfinished()] == [], errors
    ends = [*(after[0] for _, after in pairwise(marks)), now_ns()]
    both = [history, others]
    rounds_made = [_judge(both, made.names, *mark, end) for mark, end in zip(marks, ends, strict=True)]
    failovers = [(struck, end) for (struck, _), end in zip(marks, healed, strict=True)]
    may = by_themselves(watch.heard, failovers) + (failovers if made.loses else [])
    for at, text in sorted(found for each in ended for found in _unexplained(each, may)):
        index = max(sum(struck <= at for struck, _ in marks) - 1, 0)
        rounds_made[index].unexplained.append(text)
    return rounds_made


def run(
    topology: str,
    way: str,
    rounds: int,
    log: Path,
    *,
    batch_of: int = 10,
    until: float = 0,
    fine: bool = True,
) -> list[Round]:
    """Run a number of rounds, or rounds until a time; each batch is added to the log."""
    done: list[Round] = []
    log.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="snib-rounds-") as name,
        world(topology, way, Path(name) / "world") as made,
    ):
        while len(done) < rounds and not (until and time.monotonic() > until):
            count = min(batch_of, rounds - len(done))
            some = batch(made, Path(name) / f"load{len(done)}", count, fine)
            done += some
            with open(log / f"{topology}-{way}.jsonl", "a") as out:
                out.writelines(json.dumps(asdict(each)) + "\n" for each in some)
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("topology", choices=TOPOLOGIES)
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=0, help="no batch begins after these")
    parser.add_argument("--log", type=Path, default=Path("build/logs/failovers"))
    given = parser.parse_args()
    if given.way in NETWORKED and (reason := network.why_not()):
        parser.exit(1, f"{reason}\n")
    until = time.monotonic() + given.seconds if given.seconds else 0
    done = run(given.topology, given.way, given.rounds, given.log, until=until)
    print(f"{given.topology} {given.way}: {len(done)} rounds in {given.log}")


if __name__ == "__main__":
    main()

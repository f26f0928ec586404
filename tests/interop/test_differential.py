"""The same random steps by Redisson alone, by Snib alone, and by both: the same answers, keys and messages.

Each of these worlds has a name of its own on one server, and four owners, two of each of its two clients.  What
differs on purpose is not compared; docs/redisson.md lists it.
"""

from __future__ import annotations

import contextlib
import random
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from ours import make
from peer import JavaClient, JavaError, JavaObject

import snib
from conftest import Cell, Jvms, SharedServer

FAMILIES = {
    "mutex": ("mutex",),
    "spin": ("spin",),
    "fenced": ("fenced",),
    "rw": ("read", "write"),
    "semaphore": ("semaphore",),
    "permits": ("permits",),
    "latch": ("latch",),
}
WORLDS = ("jj", "ss", "js")  # whose each of the two clients is
OWNERS = range(4)
SEQUENCES, STEPS = 2, 40
LEASES = (600_000, 3_600_000)
NAMES = ("{}", "{}:b", "{{t}}{}", "x{{{}}}y{{z}}", "é{}😀", "{}*?[x]%s\\")
OWNER = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}:-?\d+")
REENTRANT = ("mutex", "read", "write")
COUNTS = {
    "semaphore": ("init", "try", "try", "try", "release", "add", "available", "drain"),
    "permits": ("init", "try", "try", "try", "release", "release", "available"),
    "latch": ("init", "down", "down", "count", "wait"),
}
OF_LOCKS = ("try",) * 5 + ("unlock",) * 4 + ("locked", "force", "gone")
SILENT = ("release", "add", "down")  # Redisson says nothing, Snib the new number

Clients = tuple[list[JavaClient], list[snib.Client]]
Messages = list[tuple[str, str]]


# ---- The two sides -------------------------------------------------------------------------------


def java(thing: JavaObject, verb: str, number: int, held: list[Any]) -> str:
    counts = {"wait": (0,), "count": (), "available": (), "drain": ()}
    if thing.kind == "permits" and verb == "try":
        permit = thing("try", 0, LEASES[0])
        held += [permit] if permit != "null" else []
        return str(permit != "null").lower()
    if thing.kind == "permits" and verb == "release":
        return thing("try_release", held.pop())
    if thing.kind in COUNTS:
        return thing(verb, *((number, 0) if verb == "try" else counts.get(verb, (number,))))
    if verb == "try":
        answer = thing("try", 0, number)
        held += [answer] if answer == "true" else []
        return answer
    if verb != "unlock":
        return thing(verb)
    was_held = bool(held)
    del held[-1:]
    try:
        thing("unlock")
    except JavaError as error:
        assert error.kind == "IllegalMonitorStateException", error
        return "not held"
    return "true" if was_held else "not held"  # below 3.44 no error if there is no read/write lock


def ours(client: snib.Client, kind: str, name: str, verb: str, number: int, held: list[Any]) -> str:
    thing: Any
    if kind in COUNTS:
        thing = getattr(client, kind)(name)
    else:
        thing = client.rlock(name, lease=number / 1000) if kind == "mutex" else make(client, kind, name, lease=number / 1000)
    try:
        if verb == "try":
            held.append(thing.hold(n=number, timeout=0) if kind == "semaphore" else thing.hold(timeout=0))
            return "true"
        if verb == "unlock" or (verb == "release" and kind == "permits"):
            (held.pop() if held else thing).release()
            return "true"
    except (snib.Busy, snib.UpgradeRefused):
        return "false"
    except (snib.NotHeld, snib.Lost):
        return "not held"
    names = {"release": "put_back", "down": "count_down", "force": "force_release"}
    numbers = {"init": (number,), "release": (number,), "add": (number,), "wait": (0,)}
    return str(getattr(thing, names.get(verb, verb))(*numbers.get(verb, ()))).lower()


# ---- Worlds --------------------------------------------------------------------------------------


class World:
    """One name, and its owners on either side."""

    def __init__(self, server: SharedServer, name: str, sides: str, clients: Clients) -> None:
        self.server, self.name = server, name
        self.held: dict[tuple[int, str], list[Any]] = {}  # holds of Snib, or what Redisson's try has answered
        self._clients = [clients[side == "s"][number] for number, side in enumerate(sides)]
        self._owners: dict[str, int] = {}  # by their text in the lock's hash
        # An owner is a thread, on both sides.
        self._threads = [ThreadPoolExecutor(1) for _ in OWNERS]
        self._java_threads = [clients[0][0].jvm.new_thread() for _ in OWNERS]

    def act(self, owner: int, kind: str, verb: str, number: int) -> str | None:
        client, held = self._clients[owner // 2], self.held.setdefault((owner, kind), [])
        if isinstance(client, JavaClient):
            answer = java(client.object(kind, self.name, self._java_threads[owner]), verb, number, held)
        else:
            answer = self._threads[owner].submit(ours, client, kind, self.name, verb, number, held).result()
        for field in self._fields():
            self._owners.setdefault(field.removesuffix(":write"), owner)
        return None if verb in SILENT and kind != "permits" else answer

    def _fields(self) -> list[str]:
        redis = self.server.admin
        fields = redis.hkeys(self.name) if redis.type(self.name) == "hash" else []
        return sorted(field for field in fields if field != "mode")

    def plain(self, text: str) -> str:
        """The same text in every world."""
        return OWNER.sub(lambda found: f"owner {self._owners.get(found[0], found[0])}", text.replace(self.name, "K"))

    def keys(self) -> dict[str, object]:
        """The keys, without hold counts: Snib counts re-entries in the process."""
        redis, fields = self.server.admin, self._fields()
        keys: dict[str, object] = {}
        for key in [key for key in redis.keys() if self.name in key]:
            lease = key.partition(":rwlock_timeout:")[0]
            if key.startswith(("redisson_unlock_latch", "snib_")):
                continue
            if lease != key:  # of a reader, one for each re-entry
                keys[self.plain(lease)] = "lease"
            elif redis.type(key) == "hash":
                keys["K"] = sorted(map(self.plain, fields)), redis.hget(key, "mode")
            else:
                keys[self.plain(key)] = redis.zcard(key) if redis.type(key) == "zset" else redis.get(key)
        return keys

    def forget_leases(self) -> None:
        """Those of readers stay when their holds are ended by force."""
        for key in self.server.admin.keys("*:rwlock_timeout:*"):
            if self.name in key:
                self.server.admin.delete(key)

    def lease(self) -> int:
        """Of the lock, in units of the shorter one."""
        return round(self.server.admin.pttl(self.name) / LEASES[0])

    def told(self, kind: str, messages: Messages) -> object:
        """The messages; of a read/write lock only whether there are any: Snib wakes all, Redisson may wake one."""
        mine = [(self.plain(channel), text) for channel, text in messages if self.name in channel]
        return bool(mine) if kind in ("read", "write") else mine

    def end(self) -> None:
        for held in self.held.values():
            for hold in [hold for hold in held if isinstance(hold, snib.Hold)]:
                with contextlib.suppress(snib.Lost):
                    hold.release()
        for thread in self._threads:
            thread.shutdown()
        self.server.admin.delete(*[key for key in self.server.admin.keys() if self.name in key], self.name)


class Play:
    """One sequence of steps, in all worlds."""

    def __init__(self, server: SharedServer, clients: Clients, family: str, word: str, seed: int) -> None:
        self._draw = random.Random(f"{family} {seed}")
        self._kinds = FAMILIES[family]
        form = self._draw.choice(NAMES)
        self.worlds = [World(server, form.format(word + sides), sides, clients) for sides in WORLDS]
        self._server, self._mark = server, f"mark {word}"
        self.listener = server.admin.pubsub()
        self.listener.psubscribe(f"*{word}*")
        assert self.listener.get_message(timeout=30)
        self.said: list[object] = []

    def _heard(self) -> Messages:
        self._server.admin.publish(self._mark, "")
        messages: Messages = []
        while True:
            message = self.listener.get_message(timeout=30)
            assert message
            if message["channel"] == self._mark:
                return messages
            messages.append((message["channel"], message["data"]))

    def _holds(self, owner: int, kind: str) -> int:
        return len(self.worlds[0].held.get((owner, kind), ()))

    def _ended(self) -> None:
        """The lock was taken from its holders: each of them is told so when it releases."""
        for owner, kind in list(self.worlds[0].held):
            for _ in range(self._holds(owner, kind)):
                for world in self.worlds:
                    assert world.act(owner, kind, "unlock", LEASES[0]) in ("not held", "true")
        for world in self.worlds:
            world.forget_leases()
        self._heard()

    def step(self) -> None:
        owner, kind = self._draw.choice(OWNERS), self._draw.choice(self._kinds)
        verb = self._draw.choice(COUNTS.get(kind, OF_LOCKS))
        number = self._draw.randint(1, 4) if kind in COUNTS else self._draw.choice(LEASES)
        if kind not in REENTRANT and kind not in COUNTS and (verb == "unlock") != (self._holds(owner, kind) > 0):
            return  # an owner that waits for itself, or releases what another thread holds
        if kind == "permits" and verb == "release" and not self._holds(owner, kind):
            return
        was_free = not any(self.worlds[0].held.values())
        self.said.append((owner, kind, verb, number))
        if verb == "gone":
            for world in self.worlds:
                world.server.admin.delete(world.name)
            self._ended()
        else:
            self._compare(kind, verb, [world.act(owner, kind, verb, number) for world in self.worlds], was_free)

    def _compare(self, kind: str, verb: str, answers: list[str | None], was_free: bool) -> None:
        messages = self._heard()
        told = [world.told(kind, messages) for world in self.worlds]
        keys = [world.keys() for world in self.worlds]
        self.said += [answers, told, keys]
        assert all(answer == answers[0] for answer in answers)
        assert all(other == keys[0] for other in keys)
        # A writer that becomes a reader tells others in Snib only, and a release of nothing in Redisson only.  Below
        # 3.16.2 permits are added without a message.
        free = answers[0] == "true" and "K" not in keys[0]
        if told[0] if verb == "add" else free or kind not in ("read", "write"):
            assert all(other == told[0] for other in told)
        if kind not in COUNTS and verb == "try" and was_free:
            assert len({world.lease() for world in self.worlds}) == 1
        if verb == "force" and answers[0] == "true":
            self._ended()


@pytest.fixture
def clients(jvms: Jvms, java: JavaClient, server: SharedServer) -> Iterator[Clients]:
    second = jvms[java.jvm.version].open("second", server.port)
    with snib.connect(server.url) as one, snib.connect(server.url) as two:
        yield [java, second], [one, two]
    second.close()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_steps_have_the_same_effects(
    clients: Clients, family: str, java: JavaClient, server: SharedServer, gone: str
) -> None:
    if not Cell.has(family, java):
        pytest.skip(f"Redisson {java.jvm.version} has no {family}")
    for seed in range(SEQUENCES):
        play = Play(server, clients, family, f"{gone}.{seed}", seed)
        try:
            for _ in range(STEPS):
                play.step()
        except AssertionError:
            print(*play.said[-24:], sep="\n")
            raise
        finally:
            play.listener.close()
            for world in play.worlds:
                world.end()

#!/usr/bin/env python3
"""The Python interpreters of conformance programs; README.md has the language.

    conform.py threads|asyncio PROGRAM SOCKET...
    conform.py serve SOCKET [memory]

Both APIs of the package run in one interpreter: what one returns, the other awaits.  `serve` forks a process for each
program that served.py asks for, after the imports, which take most of the time of a start; with `memory` also of the
test kit.  So each program has a package that nothing has used yet.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import re
import select
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import served
import snib
import snib.aio

if sys.argv[1] == "serve":
    if "memory" in sys.argv:
        import snib.testing
    sys.argv[1:] = served.serve(sys.argv[2])

LIMIT = 30.0
CODES = Path(__file__).parents[2] / "core/net/codes.def"
NAMES = {
    int(value): name for name, value in re.findall(r"^X\((\w+), (-?\d+)", CODES.read_text(), re.M)
}


MEMORY = "memory://"
# What puts a real server in a state, and ends it; on a memory server this is a fault.
SICK = {
    "oom": ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
    "noreplicas": ("CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0"),
    "readonly": ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"),
}


class Server:
    """One server of the program, and a connection that speaks just enough RESP2."""

    def __init__(self, address: str) -> None:
        self.memory, self.url, path = None, f"unix://{address}", address
        if address.startswith(MEMORY):
            from snib import testing

            name = address.removeprefix(MEMORY)
            self.memory, self.url = testing.Server(name), address
            space = os.stat("/proc/self/ns/pid").st_ino
            path = f"\0snib-memory/{space}/{os.getpid()}/{name}"
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._file = self._socket.makefile("rb")

    def url_of(self, user: str, db: str) -> str:
        scheme, _, rest = self.url.partition("//")
        return f"{scheme}//{user}{rest}{db}"

    def raw(self, *words: str) -> str:
        parts = [word.encode() for word in words]
        request = b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts)
        self._socket.sendall(request)
        return self._reply()

    def _reply(self) -> str:
        line = self._file.readline()[:-2].decode()
        mark, rest = line[:1], line[1:]
        if mark == "-":
            return "error " + rest
        if mark in "$*" and rest == "-1":
            return "nil"
        if mark == "$":
            return self._file.read(int(rest) + 2)[:-2].decode()
        if mark == "*":
            return " ".join(self._reply() for _ in range(int(rest)))
        return rest


# The constructor for each kind of lock.
KINDS: dict[str, Callable[..., Any]] = {
    "mutex": lambda client, name, **options: client.lock(name, **options),
    "reentrant": lambda client, name, **options: client.rlock(name, **options),
    "fair": lambda client, name, **options: client.fair_lock(name, **options),
    "read": lambda client, name, **options: client.rwlock(name, **options).read,
    "write": lambda client, name, **options: client.rwlock(name, **options).write,
    "fenced": lambda client, name, **options: client.fenced_lock(name, **options),
    "spin": lambda client, name, **options: client.spin_lock(name, **options),
    "plain": lambda client, name, **options: client.plain_lock(name, **options),
    "semaphore": lambda client, name, **options: client.semaphore(name),
    "permits": lambda client, name, **options: client.permits(name, **options),
    "latch": lambda client, name, **options: client.latch(name),
}

# The methods behind `count`.
COUNTS = {
    "get": "available",
    "init": "init",
    "add": "add",
    "set": "set",
    "total": "total",
    "release": "put_back",
    "drain": "drain",
    "down": "count_down",
}


async def finished(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


class Threads:
    """`snib`: an owner is a thread, a submitted operation goes through a snib.Queue."""

    package = snib

    def __init__(self) -> None:
        self._owners: dict[str, ThreadPoolExecutor] = {}

    async def as_owner(self, number: str, call: Callable[[], Any]) -> Any:
        owner = self._owners.setdefault(number, ThreadPoolExecutor(1))
        return owner.submit(call).result()

    def submit(self, client: Any, lock: Any, timeout: float | None, n: int) -> Any:
        queue = snib.Queue(client)
        if isinstance(lock, snib.Latch):
            return queue, queue.wait(lock, timeout)
        return queue, queue.acquire(lock, timeout, n=n)

    async def outcome(self, operation: Any, cancel: bool) -> Any:
        queue, ticket = operation
        if cancel:
            queue.cancel(ticket)
        select.select([queue], [], [], LIMIT)
        (event,) = queue.drain()
        if isinstance(event.result, snib.Error):
            raise event.result
        return event.result

    async def lost(self, hold: Any) -> bool:
        return hold.lost.wait(LIMIT)


class Asyncio:
    """`snib.aio`: an owner is a task, and so is a submitted operation."""

    package = snib.aio

    def __init__(self) -> None:
        self._owners: dict[str, asyncio.Queue[Any]] = {}
        self._tasks: list[asyncio.Task[Any]] = []

    async def _serve(self, calls: asyncio.Queue[Any]) -> None:
        while True:
            call, future = await calls.get()
            try:
                future.set_result(await finished(call()))
            except snib.Error as error:
                future.set_exception(error)

    async def as_owner(self, number: str, call: Callable[[], Any]) -> Any:
        if number not in self._owners:
            self._owners[number] = asyncio.Queue()
            self._tasks.append(asyncio.create_task(self._serve(self._owners[number])))
        future = asyncio.get_running_loop().create_future()
        self._owners[number].put_nowait((call, future))
        return await future

    def submit(self, client: Any, lock: Any, timeout: float | None, n: int) -> Any:
        async def acquire() -> Any:
            if not isinstance(lock, snib.aio.Latch):
                return await hold(lock, timeout, n)
            if not await lock.wait(timeout):
                raise snib.Timeout()

        return asyncio.create_task(acquire())

    async def outcome(self, operation: Any, cancel: bool) -> Any:
        await asyncio.sleep(0)
        if cancel:
            operation.cancel()
        try:
            return await asyncio.wait_for(operation, LIMIT)
        except asyncio.CancelledError:
            raise snib.Cancelled() from None

    async def lost(self, hold: Any) -> bool:
        return await asyncio.wait_for(hold.lost.wait(), LIMIT)


def hold(lock: Any, timeout: float | None, n: int) -> Any:
    counted = isinstance(lock, (snib.Semaphore, snib.Permits, snib.aio.Semaphore, snib.aio.Permits))
    return lock.hold(n=n, timeout=timeout) if counted else lock.hold(timeout=timeout)


def now_or(seconds: float | None) -> str | None:
    """Times differ from run to run."""
    if not seconds:
        return None
    return "now" if abs(seconds - time.time()) < 3600 else str(int(seconds))


class Interpreter:
    def __init__(self, face: Threads | Asyncio, paths: list[str]) -> None:
        self.face = face
        self.servers = [Server(path) for path in paths]
        self.server = self.servers[0]
        self.clients: dict[str, Any] = {}
        # With the client's name; a lock that could not be created is kept as its error.
        self.locks: dict[str, tuple[str, Any]] = {}
        self.holds: dict[str, Any] = {}
        self.submitted: dict[str, Any] = {}

    async def line(self, line: str) -> None:
        shown = line.split("#")[0].rstrip()
        words = [unquote(word) for word in shown.split()]
        if not words:
            return
        options = dict(word.split("=", 1) for word in words[1:] if re.match(r"[a-z_]+=", word))
        plain = (
            words[1:]
            if words[0] in ("raw", "until")
            else [w for w in words[1:] if not re.match(r"[a-z_]+=", w)]
        )
        operation: Callable[..., Awaitable[str | None]] = getattr(self, "run_" + words[0])
        try:
            result = await operation(options, *plain)
        except snib.Error as error:
            result = self.failure(error)
        print(shown if result is None else f"{shown} -> {result}", flush=True)

    @staticmethod
    def failure(error: snib.Error) -> str:
        expected = {
            snib.Busy: "busy",
            snib.Timeout: "timedout",
            snib.Cancelled: "cancelled",
            snib.NotHeld: "not_held",
        }
        if type(error) in expected:
            return expected[type(error)]
        if isinstance(error, snib.Lost):
            return f"lost: {error}"
        return f"error SNIB_{NAMES[error.code]}: {error}"

    @staticmethod
    def seconds(options: dict[str, str], key: str) -> float | None:
        return int(options[key]) / 1000 if key in options else None

    @staticmethod
    def number(options: dict[str, str]) -> int:
        return int(options.get("n", "1"))

    @staticmethod
    async def until(condition: Callable[[], bool]) -> bool:
        end = time.monotonic() + LIMIT
        while not condition():
            if time.monotonic() > end:
                return False
            await asyncio.sleep(0.01)
        return True

    async def run_client(self, options: dict[str, str], name: str) -> str:
        user = options["user"] + "@" if "user" in options else ""
        db = "?db=" + options["db"] if "db" in options else ""
        patience = self.seconds(options, "patience") or LIMIT
        client = self.clients[name] = self.face.package.Client(
            options.get("url", self.server.url_of(user, db)),
            lease=self.seconds(options, "lease"),
            patience=patience,
            try_timeout=patience,
            recheck=self.seconds(options, "recheck"),
            label=options.get("label"),
            identity=options.get("identity") == "1",
            debug="debug_hold" in options or None,
            debug_hold=self.seconds(options, "debug_hold"),
        )
        await finished(client.ping())
        return "ok"

    async def run_close(self, options: dict[str, str], name: str) -> str:
        await finished(self.clients[name].close(LIMIT))
        return "ok"

    async def run_server(self, options: dict[str, str], number: str) -> str:
        self.server = self.servers[int(number) - 1]
        return "ok"

    async def run_shutdown(self, options: dict[str, str]) -> str:
        if self.server.memory:
            self.server.memory.stop()
            return "ok"
        return "ok" if self.raw("SHUTDOWN", "NOSAVE") == "" else "stuck"

    def raw(self, *words: str) -> str:
        return self.server.raw(*words)

    @staticmethod
    def ok(reply: str) -> str:
        return reply if reply.startswith("error ") else "ok"

    def name_lock(self, lock: str, client: str, make: Callable[[], Any]) -> None:
        try:
            self.locks[lock] = client, make()
        except snib.Error as error:
            self.locks[lock] = client, error

    def lock_options(self, options: dict[str, str]) -> dict[str, Any]:
        flags = {key: options[key] == "1" for key in ("fenced", "prefer_writer") if key in options}
        times = {key: self.seconds(options, key) for key in ("lease", "max_hold")}
        return {**times, **flags}

    async def run_lock(
        self, options: dict[str, str], lock: str, client: str, name: str, reentrant: str = "mutex"
    ) -> None:
        new = KINDS[options.get("kind", reentrant)]
        self.name_lock(
            lock, client, lambda: new(self.clients[client], name, **self.lock_options(options))
        )

    def several(
        self, kind: str, options: dict[str, str], lock: str, members: tuple[str, ...]
    ) -> None:
        new, arguments = getattr(self.face.package, kind), self.lock_options(options)
        if "quarantine" in options:
            arguments["quarantine"] = options["quarantine"] == "1"
        self.name_lock(
            lock,
            self.locks[members[0]][0] if members else "",
            lambda: new([self.lock(member) for member in members], **arguments),
        )

    async def run_multi(self, options: dict[str, str], lock: str, *members: str) -> None:
        self.several("MultiLock", options, lock, members)

    async def run_quorum(self, options: dict[str, str], lock: str, *members: str) -> None:
        self.several("QuorumLock", options, lock, members)

    def lock(self, name: str) -> Any:
        lock = self.locks[name][1]
        if isinstance(lock, snib.Error):
            raise lock
        return lock

    async def run_acquire(self, options: dict[str, str], name: str, lock: str) -> str:
        def acquire() -> Any:
            return hold(self.lock(lock), self.seconds(options, "wait"), self.number(options))

        if "owner" in options:
            self.holds[name] = await self.face.as_owner(options["owner"], acquire)
        else:
            self.holds[name] = await finished(acquire())
        return "ok"

    async def run_submit(self, options: dict[str, str], hold: str, lock: str) -> str:
        client = self.clients[self.locks[lock][0]]
        self.submitted[hold] = self.face.submit(
            client, self.lock(lock), self.seconds(options, "wait"), self.number(options)
        )
        return "started"

    async def run_await(self, options: dict[str, str], hold: str, cancel: bool = False) -> str:
        self.holds[hold] = await self.face.outcome(self.submitted.pop(hold), cancel)
        return "ok"

    async def run_cancel(self, options: dict[str, str], hold: str) -> str:
        return await self.run_await(options, hold, cancel=True)

    async def run_waiting(self, options: dict[str, str], name: str, count: str) -> str:
        return (
            "ok"
            if await self.until(lambda: self.clients[name].stats().waiting == int(count))
            else "stuck"
        )

    async def run_downgrade(
        self, options: dict[str, str], name: str, writer: str, reader: str
    ) -> str:
        await self.run_acquire({**options, "wait": "0"}, name, reader)
        return await self.run_release(options, writer)

    async def run_wait(self, options: dict[str, str], lock: str) -> str:
        timeout = self.seconds(options, "wait")
        if await finished(self.lock(lock).wait(timeout)):
            return "ok"
        return "busy" if timeout == 0 else "timedout"

    async def run_count(self, options: dict[str, str], lock: str, what: str, *numbers: str) -> str:
        counter = self.lock(lock)
        is_latch = isinstance(counter, (snib.Latch, snib.aio.Latch))
        method = "count" if is_latch and what == "get" else COUNTS[what]
        return str(int(await finished(getattr(counter, method)(*map(int, numbers)))))

    async def run_gone(self, options: dict[str, str], client: str) -> str:
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            try:
                await finished(self.clients[client].ping())
            except snib.Error as error:
                if NAMES[error.code] == "ECONNECT":
                    return "ok"
        return "stuck"

    async def run_label(
        self, options: dict[str, str], client: str, label: str | None = None
    ) -> str:
        self.clients[client].set_label(label)
        return "ok"

    async def run_warnings(self, options: dict[str, str], client: str, count: str) -> str:
        def warnings() -> int:
            return self.clients[client].stats().debug_warnings

        await self.until(lambda: warnings() >= int(count))
        return str(warnings())

    async def run_losses(self, options: dict[str, str], client: str) -> str:
        stats = vars(self.clients[client].stats())
        return str(sum(value for key, value in stats.items() if key.startswith("lost_")))

    async def run_release(self, options: dict[str, str], hold: str) -> str:
        await finished(self.holds[hold].release())
        return "ok"

    async def run_extend(self, options: dict[str, str], hold: str, ms: str) -> str:
        lease = int(ms) / 1000 or None
        await finished(self.holds[hold].extend(lease))
        return "ok"

    async def run_check(self, options: dict[str, str], hold: str) -> str:
        self.holds[hold].check()
        return "ok"

    async def run_remaining(self, options: dict[str, str], hold: str) -> str:
        return "some" if self.holds[hold].remaining() > 0 else "none"

    async def run_token(self, options: dict[str, str], hold: str) -> str:
        return str(self.holds[hold].token)

    async def run_lost(self, options: dict[str, str], hold: str) -> str:
        if not await self.face.lost(self.holds[hold]):
            return "stuck"
        return await self.run_check(options, hold)

    async def run_info(self, options: dict[str, str], lock: str) -> str:
        info = await finished(self.lock(lock).info())
        if not info.held:
            return "free"
        leased = info.remaining is not None and info.remaining > 0
        waiting = -1 if info.waiting is None else info.waiting
        return (
            f"held mine={info.mine:d} count={info.count} waiting={waiting} leased={leased:d}"
            f" token={info.token}"
        )

    async def run_who(self, options: dict[str, str], client: str, lock: str) -> str:
        info = await finished(self.lock(lock).info())
        who = info.identity
        if not info.held or who is None:
            return "held by unknown" if info.held else "free"
        ours = who.pid == os.getpid()
        texts = {
            "host": "ours" if who.host == socket.gethostname() else who.host,
            "pid": "ours" if ours else who.pid,
            "program": "ours" if ours else who.program,
            "since": now_or(who.since),
            "held": now_or(who.held_since) if "held" in options else None,
            "at": who.held_at if "taken" in options else None,
            "by": who.held_by if "taken" in options else None,
            "losses": who.losses,
            "label": who.label,
        }
        return " ".join(["held", *(f"{key}={value}" for key, value in texts.items() if value)])

    async def run_force(self, options: dict[str, str], lock: str) -> str:
        return "ok" if await finished(self.lock(lock).force_release()) else "not_held"

    async def run_list(self, options: dict[str, str], client: str, pattern: str) -> str:
        return " ".join(await finished(self.clients[client].list(pattern)))

    async def run_describe(self, options: dict[str, str], client: str, name: str) -> str:
        of = self.clients[client]
        found = await finished(of.describe(name))

        def leased(entry: Any) -> str:
            return "leased" if (entry.remaining or 0) > 0 else "unleased"

        def whose(entry: Any) -> str:
            return "mine" if entry.owner.startswith(of.id) else "foreign"

        texts = [found.kind]
        texts += [f"holder {whose(one)} {leased(one)} {one.count}" for one in found.holders]
        texts += [f"reader {whose(one)} {leased(one)} {one.count}" for one in found.readers]
        texts += [f"permit {leased(one)}" for one in found.permits]
        texts += [f"waiter {whose(one)} {leased(one)}" for one in found.waiters]
        numbers = ("token", "total", "available", "count", "waiting")
        texts += [f"{key} {getattr(found, key)}" for key in numbers if getattr(found, key)]
        return ", ".join(texts)

    async def run_raw(self, options: dict[str, str], *words: str) -> str:
        return self.raw(*words)

    async def run_until(self, options: dict[str, str], want: str, *words: str) -> str:
        return want if await self.until(lambda: self.raw(*words) == want) else "stuck"

    async def run_kill(self, options: dict[str, str], kind: str) -> str:
        return self.ok(self.raw("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"))

    async def run_sick(self, options: dict[str, str], state: str, switch: str) -> str:
        if self.server.memory:
            self.server.memory.fault(state, switch)
            return "ok"
        return self.ok(self.raw(*SICK[state][switch == "off"].split()))


async def main(face: str, program: str, *paths: str) -> None:
    interpreter = Interpreter({"threads": Threads, "asyncio": Asyncio}[face](), list(paths))
    with open(program) as lines:
        for line in lines:
            await interpreter.line(line.rstrip("\n"))
    for client in interpreter.clients.values():
        with contextlib.suppress(snib.Error):  # its server may be down
            await finished(client.close(LIMIT))


asyncio.run(main(*sys.argv[1:]))

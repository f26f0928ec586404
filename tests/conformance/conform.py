#!/usr/bin/env python3
"""The Python interpreters of conformance programs; README.md has the language.

    conform.py threads|asyncio PROGRAM SOCKET

Both faces of the package run in one interpreter: what the one returns, the other lets await.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import select
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Awaitable, Callable
from urllib.parse import unquote

import snib
import snib.aio

LIMIT = 10.0
CODES = Path(__file__).parents[2] / "core/api/codes.def"
NAMES = {
    int(value): name for name, value in re.findall(r"^X\((\w+), (-?\d+)", CODES.read_text(), re.M)
}


class Raw:
    """A connection that speaks just enough RESP2."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._file = self._socket.makefile("rb")

    def __call__(self, *words: str) -> str:
        parts = [word.encode() for word in words]
        request = b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts)
        self._socket.sendall(request)
        return self._reply()

    def _reply(self) -> str:
        line = self._file.readline()[:-2].decode()
        mark, rest = line[0], line[1:]
        if mark == "-":
            return "error " + rest
        if mark in "$*" and rest == "-1":
            return "nil"
        if mark == "$":
            return self._file.read(int(rest) + 2)[:-2].decode()
        if mark == "*":
            return " ".join(self._reply() for _ in range(int(rest)))
        return rest


async def finished(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


class Threads:
    """`snib`: an owner is a thread, a submitted operation goes through a snib.Queue."""

    connect = snib.Client

    def __init__(self) -> None:
        self._owners: dict[str, ThreadPoolExecutor] = {}

    async def as_owner(self, number: str, call: Callable[[], Any]) -> Any:
        owner = self._owners.setdefault(number, ThreadPoolExecutor(1))
        return owner.submit(call).result()

    def submit(self, client: Any, lock: Any, timeout: float | None) -> Any:
        queue = snib.Queue(client)
        return queue, queue.acquire(lock, timeout)

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

    connect = snib.aio.Client

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

    def submit(self, client: Any, lock: Any, timeout: float | None) -> Any:
        async def acquire() -> Any:
            return await lock.hold(timeout)

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


class Interpreter:
    def __init__(self, face: Threads | Asyncio, path: str) -> None:
        self.face = face
        self.path = path
        self.raw = Raw(path)
        self.clients: dict[str, Any] = {}
        self.locks: dict[str, tuple[str, Callable[[], Any]]] = {}
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
    async def until(condition: Callable[[], bool]) -> bool:
        end = time.monotonic() + LIMIT
        while not condition():
            if time.monotonic() > end:
                return False
            await asyncio.sleep(0.002)
        return True

    async def run_client(self, options: dict[str, str], name: str) -> str:
        user = options["user"] + "@" if "user" in options else ""
        db = "?db=" + options["db"] if "db" in options else ""
        client = self.clients[name] = self.face.connect(
            options.get("url", f"unix://{user}{self.path}{db}"),
            lease=self.seconds(options, "lease"),
            patience=self.seconds(options, "patience"),
            recheck=self.seconds(options, "recheck"),
        )
        await finished(client.ping())
        return "ok"

    async def run_close(self, options: dict[str, str], name: str) -> str:
        await finished(self.clients[name].close(LIMIT))
        return "ok"

    async def run_lock(
        self, options: dict[str, str], lock: str, client: str, name: str, kind: str = ""
    ) -> None:
        made: list[Any] = []

        def make() -> Any:
            if not made:
                new = self.clients[client].rlock if kind else self.clients[client].lock
                made.append(
                    new(
                        name,
                        lease=self.seconds(options, "lease"),
                        max_hold=self.seconds(options, "max_hold"),
                    )
                )
            return made[0]

        self.locks[lock] = client, make

    def lock(self, name: str) -> Any:
        return self.locks[name][1]()

    async def run_acquire(self, options: dict[str, str], hold: str, lock: str) -> str:
        def acquire() -> Any:
            return self.lock(lock).hold(self.seconds(options, "wait"))

        if "owner" in options:
            self.holds[hold] = await self.face.as_owner(options["owner"], acquire)
        else:
            self.holds[hold] = await finished(acquire())
        return "ok"

    async def run_submit(self, options: dict[str, str], hold: str, lock: str) -> str:
        client = self.clients[self.locks[lock][0]]
        self.submitted[hold] = self.face.submit(
            client, self.lock(lock), self.seconds(options, "wait")
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

    async def run_release(self, options: dict[str, str], hold: str) -> str:
        await finished(self.holds[hold].release())
        return "ok"

    async def run_check(self, options: dict[str, str], hold: str) -> str:
        self.holds[hold].check()
        return "ok"

    async def run_remaining(self, options: dict[str, str], hold: str) -> str:
        return "some" if self.holds[hold].remaining() > 0 else "none"

    async def run_lost(self, options: dict[str, str], hold: str) -> str:
        if not await self.face.lost(self.holds[hold]):
            return "stuck"
        return await self.run_check(options, hold)

    async def run_info(self, options: dict[str, str], lock: str) -> str:
        info = await finished(self.lock(lock).info())
        if not info.held:
            return "free"
        leased = info.remaining is not None and info.remaining > 0
        return (
            f"held mine={info.mine:d} count={info.count} waiting={info.waiting} leased={leased:d}"
        )

    async def run_force(self, options: dict[str, str], lock: str) -> str:
        return "ok" if await finished(self.lock(lock).force_release()) else "not_held"

    async def run_list(self, options: dict[str, str], client: str, pattern: str) -> str:
        return " ".join(await finished(self.clients[client].list(pattern)))

    async def run_raw(self, options: dict[str, str], *words: str) -> str:
        return self.raw(*words)

    async def run_until(self, options: dict[str, str], want: str, *words: str) -> str:
        return want if await self.until(lambda: self.raw(*words) == want) else "stuck"

    async def run_kill(self, options: dict[str, str], kind: str) -> str:
        self.raw("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
        return "ok"


async def main(face: str, program: str, path: str) -> None:
    interpreter = Interpreter({"threads": Threads, "asyncio": Asyncio}[face](), path)
    for line in Path(program).read_text().splitlines():
        await interpreter.line(line)
    for client in interpreter.clients.values():
        await finished(client.close(LIMIT))


asyncio.run(main(*sys.argv[1:]))

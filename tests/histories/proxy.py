"""A proxy before a server, for one client: its connections can be cut, at any byte, refused, or kept silent and then
served late."""

from __future__ import annotations

import asyncio
import random


class _Side(asyncio.Protocol):
    """One end of a pair of connections."""

    def __init__(self, proxy: Proxy, other: _Side | None = None) -> None:
        self.proxy, self.other = proxy, other
        self.transport: asyncio.Transport | None = None
        self.early = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.proxy.sides.add(self)
        if self.proxy.silent:
            transport.pause_reading()
        if self.other is None:
            if self.proxy.down:
                transport.abort()
            else:
                self.proxy.tasks.add(asyncio.ensure_future(self._reach()))
        elif self.other.transport is None or self.other.transport.is_closing():
            transport.abort()

    async def _reach(self) -> None:
        """The client's end looks for the server."""
        try:
            loop = asyncio.get_running_loop()
            _, server = await loop.create_unix_connection(
                lambda: _Side(self.proxy, self), self.proxy.server
            )
        except OSError:
            assert self.transport
            self.transport.abort()
        else:
            self.other = server
            if self.early and server.transport:
                server.transport.write(self.early)
        self.proxy.tasks.discard(asyncio.current_task())

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self.early += data
            return
        if self.proxy.left is not None:
            left = self.proxy.left
            self.proxy.left -= len(data)
            if left < len(data):
                if self.other.transport and not self.other.transport.is_closing():
                    self.other.transport.write(data[:left])
                self.proxy.left = None
                # What was written before it arrives.
                asyncio.get_running_loop().call_soon(self.proxy.close_all)
                return
        if self.other.transport and not self.other.transport.is_closing():
            self.other.transport.write(data)

    def connection_lost(self, _error: Exception | None) -> None:
        self.proxy.sides.discard(self)
        if self.other and self.other.transport:
            self.other.transport.close()


class Proxy:
    def __init__(self, server: str) -> None:
        self.server = server
        self.sides: set[_Side] = set()
        self.tasks: set[asyncio.Task[None] | None] = set()
        self.down = self.silent = False
        self.left: int | None = None  # bytes until the connections are cut

    async def listen(self) -> int:
        loop = asyncio.get_running_loop()
        self.listener = await loop.create_server(lambda: _Side(self), "127.0.0.1", 0)
        return int(self.listener.sockets[0].getsockname()[1])

    def close_all(self) -> None:
        for side in list(self.sides):
            if side.transport:
                side.transport.close()

    def cut(self) -> None:
        """No connection lives, and none is accepted, until mend()."""
        self.down = True
        for side in list(self.sides):
            if side.transport:
                side.transport.abort()

    def mend(self) -> None:
        self.down = False

    def cut_after(self, count: int) -> None:
        """Cut all connections once after so many more bytes, in the middle of a message or between two."""
        self.left = count

    def silence(self) -> None:
        """Connections stay open, but nothing arrives until speak()."""
        self.silent = True
        for side in self.sides:
            if side.transport and not side.transport.is_closing():
                side.transport.pause_reading()

    def speak(self) -> None:
        """All that was sent meanwhile arrives, late."""
        self.silent = False
        for side in self.sides:
            if side.transport and not side.transport.is_closing():
                side.transport.resume_reading()

    def end(self) -> None:
        self.listener.close()
        self.cut()


def some_bytes(chance: random.Random) -> int:
    """Inside a command, a reply, or some of them later."""
    return chance.choice((0, 1, chance.randrange(60), chance.randrange(400), chance.randrange(3000)))

"""A connection that sends only what the test sends: no retry, no pool, no redirect."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import Any

# Reply timeout in seconds.  Do not send commands to a stopped server.
ANSWER = 30.0


class ReplyError(Exception):
    """An error reply in the server's words; `code` is its first word."""

    @property
    def code(self) -> str:
        return str(self).split(" ", 1)[0]


class _Incomplete(Exception):
    pass


def _parse(data: bytes, at: int) -> tuple[Any, int]:
    """The value that begins at a position, and the position after it."""
    end = data.find(b"\r\n", at)
    if end < 0:
        raise _Incomplete
    kind, rest = data[at : at + 1], data[at + 1 : end].decode(errors="surrogateescape")
    at = end + 2
    if kind == b"+":
        return rest, at
    if kind == b"-":
        return ReplyError(rest), at
    if kind == b":":
        return int(rest), at
    if kind not in (b"$", b"*"):
        raise ValueError(f"no RESP2: {data[:80]!r}")
    if rest == "-1":
        return None, at
    if kind == b"$":
        end = at + int(rest)
        if len(data) < end + 2:
            raise _Incomplete
        return data[at:end].decode(errors="surrogateescape"), end + 2
    values = []
    for _ in range(int(rest)):
        value, at = _parse(data, at)
        values.append(value)
    return values, at


class Link:
    """One connection in RESP2.  Texts come as str, arrays as list, nil as None."""

    def __init__(
        self,
        where: Path | tuple[str, int],
        *,
        password: str = "",
        user: str = "",
        tls: ssl.SSLContext | None = None,
        name: str = "",
        limit: float = ANSWER,
    ) -> None:
        if isinstance(where, tuple):
            self.socket: socket.socket = socket.create_connection(where, limit)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        else:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(limit)
            self.socket.connect(str(where))
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname=name or None)
        self._read = b""
        if password:
            self.command("AUTH", *([user] if user else []), password)

    def send(self, *words: object) -> None:
        parts = [w if isinstance(w, bytes) else str(w).encode() for w in words]
        text = b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)
        self.socket.sendall(b"*%d\r\n" % len(parts) + text)

    def receive(self) -> Any:
        """The next reply or message; an error reply is returned, not raised.  A TimeoutError consumes nothing."""
        while True:
            try:
                reply, used = _parse(self._read, 0)
            except _Incomplete:
                more = self.socket.recv(65536)
                if not more:
                    raise ConnectionError("the server has closed the connection") from None
                self._read += more
            else:
                self._read = self._read[used:]
                return reply

    def heard(self, limit: float) -> Any:
        """The next reply or message within a time limit in seconds, otherwise None."""
        before = self.socket.gettimeout()
        self.socket.settimeout(limit)
        try:
            return self.receive()
        except TimeoutError:
            return None
        finally:
            self.socket.settimeout(before)

    def ask(self, *words: object) -> Any:
        """Run a command; an error reply is returned as a ReplyError."""
        self.send(*words)
        return self.receive()

    def command(self, *words: object) -> Any:
        """Run a command; an error reply is raised."""
        reply = self.ask(*words)
        if isinstance(reply, ReplyError):
            raise reply
        return reply

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Link:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

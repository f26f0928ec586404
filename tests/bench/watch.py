"""Watch a fair lock at the server, and count how often a waiter overtook another.

MONITOR shows every command in the order in which the server ran it, those inside scripts too.  A
waiter queues when a script pushes its owner to the queue's list (RPUSH); it has the lock when, at
the end of a script, its field is in the lock's hash and was not before.  An inversion is a pair of
waiters of which the one that queued later got the lock earlier.  A waiter that is dropped from the
queue and queues again keeps its first time, and one that never queued overtakes all waiters: both
are unfair.
"""

from __future__ import annotations

import re
import socket

from servers import Failed, Server

MARK = b"the watch ends"
LINE = re.compile(rb"\+[0-9.]+ \[\d+ ([^\]]*)\] (.*)")
WORD = re.compile(rb'"((?:[^"\\\\]|\\\\.)*)"')


class Fairness:
    """The lock's hash and queue, followed command by command."""

    def __init__(self, name: str) -> None:
        self._lock = name.encode()
        self._queue = f"redisson_lock_queue:{{{name}}}".encode()
        self._fields: set[bytes] = set()
        self._held: set[bytes] = set()  # the fields at the end of the last script
        self._waiting: dict[bytes, None] = {}  # in the order of their arrival
        self.grants = 0
        self.inversions = 0

    def command(self, words: list[bytes]) -> None:
        verb, key = words[0].lower(), words[1:2]
        if verb == b"rpush" and key == [self._queue]:
            self._waiting.setdefault(words[2])
        elif key == [self._lock]:
            if verb == b"hset":
                self._fields.add(words[2])
            elif verb == b"hdel":
                self._fields.discard(words[2])
            elif verb in (b"del", b"unlink"):
                self._fields.clear()

    def script_end(self) -> None:
        for owner in self._fields - self._held:
            self.grants += 1
            for waiter in self._waiting:
                if waiter == owner:
                    break
                self.inversions += 1
            self._waiting.pop(owner, None)
        self._held = set(self._fields)


def follow(lines: list[bytes], name: str) -> Fairness:
    fairness = Fairness(name)
    for line in lines:
        found = LINE.match(line)
        if not found:
            continue
        if found[1] != b"lua":
            fairness.script_end()
        else:
            fairness.command(WORD.findall(found[2]))
    fairness.script_end()
    return fairness


class Watch:
    """The watch of one turn.  MONITOR's output stays in the server's memory until the turn is over,
    so that reading it does not slow the subjects down."""

    def __init__(self, server: Server, name: str) -> None:
        self._server, self._name = server, name

    def __enter__(self) -> Watch:
        self._socket = socket.create_connection(("127.0.0.1", self._server.port))
        self._socket.sendall(b"MONITOR\r\n")
        self._stream = self._socket.makefile("rb")
        if self._stream.readline() != b"+OK\r\n":
            raise Failed("the server does not let itself be watched")
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()
        self._socket.close()

    def inversions(self, done: int) -> int:
        self._server.command("ECHO", MARK.decode())
        lines = []
        for line in self._stream:
            if MARK in line:
                break
            lines.append(line)
        fairness = follow(lines, self._name)
        if fairness.grants != done:
            raise Failed(f"the watch saw {fairness.grants} locks, the subjects {done}")
        return fairness.inversions

"""The recorder in Python: threads that take the locks of a history; see recorders.py."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import socket
import sys
import threading
import time
from typing import Any

import snib


def now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def die(told: threading.ExceptHookArgs) -> None:
    """What no thread expects ends the process: otherwise one thread would be missing from its log, and nobody would know."""
    threading.__excepthook__(told)
    os._exit(1)


class Held:
    """A hold in use: when a check last found it valid, and why one has found it lost."""

    def __init__(self, hold: snib.Hold, me: str) -> None:
        self.hold, self.me = hold, me
        self.granted = self.checked = now_ns()
        self.lost = ""

    def check(self) -> int:
        """When the check began if it found the hold valid, otherwise 0."""
        now = now_ns()
        if self.lost:
            return 0
        try:
            self.hold.check()
        except snib.Error:
            self.lost = (self.hold.reason or "unknown").replace(" ", "_")
            return 0
        self.checked = now
        return now


class Recorder:
    def __init__(self, url: str, log: str, **plan: str) -> None:
        self.me, self.kind = plan["me"], plan["kind"]
        self.names = plan["names"].split(",")
        self.workers = int(plan["workers"])
        self.conductor = ("127.0.0.1", int(plan["conductor"]))
        ms = {word: int(plan[word]) / 1000 for word in plan if word.endswith("_ms")}
        self.client = snib.connect(
            url, lease=ms["lease_ms"], recheck=ms["recheck_ms"], patience=ms["patience_ms"]
        )
        self.leases = (None, ms["fixed_ms"])
        self.log = open(log, "wb", buffering=0)
        self.count = itertools.count(1)

    def lock(self, name: str, mode: str, lease: float | None) -> Any:
        if self.kind == "rw":
            both = self.client.rwlock(name, lease=lease)
            return both.read if mode == "r" else both.write
        make = {
            "fenced": self.client.fenced_lock,
            "fair": self.client.fair_lock,
            "permits": self.client.permits,
        }
        return make.get(self.kind, self.client.lock)(name, lease=lease)

    def write(self, event: str, at: int, *words: object) -> None:
        """One system call for a line: one that is killed leaves what it wrote."""
        self.log.write(f"{event} {at} {' '.join(map(str, words))}\n".encode())

    def main(self) -> None:
        threads = [
            threading.Thread(target=Worker(self, name, i * self.workers + j).run)
            for i, name in enumerate(self.names)
            for j in range(self.workers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with contextlib.suppress(snib.Error):  # the server may be down just now
            self.client.close()


class Worker:
    def __init__(self, recorder: Recorder, name: str, number: int) -> None:
        self.all, self.name, self.who = recorder, name, f"{recorder.me}/{number}"
        self.locks = {
            (mode, fixed): recorder.lock(name, mode, lease)
            for mode in "xr"
            for fixed, lease in enumerate(recorder.leases)
        }
        self.conductor = socket.create_connection(recorder.conductor)

    def talk(self, *words: object) -> list[str]:
        """Say a line to the conductor; without an answer the run is over for everybody."""
        self.conductor.sendall((" ".join(map(str, words)) + "\n").encode())
        answer = b""
        while not answer.endswith(b"\n"):
            more = self.conductor.recv(256)
            if not more:
                os._exit(1)
            answer += more
        return answer.decode().split()

    def run(self) -> None:
        self.all.write("start", now_ns(), self.who)
        while (order := self.talk("turn", self.name, self.who))[0] == "go":
            wait_ms, mode, fixed = int(order[1]), order[2], int(order[3])
            asked = now_ns()
            self.all.write("ask", asked, self.who, self.name, wait_ms)
            try:
                hold = self.locks[mode, fixed].hold(timeout=wait_ms / 1000)
            except snib.Error as error:
                self.all.write("fail", now_ns(), self.who, self.name, asked, error.code)
            else:
                self.hold_it(hold, mode)
        self.all.write("end", now_ns(), self.who)
        self.conductor.close()

    def hold_it(self, hold: snib.Hold, mode: str) -> None:
        held = Held(hold, f"{self.all.me}-{next(self.all.count)}")
        words = (self.who, self.name, held.me)
        token, owner = hold.token if self.all.kind == "fenced" else 0, hold.owner or "-"
        self.all.write("grant", held.granted, *words, token, mode, owner)
        self.use(held, mode, token, owner)
        if held.lost:
            self.all.write("lost", now_ns(), *words, held.checked, held.lost)
        asked, code = now_ns(), 0
        try:
            hold.release()
        except snib.Error as error:
            code = error.code
        self.all.write("release", now_ns(), *words, held.checked, asked, code)

    def use(self, held: Held, mode: str, token: int, owner: str) -> None:
        """Read the counter, and write the next number or, as a reader, read it again."""
        before, result, after = held.check(), -1, 0
        value, linger = map(int, self.talk("read", self.name, held.me, token, owner))
        while linger and held.check():
            time.sleep(0.001)
        if linger:
            self.talk("lost", self.name, held.me)
        # One that knows that it has lost a lock without tokens stops; with a token the resource knows better.
        if value >= 0 and (held.check() or token > 0):
            if mode == "r":
                result = int(self.talk("again", self.name, held.me, token)[0])
            else:
                result = int(self.talk("write", self.name, held.me, token, value + 1)[0])
            after = held.check()
        words = (self.who, self.name, held.me, before, value, result, after)
        self.all.write("use", now_ns(), *words)


threading.excepthook = die
logging.getLogger("snib").addHandler(logging.NullHandler())
Recorder(sys.argv[1], sys.argv[2], **dict(word.split("=", 1) for word in sys.argv[3:])).main()

"""The worker in Python: threads that take and release a few locks in a loop; see load.py."""

from __future__ import annotations

import itertools
import logging
import random
import sys
import threading
import time

import snib


def now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Worker:
    def __init__(self, url: str, log: str, **plan: str) -> None:
        self.me = plan.get("me", "py")
        self.names = plan["names"].split(",")
        self.threads = int(plan.get("threads", 4))
        self.kind = plan.get("kind", "fenced")
        self.wait_ms = int(plan.get("wait_ms", 10000))
        self.hold_ms = int(plan.get("hold_ms", 20))
        self.think_ms = int(plan.get("think_ms", 5))
        self.check_s = int(plan.get("check_ms", 1)) / 1000
        options = {}
        for word, option in (("lease_ms", "lease"), ("patience_ms", "patience")):
            if word in plan:
                options[option] = int(plan[word]) / 1000
        self.client = snib.connect(url, **options)
        make = {"fenced": self.client.fenced_lock, "fair": self.client.fair_lock}
        self.locks = {name: make.get(self.kind, self.client.lock)(name) for name in self.names}
        self.log = open(log, "w", buffering=1)
        self.count = itertools.count(1)
        self.over = threading.Event()

    def write(self, event: str, *words: object) -> None:
        self.log.write(f"{event} {now_ns()} {' '.join(map(str, words))}\n")

    def run(self, number: int) -> None:
        who, chance = f"{self.me}/{number}", random.Random()
        self.write("start", who)
        while not self.over.is_set():
            name = chance.choice(self.names)
            asked = now_ns()
            self.write("ask", who, name, self.wait_ms)
            pause = self.think_ms
            try:
                hold = self.locks[name].hold(timeout=self.wait_ms / 1000)
            except snib.Error as error:
                self.write("fail", who, name, asked, error.code)
                pause += 10
            else:
                self.hold_it(who, name, hold, chance)
            time.sleep(pause / 1000)
        self.write("end", who)

    def hold_it(self, who: str, name: str, hold: snib.Hold, chance: random.Random) -> None:
        me = f"{self.me}-{next(self.count)}"
        checked = now_ns()
        self.write("grant", who, name, me, hold.token if self.kind == "fenced" else 0)
        end = now_ns() + chance.randint(0, self.hold_ms) * 1_000_000
        try:
            while True:
                now = now_ns()
                hold.check()
                checked = now
                if now >= end:
                    break
                time.sleep(self.check_s)
        except snib.Lost:
            self.write("lost", who, name, me, checked, hold.reason)
        asked, code = now_ns(), 0
        try:
            hold.release()
        except snib.Error as error:
            code = error.code
        self.write("release", who, name, me, checked, asked, code)

    def main(self) -> None:
        threads = [threading.Thread(target=self.run, args=(i,)) for i in range(self.threads)]
        for thread in threads:
            thread.start()
        while sys.stdin.buffer.read(1):  # until the parent closes the pipe or dies
            pass
        self.over.set()
        for thread in threads:
            thread.join()
        self.client.close()


logging.getLogger("snib").addHandler(logging.NullHandler())
Worker(sys.argv[1], sys.argv[2], **dict(word.split("=", 1) for word in sys.argv[3:])).main()

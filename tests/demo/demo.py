"""A flash sale: buyers in four languages read the stock, think, and write it back.

Without the lock they oversell.  With it they never do, although one buyer is killed and one is
stopped while holding it.  `./dev demo` calls this with the build folder.

The environment of a buyer program:

    DEMO_NAME       its name; when it reads this name under the key "slow" it deletes the key and
                    thinks for DEMO_SLOW_MS instead of DEMO_THINK_MS
    DEMO_SHOP       the socket of the shop's server: keys "stock", "sold" and "slow"
    DEMO_LOCK       the lock's name; empty: buy without a lock
    DEMO_LEASE_MS   the lease of the lock, renewed while it is held
    SNIB_URL        the server of the lock
    DEMO_END_US     when to stop, by CLOCK_BOOTTIME; or earlier when the shop is sold out
    DEMO_LOG        where it writes lines of JSON: got, gave, lost, end
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import redis

import picture

HERE = Path(__file__).resolve().parent
LEASE_MS = 1000
THINK_MS = 3
SLOW_MS = 600
LIMIT_S = 40.0  # for one round; far more than it takes


@dataclass
class Hold:
    """One hold of the lock, times in microseconds of CLOCK_BOOTTIME."""

    start: int
    end: int
    wait: int
    bought: int = 0
    lost: bool = False


@dataclass
class Buyer:
    """One process with one or more buyers."""

    name: str
    command: list[str]
    process: subprocess.Popen[bytes] | None = None
    log: Path = Path()
    holds: list[Hold] = field(default_factory=list)
    handovers: int | None = None
    lost: list[tuple[int, str]] = field(default_factory=list)
    fate: str = ""
    struck_us: tuple[int, int] = (0, 0)  # killed at, or stopped from and to


def buyers(build: Path) -> list[Buyer]:
    python = sys.executable
    return [
        Buyer("C", [str(build / "demo-c")]),
        Buyer("C 2", [str(build / "demo-c")]),
        Buyer("Python threads", [python, str(HERE / "worker_threads.py")]),
        Buyer("Python asyncio", [python, str(HERE / "worker_asyncio.py")]),
        Buyer("Go", [str(build / "demo-go")]),
        Buyer("snib run (sh)", [str(HERE / "worker.sh")]),
    ]


def now_us() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


def until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"demo: {what} did not happen within {LIMIT_S:.0f} s")
        time.sleep(0.002)


class Server:
    """A private Valkey on a unix socket in a temporary folder."""

    def __init__(self, build: Path, folder: str) -> None:
        tools = build / "tools"
        binary = tools / "valkey-server"
        if not binary.exists():
            binary = tools / "redis-server"
        self.socket = f"{folder}/server.sock"
        options = ["--port", "0", "--unixsocket", self.socket, "--save", "", "--appendonly", "no"]
        self.process = subprocess.Popen(
            [binary, *options, "--dir", folder],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.client = redis.Redis(unix_socket_path=self.socket, decode_responses=True)
        until(self._answers, "the server's start")
        version = self.client.info("server").get("valkey_version")
        self.name = f"Valkey {version}" if version else "Redis"

    def _answers(self) -> bool:
        try:
            return bool(self.client.ping())
        except redis.ConnectionError:
            return False

    def number(self, key: str) -> int:
        return int(self.client.get(key) or 0)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


# ---- A round -------------------------------------------------------------------------------------


class Round:
    """All buyers at once, until the shop is sold out or the time is over."""

    def __init__(
        self, build: Path, folder: str, server: Server, lock: str, stock: int, seconds: float
    ) -> None:
        self.server = server
        self.stock = stock
        self.buyers = buyers(build)
        server.client.flushall()
        server.client.mset({"stock": stock, "sold": 0})
        server.client.config_resetstat()
        self.begin_us = now_us()
        environment = {
            "DEMO_SHOP": server.socket,
            "DEMO_LOCK": lock,
            "DEMO_LEASE_MS": str(LEASE_MS),
            "DEMO_THINK_MS": str(THINK_MS),
            "DEMO_SLOW_MS": str(SLOW_MS),
            "DEMO_END_US": str(self.begin_us + int(seconds * 1e6)),
            "DEMO_BOOT_US": str(time.time_ns() // 1000 - now_us()),
            "DEMO_SNIB": str(build / "core" / "snib"),
            "SNIB_URL": f"unix://{server.socket}",
            "PYTHONUNBUFFERED": "1",
        }
        for i, buyer in enumerate(self.buyers):
            buyer.log = Path(folder) / f"{lock or 'unlocked'}-{i}.log"
            own = {"DEMO_NAME": buyer.name, "DEMO_LOG": str(buyer.log)}
            buyer.process = subprocess.Popen(
                buyer.command, env={**os.environ, **environment, **own}
            )

    def await_sold(self, pieces: int) -> None:
        until(lambda: self.server.number("sold") >= pieces or self._over(), f"sale number {pieces}")

    def _over(self) -> bool:
        return all(buyer.process.poll() is not None for buyer in self.buyers)

    def _slow_buyer(self, name: str) -> Buyer:
        """Slow a buyer down; it holds the lock when this returns."""
        self.server.client.set("slow", name)
        until(lambda: not self.server.client.exists("slow"), f"a purchase of {name}")
        return next(buyer for buyer in self.buyers if buyer.name == name)

    def kill(self, name: str) -> None:
        buyer = self._slow_buyer(name)
        buyer.process.kill()
        at = now_us()
        sold = self.server.number("sold")
        self.await_sold(sold + 1)
        buyer.struck_us = (at, at)
        buyer.fate = f"killed while holding; the others went on after {(now_us() - at) / 1e6:.2f} s"
        print(f"  {buyer.name}: {buyer.fate}")

    def stop(self, name: str) -> None:
        buyer = self._slow_buyer(name)
        buyer.process.send_signal(signal.SIGSTOP)
        at = now_us()
        sold = self.server.number("sold")
        self.await_sold(sold + 1)
        after = (now_us() - at) / 1e6
        self.await_sold(sold + 100)
        buyer.process.send_signal(signal.SIGCONT)
        buyer.struck_us = (at, now_us())
        until(lambda: '"lost"' in buyer.log.read_text(), f"the news of its loss in {name}")
        buyer.fate = (
            f"stopped while holding; the others went on after {after:.2f} s; learned of the loss"
        )
        print(f"  {buyer.name}: {buyer.fate}")

    def finish(self) -> None:
        for buyer in self.buyers:
            buyer.process.wait(LIMIT_S)
            killed = buyer.struck_us[0] != 0 and buyer.struck_us[0] == buyer.struck_us[1]
            if buyer.process.returncode not in ((-signal.SIGKILL,) if killed else (0,)):
                sys.exit(f"demo: {buyer.name} ended with {buyer.process.returncode}")
            read_log(buyer)
        self.sold, self.left = self.server.number("sold"), self.server.number("stock")
        self.end_us = max(hold.end for buyer in self.buyers for hold in buyer.holds)

    def abandon(self) -> None:
        for buyer in self.buyers:
            if buyer.process and buyer.process.poll() is None:
                buyer.process.kill()
                buyer.process.wait()


def read_log(buyer: Buyer) -> None:
    """Fill in the holds; one without an end was cut short by a kill."""
    running: dict[int, Hold] = {}
    for line in buyer.log.read_text().splitlines():
        entry = json.loads(line)
        at = entry["at"] if "at" in entry else 0
        if entry["event"] == "got":
            running[entry["by"]] = Hold(at, 0, entry["wait"])
            buyer.holds.append(running[entry["by"]])
        elif entry["event"] == "gave":
            running[entry["by"]].end = at
            running[entry["by"]].bought = entry["bought"]
        elif entry["event"] == "lost":
            buyer.lost.append((at, entry["why"]))
        else:
            buyer.handovers = entry["handovers"]
    for hold in buyer.holds:
        hold.end = hold.end or buyer.struck_us[0]
        # Stopped while holding: after the stop the hold was no longer valid.
        if hold.start < buyer.struck_us[0] <= hold.end:
            hold.lost = True
            hold.end = min(hold.end, buyer.struck_us[0])


# ---- Results -------------------------------------------------------------------------------------


def overlaps(buyers: list[Buyer]) -> int:
    holds = sorted((hold.start, hold.end) for buyer in buyers for hold in buyer.holds)
    return sum(second[0] < first[1] for first, second in zip(holds, holds[1:]))


def part(values: list[int], share: float) -> str:
    values = sorted(values)
    return f"{values[min(len(values) - 1, int(len(values) * share))] / 1000:.1f}" if values else "-"


def table(done: Round) -> None:
    titles = f"{'held':>7}{'bought':>8}{'handed over':>13}{'wait p50 ms':>13}{'p99 ms':>9}"
    print(f"  {'buyer':<16}{titles}")
    for buyer in done.buyers:
        waits = [hold.wait for hold in buyer.holds]
        handovers = "-" if buyer.handovers is None else str(buyer.handovers)
        print(
            f"  {buyer.name:<16}{len(buyer.holds):>7}{sum(h.bought for h in buyer.holds):>8}"
            f"{handovers:>13}{part(waits, 0.5):>13}{part(waits, 0.99):>9}"
        )
    calls = done.server.client.info("commandstats")
    sent = sum(
        calls.get(f"cmdstat_{name}", {}).get("calls", 0)
        for name in ("evalsha", "subscribe", "unsubscribe")
    )
    holds = sum(len(buyer.holds) for buyer in done.buyers)
    print(
        f"\n  the server saw {sent} lock commands: {sent / holds:.2f} for each of the {holds} holds"
    )


def main() -> None:
    build = Path(sys.argv[1])
    current: Round | None = None
    with tempfile.TemporaryDirectory(prefix="snib-demo-") as folder:
        server = Server(build, folder)
        try:
            print(f"Flash sale on a private {server.name}: 14 buyers in 6 processes\n")
            print("Without a lock, 200 pieces:")
            current = unlocked = Round(build, folder, server, "", 200, 3.0)
            unlocked.finish()
            taken = unlocked.stock - unlocked.left
            print(f"  sold {unlocked.sold}, but only {taken} left the stock: ", end="")
            print(f"OVERSOLD by {unlocked.sold - taken}\n")

            stock = 1500
            print(f"With a lock, {stock} pieces, a lease of {LEASE_MS / 1000:.0f} s:")
            current = locked = Round(build, folder, server, "sale", stock, LIMIT_S)
            locked.await_sold(stock // 5)
            locked.kill("C 2")
            locked.await_sold(stock // 2)
            locked.stop("Go")
            locked.finish()
            broken = locked.sold - (stock - locked.left)
            print(f"  sold {locked.sold}, {locked.left} left: ", end="")
            print("sold exactly what there was" if not broken else f"WRONG by {broken}")
            print(f"  holds that overlapped: {overlaps(locked.buyers)}\n")
            table(locked)
            path = build / "demo.svg"
            path.write_text(picture.draw(locked.buyers, locked.begin_us, locked.end_us))
            print(f"  timeline: {path}")
            if broken or overlaps(locked.buyers) or unlocked.sold <= taken:
                sys.exit("demo: this is not what it should show")
        finally:
            if current:
                current.abandon()
            server.stop()


if __name__ == "__main__":
    main()

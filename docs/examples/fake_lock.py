"""A program is tested with a lock of the test's own, which needs no server and is lost when the test says so."""

import os
import threading

import snib
from snib import protocols


# The program.


def ship(lock: protocols.Lock, orders: list[str]) -> list[str]:
    """Ship orders while the lock is held; returns those that were shipped."""
    shipped: list[str] = []
    try:
        with lock.hold(timeout=2.0) as hold:
            for order in orders:
                hold.check()
                shipped.append(order)
    except snib.Lost as lost:
        print(f"stopped after {len(shipped)}: {lost}")
    return shipped


# Its test.  The fake has what the protocols demand, and a type checker says so if a part is missing.


class FakeHold:
    """A hold that is lost after some checks."""

    token = 1
    owner = "fake:1"

    def __init__(self, checks: int) -> None:
        self.checks = checks
        self.lost = threading.Event()

    def remaining(self) -> float:
        return 0.0 if self.lost.is_set() else 30.0

    def check(self) -> None:
        if self.checks == 0:
            self.lost.set()
        if self.lost.is_set():
            raise snib.Lost("the test said so")
        self.checks -= 1

    def extend(self, lease: float | None = None) -> None:
        if self.lost.is_set():
            raise snib.Lost("the test said so")

    def release(self) -> None:
        if self.lost.is_set():
            raise snib.Lost("the test said so")

    def __enter__(self) -> "FakeHold":
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


class FakeLock:
    """A lock that is always free, or always held by another process."""

    def __init__(self, *, checks: int = 1000, busy: bool = False) -> None:
        self.checks, self.busy = checks, busy

    def hold(self, *, timeout: float | None = None) -> FakeHold:
        if self.busy:
            raise snib.Timeout("the test said so")
        self.held = FakeHold(self.checks)
        return self.held

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        if not self.busy:
            self.hold()
        return not self.busy

    def release(self) -> None:
        self.held.release()

    def __enter__(self) -> FakeHold:
        return self.hold()

    def __exit__(self, *error: object) -> None:
        self.release()


assert ship(FakeLock(), ["a", "b", "c"]) == ["a", "b", "c"]
assert ship(FakeLock(checks=2), ["a", "b", "c"]) == ["a", "b"]
try:
    ship(FakeLock(busy=True), ["a"])
    raise AssertionError("shipped without the lock")
except snib.Timeout:
    pass

# The same program with a lock that is one, if there is a server.
if "SNIB_URL" in os.environ:
    with snib.connect(os.environ["SNIB_URL"]) as client:
        assert ship(client.lock("orders"), ["a", "b", "c"]) == ["a", "b", "c"]

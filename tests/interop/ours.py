"""Snib's side: locks by kind, and calls that wait in separate threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import snib
from support import eventually

T = TypeVar("T")


def make(client: snib.Client, kind: str, name: str, **options: Any) -> Any:
    """A Snib lock of the kind with the same word in java/Peer.java."""
    if kind == "mutex":
        return client.lock(name, **options)
    if kind in ("read", "write"):
        return getattr(client.rwlock(name, **options), kind)
    if kind == "multi":
        return snib.MultiLock([client.lock(part) for part in name.split(",")], **options)
    return getattr(client, f"{kind}_lock")(name, **options)


class Waiting(Generic[T]):
    """A call to Snib in a separate thread; `at` is when it ended."""

    def __init__(self, call: Callable[[], T]) -> None:
        self.at = 0.0
        self._value: T | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()

    def _run(self, call: Callable[[], T]) -> None:
        try:
            self._value = call()
        except BaseException as error:
            self._error = error
        self.at = time.monotonic()

    @property
    def waits(self) -> bool:
        return self._thread.is_alive()

    def get(self, seconds: float = 30.0) -> T:
        self._thread.join(seconds)
        assert not self._thread.is_alive(), f"still waiting after {seconds} s"
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]


def taking(lock: Any, timeout: float | None = 30.0) -> Waiting[Any]:
    """Take a Snib lock in the background; the value is the hold."""
    return Waiting(lambda: lock.hold(timeout=timeout))


def counted_waits(client: snib.Client, call: Callable[[], T]) -> Waiting[T]:
    """Start a blocking call to Snib and return once it is waiting."""
    before = client.stats().waiting
    waiting = Waiting(call)
    eventually(lambda: client.stats().waiting > before)
    assert waiting.waits
    return waiting


def ours_waits(client: snib.Client, lock: Any) -> Waiting[Any]:
    """Call taking() and return once it is waiting."""
    return counted_waits(client, lambda: lock.hold(timeout=30))

"""Server state as another client would leave it, and the messages that it would receive."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from conftest import SharedServer

STRANGER = "11111111-2222-4333-8444-555555555555:7"
OTHER = "99999999-2222-4333-8444-555555555555:8"


class Queue:
    """A fair lock's queue, as another client sees it."""

    def __init__(self, server: SharedServer, name: str) -> None:
        self.redis = server.admin
        self.lock = name
        self.list = f"redisson_lock_queue:{{{name}}}"
        self.scores = f"redisson_lock_timeout:{{{name}}}"

    def now(self) -> float:
        """The server's time in epoch milliseconds."""
        seconds, micros = self.redis.time()
        return float(seconds * 1000 + micros // 1000)

    def join(self, owner: str, in_ms: float | None) -> None:
        """Queue a foreign waiter that gives up after in_ms; None: one without a score."""
        self.redis.rpush(self.list, owner)
        if in_ms is not None:
            self.redis.zadd(self.scores, {owner: self.now() + in_ms})

    def score(self, owner: str) -> float:
        """When the owner's place expires, in epoch milliseconds."""
        score = self.redis.zscore(self.scores, owner)
        assert score is not None, f"{owner} has no place any more"
        return float(score)

    def patience(self, owner: str) -> float:
        """Milliseconds until the owner's place expires."""
        return self.score(owner) - self.now()

    def members(self) -> list[str]:
        return list(self.redis.lrange(self.list, 0, -1))

    def channel(self, owner: str) -> str:
        return f"redisson_lock__channel:{{{self.lock}}}:{owner}"

    def delete(self) -> None:
        self.redis.delete(self.list, self.scores)


@contextlib.contextmanager
def listening(server: SharedServer, channel: str) -> Iterator[Callable[[], str]]:
    """Yield a function that waits for the next message."""
    listener = server.admin.pubsub(ignore_subscribe_messages=False)
    listener.subscribe(channel)
    assert listener.get_message(timeout=30)["type"] == "subscribe"

    def hear() -> str:
        message = listener.get_message(timeout=30)
        assert message, f"nothing was said on {channel}"
        return str(message["data"])

    yield hear
    listener.close()

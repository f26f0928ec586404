"""Lock + unlock on distinct locks: pairs.py URL snib|redis|redis-wait THREADS

URL is in Snib's form.  redis-wait has a connection for each thread, and waits for one replica.
"""

from __future__ import annotations

import sys
import threading
from contextlib import AbstractContextManager
from time import perf_counter
from typing import Any
from urllib.parse import parse_qs

from turns import answer, turns


def snib_locks(url: str, count: int) -> list[AbstractContextManager]:
    import snib

    client = snib.connect(url)
    return [client.lock(f"pair:{i}") for i in range(count)]


def redis_client(url: str, **options: Any) -> Any:
    import redis
    from redis._parsers import _HiredisParser

    url, _, query = url.partition("?")
    authority = parse_qs(query).get("tls_ca")
    if authority:
        options["ssl_ca_certs"] = authority[0]
    client = redis.Redis.from_url(url, **options)
    parser = client.connection_pool.make_connection()._parser
    if not isinstance(parser, _HiredisParser):
        raise SystemExit("redis-py does not use its C parser")
    return client


def redis_locks(url: str, count: int) -> list[AbstractContextManager]:
    client = redis_client(url)
    # TLS connections are expensive in redis-py, so all are opened before the work begins.
    pool = client.connection_pool
    for connection in [pool.get_connection() for _ in range(count)]:
        pool.release(connection)
    return [client.lock(f"pair:{i}", timeout=30) for i in range(count)]


class Waited:
    """A lock of redis-py that counts once a replica has it."""

    def __init__(self, url: str, name: str) -> None:
        self._client = redis_client(url, single_connection_client=True)
        self._lock = self._client.lock(name, timeout=30)

    def __enter__(self) -> None:
        self._lock.acquire()
        if self._client.wait(1, 1000) < 1:
            self._lock.release()
            raise SystemExit("no replica had the lock within a second")

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def redis_wait_locks(url: str, count: int) -> list[AbstractContextManager]:
    return [Waited(url, f"pair:{i}") for i in range(count)]


KINDS = {"snib": snib_locks, "redis": redis_locks, "redis-wait": redis_wait_locks}


def work(lock: AbstractContextManager, until: float, counts: list[int]) -> None:
    count = 0
    while perf_counter() < until:
        with lock:
            pass
        count += 1
    counts.append(count)


def main() -> None:
    url, kind, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
    locks = KINDS[kind](url, threads)
    for seconds in turns():
        counts: list[int] = []
        began = perf_counter()
        until = began + seconds
        if threads == 1:
            work(locks[0], until, counts)
        else:
            crew = [threading.Thread(target=work, args=(lock, until, counts)) for lock in locks]
            for thread in crew:
                thread.start()
            for thread in crew:
                thread.join()
        answer(sum(counts), perf_counter() - began)


main()

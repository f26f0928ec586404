"""Lock + unlock on distinct locks: pairs.py PORT snib|redis THREADS"""

from __future__ import annotations

import sys
import threading
from contextlib import AbstractContextManager
from time import perf_counter

from turns import answer, turns


def snib_locks(port: int, count: int) -> list[AbstractContextManager]:
    import snib

    client = snib.connect(f"redis://127.0.0.1:{port}")
    return [client.lock(f"pair:{i}") for i in range(count)]


def redis_locks(port: int, count: int) -> list[AbstractContextManager]:
    import redis
    from redis._parsers import _HiredisParser

    client = redis.Redis(port=port)
    parser = client.connection_pool.make_connection()._parser
    if not isinstance(parser, _HiredisParser):
        raise SystemExit("redis-py does not use its C parser")
    return [client.lock(f"pair:{i}", timeout=30) for i in range(count)]


def work(lock: AbstractContextManager, until: float, counts: list[int]) -> None:
    count = 0
    while perf_counter() < until:
        with lock:
            pass
        count += 1
    counts.append(count)


def main() -> None:
    port, kind, threads = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    locks = {"snib": snib_locks, "redis": redis_locks}[kind](port, threads)
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

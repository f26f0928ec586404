"""Lock + unlock on distinct locks by tasks: tasks.py URL snib|redis TASKS asyncio|uvloop"""

from __future__ import annotations

import asyncio
import sys
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from time import perf_counter

from turns import answer, turns


async def snib_locks(
    stack: AsyncExitStack, url: str, count: int
) -> list[AbstractAsyncContextManager]:
    import snib.aio

    client = await stack.enter_async_context(snib.aio.connect(url))
    return [client.lock(f"task:{i}") for i in range(count)]


async def redis_locks(
    stack: AsyncExitStack, url: str, count: int
) -> list[AbstractAsyncContextManager]:
    import redis.asyncio

    client = await stack.enter_async_context(redis.asyncio.Redis.from_url(url))
    return [client.lock(f"task:{i}", timeout=30) for i in range(count)]


async def work(lock: AbstractAsyncContextManager, until: float) -> int:
    count = 0
    while perf_counter() < until:
        async with lock:
            pass
        count += 1
    return count


async def main() -> None:
    url, kind, tasks = sys.argv[1], sys.argv[2], int(sys.argv[3])
    async with AsyncExitStack() as stack:
        locks = await {"snib": snib_locks, "redis": redis_locks}[kind](stack, url, tasks)
        # The loop is blocked between turns on purpose: no task should work then.
        for seconds in turns():
            began = perf_counter()
            counts = await asyncio.gather(*(work(lock, began + seconds) for lock in locks))
            answer(sum(counts), perf_counter() - began)


if sys.argv[4] == "uvloop":
    import uvloop

    uvloop.run(main())
else:
    asyncio.run(main())

"""The buyer in Python with asyncio."""

import asyncio
import json
import os
import time

import redis.asyncio

import snib.aio

NAME = os.environ["DEMO_NAME"]
END_US = int(os.environ["DEMO_END_US"])
SLOW = int(os.environ["DEMO_SLOW_MS"]) / 1000
THINK = int(os.environ["DEMO_THINK_MS"]) / 1000
TASKS = 3

log_file = open(os.environ["DEMO_LOG"], "w", buffering=1)


def now_us() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


def log(event: str, **fields: object) -> None:
    log_file.write(json.dumps({"event": event, "at": now_us(), **fields}) + "\n")


async def buy(shop: redis.asyncio.Redis, hold: snib.aio.Hold | None) -> int:
    """Read the stock, think, write it back: wrong without a lock."""
    stock, slow = await shop.mget("stock", "slow")
    if int(stock) <= 0:
        return -1
    if slow == NAME:
        await shop.delete("slow")
    await asyncio.sleep(SLOW if slow == NAME else THINK)
    if hold is not None:
        hold.check()  # raises snib.Lost
    await shop.set("stock", int(stock) - 1)
    await shop.incr("sold")
    return 1


async def locked(shop: redis.asyncio.Redis, lock: snib.aio.Lock, by: int) -> int:
    asked = now_us()
    bought = 0
    try:
        async with lock.hold() as hold:
            log("got", by=by, wait=now_us() - asked)
            bought = await buy(shop, hold)
            log("gave", by=by, bought=max(bought, 0))
    except snib.Lost as lost:
        log("lost", why=str(lost))
        log("gave", by=by, bought=0)
    return bought


async def unlocked(shop: redis.asyncio.Redis, by: int) -> int:
    log("got", by=by, wait=0)
    bought = await buy(shop, None)
    log("gave", by=by, bought=max(bought, 0))
    return bought


async def buyer(lock: snib.aio.Lock | None, by: int) -> None:
    shop = redis.asyncio.Redis(unix_socket_path=os.environ["DEMO_SHOP"], decode_responses=True)
    async with shop:
        bought = 0
        while bought >= 0 and now_us() < END_US:
            bought = await (locked(shop, lock, by) if lock else unlocked(shop, by))


async def run(lock: snib.aio.Lock | None) -> None:
    await asyncio.gather(*(buyer(lock, by) for by in range(TASKS)))


async def main() -> None:
    if not os.environ["DEMO_LOCK"]:
        await run(None)
        return
    lease = int(os.environ["DEMO_LEASE_MS"]) / 1000
    async with snib.aio.connect(os.environ["SNIB_URL"], lease=lease) as client:
        await run(client.lock(os.environ["DEMO_LOCK"]))
        log("end", handovers=client.stats().handovers)


asyncio.run(main())

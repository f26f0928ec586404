"""The buyer in Python with threads."""

import json
import os
import threading
import time

import redis

import snib

NAME = os.environ["DEMO_NAME"]
END_US = int(os.environ["DEMO_END_US"])
SLOW = int(os.environ["DEMO_SLOW_MS"]) / 1000
THINK = int(os.environ["DEMO_THINK_MS"]) / 1000
THREADS = 3

log_file = open(os.environ["DEMO_LOG"], "w", buffering=1)


def now_us() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


def log(event: str, **fields: object) -> None:
    log_file.write(json.dumps({"event": event, "at": now_us(), **fields}) + "\n")


def buy(shop: redis.Redis, hold: snib.Hold | None) -> int:
    """Read the stock, think, write it back: wrong without a lock."""
    stock, slow = shop.mget("stock", "slow")
    if int(stock) <= 0:
        return -1
    if slow == NAME:
        shop.delete("slow")
    time.sleep(SLOW if slow == NAME else THINK)
    if hold is not None:
        hold.check()  # raises snib.Lost
    shop.set("stock", int(stock) - 1)
    shop.incr("sold")
    return 1


def locked(shop: redis.Redis, lock: snib.Lock, by: int) -> int:
    asked = now_us()
    bought = 0
    try:
        with lock.hold() as hold:
            log("got", by=by, wait=now_us() - asked)
            bought = buy(shop, hold)
            log("gave", by=by, bought=max(bought, 0))
    except snib.Lost as lost:
        log("lost", why=str(lost))
        log("gave", by=by, bought=0)
    return bought


def unlocked(shop: redis.Redis, by: int) -> int:
    log("got", by=by, wait=0)
    bought = buy(shop, None)
    log("gave", by=by, bought=max(bought, 0))
    return bought


def buyer(lock: snib.Lock | None, by: int) -> None:
    shop = redis.Redis(unix_socket_path=os.environ["DEMO_SHOP"], decode_responses=True)
    bought = 0
    while bought >= 0 and now_us() < END_US:
        bought = locked(shop, lock, by) if lock else unlocked(shop, by)


def run(lock: snib.Lock | None) -> None:
    threads = [threading.Thread(target=buyer, args=(lock, by)) for by in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if not os.environ["DEMO_LOCK"]:
    run(None)
else:
    with snib.connect(
        os.environ["SNIB_URL"], lease=int(os.environ["DEMO_LEASE_MS"]) / 1000
    ) as client:
        run(client.lock(os.environ["DEMO_LOCK"]))
        log("end", handovers=client.stats().handovers)

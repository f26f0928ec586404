"""`async with` cancels its body when the lock is lost, and raises snib.Lost."""

import asyncio
import os

import snib
import snib.aio

URL = os.environ.get("SNIB_URL", "redis://127.0.0.1:6379")


async def work(client: snib.aio.Client) -> None:
    async with client.lock("orders"):
        print("working")
        await client.lock("orders").force_release()  # an operator takes the lock away
        while True:
            await asyncio.sleep(0.01)  # cancelled at the next renewal


async def main() -> None:
    async with snib.aio.connect(URL, lease=1.0) as client:
        try:
            await work(client)
        except snib.Lost as loss:
            print(f"stopped: {loss}")


asyncio.run(main())

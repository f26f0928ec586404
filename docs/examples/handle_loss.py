"""Work that is a task of its own: whatever ends it, it has ended before its lock is given back."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine

import snib
import snib.aio

URL = os.environ.get("SNIB_URL", "redis://127.0.0.1:6379")


async def under(lock: snib.aio.Lock, job: Coroutine[object, object, str]) -> str:
    hold = await lock.hold()
    async with hold:  # gives it back, no more
        lost = asyncio.create_task(hold.lost.wait())
        work = asyncio.create_task(job)
        try:
            await asyncio.wait([lost, work], return_when=asyncio.FIRST_COMPLETED)
            hold.check()  # raises snib.Lost
            return work.result()  # or raises what the work raised
        finally:  # also if this task is cancelled: asyncio.wait() does not cancel what it waits for
            lost.cancel()
            work.cancel()
            await asyncio.gather(lost, work, return_exceptions=True)


async def main() -> None:
    async with snib.aio.connect(URL) as client, snib.aio.connect(URL, lease=3.0) as brief:
        lock = client.lock("orders")
        steps: list[str] = []
        begun = asyncio.Event()

        async def endless() -> str:
            begun.set()
            try:
                await asyncio.Event().wait()
                return "never"
            finally:
                await asyncio.sleep(0.05)  # what it has to put in order
                steps.append("ended under the lock" if await lock.locked() else "ended without the lock")

        async def failing() -> str:
            raise ValueError("no such order")

        async def quick() -> str:
            return "done"

        print(await under(lock, quick()))

        try:
            await under(lock, failing())
        except ValueError as error:
            print(f"failed: {error}")
        else:
            raise SystemExit("the failure was not told")

        task = asyncio.create_task(under(lock, endless()))
        await begun.wait()
        task.cancel()
        if not isinstance((await asyncio.gather(task, return_exceptions=True))[0], asyncio.CancelledError):
            raise SystemExit("not cancelled")
        assert steps == ["ended under the lock"]
        assert not await lock.locked()

        begun.clear()
        task = asyncio.create_task(under(brief.lock("orders"), endless()))  # renewed each second
        await begun.wait()
        await lock.force_release()  # an operator takes the lock away
        try:
            await task
        except snib.Lost as loss:
            print(f"stopped: {loss}")
        else:
            raise SystemExit("the loss was not told")
        assert steps[1:] == ["ended without the lock"]


asyncio.run(main())

"""Some thousand locks with nothing but the package: for every Python, also where pytest and its plugins are not.

    PYTHONPATH=FOLDER python3.x tests/python/pairs.py

The server is the one named by SNIB_TEST_SERVER, on a socket in a folder of its own.  Up to Python 3.11 a call that gives
away one reference to None too many ends the interpreter after some thousand calls, so good and failing calls are
repeated more often than that.  Prints one line.
"""

from __future__ import annotations

import asyncio
import os
import platform
import subprocess
import sys
import tempfile
import time

import snib
import snib.aio

CALLS = 4000
FEW = 400
SINGLETONS = (None, True, False)


def pairs(client: snib.Client) -> None:
    """Good calls and failing ones, of kinds with and without their own types."""
    mutex, fenced, semaphore = client.lock("mutex"), client.fenced_lock("fenced"), client.semaphore("semaphore")
    for _ in range(CALLS):
        assert mutex.acquire(timeout=60)
        mutex.release()
    assert semaphore.init(1)
    for _ in range(CALLS // 4):
        with fenced.hold(timeout=60) as hold:
            assert hold.token
        with semaphore.hold(timeout=60):
            assert not semaphore.acquire(timeout=0)
        try:
            mutex.release()
        except snib.Error:
            pass
        else:
            raise AssertionError("a lock that is not held was released")


async def tasks(url: str) -> None:
    async with snib.aio.connect(url) as client:

        async def one() -> None:
            async with client.lock("task").hold(timeout=60):
                pass

        await asyncio.gather(*(one() for _ in range(FEW)))


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="snib-pairs-") as folder:
        socket = f"{folder}/server"
        command = [os.environ["SNIB_TEST_SERVER"], "--port", "0", "--unixsocket", socket, "--save", "", "--dir", folder]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            while not os.path.exists(socket):
                assert server.poll() is None, f"{command[0]} has ended"
                time.sleep(0.01)
            before = [sys.getrefcount(value) for value in SINGLETONS]
            with snib.connect(f"unix://{socket}") as client:
                pairs(client)
            asyncio.run(tasks(f"unix://{socket}"))
            after = [sys.getrefcount(value) for value in SINGLETONS]
            grown = {value: b - a for value, a, b in zip(SINGLETONS, before, after) if abs(b - a) > FEW}
            assert not grown, f"references: {grown}"
        finally:
            server.terminate()
            server.wait()
    print(f"{platform.python_version()}: {CALLS} pairs, {FEW} tasks, failing calls: no reference too many")


main()

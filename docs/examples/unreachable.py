"""*Busy* and *unreachable* are two different results."""

import os

import snib

URL = os.environ.get("SNIB_URL", "redis://127.0.0.1:6379")

with snib.connect(URL) as client, snib.connect(URL) as rival, client.lock("taken"):
    try:
        rival.lock("taken").hold(timeout=0)
    except snib.Busy as busy:
        print(busy)

with snib.connect("redis://127.0.0.1:1") as client:
    for timeout in (0, 0.5):  # 0 tolerates an unreachable server for try_timeout (1 s by default)
        try:
            client.lock("taken").hold(timeout=timeout)
        except snib.Unreachable as unreachable:
            print(unreachable)
            assert not unreachable.maybe_applied  # a refused connect has applied nothing

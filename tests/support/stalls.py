"""Measure how long the processes of this machine stall.

    stalls.py FILE           wake up every 10 ms, and append a line each time this is LONG_MS late or more:
    stalls.py FILE --since S  print the stalls since then; fails if there were none

If a test of leases fails while the machine stalls for parts of a second, the failure proves nothing.
"""

import sys
import time

PERIOD = 0.01
LONG_MS = 50


def watch(path: str) -> None:
    with open(path, "a", buffering=1) as file:
        while True:
            before = time.monotonic()
            time.sleep(PERIOD)
            late = (time.monotonic() - before - PERIOD) * 1000
            if late >= LONG_MS:
                file.write(f"{time.time():.0f} {late:.0f}\n")


def tell(path: str, since: float) -> int:
    with open(path) as file:
        stalls = [int(late) for at, late in map(str.split, file) if float(at) >= since]
    if not stalls:
        return 1
    print(f"the machine stood still {len(stalls)} times, once for {max(stalls)} ms")
    return 0


if sys.argv[2:3] == ["--since"]:
    sys.exit(tell(sys.argv[1], float(sys.argv[3])))
try:
    watch(sys.argv[1])
except KeyboardInterrupt:
    pass

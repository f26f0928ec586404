"""The core's log records go to the logger `snib`."""

import logging
import os
import time

import snib

URL = os.environ.get("SNIB_URL", "redis://127.0.0.1:6379")


class Memory(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname}: {record.getMessage()}")


memory = Memory()
logging.getLogger("snib").addHandler(memory)
with snib.connect(URL, lease=1.0) as client:
    hold = client.lock("orders").hold()
    client.lock("orders").force_release()
    assert hold.lost.wait(timeout=60)
    end = time.monotonic() + 60
    while not any("orders" in line for line in memory.lines) and time.monotonic() < end:
        time.sleep(0.01)
print(*memory.lines, sep="\n")
assert any("orders" in line for line in memory.lines)

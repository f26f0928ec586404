"""The recorder in Python with a planted leak: some memory and a descriptor, again and again."""

from __future__ import annotations

import runpy
import sys
import threading
import time
from pathlib import Path

kept: list[object] = []


def leak() -> None:
    while True:
        kept.append((bytearray(b"x") * (1 << 20), open("/dev/null")))
        time.sleep(0.2)


threading.Thread(target=leak, daemon=True).start()
recorder = Path(__file__).resolve().parents[1] / "histories" / "recorder.py"
sys.argv[0] = str(recorder)
runpy.run_path(str(recorder), run_name="__main__")

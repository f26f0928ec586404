"""A service that starts before its Redis waits for it, as it would during an outage."""

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import snib

server = os.environ.get("SNIB_TEST_SERVER") or shutil.which("redis-server") or sys.exit("no redis-server")
folder = tempfile.mkdtemp()
process = None


def start() -> None:
    global process
    time.sleep(0.5)
    options = ["--port", "0", "--unixsocket", f"{folder}/socket", "--save", "", "--dir", folder]
    process = subprocess.Popen([server, *options], stdout=subprocess.DEVNULL)


threading.Thread(target=start).start()
try:
    # patience: how long an operation tolerates an unreachable server; default 5 s
    with snib.connect(f"unix://{folder}/socket", patience=120.0) as client, client.lock("early"):
        print("the server came, and the lock with it")
finally:
    if process:
        process.kill()
        process.wait()
    shutil.rmtree(folder)

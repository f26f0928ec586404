"""SIGTERM releases the locks, then has its previous effect."""

import os
import signal
import subprocess
import sys

import snib

URL = os.environ.get("SNIB_URL", "redis://127.0.0.1:6379")

if sys.argv[1:] == ["service"]:
    snib.release_on_sigterm()
    client = snib.connect(URL)
    assert client.lock("service").acquire()
    print("holding", flush=True)
    signal.pause()

with subprocess.Popen([sys.executable, __file__, "service"], stdout=subprocess.PIPE) as service:
    assert service.stdout and service.stdout.readline() == b"holding\n"
    service.send_signal(signal.SIGTERM)
assert service.returncode == -signal.SIGTERM
with snib.connect(URL) as client:
    assert not client.lock("service").locked()  # now, not a lease later
print("released by SIGTERM")

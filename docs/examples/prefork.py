"""One client, created before a fork and used on both sides, as under gunicorn --preload or Celery."""

import os

import snib

URL = os.environ.get("SNIB_URL", "redis://127.0.0.1:6379")

client = snib.connect(URL)
lock = client.lock("report")
for _ in range(3):
    if os.fork() == 0:
        with lock:  # a new identity and its own connections
            print("a child's turn", flush=True)
        client.close()
        os._exit(0)
assert [os.wait()[1] for _ in range(3)] == [0, 0, 0]
with lock:
    print("the parent's turn")
client.close()

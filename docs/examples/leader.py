"""One leader at a time, for as long as the programs run: get the lock, lead until it is lost, pause, ask again."""

import os
import queue
import random
import threading

import snib

URL = os.environ.get("SNIB_URL", "redis://127.0.0.1:6379")
stop = threading.Event()
elected: queue.Queue[str] = queue.Queue()


def candidate(name: str) -> None:
    with snib.connect(URL, lease=1.0) as client:  # the lease says how soon another follows after a crash
        while not stop.is_set():
            try:
                with client.lock("leader").hold(timeout=1.0) as hold:
                    elected.put(name)
                    while not stop.is_set():
                        hold.check()  # before each step; raises snib.Lost
                        hold.lost.wait(timeout=0.02)  # the step, and the rest after it, which a loss ends
            except snib.Timeout:
                pass  # another leads
            except snib.Error as error:  # lost, or the server does not answer: never the end of the candidate
                print(f"{name}: {error}")
                stop.wait(random.uniform(0.1, 0.3))


candidates = [threading.Thread(target=candidate, args=(name,)) for name in ("a", "b")]
for thread in candidates:
    thread.start()
try:
    with snib.connect(URL) as operator:
        for _ in range(3):
            print(elected.get(timeout=60), "leads")
            operator.lock("leader").force_release()  # as an operator may do it
        print(elected.get(timeout=60), "leads")
finally:
    stop.set()
    for thread in candidates:
        thread.join()
with snib.connect(URL) as client:
    assert not client.lock("leader").locked()  # given back at the end

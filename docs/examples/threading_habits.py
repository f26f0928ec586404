"""The arguments of threading work; ambiguous numbers must be keyword arguments."""

import os

import snib

URL = os.environ.get("SNIB_URL", "redis://127.0.0.1:6379")

with snib.connect(URL) as client:
    seats = client.semaphore("seats")
    seats.force_release()
    seats.init(3)
    assert seats.acquire(True, 1.0)  # blocking, timeout
    assert seats.acquire(n=2)
    seats.release(1)  # an acquisition of one permit
    seats.release(2)
    for call in (lambda: client.lock("x").hold(2), lambda: seats.hold(2)):  # type: ignore[call-arg,misc]
        try:
            call()
        except TypeError as error:
            print(error)  # seconds in one place, permits in the other: so name them
        else:
            raise SystemExit("a number without a name was taken")
    try:
        client.lock("x").acquire(timeout=1e100)
    except OverflowError as error:
        print(error)

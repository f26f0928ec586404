"""A lock belongs to client and name: the object that named it may go."""

import gc
import os
import warnings

import snib

URL = os.environ.get("SNIB_URL", "redis://127.0.0.1:6379")

with snib.connect(URL) as client, snib.connect(URL) as rival:
    if client.lock("leader").acquire(timeout=5):  # nobody keeps the Lock object
        gc.collect()
        assert not rival.lock("leader").acquire(blocking=False)
        client.lock("leader").release()  # another object of the same name
    assert rival.lock("leader").acquire(timeout=5)
    rival.lock("leader").release()

    # A hold is an object.  Dropped, it is never released behind your back: its lease runs out.
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        client.lock("dropped").hold()
        gc.collect()
    print(told[0].message)
    assert told[0].category is ResourceWarning
    assert rival.lock("dropped").locked()

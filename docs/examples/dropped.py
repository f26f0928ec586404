"""A lock belongs to the client and the name: the lock object may be discarded."""

import gc
import os
import warnings

import snib

URL = os.environ.get("SNIB_URL", "redis://127.0.0.1:6379")

with snib.connect(URL) as client, snib.connect(URL) as rival:
    if client.lock("leader").acquire(timeout=5):  # the Lock object is not kept
        gc.collect()
        assert not rival.lock("leader").acquire(blocking=False)
        client.lock("leader").release()  # a different object with the same name
    assert rival.lock("leader").acquire(timeout=5)
    rival.lock("leader").release()

    # A hold is an object.  If it is dropped, it is not released behind your back: its lease runs out.
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        client.lock("dropped").hold()
        gc.collect()
    print(told[0].message)
    assert told[0].category is ResourceWarning
    assert rival.lock("dropped").locked()

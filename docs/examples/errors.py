"""What an error contains."""

import os

import snib

URL = os.environ.get("SNIB_URL", "redis://127.0.0.1:6379")

with snib.connect(URL, lease=1.0) as client:
    hold = client.lock("orders").hold()
    client.lock("orders").force_release()
    assert hold.lost.wait(timeout=60)
    try:
        hold.check()
    except snib.Lost as lost:
        print(lost)
        print(lost.name, lost.kind, lost.reason)
        assert (lost.name, lost.kind) == ("orders", "mutex")
        assert type(lost).__module__ == "snib"

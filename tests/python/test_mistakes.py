"""A mistake of the program is one sentence about the lock, or about the argument and the type that was given."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import snib
from snib import aio
from support import Program, Server

HUGE = 10**5000
NAN = float("nan")

# What is told of the lock, the semaphore, the permits and the latch of the same name.
MISTAKES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "lock.hold": ("lock", lambda lock: lock.hold(timeout=-3)),
    "lock.acquire": ("lock", lambda lock: lock.acquire(timeout=-0.5)),
    "lock.acquire without a wait": ("lock", lambda lock: lock.acquire(False, timeout=1)),
    "lock.acquire for too long": ("lock", lambda lock: lock.acquire(timeout=86401)),
    "lock.protect": ("lock", lambda lock: lock.protect(timeout=NAN)),
    "permits.hold": ("permits", lambda permits: permits.hold(n=HUGE)),
    "permits.hold with a timeout": ("permits", lambda permits: permits.hold(timeout=-3)),
    "permits.acquire": ("permits", lambda permits: permits.acquire(n=-HUGE)),
    "permits.acquire without a wait": ("permits", lambda permits: permits.acquire(False, timeout=1)),
    "permits.acquire none": ("permits", lambda permits: permits.acquire(n=0)),
    "permits.protect": ("permits", lambda permits: permits.protect(n=HUGE)),
    "permits.release": ("permits", lambda permits: permits.release(0)),
    "permits.init": ("permits", lambda permits: permits.init(-1)),
    "permits.set": ("permits", lambda permits: permits.set(HUGE)),
    "semaphore.put_back": ("semaphore", lambda semaphore: semaphore.put_back(HUGE)),
    "latch.init": ("latch", lambda latch: latch.init(HUGE)),
    "latch.wait": ("latch", lambda latch: latch.wait(-3)),
}
PREFIX = {"lock": "mutex"}


def tells(error: snib.Error, kind: str) -> None:
    kind = PREFIX.get(kind, kind)
    assert (error.name, error.kind) == ("name", kind)
    assert str(error).startswith(f'{kind} "name": ') and str(error).count('"name"') == 1


@pytest.mark.parametrize("form", ["threads", "asyncio"])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_arguments(server: Server, form: str, mistake: str) -> None:
    kind, call = MISTAKES[mistake]

    async def main() -> None:
        client = aio.connect(server.url) if form == "asyncio" else snib.connect(server.url)
        with pytest.raises(snib.UsageError) as caught:
            result = call(getattr(client, kind)("name"))
            if isinstance(result, Awaitable):
                await result
        tells(caught.value, kind)
        closed = client.close()
        if closed is not None:
            await closed

    asyncio.run(main())


def test_arguments_of_a_lock_that_is_made(client: snib.Client) -> None:
    for options in ({"lease": -1}, {"lease": NAN}, {"max_hold": -1}, {"max_hold": 1e9}):
        with pytest.raises(snib.UsageError) as caught:
            client.lock("name", **options)  # type: ignore[arg-type]
        tells(caught.value, "lock")
        with pytest.raises(snib.UsageError) as caught:
            snib.MultiLock([client.lock("one"), client.lock("two")], **options)  # type: ignore[arg-type]
        assert (caught.value.name, caught.value.kind) == ("one, two", "multi")
    with pytest.raises(snib.InvalidName) as invalid:
        client.lock("")
    assert invalid.value.name is None
    with pytest.raises(snib.InvalidArgument, match="^a multi lock takes 1 to 100 members$"):
        snib.MultiLock([])


def test_arguments_of_a_hold(server: Server, client: snib.Client) -> None:
    queue = snib.Queue(client)
    with client.lock("name") as hold:
        calls = [lambda: hold.extend(-1), lambda: hold.extend(NAN), lambda: hold.lost.wait(NAN)]
        calls += [lambda: queue.extend(hold, NAN), lambda: queue.acquire(client.lock("name"), -3)]
        for call in calls:
            with pytest.raises(snib.UsageError) as caught:
                call()
            tells(caught.value, "lock")
    with pytest.raises(snib.UsageError) as caught:
        queue.wait(client.latch("name"), -3)
    tells(caught.value, "latch")

    async def main() -> None:
        async with aio.connect(server.url) as other, other.lock("name") as hold:
            with pytest.raises(snib.UsageError) as caught:
                await hold.extend(NAN)
            tells(caught.value, "lock")

    asyncio.run(main())


def test_what_a_lock_over_several_has_not(client: snib.Client) -> None:
    both = snib.MultiLock([client.lock("one"), client.lock("two")])
    for call in (both.info, both.force_release):
        with pytest.raises(snib.NotSupported, match='^multi lock "one" and others: '):
            call()
    assert not any(member.info().held for member in both.members)


def test_texts_of_another_type(client: snib.Client) -> None:
    """The sentence names the parameter, and the type that was given."""
    calls: list[tuple[str, Callable[[Any], Any]]] = [
        ("url", snib.connect),
        ("pattern", client.list),
        ("owner", client.identity),
        ("name", client.describe),
        ("label", client.set_label),
    ]
    for kind in ("lock", "rlock", "fair_lock", "fenced_lock", "rwlock", "semaphore", "permits", "latch"):
        calls.append(("name", getattr(client, kind)))
    for what, call in calls:
        for value in (None, 3, b"bytes", ["x"]):
            if value is None and what in ("url", "label"):
                continue
            with pytest.raises(TypeError, match=f"^{what} must be a str, not {type(value).__name__}$"):
                call(value)


def test_texts_of_another_type_in_a_task(server: Server) -> None:
    async def main() -> None:
        async with aio.connect(server.url) as client:
            for what, call in [("pattern", client.list), ("owner", client.identity), ("name", client.describe)]:
                with pytest.raises(TypeError, match=f"^{what} must be a str, not int$"):
                    await call(3)  # type: ignore[arg-type]

    asyncio.run(main())


def test_what_a_queue_cannot_take(server: Server, client: snib.Client) -> None:
    queue: Any = snib.Queue(client)
    other = aio.connect(server.url)
    for what in (client.latch("x"), client.rwlock("x"), other.lock("x"), client, "x", None):
        with pytest.raises(TypeError, match=f"^lock must be .*, not {re.escape(repr(what)[:80])}$"):
            queue.acquire(what)
    for what in (client.lock("x"), other.latch("x"), None):
        with pytest.raises(TypeError, match=f"^latch must be a snib.Latch, not {re.escape(repr(what)[:80])}$"):
            queue.wait(what)
    for what in (client.lock("x"), None):
        for call in (queue.release, queue.extend):
            with pytest.raises(TypeError, match=f"^hold must be a snib.Hold, not {re.escape(repr(what)[:80])}$"):
                call(what)
    assert queue.drain() == [] and not queue._locks


def test_every_question_of_a_forked_hold(server: Server) -> None:
    source = """
hold = snib.connect(URL).lock("name").hold()
pid = os.fork()
if pid:
    os.waitpid(pid, 0)
    hold.release()
    sys.exit()
lost = hold.lost
for ask in [
    hold.check, hold.remaining, hold.release, hold.extend, lost.is_set, lost.wait,
    lambda: hold.state, lambda: hold.reason, lambda: hold.token, lambda: hold.owner, lambda: hold.replicas,
]:
    try: ask()
    except snib.Forked as error: say(error.name, error.kind, error)
os._exit(0)
"""
    said, _ = Program("import warnings; warnings.simplefilter('ignore')" + source, server.url).rest()
    lines = said.splitlines()
    assert len(lines) == 11
    assert all(line.startswith('name mutex mutex "name": this hold, ') for line in lines), lines

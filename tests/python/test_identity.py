"""Who holds a lock: LockInfo.identity and client.identity(), in threads and asyncio."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from typing import Any

import pytest
import snib
import snib.aio
from snib._identity import make_identity
from support import RENEWED, Server, eventually

OWNER = "11111111-2222-8333-8444-555555555555:7"
KEY = "snib_client:{11111111-2222-8333-8444-555555555555}"


def check(identity: snib.Identity | None, since: float, label: str | None, held: bool = True) -> None:
    assert identity is not None
    assert identity.host == socket.gethostname()[:64]
    assert identity.pid == os.getpid()
    assert identity.program
    assert identity.label == label
    assert identity.since is not None
    assert int(since) <= identity.since <= time.time()
    if held:
        assert identity.held_since is not None
        assert identity.since <= identity.held_since <= time.time()
    else:
        assert identity.held_since is None


def test_identity(server: Server, client: snib.Client) -> None:
    before = time.time()
    with snib.connect(server.url, lease=RENEWED, label="nightly run") as holder:
        with holder.lock("a").hold() as hold:
            eventually(lambda: client.lock("a").info().identity)
            check(client.lock("a").info().identity, before, "nightly run")
            check(holder.lock("a").info().identity, before, "nightly run")
            check(client.identity(hold.owner), before, "nightly run")
            check(client.identity(holder.id), before, "nightly run", held=False)
            (row,) = client.describe("a").holders
            check(client.identity(row.owner), before, "nightly run")
            assert client.lock("a").locked()
        assert client.lock("a").info().identity is None
    eventually(server.clean)


def test_identity_in_asyncio(server: Server) -> None:
    async def main() -> None:
        before = time.time()
        async with snib.aio.connect(server.url, lease=RENEWED) as client:
            async with client.lock("a") as hold:
                while (await client.lock("a").info()).identity is None:
                    await asyncio.sleep(0.01)
                check((await client.lock("a").info()).identity, before, None)
                check(await client.identity(hold.owner), before, None)
                assert await client.lock("a").locked()
            assert (await client.lock("a").info()).identity is None
            with pytest.raises(TypeError):
                await client.identity(7)  # type: ignore[arg-type]
        with pytest.raises(snib.Closed):
            await client.identity(OWNER)

    asyncio.run(main())


def test_not_told(server: Server, client: snib.Client) -> None:
    with snib.connect(server.url, lease=RENEWED, identity=False, label="x") as silent:
        with silent.lock("a"):
            before = silent.stats().renewals
            eventually(lambda: silent.stats().renewals > before + 1)
            assert client.lock("a").info().identity is None
    with client.lock("b"):
        assert client.lock("b").info().identity is None  # it has just begun


@pytest.mark.parametrize("kind", ["semaphore", "permits", "latch"])
def test_kinds_without_an_owner(client: snib.Client, kind: str) -> None:
    counter: Any = getattr(client, kind)("n")
    counter.init(1)
    assert counter.info().identity is None
    counter.force_release()


def test_owners_of_others(client: snib.Client) -> None:
    for owner in ("", "x", "somebody", "11111111-2222-4333-8444-555555555555:1", "ü\0\n"):
        assert client.identity(owner) is None
    with pytest.raises(snib.InvalidArgument):
        client.identity("\ud800")
    with pytest.raises(TypeError):
        client.identity(b"x")  # type: ignore[arg-type]


def test_what_others_wrote(server: Server, client: snib.Client) -> None:
    server.admin.hset("a", OWNER, 1)
    server.admin.set(KEY, "host \x1b[2J\npid 1e9\nlabel é\nsince now\nfuture x\n")
    assert client.lock("a").info().identity == snib.Identity(host="?[2J", label="é")
    server.admin.set(KEY, "host h\nat 7 x.py:1 \x1b\nby 17 a\nby 7\nby 8 b\nat\n")
    assert client.identity(OWNER) == snib.Identity(host="h", held_at="x.py:1 ?")
    server.admin.set(KEY, b"\xff\n" * 5000)
    assert client.identity(OWNER) is None
    server.admin.delete(KEY)
    server.admin.rpush(KEY, "x")
    assert client.lock("a").info().owner == OWNER
    assert client.lock("a").info().identity is None
    with pytest.raises(snib.WrongType):
        client.identity(OWNER)
    server.admin.delete(KEY, "a")


def test_what_others_wrote_in_asyncio(server: Server) -> None:
    async def main() -> None:
        async with snib.aio.connect(server.url) as client:
            server.admin.rpush(KEY, "x")
            server.admin.hset("a", OWNER, 1)
            info = await client.lock("a").info()
            assert info.owner == OWNER
            assert info.identity is None
            with pytest.raises(snib.WrongType):
                await client.identity(OWNER)
            server.admin.delete(KEY, "a")

    asyncio.run(main())


def test_make_identity() -> None:
    assert make_identity([], OWNER) is None
    assert make_identity(["", "x", "future y"], OWNER) is None
    assert make_identity(["pid ٣", "since " + "9" * 5000], OWNER) is None
    held = ["held 1 5", "held 7 6", "held 17 7", "held", "held ", "held  6", "held 7"]
    assert make_identity(held[:-1], OWNER) == snib.Identity(held_since=6.0)
    assert make_identity(held, OWNER) is None
    for owner in (OWNER[:36], OWNER[:37], "x:9"):
        assert make_identity(held, owner) is None
    assert make_identity(["pid 3", "program a b", "since 5"], OWNER) == snib.Identity(
        pid=3, program="a b", since=5.0
    )
    assert make_identity(["pid 3", "losses 12"], OWNER) == snib.Identity(pid=3, losses=12)
    assert make_identity(["pid 3", "losses -1"], OWNER) == snib.Identity(pid=3)


def test_another_label(server: Server, client: snib.Client) -> None:
    holder = snib.connect(server.url, lease=RENEWED, label="first")
    lock, seen = holder.lock("a"), client.lock("a")
    hold = lock.hold()

    def label() -> str | None:
        identity = seen.info().identity
        return identity.label if identity else ""

    eventually(lambda: label() == "first")
    for bad in ["a\nb", "é" * 65, "\x85"]:
        with pytest.raises(snib.InvalidArgument, match="^the label "):
            holder.set_label(bad)
    with pytest.raises(TypeError):
        holder.set_label(7)  # type: ignore[arg-type]
    with pytest.raises(snib.InvalidArgument):
        holder.set_label("\ud800")
    assert label() == "first"
    holder.set_label("order 17")
    eventually(lambda: label() == "order 17")
    holder.set_label(None)
    eventually(lambda: label() is None)
    hold.check()
    hold.release()
    holder.close()
    with pytest.raises(snib.Closed):
        holder.set_label("late")
    silent = snib.connect(server.url, identity=False)
    with pytest.raises(snib.NotSupported, match="identity=no"):
        silent.set_label("x")
    silent.close()


def test_another_label_in_asyncio(server: Server, client: snib.Client) -> None:
    async def main() -> None:
        async with snib.aio.connect(server.url, lease=RENEWED) as holder:
            async with holder.lock("a"):
                holder.set_label("order 17")
                while (identity := client.lock("a").info().identity) is None:
                    await asyncio.sleep(0.01)
                assert identity.label == "order 17"

    asyncio.run(main())


@pytest.mark.parametrize("label", ["a\nb", "\x7f", "é" * 65, "\x85"])
def test_bad_labels(server: Server, label: str) -> None:
    with pytest.raises(snib.InvalidOption, match="^the option label "):
        snib.connect(server.url, label=label)


def test_labels_of_other_types(server: Server) -> None:
    with pytest.raises(snib.InvalidOption, match="label is empty"):
        snib.connect(server.url, label="")
    for options in ({"label": 7}, {"identity": "yes"}):
        with pytest.raises(TypeError):
            snib.connect(server.url, **options)  # type: ignore[arg-type]


def test_a_forked_child_is_another(server: Server, client: snib.Client) -> None:
    with snib.connect(server.url, lease=RENEWED, label="both") as parent:
        parent.set_label("the parent's work")
        pid = os.fork()
        if pid == 0:
            with parent.lock("child"):
                time.sleep(60)
            os._exit(0)
        try:
            eventually(lambda: client.lock("child").info().identity)
            identity = client.lock("child").info().identity
            assert identity is not None
            assert (identity.pid, identity.label) == (pid, "both")
        finally:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
    server.admin.flushall()

"""The rights that `snib acl` prints suffice for every lock, and for no other names.

Every kind is acquired, awaited, renewed, queried and deleted by a user with exactly those rights.
"""

from __future__ import annotations

import functools
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import redis

import snib

NAMES = ("app:x", "{app:t}x", "app:{t}x")
LEASE = 2.0
PATIENT = {"patience": 60.0, "try_timeout": 60.0, "reply_timeout": 60.0}  # a busy machine is slow at times
POLLING = ("spin_lock",)
EXECUTOR = ThreadPoolExecutor()  # what goes wrong in a thread is raised by its result
KINDS: dict[str, Callable[[snib.Client, str], Any]] = {
    "lock": lambda client, name: client.lock(name),
    "fair_lock": lambda client, name: client.fair_lock(name, fenced=True),
    "fenced_lock": lambda client, name: client.fenced_lock(name),
    "spin_lock": lambda client, name: client.spin_lock(name),
    "plain_lock": lambda client, name: client.plain_lock(name),
    "read": lambda client, name: client.rwlock(name).read,
    "write": lambda client, name: client.rwlock(name, fenced=True, prefer_writer=True).write,
    "multi": lambda client, name: snib.MultiLock(
        [client.lock(name), client.fenced_lock(name + 2 * "a")]
    ),
    "permits": lambda client, name: client.permits(name),
    "semaphore": lambda client, name: client.semaphore(name),
}


def advised(command: Path, url: str) -> list[str]:
    """The rules that `snib acl` prints for this server."""
    words = [str(command), "acl", "app:", "--url", url]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()


def until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + 60
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"rights: timed out waiting for {what}")
        time.sleep(0.005)


def check_kind(
    kind: str, name: str, first: snib.Client, second: snib.Client, server: redis.Redis
) -> None:
    lock = KINDS[kind](first, name)
    if kind in ("permits", "semaphore"):
        lock.init(1)
    hold = lock.hold(timeout=0)
    renewals = first.stats().renewals
    if kind != "semaphore":  # it has no lease
        until(lambda: first.stats().renewals > renewals, f"a renewal of {kind}")
    hold.check()
    other = KINDS["write" if kind == "read" else kind](second, name)
    messages = second.stats().messages
    waiter = EXECUTOR.submit(lambda: other.hold(timeout=10.0).release())
    until(lambda: second.stats().waiting > 0, f"a waiter for {kind}")
    if kind not in POLLING:
        until(lambda: bool(server.pubsub_channels()), f"a subscription for {kind}")
    if kind == "fair_lock":  # only waiters with a place are notified
        until(lambda: bool(server.keys("redisson_lock_queue:*")), "a place in the queue")
    hold.release()
    if kind not in POLLING:
        until(lambda: second.stats().messages > messages, f"the release's message for {kind}")
    waiter.result()


def check_latch(name: str, client: snib.Client, server: redis.Redis) -> None:
    latch = client.latch(name)
    latch.init(2)
    waiter = EXECUTOR.submit(latch.wait, timeout=10.0)
    until(lambda: bool(server.pubsub_channels()), "a subscription for a latch")
    latch.count_down()
    latch.count_down()
    if not waiter.result():
        raise SystemExit("rights: a wait for a latch has timed out")
    latch.init(1)
    latch.force_release()


def check_redisson(name: str, client: snib.Client, server: redis.Redis) -> None:
    """A Redisson waiter is next in the queue."""
    with client.fair_lock(name):
        tagged = name if "{" in name else f"{{{name}}}"
        owner = "11111111-1111-4111-8111-111111111111:1"
        server.rpush(f"redisson_lock_queue:{tagged}", owner)
        server.zadd(f"redisson_lock_timeout:{tagged}", {owner: 1000 * time.time() + 60000})
    server.flushall()


def check_questions(name: str, client: snib.Client) -> None:
    hold = client.lock(name).hold()
    if client.describe(name).holders[0].owner != hold.owner or not client.lock(name).info().held:
        raise SystemExit(f"rights: {name} is not described")
    if client.list("*app:*") != [name]:
        raise SystemExit(f"rights: {name} is not listed")
    client.lock(name).force_release()
    client.permits(name).init(1)
    client.permits(name).force_release()


def refused(name: str, client: snib.Client) -> None:
    for kind, make in KINDS.items():
        try:
            make(client, name).hold(timeout=0)
        except snib.PermissionDenied:
            continue
        raise SystemExit(f"rights: {kind}: {name} is not refused")


def check_quorum(urls: list[str]) -> None:
    locks = [snib.connect(url, lease=LEASE, **PATIENT).lock(NAMES[0]) for url in urls]
    with snib.QuorumLock(locks).hold(timeout=10.0) as hold:
        hold.check()


def check(folder: Path, names: list[str], command: Path) -> None:
    """Check servers on sockets of these names; all kinds are tried on the first."""
    servers = [redis.Redis(unix_socket_path=f"{folder}/{name}") for name in names]
    urls = [f"unix://locker:secret@{folder}/{name}" for name in names]
    for server, name in zip(servers, names, strict=True):
        server.flushall()
        rules = advised(command, f"unix://{folder}/{name}")
        server.execute_command("ACL", "SETUSER", "locker", "on", ">secret", *rules)  # type: ignore[no-untyped-call]
    connect = functools.partial(snib.connect, urls[0], lease=LEASE, **PATIENT)
    with connect() as first, connect() as second:
        for name in NAMES:
            for kind in KINDS:
                check_kind(kind, name, first, second, servers[0])
                servers[0].flushall()
            check_latch(name, first, servers[0])
            check_redisson(name, first, servers[0])
            check_questions(name, first)
        refused("other", first)
        if first.stats().polling + second.stats().polling:
            raise SystemExit("rights: waiters poll, so a channel is missing")
    check_quorum(urls)

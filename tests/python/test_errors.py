"""Each mistake and each faulty server has its own exception, and changes nothing."""

from __future__ import annotations

import asyncio
import contextlib
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import snib
from conftest import NewServer
from snib import _core, _errors
from support import PATIENCE, TIDY, Server, brief, canned_server, eventually, free_port
from test_ownership import COUNTED, KINDS

BAD_NAMES = [
    "",
    "x" * 513,
    "\u00e9" * 257,
    "lone \ud800 surrogate",
    "nul\0",
    "line\nbreak",
    "\x7f",
    "\x9f",
    "a{b",
    "a}b",
    "a{}b",
    "}{",
]


@pytest.mark.parametrize("name", BAD_NAMES, ids=ascii)
@pytest.mark.parametrize("kind", ["lock", "rlock"])
def test_names(client: snib.Client, kind: str, name: str) -> None:
    with pytest.raises(snib.InvalidName) as caught:
        getattr(client, kind)(name)
    assert isinstance(caught.value, ValueError)
    assert "\n" not in str(caught.value) and "\0" not in str(caught.value)


@pytest.mark.parametrize("name", ["x" * 512, "{tag}name", "a{tag}b", "\u00e9\U0001f512", " "])
def test_good_names(client: snib.Client, name: str) -> None:
    with client.lock(name):
        assert client.list() == [name]


@pytest.mark.parametrize("name", [None, 1, b"bytes", ["x"]])
def test_names_of_another_type(client: snib.Client, name) -> None:
    with pytest.raises(TypeError):
        client.lock(name)


BAD_SECONDS = [0, -1, -0.5, float("nan"), float("inf"), -float("inf"), 1e300, 10**400, 2**63]


@pytest.mark.parametrize("lease", [*BAD_SECONDS, 0.0001, 0.099, 86400.1, 2**31], ids=repr)
def test_leases(client: snib.Client, lease: float) -> None:
    with pytest.raises(snib.InvalidLease):
        client.lock("lease", lease=lease)


@pytest.mark.parametrize("lease", [0.1, 86400, 60])
def test_good_leases(server: Server, client: snib.Client, lease: float) -> None:
    hold = brief(client.lock("lease", lease=lease))
    left = hold.remaining()
    assert left <= lease
    assert left > lease * 0.8 or lease < 1
    with contextlib.suppress(snib.Lost):  # a short lease may have ended
        hold.release()
    eventually(server.clean, TIDY)


@pytest.mark.parametrize("value", [True, False, "1", b"1", [], ...], ids=repr)
def test_seconds_of_another_type(client: snib.Client, value) -> None:
    for call in [
        lambda: client.lock("type", lease=value),
        lambda: client.lock("type", max_hold=value),
        lambda: client.lock("type").hold(timeout=value),
        lambda: client.lock("type").acquire(timeout=value),
        lambda: client.ping(value),
        lambda: client.close(value),
        lambda: snib.connect(patience=value),
    ]:
        with pytest.raises(TypeError, match="number of seconds"):
            call()


@pytest.mark.parametrize("timeout", [-2, -0.5, float("nan"), float("inf"), 1e300, 10**400, 1e6])
def test_waits(client: snib.Client, timeout: float) -> None:
    for call in [
        lambda: client.lock("wait").acquire(timeout=timeout),
        lambda: client.lock("wait").hold(timeout=timeout),
    ]:
        with pytest.raises(snib.InvalidArgument):
            call()


def test_numbers_that_cannot_be_shown(client: snib.Client) -> None:
    """Python refuses to write an int of that many digits."""
    huge = 10**5000
    for call in [
        lambda: client.lock("x").hold(timeout=huge),
        lambda: client.lock("x", lease=-huge),
        lambda: client.lock("x", max_hold=huge),
        lambda: snib.connect(patience=huge),
    ]:
        with pytest.raises(snib.UsageError, match="thousands of digits"):
            call()
    with pytest.raises(TypeError, match="blocking must be a bool"):
        client.lock("x").acquire(huge)  # type: ignore[arg-type]


BAD_URLS = [
    "",
    "redis",
    "http://localhost",
    "redis://",
    "redis://host:0",
    "redis://host:65536",
    "redis://host:port",
    "redis://host/x",
    "redis://host/-1",
    "redis://host?x",
    "redis://host/1?db=1",
    "redis://host1,host2",
    "redis+sentinel://host1,host2",
    "redis+cluster://host/1",
    "redis://[::1",
    "redis://a b",
    "redis://ho\0st",
    "redis://host\n",
    "redis://%zz@host",
    "unix://",
    "unix:///" + "x" * 108,
    "unix:///s?db=x",
    "\ud800",
]


@pytest.mark.parametrize("url", BAD_URLS, ids=lambda url: ascii(url[:24]))
def test_urls(url: str) -> None:
    with pytest.raises(snib.InvalidURL):
        snib.connect(url)


@pytest.mark.parametrize("url", [1, b"redis://host", ()])
def test_urls_of_another_type(url) -> None:
    with pytest.raises(TypeError):
        snib.connect(url)


@pytest.mark.parametrize("name", ["connect_timeout", "reply_timeout", "patience", "try_timeout", "recheck"])
def test_times_of_a_client(name: str) -> None:
    for value in BAD_SECONDS:
        with pytest.raises(snib.InvalidOption):
            snib.connect(**{name: value})


def test_options() -> None:
    for lease in [*BAD_SECONDS, 0.05, 90000]:
        with pytest.raises(snib.InvalidLease):
            snib.connect(lease=lease)
    for options in [
        {"max_hold": -1},
        {"max_hold": 0},
        {"handover_max": -1},
        {"handover_max": 2**31},
        {"waiters_max": 0},
        {"waiters_max": -1},
        {"password": "nul\0"},
        {"username": "\ud800"},
    ]:
        with pytest.raises(snib.InvalidOption):
            snib.connect(**options)
    for options in [{"handover_max": 1.0}, {"waiters_max": True}, {"password": b"x"}]:
        with pytest.raises(TypeError):
            snib.connect(**options)
    with pytest.raises(TypeError):
        snib.connect(unknown=1)


# ---- Handles -------------------------------------------------------------------------------------


def test_a_closed_client_answers_closed(server: Server) -> None:
    client = snib.connect(server.url)
    lock, rlock = client.lock("closed"), client.rlock("closed")
    hold = client.lock("held").hold()
    client.close()
    calls = {
        "acquire": lock.acquire,
        "hold": lock.hold,
        "rlock": rlock.acquire,
        "info": lock.info,
        "locked": lock.locked,
        "force_release": lock.force_release,
        "ping": client.ping,
        "list": client.list,
        "new": lambda: client.lock("new").acquire(),
    }
    for name, call in calls.items():
        with pytest.raises(snib.Closed):
            print(name, call())
    with pytest.raises(snib.Lost, match="closed"):
        hold.check()
    with pytest.raises((snib.Lost, snib.Closed)):
        hold.release()
    assert hold.remaining() == 0
    assert server.clean()


def test_wrong_handles_never_crash() -> None:
    """Every function of the private module, with every wrong object in every place."""
    source = """
import datetime, itertools
import snib
from snib import _core
client = snib.connect()
lock = client.lock("x")
junk = [None, object(), 0, -1, 2**70, "x", b"x", datetime.datetime_CAPI]
junk += [client._handle, lock._handle]
calls = 0
for name in dir(_core):
    call = getattr(_core, name)
    # Calls that would rightly wait for a server that may not be there.
    waiting = ("set_errors", "client_close", "ping", "client_list", "client_describe", "client_identity")
    if not callable(call) or name in waiting:
        continue
    for count in range(6):
        for arguments in itertools.islice(itertools.product(junk, repeat=count), 3000):
            if lock._handle in arguments[:1] and name in (
                "acquire", "lock_info", "lock_force_release", "permits_acquire", "permits_count",
                "semaphore_acquire", "semaphore_count", "latch_count", "latch_wait",
            ):
                continue
            try:
                call(*arguments)
            except Exception:
                pass
            calls += 1
print(calls)
"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 10_000


def test_functions_of_another_handle(server: Server, client: snib.Client) -> None:
    lock = client.lock("kind")
    with lock as hold:
        for call, argument in [
            (_core.release, lock._handle),
            (_core.lock_info, hold._handle),
            (_core.client_id, lock._handle),
            (_core.hold_check, None),
            (_core.hold_state, client._handle),
            (lambda handle: _core.queue_drain(handle, []), hold._handle),
        ]:
            with pytest.raises(snib.InvalidHandle):
                call(argument)
        for ticket in (12345, -1, 1 << 64, -(1 << 200)):
            assert _core.op_cancel(ticket) is False
        hold.check()


# ---- Faulty servers ------------------------------------------------------------------------------


def connect(url: str, patience: float = 5, **options) -> snib.Client:
    """Impatient where no answer will come, otherwise patient enough for a busy machine."""
    times = dict.fromkeys(["patience", "connect_timeout", "reply_timeout"], patience)
    return snib.connect(url, **times, **options)


def test_nobody_there(tmp_path: Path) -> None:
    for url in [f"redis://127.0.0.1:{free_port()}", f"unix://{tmp_path}/none"]:
        with connect(url, 0.3) as client:
            with pytest.raises(snib.Unreachable) as caught:
                client.ping()
            assert caught.value.retryable and not caught.value.maybe_applied
            assert isinstance(caught.value, ConnectionError)
            with pytest.raises(snib.Unreachable):
                client.lock("x").acquire()


def test_no_such_host() -> None:
    with connect("redis://no-such-host.invalid", 0.3) as client:
        with pytest.raises((snib.HostNotFound, snib.Unreachable)):
            client.ping()


def test_no_redis() -> None:
    with canned_server(b"HTTP/1.1 400 Bad Request\r\n\r\n") as url, connect(url) as client:
        with pytest.raises(snib.NotRedis):
            client.lock("x").acquire()


def test_a_server_that_never_answers(server: Server) -> None:
    with connect(server.url, 0.3) as client, server.stopped():
        with pytest.raises(snib.Unreachable):
            client.lock("x").acquire()


def test_the_error_of_a_release_is_not_retryable(new_server: NewServer) -> None:
    """A program that retries would do again what it did under the lock."""
    server = new_server()
    times = {"patience": 3, "reply_timeout": 1}

    async def main() -> list[object]:
        async with snib.aio.connect(server.url, **times) as waiting:
            with snib.connect(server.url, **times) as client:
                queue, queued = snib.Queue(client), client.lock("queued").hold()
                plain, awaited = client.lock("plain").hold(), await waiting.lock("awaited").hold()
                with server.stopped():
                    queue.release(queued)
                    releases = [asyncio.to_thread(plain.release), awaited.release()]
                    errors = await asyncio.gather(*releases, return_exceptions=True)
                    select.select([queue], [], [], PATIENCE)
                    return [*errors, *(event.result for event in queue.drain())]

    errors = asyncio.run(main())
    assert [error.name for error in errors] == ["plain", "awaited", "queued"]
    for error in errors:
        assert isinstance(error, snib.Unreachable) and type(error).retryable and not error.retryable


def test_the_error_of_a_release_that_cannot_begin_is_not_retryable(
    server: Server, client: snib.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says as little about the work as that of one that has begun.  The release itself can be tried again."""

    def fail(*_: object) -> None:
        raise _errors.make(snib.SystemFailure.code, "too many open files", 0, 0)

    queue, queued = snib.Queue(client), client.lock("queued").hold()
    waiting = snib.aio.connect(server.url)
    awaited = asyncio.run(waiting.lock("awaited").hold().__aenter__())
    asyncio.run(waiting.lock("acquired").acquire())
    with monkeypatch.context() as patched:
        patched.setattr(_core, "hold_release_submit", fail)
        patched.setattr(_core, "queue_new", fail)  # of another loop
        with pytest.raises(snib.SystemFailure) as caught:
            queue.release(queued)
        assert not caught.value.retryable
        for release in (awaited.release, waiting.lock("acquired").release):
            with pytest.raises(snib.SystemFailure) as caught:
                asyncio.run(release())
            assert not caught.value.retryable
    assert snib.SystemFailure.retryable
    queue.release(queued)
    asyncio.run(awaited.release())
    asyncio.run(waiting.close())
    eventually(lambda: not server.admin.exists("queued", "awaited", "acquired"), TIDY)


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (b"-LOADING Redis is loading the dataset in memory\r\n", snib.Loading),
        (b"-ERR what\r\n", snib.ErrorReply),
    ],
)
def test_error_replies(reply: bytes, error: type[snib.Error]) -> None:
    with canned_server(reply) as url:
        client = connect(url)
        with pytest.raises(error) as caught:
            client.lock("x").acquire()
        assert isinstance(caught.value, snib.ServerError)
        with contextlib.suppress(snib.Timeout):
            client.close(0)  # this server cannot confirm any release


def test_wrong_password(new_server: NewServer, capfd: pytest.CaptureFixture[str]) -> None:
    server = new_server()
    server.admin.config_set("requirepass", "right")
    canary = "canary-7f3a"
    texts = []
    for client in [
        connect(server.url),
        connect(f"unix://:{canary}@{server.path}"),
        connect(f"unix://user:{canary}@{server.path}"),
        connect(server.url, username="user", password=canary),
    ]:
        with client:
            with pytest.raises(snib.AuthError) as caught:
                client.lock("x").acquire()
            texts += [str(caught.value), repr(caught.value), repr(client), repr(vars(client))]
    with pytest.raises(snib.InvalidURL) as invalid:
        snib.connect(f"redis://user:{canary}@host:port")
    texts += [repr(invalid.value), "".join(capfd.readouterr())]
    assert not [text for text in texts if canary in text]
    with connect(server.url, password="right") as client, client.lock("x"):
        pass


def test_no_such_database(server: Server) -> None:
    with connect(f"{server.url}&db=99") as client, pytest.raises(snib.InvalidDatabase):
        client.ping()


def test_no_permission(server: Server) -> None:
    server.admin.execute_command("ACL", "SETUSER", "guest", "on", ">pw", "~allowed*", "&*", "+@all")
    with connect(server.url, username="guest", password="pw") as client:
        with client.lock("allowed"):
            pass
        with pytest.raises(snib.PermissionDenied) as caught:
            client.lock("forbidden").acquire()
        assert caught.value.server and caught.value.server.startswith("NOPERM ")
        assert str(caught.value).endswith(f"; the server said: {caught.value.server}")
    server.admin.execute_command("ACL", "DELUSER", "guest")


def test_a_key_of_another_type(server: Server, client: snib.Client) -> None:
    server.admin.set("text", "precious")
    lock = client.lock("text")
    for call in [lock.acquire, lambda: lock.hold(timeout=0), lock.force_release, lock.info]:
        with pytest.raises(snib.WrongType) as caught:
            call()
        assert (caught.value.server or "").startswith("WRONGTYPE ")
    with pytest.raises(snib.InvalidLease) as ours:
        client.lock("text", lease=1e-3)
    assert ours.value.server is None
    assert server.admin.get("text") == "precious"
    server.admin.delete("text")


def test_out_of_memory_still_releases(new_server: NewServer) -> None:
    server = new_server()
    with connect(server.url) as client:
        hold = client.lock("held").hold()
        server.admin.config_set("maxmemory", 1)
        with pytest.raises(snib.OutOfMemory):
            client.lock("new").acquire()
        hold.release()
        assert not server.admin.keys()


def test_read_only_replica(new_server: NewServer) -> None:
    server = new_server()
    server.admin.execute_command("REPLICAOF", "127.0.0.1", "1")
    with connect(server.url) as client, pytest.raises(snib.ReadOnly):
        client.lock("x").acquire()


def test_too_few_replicas(new_server: NewServer) -> None:
    server = new_server("--min-replicas-to-write", "1")
    with connect(server.url) as client, pytest.raises(snib.Misconfigured):
        client.lock("x").acquire()


def test_too_many_operations(server: Server) -> None:
    with snib.connect(server.url, waiters_max=1) as client:
        queue = snib.Queue(client)
        with client.lock("full"):
            waiting = queue.acquire(client.lock("full"))
            with pytest.raises(snib.LimitReached):
                client.lock("other").acquire()
            assert queue.cancel(waiting)


# ---- The table -----------------------------------------------------------------------------------


def test_classes_follow_the_core() -> None:
    from snib._codes import BY_CODE

    for code, error in BY_CODE.items():
        assert error.code == code
        assert issubclass(error, snib.Error)
        assert error.retryable is _core.code_is(code, 1), error
        assert error.maybe_applied is _core.code_is(code, 2), error
        assert issubclass(error, snib.UsageError) <= _core.code_is(code, 4), error
        assert error.__doc__
        shown = " ".join(error.__doc__.split()).rstrip(".")
        assert shown.lower() == _core.code_text(code).lower()
    known = {code for code in range(-100, 100) if _core.code_name(code) != "SNIB_?"}
    assert known - set(BY_CODE) == {0, 5}, "OK and AGAIN never reach a program"


def test_generated_files_are_current() -> None:
    tables = Path(__file__).parents[2] / "bindings/tables.py"
    done = subprocess.run([sys.executable, tables, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_exceptions_keep_their_text() -> None:
    import pickle

    error = pickle.loads(pickle.dumps(snib.Timeout("late")))
    assert (type(error), str(error), error.code) == (snib.Timeout, "late", 2)
    assert isinstance(error, TimeoutError)


def test_classes_are_shown_as_programs_import_them() -> None:
    import traceback

    from snib import aio, fencing

    for module in [snib, aio, fencing]:
        for name in module.__all__:
            thing = getattr(module, name)
            if isinstance(thing, type):
                assert getattr(sys.modules[thing.__module__], thing.__name__) is thing, name
                assert "._" not in thing.__module__, name
    assert traceback.format_exception_only(snib.Lost("gone")) == ["snib.Lost: gone\n"]


def test_a_refusal_is_the_same_sentence_as_in_other_languages(server: Server, client: snib.Client) -> None:
    """What the core says of an operation in a queue, and a thread or Go or C is told, too."""
    queue = snib.Queue(client)

    def said_by_the_core(lock: snib.Lock | snib.Permits, timeout: float) -> str:
        queue.acquire(lock, timeout)
        events: list[snib.Event] = []
        while not events:
            assert select.select([queue], [], [], 60)[0]
            events = queue.drain()
        (event,) = events
        assert isinstance(event.result, snib.Error)
        return str(event.result)

    name = 'said "so" \\ {tag}'
    slots, licences, rw = client.permits("said:slots"), client.semaphore("said:no"), client.rwlock("said:page")
    slots.init(1)
    locks = [
        client.lock(name),
        client.fair_lock("said:fair"),
        client.fenced_lock("said:fenced"),
        client.spin_lock("said:spin"),
        client.plain_lock("said:plain"),
        rw.read,
        rw.write,
        slots,
        licences,
    ]
    with snib.connect(server.url) as other, contextlib.ExitStack() as held:
        holders = [other.lock(name), other.rwlock(rw.name).write, other.permits(slots.name)]
        holders += [getattr(other, f"{kind}_lock")(f"said:{kind}") for kind in ("fair", "fenced", "spin", "plain")]
        for holder in holders:
            held.enter_context(holder.hold())
        for lock in locks:
            for timeout, error in [(0, snib.Busy), (0.02, snib.Timeout)]:
                with pytest.raises(error) as caught:
                    lock.hold(timeout=timeout)
                assert str(caught.value) == said_by_the_core(lock, timeout)
    slots.force_release()
    server.admin.delete("redisson_lock_token:{said:fenced}")


def test_errors_name_the_lock(server: Server, client: snib.Client) -> None:
    import asyncio

    from snib import aio

    def check(error: snib.Error, name: str, kind: str) -> None:
        assert (error.name, error.kind, name in str(error)) == (name, kind, True), repr(error)

    server.admin.execute_command("ACL", "SETUSER", "guest", "on", ">pw", "~x", "&*", "+@all")
    with client.lock("held"), client.fair_lock("fair"):
        with pytest.raises(snib.Busy) as busy:
            client.lock("held").hold(timeout=0)
        check(busy.value, "held", "mutex")
        with pytest.raises(snib.Timeout) as late:
            client.fair_lock("fair").hold(timeout=0.02)
        check(late.value, "fair", "fair")
        with pytest.raises(snib.NotHeld) as free:
            client.permits("none").release()
        check(free.value, "none", "permits")

        async def main() -> None:
            async with aio.connect(server.url) as other:
                with pytest.raises(snib.Busy) as busy:
                    await other.lock("held").hold(timeout=0)
                check(busy.value, "held", "mutex")
            async with aio.connect(server.url, username="guest", password="pw") as other:
                with pytest.raises(snib.PermissionDenied) as denied:
                    await other.lock("forbidden").acquire()
                check(denied.value, "forbidden", "mutex")
                assert "permission" in str(denied.value)

        asyncio.run(main())
    server.admin.execute_command("ACL", "DELUSER", "guest")


@pytest.mark.parametrize("kind", [*KINDS, "latch"])
@pytest.mark.parametrize("form", ["threads", "asyncio"])
def test_every_error_names_the_lock(server: Server, form: str, kind: str) -> None:
    """Of every kind: its name, its kind, the reason of a loss, and what the server said, if it was the server."""
    make = KINDS.get(kind, lambda client: client.latch("name"))
    package = snib if form == "threads" else snib.aio
    errors: dict[str, snib.Error] = {}

    async def do(value):
        return await value if form == "asyncio" else value

    async def ask(what: str, call) -> None:
        with pytest.raises(snib.Error) as caught:
            await do(call())
        errors[what] = caught.value

    async def held(lock):
        return await do(lock.hold())

    async def take(what: str, lock) -> None:
        await ask(what, lambda: lock.wait(timeout=0) if kind == "latch" else lock.hold(timeout=0))

    async def reach(what: str, client) -> None:
        await take(what, make(client))
        await do(client.close())

    async def main() -> None:
        client, rival = package.connect(server.url), package.connect(server.url)
        lock, other = make(client), KINDS.get("write" if kind == "read" else kind, make)(rival)
        if kind in COUNTED:
            await do(lock.init(1))
        if kind != "latch":
            await do(other.acquire())
            await ask("Busy", lambda: lock.hold(timeout=0))
            await ask("Timeout", lambda: lock.hold(timeout=0.02))
            await ask("NotHeld", lock.release)
            await do(other.release())
            hold = await held(lock)
            await do(hold.release())
            await ask("NotHeld, released", hold.release)
            errors["NotHeld, asked"] = pytest.raises(snib.NotHeld, hold.check).value
        if kind not in ("latch", "semaphore"):
            hold = await held(lock)
            server.admin.flushall()  # which the client does not know
            await ask("Lost", hold.release)
        server.admin.flushall()
        server.admin.lpush("name", "not a lock of any kind")
        await reach("WrongType", package.connect(server.url))
        if kind != "multi":
            await ask("WrongType, asked", lock.info)
            await ask("WrongType, forced", lock.force_release)
        server.admin.flushall()
        await reach("PermissionDenied", package.connect(server.url, username="guest", password="pw"))
        await reach("NotConnected", package.connect(f"redis://127.0.0.1:{free_port()}", patience=0.3))
        await do(rival.close())
        await do(client.close())
        await take("Closed", lock)

    server.admin.execute_command("ACL", "SETUSER", "guest", "on", ">pw", "~x", "&*", "+@all")
    asyncio.run(main())
    server.admin.execute_command("ACL", "DELUSER", "guest")
    name = "name, name too" if kind == "multi" else "name"
    wanted = "mutex" if kind in ("lock", "rlock") else kind
    for what, error in errors.items():
        assert type(error).__name__ == what.partition(",")[0]
        assert (error.name, error.kind) == (name, wanted), what
        assert error.reason == ("deleted" if what == "Lost" else None), what
        said = {"WrongType": "WRONGTYPE ", "PermissionDenied": "NOPERM "}.get(what.partition(",")[0])
        assert (error.server or "").startswith(said) if said else error.server is None, what

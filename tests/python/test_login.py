"""Credentials: a file or function is asked at each connect, and again before its answer expires."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import snib
import snib.aio
from snib import _credentials
from support import RENEWED, Program, Server, eventually

USER = "ACL SETUSER app reset on >{} ~* &* +@all"


class Issuer:
    """Issues a new password each time, which invalidates the previous one."""

    def __init__(self, server: Server, valid: float | None = None) -> None:
        self.server, self.valid = server, valid
        self.calls: list[threading.Thread] = []
        self.error: BaseException | None = None
        self.answer: Callable[[str], object] | None = None

    def __call__(self) -> snib.Credentials:
        self.calls.append(threading.current_thread())
        if self.error is not None:
            raise self.error
        password = f"token-{len(self.calls)}"
        self.server.admin.execute_command(*USER.format(password).split())
        if self.answer is not None:
            return self.answer(password)  # type: ignore[return-value]
        return snib.Credentials(password, self.valid, "app")


@pytest.fixture
def issuer(server: Server) -> Iterator[Issuer]:
    yield Issuer(server)
    server.admin.execute_command("ACL", "DELUSER", "app")


def reached(client: snib.Client) -> bool:
    with contextlib.suppress(snib.CredentialsError):
        client.ping()
        return True
    return False


def end_connections(server: Server) -> None:
    server.admin.execute_command("CLIENT", "KILL", "USER", "app")


def test_file(server: Server, issuer: Issuer, tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text(issuer().password + "\n")
    with snib.connect(server.url, username="app", password_file=path, lease=10.0) as client:
        with client.lock("x") as hold:
            path.write_text(issuer().password)
            end_connections(server)
            eventually(lambda: client.stats().reconnects)
            hold.check()
    path.unlink()
    with snib.connect(server.url, username="app", password_file=str(path)) as client:
        with pytest.raises(snib.CredentialsError, match='password" cannot be read: No such file') as caught:
            client.ping()
        assert isinstance(caught.value, snib.NetworkError) and caught.value.retryable


def test_environment(server: Server, issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "password"
    path.write_text(issuer().password)
    monkeypatch.setenv("SNIB_URL", server.url)
    monkeypatch.setenv("SNIB_USERNAME", "app")
    monkeypatch.setenv("SNIB_PASSWORD_FILE", str(path))
    with snib.connect() as client:
        client.ping()


def test_function(server: Server, issuer: Issuer) -> None:
    with snib.connect(server.url, credentials=issuer, lease=10.0) as client:
        assert not issuer.calls
        with client.lock("x") as hold:
            before = len(issuer.calls)
            assert before >= 1 and threading.current_thread() not in issuer.calls
            end_connections(server)
            eventually(lambda: client.stats().reconnects)
            assert len(issuer.calls) > before
            hold.check()


def test_function_gives_a_password(server: Server, issuer: Issuer) -> None:
    issuer.answer = lambda password: password
    with snib.connect(server.url, username="app", credentials=issuer) as client:
        client.ping()


@pytest.mark.parametrize("valid", [sys.maxsize, 10**400, sys.float_info.max], ids=["maxsize", "int", "float"])
def test_function_gives_a_password_for_ever(server: Server, issuer: Issuer, valid: float) -> None:
    issuer.valid = valid
    with snib.connect(server.url, credentials=issuer) as client:
        client.ping()


def test_function_in_asyncio(server: Server, issuer: Issuer) -> None:
    async def main() -> None:
        async with snib.aio.connect(server.url, credentials=issuer, lease=10.0) as client:
            async with client.lock("x") as hold:
                end_connections(server)
                while not client.stats().reconnects:
                    await asyncio.sleep(0.01)
                hold.check()

    asyncio.run(main())
    assert len(issuer.calls) >= 2


def test_threads_that_begin_together(server: Server, issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[snib.Client] = []
    both = threading.Barrier(2)
    begin = _credentials.begin

    def slow(client: snib.Client) -> None:
        begun.append(client)
        time.sleep(0.1)  # others run
        begin(client)

    monkeypatch.setattr(_credentials, "begin", slow)
    with snib.connect(server.url, credentials=issuer) as client:

        def ping() -> None:
            both.wait()
            client.ping()

        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(ping) for _ in range(2)]:
                done.result()
        assert begun == [client]  # a second queue would leave the core with one that nobody reads


def test_members_of_one_lock(server: Server, issuer: Issuer) -> None:
    """One function for each server, as a quorum has them; only the lock over all uses the clients."""
    server.admin.execute_command(*USER.format("secret").split())
    functions = [lambda: snib.Credentials("secret", None, "app")] * 3

    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(snib.connect(server.url, credentials=ask)) for ask in functions]
        with snib.MultiLock([client.lock(f"x{at}") for at, client in enumerate(clients)]) as hold:
            hold.check()
        clients = [stack.enter_context(snib.connect(server.url, credentials=ask)) for ask in functions]
        queue = snib.Queue(clients[0])
        lock = snib.MultiLock([client.lock(f"x{at}") for at, client in enumerate(clients)])
        ticket = queue.acquire(lock)
        events: list[snib.Event] = []
        eventually(lambda: events.extend(queue.drain()) or events)
        assert events[0].ticket == ticket and isinstance(events[0].result, snib.Hold)
        events[0].result.release()

    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(snib.aio.connect(server.url, credentials=ask))
                for ask in functions
            ]
            async with snib.aio.MultiLock(
                [client.lock(f"x{at}") for at, client in enumerate(clients)]
            ) as hold:
                hold.check()

    asyncio.run(main())


def test_no_thread_to_ask_in(
    server: Server, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise RuntimeError("can't start new thread")

    with snib.connect(server.url, credentials=issuer) as client:
        with monkeypatch.context() as patch:
            patch.setattr(snib._credentials._reader, "add", refuse)  # type: ignore[attr-defined]
            with pytest.raises(snib.CredentialsError, match="can't start new thread"):
                client.ping()
        client.ping()


def test_connections_log_in_anew(server: Server, issuer: Issuer) -> None:
    issuer.valid = 1.0
    with snib.connect(server.url, credentials=issuer) as client, client.lock("x") as hold:
        begun = time.monotonic()
        before = len(issuer.calls)
        eventually(lambda: len(issuer.calls) >= before + 4)
        assert time.monotonic() - begun > 1.6  # four calls, with pauses
        assert client.stats().reconnects == 0
        hold.check()


def test_function_that_raises(
    server: Server,
    issuer: Issuer,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    issuer.error = LookupError("the vault is shut")
    with snib.connect(server.url, credentials=issuer, patience=5) as client:
        with caplog.at_level(logging.WARNING, "snib"), pytest.raises(
            snib.CredentialsError, match="there are no credentials: LookupError: the vault is shut"
        ):
            client.ping()
        assert any(record.exc_info for record in caplog.records)
        issuer.error = SystemExit("no account")
        with pytest.raises(snib.CredentialsError, match="SystemExit: no account"):
            client.ping()
        # The log has such a text as it is, and pytest's processes cannot tell it each other.
        monkeypatch.setattr(logging.getLogger("snib"), "disabled", True)
        issuer.error = RuntimeError("no\0thing, \udcff")
        with pytest.raises(snib.CredentialsError, match=r"RuntimeError: no\?thing, \?"):
            client.ping()
        issuer.error = None
        client.ping()


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise LookupError("no words")


@pytest.mark.parametrize("error", [asyncio.CancelledError(), Unspeakable()], ids=lambda error: type(error).__name__)
def test_function_that_raises_once(server: Server, issuer: Issuer, error: BaseException) -> None:
    """Whatever it raises, and whatever its log record meets, it is asked again."""

    class Mistaken(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            raise KeyError("a filter's mistake")

    def ask() -> snib.Credentials:
        issuer.error = None if issuer.calls else error
        return issuer()

    mistaken = Mistaken()
    logging.getLogger("snib").addFilter(mistaken)
    try:
        with snib.connect(server.url, credentials=ask) as client:
            client.ping()
    finally:
        logging.getLogger("snib").removeFilter(mistaken)
    assert len(issuer.calls) > 1


ANSWERS = [
    (None, "TypeError: credentials must give a snib.Credentials or a str, not NoneType"),
    (snib.Credentials("canary", 0), "ValueError: credentials must be valid for some seconds, not 0"),
    (snib.Credentials("canary", float("nan")), "ValueError: credentials must be valid"),
    (snib.Credentials("canary", "x"), "TypeError"),  # type: ignore[arg-type]
    (snib.Credentials("canary\0", 1), "the password has a NUL character"),
    (snib.Credentials("canary" * 3000, 1), "is too long"),
    (snib.Credentials("", 1), "have no password"),
    (snib.Credentials(5, 1), "TypeError"),  # type: ignore[arg-type]
    (snib.Credentials("canary\ud800"), "lone surrogates"),
]


def test_answers_that_are_none(server: Server) -> None:
    """All at once, because each is asked again until the patience ends."""

    def refused(case: tuple[object, str]) -> None:
        answer, says = case
        with snib.connect(server.url, credentials=lambda: answer, patience=5) as client:
            with pytest.raises(snib.CredentialsError) as caught:
                client.ping()
            assert says in str(caught.value)
            assert "canary" not in str(caught.value)

    with ThreadPoolExecutor(len(ANSWERS)) as threads:
        list(threads.map(refused, ANSWERS))


def test_no_function(server: Server) -> None:
    with pytest.raises(TypeError, match="credentials must be callable, not str"):
        snib.connect(server.url, credentials="secret")  # type: ignore[arg-type]
    with pytest.raises(snib.InvalidOption, match="both credentials and a password"):
        snib.connect(server.url, password="secret", credentials=lambda: "secret")


def test_repr_shows_no_password() -> None:
    assert "canary" not in repr(snib.Credentials("canary", 900.0, "app"))


def test_function_that_hangs(server: Server, issuer: Issuer) -> None:
    shut = threading.Event()
    issuer.answer = lambda password: shut.wait() and password
    other = snib.connect(server.url, lease=RENEWED)
    with other.lock("y") as hold:
        with snib.connect(server.url, username="app", credentials=issuer, patience=0.5, connect_timeout=0.3) as client:
            with pytest.raises(snib.CredentialsError, match="no answer in time"):
                client.ping()
            with pytest.raises(snib.CredentialsError):
                client.ping()
            assert len(issuer.calls) == 1
            shut.set()
            eventually(lambda: reached(client))
        hold.check()
    other.close()


FORKS = """
import os, snib, warnings
warnings.simplefilter("ignore", DeprecationWarning)
calls = []
def ask():
    calls.append(1)
    return snib.Credentials("secret", None, "app")
client = snib.connect(URL, credentials=ask)
client.ping()
pid = os.fork()
if pid == 0:
    client.ping()
    say("child", len(calls))
    os._exit(0)
os.waitpid(pid, 0)
client.ping()
say("parent", len(calls))
"""


def test_fork(server: Server) -> None:
    server.admin.execute_command(*USER.format("secret").split())
    program = Program(FORKS, server.url)
    assert program.hear() == "child 2"
    assert program.hear() == "parent 1"
    program.end()


# The interpreter ends while the function runs, and while connections wait for credentials.
ENDS = """
import snib, threading, time
inside = threading.Event()
def ask():
    inside.set()
    time.sleep(SECONDS)
    return snib.Credentials("secret", 0.05, "app")
client = snib.connect(URL, credentials=ask, patience=60)
threading.Thread(target=client.lock("x").acquire, daemon=True).start()
inside.wait()
say("inside")
"""


@pytest.mark.parametrize("seconds", ["1000", "0.2", "0.001"])
def test_end_of_the_interpreter(server: Server, seconds: str) -> None:
    server.admin.execute_command(*USER.format("secret").split())
    for _ in range(3):
        program = Program(ENDS.replace("SECONDS", seconds), server.url)
        assert program.hear() == "inside"
        program.end()
    server.admin.execute_command("DEL", "x")


def test_threads_and_descriptors_go(server: Server, issuer: Issuer) -> None:
    def use() -> None:
        with snib.connect(server.url, credentials=issuer) as client:
            client.ping()

    use()
    before = len(os.listdir("/proc/self/fd")), threading.active_count()
    for _ in range(5):
        use()
    eventually(lambda: (len(os.listdir("/proc/self/fd")), threading.active_count()) <= before)

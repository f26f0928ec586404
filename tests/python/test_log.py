"""The core's log records in the logger `snib`."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import logging
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

import snib
from conftest import NewServer
from snib import aio
from support import (
    PATIENCE,
    PATIENT,
    RENEWED,
    Program,
    Server,
    brief,
    brief_in_task,
    eventually,
    free_port,
    sentinel_of,
)

CORE = Path(__file__).parents[2] / "core"


class Records(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def wait(self, pattern: str, level: int) -> logging.LogRecord:
        found: list[logging.LogRecord] = []

        def there() -> bool:
            found[:] = [r for r in self.records if re.search(pattern, r.getMessage())]
            return bool(found)

        try:
            eventually(there)
        except AssertionError:
            raise AssertionError([r.getMessage() for r in self.records]) from None
        assert found[0].levelno == level and found[0].name == "snib"
        return found[0]


@pytest.fixture
def log() -> Iterator[Records]:
    logger = logging.getLogger("snib")
    handler = Records()
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


def test_connections(new_server: NewServer, log: Records) -> None:
    server = new_server()
    with snib.connect(server.url) as client:
        client.ping()
        record = log.wait("^connected to ", logging.INFO)
        assert record.client == client.id  # type: ignore[attr-defined]
        server.end()
        with contextlib.suppress(snib.Error):
            client.ping(timeout=0.1)
        log.wait("no connection to ", logging.WARNING)
        with pytest.raises(snib.NetworkError):
            client.ping(timeout=0.5)


def test_other_data(server: Server, log: Records) -> None:
    """A master that was demoted and promoted again may not have what it granted before."""
    with snib.connect(server.url) as client:
        hold = client.lock("fixed", lease=600).hold()
        server.admin.execute_command("REPLICAOF", "127.0.0.1", "1")
        server.admin.execute_command("REPLICAOF", "NO", "ONE")
        server.admin.delete("fixed")
        server.admin.client_kill_filter(_type="normal", skipme=True)
        log.wait("replicated from another server", logging.INFO)
        eventually(lambda: hold.reason == "failover")
        with pytest.raises(snib.Lost):
            hold.release()


def test_another_server(tmp_path: Path, log: Records) -> None:
    first = Server(tmp_path)
    with snib.connect(first.url, patience=PATIENCE) as client:
        client.ping()
        first.end()
        second = Server(tmp_path)
        try:
            client.ping()
            log.wait("restarted or replaced", logging.WARNING)
        finally:
            second.end()


def test_renewals_that_are_refused(server: Server, log: Records) -> None:
    """What the server says is told once, before the lock is lost."""
    with snib.connect(server.url, lease=RENEWED) as client:
        hold = client.lock("kept").hold()
        server.admin.config_set("min-replicas-to-write", 1)
        log.wait("refuses to renew locks: NOREPLICAS", logging.WARNING)
        assert hold.lost.wait(PATIENCE)
        server.admin.config_set("min-replicas-to-write", 0)
        log.wait('"kept" was lost: unreachable', logging.WARNING)
        assert len([each for each in log.records if "refuses to renew" in each.getMessage()]) == 1


def test_a_vote_that_is_lost_is_not_the_lock(new_server: NewServer, log: Records) -> None:
    servers = [new_server() for _ in range(3)]
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(snib.connect(each.url, lease=RENEWED)) for each in servers]
        votes = [client.lock("vault") for client in clients]
        with snib.QuorumLock(votes, quarantine=False) as hold:
            eventually(lambda: all(each.admin.exists("vault") for each in servers))
            servers[2].admin.delete("vault")
            log.wait('"vault" was lost as a member: deleted', logging.INFO)
            hold.check()
        assert not [each for each in log.records if each.levelno > logging.INFO]
        left = snib.QuorumLock(votes, quarantine=False).hold(timeout=PATIENCE)
        with pytest.warns(ResourceWarning):
            del left
        log.wait('quorum lock "vault" was dropped without a release', logging.WARNING)


def test_a_loss_and_a_forgotten_hold(server: Server, log: Records) -> None:
    with snib.connect(server.url) as client:
        hold = brief(client.lock("gone", lease=0.2))
        assert hold.lost.wait(PATIENCE)
        log.wait('"gone".* was lost: expired', logging.WARNING)
        hold = client.lock("left").hold()
        with pytest.warns(ResourceWarning):
            del hold
        log.wait('"left".* was dropped without a release', logging.WARNING)
        client.lock("left").force_release()


def test_subscriptions_that_are_refused(server: Server, log: Records) -> None:
    rules = ("on", ">pw", "~*", "+@all", "-@pubsub", "resetchannels")
    server.admin.execute_command("ACL", "SETUSER", "deaf", *rules)
    try:
        with (
            snib.connect(server.url) as holder,
            snib.connect(server.url, username="deaf", password="pw") as client,
        ):
            held = holder.lock("name").hold()
            waiter = threading.Thread(target=lambda: client.lock("name").hold(timeout=PATIENCE).release())
            waiter.start()
            log.wait(f"^{server.path} refused a subscription: waiters poll", logging.WARNING)
            held.release()
            waiter.join()
    finally:
        server.admin.execute_command("ACL", "DELUSER", "deaf")


def test_commands_that_are_refused(server: Server, log: Records) -> None:
    rules = ("on", ">pw", "~*", "&*", "+@all", "-publish", "-script")
    server.admin.execute_command("ACL", "SETUSER", "mute", *rules)
    try:
        with snib.connect(server.url, username="mute", password="pw") as client:
            for _ in range(2):
                with client.lock("name"):
                    pass
            log.wait("refused to publish that a lock was released: .*allow this user [+]publish", logging.WARNING)
            log.wait("refused SCRIPT LOAD: .*allow this user [+]script", logging.INFO)
    finally:
        server.admin.execute_command("ACL", "DELUSER", "mute")


def test_an_identity_that_is_refused(server: Server, log: Records) -> None:
    rules = ("on", ">pw", "resetkeys", "~name", "allchannels", "+@all")
    server.admin.execute_command("ACL", "SETUSER", "hidden", *rules)
    try:
        with snib.connect(server.url, username="hidden", password="pw", lease=RENEWED) as client:
            with client.lock("name") as hold:
                log.wait("does not accept this client's identity: .*allow this user ~snib_client:", logging.INFO)
                hold.check()
    finally:
        server.admin.execute_command("ACL", "DELUSER", "hidden")


def test_orders_that_are_refused(server: Server, log: Records) -> None:
    rules = ("on", ">pw", "resetkeys", "~name*", "allchannels", "+@all")
    server.admin.execute_command("ACL", "SETUSER", "alone", *rules)
    try:
        with snib.connect(server.url, username="alone", password="pw", debug=True) as client:
            with client.lock("name1"), client.lock("name2"):
                pass
            log.wait("the orders of locks: .* this process only .*allow this user ~snib_client:", logging.INFO)
            with client.lock("name2"), client.lock("name1"):
                pass
            log.wait("debug: lock order", logging.WARNING)
    finally:
        server.admin.execute_command("ACL", "DELUSER", "alone")


def test_a_server_that_evicts(new_server: NewServer, log: Records) -> None:
    server = new_server("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
    with snib.connect(server.url) as client:
        client.ping()
        log.wait("may evict locks", logging.WARNING)


def test_a_clock_that_moves(server: Server, tmp_path: Path, log: Records) -> None:
    """Behind a proxy that sets the server's clock ahead by a minute at each TIME."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "hasty"))
    listener.listen()
    ends: list[socket.socket] = [listener]
    times = itertools.count(60, 60)

    def hasty(found: re.Match[bytes]) -> bytes:  # the answer to TIME: seconds, then microseconds
        return b"*2\r\n$10\r\n%d\r\n$" % (time.time() + next(times))

    def pass_on(source: socket.socket, target: socket.socket, change: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if change:
                    data = re.sub(rb"\*2\r\n\$10\r\n\d{10}\r\n\$", hasty, data)
                target.sendall(data)

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.socket(socket.AF_UNIX)
                far.connect(str(server.path))
                ends.extend([near, far])
                for ends_of_one in [(near, far, False), (far, near, True)]:
                    threading.Thread(target=pass_on, args=ends_of_one, daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        with snib.connect(f"unix://{tmp_path}/hasty?{PATIENT}", lease=RENEWED) as client, client.lock("name"):
            log.wait("the clock of .*/hasty has moved", logging.WARNING)
    finally:
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def test_a_time_that_is_refused(server: Server, log: Records) -> None:
    server.admin.execute_command("ACL", "SETUSER", "timeless", "on", ">pw", "~*", "&*", "+@all", "-time")
    try:
        with (
            snib.connect(server.url, username="timeless", password="pw", lease=RENEWED) as client,
            client.lock("name"),
        ):
            log.wait(f"^{server.path} does not answer TIME", logging.INFO)
    finally:
        server.admin.execute_command("ACL", "DELUSER", "timeless")


def test_a_connection_that_cannot_be_ended(server: Server, log: Records) -> None:
    rules = ("on", ">pw", "~*", "&*", "+@all", "-client")
    server.admin.execute_command("ACL", "SETUSER", "endless", *rules)
    try:
        with snib.connect(server.url, username="endless", password="pw", patience=PATIENCE) as client:
            client.ping()
            log.wait("cannot be killed", logging.INFO)
            # A request stays unread on the connection: the server is stopped until the client gives up.
            with server.stopped():
                asked = threading.Thread(target=client.ping)
                asked.start()
                log.wait("no connection to ", logging.WARNING)
            asked.join()
            log.wait("could not be killed", logging.WARNING)
    finally:
        server.admin.execute_command("ACL", "DELUSER", "endless")


def test_no_replicas_for_durability(server: Server, log: Records) -> None:
    with snib.connect(server.url, durability=1) as client, client.lock("name"):
        log.wait("durability: .*: grants exist on the master only", logging.WARNING)


def test_renewed_logins(server: Server, log: Records) -> None:
    server.admin.execute_command(*"ACL SETUSER app reset on >first ~* &* +@all".split())
    answer: str | None = "first"

    def login() -> snib.Credentials:
        if answer is None:
            raise IndexError
        return snib.Credentials(answer, 0.2, "app")

    with snib.connect(server.url, credentials=login) as client:
        client.ping()
        answer = "second"
        log.wait("refused a renewed login; the connection keeps its previous login: WRONGPASS", logging.WARNING)
        answer = None
        log.wait("cannot renew the login: there are no credentials: IndexError", logging.WARNING)
    server.admin.execute_command("ACL", "DELUSER", "app")


def test_a_late_renewal(new_server: NewServer) -> None:
    program = Program(
        """
import contextlib, logging
logging.getLogger("snib").addHandler(logging.StreamHandler(sys.stdout))
with snib.connect(URL, lease=2) as client:
    client.ping()
    while True:
        with contextlib.suppress(snib.Error), client.lock("name") as hold:
            say("held")
            hold.lost.wait(2)
""",
        new_server().url,
    )
    try:
        while "this process gets too little CPU time" not in (line := program.hear()):
            if line == "held":
                program.process.send_signal(signal.SIGSTOP)
                time.sleep(1.2)  # longer than a renewal may be late, shorter than a lease
                program.process.send_signal(signal.SIGCONT)
        assert re.match(r"a renewal is \d+ ms late: ", line)
    finally:
        program.process.kill()
        if not program.output.closed:
            program.rest()


def test_sentinels(new_server: NewServer, tmp_path: Path, log: Records) -> None:
    master = free_port()
    new_server("--port", str(master))
    with (
        sentinel_of(master, tmp_path, "user deaf on nopass ~* &* +@all -subscribe") as port,
        snib.connect(
            f"redis+sentinel://127.0.0.1:{port}/main?{PATIENT}", sentinel_username="deaf", sentinel_password="none"
        ) as client,
    ):
        client.ping()
        log.wait(f'127.0.0.1:{port} says that the master of "main" is 127.0.0.1:{master}$', logging.INFO)
        log.wait(f"127.0.0.1:{port} refused the subscription to .switch-master", logging.WARNING)


def test_a_service_that_is_gone(new_server: NewServer, tmp_path: Path, log: Records) -> None:
    master = free_port()
    new_server("--port", str(master))
    with (
        sentinel_of(master, tmp_path) as port,
        snib.connect(f"redis+sentinel://127.0.0.1:{port}/main?{PATIENT}") as client,
        client.lock("held"),  # so that it asks
    ):
        with Redis(port=port) as sentinel:
            sentinel.sentinel_remove("main")
        log.wait('^no sentinel knows the service "main" any more', logging.WARNING)


def test_sentinels_that_began_anew(new_server: NewServer, tmp_path: Path, log: Records) -> None:
    """What they say has a lower number than what was said before."""
    master, other = free_port(), free_port()
    new_server("--port", str(master))
    new_server("--port", str(other))
    with (
        sentinel_of(master, tmp_path, "sentinel config-epoch main 5") as port,
        snib.connect(f"redis+sentinel://127.0.0.1:{port}/main?{PATIENT}") as client,
        client.lock("held") as hold,
    ):
        with Redis(port=port) as sentinel:
            sentinel.sentinel_remove("main")
            sentinel.sentinel_monitor("main", "127.0.0.1", other, 1)
        log.wait(f'^most sentinels were set up anew and have 127.0.0.1:{other} as the master of "main"', logging.WARNING)
        hold.check()


def test_one_of_several_connections_is_lost(server: Server, log: Records) -> None:
    with snib.connect(server.url) as client:

        def connections() -> list[int]:
            own = [one for one in server.admin.client_list(_type="normal") if one["cmd"].startswith("evalsha")]
            return sorted(int(one["id"]) for one in own)

        def work(number: int) -> None:
            while not done.is_set():
                with client.lock(f"of thread {number}"):
                    pass

        done = threading.Event()
        threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
        for thread in threads:
            thread.start()
        try:
            eventually(lambda: len(connections()) > 1)
            server.admin.client_kill_filter(_id=str(connections()[-1]))
            log.wait("^lost one of the connections to ", logging.INFO)
        finally:
            done.set()
            for thread in threads:
                thread.join()


# The test of each record that begins so: one here, or, where it takes more than a server, one of another file.
TRIED = {
    "%s belongs to another cluster": "tests/unit/outages.c: seed_that_is_in_another_cluster",
    "%s does not answer TIME": "test_a_time_that_is_refused",
    "%s has replicated from another server meanwhile": "test_other_data",
    "%s may evict locks when memory is short": "test_a_server_that_evicts",
    "%s refused a renewed login; the connection keeps its previous login": "test_renewed_logins",
    "%s refuses to renew locks": "test_renewals_that_are_refused",
    "%s refused a subscription": "test_subscriptions_that_are_refused",
    "%s refused the subscription to +switch-master": "test_sentinels",
    '%s says that the master of \\"%.60s\\" is %s': "test_sentinels",
    "%s was restarted or replaced": "test_another_server",
    "a broken connection to %s could not be killed": "test_a_connection_that_cannot_be_ended",
    "a further connection to %s reached another server": "tests/unit/lanes.c: lane_to_another_server_is_refused",
    "a renewal is %lld ms late": "test_a_late_renewal",
    "broken connections to %s cannot be killed": "test_a_connection_that_cannot_be_ended",
    "cannot renew the login": "test_renewed_logins",
    "connected to %s": "test_connections",
    "debug": "test_orders_that_are_refused",
    "durability": "test_no_replicas_for_durability",
    '%slock \\"%.*s%s\\" %s %s': "test_a_loss_and_a_forgotten_hold",
    "lost one of the connections to %s": "test_one_of_several_connections_is_lost",
    'most sentinels were set up anew and have %s as the master of \\"%.60s\\"': "test_sentinels_that_began_anew",
    "no connection to %s": "test_connections",
    'no sentinel knows the service \\"%.60s\\" any more (%u of %u answered)': "test_a_service_that_is_gone",
    "the clock of %s has moved by at least %+lld ms": "test_a_clock_that_moves",
    "the server does not accept the orders of locks": "test_orders_that_are_refused",
    "the server does not accept this client's identity": "test_an_identity_that_is_refused",
    "the server refused SCRIPT LOAD": "test_commands_that_are_refused",
    "the server refused to publish that a lock was released": "test_commands_that_are_refused",
    "tls_insecure": "tests/python/test_tls.py: test_no_check_of_certificates_is_told",
}


def test_each_record_of_the_core_is_tried() -> None:
    call = re.compile(r'snib__engine_log\(\s*\w+,[^"(;]*,\s*"((?:[^"\\]|\\.)*)"')
    sources = [path.read_text() for path in CORE.rglob("*.c")]
    texts = [text.partition(":")[0] for source in sources for text in call.findall(source)]
    calls = sum(len(re.findall(r"snib__engine_log\([^;{]*;", source)) for source in sources)
    assert len(texts) == calls, "not every call is understood"
    assert set(texts) == set(TRIED)
    for test in TRIED.values():
        path, _, name = test.rpartition(": ")
        source = (CORE.parent / path if path else Path(__file__)).read_text()
        assert re.search(rf"^(def|static void) {name}\(", source, re.MULTILINE), test


def test_asyncio(server: Server, log: Records) -> None:
    async def main() -> None:
        async with aio.connect(server.url) as client:
            with pytest.raises(snib.Lost):
                async with client.lock("gone", lease=2):
                    await asyncio.sleep(600)
            log.wait('"gone".* was lost: expired', logging.WARNING)

    asyncio.run(main())


class Stuck(logging.Handler):
    """Keeps the thread, and its own lock, with the first record."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.inside, self.go = threading.Event(), threading.Event()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.inside.set()
        assert self.go.wait(4 * PATIENCE)
        self.texts.append(record.getMessage())


@pytest.fixture
def stuck() -> Iterator[Stuck]:
    logger, handler = logging.getLogger("snib"), Stuck()
    logger.addHandler(handler)
    yield handler
    handler.go.set()
    logger.removeHandler(handler)


def test_a_handler_that_blocks_holds_up_no_lock(server: Server, stuck: Stuck) -> None:
    with snib.connect(server.url, lease=RENEWED) as client:
        lost = brief(client.lock("gone", lease=0.2))
        hold = client.lock("kept").hold()
        assert stuck.inside.wait(PATIENCE)
        before = client.stats().renewals
        eventually(lambda: client.stats().renewals >= before + 4)  # longer than a lease
        hold.check()
        for _ in range(10):
            with client.lock("other"):
                pass
        hold.release()
        assert lost.lost.is_set()
        stuck.go.set()


def lose_two(client: snib.Client, stuck: Stuck) -> None:
    """The handler has the record of the first, and that of the second waits."""
    for name in "first", "second":
        hold = brief(client.lock(name, lease=0.2))
        assert hold.lost.wait(PATIENCE) and stuck.inside.wait(PATIENCE)


@pytest.mark.parametrize("timeout", [0, 0.2, None])
def test_a_handler_that_blocks_holds_up_no_close(server: Server, stuck: Stuck, timeout: float | None) -> None:
    """What it has not taken comes later, even if nobody has the client any more."""
    client = snib.connect(server.url, lease=600)
    lose_two(client, stuck)
    hold = client.lock("kept").hold()

    def close(client: snib.Client = client) -> None:
        with contextlib.suppress(snib.Timeout):
            client.close(timeout)

    closing = threading.Thread(target=close, daemon=True)
    closing.start()
    closing.join(2 * PATIENCE)
    assert not closing.is_alive() and not stuck.texts
    assert hold.reason == "closed"
    del client, hold, closing, close
    gc.collect()
    stuck.go.set()
    eventually(lambda: sum("was lost: expired" in text for text in stuck.texts) == 2)


def test_a_handler_that_blocks_holds_up_no_close_in_asyncio(server: Server, stuck: Stuck) -> None:
    async def main() -> None:
        client = aio.connect(server.url)
        for name in "first", "second":  # it has the record of the first, and that of the second waits
            hold = await brief_in_task(client.lock(name, lease=0.2))
            assert await hold.lost.wait() and await asyncio.to_thread(stuck.inside.wait, PATIENCE)
        await asyncio.wait_for(client.close(timeout=0.2), 2 * PATIENCE)

    asyncio.run(main())


def test_records_of_a_close_come_before_its_end(server: Server, log: Records) -> None:
    client = snib.connect(server.url, debug=True)
    hold = client.lock("name").hold()
    client.close()
    told = [record.getMessage() for record in log.records]
    assert any('"name"' in text and "closed" in text for text in told), told
    assert hold.reason == "closed"


@pytest.mark.parametrize("how", ["close", "with", "another"])
def test_a_handler_that_closes(server: Server, how: str) -> None:
    """It is told what it has closed after it has returned."""
    ended = threading.Event()

    class Closing(logging.Handler):
        texts: list[str] = []

        def emit(self, record: logging.LogRecord) -> None:
            self.texts.append(record.getMessage())
            if ended.is_set() or "was lost" not in self.texts[-1]:
                return
            if how == "with":
                with client:
                    pass
            else:
                (other if how == "another" else client).close()
            ended.set()

    logger, handler = logging.getLogger("snib"), Closing(logging.WARNING)
    logger.addHandler(handler)
    try:
        client, other = snib.connect(server.url, debug=True), snib.connect(server.url, debug=True)
        acquire = compile("owner.lock('held').hold()", how, "eval")  # debug tells of each place once
        held = eval(acquire, {"owner": other if how == "another" else client})
        hold = brief(client.lock("gone", lease=0.2))
        assert hold.lost.wait(PATIENCE) and ended.wait(PATIENCE)
        assert held.reason == "closed"
        eventually(lambda: any('"held"' in text for text in handler.texts))
        client.close()
        other.close()
    finally:
        logger.removeHandler(handler)


def test_a_filter_that_ends_its_thread(server: Server, log: Records, capfd: pytest.CaptureFixture[str]) -> None:
    """The thread is all clients', and goes on."""

    def mistaken(record: logging.LogRecord) -> bool:
        if "connected to" in record.getMessage():
            raise SystemExit("a filter's mistake")
        return True

    logger = logging.getLogger("snib")
    logger.addFilter(mistaken)
    try:
        with snib.connect(server.url) as client:
            hold = brief(client.lock("gone", lease=0.2))
            log.wait('"gone".* was lost: expired', logging.WARNING)
            assert hold.lost.is_set()
    finally:
        logger.removeFilter(mistaken)
    assert "a filter's mistake" in capfd.readouterr().err


def test_no_thread_where_nobody_listens(server: Server) -> None:
    program = Program(
        """
import logging, threading
logging.getLogger("snib").setLevel(logging.CRITICAL)
with snib.connect(URL) as client, client.lock("name"):
    say([thread.name for thread in threading.enumerate()])
""",
        server.url,
    )
    assert program.hear() == "['MainThread']"
    program.end()


def test_what_is_told_at_the_end(server: Server) -> None:
    """The last records reach the handlers before the interpreter ends."""
    program = Program(
        """
import logging
logging.getLogger("snib").addHandler(logging.StreamHandler(sys.stdout))
client = snib.connect(URL)
hold = brief(client.lock("name", lease=2))
hold.lost.wait()
""",
        server.url,
    )
    assert 'lock "name"' in program.end()


def test_what_is_being_told_at_the_end(server: Server) -> None:
    """The interpreter's end waits for records that the thread has fetched and no handler has yet."""
    program = Program(
        """
import atexit, logging, threading, time

def slow(record):
    if "lost" in record.getMessage():
        begun.set()
        ending.wait()
        time.sleep(0.1)  # the end has time to come
    return True

begun, ending = threading.Event(), threading.Event()
atexit.register(ending.set)  # called before snib's own
logging.getLogger("snib").addFilter(slow)
logging.getLogger("snib").addHandler(logging.StreamHandler(sys.stdout))
client = snib.connect(URL)
hold = brief(client.lock("name", lease=0.2))
begun.wait()
""",
        server.url,
    )
    assert 'lock "name" was lost' in program.end()


def test_a_fork_has_its_own(server: Server) -> None:
    program = Program(
        """
import logging, warnings
warnings.simplefilter("ignore")
logging.getLogger("snib").addHandler(logging.StreamHandler(sys.stdout))
parent = snib.connect(URL)
parent.ping()
if os.fork() == 0:
    for client in [parent, snib.connect(URL)]:
        hold = brief(client.lock("child", lease=2))
        hold.lost.wait()
    client.close(), parent.close()
    os._exit(0)
os.wait()
say("parent")
""",
        server.url,
    )
    told = program.end()
    assert told.count("lost: expired") == 2 and told.endswith("parent\n"), told


def test_a_fork_has_no_descriptor(server: Server) -> None:
    program = Program(
        """
import warnings; warnings.simplefilter("ignore")
def sets():
    return [n for n in os.listdir("/proc/self/fd") if "eventpoll" in os.path.realpath("/proc/self/fd/" + n)]
client = snib.connect(URL)
before = sets()
client.ping()
say(bool(sets()))
pid = os.fork()
if pid == 0:
    say(sets() == before)
    os._exit(0)
os.waitpid(pid, 0)
""",
        server.url,
    )
    assert program.end() == "True\nTrue\n"


def test_a_child_of_a_c_library(server: Server) -> None:
    """Its copies of the queues' descriptors would wake the thread for ever, because Python does not know of the fork."""
    program = Program(
        """
import ctypes, gc
from snib import _log
libc = ctypes.PyDLL(None)  # keeps the GIL
kept, dropped = snib.connect(URL), snib.connect(URL)
kept.ping(), dropped.ping()
pid = libc.fork()
if pid == 0:
    libc.write(1, b"child\\n", 6)  # the handlers of the fork have run
    libc.pause()
say("parent")
sys.stdin.readline()
del dropped
gc.collect()
kept.ping()
say(_log._reader._epoll.poll(0))
os.kill(pid, signal.SIGKILL)
""",
        server.url,
    )
    assert {program.hear(), program.hear()} == {"child", "parent"}
    program.tell()
    assert program.end() == "[]\n"

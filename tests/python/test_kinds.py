"""The kinds of locks against a real server: what all have in common, and what is special to each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

import snib
from support import PATIENCE, RENEWED, Server, brief, eventually

Make = Callable[..., snib.Lock | snib.RLock]

KINDS: dict[str, Make] = {
    "lock": lambda client, name, **options: client.lock(name, **options),
    "rlock": lambda client, name, **options: client.rlock(name, **options),
    "fair": lambda client, name, **options: client.fair_lock(name, **options),
    "fair fenced": lambda client, name, **options: client.fair_lock(name, fenced=True, **options),
    "fenced": lambda client, name, **options: client.fenced_lock(name, **options),
    "spin": lambda client, name, **options: client.spin_lock(name, **options),
    "plain": lambda client, name, **options: client.plain_lock(name, **options),
    "read": lambda client, name, **options: client.rwlock(name, **options).read,
    "write": lambda client, name, **options: client.rwlock(name, **options).write,
    "write fenced": lambda client, name, **options: (
        client.rwlock(name, fenced=True, **options).write
    ),
    "multi": lambda client, name, **options: snib.MultiLock(
        [client.lock(name), client.lock(name + " too")], **options
    ),
}
FENCED = ["fair fenced", "fenced", "write fenced"]
REENTRANT = ["rlock", "read", "write", "write fenced"]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def make(kind: str) -> Make:
    return KINDS[kind]


@pytest.fixture(autouse=True)
def no_tokens_left(server: Server) -> Iterator[None]:
    """Only the counters of fencing tokens may stay."""
    yield
    for key in server.admin.keys("redisson_lock_token:*"):
        server.admin.delete(key)


@pytest.fixture
def other(server: Server) -> Iterator[snib.Client]:
    with snib.connect(server.url) as client:
        yield client


def opposite(kind: str, client: snib.Client, name: str) -> snib.Lock | snib.RLock:
    """A lock that a holder of this kind excludes."""
    return KINDS["write" if kind == "read" else kind](client, name)


def in_thread(call):
    box = []
    thread = threading.Thread(target=lambda: box.append(call()))
    thread.start()
    thread.join()
    return box[0]


def free(lock: snib.Lock | snib.RLock) -> bool:
    """Whether this thread could get it now."""
    if not lock.acquire(False):
        return False
    lock.release()
    return True


# ---- What all have in common ---------------------------------------------------------------------


def test_with_gives_the_hold(client: snib.Client, kind: str, make: Make) -> None:
    lock = make(client, "orders")
    assert not lock.locked()
    with lock as hold:
        assert isinstance(hold, snib.Hold)
        assert hold.state is snib.State.VALID
        assert 25 < hold.remaining() <= 30
        assert (hold.token > 0) is (kind in FENCED)
        assert hold.reason is None and not hold.lost.is_set()
        hold.check()
        assert lock.locked()
    assert hold.state is snib.State.RELEASED
    assert not lock.locked()
    for call in [hold.check, hold.release, lock.release]:
        with pytest.raises(snib.NotHeld):
            call()


def test_the_holder_keeps_others_out(
    client: snib.Client, other: snib.Client, kind: str, make: Make
) -> None:
    lock, rival = make(client, "name"), opposite(kind, other, "name")
    assert lock.acquire() is True
    assert rival.acquire(False) is False
    assert rival.acquire(timeout=0.05) is False
    with pytest.raises(snib.Busy):
        rival.hold(timeout=0)
    with pytest.raises(snib.Timeout), rival.hold(timeout=0.01):
        pytest.fail("ran unlocked")
    lock.release()
    with rival.hold(timeout=PATIENCE) as hold:
        hold.check()


def test_a_waiter_gets_it(client: snib.Client, other: snib.Client, kind: str, make: Make) -> None:
    hold = make(client, "name").hold()
    rival = opposite(kind, other, "name")
    got = []
    thread = threading.Thread(target=lambda: (got.append(rival.hold(timeout=PATIENCE)), got[0].release()))
    thread.start()
    eventually(lambda: other.stats().waiting)
    assert not got
    hold.release()
    thread.join()
    assert got[0].state is snib.State.RELEASED


def test_a_fixed_lease_ends(server: Server, client: snib.Client, make: Make) -> None:
    hold = brief(make(client, "fixed", lease=0.6))
    assert hold.remaining() < 0.6
    assert hold.lost.wait(PATIENCE) is True
    assert hold.reason == "expired" and hold.remaining() == 0
    for call in [hold.check, hold.release]:
        with pytest.raises(snib.Lost):
            call()


def test_renewal(server: Server, kind: str, make: Make) -> None:
    with snib.connect(server.url, lease=RENEWED) as client, make(client, "renewed") as hold:
        eventually(lambda: client.stats().renewals >= 4)
        hold.check()


def test_max_hold(server: Server, make: Make) -> None:
    with snib.connect(server.url, lease=3) as client:
        hold = make(client, "long", max_hold=0.3).hold()
        assert hold.lost.wait(PATIENCE)
        assert hold.reason == "max hold"


def test_max_hold_of_the_client_is_lifted(server: Server, make: Make) -> None:
    with snib.connect(server.url, lease=3, max_hold=0.3) as client:
        with make(client, "long", max_hold="none").hold() as hold:
            assert not hold.lost.wait(0.5)
        hold = make(client, "long").hold()
        assert hold.lost.wait(PATIENCE)
        assert hold.reason == "max hold"


def test_a_deleted_lock_is_noticed(server: Server, make: Make) -> None:
    with snib.connect(server.url, lease=RENEWED) as client:
        hold = make(client, "deleted").hold()
        server.admin.flushall()
        assert hold.lost.wait(PATIENCE) is True
        assert hold.reason == "deleted"
        with pytest.raises(snib.Lost):
            hold.release()


def test_force_release(client: snib.Client, other: snib.Client, kind: str, make: Make) -> None:
    lock = make(client, "forced")
    if kind == "multi":
        with pytest.raises(snib.NotSupported):
            lock.force_release()
        return
    hold = lock.hold()
    assert make(other, "forced").force_release() is True
    assert make(other, "forced").force_release() is False
    assert not lock.locked()
    with pytest.raises(snib.Lost):
        hold.release()


def test_a_key_of_another_type(server: Server, client: snib.Client, make: Make) -> None:
    server.admin.rpush("list", "precious")
    lock = make(client, "list")
    for call in [lock.acquire, lambda: lock.hold(timeout=0), lock.locked]:
        with pytest.raises(snib.WrongType):
            call()
    assert server.admin.lrange("list", 0, -1) == ["precious"]
    server.admin.delete("list")


SAME = {"mutex": "mutex", "fair": "mutex", "fenced": "mutex", "spin": "mutex", "plain": "plain"}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "multi"])
def test_a_name_that_another_kind_has(client: snib.Client, kind: str, make: Make) -> None:
    """info() tells of the same thing on the server, and of no other."""
    lock = make(client, "mixed")
    family = SAME.get(lock.kind, "rw")
    for other in ("lock", "fair", "spin", "read", "write", "plain"):
        with KINDS[other](client, "mixed") as hold:
            if family == SAME.get(hold._lock.kind, "rw"):
                assert lock.info().owner in (hold.owner, "")
                assert lock.locked() is (family != "rw" or kind.startswith(other))
            else:
                for ask in lock.info, lock.locked:
                    with pytest.raises(snib.WrongType):
                        ask()
    client.latch("mixed").init(2)
    with pytest.raises(snib.WrongType):
        lock.info()
    client.latch("mixed").force_release()
    assert not lock.locked()


def test_close_releases(server: Server, make: Make) -> None:
    client = snib.connect(server.url)
    lock = make(client, "closed")
    hold = lock.hold()
    client.close()
    assert hold.lost.is_set() and hold.reason == "closed"
    with pytest.raises(snib.Closed):
        lock.acquire()


def test_repr(client: snib.Client, make: Make) -> None:
    lock = make(client, "shown")
    assert repr(lock) == f"<snib.{type(lock).__name__} {lock.name!r}>"


def test_names_and_leases_are_checked(client: snib.Client, kind: str, make: Make) -> None:
    for name in ["", "x" * 513, "nul\0", "a{b", "lone \ud800"]:
        with pytest.raises(snib.InvalidName):
            make(client, name)
    for lease in [0, -1, 0.05, 90000, float("nan")]:
        with pytest.raises(snib.InvalidLease):
            make(client, "lease", lease=lease)
    with pytest.raises(snib.InvalidOption):
        make(client, "limit", max_hold=0)
    for options in [{"lease": "1"}, {"max_hold": True}]:
        with pytest.raises(TypeError):
            make(client, "type", **options)


def test_a_queue_takes_all_kinds(client: snib.Client, kind: str, make: Make) -> None:
    queue = snib.Queue(client)
    ticket = queue.acquire(make(client, "queued"))
    events: list[snib.Event] = []
    eventually(lambda: events.extend(queue.drain()) or events)
    assert events[0].ticket == ticket
    hold = events[0].result
    assert isinstance(hold, snib.Hold)
    hold.release()
    with pytest.raises(TypeError):
        queue.acquire(make(client, "queued"), n=2)


# ---- Re-entrance ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", REENTRANT)
def test_the_thread_may_enter_again_without_a_command(client: snib.Client, kind: str) -> None:
    lock = KINDS[kind](client, "again")
    with lock as outer:
        before = client.stats().commands
        with lock as inner:
            assert inner.owner == outer.owner and inner.token == outer.token
        assert lock.acquire(False) is True
        lock.release()
        assert client.stats().commands == before
        outer.check()
    assert client.stats().reentries == 2
    assert not lock.locked()


@pytest.mark.parametrize("kind", REENTRANT)
def test_another_thread_cannot_release(client: snib.Client, kind: str) -> None:
    lock = KINDS[kind](client, "mine")

    def release() -> type[Exception]:
        with pytest.raises(RuntimeError) as caught:
            lock.release()
        return caught.type

    with lock:
        assert in_thread(release) is snib.NotHeld
        if kind != "read":
            assert in_thread(lambda: lock.acquire(False)) is False


# ---- Tokens --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FENCED)
def test_tokens_rise(server: Server, client: snib.Client, other: snib.Client, kind: str) -> None:
    tokens = []
    for turn in range(6):
        with KINDS[kind]([client, other][turn % 2], "fenced") as hold:
            tokens.append(hold.token)
    assert tokens == sorted(set(tokens))
    info = KINDS[kind](other, "fenced").info()
    assert info.token == tokens[-1] and not info.held


def test_fenced_kinds_share_a_counter(client: snib.Client) -> None:
    tokens = []
    for kind in [*FENCED, *FENCED]:
        with KINDS[kind](client, "shared") as hold:
            tokens.append(hold.token)
    assert tokens == sorted(set(tokens))


@pytest.mark.parametrize("value", [1, 0, None, "yes"])
def test_flags_of_another_type(client: snib.Client, value) -> None:
    for call in [
        lambda: client.fair_lock("x", fenced=value),
        lambda: client.rwlock("x", fenced=value),
        lambda: client.rwlock("x", prefer_writer=value),
    ]:
        with pytest.raises(TypeError, match="must be a bool"):
            call()


# ---- Fair ----------------------------------------------------------------------------------------


def test_fair_is_first_come_first_served(
    server: Server, client: snib.Client, other: snib.Client
) -> None:
    """Ten waiters from two clients, in a known order."""
    order: list[int] = []
    threads = []
    with client.fair_lock("fair"):
        for number in range(10):
            lock = [client, other][number % 2].fair_lock("fair")

            def wait(lock: snib.Lock = lock, number: int = number) -> None:
                with lock:
                    order.append(number)

            threads.append(threading.Thread(target=wait))
            threads[-1].start()
            eventually(lambda: len(client.describe("fair").waiters) == len(threads))
    for thread in threads:
        thread.join()
    assert order == list(range(10))


# ---- Spin ----------------------------------------------------------------------------------------


def test_spinning_needs_no_messages(
    server: Server, client: snib.Client, other: snib.Client
) -> None:
    with client.spin_lock("spin") as hold:
        thread = threading.Thread(target=lambda: other.spin_lock("spin").hold(timeout=PATIENCE).release())
        thread.start()
        eventually(lambda: other.stats().rechecks >= 2)
        assert not server.admin.pubsub_channels()
        hold.check()
    thread.join()
    assert other.stats().messages == 0


# ---- Plain ---------------------------------------------------------------------------------------


def test_plain_is_what_other_libraries_write(server: Server, client: snib.Client) -> None:
    import redis.lock

    theirs = redis.lock.Lock(server.admin, "plain", timeout=PATIENCE)
    ours = client.plain_lock("plain")
    with ours:
        assert server.admin.type("plain") == "string"
        assert theirs.acquire(blocking=False) is False
    assert theirs.acquire(blocking=False) is True
    assert ours.acquire(False) is False
    assert ours.locked()
    theirs.release()
    assert ours.acquire(False) is True
    ours.release()


# ---- Readers and writers -------------------------------------------------------------------------


def test_many_readers_one_writer(client: snib.Client, other: snib.Client) -> None:
    here, there = client.rwlock("rw"), other.rwlock("rw")
    with here.read as one, there.read as two:
        assert one.owner != two.owner
        assert in_thread(lambda: free(here.read)) and in_thread(lambda: free(there.read))
        assert not in_thread(lambda: free(here.write)) and not in_thread(lambda: free(there.write))
        one.check()
        two.check()
    with here.write as hold:
        assert not free(there.read) and not free(there.write)
        assert not in_thread(lambda: free(here.read)) and not in_thread(lambda: free(here.write))
        hold.check()
    assert free(there.read) and free(there.write)


def test_a_writer_becomes_a_reader(client: snib.Client, other: snib.Client) -> None:
    here, there = client.rwlock("down"), other.rwlock("down")
    here.write.acquire()
    here.read.acquire()
    assert there.read.acquire(False) is False
    here.write.release()
    assert there.write.acquire(False) is False
    assert there.read.acquire(timeout=PATIENCE) is True
    here.read.release()
    there.read.release()
    assert not here.read.locked() and not here.write.locked()


def test_a_reader_cannot_become_a_writer(client: snib.Client) -> None:
    rwlock = client.rwlock("up")
    with rwlock.read as hold:
        for call in [rwlock.write.acquire, rwlock.write.hold, lambda: rwlock.write.hold(timeout=0)]:
            with pytest.raises(snib.UpgradeRefused) as caught:
                call()
            assert isinstance(caught.value, ValueError)
        hold.check()
    with rwlock.write:
        pass


def test_a_preferred_writer_goes_before_new_readers(
    client: snib.Client, other: snib.Client
) -> None:
    here, there = client.rwlock("prefer", prefer_writer=True), other.rwlock("prefer")
    got = []
    here.read.acquire()
    thread = threading.Thread(target=lambda: (got.append(here.write.hold(timeout=PATIENCE)), got[0].release()))
    thread.start()
    eventually(lambda: client.stats().waiting == 1)
    eventually(lambda: not free(there.read))
    here.read.release()
    thread.join()
    assert there.read.acquire(timeout=PATIENCE)
    there.read.release()


def test_readers_do_not_wait_behind_a_writer_that_does_not_wait(
    server: Server, client: snib.Client, other: snib.Client
) -> None:
    here, there = client.rwlock("try", prefer_writer=True), other.rwlock("try")
    mark = "snib_writer_waits:{try}"
    with client.rwlock("try").read:
        assert not other.rwlock("try", prefer_writer=True).write.acquire(blocking=False)
        assert not server.admin.exists(mark)
        assert free(there.read)
        thread = threading.Thread(target=lambda: here.write.acquire(timeout=3.0))
        thread.start()
        eventually(lambda: server.admin.exists(mark))
        assert server.admin.pttl(mark) <= 3000
        thread.join()
        assert there.read.acquire(timeout=PATIENCE)
        there.read.release()


def test_a_rwlock_is_a_pair(client: snib.Client) -> None:
    rwlock = client.rwlock("pair")
    assert repr(rwlock) == "<snib.RWLock 'pair'>"
    assert isinstance(rwlock.read, snib.ReadLock) and isinstance(rwlock.write, snib.WriteLock)
    assert rwlock.name == rwlock.read.name == rwlock.write.name == "pair"


# ---- Describe ------------------------------------------------------------------------------------


def test_describe(server: Server, client: snib.Client) -> None:
    assert client.describe("nothing") == snib.Description("nothing", "free", waiting=0)
    with client.lock("thing") as hold:
        found = client.describe("thing")
        assert (found.name, found.kind) == ("thing", "mutex")
        (holder,) = found.holders
        assert (holder.owner, holder.count) == (hold.owner, 1)
        assert holder.remaining is not None and 25 < holder.remaining <= 30
    with client.fenced_lock("thing") as hold:
        assert client.describe("thing").token == hold.token
    with client.plain_lock("thing"):
        assert client.describe("thing").kind == "plain"
    rwlock = client.rwlock("thing")
    with rwlock.read as hold:
        found = client.describe("thing")
        assert found.kind == "read" and not found.holders
        assert [reader.owner for reader in found.readers] == [hold.owner]
    with rwlock.write as hold, rwlock.read:
        found = client.describe("thing")
        assert found.kind == "write"
        assert [writer.owner for writer in found.holders] == [hold.owner]
        assert len(found.readers) == 1
    server.admin.rpush("list", "precious")
    assert client.describe("list").kind == "other"
    server.admin.delete("list")


def test_describe_a_fair_queue(client: snib.Client, other: snib.Client) -> None:
    with client.fair_lock("queue") as hold:
        thread = threading.Thread(target=lambda: other.fair_lock("queue").hold(timeout=PATIENCE).release())
        thread.start()
        eventually(lambda: client.describe("queue").waiters)
        found = client.describe("queue")
        assert found.kind == "fair" and found.holders[0].owner == hold.owner
        assert found.waiters[0].owner.startswith(other.id)
    thread.join()


@pytest.mark.parametrize("name", ["", "x" * 513, "nul\0", "a{b", "lone \ud800"], ids=len)
def test_describe_checks_names(client: snib.Client, name: str) -> None:
    with pytest.raises(snib.InvalidName):
        client.describe(name)
    with pytest.raises(TypeError):
        client.describe(name.encode(errors="replace"))  # type: ignore[arg-type]


def test_descriptions_are_read_word_by_word() -> None:
    from snib._describe import make_description

    found = make_description(
        "n",
        [
            "kind fair",
            "holder an owner with blanks 2500 1",
            "waiter a 100",
            "waiter b -1",
            "token 7",
            "waiting -1",
            "more 3",
            "news from a later version",
        ],
    )
    assert found == snib.Description(
        "n",
        "fair",
        holders=(snib.Holder("an owner with blanks", 2.5, 1),),
        waiters=(snib.Waiter("a", 0.1), snib.Waiter("b", None)),
        token=7,
        more=3,
    )

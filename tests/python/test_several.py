"""One lock over several: MultiLock on one server or more, QuorumLock on three."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import pytest

import snib
from conftest import NewServer
from support import PATIENCE, RENEWED, Server, eventually


@pytest.fixture
def other(server: Server) -> Iterator[snib.Client]:
    with snib.connect(server.url) as client:
        yield client


# ---- MultiLock -----------------------------------------------------------------------------------


def test_all_or_none(client: snib.Client, other: snib.Client) -> None:
    members = [client.lock("a"), client.spin_lock("b"), client.rwlock("c").write]
    both = snib.MultiLock(members)
    with both as hold:
        assert hold.state is snib.State.VALID and hold.token == 0
        assert 25 < hold.remaining() <= 30
        hold.check()
        assert all(member.locked() for member in members) and both.locked()
        assert both.acquire(False) is False
    assert not any(member.locked() for member in members) and not both.locked()
    with other.lock("a"):
        assert both.acquire(False) is False
        assert not client.spin_lock("b").locked()
        with pytest.raises(snib.Timeout, match="a, b, c"):
            both.hold(timeout=0.05)
    assert both.acquire(timeout=PATIENCE) is True
    both.release()


@pytest.mark.parametrize("kind", ["lock", "fair_lock", "plain_lock"])
def test_any_order_and_no_circle(client: snib.Client, other: snib.Client, kind: str) -> None:
    """Dining philosophers: each takes two neighbouring locks, in alternating order."""
    names = ["one", "two", "three"]
    turns = []

    def eat(who: snib.Client, pair: tuple[str, str]) -> None:
        both = snib.MultiLock(getattr(who, kind)(name) for name in pair)
        for _ in range(5):
            with both as hold:
                hold.check()
                turns.append(pair)

    pairs = [(names[i], names[(i + 1) % 3]) for i in range(3)]
    threads = [
        threading.Thread(target=eat, args=(who, pair)) for who in [client, other] for pair in pairs
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5 * PATIENCE)
    assert len(turns) == 30


def test_the_loss_of_one_is_the_loss_of_all(server: Server) -> None:
    with snib.connect(server.url, lease=RENEWED) as client:
        both = snib.MultiLock([client.lock("a"), client.lock("b")])
        hold = both.hold()
        server.admin.delete("b")
        assert hold.lost.wait(PATIENCE) is True
        with pytest.raises(snib.Lost):
            hold.release()
    eventually(server.clean)


def test_members_of_several_servers(server: Server, new_server: NewServer) -> None:
    second = new_server()
    with snib.connect(server.url) as here, snib.connect(second.url) as there:
        both = snib.MultiLock([here.lock("a"), there.lock("a"), there.permits("pool")])
        there.permits("pool").init(1)
        with both:
            assert server.admin.exists("a") and second.admin.exists("a")
            assert there.permits("pool").available() == 0
        assert not server.admin.exists("a") and not second.admin.exists("a")
        with there.lock("a"):
            assert both.acquire(timeout=0.1) is False
        assert not server.admin.exists("a")


def test_its_own_lease_and_limit(client: snib.Client) -> None:
    both = snib.MultiLock([client.lock("a", lease=9), client.lock("b")], lease=2)
    hold = both.hold()
    assert hold.remaining() < 2
    assert hold.lost.wait(PATIENCE) and hold.reason == "expired"
    for lease in [0, -1, 0.05, 90000, float("nan")]:
        with pytest.raises(snib.InvalidLease):
            snib.MultiLock([client.lock("a")], lease=lease)
    with pytest.raises(snib.InvalidOption):
        snib.MultiLock([client.lock("a")], max_hold=0)


def test_members_may_be_dropped(client: snib.Client) -> None:
    both = snib.MultiLock(client.lock(name) for name in "ab")
    with both as hold:
        hold.check()
    assert repr(both) == "<snib.MultiLock 'a, b'>"
    assert [member.name for member in both.members] == ["a", "b"]


def test_bad_members(server: Server, client: snib.Client) -> None:
    lock = client.lock("a")
    closed = snib.connect(server.url)
    theirs = closed.lock("b")
    closed.close()
    bad: list[tuple[type[Exception], list]] = [
        (snib.InvalidArgument, []),
        (snib.InvalidArgument, [lock, lock]),
        (snib.InvalidArgument, [lock, client.lock("a")]),
        (snib.InvalidArgument, [lock, client.semaphore("s")]),
        (snib.InvalidArgument, [lock, client.latch("l")]),
        (snib.InvalidArgument, [client.lock(f"{n}") for n in range(101)]),
        (snib.InvalidArgument, [client.lock(f"{n}") for n in range(500)]),
        (snib.InvalidArgument, [snib.MultiLock([lock]), client.lock("b")]),
        (snib.Closed, [lock, theirs]),
        (TypeError, [lock, snib.aio.connect(server.url).lock("b")]),
        (TypeError, [lock, "b"]),
        (TypeError, [lock, None]),
        (TypeError, [client.rwlock("rw")]),
        (TypeError, [client]),
    ]
    for error, members in bad:
        with pytest.raises(error):
            snib.MultiLock(members)
            print(members)
    with pytest.raises(TypeError):
        snib.MultiLock(lock)  # type: ignore[arg-type]
    with snib.MultiLock([client.lock(f"{n}") for n in range(100)]) as hold:
        hold.check()


def test_it_has_no_info_of_its_own(client: snib.Client) -> None:
    both = snib.MultiLock([client.lock("a"), client.lock("b")])
    for call in [both.info, both.force_release]:
        with pytest.raises(snib.NotSupported):
            call()


# ---- QuorumLock ----------------------------------------------------------------------------------


class Nodes:
    """Three servers, and any number of clients for each."""

    def __init__(self, new_server: NewServer, stack: contextlib.ExitStack) -> None:
        self.servers = [new_server() for _ in range(3)]
        self.stack = stack

    def lock(self, name: str, lease: float = 10, **options: object) -> snib.QuorumLock:
        clients = [snib.connect(each.url, patience=10, lease=lease) for each in self.servers]
        for client in clients:
            self.stack.callback(self.close, client)
        options.setdefault("quarantine", False)
        return snib.QuorumLock([client.lock(name) for client in clients], **options)

    def close(self, client: snib.Client) -> None:
        with contextlib.suppress(snib.Timeout):  # its server was killed
            client.close()

    def held(self, name: str) -> int:
        return sum(each.admin.exists(name) for each in self.servers if not each.process.poll())


@pytest.fixture
def nodes(new_server: NewServer) -> Iterator[Nodes]:
    with contextlib.ExitStack() as stack:
        yield Nodes(new_server, stack)


def test_the_majority_decides(nodes: Nodes) -> None:
    one, two = nodes.lock("vault"), nodes.lock("vault")
    with one as hold:
        hold.check()
        assert hold.token == 0 and 0 < hold.remaining() < 10
        eventually(lambda: nodes.held("vault") == 3)
        eventually(lambda: hold.state is snib.State.VALID)
        assert two.acquire(timeout=0.1) is False
        assert one.acquire(False) is False and two.locked()
        hold.check()
    assert two.acquire(timeout=PATIENCE) is True
    two.release()
    eventually(lambda: nodes.held("vault") == 0)
    assert repr(one) == "<snib.QuorumLock 'vault'>"


def test_a_minority_may_fail(nodes: Nodes) -> None:
    lock = nodes.lock("vault")
    with lock:
        pass
    eventually(lambda: nodes.held("vault") == 0)
    nodes.servers[2].process.kill()
    nodes.servers[2].process.wait()
    with lock.hold(timeout=PATIENCE) as hold:
        hold.check()


def test_whether_it_is_locked_is_known_to_a_majority_only(nodes: Nodes) -> None:
    one = nodes.lock("vault")
    clients = [snib.connect(each.url, patience=0.2) for each in nodes.servers]
    two = snib.QuorumLock([client.lock("vault") for client in clients], quarantine=False)
    with one:
        eventually(lambda: nodes.held("vault") == 3)
        nodes.servers[2].process.kill()
        nodes.servers[2].process.wait()
        assert two.locked()
    assert not two.locked()
    clients[2].close()
    assert not two.locked()
    nodes.servers[1].process.kill()
    nodes.servers[1].process.wait()
    with pytest.raises(snib.NetworkError):
        two.locked()
    for client in clients:
        client.close()
    with pytest.raises(snib.Closed):
        two.locked()


@pytest.mark.parametrize("closed", [1, 2])
def test_the_client_of_a_minority_may_be_closed(nodes: Nodes, closed: int) -> None:
    """What acquire() got stays, too, whichever of the clients was opened first."""

    def is_whole() -> bool:  # not only at the servers: two of three are enough for the lock, and the third may be the last
        held = sorted(member._client.stats().held for member in members)
        return held == [1, 1, 2]  # one of them counts the whole

    members = [*reversed(nodes.lock("vault").members)]
    lock = snib.QuorumLock(members, lease=10, quarantine=False)
    with lock as hold:
        eventually(is_whole)
        assert lock.acquire(False) is False
        members[closed]._client.close()
        hold.check()
    eventually(lambda: nodes.held("vault") == 0)

    members = [*reversed(nodes.lock("vault").members)]
    lock = snib.QuorumLock(members, lease=10, quarantine=False)
    assert lock.acquire() is True
    eventually(is_whole)
    members[closed]._client.close()
    eventually(lambda: nodes.held("vault") == 2)
    lock.release()
    eventually(lambda: nodes.held("vault") == 0)


@pytest.mark.parametrize("timeout", [0, 0.3, 1.5])
def test_servers_that_are_down_hold_nothing(nodes: Nodes, timeout: float) -> None:
    """Nobody has the lock, so no result may say so: neither of a majority nor of all."""
    quorum, members = nodes.lock("vault"), list(nodes.lock("desk").members)
    behind = list(nodes.lock("door").members)[::-1]
    for server in nodes.servers[1:]:
        server.process.kill()
        server.process.wait()
    for lock in (quorum, snib.MultiLock(members), snib.MultiLock(behind)):
        with pytest.raises((snib.NotConnected, snib.Unreachable)):
            lock.hold(timeout=timeout)


def test_a_refusal_names_no_other_owner(nodes: Nodes) -> None:
    """What keeps a majority from voting may be something else."""
    lock = nodes.lock("vault", quarantine=True)
    with pytest.raises(snib.Busy, match='^quorum lock "vault": no majority of its servers granted it$'):
        lock.hold(timeout=0)
    late = '^quorum lock "vault": the wait ended before a majority of its servers granted it$'
    with pytest.raises(snib.Timeout, match=late):
        lock.hold(timeout=0.1)


def test_a_minority_owns_nothing(nodes: Nodes) -> None:
    nodes.servers[0].admin.set("vault", "precious")
    nodes.servers[1].admin.set("vault", "precious")
    lock = nodes.lock("vault")
    with pytest.raises((snib.WrongType, snib.Timeout)):
        lock.hold(timeout=0.3)
    eventually(lambda: not nodes.servers[2].admin.exists("vault"))


def test_quarantine(nodes: Nodes) -> None:
    """A server seen for the first time votes when every lease it may have forgotten has ended."""
    lock = nodes.lock("vault", lease=RENEWED, quarantine=True)
    assert lock.acquire(timeout=0.2) is False
    with lock.hold(timeout=PATIENCE) as hold:
        with pytest.raises(snib.InvalidLease, match="without quarantine"):
            hold.extend(RENEWED + 1)
        hold.extend()


def test_a_quorum_is_extended(nodes: Nodes) -> None:
    """By most; the others are not waited for."""
    lock = nodes.lock("vault", lease=30)
    with lock.hold() as hold:
        eventually(lambda: nodes.held("vault") == 3)
        with nodes.servers[0].stopped():
            hold.extend(3600)
            hold.extend(7200)
            assert hold.remaining() > 3600


def test_bad_quorums(nodes: Nodes, client: snib.Client) -> None:
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(snib.connect(each.url)) for each in nodes.servers]
        vault = [each.lock("vault") for each in clients]
        for members in [
            [],
            vault[:1],
            vault[:2],
            [*vault[:2], vault[0]],
            [*vault[:2], clients[0].lock("vault")],
            [*vault[:2], clients[2].lock("cellar")],
            [*vault[:2], clients[2].fenced_lock("vault")],
            [each.permits("vault") for each in clients],
            [client.lock("vault") for _ in range(16)],
        ]:
            with pytest.raises(snib.InvalidArgument):
                snib.QuorumLock(members)
                print(members)
        for members in [[*vault[:2], "vault"], [*vault[:2], None]]:
            with pytest.raises(TypeError):
                snib.QuorumLock(members)  # type: ignore[list-item]
        with pytest.raises(snib.InvalidLease):
            snib.QuorumLock(vault, lease=0)
        for value in [0, 1, None, "no"]:
            with pytest.raises(TypeError, match="must be a bool"):
                snib.QuorumLock(vault, quarantine=value)
        clients[1].close()
        with pytest.raises(snib.Closed):
            snib.QuorumLock(vault)

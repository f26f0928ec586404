"""Deployments, networks and certificates behave as the topology tests assume."""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from announce import Watch
from authority import Authority
from cluster import Cluster, slot_of
from deployment import Single
from network import Network
from node import Node, eventually
from sentinels import Sentinels
from wire import Link, ReplyError

EXISTS = "return redis.call('exists', unpack(KEYS))"


def code(link: Link, *words: object) -> str:
    """The first word of a command's error reply; empty if there is none."""
    reply = link.ask(*words)
    return reply.code if isinstance(reply, ReplyError) else ""


def dead(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


# ---- One server ----------------------------------------------------------------------------------


def test_single(tmp_path: Path) -> None:
    with Single(tmp_path, password="secret") as one:
        with Link((one.node.host, one.node.port)) as link:
            assert code(link, "PING") == "NOAUTH"
        with one.connect(one.node) as link:
            assert link.command("SET", "a", "1") == "OK"
        assert one.url == f"redis://:secret@127.0.0.1:{one.node.port}"
        one.node.restart()
        assert one.node.command("GET", "a") is None
        pid = one.node.process.pid
    assert dead(pid)


def test_asked_while_it_is_killed(tmp_path: Path) -> None:
    """A node may be polled by one thread, as Watch does, while another thread kills it."""
    over = threading.Event()
    problems: list[BaseException] = []
    with Single(tmp_path) as one:

        def ask() -> None:
            while not over.is_set():
                try:
                    assert not one.node.stopped
                except BaseException as problem:
                    problems.append(problem)
                    return

        asking = threading.Thread(target=ask)
        asking.start()
        for _ in range(30):
            one.node.restart()
        over.set()
        asking.join()
    assert problems == []


def test_dies_with_the_test(tmp_path: Path) -> None:
    """The server dies however the test dies, and whichever thread has started the server."""
    program = f"""if True:
        import os, signal, sys, threading
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from pathlib import Path
        from deployment import Single
        made = []
        thread = threading.Thread(target=lambda: made.append(Single(Path({str(tmp_path / "one")!r}))))
        thread.start(); thread.join()
        made[0].node.command("PING")
        print(made[0].node.process.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    eventually(lambda: dead(int(done.stdout)))


# ---- Sentinels -------------------------------------------------------------------------------------


def test_sentinels(tmp_path: Path) -> None:
    with Sentinels(tmp_path) as them:
        old = them.master
        assert len(them.replicas) == 2
        assert them.url.startswith("redis+sentinel://127.0.0.1:")
        assert them.url.endswith("/mymaster")
        with them.connect(them.replicas[0]) as link:
            assert code(link, "SET", "a", "1") == "READONLY"
        old.command("SET", "a", "1")
        assert old.command("WAIT", 2, 30000) == 2

        old.kill()
        second = them.await_failover(old)
        assert second.command("GET", "a") == "1"
        old.start()
        them.await_settled()
        assert old.role == "slave"

        second = them.master
        second.stop()
        assert second.stopped
        them.await_failover(second)
        second.go_on()
        them.await_settled()

        third = them.master
        assert them.failover() is not third
        them.restart_sentinel(them.sentinels[0])
        them.await_settled()


def test_sentinels_with_passwords(tmp_path: Path) -> None:
    with Sentinels(tmp_path, password="secret", auth="other", replicas=1, min_replicas=1) as them:
        assert "://:secret@" in them.url
        with Link((them.master.host, them.master.port)) as link:
            assert code(link, "PING") == "NOAUTH"
        with Link((them.sentinels[0].host, them.sentinels[0].port)) as link:
            assert code(link, "SENTINEL", "MASTERS") == "NOAUTH"
        master = them.master
        with them.connect(master) as link:
            link.command("SET", "a", "1")
            them.replicas[0].kill()
            eventually(lambda: code(link, "SET", "a", "2") == "NOREPLICAS")


def test_sentinels_announce(tmp_path: Path) -> None:
    with Sentinels(tmp_path) as them, Watch(them) as watch:
        old = them.master
        since = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        assert watch.first(since, old.address) is None
        old.kill()
        new = them.await_failover(old)
        eventually(lambda: len({each.by for each in watch.changes(since, old.address)}) == 3)
        first, last = watch.first(since, old.address), watch.last(since, old.address)
        assert since < first <= last <= time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        assert {each.what for each in watch.changes(since, old.address)} == {new.address}


# ---- Cluster -----------------------------------------------------------------------------------------


def test_slots(tmp_path: Path) -> None:
    with Cluster(tmp_path, replicas=0) as them:
        for key in ("foo", "{user}a", "a{b}c", "{}x", "a{}{b}", "a}b{c}d", "{a"):
            assert slot_of(key) == them.nodes[0].command("CLUSTER", "KEYSLOT", key)
        for i, node in enumerate(them.nodes):
            key = them.key_at(node, nth=i)
            assert them.owner_of(key) is node
            with them.connect(them.nodes[(i + 1) % 3]) as link:
                assert code(link, "GET", key) == "MOVED"


def test_cluster_failover(tmp_path: Path) -> None:
    with Cluster(tmp_path) as them:
        old = them.nodes[2]
        slot = them.slots(old)[0]
        old.kill()
        new = them.await_failover(slot, old)
        old.start()
        them.await_settled()
        assert them.replicas_of(new) == [old]

        new.stop()
        assert them.await_failover(slot, new) is old
        new.go_on()
        them.await_settled()

        first = them.owner(0)
        (replica,) = them.replicas_of(first)
        them.failover(replica)
        assert them.await_failover(0, first) is replica
        them.await_settled()


def test_cluster_announces(tmp_path: Path) -> None:
    with Cluster(tmp_path, masters=3, replicas=1) as them, Watch(them, slot=5) as watch:
        old = them.owner(5)
        since = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        them.failover(them.replicas_of(old)[0])
        new = them.await_failover(5, old)
        eventually(lambda: len({each.by for each in watch.changes(since, them.id(old))}) == 6)
        assert {each.what for each in watch.changes(since, them.id(old))} == {them.id(new)}


def test_slot_on_its_way(tmp_path: Path) -> None:
    with Cluster(tmp_path, replicas=0, password="secret") as them:
        source, to = them.nodes[:2]
        tag = them.key_at(source)
        slot = slot_of(tag)
        here, there, none = (f"{word}{{{tag}}}" for word in ("here", "there", "none"))
        with them.connect(source) as at, them.connect(to) as other:
            at.command("SET", here, 1)
            at.command("SET", there, 1, "PX", 600_000)
            move = them.begin_move(slot, to)
            move.key(there)
            assert code(at, "EVAL", EXISTS, 1, here) == ""
            assert code(at, "EVAL", EXISTS, 1, there) == "ASK"
            assert code(at, "EVAL", EXISTS, 1, none) == "ASK"
            assert code(at, "EVAL", EXISTS, 2, here, there) == "TRYAGAIN"
            assert code(other, "EVAL", EXISTS, 1, there) == "MOVED"
            other.command("ASKING")
            assert code(other, "EVAL", EXISTS, 1, there) == ""
            other.command("ASKING")
            assert code(other, "EVAL", EXISTS, 2, there, none) == "TRYAGAIN"
            assert move.keys() == 1
            move.finish()
            them.await_agreed()
            assert them.owner(slot) is to
            assert code(at, "EVAL", EXISTS, 1, here) == "MOVED"
            assert other.command("EVAL", EXISTS, 2, here, there) == 2
            assert other.command("PTTL", there) > 0
            move = them.begin_move(slot, source)
            move.give_up()
            assert code(other, "EVAL", EXISTS, 1, none) == ""


def test_nodes_come_and_go(tmp_path: Path) -> None:
    with Cluster(tmp_path, replicas=0) as them:
        more = them.add()
        replica = them.add(more)
        key = them.key_at(them.nodes[2])
        them.nodes[2].command("SET", key, 1)
        them.move(slot_of(key), more)
        them.await_settled()
        assert them.owner_of(key) is more
        assert them.replicas_of(more) == [replica]
        them.empty(more)
        them.await_agreed()
        them.remove(replica)
        them.remove(more)
        assert len(them.masters) == 3
        assert them.owner_of(key).command("EXISTS", key) == 1


# ---- TLS ---------------------------------------------------------------------------------------------


def refusal(link: tuple[str, int], context: ssl.SSLContext, name: str = "127.0.0.1") -> str:
    """Why a client refuses this server; empty if it accepts it."""
    try:
        with Link(link, tls=context, name=name) as made:
            made.command("PING")
    except (ssl.SSLError, ConnectionError) as error:
        return str(error)
    return ""


@pytest.mark.usefixtures("tls_server")
def test_tls(tmp_path: Path) -> None:
    good, other = Authority(tmp_path / "ca"), Authority(tmp_path / "other")
    with Single(tmp_path / "single", tls=good) as one:
        where = (one.node.host, one.node.port)
        assert one.url.startswith("rediss://")
        assert refusal(where, good.client_context()) == ""
        assert refusal(where, good.client_context(), "localhost") == ""
        assert "verify failed" in refusal(where, other.client_context())
        for made, why in (
            (good.certificate("expired", "127.0.0.1", expired=True), "expired"),
            (good.certificate("elsewhere", "elsewhere.test"), "mismatch"),
            (good.self_signed("alone", "127.0.0.1"), "self-signed certificate"),
        ):
            words = ("tls-cert-file", made.file, "tls-key-file", made.key)
            one.node.command("CONFIG", "SET", *words)
            assert why in refusal(where, good.client_context())


@pytest.mark.usefixtures("tls_server")
def test_tls_client_certificates(tmp_path: Path) -> None:
    good = Authority(tmp_path / "ca", client_certificates="yes")
    other = Authority(tmp_path / "other")
    with Single(tmp_path / "single", tls=good) as one:
        where = (one.node.host, one.node.port)
        assert refusal(where, good.client_context()) == ""
        plain = ssl.create_default_context(cafile=str(good.ca.file))
        assert refusal(where, plain) != ""
        assert refusal(where, good.client_context(other.client())) != ""


@pytest.mark.usefixtures("tls_server")
def test_tls_sentinels(tmp_path: Path) -> None:
    with Sentinels(tmp_path / "set", tls=Authority(tmp_path / "ca")) as them:
        assert them.url.startswith("rediss+sentinel://")
        old = them.master
        old.kill()
        with them.connect(them.await_failover(old)) as link:
            assert link.command("ROLE")[0] == "master"


@pytest.mark.usefixtures("tls_server")
def test_tls_cluster(tmp_path: Path) -> None:
    with Cluster(tmp_path / "set", tls=Authority(tmp_path / "ca"), password="secret") as them:
        assert them.url.startswith("rediss+cluster://:secret@")
        key = them.key_at(them.nodes[0])
        with them.connect(them.nodes[1]) as link:
            assert str(link.ask("GET", key)) == f"MOVED {slot_of(key)} {them.nodes[0].address}"
        them.nodes[0].command("SET", key, 1)
        them.move(slot_of(key), them.nodes[1])
        them.nodes[0].kill()
        them.await_failover(0, them.nodes[0])


# ---- Networks ------------------------------------------------------------------------------------------


def answers(net: Network, place: str, node: Node, limit: float = 1.0) -> bool:
    with net.place(place).entered():
        try:
            with Link((node.host, node.port), limit=limit) as link:
                return bool(link.command("PING") == "PONG")
        except OSError:
            return False


def test_network(tmp_path: Path, net: Network) -> None:
    net.place("client")
    net.place("witness")
    with Single(tmp_path, network=net) as one:
        eventually(lambda: answers(net, "client", one.node))
        with net.place("client").entered():
            link = Link((one.node.host, one.node.port))
        assert link.command("PING") == "PONG"

        net.part("client", "server")
        link.send("PING")
        assert link.heard(0.3) is None
        assert not answers(net, "client", one.node)
        eventually(lambda: answers(net, "witness", one.node))
        assert one.node.command("PING") == "PONG"  # the unix socket still works
        net.join("client", "server")
        assert link.receive() == "PONG"  # by TCP's retransmission: no side saw an error

        net.part("server", "client", one_way=True)
        link.send("SET", "a", "1")
        assert link.heard(0.3) is None
        assert (
            eventually(lambda: one.node.command("GET", "a")) == "1"
        )  # the request arrived, the reply did not
        net.heal()
        assert link.receive() == "OK"

        net.place("server").cut()
        assert not answers(net, "witness", one.node)
        net.place("server").mend()
        eventually(lambda: answers(net, "witness", one.node))

        net.place("client").down()
        with pytest.raises(OSError), net.place("client").entered():
            Link((one.node.host, one.node.port), limit=5)
        net.place("client").up()
        eventually(lambda: answers(net, "client", one.node))
        link.close()


def test_network_of_a_thread(net: Network) -> None:
    """Only the thread that has entered, and whatever it starts, is inside."""
    own = os.readlink("/proc/thread-self/ns/net")
    seen = []
    with net.place("client").entered():
        thread = threading.Thread(
            target=lambda: seen.append(os.readlink("/proc/thread-self/ns/net"))
        )
        thread.start()
        thread.join()
        program = [sys.executable, "-c", "import os; print(os.readlink('/proc/self/ns/net'))"]
        seen.append(subprocess.run(program, capture_output=True, text=True).stdout.strip())
    assert seen[0] == seen[1] == os.readlink(net.place("client").path) != own
    assert os.readlink("/proc/thread-self/ns/net") == own


def test_isolated_master(tmp_path: Path, net: Network) -> None:
    """An isolated master keeps serving the client on its side, and stops without replicas if configured to."""
    net.place("client")
    with Sentinels(tmp_path, network=net, min_replicas=1) as them:
        old = them.master
        net.isolate(old.name, "client")
        with net.place("client").entered(), Link((old.host, old.port)) as link:
            eventually(lambda: code(link, "SET", "a", "1") == "NOREPLICAS")
            new = them.await_failover(old)
            assert code(link, "SET", "a", "1") == "NOREPLICAS"
            assert link.command("ROLE")[0] == "master"
        assert new.role == "master"
        net.heal()
        them.await_settled()
        assert old.role == "slave" or them.master is old  # which a slow machine may have made it again


def test_black_holed_shard(tmp_path: Path, net: Network) -> None:
    net.place("client")
    with Cluster(tmp_path, network=net) as them:
        old = them.nodes[0]
        net.isolate(old.name)
        new = them.await_failover(0, old)
        eventually(lambda: answers(net, "client", new))
        assert not answers(net, "client", old)
        net.heal()
        eventually(lambda: them.settled() and old.role == "slave")


def test_nothing_is_left(tmp_path: Path) -> None:
    started = time.monotonic()
    with Cluster(tmp_path, masters=1, replicas=1) as them:
        pids = [node.process.pid for node in them.nodes]
        sockets = [node.socket for node in them.nodes]
    assert all(map(dead, pids))
    assert not any(socket.parent.exists() for socket in sockets)
    assert time.monotonic() - started < 120

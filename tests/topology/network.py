"""A private network for a test: each place is a namespace with an address, and the links between them can be cut.

Namespaces are kept by processes that die with this one, so nothing is ever left on the machine.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from node import eventually, popen

CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def why_not() -> str:
    """Why no network can be created here; empty if one can."""
    if os.geteuid() != 0:
        return "network namespaces are root's to make"
    for program in ("ip", "nsenter", "unshare"):
        if subprocess.run(["which", program], capture_output=True).returncode != 0:
            return f"no {program} for network namespaces (packages iproute2, util-linux)"
    made = subprocess.run(
        ["unshare", "-n", "ip", "link", "set", "lo", "up"], capture_output=True, text=True
    )
    return f"no network namespaces here: {made.stderr.strip()}" if made.returncode != 0 else ""


class _Holder:
    """A namespace, until end() is called or this process dies."""

    def __init__(self) -> None:
        self._process = popen(["unshare", "-n", "sleep", "infinity"])
        own = os.readlink("/proc/self/ns/net")
        self.path = f"/proc/{self._process.pid}/ns/net"
        eventually(lambda: os.readlink(self.path) != own)
        self.pid = self._process.pid
        self.enter = ["nsenter", f"--net={self.path}", "--"]
        self.run("ip", "link", "set", "lo", "up")

    def run(self, *words: object, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command inside; the error of a failed one has its output."""
        command = [*self.enter, *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True)
        if check and done.returncode != 0:
            raise AssertionError(f"{' '.join(command)}: {done.stderr.strip()}")
        return done

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


class Place(_Holder):
    """One machine of the network: an address on the common switch."""

    def __init__(self, network: Network, name: str, number: int) -> None:
        super().__init__()
        self.network, self.name = network, name
        self.address = f"10.77.{number // 250}.{number % 250 + 2}"
        self._port = f"p{number}"
        switch = network.switch
        switch.run(
            "ip",
            "link",
            "add",
            self._port,
            "type",
            "veth",
            "peer",
            "name",
            "eth",
            "netns",
            self.pid,
        )
        switch.run("ip", "link", "set", self._port, "master", "bridge", "up")
        self.run("ip", "address", "add", f"{self.address}/16", "dev", "eth")
        self.run("ip", "link", "set", "eth", "up")

    def cut(self) -> None:
        """Pull the cable at the switch: packets vanish in both directions without an error."""
        self.network.switch.run("ip", "link", "set", self._port, "nomaster")
        self.network.apart.add(self.name)

    def mend(self) -> None:
        self.network.switch.run("ip", "link", "set", self._port, "master", "bridge")
        self.network.apart.discard(self.name)

    def down(self) -> None:
        """Take the interface itself down: the place's own programs get errors."""
        self.run("ip", "link", "set", "eth", "down")

    def up(self) -> None:
        self.run("ip", "link", "set", "eth", "up")

    def popen(self, words: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a program in this place."""
        return popen([*self.enter, *words], **options)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Put the calling thread inside: its new sockets and threads belong to this place."""
        own = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _setns(Path(self.path))
            yield
        finally:
            _setns(own)
            os.close(own)


class Network:
    """A switch and the places connected to it."""

    def __init__(self) -> None:
        self.switch = _Holder()
        self.places: dict[str, Place] = {}
        self._numbers = itertools.count()
        self._walls: set[tuple[str, str]] = set()
        self.apart: set[str] = (
            set()
        )  # places that are cut off: deployments do not ask them for the truth
        # No spanning tree, no learning delay: a port forwards as soon as it is up.
        bridge = (
            "ip",
            "link",
            "add",
            "bridge",
            "type",
            "bridge",
            "stp_state",
            0,
            "forward_delay",
            0,
        )
        self.switch.run(*bridge)
        self.switch.run("ip", "link", "set", "bridge", "up")

    def place(self, name: str) -> Place:
        """The place of that name, created on first use."""
        if name not in self.places:
            self.places[name] = Place(self, name, next(self._numbers))
        return self.places[name]

    def part(self, a: str, b: str, *, one_way: bool = False) -> None:
        """Drop packets from a to b, and unless one_way those from b to a, without an error."""
        self._hole(a, b, True)
        if not one_way:
            self._hole(b, a, True)

    def join(self, a: str, b: str, *, one_way: bool = False) -> None:
        """Undo part(), or let only the packets from a to b through again."""
        self._hole(a, b, False)
        if not one_way:
            self._hole(b, a, False)

    def isolate(self, name: str, *others: str) -> None:
        """Part a place from all others except `others`."""
        self.apart.add(name)
        for other in self.places:
            if other != name and other not in others:
                self.part(name, other)

    def heal(self) -> None:
        """Undo every part() and isolate().

        What an isolated place sends comes first: until the last wall has gone it hears nothing.  The other way round an
        old master would hear replicas that left it long ago: see test_late_acknowledgements.
        """
        walls = sorted(self._walls, key=lambda wall: wall[0] not in self.apart)
        self.apart.clear()
        for sender, receiver in walls:
            self._hole(sender, receiver, False)

    def _hole(self, sender: str, receiver: str, on: bool) -> None:
        """Send packets to a hardware address that does not exist, so they vanish: a blackhole route or a missing
        neighbour would cause an error."""
        if on == ((sender, receiver) in self._walls):
            return
        at, to = self.places[sender], self.places[receiver].address
        if on:
            nobody = ("lladdr", "02:00:00:00:00:01", "dev", "eth", "nud", "permanent")
            at.run("ip", "neighbour", "replace", to, *nobody)
            self._walls.add((sender, receiver))
        else:
            at.run("ip", "neighbour", "del", to, "dev", "eth")
            self._walls.discard((sender, receiver))

    def end(self) -> None:
        for holder in (*self.places.values(), self.switch):
            holder.end()

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


def _setns(target: Path | int) -> None:
    fd = os.open(target, os.O_RDONLY | os.O_CLOEXEC) if isinstance(target, Path) else target
    try:
        if _libc.setns(fd, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
    finally:
        if fd is not target:
            os.close(fd)

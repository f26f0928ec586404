"""A private server on a unix socket in its own folder, and raw commands to it."""
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from ports import free_port  # noqa: E402


def binary():
    for name in (os.environ.get("SNIB_TEST_SERVER"), "redis-server", "valkey-server"):
        if name and shutil.which(name):
            return name
    raise RuntimeError("no server: install redis-server or set SNIB_TEST_SERVER")


# URL options for the tests' servers, which may stall for seconds.
PATIENT = "?patience=60s&try_timeout=60s&reply_timeout=60s&connect_timeout=60s"


class Server:
    def __init__(self, *options, program=None):
        self.folder = tempfile.mkdtemp(prefix="snib-cli-")
        self.path = f"{self.folder}/socket"
        self.url = f"unix://{self.path}"
        self.process = subprocess.Popen(
            [program or binary(), "--port", "0", "--unixsocket", self.path, "--dir", self.folder, "--save", "",
             "--appendonly", "no", "--daemonize", "no", *options], stdout=subprocess.DEVNULL)
        try:
            wait_for(self.answers, "the server's first answer")
        except BaseException:
            self.stop()
            raise

    def answers(self):
        if self.process.poll() is not None:
            raise AssertionError(f"the server ended with {self.process.returncode}")
        try:
            return "PONG" in str(self("PING")) or True
        except OSError:
            return False

    def __call__(self, *words):
        """Send one command on a separate connection and return its reply."""
        with socket.socket(socket.AF_UNIX) as link, link.makefile("rb") as replies:
            link.settimeout(60)
            link.connect(self.path)
            words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
            link.sendall(b"*%d\r\n" % len(words) +
                         b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
            return read_reply(replies)

    def stop(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder)


class Cluster:
    """Three masters without replicas, which serve the first so many slots."""

    def __init__(self, slots=16384):
        self.nodes, self.ports = [], []
        try:
            for _ in range(3):
                self.ports.append(free_port())
                self.nodes.append(Server("--port", str(self.ports[-1]), "--bind", "127.0.0.1", "--cluster-enabled", "yes",
                                         "--cluster-require-full-coverage", "no"))
            self.join(slots)
        except BaseException:
            self.stop()
            raise

    def join(self, slots):
        for i, node in enumerate(self.nodes):
            node("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
            node("CLUSTER", "ADDSLOTS", *range(16384 * i // 3, min(slots, 16384 * (i + 1) // 3)))
            for port in self.ports[:i]:
                node("CLUSTER", "MEET", "127.0.0.1", port)
        for node in self.nodes:
            wait_for(lambda: "cluster_state:ok" in (told := node("CLUSTER", "INFO")) and "cluster_size:3" in told,
                     "the node to know the others")

    def url(self, user="", options=""):
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        return f"redis+cluster://{user}{hosts}{PATIENT}{options}"

    def name_of(self, i):
        """The name of a lock at that node."""
        names = (f"app:{n}" for n in range(10000))
        return next(name for name in names if self.nodes[0]("CLUSTER", "KEYSLOT", name) * 3 // 16384 == i)

    def stop(self):
        for node in self.nodes:
            node.stop()


class Sentinels:
    """A master, and sentinels that watch it."""

    def __init__(self, count):
        self.ports = [free_port() for _ in range(count + 1)]
        self.master = Server("--port", str(self.ports[0]), "--bind", "127.0.0.1")
        self.folder = tempfile.mkdtemp(prefix="snib-cli-")
        self.processes = [self.begin(port) for port in self.ports[1:]]

    def begin(self, port):
        path = f"{self.folder}/{port}.conf"
        with open(path, "w") as config:
            config.write(f"port {port}\nbind 127.0.0.1\ndir {self.folder}\n"
                         f"sentinel monitor locks 127.0.0.1 {self.ports[0]} 1\n")
        return subprocess.Popen([binary(), path, "--sentinel"], stdout=subprocess.DEVNULL)

    @property
    def url(self):
        return f"redis+sentinel://{','.join(f'127.0.0.1:{port}' for port in self.ports[1:])}/locks{PATIENT}"

    def stop(self):
        for process in self.processes:
            process.kill()
            process.wait()
        shutil.rmtree(self.folder)
        self.master.stop()


def read_reply(replies):
    line = replies.readline()
    if not line:
        raise OSError("the server hung up")
    kind, rest = line[:1], line[1:-2].decode()
    if kind == b":":
        return int(rest)
    if kind == b"$":
        return None if rest == "-1" else replies.read(int(rest) + 2)[:-2].decode()
    if kind == b"*":
        return [read_reply(replies) for _ in range(int(rest))]
    return rest


def wait_for(condition, what, seconds=60):
    """Wait until condition() is true and return its value."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"waited {seconds} s for {what}")
        time.sleep(0.005)

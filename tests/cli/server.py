"""A private server on a unix socket in its own folder, and raw commands to it."""
import os
import shutil
import socket
import subprocess
import tempfile
import time


def binary():
    for name in (os.environ.get("SNIB_TEST_SERVER"), "redis-server", "valkey-server"):
        if name and shutil.which(name):
            return name
    raise RuntimeError("no server: install redis-server or set SNIB_TEST_SERVER")


# URL options for the tests' servers, which may stall for seconds.
PATIENT = "?patience=60s&try_timeout=60s&reply_timeout=60s&connect_timeout=60s"


class Server:
    def __init__(self, *options):
        self.folder = tempfile.mkdtemp(prefix="snib-cli-")
        self.path = f"{self.folder}/socket"
        self.url = f"unix://{self.path}"
        self.process = subprocess.Popen(
            [binary(), "--port", "0", "--unixsocket", self.path, "--dir", self.folder, "--save", "",
             "--appendonly", "no", "--daemonize", "no", *options], stdout=subprocess.DEVNULL)
        wait_for(self.answers, "the server's first answer")

    def answers(self):
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

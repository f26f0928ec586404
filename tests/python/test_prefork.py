"""Servers that fork after the application was loaded use the client that it created: gunicorn and Celery."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from support import PATIENCE, Program, Server, eventually

GUNICORN = """
import os, snib

URL = {url!r}
client = snib.connect(URL, lease=10)
lock = client.lock("request")
hold = client.lock("master").hold()
master = client.id

def app(environ, start_response):
    try:
        hold.check()
        inherited = "works"
    except snib.Forked:
        inherited = "forked"
    with lock as mine:
        mine.check()
        other = client.id != master
        body = f"{{inherited}} {{client.lock('master').locked()}} {{other}}".encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
"""


def listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as peer:
        return peer.connect_ex(str(path)) == 0


def request(path: Path) -> str:
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(path))
        peer.sendall(b"GET / HTTP/1.0\r\n\r\n")
        reply = b""
        while part := peer.recv(4096):
            reply += part
    return reply.rpartition(b"\r\n\r\n")[2].decode()


def test_gunicorn_preload(server: Server, tmp_path: Path) -> None:
    """A lock held by the master survives its workers, which use the client that it created."""
    (tmp_path / "web.py").write_text(GUNICORN.format(url=server.url))
    path = tmp_path / "web"
    log = (tmp_path / "log").open("w")
    gunicorn = subprocess.Popen(
        [sys.executable, "-m", "gunicorn", "--preload", "-w", "2", "-b", f"unix:{path}", "web:app"],
        cwd=tmp_path,
        stderr=log,
    )
    try:
        eventually(lambda: listens(path))
        assert {request(path) for _ in range(20)} == {"forked True True"}
        owner = server.admin.hkeys("master")
        gunicorn.send_signal(signal.SIGHUP)  # replaces the workers; with --preload the application stays
        eventually(lambda: (tmp_path / "log").read_text().count("Booting") == 4)
        assert request(path) == "forked True True"
        assert server.admin.hkeys("master") == owner
    finally:
        gunicorn.terminate()
        assert gunicorn.wait(PATIENCE) == 0


QUIET = "import asyncio, threading, warnings; warnings.simplefilter('ignore')\n"  # 3.12 warns of the fork itself


GIVEN_BACK = """
client = snib.connect(URL)
lock, permits = client.lock("lock"), client.permits("permits")
permits.init(5)
lock.acquire()
permits.acquire(n=2)
given_back, gave_back = os.pipe()
pid = os.fork()
if pid:
    lock.release()
    permits.release(2)
    os.write(gave_back, b".")
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
os.read(given_back, 1)
acquires = lock.acquire, lambda: permits.acquire(n=2)
releases = lock.release, lambda: permits.release(2)
def try_to(release):
    try: release()
    except snib.Forked as error: say("forked", error.name, lock.locked(), permits.available())
"""


def test_a_child_releases_its_own(server: Server) -> None:
    """What the parent had acquired before it forked is in the way of no release of what its child has acquired since."""
    source = """
for _ in range(2):
    for acquire in acquires: acquire()
    for release in releases: release()
say(lock.locked(), permits.available())
for release in releases: try_to(release)
os._exit(0)
"""
    said = Program(QUIET + GIVEN_BACK + source, server.url).end()
    assert said.splitlines() == ["False 5", "forked lock False 5", "forked permits False 5"]
    server.admin.delete("permits")


def test_a_child_that_unwinds_releases_nothing_of_its_threads(server: Server) -> None:
    """Its main thread may be about to release what the parent had acquired there: that is not what another thread has
    acquired since.  Once it was told, it may release what is of any thread, as in the parent.
    """
    source = """
for acquire in acquires:
    thread = threading.Thread(target=acquire)
    thread.start()
    thread.join()
for release in releases: try_to(release)
for release in releases: try_to(release)
say(lock.locked(), permits.available())
os._exit(0)
"""
    said = Program(QUIET + GIVEN_BACK + source, server.url).end()
    assert said.splitlines() == ["forked lock True 3", "forked permits True 3", "False 5"]
    server.admin.delete("permits")


@pytest.mark.parametrize("form", ["lock", "rlock", "lock hold()"])
def test_a_child_leaves_a_block_of_asyncio(server: Server, form: str) -> None:
    """Its parent's loop does not run in it: it raises what the program raises, or else Forked."""
    source = """
import snib.aio

async def leave(lock, end):
    try:
        async with lock.hold() if "hold" in FORM else lock:
            pid = os.fork()
            if pid:
                say(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            else:
                end()
    except snib.Forked as error:
        say("forked", error.name)
        os._exit(8)
    except BaseException as error:
        say(repr(error))
        os._exit(7)

async def main():
    async with snib.aio.connect(URL) as client:
        for end in lambda: sys.exit(5), lambda: None:
            await leave(getattr(client, FORM.split()[0])("block"), end)

asyncio.run(main())
"""
    said = Program(QUIET + f"FORM = {form!r}\n" + source, server.url).end()
    assert said.splitlines() == ["SystemExit(5)", "7", "forked block", "8"]


CELERY = """
import os, sys, celery, celery.signals, snib

app = celery.Celery("work", broker={broker!r}, backend={broker!r})
client = snib.connect({url!r}, lease=10)
lock = client.lock("task")
hold = client.lock("master").hold() if "worker" in sys.argv else None  # not where tasks are sent
master = client.id

@celery.signals.worker_process_shutdown.connect
def end(**_):
    client.close()

@app.task
def count():
    client.lock(f"kept:{{os.getpid()}}").acquire(timeout=0)  # kept from one task to the next
    try:
        hold.check()
        inherited = "works"
    except snib.Forked:
        inherited = "forked"
    with lock as mine:
        mine.check()
        with open("count", "r+") as file:
            seen = int(file.read())
            file.seek(0)
            file.write(str(seen + 1))
    return f"{{inherited}} {{client.id != master}}"
"""


def test_celery(server: Server, tmp_path: Path) -> None:
    """Celery's processes, which are replaced now and then, use the client that the application created."""
    path = tmp_path / "log"
    (tmp_path / "count").write_text("0")
    broker = server.url.partition("?")[0].replace("unix://", "redis+socket://")
    (tmp_path / "work.py").write_text(CELERY.format(broker=broker, url=server.url))
    words = [sys.executable, "-m", "celery", "-A", "work", "--quiet", "worker", "-P", "prefork", "-c", "3"]
    worker = subprocess.Popen(
        [*words, "--max-tasks-per-child", "3", "--without-gossip", "--without-mingle"],
        cwd=tmp_path,
        stdout=path.open("w"),
        stderr=subprocess.STDOUT,
        env={**os.environ, "C_FORCE_ROOT": "1"},
    )
    patience = 5 * PATIENCE  # on a slow machine Celery is slow to start, and starts ten processes
    send = (
        "import work\n"
        "results = [work.count.delay() for _ in range(20)]\n"
        f"print({{result.get(timeout={patience}) for result in results}})"
    )
    try:
        sent = subprocess.run(
            [sys.executable, "-c", send], cwd=tmp_path, capture_output=True, text=True, timeout=patience
        )
        assert sent.stdout == "{'forked True'}\n", sent.stderr + path.read_text()
        assert (tmp_path / "count").read_text() == "20"
        assert server.admin.exists("master")
    finally:
        worker.terminate()
        assert worker.wait(patience) == 0, path.read_text()
    assert not server.admin.exists("master")
    assert not server.admin.keys("kept:*")
    server.admin.flushall()

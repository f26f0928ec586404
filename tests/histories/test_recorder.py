"""The recorder in Python does not lose a thread in silence."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "topology"), str(HERE.parent / "interop")]

from recorders import Process  # noqa: E402

TURNS = {"go on": [b"over\n", b"over\n"], "die": [b"go at once\n", b"over\n"]}  # the first order makes no sense


@pytest.fixture
def conductor() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


@pytest.mark.parametrize("what", TURNS)
def test_a_thread_that_dies(tmp_path: Path, conductor: socket.socket, what: str) -> None:
    plan = {"kind": "mutex", "names": "a", "workers": 2, "conductor": conductor.getsockname()[1]}
    times = {"lease_ms": 500, "fixed_ms": 400, "recheck_ms": 300, "patience_ms": 2000}
    recorder = Process("python0", tmp_path, "redis://127.0.0.1:1", {**plan, **times})
    try:
        threads = [conductor.accept()[0] for _ in TURNS[what]]
        for thread in threads:
            assert thread.recv(256).startswith(b"turn a python0/")
        for thread, order in zip(threads, TURNS[what], strict=True):
            thread.sendall(order)
        recorder.process.wait()
        assert ("ValueError" in recorder.failure()) == (what == "die")
        for thread in threads:
            thread.close()
    finally:
        recorder.kill()

"""What a pair of lock and unlock costs this process, counted in instructions: a figure that does not depend on how busy or
how fast the machine is.  It may only grow on purpose."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CORE = Path(os.environ.get("SNIB_BUILD", ROOT / "build")) / "core" / "libsnib.a"
SERVER = os.environ.get("SNIB_TEST_SERVER") or shutil.which("redis-server")

MOST = 8_090  # user instructions a pair: 1 % above what it was when this was written, for other versions of glibc and gcc
# Between two growths of the ring that remembers recent releases (engine/given.c), which a client that goes on has behind it.
WARM, PAIRS = 1_100, 900


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    socket = tmp_path / "s"
    if not SERVER:
        pytest.skip("no redis-server: name one in SNIB_TEST_SERVER")
    server = subprocess.Popen(
        [SERVER, "--port", "0", "--unixsocket", socket, "--save", "", "--dir", tmp_path],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout
    ready = any("ready to accept" in line.lower() for line in server.stdout)
    assert ready, "the server did not start"
    yield f"unix://{socket}"
    server.terminate()
    server.communicate()


def counted(program: Path, url: str, pairs: int) -> int:
    tool = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    run = subprocess.run([*tool, program, url, str(pairs)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    found = re.search(r"Collected : (\d+)", run.stderr)
    assert found, run.stderr
    return int(found[1])


def test_instructions(url: str, tmp_path: Path) -> None:
    if not shutil.which("valgrind"):
        pytest.skip("no valgrind")
    if not CORE.exists():
        pytest.skip(f"{CORE} is not built")
    program = tmp_path / "path"
    libraries = ["-lhiredis", "-luuid", "-lssl", "-lcrypto", "-pthread"]
    headers = ["-DSNIB_STATIC", f"-I{ROOT / 'core/include'}"]
    subprocess.run(
        ["gcc", "-O2", "-o", program, *headers, HERE / "c/path.c", CORE, *libraries], check=True
    )
    pair = (counted(program, url, WARM + PAIRS) - counted(program, url, WARM)) / PAIRS
    print(f"{pair:,.0f} user instructions a pair")
    assert 2_000 < pair <= MOST

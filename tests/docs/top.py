"""A picture of snib top in a terminal of 80 x 24: docs/top.svg.

    PATH=build/core:build/tools:$PATH build/venv/bin/python tests/docs/top.py    # after ./dev build

It takes 35 seconds and needs tmux.  It is run by hand after a change of the screen, to look at it;
a test of the command compares only the titles.  Clients take locks on a server, tmux is the
terminal, and what it shows is drawn as it is.
"""

from __future__ import annotations

import logging
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from html import escape
from pathlib import Path

import redis

import snib
from snib import protocols

sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))

from ports import free_port  # noqa: E402

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "top.svg"
COLUMNS, ROWS = 80, 24
WIDTH, HEIGHT = 8.4, 18  # of a character
EDGE, BASE = 12, 13.5  # around the screen, from the top of a line to the foot of its letters
BACK, FORE = "#1d2127", "#d8dce2"


def start(work: Callable[[], None]) -> None:
    def run() -> None:
        while True:
            with suppress(snib.Error):
                work()

    threading.Thread(target=run, daemon=True).start()


Use = Callable[[snib.Client], protocols.Lock]


def busy(url: str, clients: int, use: Use, longest: float) -> None:
    """Clients, as if each were a process, that take a lock again and again."""
    for _ in range(clients):

        def work(lock: protocols.Lock = use(snib.connect(url))) -> None:  # noqa: B008
            with lock.hold():
                time.sleep(random.uniform(longest / 3, longest))
            time.sleep(0.05)

        start(work)


def contend(url: str, server: redis.Redis) -> None:
    shop = snib.connect(url)
    for number in range(14):
        shop.lock(f"cart:{101 + number}").acquire()
    for number in range(2):  # which the client finds out when it renews them
        server.delete(f"cart:{113 + number}")
    shop.permits("transcode").init(3)
    busy(url, 8, lambda client: client.permits("transcode"), 3.0)
    busy(url, 6, lambda client: client.fenced_lock("orders:checkout"), 0.7)
    busy(url, 4, lambda client: client.fair_lock("{tenant7}import"), 2.5)
    busy(url, 3, lambda client: client.lock("price-list"), 20.0)
    busy(url, 3, lambda client: client.rwlock("catalogue").read, 2.0)
    busy(url, 1, lambda client: client.rwlock("catalogue").write, 0.5)
    busy(url, 2, lambda client: client.plain_lock("invoices"), 4.0)


def screen(folder: str, address: str) -> list[str]:
    """The lines, with the terminal's sequences."""

    def tmux(*words: str) -> str:
        command = ["tmux", "-u", "-f", "/dev/null", "-S", f"{folder}/tmux", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    size = ("-x", str(COLUMNS), "-y", str(ROWS))
    tmux("new-session", "-d", "-s", "top", *size, f"snib top --url {address}")
    try:
        tmux("set-option", "-g", "status", "off")
        tmux("set-option", "-g", "window-size", "manual")
        tmux("resize-window", "-t", "top", *size)
        time.sleep(15)  # what is shown of holders is refreshed by then
        return tmux("capture-pane", "-p", "-e", "-N", "-t", "top").split("\n")[:ROWS]
    finally:
        tmux("kill-server")


def drawn(lines: list[str]) -> str:
    wide, high = COLUMNS * WIDTH + 2 * EDGE, ROWS * HEIGHT + 2 * EDGE
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:g} {high:g}" '
        f'width="{wide:g}" height="{high:g}" '
        'font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="14">',
        "<title>snib top in a terminal of 80 columns and 24 lines</title>",
        f'<rect width="{wide:g}" height="{high:g}" rx="6" fill="{BACK}"/>',
    ]
    for row, line in enumerate(lines):
        y, column, is_reverse = EDGE + row * HEIGHT, 0, False
        for number, text in enumerate(re.split(r"\x1b\[([0-9;]*)m", line)):
            if number % 2:
                is_reverse = text == "7"
            elif text:
                x, length = EDGE + column * WIDTH, len(text) * WIDTH
                if is_reverse:
                    size = f'width="{length:g}" height="{HEIGHT}"'
                    out.append(f'<rect x="{x:g}" y="{y:g}" {size} fill="{FORE}"/>')
                fill = BACK if is_reverse else FORE
                out.append(
                    f'<text x="{x:g}" y="{y + BASE:g}" textLength="{length:g}" '
                    f'xml:space="preserve" fill="{fill}">{escape(text)}</text>'
                )
                column += len(text)
    return "\n".join([*out, "</svg>", ""])


def main() -> None:
    logging.getLogger("snib").setLevel(logging.CRITICAL)  # its server ends before the clients
    port = free_port()
    server = shutil.which("redis-server")
    assert server, "no redis-server"
    with tempfile.TemporaryDirectory(prefix="snib-top-") as folder:
        where = ["--port", str(port), "--bind", "127.0.0.1", "--dir", folder]
        command = [server, *where, "--save", ""]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            try:
                link = redis.Redis(port=port)
                while True:
                    with suppress(redis.ConnectionError):
                        link.ping()
                        break
                    time.sleep(0.05)
                url = f"redis://127.0.0.1:{port}"
                contend(url, link)
                time.sleep(20)  # the first renewals, and clients say who they are
                shown = screen(folder, url)
            finally:
                process.terminate()
    # 6379 is what a reader has.
    PICTURE.write_text(drawn([line.replace(f":{port}", ":6379") for line in shown]))
    print("\n".join(shown))


if __name__ == "__main__":
    main()

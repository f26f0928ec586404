"""A picture of the dashboard docs/grafana/snib.json: docs/grafana/snib.png.

    build/venv/bin/python tests/docs/dashboard.py build          # after ./dev build; four minutes
    build/venv/bin/python tests/docs/dashboard.py build --again  # what that recorded, drawn anew

It is run by hand after a change of the dashboard, to look at it; no check runs it.  Grafana has no
part in it: programs take locks on a server and meet INCIDENTS, a real Prometheus scrapes them each
second and answers the dashboard's own queries, and panels.py draws the answers where the JSON puts
them.  Prometheus is the program that $PROMETHEUS names, or the one installed, or Debian's package,
which is then unpacked in the build folder and not installed.
"""

from __future__ import annotations

import asyncio
import gc
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import prometheus_client
import redis

import snib
import snib.aio
from snib.prometheus import Collector

sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))

from ports import free_port  # noqa: E402

HERE = Path(__file__).resolve()
GRAFANA = HERE.parents[2] / "docs" / "grafana"
PROGRAMS = {"web-1": "", "web-2": "", "web-3": "&debug=yes", "tasks-1": ""}  # and URL options
WARM, SHOWN = 15, 180  # seconds before the picture begins, and in it
SCRAPE = 1  # seconds, also as the "scrape interval" of Grafana's data source
WIDTH = 1200  # of the dashboard in pixels: Grafana asks for no more points than that


# ---- The programs --------------------------------------------------------------------------------


def for_ever(work: Callable[[], None]) -> None:
    def run() -> None:
        while True:
            try:
                work()
            except snib.Error:
                time.sleep(0.2)

    threading.Thread(target=run, daemon=True).start()


def web(client: snib.Client, name: str) -> None:
    """Threads: three take orders, one is impatient, one makes a report under a renewed lock."""

    def order() -> None:
        with client.lock(f"order:{random.randrange(3)}"):
            time.sleep(random.expovariate(1 / 0.01))
        time.sleep(random.expovariate(1 / 0.15))

    def price() -> None:
        with client.lock("prices").hold(timeout=0.1):
            time.sleep(random.expovariate(1 / 0.06))

    def report() -> None:
        with client.lock(f"report:{name}").hold() as hold:
            hold.lost.wait(20)
        time.sleep(1)

    for work in (order, order, order, price, report):
        for_ever(work)


def tasks(client: snib.aio.Client) -> None:
    """Tasks that compete for the orders, and give up by a timeout of asyncio."""

    async def order() -> None:
        while True:
            with suppress(snib.Error, TimeoutError):
                async with asyncio.timeout(0.2):
                    await asyncio.sleep(random.expovariate(1 / 0.1))
                    async with client.lock("order:0"):
                        await asyncio.sleep(random.expovariate(1 / 0.01))

    async def main() -> None:
        await asyncio.gather(order(), order(), order())

    threading.Thread(target=lambda: asyncio.run(main()), daemon=True).start()


def drop(client: snib.Client) -> None:
    client.lock("dropped").hold()
    gc.collect()


def cross(client: snib.Client) -> None:
    """Take two locks in both orders, which the option debug finds."""
    for first, second in (("stock", "till"), ("till", "stock")):
        with client.lock(first), client.lock(second):
            pass


def program(name: str, url: str) -> None:
    """One of PROGRAMS: print the port of its metrics, then obey signals."""
    warnings.simplefilter("ignore", ResourceWarning)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGUSR2])
    client = snib.aio.connect(url) if name.startswith("tasks") else snib.connect(url)
    registry = prometheus_client.CollectorRegistry()
    registry.register(Collector(client))
    print(prometheus_client.start_http_server(0, "127.0.0.1", registry)[0].server_port, flush=True)
    tasks(client) if isinstance(client, snib.aio.Client) else web(client, name)
    while True:
        number = signal.sigwait([signal.SIGUSR1, signal.SIGUSR2])
        (drop if number == signal.SIGUSR1 else cross)(client)


# ---- The incidents -------------------------------------------------------------------------------


class Site:
    """A server, the programs and Prometheus, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[str]] = {}

    def start(self, name: str, *words: str | Path) -> subprocess.Popen[str]:
        log = (self.folder / f"{name}.log").open("w")
        said = subprocess.PIPE if name in PROGRAMS else log
        self.processes[name] = subprocess.Popen(words, stdout=said, stderr=log, text=True)
        return self.processes[name]

    def open(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        path = self.folder / "socket"
        server = os.environ.get("SNIB_TEST_SERVER", "redis-server")
        self.start("server", server, "--port", "0", "--unixsocket", path, "--dir", self.folder, "--save", "")
        self.admin = redis.Redis(unix_socket_path=str(path))
        while not answers(self.admin.ping, redis.ConnectionError):
            time.sleep(0.1)
        self.admin.execute_command("ACL", "SETUSER", "watched", "on", ">word", "~*", "&*", "+@all")
        scraped = []
        for name, options in PROGRAMS.items():
            url = f"unix://watched:word@{path}?lease=9s{options}"
            started = self.start(name, sys.executable, HERE, "--program", name, url)
            target = f"127.0.0.1:{started.stdout.readline().strip()}"
            scraped.append({"targets": [target], "labels": {"job": name[:-2], "instance": name}})
        intervals = ("scrape_interval", "scrape_timeout", "evaluation_interval")
        config = {
            "global": {what: f"{SCRAPE}s" for what in intervals},
            "rule_files": [str(GRAFANA / "alerts.yml")],
            "scrape_configs": [{"job_name": "programs", "static_configs": scraped}],
        }
        (self.folder / "prometheus.yml").write_text(json.dumps(config))

    def send(self, name: str, number: signal.Signals) -> None:
        self.processes[name].send_signal(number)

    def stop_for(self, name: str, seconds: float) -> None:
        self.send(name, signal.SIGSTOP)
        time.sleep(seconds)
        self.send(name, signal.SIGCONT)

    def refuse_subscriptions(self, seconds: float) -> None:
        self.admin.execute_command("ACL", "SETUSER", "watched", "-subscribe")
        self.admin.client_kill_filter(_type="pubsub")
        time.sleep(seconds)
        self.admin.execute_command("ACL", "SETUSER", "watched", "+subscribe")

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()


def answers(call: Callable[[], object], error: type[Exception]) -> bool:
    with suppress(error):
        return bool(call())
    return False


INCIDENTS: list[tuple[int, str, Callable[[Site], object]]] = [
    (15, "the lock of web-1's report is deleted", lambda site: site.admin.delete("report:web-1")),
    (30, "all connections are killed", lambda site: site.admin.client_kill_filter(user="watched")),
    (45, "the server is stopped for 4 s", lambda site: site.stop_for("server", 4)),
    (70, "the server is stopped for 12 s", lambda site: site.stop_for("server", 12)),
    (100, "web-2 drops a hold", lambda site: site.send("web-2", signal.SIGUSR1)),
    (110, "web-3 takes two locks in both orders", lambda site: site.send("web-3", signal.SIGUSR2)),
    (120, "subscriptions are refused for 12 s", lambda site: site.refuse_subscriptions(12)),
    (150, "web-1 is stopped for 12 s", lambda site: site.stop_for("web-1", 12)),
]


# ---- Prometheus ----------------------------------------------------------------------------------


def find_prometheus(build: Path) -> str:
    found = os.environ.get("PROMETHEUS") or shutil.which("prometheus")
    folder = build / "prometheus"
    if not found and not (folder / "usr").exists():
        folder.mkdir(exist_ok=True)
        subprocess.run(["apt-get", "download", "prometheus"], cwd=folder, check=True)
        subprocess.run(["dpkg", "-x", *folder.glob("prometheus_*.deb"), folder], check=True)
    return found or str(folder / "usr/bin/prometheus")


class Prometheus:
    def __init__(self, site: Site, build: Path) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        folder = site.folder
        site.start(
            "prometheus",
            find_prometheus(build),
            f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address={self.address}",
        )
        while not answers(lambda: self.ask("query", query="vector(1)"), OSError):
            time.sleep(0.1)

    def ask(self, path: str, **parameters: object) -> list[dict]:
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.load(answer)["data"]["result"]
        except urllib.error.HTTPError as error:
            if error.code == 400:
                sys.exit(f"{parameters['query']}: {error.read().decode()}")
            raise

    def series(self, query: str, start: float) -> list[dict]:
        """What Grafana would get: of all jobs and instances, and no more points than scrapes or pixels."""
        step = max(math.ceil(SHOWN / WIDTH), SCRAPE)
        rate = max(step + SCRAPE, 4 * SCRAPE)
        filled = {"$job": ".*", "$instance": ".*", "$__rate_interval": f"{rate}s", "$__interval": f"{step}s"}
        for name, value in filled.items():
            query = query.replace(name, value)
        return self.ask("query_range", query=query, start=start, end=start + SHOWN, step=step)


def record(prometheus: Prometheus, start: float) -> dict:
    """The dashboard and the answers to its queries, as panels.py takes them."""
    board = json.loads((GRAFANA / "snib.json").read_text())
    targets = [target for panel in board["panels"] for target in panel.get("targets", [])]
    for part in board["annotations"]["list"] + targets:
        part["answer"] = prometheus.series(part["expr"], start)
    firing = f'group by (alertname) (last_over_time(ALERTS{{alertstate="firing"}}[{SHOWN}s]))'
    fired = prometheus.ask("query", query=firing, time=start + SHOWN)
    return {
        "board": board,
        "start": start,
        "seconds": SHOWN,
        "step": SCRAPE,
        "width": WIDTH,
        "incidents": [[at, text] for at, text, _ in INCIDENTS],
        "alerts": sorted(alert["metric"]["alertname"] for alert in fired),
    }


def run(site: Site, build: Path) -> Prometheus:
    site.open()
    prometheus = Prometheus(site, build)
    start = math.ceil(time.time()) + WARM
    (site.folder / "start").write_text(str(start))
    for at, text, happen in [*INCIDENTS, (SHOWN + 2, "end", lambda site: None)]:
        time.sleep(max(0, start + at - time.time()))
        print(f"{at:4} s: {text}")
        happen(site)
    return prometheus


def main() -> None:
    if sys.argv[1] == "--program":
        program(*sys.argv[2:])
    build = Path(sys.argv[1]).resolve()
    python = build / "board-venv" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", python.parents[1]], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "matplotlib"], check=True)
    site = Site(build / "board")
    try:
        prometheus = Prometheus(site, build) if "--again" in sys.argv else run(site, build)
        recorded = record(prometheus, int((site.folder / "start").read_text()))
    finally:
        site.close()
    (site.folder / "recorded.json").write_text(json.dumps(recorded))
    panels, picture = HERE.with_name("panels.py"), GRAFANA / "snib.png"
    subprocess.run([python, panels, site.folder / "recorded.json", picture], check=True)
    print("alerts that fired:", ", ".join(recorded["alerts"]))


if __name__ == "__main__":
    main()

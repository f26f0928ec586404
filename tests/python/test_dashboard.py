"""The dashboard and the alerts ask for what a scrape really has."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import prometheus_client
import pytest
import snib
from prometheus_client import CollectorRegistry, parser
from prometheus_client.exposition import generate_latest
from snib.prometheus import Collector
from support import PATIENCE, Server, brief, eventually, free_port

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "grafana"
BOARD = json.loads((FOLDER / "snib.json").read_text())
ALERTS = (FOLDER / "alerts.yml").read_text()
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
PANEL_QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]
QUERIES = PANEL_QUERIES + [annotation["expr"] for annotation in BOARD["annotations"]["list"]]
# Those of snib stats are in tests/cli/test_stats.py.
RULES = [rule for rule in re.findall(r"expr: (.*)", ALERTS) if "snib_server_" not in rule]
# What Grafana puts in, and what Prometheus adds to each series.
VARIABLES = {"$job": ".*", "$instance": ".*", "$__rate_interval": "1m", "$__interval": "1s"}
TARGET = {"job", "instance"}


def filled(query: str) -> str:
    for name, value in VARIABLES.items():
        query = query.replace(name, value)
    assert "$" not in query
    return query


@pytest.fixture
def registry(client: snib.Client) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=True)
    registry.register(Collector(client))
    return registry


def series(registry: CollectorRegistry) -> dict[str, set[str]]:
    """The labels of each series in a scrape."""
    families = parser.text_string_to_metric_families(generate_latest(registry).decode())
    return {sample.name: set(sample.labels) for family in families for sample in family.samples}


@pytest.mark.parametrize("query", QUERIES + RULES)
def test_names_and_labels_are_exported(registry: CollectorRegistry, query: str) -> None:
    known = series(registry)
    names = set(re.findall(r"\bsnib_\w+", query))
    assert names and names <= set(known)
    labels = set(re.findall(r"[{,]\s*(\w+)\s*[=!]", query))
    for group in re.findall(r"by \(([^)]*)\)", query):
        labels |= {label.strip() for label in group.split(",")}
    for name in names:
        assert labels <= known[name] | TARGET, name


def test_legends_and_variables_are_known(registry: CollectorRegistry) -> None:
    for panel in PANELS:
        for target in panel["targets"]:
            groups = ",".join(re.findall(r"by \(([^)]*)\)", target["expr"]))
            for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                assert label in groups, target
    names = {variable["name"] for variable in BOARD["templating"]["list"]}
    assert names == {"datasource", "job", "instance"}
    for variable in BOARD["templating"]["list"]:
        if variable["type"] == "query":
            assert re.findall(r"\bsnib_\w+", variable["definition"])[0] in series(registry)


def test_units_are_those_of_the_names() -> None:
    for panel in PANELS:
        unit = panel["fieldConfig"]["defaults"]["unit"]
        for target in panel["targets"]:
            if "_seconds" in target["expr"]:
                assert unit == "s", panel["title"]
            elif "_bytes" in target["expr"]:
                assert unit == "bytes", panel["title"]
            elif "rate(" in target["expr"]:
                assert unit == "ops", panel["title"]
            else:
                assert unit == "short", panel["title"]


def test_panels_do_not_overlap() -> None:
    cells = set()
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert x < 24 and (x, y) not in cells, panel["title"]
                cells.add((x, y))
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])


# ---- with Grafana's own model of a dashboard -------------------------------------------------------

# Fields of Grafana's that the model has not got: its data source for Prometheus reads the first two, and its editor of
# variables writes the third.
NOT_IN_THE_MODEL = {"titleFormat", "textFormat", "definition"}


def dropped(ours: Any, theirs: Any, at: str = "") -> Iterator[str]:
    """What of ours is missing or different in theirs."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key, value in ours.items():
            if key in theirs:
                yield from dropped(value, theirs[key], f"{at}.{key}")
            elif key not in NOT_IN_THE_MODEL:
                yield f"{at}.{key}: unknown"
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from dropped(one, other, f"{at}[{number}]")
    elif ours != theirs:
        yield f"{at}: {ours!r} became {theirs!r}"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="needs Python 3.11")
def test_grafana_knows_each_field() -> None:
    """Its model keeps what it knows, so nothing that the dashboard says may be gone after it."""
    model = pytest.importorskip("grafana_foundation_sdk.models.dashboard")
    from grafana_foundation_sdk.cog import encoder, plugins

    plugins.register_default_plugins()

    def through(board: Any) -> list[str]:
        read = model.Dashboard.from_json(board)
        return list(dropped(board, json.loads(encoder.JSONEncoder().encode(read))))

    assert through(BOARD) == []
    wrong = json.loads(json.dumps(BOARD))
    wrong["panels"][1]["fieldConfig"]["defaults"]["unitt"] = "short"
    wrong["panels"][1]["options"]["legend"]["placment"] = "bottom"
    assert len(through(wrong)) == 2


# ---- with a real Prometheus ----------------------------------------------------------------------


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed")
def test_the_rules_are_valid() -> None:
    done = subprocess.run(["promtool", "check", "rules", FOLDER / "alerts.yml"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


class Prometheus:
    """A Prometheus that scrapes a registry each second."""

    def __init__(self, folder: Path, registry: CollectorRegistry) -> None:
        self.exporter, _ = prometheus_client.start_http_server(0, "127.0.0.1", registry)
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(FOLDER / "alerts.yml")],
            "scrape_configs": [
                {"job_name": "shop", "static_configs": [{"targets": [f"127.0.0.1:{self.exporter.server_port}"]}]}
            ],
        }
        (folder / "prometheus.yml").write_text(json.dumps(config))
        self.address = f"127.0.0.1:{free_port()}"
        self.log = (folder / "log").open("w")
        self.process = subprocess.Popen(
            ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
             f"--web.listen-address={self.address}"],
            stdout=self.log, stderr=self.log,
        )

    def ask(self, path: str, **parameters: str) -> Any:
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            if error.code == 400: # the query is wrong, which waiting does not cure
                raise AssertionError(error.read().decode()) from None
            return None
        except OSError: # it is still starting
            return None

    def result(self, query: str) -> Any:
        return (self.ask("query", query=query) or {}).get("result")

    def firing(self) -> set[str]:
        groups = (self.ask("rules") or {"groups": []})["groups"]
        return {rule["name"] for group in groups for rule in group["rules"] if rule["state"] == "firing"}

    def end(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.exporter.shutdown()
        self.exporter.server_close()
        self.log.close()


@pytest.fixture
def prometheus(tmp_path: Path, registry: CollectorRegistry) -> Iterator[Prometheus]:
    if not shutil.which("prometheus"):
        pytest.skip("Prometheus is not installed")
    started = Prometheus(tmp_path, registry)
    yield started
    started.end()


def test_prometheus_answers_each_query(server: Server, client: snib.Client, prometheus: Prometheus) -> None:
    eventually(lambda: prometheus.result("snib_losses_total"))
    lost = brief(client.lock("a", lease=1.0))
    assert lost.lost.wait(PATIENCE)
    for query in QUERIES: # at any time so far, because what is counted has a result only at the moment of the loss
        eventually(lambda query=query: prometheus.result(f"last_over_time(({filled(query)})[30m:1s])")) # type: ignore[misc]
    eventually(lambda: prometheus.firing() == {"SnibLockLost"})
    eventually(server.clean)

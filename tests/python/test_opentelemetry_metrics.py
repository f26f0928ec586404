"""A client's statistics as OpenTelemetry reads them."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import snib
import snib.aio
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from snib.opentelemetry import observe
from snib.prometheus import Collector
from support import PATIENCE, RENEWED, Server, brief, eventually


def observed(clients: Any) -> InMemoryMetricReader:
    reader = InMemoryMetricReader()
    observe(clients, meter_provider=MeterProvider([reader]))
    return reader


def collected(reader: InMemoryMetricReader) -> dict[str, Any]:
    data = reader.get_metrics_data()
    assert data
    return {m.name: m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics}


def values(metrics: dict[str, Any], name: str) -> dict[tuple[Any, ...], float]:
    return {tuple(point.attributes.values()): point.value for point in metrics[name].data.data_points}


def test_every_counter_is_there(client: snib.Client) -> None:
    found = collected(observed(client))
    names = {f"snib.{field.name}" for field in dataclasses.fields(snib.Stats)}
    losses = {name for name in names if ".lost_" in name}
    assert set(found) == names - losses - {"snib.watchdog_late_us"} | {"snib.losses", "snib.watchdog_late"}
    assert {f"snib.lost_{reason}" for (reason,) in values(found, "snib.losses")} == losses
    assert all(metric.description for metric in found.values())
    units = {"snib.memory": "By", "snib.watchdog_late": "s"}
    assert {name: metric.unit for name, metric in found.items() if metric.unit} == units
    assert found["snib.acquisitions"].data.is_monotonic and not hasattr(found["snib.held"].data, "is_monotonic")


def test_the_numbers_are_the_clients(server: Server) -> None:
    with snib.connect(server.url, lease=RENEWED) as client:
        reader = observed(client)
        hold = client.lock("held").hold(timeout=PATIENCE)
        lost = brief(client.lock("gone", lease=1.0))
        assert lost.lost.wait(PATIENCE)
        found = collected(reader)
        assert values(found, "snib.acquisitions") == {(): client.stats().acquisitions}
        assert values(found, "snib.held") == {(): 1}
        assert values(found, "snib.losses")[("expired",)] == 1
        assert values(found, "snib.memory")[()] > 0
        hold.release()
        assert values(collected(reader), "snib.held") == {(): 0}
    eventually(server.clean)


def test_times_are_counted_as_in_prometheus(server: Server) -> None:
    with snib.connect(server.url) as client:
        reader = observed({"web": client})
        lost = brief(client.lock("second", lease=1.0))
        assert lost.lost.wait(PATIENCE)
        found = collected(reader)
        held, waited = values(found, "snib.hold_time"), values(found, "snib.wait_time")
        bounds = [bound for _, bound in held]
        assert bounds[:7] == ["2e-06", "4e-06", "8e-06", "1.6e-05", "3.2e-05", "6.4e-05", "0.000128"]
        assert bounds[-2:] == ["2147.483648", "+Inf"] and len(bounds) == 32
        assert list(held.values()) == sorted(held.values())
        assert held[("web", "+Inf")] == 1 and waited[("web", "+Inf")] >= 1
        samples = {sample.labels["le"]: sample.value for metric in Collector({"web": client}).collect()
                   for sample in metric.samples if sample.name == "snib_hold_seconds_bucket"}
        assert samples == {bound: count for (_, bound), count in held.items()}
    eventually(server.clean)


def test_several_clients_are_told_apart(server: Server) -> None:
    async def main() -> None:
        jobs, web = snib.connect(server.url), snib.aio.connect(server.url)
        clients: dict[str, snib.Client | snib.aio.Client] = {"jobs": jobs}
        reader = observed(clients)
        assert values(collected(reader), "snib.held") == {("jobs",): 0}
        clients["web"] = web
        async with web.lock("a"):
            found = collected(reader)
            assert values(found, "snib.held") == {("jobs",): 0, ("web",): 1}
            assert values(found, "snib.losses")[("web", "taken")] == 0
        jobs.close()
        await web.close()
        assert values(collected(reader), "snib.acquisitions") == {("jobs",): 0, ("web",): 1}

    asyncio.run(main())

"""A client's statistics as Prometheus reads them."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
import snib
import snib.aio
from prometheus_client import CollectorRegistry, Metric, parser
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from snib.prometheus import Collector
from support import PATIENCE, RENEWED, Server, brief, eventually

# Where a counter has another name than in the statistics.
RENAMED = {
    "watchdog_late_us": "snib_watchdog_late_seconds",
    "memory": "snib_memory_bytes",
    "wait_time": "snib_wait_seconds",
    "hold_time": "snib_hold_seconds",
}


def scraped(registry: CollectorRegistry) -> dict[str, Metric]:
    """What Prometheus reads, in its own format; in the stricter one it must be readable as well."""
    list(parse_openmetrics(generate_openmetrics(registry).decode()))
    families = list(parser.text_string_to_metric_families(generate_latest(registry).decode()))
    assert len({family.name for family in families}) == len(families)
    return {family.name: family for family in families}


def values(families: dict[str, Metric], name: str) -> dict[tuple[str, ...], float]:
    return {tuple(sample.labels.values()): sample.value for sample in families[name].samples}


def registered(clients: object) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=True)
    registry.register(Collector(clients))  # type: ignore[arg-type]
    return registry


def test_every_counter_is_there(client: snib.Client) -> None:
    families = scraped(registered(client))
    for field in dataclasses.fields(snib.Stats):
        if field.name.startswith("lost_"):
            assert (field.name.removeprefix("lost_"),) in values(families, "snib_losses")
        else:
            assert RENAMED.get(field.name, f"snib_{field.name}") in families, field.name
    assert len(families) == len([f for f in dataclasses.fields(snib.Stats) if "lost_" not in f.name]) + 1
    assert all(family.documentation and family.name.startswith("snib_") for family in families.values())


def test_the_numbers_are_the_clients(server: Server) -> None:
    with snib.connect(server.url, lease=RENEWED) as client:
        registry = registered(client)
        hold = client.lock("held").hold(timeout=PATIENCE)
        lost = brief(client.lock("gone", lease=1.0))
        assert lost.lost.wait(PATIENCE)
        eventually(lambda: client.stats().renewals)
        families = scraped(registry)
        assert values(families, "snib_acquisitions") == {(): 2}
        assert values(families, "snib_held") == {(): 1}
        assert values(families, "snib_losses")[("expired",)] == 1
        assert sum(values(families, "snib_losses").values()) == 1
        assert values(families, "snib_renewals")[()] >= 1
        assert values(families, "snib_memory_bytes")[()] > 0
        assert families["snib_acquisitions"].type == "counter" and families["snib_held"].type == "gauge"
        hold.release()
        assert values(scraped(registry), "snib_held") == {(): 0}
        eventually(lambda: not server.admin.keys())


def test_the_histogram_has_seconds(server: Server) -> None:
    with snib.connect(server.url) as client:
        registry = registered(client)
        lost = brief(client.lock("second", lease=1.0))
        assert lost.lost.wait(PATIENCE)
        family = scraped(registry)["snib_hold_seconds"]
        assert family.type == "histogram"
        buckets = {float(sample.labels["le"]): sample.value for sample in family.samples}
        assert list(buckets) == sorted(buckets) and list(buckets.values()) == sorted(buckets.values())
        assert buckets[float("inf")] == 1
        assert buckets[0.524288] == 0  # it was held for about a second, and never less than half
        assert {sample.name for sample in family.samples} == {"snib_hold_seconds_bucket"}
        counts = client.stats().hold_time
        for i, count in enumerate(counts[:-1]):
            assert buckets[2 ** (i + 1) / 1e6] == sum(counts[:i]) + count
        eventually(lambda: not server.admin.keys())


@pytest.mark.parametrize("more", ["_count 0\n", "_count 0\nsnib_wait_seconds_sum NaN\n"])
def test_a_count_would_need_a_sum(client: snib.Client, more: str) -> None:
    """Why the histograms have neither: who reads OpenMetrics strictly would refuse the whole scrape."""
    text = generate_openmetrics(registered(client)).decode()
    last = 'snib_wait_seconds_bucket{le="+Inf"} 0.0\n'
    assert text.count(last) == 1
    with pytest.raises(ValueError, match=r"NaN|_count"):
        list(parse_openmetrics(text.replace(last, f"{last}snib_wait_seconds{more}")))


def test_several_clients_are_told_apart(server: Server) -> None:
    async def main() -> None:
        jobs, web = snib.connect(server.url), snib.aio.connect(server.url)
        clients: dict[str, snib.Client | snib.aio.Client] = {"jobs": jobs}
        registry = registered(clients)
        assert values(scraped(registry), "snib_acquisitions") == {("jobs",): 0}
        clients["web"] = web
        async with web.lock("a"):
            families = scraped(registry)
            assert values(families, "snib_held") == {("jobs",): 0, ("web",): 1}
            assert values(families, "snib_losses")[("web", "taken")] == 0
            assert families["snib_wait_seconds"].samples[0].labels["client"] == "jobs"
        jobs.close()
        await web.close()
        assert values(scraped(registry), "snib_acquisitions") == {("jobs",): 0, ("web",): 1}

    asyncio.run(main())


def test_two_collectors_would_write_the_same_names(client: snib.Client) -> None:
    registry = registered(client)
    with pytest.raises(ValueError, match="snib_"):
        registry.register(Collector(client))

"""A client's counters for Prometheus.

    import prometheus_client
    import snib.prometheus

    prometheus_client.REGISTRY.register(snib.prometheus.Collector(client))

Each scrape takes one snapshot of the client's statistics, without a round trip.  Requires the
package prometheus_client.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector as _Collector

from ._client import BaseClient, Stats
from ._figures import COUNTERS, GAUGES, REASONS, cumulated

__all__ = ["Collector"]

_HISTOGRAMS = {
    "wait_time": ("snib_wait_seconds", "How long acquisitions took that were granted"),
    "hold_time": ("snib_hold_seconds", "How long holds were held"),
}

_Labels = list[str]
_Snapshots = list[tuple[_Labels, Stats]]


class Collector(_Collector):
    """Exposes the statistics of a client, or of several, under names that begin with `snib_`.

    clients  one client of snib, snib.aio or snib.anyio; or a mapping from names to clients, which
             are then told apart by a label `client`.  It is read anew by each scrape.

    The collector keeps its clients open.  A registry takes one collector: name several clients in
    one mapping.
    """

    def __init__(self, clients: BaseClient | Mapping[str, BaseClient]) -> None:
        self._clients = clients

    def _snapshots(self) -> _Snapshots:
        if isinstance(self._clients, BaseClient):
            return [([], self._clients.stats())]
        return [([name], client.stats()) for name, client in list(self._clients.items())]

    def collect(self) -> Iterator[Metric]:
        """The metrics now; the registry calls it for each scrape."""
        labels = [] if isinstance(self._clients, BaseClient) else ["client"]
        snapshots = self._snapshots()
        for name, text in COUNTERS.items():
            counter = CounterMetricFamily(f"snib_{name}", text, labels=labels)
            for values, stats in snapshots:
                counter.add_metric(values, getattr(stats, name))
            yield counter
        yield _losses(labels, snapshots)
        for name, (shown, unit, text) in GAUGES.items():
            gauge = GaugeMetricFamily(shown, text, labels=labels)
            for values, stats in snapshots:
                gauge.add_metric(values, unit * getattr(stats, name))
            yield gauge
        for name, (shown, text) in _HISTOGRAMS.items():
            histogram = HistogramMetricFamily(shown, text, labels=labels)
            for values, stats in snapshots:
                # The core counts times and does not add them up, so there is no sum.  A scrape asks
                # for OpenMetrics, which allows neither NaN as the sum, nor a count without a sum.
                histogram.add_metric(values, cumulated(getattr(stats, name)), None)
            yield histogram


def _losses(labels: _Labels, snapshots: _Snapshots) -> Metric:
    """One counter for all reasons, so that it can be added up."""
    losses = CounterMetricFamily("snib_losses", "Holds lost, by reason", labels=[*labels, "reason"])
    for values, stats in snapshots:
        for reason in REASONS:
            losses.add_metric([*values, reason], getattr(stats, f"lost_{reason}"))
    return losses

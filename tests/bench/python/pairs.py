"""Lock + unlock on distinct locks: pairs.py URL snib|snib-X|redis|redis-wait THREADS

URL is in Snib's form.  X is prometheus (scraped each second), metrics (OpenTelemetry's, collected each second), spans
(exported to nowhere) or wrapped (with spans for which there is no provider).  redis-wait has a connection for each thread, and waits for one replica.
"""

from __future__ import annotations

import sys
import threading
from contextlib import AbstractContextManager
from time import perf_counter, sleep
from typing import Any
from urllib.parse import parse_qs

from turns import answer, turns


def snib_locks(url: str, count: int) -> list[AbstractContextManager]:
    import snib

    client = snib.connect(url)
    return [client.lock(f"pair:{i}") for i in range(count)]


def scraped_locks(url: str, count: int) -> list[AbstractContextManager]:
    import prometheus_client
    import snib
    from snib.prometheus import Collector

    client = snib.connect(url)
    registry = prometheus_client.CollectorRegistry()
    registry.register(Collector(client))

    def scrape() -> None:
        while True:
            prometheus_client.generate_latest(registry)
            sleep(1)

    threading.Thread(target=scrape, daemon=True).start()
    return [client.lock(f"pair:{i}") for i in range(count)]


def collected_locks(url: str, count: int) -> list[AbstractContextManager]:
    import snib
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from snib.opentelemetry import observe

    client = snib.connect(url)
    reader = InMemoryMetricReader()
    observe(client, meter_provider=MeterProvider([reader]))

    def collect() -> None:
        while True:
            reader.get_metrics_data()
            sleep(1)

    threading.Thread(target=collect, daemon=True).start()
    return [client.lock(f"pair:{i}") for i in range(count)]


def wrapped_locks(url: str, count: int) -> list[AbstractContextManager]:
    from snib.opentelemetry import traced

    return [traced(lock) for lock in snib_locks(url, count)]  # type: ignore[call-overload]


def spans_locks(url: str, count: int) -> list[AbstractContextManager]:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

    class Nowhere(SpanExporter):
        def export(self, spans: Any) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Nowhere()))
    trace.set_tracer_provider(provider)
    return wrapped_locks(url, count)


def redis_client(url: str, **options: Any) -> Any:
    import redis
    from redis._parsers import _HiredisParser

    url, _, query = url.partition("?")
    authority = parse_qs(query).get("tls_ca")
    if authority:
        options["ssl_ca_certs"] = authority[0]
    client = redis.Redis.from_url(url, **options)
    parser = client.connection_pool.make_connection()._parser
    if not isinstance(parser, _HiredisParser):
        raise SystemExit("redis-py does not use its C parser")
    return client


def redis_locks(url: str, count: int) -> list[AbstractContextManager]:
    client = redis_client(url)
    # TLS connections are expensive in redis-py, so all are opened before the work begins.
    pool = client.connection_pool
    for connection in [pool.get_connection() for _ in range(count)]:
        pool.release(connection)
    return [client.lock(f"pair:{i}", timeout=30) for i in range(count)]


class Waited:
    """A lock of redis-py that counts once a replica has it."""

    def __init__(self, url: str, name: str) -> None:
        self._client = redis_client(url, single_connection_client=True)
        self._lock = self._client.lock(name, timeout=30)

    def __enter__(self) -> None:
        self._lock.acquire()
        if self._client.wait(1, 1000) < 1:
            self._lock.release()
            raise SystemExit("no replica had the lock within a second")

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def redis_wait_locks(url: str, count: int) -> list[AbstractContextManager]:
    return [Waited(url, f"pair:{i}") for i in range(count)]


KINDS = {
    "snib": snib_locks,
    "snib-prometheus": scraped_locks,
    "snib-metrics": collected_locks,
    "snib-wrapped": wrapped_locks,
    "snib-spans": spans_locks,
    "redis": redis_locks,
    "redis-wait": redis_wait_locks,
}


def work(lock: AbstractContextManager, until: float, counts: list[int]) -> None:
    count = 0
    while perf_counter() < until:
        with lock:
            pass
        count += 1
    counts.append(count)


def main() -> None:
    url, kind, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
    locks = KINDS[kind](url, threads)
    for seconds in turns():
        counts: list[int] = []
        began = perf_counter()
        until = began + seconds
        if threads == 1:
            work(locks[0], until, counts)
        else:
            crew = [threading.Thread(target=work, args=(lock, until, counts)) for lock in locks]
            for thread in crew:
                thread.start()
            for thread in crew:
                thread.join()
        answer(sum(counts), perf_counter() - began)


main()

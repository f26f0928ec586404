"""The spans of locks, as a program's exporter gets them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from snib import _links

RELEASED = [("wait", "granted"), ("hold", "released")]


class Begun(SpanProcessor):
    """The spans of holds, in the order in which they have begun."""

    def __init__(self) -> None:
        self.holds: list[ReadableSpan] = []

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        if span.name == "snib.hold":
            self.holds.append(span)


class Spans:
    """What ends up in a trace."""

    def __init__(self) -> None:
        _links._last.clear()  # tests use the same names, and a later server may have the address of an earlier one
        self.begun = Begun()
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.provider.add_span_processor(self.begun)
        self.tracer = self.provider.get_tracer("test")

    def __iter__(self) -> Iterator[ReadableSpan]:
        return iter(self.exporter.get_finished_spans())

    def take(self) -> list[tuple[str, str]]:
        """The names and outcomes since the last call."""
        spans = self.exporter.get_finished_spans()
        self.exporter.clear()
        self.begun.holds.clear()
        return [(span.name.removeprefix("snib."), str((span.attributes or {}).get("snib.outcome"))) for span in spans]

    def named(self, name: str) -> ReadableSpan:
        [span] = [span for span in self if span.name == name]
        return span


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})

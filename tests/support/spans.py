"""Collected spans of the process."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


class Spans:
    """A tracer provider that keeps what it ends."""

    def __init__(self, provider: TracerProvider) -> None:
        self.provider = provider
        self._exporter = InMemorySpanExporter()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    @property
    def all(self) -> Sequence[ReadableSpan]:
        """Every ended span, in the order of ending."""
        return self._exporter.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        """The spans of one name."""
        return [span for span in self.all if span.name == name]

    def starting(self, prefix: str) -> list[ReadableSpan]:
        """The spans whose names begin with ``prefix``."""
        return [span for span in self.all if span.name.startswith(prefix)]

    def clear(self) -> None:
        """Forget them."""
        self._exporter.clear()

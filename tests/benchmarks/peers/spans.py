"""Spans that are sampled, batched, and exported to nowhere."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult


class Drops(SpanExporter):
    """Exports to nowhere."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Drop them."""
        return SpanExportResult.SUCCESS


@cache
def dropping() -> TracerProvider:
    """Return a provider as programs have it, but for the exporter."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(Drops()))
    return provider

"""The instrumentation on, with a provider of the test's choice as the global one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.instrumentation.babelqueue import BabelQueueInstrumentor
from opentelemetry.sdk.trace import TracerProvider

from tests.support.spans import Spans


@contextlib.contextmanager
def instrumented(
    monkeypatch: pytest.MonkeyPatch, provider: TracerProvider, **options: Any
) -> Iterator[Spans]:
    """Instrument, with options, for as long as the block lasts."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    instrumentor = BabelQueueInstrumentor()
    instrumentor.instrument(**options)
    try:
        yield Spans(provider)
    finally:
        instrumentor.uninstrument()
        provider.shutdown()

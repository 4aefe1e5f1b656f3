"""Memory stays what it is, and the benchmark can be run."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable

from opentelemetry.instrumentation.babelqueue import BabelQueueInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from babelqueue_redis import RedisConsumer, RedisPublisher
from tests.benchmarks.overhead import Drops, measure, report
from tests.support.metrics import Metrics

Make = Callable[..., RedisConsumer]
MESSAGES = int(os.environ.get("BQ_MESSAGES", "2000"))
"""``nox -s soak`` makes it 50 000."""


def test_memory_is_constant(publisher: RedisPublisher, consumer_of: Make) -> None:
    """However many messages there are: what is allocated after many is what was after a few."""
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Drops()))

    def handle(_: object) -> None:
        raise ValueError

    consumer = consumer_of({"urn:a": handle}, max_tries=1, on_error=lambda *_: None)

    def allocated_after(count: int) -> int:
        for _ in range(count):
            publisher.publish("urn:a", {}, headers={"tenant": "acme"})
            consumer.poll(0)
        provider.force_flush()
        gc.collect()
        return sys.getallocatedblocks()

    meters = Metrics().provider
    instrumentor = BabelQueueInstrumentor()
    instrumentor.instrument(tracer_provider=provider, meter_provider=meters, settle_spans=True)
    try:
        before = allocated_after(300)
        assert allocated_after(MESSAGES) - before < 1000
    finally:
        instrumentor.uninstrument()
        provider.shutdown()


def test_the_benchmark_can_be_run(redis_url: str) -> None:
    """It asserts nothing, so this only keeps it from rotting."""
    lines = list(report(measure(redis_url, pairs=1, rounds=1)))
    assert len(lines) == 8

"""Memory stays what it is, and the benchmark can be run."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from typing import Any

from opentelemetry.instrumentation.babelqueue import BabelQueueInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from babelqueue_redis import Envelope, RedisConsumer, RedisPublisher
from tests.benchmarks.overhead import Drops, measure, report
from tests.support.metrics import Metrics

Make = Callable[..., RedisConsumer]
MESSAGES = int(os.environ.get("BQ_MESSAGES", "6000"))
"""``nox -s memory`` makes it 50 000."""
WARM_UP = 300
A_FEW = 1000
"""Blocks: what caches and the interpreter may come to hold, however many messages there are."""


def growth(publisher: RedisPublisher, consumer_of: Make, messages: int, **options: Any) -> int:
    """Return how many more blocks are allocated after so many messages than after a few.

    Every third fails: to describe an error costs as much as to handle some messages.
    """
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Drops()))

    def handle(envelope: Envelope) -> None:
        if envelope.data["n"] % 3 == 0:
            raise ValueError

    consumer = consumer_of({"urn:a": handle}, max_tries=1, on_error=lambda *_: None)

    def allocated_after(count: int) -> int:
        for n in range(count):
            publisher.publish("urn:a", {"n": n}, headers={"tenant": "acme"})
            consumer.poll(0)
        provider.force_flush()
        gc.collect()
        return sys.getallocatedblocks()

    meters = Metrics().provider
    instrumentor = BabelQueueInstrumentor()
    instrumentor.instrument(
        tracer_provider=provider, meter_provider=meters, settle_spans=True, **options
    )
    try:
        before = allocated_after(WARM_UP)
        return allocated_after(messages) - before
    finally:
        instrumentor.uninstrument()
        provider.shutdown()
        consumer.close()


def test_memory_is_constant(publisher: RedisPublisher, consumer_of: Make) -> None:
    """However many messages there are: what is allocated after many is what was after a few."""
    assert growth(publisher, consumer_of, MESSAGES) < A_FEW


def test_a_leak_of_one_object_a_message_would_be_seen(
    publisher: RedisPublisher, consumer_of: Make
) -> None:
    """By the same measure, in far fewer messages."""
    kept: list[object] = []

    def leak(*_: object) -> None:
        kept.append(object())

    assert growth(publisher, consumer_of, 2 * A_FEW, process_hook=leak) > A_FEW
    assert len(kept) == WARM_UP + 2 * A_FEW


def test_the_benchmark_can_be_run(redis_url: str) -> None:
    """It asserts nothing, so this only keeps it from rotting."""
    lines = list(report(measure(redis_url, pairs=1, rounds=1)))
    assert len(lines) == 16

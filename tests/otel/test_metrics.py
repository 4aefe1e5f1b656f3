"""What is measured, in both shells and both layouts."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import babelqueue
import pytest
from opentelemetry import context, trace
from opentelemetry.instrumentation.babelqueue import BabelQueueInstrumentor
from opentelemetry.instrumentation.babelqueue.sdk import BabelQueueSdkInstrumentor
from opentelemetry.sdk.trace import TracerProvider

from babelqueue_redis import (
    AsyncRedisConsumer,
    Outcome,
    PublishError,
    RedisConsumer,
    RedisPublisher,
)
from babelqueue_redis.steps import Serving
from kit.redis_server import free_port
from tests.support.instrumented import instrumented
from tests.support.metrics import Metrics
from tests.support.spans import Spans
from tests.support.store import Store
from tests.support.waiting import eventually

Make = Callable[..., RedisConsumer]
HANDLERS = {"urn:a": lambda envelope: None}
DURATION = "messaging.client.operation.duration"
PROCESS = "messaging.process.duration"
SENT = "messaging.client.sent.messages"
CONSUMED = "messaging.client.consumed.messages"
QUEUE_TIME = "messaging.babelqueue.queue.time"
NEGATIVE = "messaging.babelqueue.queue.time.negative"
GAUGE = "messaging.babelqueue.queue.messages"
OPERATION, ERROR = "messaging.operation.name", "error.type"


@pytest.fixture
def metrics() -> Metrics:
    """Where the values end up."""
    return Metrics()


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch, metrics: Metrics) -> Iterator[Spans]:
    """Spans and metrics on."""
    provider = metrics.provider
    with instrumented(monkeypatch, TracerProvider(), meter_provider=provider) as spans:
        yield spans


@pytest.mark.parametrize("layout", ["legacy", "zset"])
@pytest.mark.parametrize("kind", ["sync", "aio"])
@pytest.mark.usefixtures("both")
def test_what_is_sent_and_consumed_is_counted_and_timed(
    metrics: Metrics, publisher: RedisPublisher, consumer_of: Make
) -> None:
    """Messages one by one; a batch is one operation; handling is not told twice."""
    publisher.publish("urn:a", {})
    publisher.publish_many([("urn:a", {})] * 3)
    consumer = consumer_of(HANDLERS)
    while consumer.poll(0):
        pass
    assert metrics.counts(SENT) == {(): 4}
    assert metrics.counts(CONSUMED) == {(): 4}
    assert metrics.counts(DURATION, OPERATION) == {"publish": 2, "ack": 4}
    assert metrics.counts(PROCESS, OPERATION) == {"process": 4}
    assert metrics.counts(QUEUE_TIME) == {(): 4}
    assert not metrics.points(NEGATIVE)
    assert not metrics.points(GAUGE)


@pytest.mark.usefixtures("both")
def test_failures_are_told_by_their_type(
    metrics: Metrics, publisher: RedisPublisher, consumer_of: Make, store: Store
) -> None:
    """Of handlers, of messages without one, of publishes."""

    def fail(_: object) -> None:
        raise ValueError

    publisher.publish("urn:a", {})
    store.push(b"poison", b'{"job":"urn:new"}')
    consumer = consumer_of({"urn:a": fail}, max_tries=1, on_error=lambda *_: None)
    while consumer.poll(0):
        pass
    gone = RedisPublisher(f"redis://127.0.0.1:{free_port()}", "orders")
    with pytest.raises(PublishError):
        gone.publish_many([("urn:a", {})] * 2)
    broken = "babelqueue_redis.errors.PublishError"
    assert metrics.counts(PROCESS, ERROR) == {"ValueError": 1, "poison": 1, "unknown_urn": 1}
    assert metrics.counts(CONSUMED, ERROR) == {None: 1, "poison": 1, "unknown_urn": 1}
    assert metrics.counts(SENT, ERROR) == {None: 1, broken: 2}
    assert metrics.counts(DURATION, OPERATION, ERROR) == {
        ("publish", None): 1,
        ("publish", broken): 1,
        ("dead_letter", None): 3,
    }
    assert metrics.counts(QUEUE_TIME) == {(): 1}


@pytest.mark.usefixtures("both")
def test_a_settlement_tells_what_became_of_the_message(
    metrics: Metrics, publisher: RedisPublisher, consumer_of: Make, store: Store
) -> None:
    """An expired reservation, too: there the span of the handling cannot know."""

    def handle(_: object) -> None:
        store.expire()
        assert consumer_of().reserve(0) is not None

    publisher.publish("urn:a", {})
    assert consumer_of({"urn:a": handle}).poll(0) is Outcome.EXPIRED
    outcome = "messaging.babelqueue.outcome"
    assert metrics.counts(DURATION, OPERATION, outcome) == {
        ("publish", None): 1,
        ("receive", None): 1,
        ("ack", "expired"): 1,
    }


@pytest.mark.parametrize("kind", ["sync", "aio"])
@pytest.mark.usefixtures("both")
def test_a_delivery_is_counted_once(
    metrics: Metrics, publisher: RedisPublisher, consumer_of: Make
) -> None:
    """When a program receives it itself, then there and not when it handles it."""
    publisher.publish("urn:a", {})
    consumer = consumer_of(HANDLERS)
    reservation = consumer.reserve(0)
    assert metrics.counts(CONSUMED, OPERATION) == {"receive": 1}
    assert reservation is not None
    consumer.handle(reservation)
    assert consumer.reserve(0) is None
    assert metrics.counts(CONSUMED, OPERATION) == {"receive": 1}
    assert metrics.counts(DURATION, OPERATION) == {"publish": 1, "receive": 1, "ack": 1}


@pytest.mark.usefixtures("both")
def test_the_queue_time_runs_from_creation_to_the_handler(
    metrics: Metrics, consumer_of: Make, store: Store
) -> None:
    """A message from the future is counted apart; one that does not say when is left out."""
    now = int(time.time() * 1000)
    for created in (now - 60_000, now + 60_000, None):
        meta = {} if created is None else {"created_at": created}
        store.push(json.dumps({"job": "urn:a", "meta": meta}).encode())
    consumer = consumer_of(HANDLERS)
    while consumer.poll(0):
        pass
    (point,) = metrics.points(QUEUE_TIME)
    assert 60 <= point.sum < 120
    assert point.count == 1
    assert metrics.counts(NEGATIVE) == {(): 1}
    assert metrics.counts(CONSUMED) == {(): 3}


def test_values_lead_to_their_spans(
    both: Spans, metrics: Metrics, publisher: RedisPublisher, consumer_of: Make
) -> None:
    """Exemplars: also when the handler left another context behind."""

    def handle(_: object) -> None:
        context.attach(trace.set_span_in_context(trace.INVALID_SPAN))

    publisher.publish("urn:a", {})
    consumer_of({"urn:a": handle}).poll(0)
    sent, taken = both.all
    collected = metrics.all  # once: exemplars are handed over once
    told = [(DURATION, sent), (SENT, sent), (PROCESS, taken), (QUEUE_TIME, taken)]
    for name, span in [*told, (CONSUMED, taken)]:
        points: list[Any] = list(collected[name].data.data_points)
        exemplars = [each for point in points for each in point.exemplars]
        assert span.context.span_id in [each.span_id for each in exemplars], name


def test_every_value_leads_to_the_span_of_its_operation(
    monkeypatch: pytest.MonkeyPatch, metrics: Metrics, publisher: RedisPublisher, consumer_of: Make
) -> None:
    """Receiving and settling, too, where those have spans; failures as well."""

    def fail(_: object) -> None:
        raise ValueError

    options: dict[str, Any] = {"settle_spans": True, "meter_provider": metrics.provider}
    with instrumented(monkeypatch, TracerProvider(), **options) as spans:
        publisher.publish("urn:a", {})
        publisher.publish_many([("urn:fails", {})])
        consumer = consumer_of({**HANDLERS, "urn:fails": fail}, on_error=lambda *_: None)
        reservation = consumer.reserve(0)
        assert reservation is not None
        consumer.handle(reservation)
        consumer.poll(0)
        operation_of = {
            span.context.span_id: (span.attributes or {})[OPERATION] for span in spans.all
        }
        collected = metrics.all
    assert len(collected) == 5
    for name, metric in collected.items():
        point: Any
        for point in metric.data.data_points:
            assert point.exemplars, name
            for exemplar in point.exemplars:
                assert operation_of[exemplar.span_id] == point.attributes[OPERATION], name


def test_what_interrupts_a_handler_is_told_by_its_type(
    metrics: Metrics, both: Spans, publisher: RedisPublisher, redis_url: str, queue: str
) -> None:
    """A cancellation and a shutdown are not the handler's doing, and are told all the same."""

    def shut_down(_: object) -> None:
        raise KeyboardInterrupt

    async def main() -> None:
        running = asyncio.Event()

        async def wait(_: object) -> None:
            running.set()
            await asyncio.Event().wait()

        async with AsyncRedisConsumer(redis_url, queue, {"urn:a": wait}) as consumer:
            task = asyncio.ensure_future(consumer.poll(0))
            await running.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    publisher.publish("urn:a", {})
    asyncio.run(main())
    with pytest.raises(KeyboardInterrupt):
        RedisConsumer(redis_url, queue, {"urn:a": shut_down}).poll(0)
    errors = ["asyncio.exceptions.CancelledError", "KeyboardInterrupt"]
    assert metrics.counts(PROCESS, ERROR) == dict.fromkeys(errors, 1)
    for span, error in zip(both.starting("process"), errors, strict=True):
        assert (span.attributes or {})[ERROR] == error
        assert span.status.status_code is trace.StatusCode.ERROR


@pytest.mark.parametrize("asked", [{}, {"gauged_queues": "another"}], ids=str)
def test_no_queue_is_counted_that_nobody_asked_for(
    monkeypatch: pytest.MonkeyPatch,
    metrics: Metrics,
    publisher: RedisPublisher,
    consumer_of: Make,
    asked: dict[str, Any],
) -> None:
    """It costs a command each time that metrics are collected."""
    seen: list[set[str]] = []
    provider = metrics.provider
    with instrumented(monkeypatch, TracerProvider(), meter_provider=provider, **asked):
        publisher.publish("urn:a", {})
        consumer = consumer_of(HANDLERS)

        def once() -> bool:
            seen.append(set(metrics.all))
            return len(seen) < 2

        consumer.run(once)
    assert SENT in seen[0]
    assert GAUGE not in seen[0] | seen[1]


def test_metrics_need_no_spans(
    monkeypatch: pytest.MonkeyPatch, metrics: Metrics, publisher: RedisPublisher, consumer_of: Make
) -> None:
    """Without a tracer provider nothing is injected, and everything is counted."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    instrumentor = BabelQueueInstrumentor()
    instrumentor.instrument(meter_provider=metrics.provider)
    headers: list[object] = []
    try:
        publisher.publish_many([("urn:a", {})])
        publisher.publish("urn:a", {})
        consumer = consumer_of({"urn:a": lambda envelope, raw, found: headers.append(found)})
        while consumer.poll(0):
            pass
    finally:
        instrumentor.uninstrument()
    assert headers == [{}, {}]
    assert metrics.counts(SENT) == metrics.counts(CONSUMED) == {(): 2}


def test_a_meter_that_fails_leaves_the_spans(
    monkeypatch: pytest.MonkeyPatch,
    publisher: RedisPublisher,
    consumer_of: Make,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One line in the log, not one for each message."""
    broken: Any = Metrics().provider
    monkeypatch.setattr(type(broken), "get_meter", lambda *_, **__: 1 / 0)
    with instrumented(monkeypatch, TracerProvider(), meter_provider=broken) as spans:
        publisher.publish("urn:a", {})
        assert consumer_of(HANDLERS).poll(0) is Outcome.ACKED
        assert len(spans.all) == 2
    assert len(caplog.records) == 1


@pytest.mark.parametrize("layout", ["legacy", "zset"])
@pytest.mark.parametrize("kind", ["sync", "aio"])
def test_the_length_of_a_served_queue_may_be_told(
    monkeypatch: pytest.MonkeyPatch,
    metrics: Metrics,
    publisher: RedisPublisher,
    consumer_of: Make,
    queue: str,
    layout: str,
) -> None:
    """By state, while a worker serves it, without a thread of ours."""
    publisher.publish_many([("urn:a", {})] * 3)
    if layout == "zset":
        publisher.publish("urn:a", {}, delay=1000)
    go_on = threading.Event()
    consumer = consumer_of({"urn:a": lambda envelope: go_on.wait(60)}, on_error=lambda *_: None)
    provider = metrics.provider
    with instrumented(monkeypatch, TracerProvider(), meter_provider=provider, gauged_queues=queue):
        worker = threading.Thread(target=consumer.run, args=(lambda: not go_on.is_set(),))
        worker.start()
        state = "messaging.babelqueue.state"
        expected = {"ready": 2, "reserved": 1, "dead": 0}
        expected |= {"delayed": 1} if layout == "zset" else {}
        eventually(lambda: metrics.counts(GAUGE, state) == expected)
        go_on.set()
        worker.join()
        assert not metrics.points(GAUGE)


def test_a_queue_is_not_counted_by_the_loop_that_serves_it(
    monkeypatch: pytest.MonkeyPatch,
    metrics: Metrics,
    publisher: RedisPublisher,
    redis_url: str,
    queue: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It would wait for itself; nor by a child that inherited the worker."""
    seen: list[object] = []

    async def main() -> None:
        async def handle(_: object) -> None:
            seen.append(metrics.points(GAUGE))

        async with AsyncRedisConsumer(redis_url, queue, {"urn:a": handle}) as consumer:
            turns = iter([True, False])
            await consumer.run(lambda: next(turns))

    provider = metrics.provider
    with instrumented(monkeypatch, TracerProvider(), meter_provider=provider, gauged_queues="*"):
        publisher.publish("urn:a", {})
        asyncio.run(main())
        inherited = ({"messaging.system": "x"}, Serving(publisher._destination, lambda: None), 1)
        instrumentor = BabelQueueInstrumentor()
        instrumentor._hook.signals.gauges.served = (inherited,)
        assert not metrics.points(GAUGE)
    assert seen == [[]]
    assert not caplog.records


def test_the_sdk_is_measured_too(
    monkeypatch: pytest.MonkeyPatch, metrics: Metrics, redis_url: str, queue: str, store: Store
) -> None:
    """Its publishes and its deliveries, those that no handler was given included."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", TracerProvider())
    instrumentor = BabelQueueSdkInstrumentor()
    instrumentor.instrument(meter_provider=metrics.provider)
    try:
        app = babelqueue.BabelQueue(redis_url, queue=queue, dead_letter=True)
        app.register("urn:a", lambda data, meta: None)
        app.publish("urn:a", {})
        store.push(b"poison")
        app.consume(max_messages=2, timeout=0.01)
    finally:
        instrumentor.uninstrument()
    assert metrics.counts(SENT) == {(): 1}
    assert metrics.counts(CONSUMED, ERROR) == {None: 1, "poison": 1}
    assert metrics.counts(PROCESS, ERROR) == {None: 1, "poison": 1}
    assert metrics.counts(DURATION, OPERATION) == {"publish": 1}
    assert metrics.counts(QUEUE_TIME) == {(): 1}

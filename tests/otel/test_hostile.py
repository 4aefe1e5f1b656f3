"""What may go wrong around a message stays out of the program: each case broke something once."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from babelqueue import BabelQueue
from opentelemetry import baggage, context, trace
from opentelemetry.instrumentation.babelqueue.config import Options
from opentelemetry.instrumentation.babelqueue.sdk import BabelQueueSdkInstrumentor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

from babelqueue_redis import (
    AsyncRedisConsumer,
    JobRegistry,
    JobWorker,
    Outcome,
    RedisConsumer,
    RedisJobStore,
    RedisPublisher,
)
from tests.support.instrumented import instrumented
from tests.support.server import Client
from tests.support.spans import Spans

Make = Callable[..., RedisConsumer]


class Slow(SpanProcessor):
    """Takes its time to hand over, whatever it is told."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def force_flush(self, timeout_millis: int = 0) -> bool:
        """Sleep."""
        time.sleep(self.seconds)
        return True


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    """The instrumentation, with a provider that needs 4 s to flush."""
    provider = TracerProvider()
    provider.add_span_processor(Slow(4))
    with instrumented(monkeypatch, provider) as spans:
        yield spans


@pytest.mark.parametrize("raised", [asyncio.CancelledError, SystemExit, GeneratorExit, ValueError])
def test_whatever_a_hook_raises_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
    publisher: RedisPublisher,
    consumer_of: Make,
    raised: type[BaseException],
) -> None:
    """The message is stored, handled and settled, and no span stays current."""

    def fail(*_: object) -> None:
        raise raised

    hooks = dict.fromkeys(("publish_hook", "process_hook", "settle_hook"), fail)
    with instrumented(monkeypatch, TracerProvider(), settle_spans=True, **hooks) as spans:
        publisher.publish("urn:a", {})
        assert consumer_of({"urn:a": lambda envelope: None}).poll(0) is Outcome.ACKED
        assert not trace.get_current_span().get_span_context().is_valid
        assert len(spans.all) == 3


def test_a_metric_that_fails_leaves_no_span_current(
    monkeypatch: pytest.MonkeyPatch, publisher: RedisPublisher, consumer_of: Make
) -> None:
    """And the span ends."""
    with instrumented(monkeypatch, TracerProvider()) as spans:
        publisher.publish("urn:a", {})
        from opentelemetry.instrumentation.babelqueue.kinds import Process  # noqa: PLC0415

        def fail(*_: Any, **__: Any) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(Process, "_tell_delivery", fail)
        provider = MeterProvider()
        monkeypatch.setattr("opentelemetry.metrics._internal._METER_PROVIDER", provider)
        assert consumer_of({"urn:a": lambda envelope: None}).poll(0) is Outcome.ACKED
        assert not trace.get_current_span().get_span_context().is_valid
        assert [span.name.split()[0] for span in spans.all] == ["publish", "process"]
        provider.shutdown()


def test_what_an_exception_says_can_be_exported(
    spans: Spans, publisher: RedisPublisher, consumer_of: Make
) -> None:
    """A lone surrogate, as in the name of a file, would lose the whole batch."""

    def fail(_: Any) -> None:
        raise FileNotFoundError("no file \udcff")  # noqa: EM101, TRY003 - short

    publisher.publish("urn:a", {})
    consumer_of({"urn:a": fail}, on_error=lambda *_: None).poll(0)
    (span,) = (span for span in spans.all if span.name.startswith("process"))
    assert span.status.description is not None
    span.status.description.encode("utf-8")


def test_a_handler_keeps_the_context_that_is_around_it(
    spans: Spans, publisher: RedisPublisher, consumer_of: Make
) -> None:
    """Values and baggage of the program, where the message does not bring its own."""
    seen: list[Any] = []

    def look(_: Any) -> None:
        seen.append((context.get_value("tenant"), baggage.get_baggage("region")))

    publisher.publish("urn:a", {})
    around = baggage.set_baggage("region", "eu", context.set_value("tenant", "acme"))
    token = context.attach(around)
    try:
        assert consumer_of({"urn:a": look}).poll(0) is Outcome.ACKED
    finally:
        context.detach(token)
    assert seen == [("acme", "eu")]


def test_a_flush_that_takes_long_does_not_hold_an_event_loop(
    slow: Spans, redis_url: str, queue: str
) -> None:
    """The end of a worker goes on without it."""

    async def main() -> float:
        consumer = AsyncRedisConsumer(redis_url, queue)
        consumer.stop()
        start = time.monotonic()
        await consumer.run()
        return time.monotonic() - start

    assert asyncio.run(main()) < 3
    for thread in threading.enumerate():
        if thread.name == "babelqueue-flush":
            thread.join()


def test_jobs_are_given_back_before_anything_is_flushed(
    slow: Spans, redis_url: str, client: Client
) -> None:
    """Nothing extends their leases while the worker ends."""
    prefix = f"bq-hostile-{time.time_ns()}:"
    store = RedisJobStore(redis_url, key_prefix=prefix)
    registry = JobRegistry()
    started, end = threading.Event(), threading.Event()
    at_flush: list[dict[str, int]] = []

    @registry.job("a")
    def handle(payload: Any) -> None:
        started.set()
        end.wait(30)

    def stop() -> None:
        started.wait(30)
        worker.stop()

    flush = Slow.force_flush

    def seen(self: Slow, timeout_millis: int = 0) -> bool:
        at_flush.append(RedisJobStore(redis_url, key_prefix=prefix).count_by_status())
        return flush(self, timeout_millis)

    Slow.force_flush = seen  # type: ignore[method-assign]
    try:
        store.enqueue("a", {}, max_attempts=1)
        worker = JobWorker(store, registry, shutdown_timeout=0.1, concurrency=1)
        threading.Thread(target=stop).start()
        worker.run()
    finally:
        Slow.force_flush = flush  # type: ignore[method-assign]
        end.set()
        client.delete(*client.keys(f"{prefix}*"))
    assert at_flush[0]["pending"] == 1
    assert at_flush[0]["claimed"] == 0


def test_a_gauge_is_there_again_after_instrumenting_again(
    monkeypatch: pytest.MonkeyPatch, publisher: RedisPublisher, consumer_of: Make
) -> None:
    """The meter keeps the first gauge of its name."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    monkeypatch.setattr("opentelemetry.metrics._internal._METER_PROVIDER", provider)

    def names() -> set[str]:
        data = reader.get_metrics_data()
        return {
            metric.name
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if any(metric.data.data_points)
        }

    for _ in range(2):
        seen: list[set[str]] = []
        with instrumented(monkeypatch, TracerProvider(), gauged_queues="*"):
            publisher.publish("urn:a", {})
            consumer = consumer_of({"urn:a": lambda envelope: None})

            def once(seen: list[set[str]] = seen) -> bool:
                seen.append(names())
                return len(seen) < 2

            consumer.run(once)
        assert "messaging.babelqueue.queue.messages" in seen[0]
    provider.shutdown()


@pytest.mark.parametrize(
    "given",
    [{"captured_headers": [1]}, {"gauged_queues": ["a", None]}, {"max_parent_age": 10**400}],
    ids=["headers", "queues", "age"],
)
def test_an_option_that_cannot_be_leaves_its_default(given: dict[str, Any]) -> None:
    """And the others as they are."""
    assert Options.of({**given, "system": "redis"}) == Options.of({"system": "redis"})


class Holder:
    """A provider that cannot make a tracer."""

    def get_tracer(self, *_: object, **__: object) -> Any:
        """Fail."""
        raise StopIteration


@pytest.fixture
def sdk() -> Iterator[BabelQueueSdkInstrumentor]:
    """The SDK instrumented."""
    instrumentor = BabelQueueSdkInstrumentor()
    instrumentor.instrument()
    yield instrumentor
    instrumentor.uninstrument()


def test_a_provider_that_fails_breaks_neither_publish_nor_handler(
    monkeypatch: pytest.MonkeyPatch,
    sdk: BabelQueueSdkInstrumentor,
    redis_url: str,
    queue: str,
    publisher: RedisPublisher,
    consumer_of: Make,
) -> None:
    """Of the SDK and of ours."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", Holder())
    seen: list[Any] = []
    app = BabelQueue(redis_url, queue=queue)
    app.register("urn:a", lambda data, meta: seen.append(data))
    app.publish("urn:a", {"n": 1})
    app.consume(max_messages=1, timeout=0.01)
    publisher.publish("urn:b", {"n": 2})
    consumer = consumer_of({"urn:b": lambda envelope: seen.append(envelope.data)})
    assert consumer.poll(0) is Outcome.ACKED
    assert seen == [{"n": 1}, {"n": 2}]


class Odd:
    """A handler whose attributes fail."""

    @property
    def __wrapped__(self) -> Any:
        """Fail."""
        raise ValueError

    def __call__(self, data: Any, meta: Any) -> None:
        """Handle."""


def circular(data: Any, meta: Any) -> None:
    """Handle."""


functools.update_wrapper(circular, circular)


@pytest.mark.parametrize("handler", [Odd(), circular], ids=["odd", "circular"])
def test_a_handler_of_any_shape_runs(
    spans: Spans,
    sdk: BabelQueueSdkInstrumentor,
    redis_url: str,
    queue: str,
    client: Client,
    handler: Any,
) -> None:
    """Looking through its wrappers ends."""
    calls: list[Any] = []
    app = BabelQueue(redis_url, queue=queue)
    app._handlers["urn:a"] = handler if callable(handler) else calls.append
    app.publish("urn:a", {})
    app.consume(max_messages=1, timeout=0.01)
    assert client.llen(queue) == 0
    assert [span.name for span in spans.all if span.name.startswith("process")]


class Own(BabelQueue):  # type: ignore[misc]  # the SDK is untyped here
    """Has another way to publish with headers, which its ``publish`` does not take."""

    def publish_with_headers(self, *_: Any, **__: Any) -> Any:
        """Refuse."""
        raise PermissionError


def test_a_publish_takes_no_way_that_the_program_did_not_choose(
    spans: Spans, sdk: BabelQueueSdkInstrumentor, redis_url: str, queue: str, client: Client
) -> None:
    """It is published, and traced by its trace id."""
    app = Own(redis_url, queue=queue)
    assert app.publish("urn:a", {})
    assert client.llen(queue) == 1
    assert [span.name for span in spans.all] == [f"publish {queue}"]

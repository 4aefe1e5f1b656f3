"""Every span and metric against the conventions: names, kinds, types, what must be and must not."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from babelqueue import BabelQueue
from opentelemetry import trace
from opentelemetry.instrumentation.babelqueue import semconv
from opentelemetry.instrumentation.babelqueue.metrics import BOUNDARIES
from opentelemetry.instrumentation.babelqueue.sdk import BabelQueueSdkInstrumentor
from opentelemetry.sdk.metrics.export import Gauge, Histogram, Sum
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.semconv._incubating.attributes import messaging_attributes
from opentelemetry.trace import SpanKind

from babelqueue_redis import JobRegistry, JobWorker, RedisConsumer, RedisJobStore, RedisPublisher
from tests.support.instrumented import instrumented
from tests.support.metrics import Metrics
from tests.support.spans import Spans
from tests.support.store import Store

Make = Callable[..., RedisConsumer]

TYPES: dict[str, type] = {
    "messaging.system": str,
    "messaging.operation.name": str,
    "messaging.operation.type": str,
    "messaging.destination.name": str,
    "messaging.batch.message_count": int,
    "messaging.message.id": str,
    "messaging.message.conversation_id": str,
    "messaging.message.body.size": int,
    "messaging.header.tenant": tuple,
    "messaging.babelqueue.message.urn": str,
    "messaging.babelqueue.attempts": int,
    "messaging.babelqueue.layout": str,
    "messaging.babelqueue.outcome": str,
    "server.address": str,
    "server.port": int,
    "error.type": str,
}
ALWAYS = {
    "messaging.system",
    "messaging.operation.name",
    "messaging.operation.type",
    "messaging.destination.name",
    "messaging.babelqueue.layout",
    "server.address",
    "server.port",
}
MESSAGE = {
    "messaging.message.id",
    "messaging.message.conversation_id",
    "messaging.babelqueue.message.urn",
}
OUTCOME = {"messaging.babelqueue.outcome"}
OPTIONAL = {"messaging.message.body.size", "messaging.header.tenant", "error.type"}

# operation: its type, the kinds of its span, what its span must tell besides ALWAYS
SPANS: dict[str, tuple[str, set[SpanKind], set[str]]] = {
    "create": ("create", {SpanKind.PRODUCER}, MESSAGE),
    "publish": ("send", {SpanKind.PRODUCER, SpanKind.CLIENT}, set()),
    "enqueue": ("send", {SpanKind.PRODUCER, SpanKind.CLIENT}, {"messaging.message.id"}),
    "receive": ("receive", {SpanKind.CLIENT}, MESSAGE),
    "process": ("process", {SpanKind.CONSUMER}, OUTCOME),
    "ack": ("settle", {SpanKind.CLIENT}, OUTCOME),
    "release": ("settle", {SpanKind.CLIENT}, OUTCOME),
    "dead_letter": ("settle", {SpanKind.CLIENT}, OUTCOME),
}

COMMON = {
    "messaging.system",
    "messaging.operation.name",
    "messaging.destination.name",
    "server.address",
    "server.port",
}
WITH_TYPE = COMMON | {"messaging.operation.type", "messaging.babelqueue.outcome"}

GAUGED = COMMON - {"messaging.operation.name"} | {"messaging.babelqueue.state"}

# metric: kind of data, unit, attributes it may have, those that not every point has
METRICS: dict[str, tuple[type, str, set[str], set[str]]] = {
    "messaging.client.operation.duration": (Histogram, "s", WITH_TYPE, OUTCOME),
    "messaging.process.duration": (Histogram, "s", COMMON, set()),
    "messaging.client.sent.messages": (Sum, "{message}", COMMON, set()),
    "messaging.client.consumed.messages": (Sum, "{message}", COMMON, set()),
    "messaging.babelqueue.queue.time": (Histogram, "s", COMMON, set()),
    "messaging.babelqueue.queue.time.negative": (Sum, "{message}", COMMON, set()),
    "messaging.babelqueue.queue.messages": (Gauge, "{message}", GAUGED, set()),
    "messaging.babelqueue.jobs": (Gauge, "{job}", GAUGED, set()),
}


def all_that_is_emitted(
    publisher: RedisPublisher, consumer_of: Make, store: Store, metrics: Metrics
) -> dict[str, Any]:
    """Bring about every kind of span and metric; return the metrics, collected once."""

    def fail(_: object) -> None:
        raise ValueError

    handlers = {"urn:a": lambda envelope: None, "urn:fails": fail}
    publisher.publish("urn:a", {}, headers={"tenant": "acme"})
    publisher.publish("urn:fails", {})
    publisher.publish_many([("urn:a", {}), ("urn:a", {})])
    store.push(b"poison", b'{"job":"urn:a","attempts":0,"meta":{"created_at":99999999999999}}')
    consumer = consumer_of(handlers, max_tries=2, on_error=lambda *_: None)
    reservation = consumer.reserve(0)
    assert reservation is not None
    consumer.handle(reservation)
    while consumer.poll(0):
        pass
    publisher.publish("urn:a", {}, headers={"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"})
    found: dict[str, Any] = {}

    def collect() -> bool:
        if not found:
            found.update(metrics.all)
            return True
        return False

    consumer.run(collect)
    return found


@pytest.fixture
def options(queue: str, metrics: Metrics) -> dict[str, Any]:
    """Everything on."""
    return {
        "settle_spans": True,
        "body_size": True,
        "captured_headers": "tenant",
        "gauged_queues": queue,
        "meter_provider": metrics.provider,
    }


@pytest.fixture
def metrics() -> Metrics:
    """Where the values end up."""
    return Metrics()


def check(span: ReadableSpan, queue: str) -> str:
    """Hold one span against the table; return its operation."""
    told = dict(span.attributes or {})
    operation = str(told["messaging.operation.name"])
    operation_type, kinds, required = SPANS[operation]
    assert span.name == f"{operation} {queue}"
    assert span.kind in kinds
    assert told["messaging.operation.type"] == operation_type
    assert told["messaging.destination.name"] == queue
    assert ALWAYS | required <= set(told), operation
    for key, value in told.items():
        assert isinstance(value, TYPES[key]), key
        assert value not in ("", None), key
    assert span.instrumentation_scope is not None
    assert span.instrumentation_scope.name == "opentelemetry.instrumentation.babelqueue"
    assert span.instrumentation_scope.schema_url == semconv.SCHEMA_URL
    return operation


def check_metric(name: str, metric: Any) -> None:
    """Hold one metric against the table."""
    kind, unit, may, need_not = METRICS[name]
    assert issubclass(type(metric.data), kind), name
    assert metric.unit == unit
    assert metric.description
    for point in metric.data.data_points:
        keys = set(point.attributes)
        assert keys - {"error.type"} <= may, name
        assert may - need_not <= keys, name
    if kind is Histogram:
        assert all(point.explicit_bounds == BOUNDARIES for point in metric.data.data_points)
    if kind is Sum:
        assert metric.data.is_monotonic


@pytest.mark.parametrize("layout", ["legacy", "zset"])
def test_everything_is_as_the_conventions_say(
    monkeypatch: pytest.MonkeyPatch,
    publisher: RedisPublisher,
    consumer_of: Make,
    store: Store,
    queue: str,
    metrics: Metrics,
    options: dict[str, Any],
) -> None:
    """Every operation makes its span, and every metric has its value."""
    with instrumented(monkeypatch, TracerProvider(), **options) as spans:
        found = all_that_is_emitted(publisher, consumer_of, store, metrics)
        seen = {check(span, queue) for span in spans.all}
        told = {key for span in spans.all for key in span.attributes or {}}
    assert seen == set(SPANS) - {"enqueue"}
    assert told == set(TYPES)
    assert set(found) == set(METRICS) - {"messaging.babelqueue.jobs"}
    for name, metric in found.items():
        check_metric(name, metric)


def test_jobs_are_as_the_conventions_say(
    monkeypatch: pytest.MonkeyPatch, jobs: RedisJobStore, metrics: Metrics
) -> None:
    """The same tables, with the kind for a queue."""
    found: dict[str, Any] = {}
    registry = JobRegistry()
    registry.job("mail")(lambda payload: found.update(metrics.all))
    options: dict[str, Any] = {"meter_provider": metrics.provider, "gauged_queues": "*"}
    with instrumented(monkeypatch, TracerProvider(), **options) as spans:
        jobs.enqueue("mail", {})
        JobWorker(jobs, registry, poll_interval=0.01).run(lambda: not found)
        assert {check(span, "mail") for span in spans.all} == {"enqueue", "process"}
        found.update(metrics.all)
    assert set(found) == set(METRICS) - {
        "messaging.babelqueue.queue.time.negative",
        "messaging.babelqueue.queue.messages",
    }
    for name, metric in found.items():
        check_metric(name, metric)


def test_the_spans_of_the_sdk_are_as_the_conventions_say(
    monkeypatch: pytest.MonkeyPatch, redis_url: str, queue: str, store: Store
) -> None:
    """The same table."""
    provider = TracerProvider()
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    spans = Spans(provider)
    instrumentor = BabelQueueSdkInstrumentor()
    instrumentor.instrument()
    try:
        app = BabelQueue(redis_url, queue=queue, dead_letter=True)
        app.register("urn:a", lambda data, meta: None)
        app.publish("urn:a", {})
        store.push(b"poison", b'{"job":"urn:new","trace_id":"t"}')
        app.consume(max_messages=3, timeout=0.01)
    finally:
        instrumentor.uninstrument()
    assert {check(span, queue) for span in spans.all} == {"publish", "process"}


def test_what_is_deprecated_is_used_nowhere() -> None:
    """Nothing that the conventions' own package calls deprecated; nothing misspelt."""
    tree = ast.parse(inspect.getsource(messaging_attributes))
    known, deprecated = set(), set()
    for constant, docstring in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(constant, ast.AnnAssign) and isinstance(docstring, ast.Expr):
            assert isinstance(constant.value, ast.Constant)
            assert isinstance(docstring.value, ast.Constant)
            known.add(constant.value.value)
            if str(docstring.value.value).strip().startswith("Deprecated"):
                deprecated.add(constant.value.value)
    assert "messaging.operation" in deprecated
    ours = {
        key
        for key in TYPES
        if key.startswith("messaging.")
        and not key.startswith(("messaging.babelqueue.", "messaging.header."))
    }
    assert ours <= known - deprecated


def test_every_name_stands_in_one_module() -> None:
    """A new convention is a change in one place."""
    package = Path(semconv.__file__).parent
    for path in package.glob("*.py"):
        if path.name != "semconv.py":
            tree = ast.parse(path.read_text())
            texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
            assert not texts & set(TYPES), path


def test_the_table_knows_what_may_be_told() -> None:
    """An attribute that is told nowhere would not be missed otherwise."""
    assert set(TYPES) == ALWAYS | MESSAGE | OUTCOME | OPTIONAL | {
        "messaging.batch.message_count",
        "messaging.babelqueue.attempts",
    }

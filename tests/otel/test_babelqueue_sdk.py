"""The PyPI package ``babelqueue``, instrumented from outside."""

from __future__ import annotations

import functools
import inspect
import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from typing import Any

import babelqueue
import opentelemetry.instrumentation.babelqueue.sdk as instrumentation
import pytest
import redis
from babelqueue import BabelQueue, idempotency, otel
from babelqueue.redis_transport import RedisTransport
from opentelemetry import context, trace
from opentelemetry.instrumentation.babelqueue.sdk import BabelQueueSdkInstrumentor
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import SpanKind, StatusCode

from babelqueue_carrier import uuid_of
from babelqueue_redis import RedisConsumer, RedisPublisher
from babelqueue_redis.verdict import accepts
from kit.redis_server import free_port
from tests.support.server import Client
from tests.support.spans import Spans

METHODS = ("publish", "publish_with_headers", "dispatch", "_invoke")

pytestmark = pytest.mark.usefixtures("_sdk")


@pytest.fixture
def _sdk(monkeypatch: pytest.MonkeyPatch, spans: Spans) -> Iterator[None]:
    """The SDK instrumented, beside the transport."""
    instrumentor = BabelQueueSdkInstrumentor()
    instrumentor.instrument()
    yield
    instrumentor.uninstrument()


@pytest.fixture
def app(redis_url: str, queue: str) -> BabelQueue:
    """An application of the SDK."""
    return BabelQueue(redis_url, queue=queue, dead_letter=True, max_attempts=2)


def drain(app: BabelQueue) -> None:
    """Handle what there is."""
    app.consume(max_messages=10, timeout=0.01)


def attributes(span: ReadableSpan) -> dict[str, Any]:
    """Return a span's attributes."""
    return dict(span.attributes or {})


def parent_of(span: ReadableSpan) -> int | None:
    """Return the id of a span's parent."""
    return span.parent.span_id if span.parent else None


def test_a_handler_is_the_child_of_its_publish(
    spans: Spans, app: BabelQueue, client: Client, queue: str
) -> None:
    """Names, kinds, parent, link and attributes are those of the transport."""
    seen: list[Any] = []
    app.register("urn:a", lambda data, meta: seen.append(data))
    message_id = app.publish("urn:a", {"n": 1})
    frame = json.loads(client.lindex(queue, 0))
    drain(app)
    sent, taken = spans.all
    assert seen == [{"n": 1}]
    assert f"{sent.context.span_id:016x}" in frame["headers"]["traceparent"]
    assert json.loads(frame["body"])["trace_id"] == uuid_of(sent.context.trace_id)
    assert (sent.name, sent.kind) == (f"publish {queue}", SpanKind.PRODUCER)
    assert (taken.name, taken.kind) == (f"process {queue}", SpanKind.CONSUMER)
    assert parent_of(taken) == sent.context.span_id
    assert [link.context.span_id for link in taken.links] == [sent.context.span_id]
    both = {
        "messaging.system": "babelqueue",
        "messaging.destination.name": queue,
        "messaging.message.id": message_id,
        "messaging.message.conversation_id": uuid_of(sent.context.trace_id),
        "messaging.babelqueue.message.urn": "urn:a",
        "messaging.babelqueue.layout": "legacy",
        "server.address": "127.0.0.1",
        "server.port": attributes(sent)["server.port"],
    }
    assert attributes(sent) == {
        **both,
        "messaging.operation.name": "publish",
        "messaging.operation.type": "send",
    }
    assert attributes(taken) == {
        **both,
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.babelqueue.attempts": 0,
        "messaging.babelqueue.outcome": "acked",
    }


def test_failures_that_the_dispatch_swallows_are_seen(spans: Spans, app: BabelQueue) -> None:
    """Each attempt says what it raised, and what becomes of the message."""

    def fail(data: Any, meta: Any) -> None:
        raise ValueError("boom")  # noqa: EM101 - short

    app.register("urn:a", fail)
    app.publish("urn:a", {})
    drain(app)
    _, *tries = spans.all
    assert [attributes(each)["messaging.babelqueue.outcome"] for each in tries] == [
        "retried",
        "dead_lettered",
    ]
    for span in tries:
        assert span.status.status_code is StatusCode.ERROR
        assert span.status.description == "boom"
        assert attributes(span)["error.type"] == "ValueError"
        assert [event.name for event in span.events] == ["exception"]


def test_a_retry_goes_on_in_the_trace_of_its_trace_id(spans: Spans, app: BabelQueue) -> None:
    """The SDK's own retry leaves the headers behind; the envelope still names the trace."""

    def fail(data: Any, meta: Any) -> None:
        raise ValueError

    app.register("urn:a", fail)
    app.publish("urn:a", {})
    drain(app)
    assert len({span.context.trace_id for span in spans.all}) == 1


@pytest.mark.parametrize(
    ("body", "error_type"),
    [(b"poison", "poison"), (b'{"job":"urn:new","trace_id":"t","attempts":1}', "unknown_urn")],
)
def test_a_message_without_a_handler_has_a_span_that_says_why(
    spans: Spans, app: BabelQueue, client: Client, queue: str, body: bytes, error_type: str
) -> None:
    """As in the transport."""
    client.rpush(queue, body)
    drain(app)
    (span,) = spans.all
    assert span.name == f"process {queue}"
    assert span.status.status_code is StatusCode.ERROR
    assert attributes(span)["error.type"] == error_type
    assert attributes(span)["messaging.babelqueue.outcome"] == "dead_lettered"


@pytest.mark.parametrize("strategy", ["delete", "release", "dead_letter"])
def test_what_a_strategy_does_is_told(
    spans: Spans, redis_url: str, client: Client, queue: str, strategy: str
) -> None:
    """The intended outcome of an unknown URN."""
    app = BabelQueue(redis_url, queue=queue, on_unknown_urn=strategy)
    client.rpush(queue, b'{"job":"urn:new","trace_id":"t","data":{},"attempts":0}')
    app.consume(max_messages=1, timeout=0.01)
    told = {"delete": "dropped", "release": "released", "dead_letter": "dead_lettered"}
    assert attributes(spans.all[0])["messaging.babelqueue.outcome"] == told[strategy]


def test_aliases_subclasses_and_objects_made_before_are_covered(
    spans: Spans, redis_url: str, queue: str
) -> None:
    """``run`` is ``consume`` by another name, and a subclass calls up."""
    BabelQueueSdkInstrumentor().uninstrument()

    class Mine(babelqueue.BabelQueue):  # type: ignore[misc]
        def publish(self, urn: str, data: Mapping[str, Any], **options: Any) -> str:
            return str(super().publish(urn, {**data, "mine": True}, **options))

    app = Mine(redis_url, queue=queue)
    BabelQueueSdkInstrumentor().instrument()
    seen: list[Any] = []
    app.handler("urn:a")(lambda data, meta: seen.append(data))
    app.publish("urn:a", {})
    app.run(max_messages=1, timeout=0.01)
    assert seen == [{"mine": True}]
    assert [span.name.split()[0] for span in spans.all] == ["publish", "process"]


def test_a_subclass_that_publishes_its_own_way_is_called_once(
    spans: Spans, redis_url: str, client: Client, queue: str
) -> None:
    """Even one whose header publishing leads back to ``publish``."""

    class Mine(babelqueue.BabelQueue):  # type: ignore[misc]
        def publish_with_headers(self, urn: str, data: Any, headers: Any, **options: Any) -> str:
            return str(self.publish(urn, data, **options))

    Mine(redis_url, queue=queue).publish("urn:a", {})
    assert client.llen(queue) == 1
    assert len(spans.all) == 1


def test_handlers_keep_their_signatures(spans: Spans, app: BabelQueue) -> None:
    """The SDK looks whether one takes the envelope; nothing stands in the way."""
    seen: list[int] = []
    app.register("urn:two", lambda data, meta: seen.append(2))
    app.register("urn:three", lambda data, meta, envelope: seen.append(3))
    app.register("urn:all", lambda *args: seen.append(len(args) + 10))
    for name in ("two", "three", "all"):
        app.publish(f"urn:{name}", {})
    drain(app)
    assert seen == [2, 3, 13]
    assert list(inspect.signature(BabelQueue.publish).parameters)[:3] == ["self", "urn", "data"]


def closing_over(handler: Callable[..., None]) -> Callable[..., None]:
    """Return a decorated handler, as people write it who do not know ``functools.wraps``."""

    def decorated(*args: Any) -> None:
        handler(*args)

    return decorated


AROUND: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda handler: handler,
    "the SDK's own": lambda handler: idempotency.wrap(babelqueue.InMemoryStore(), handler),
    "a partial": functools.partial,
    "a closure": closing_over,
    "several": lambda handler: functools.partial(closing_over(functools.partial(handler))),
}


@pytest.mark.parametrize("around", AROUND)
def test_the_spans_of_the_sdks_own_helper_are_not_doubled(
    spans: Spans, app: BabelQueue, around: str
) -> None:
    """A program that uses ``babelqueue.otel`` has the spans it had, whatever is around it."""
    tracer = trace.get_tracer("app")
    handler = otel.wrap_handler(tracer, lambda data, meta: None)
    app.register("urn:a", AROUND[around](handler))
    otel.publish(tracer, app, "urn:a", {})
    drain(app)
    assert [span.name for span in spans.all] == ["publish urn:a", "process urn:a"]


@pytest.mark.parametrize("around", ["a partial", "a closure", "several"])
def test_a_handler_without_the_sdks_helper_has_a_span(
    spans: Spans, app: BabelQueue, queue: str, around: str
) -> None:
    """However it is wrapped."""
    app.register("urn:a", AROUND[around](lambda data, meta, envelope: None))
    app.publish("urn:a", {})
    drain(app)
    assert [span.name for span in spans.all] == [f"publish {queue}", f"process {queue}"]


def test_given_headers_are_left_alone(
    spans: Spans, app: BabelQueue, client: Client, queue: str
) -> None:
    """A creation context of the caller's makes the publish a CLIENT that links to it."""
    given = {"traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01", "tenant": "acme"}
    app.publish_with_headers("urn:a", {}, given)
    app.publish_with_headers("urn:a", {}, {"tenant": "acme"})
    first, second = (json.loads(raw)["headers"] for raw in client.lrange(queue, 0, -1))
    assert first == given
    assert set(second) == {"tenant", "traceparent"}
    assert [span.kind for span in spans.all] == [SpanKind.CLIENT, SpanKind.PRODUCER]
    assert [f"{link.context.span_id:016x}" for link in spans.all[0].links] == ["b" * 16]


def test_a_given_trace_id_is_kept(
    spans: Spans, app: BabelQueue, client: Client, queue: str
) -> None:
    """The envelope belongs to the caller's chain."""
    app.publish("urn:a", {}, trace_id="chain-7")
    body = json.loads(json.loads(client.lindex(queue, 0))["body"])
    assert body["trace_id"] == "chain-7"
    assert attributes(spans.all[0])["messaging.message.conversation_id"] == "chain-7"


def test_the_zset_layout_goes_on_by_trace_id(spans: Spans, redis_url: str, queue: str) -> None:
    """Where headers have no place, the trace is the same all the same."""
    transport = RedisTransport(redis_url, laravel_compat=True)
    app = BabelQueue(transport=transport, queue=queue)
    app.register("urn:a", lambda data, meta: None)
    app.publish("urn:a", {})
    drain(app)
    sent, taken = spans.all
    assert sent.context.trace_id == taken.context.trace_id
    assert attributes(taken)["messaging.babelqueue.layout"] == "zset"


@pytest.mark.parametrize(("ratio", "expected"), [(0, 0), (1, 2)])
@pytest.mark.parametrize("laravel", [False, True])
def test_sampling_is_never_forced(
    monkeypatch: pytest.MonkeyPatch,
    redis_url: str,
    queue: str,
    ratio: float,
    expected: int,
    *,
    laravel: bool,
) -> None:
    """Not with headers, and not without."""
    provider = TracerProvider(sampler=ParentBased(TraceIdRatioBased(ratio)))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    sampled = Spans(provider)
    app = BabelQueue(transport=RedisTransport(redis_url, laravel_compat=laravel), queue=queue)
    app.register("urn:a", lambda data, meta: None)
    app.publish("urn:a", {})
    drain(app)
    assert len(sampled.all) == expected


def test_a_trace_goes_through_both_kinds_of_worker(
    spans: Spans, app: BabelQueue, redis_url: str, queue: str
) -> None:
    """From the SDK to the transport, and back."""
    consumer = RedisConsumer(redis_url, queue, {"urn:a": lambda envelope: None})
    app.publish("urn:a", {})
    consumer.poll(0)
    app.register("urn:b", lambda data, meta: None)
    RedisPublisher(redis_url, queue).publish("urn:b", {})
    drain(app)
    for sent, taken in (spans.all[:2], spans.all[2:]):
        assert parent_of(taken) == sent.context.span_id


def test_other_transports_are_traced_too(spans: Spans) -> None:
    """Without what only the Redis transport tells: the server and the layout."""
    app = BabelQueue("memory://", queue="orders")
    app.register("urn:a", lambda data, meta: None)
    app.publish("urn:a", {})
    app.consume(max_messages=1, timeout=0)
    sent, taken = spans.all
    assert parent_of(taken) == sent.context.span_id
    for span in spans.all:
        assert not {"server.address", "messaging.babelqueue.layout"} & set(attributes(span))


def test_an_interrupted_handler_ends_its_span(spans: Spans, app: BabelQueue) -> None:
    """The message is given back, and the span says what interrupted it."""

    def interrupt(data: Any, meta: Any) -> None:
        raise KeyboardInterrupt

    app.register("urn:a", interrupt)
    app.publish("urn:a", {})
    app.consume(max_messages=1, timeout=0.01)
    told = attributes(spans.all[-1])
    assert told["error.type"] == "KeyboardInterrupt"
    assert told["messaging.babelqueue.outcome"] == "released"


def test_a_failing_publish_raises_what_it_raised(spans: Spans, app: BabelQueue) -> None:
    """Once, and its span says so; a wrong call is the SDK's to refuse."""
    before = context.get_current()
    gone = BabelQueue(f"redis://127.0.0.1:{free_port()}", queue="orders")
    with pytest.raises(redis.ConnectionError):
        gone.publish("urn:a", {})
    assert attributes(spans.all[0])["error.type"] == "redis.exceptions.ConnectionError"
    assert context.get_current() == before
    spans.clear()
    with pytest.raises(TypeError):
        app.publish("urn:a")
    assert not spans.all


def test_a_broken_tracer_breaks_nothing(
    app: BabelQueue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One publish, one run, and lines in the log."""

    class Broken(TracerProvider):
        def get_tracer(self, *_: Any, **__: Any) -> Any:
            class Tracer:
                def start_span(self, *_: Any, **__: Any) -> Any:
                    raise RuntimeError

            return Tracer()

    monkeypatch.setattr(trace, "_TRACER_PROVIDER", Broken())
    runs: list[Any] = []
    app.register("urn:a", lambda data, meta: runs.append(data))
    with caplog.at_level(logging.ERROR):
        app.publish("urn:a", {})
        drain(app)
    assert runs == [{}]
    assert caplog.text.count("is not traced") == 2


def test_uninstrumenting_restores_the_class(
    spans: Spans, app: BabelQueue, client: Client, queue: str
) -> None:
    """Three times; twice is once."""
    instrumentor = BabelQueueSdkInstrumentor()
    for _ in range(3):
        instrumentor.uninstrument()
        assert not any(hasattr(getattr(BabelQueue, name), "__wrapped__") for name in METHODS)
        app.publish("urn:a", {})
        assert accepts(client.lpop(queue))
        assert not spans.all
        instrumentor.instrument()
        instrumentor.instrument()
        app.publish("urn:a", {})
        client.delete(queue)
        assert len(spans.all) == 1
        spans.clear()


@pytest.mark.parametrize("missing", ["absent", "too old", "another shape"])
def test_without_a_fit_target_nothing_happens(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, missing: str
) -> None:
    """And nothing is raised: that would stop the instrumentors after it."""
    instrumentor = BabelQueueSdkInstrumentor()
    instrumentor.uninstrument()
    if missing == "absent":
        monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    elif missing == "too old":
        monkeypatch.setattr(instrumentation, "_instruments_sdk", ("babelqueue >= 99",))
    else:
        monkeypatch.delattr(BabelQueue, "_invoke")
    instrumentor.instrument()
    assert not hasattr(BabelQueue.publish, "__wrapped__")
    assert bool(caplog.records) is (missing != "absent")


def test_both_targets_are_told_of_in_the_extra_and_neither_is_needed() -> None:
    """``instruments-any``: the tool loads us when one of them is there, a pre-release too."""
    wanted = metadata.requires("opentelemetry-instrumentation-babelqueue") or []
    extra = sorted(line.split(";")[0] for line in wanted if "instruments-any" in line)
    assert extra == ["babelqueue-redis>=0.1.0.dev0", "babelqueue>=1.18.0.dev0"]
    entries = metadata.entry_points(group="opentelemetry_instrumentor", name="babelqueue")
    assert [entry.load() for entry in entries] == [BabelQueueSdkInstrumentor]


LATE = """
import sys
from opentelemetry.instrumentation.babelqueue.sdk import BabelQueueSdkInstrumentor
from opentelemetry.sdk.trace import TracerProvider

class NoTransport:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "babelqueue_redis":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, NoTransport())
instrumentor = BabelQueueSdkInstrumentor()
for _ in range(2):
    instrumentor.instrument(tracer_provider=TracerProvider())
    instrumentor.uninstrument()
instrumentor.instrument(tracer_provider=TracerProvider())
assert "babelqueue" not in sys.modules
from babelqueue import BabelQueue
BabelQueue(sys.argv[1], queue=sys.argv[2]).publish("urn:a", {})
instrumentor.uninstrument()
BabelQueue(sys.argv[1], queue=sys.argv[2]).publish("urn:a", {})
"""


def test_the_sdk_may_be_imported_later_and_the_transport_be_absent(
    redis_url: str, client: Client, queue: str
) -> None:
    """A hook waits for the import, and wraps once."""
    subprocess.run([sys.executable, "-c", LATE, redis_url, queue], check=True, timeout=60)
    first, second = client.lrange(queue, 0, -1)
    assert "traceparent" in json.loads(first)["headers"]
    assert accepts(second)

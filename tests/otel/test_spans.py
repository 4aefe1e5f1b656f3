from __future__ import annotations

import json
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import redis
from opentelemetry import baggage, context, propagate, trace
from opentelemetry.propagators.b3 import B3MultiFormat
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.sampling import (
    Decision,
    ParentBased,
    Sampler,
    SamplingResult,
    TraceIdRatioBased,
)
from opentelemetry.trace import SpanKind, StatusCode

from babelqueue_carrier import inject, uuid_of
from babelqueue_redis import Envelope, Outcome, PublishError, RedisConsumer, RedisPublisher
from kit.redis_server import free_port
from tests.support.instrumented import instrumented
from tests.support.server import Client
from tests.support.spans import Spans

Make = Callable[..., RedisConsumer]


def fail(_: Envelope) -> None:
    """A handler that always fails."""
    raise ValueError("boom")  # noqa: EM101 - short


def is_child(child: ReadableSpan, parent: ReadableSpan) -> bool:
    """Tell whether one span is the other's child, and linked to it."""
    return (
        child.parent is not None
        and child.parent.span_id == parent.context.span_id
        and child.context.trace_id == parent.context.trace_id
        and [link.context.span_id for link in child.links] == [parent.context.span_id]
    )


def test_a_delivery_is_the_child_of_its_publish(
    spans: Spans, publisher: RedisPublisher, consumer_of: Make, client: Client, queue: str
) -> None:
    """Parent and link; names, kinds and attributes of the conventions."""
    message_id = publisher.publish("urn:a", {})
    document = json.loads(json.loads(client.lindex(queue, 0))["body"])
    assert consumer_of({"urn:a": lambda envelope: None}).poll(0) is Outcome.ACKED
    sent, taken = spans.all
    assert (sent.name, sent.kind) == (f"publish {queue}", SpanKind.PRODUCER)
    assert (taken.name, taken.kind) == (f"process {queue}", SpanKind.CONSUMER)
    assert sent.parent is None
    assert is_child(taken, sent)
    assert document["trace_id"] == uuid_of(sent.context.trace_id)
    both = {
        "messaging.system": "babelqueue",
        "messaging.destination.name": queue,
        "messaging.message.id": message_id,
        "messaging.message.conversation_id": document["trace_id"],
        "messaging.babelqueue.message.urn": "urn:a",
        "messaging.babelqueue.layout": "legacy",
        "server.address": "127.0.0.1",
        "server.port": publisher._destination.port,
    }
    assert sent.attributes == {
        **both,
        "messaging.operation.name": "publish",
        "messaging.operation.type": "send",
    }
    assert taken.attributes == {
        **both,
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.babelqueue.attempts": 0,
        "messaging.babelqueue.outcome": "acked",
    }
    for span in (sent, taken):
        assert span.status.status_code is StatusCode.UNSET
        assert span.instrumentation_scope is not None
        assert span.instrumentation_scope.name.startswith(
            "opentelemetry.instrumentation.babelqueue"
        )
        assert span.instrumentation_scope.schema_url == "https://opentelemetry.io/schemas/1.44.0"


def test_all_attempts_hang_under_one_publish(
    spans: Spans, publisher: RedisPublisher, consumer_of: Make, client: Client, queue: str
) -> None:
    """Through retries and into the dead letter, which keeps the headers."""
    publisher.publish("urn:a", {})
    headers = json.loads(client.lindex(queue, 0))["headers"]
    consumer = consumer_of({"urn:a": fail}, on_error=lambda *_: None)
    while consumer.poll(0):
        pass
    sent, *tries = spans.all
    assert len(tries) == 3
    assert all(is_child(span, sent) for span in tries)
    attributes = [dict(span.attributes or {}) for span in tries]
    assert [each["messaging.babelqueue.attempts"] for each in attributes] == [0, 1, 2]
    outcomes = [each["messaging.babelqueue.outcome"] for each in attributes]
    assert outcomes == ["retried", "retried", "dead_lettered"]
    for span, each in zip(tries, attributes, strict=True):
        assert span.status.status_code is StatusCode.ERROR
        assert span.status.description == "boom"
        assert each["error.type"] == "ValueError"
        assert [event.name for event in span.events] == ["exception"]
    assert json.loads(client.lindex(f"{queue}.dlq", 0))["headers"] == headers


@pytest.mark.parametrize(
    ("stored", "error_type"),
    [(b"poison", "poison"), (b'{"job":"urn:new","attempts":2}', "unknown_urn")],
)
def test_a_refused_message_has_a_span_that_says_why(
    spans: Spans,
    consumer_of: Make,
    client: Client,
    queue: str,
    stored: bytes,
    error_type: str,
) -> None:
    """Nothing ran, but somebody will look for it."""
    client.rpush(queue, stored)
    consumer_of(on_error=lambda *_: None).poll(0)
    (span,) = spans.all
    assert span.name == f"process {queue}"
    assert span.status.status_code is StatusCode.ERROR
    attributes = dict(span.attributes or {})
    assert attributes["error.type"] == error_type
    assert attributes["messaging.babelqueue.outcome"] == "dead_lettered"


def test_the_span_is_current_in_the_handler_and_only_there(
    spans: Spans, publisher: RedisPublisher, consumer_of: Make
) -> None:
    """What the handler does, a publish for instance, belongs to it."""
    before = context.get_current()
    publisher.publish("urn:a", {})

    def handle(envelope: Envelope) -> None:
        assert trace.get_current_span().get_span_context().is_valid
        publisher.publish("urn:b", {})

    consumer = consumer_of({"urn:a": handle, "urn:b": lambda envelope: None})
    while consumer.poll(0):
        pass
    first, inner, outer, last = spans.all
    assert is_child(outer, first)
    assert inner.parent is not None
    assert inner.parent.span_id == outer.context.span_id
    assert is_child(last, inner)
    assert len({span.context.trace_id for span in spans.all}) == 1
    assert context.get_current() == before


def test_an_interrupted_handler_ends_its_span(
    spans: Spans, publisher: RedisPublisher, consumer_of: Make
) -> None:
    """With the error's type, and what became of the message."""

    def interrupt(_: Envelope) -> None:
        raise KeyboardInterrupt

    publisher.publish("urn:a", {})
    with pytest.raises(KeyboardInterrupt):
        consumer_of({"urn:a": interrupt}).poll(0)
    attributes = dict(spans.all[-1].attributes or {})
    assert attributes["error.type"] == "KeyboardInterrupt"
    assert attributes["messaging.babelqueue.outcome"] == "released"


def test_a_given_creation_context_is_left_alone(
    spans: Spans, publisher: RedisPublisher, consumer_of: Make, client: Client, queue: str
) -> None:
    """Its bytes stay, the publish becomes a CLIENT span that links to it."""
    given = {"traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01", "tenant": "acme"}
    publisher.publish("urn:a", {}, headers=given)
    frame = json.loads(client.lindex(queue, 0))
    assert frame["headers"] == given
    assert json.loads(frame["body"])["trace_id"] == uuid_of(int("a" * 32, 16))
    consumer_of({"urn:a": lambda envelope: None}).poll(0)
    sent, taken = spans.all
    assert sent.kind is SpanKind.CLIENT
    assert [f"{link.context.span_id:016x}" for link in sent.links] == ["b" * 16]
    assert taken.parent is not None
    assert f"{taken.parent.span_id:016x}" == "b" * 16


def test_a_sampler_sees_the_chain_of_a_publish_inside_a_trace(
    monkeypatch: pytest.MonkeyPatch, publisher: RedisPublisher
) -> None:
    """All that can be known is told at the start, where samplers look."""
    seen: list[dict[str, object]] = []

    class Sees(Sampler):
        def should_sample(self, *args: Any, **_: Any) -> SamplingResult:
            seen.append(dict(args[4] or {}))
            return SamplingResult(Decision.RECORD_AND_SAMPLE)

        def get_description(self) -> str:
            return "sees"

    with instrumented(monkeypatch, TracerProvider(sampler=Sees())):
        with trace.get_tracer("app").start_as_current_span("request") as request:
            publisher.publish("urn:a", {})
        publisher.publish("urn:a", {}, trace_id="chain-7")
    chain = uuid_of(request.get_span_context().trace_id)
    told = [each.get("messaging.message.conversation_id") for each in seen]
    assert told == [None, chain, "chain-7"]


def test_the_explicit_way_joins_the_same_trace(
    spans: Spans, publisher: RedisPublisher, consumer_of: Make
) -> None:
    """``publish(headers=inject())`` under a span of one's own."""
    with trace.get_tracer("app").start_as_current_span("request") as request:
        publisher.publish("urn:a", {}, headers=inject())
    consumer_of({"urn:a": lambda envelope: None}).poll(0)
    taken = spans.starting("process ")[0]
    assert taken.parent is not None
    assert taken.parent.span_id == request.get_span_context().span_id


def test_headers_that_do_not_name_a_context_travel_with_one(
    spans: Spans, publisher: RedisPublisher, client: Client, queue: str
) -> None:
    """What the caller gave is never changed; what is missing is added."""
    publisher.publish("urn:a", {}, headers={"tenant": "acme"})
    headers = json.loads(client.lindex(queue, 0))["headers"]
    (sent,) = spans.all
    assert headers["tenant"] == "acme"
    assert f"{sent.context.span_id:016x}" in headers["traceparent"]


def test_a_malformed_creation_context_is_the_callers_all_the_same(
    spans: Spans, publisher: RedisPublisher, consumer_of: Make, client: Client, queue: str
) -> None:
    """It stays; the envelope's trace id keeps the trace together."""
    token = context.attach(baggage.set_baggage("user", "7"))
    try:
        publisher.publish("urn:a", {}, headers={"traceparent": "nonsense", "baggage": "mine=1"})
    finally:
        context.detach(token)
    headers = json.loads(client.lindex(queue, 0))["headers"]
    assert headers == {"traceparent": "nonsense", "baggage": "mine=1"}
    consumer_of({"urn:a": lambda envelope: None}).poll(0)
    sent, taken = spans.all
    assert sent.kind is SpanKind.PRODUCER
    assert taken.context.trace_id == sent.context.trace_id


def test_a_given_trace_id_is_kept(
    spans: Spans, publisher: RedisPublisher, client: Client, queue: str
) -> None:
    """The envelope belongs to the caller's chain."""
    publisher.publish("urn:a", {}, trace_id="chain-7")
    assert json.loads(json.loads(client.lindex(queue, 0))["body"])["trace_id"] == "chain-7"
    assert (spans.all[0].attributes or {})["messaging.message.conversation_id"] == "chain-7"


def test_a_batch_has_a_create_span_for_each_message(
    spans: Spans, publisher: RedisPublisher, consumer_of: Make, queue: str
) -> None:
    """And one publish span, a CLIENT that links to all of them."""
    publisher.publish_many([("urn:a", {}), ("urn:b", {})])
    consumer = consumer_of({"urn:a": lambda envelope: None, "urn:b": lambda envelope: None})
    while consumer.poll(0):
        pass
    first, second, sent, *taken = spans.all
    assert {first.name, second.name} == {f"create {queue}"}
    assert (sent.name, sent.kind) == (f"publish {queue}", SpanKind.CLIENT)
    created = [first.context.span_id, second.context.span_id]
    assert [link.context.span_id for link in sent.links] == created
    assert (sent.attributes or {})["messaging.batch.message_count"] == 2
    for creation, process in zip((first, second), taken, strict=True):
        assert creation.kind is SpanKind.PRODUCER
        assert is_child(process, creation)
        for key in ("messaging.message.id", "messaging.message.conversation_id"):
            assert (creation.attributes or {})[key] == (process.attributes or {})[key]


def test_the_messages_of_a_batch_may_have_one_given_context(
    spans: Spans, publisher: RedisPublisher, client: Client, queue: str
) -> None:
    """Then there is nothing to create: the publish links to it."""
    given = {"traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01"}
    publisher.publish_many([("urn:a", {}), ("urn:a", {})], headers=given)
    (sent,) = spans.all
    assert sent.kind is SpanKind.CLIENT
    assert {f"{link.context.span_id:016x}" for link in sent.links} == {"b" * 16}
    assert all(json.loads(raw)["headers"] == given for raw in client.lrange(queue, 0, -1))


def test_a_batch_may_have_one_span_only(
    monkeypatch: pytest.MonkeyPatch, publisher: RedisPublisher, consumer_of: Make
) -> None:
    """A PRODUCER that every message carries."""
    with instrumented(monkeypatch, TracerProvider(), create_spans=False) as spans:
        check_batch_with_one_span(spans, publisher, consumer_of)


def check_batch_with_one_span(spans: Spans, publisher: RedisPublisher, consumer_of: Make) -> None:
    """Publish two messages and look at the spans."""
    publisher.publish_many([("urn:a", {}), ("urn:a", {})])
    consumer = consumer_of({"urn:a": lambda envelope: None})
    while consumer.poll(0):
        pass
    sent, *taken = spans.all
    assert sent.kind is SpanKind.PRODUCER
    assert (sent.attributes or {})["messaging.batch.message_count"] == 2
    assert len(taken) == 2
    assert all(is_child(span, sent) for span in taken)


def test_baggage_reaches_the_handler(
    spans: Spans, publisher: RedisPublisher, consumer_of: Make
) -> None:
    """Whatever the global propagator carries does."""
    seen: list[object] = []
    token = context.attach(baggage.set_baggage("user", "7"))
    try:
        publisher.publish("urn:a", {})
    finally:
        context.detach(token)
    consumer_of({"urn:a": lambda envelope: seen.append(baggage.get_baggage("user"))}).poll(0)
    assert seen == ["7"]
    assert spans.all


def test_another_propagator_is_used(
    spans: Spans,
    publisher: RedisPublisher,
    consumer_of: Make,
    client: Client,
    queue: str,
    request: pytest.FixtureRequest,
) -> None:
    """B3, as configured for the process."""
    request.addfinalizer(partial(propagate.set_global_textmap, propagate.get_global_textmap()))
    propagate.set_global_textmap(B3MultiFormat())
    publisher.publish("urn:a", {})
    headers = json.loads(client.lindex(queue, 0))["headers"]
    assert "x-b3-traceid" in headers
    assert "traceparent" not in headers
    consumer_of({"urn:a": lambda envelope: None}).poll(0)
    sent, taken = spans.all
    assert is_child(taken, sent)


def test_without_headers_the_trace_id_gives_the_trace(
    spans: Spans, consumer_of: Make, client: Client, queue: str
) -> None:
    """As every SDK derives it."""
    trace_id = "7b3f9c2a-e41d-4f88-9b2a-1c0d5e6f7a8b"
    client.rpush(queue, json.dumps({"job": "urn:a", "trace_id": trace_id}))
    consumer_of({"urn:a": lambda envelope: None}).poll(0)
    (taken,) = spans.all
    assert f"{taken.context.trace_id:032x}" == trace_id.replace("-", "")


@pytest.mark.parametrize(("ratio", "expected"), [(0, 0), (1, 3)])
def test_sampling_is_never_forced(
    monkeypatch: pytest.MonkeyPatch,
    publisher: RedisPublisher,
    consumer_of: Make,
    client: Client,
    queue: str,
    ratio: float,
    expected: int,
) -> None:
    """A ratio of 0 gives no span at all, with headers and without; 1 gives all."""
    provider = TracerProvider(sampler=ParentBased(TraceIdRatioBased(ratio)))
    with instrumented(monkeypatch, provider) as spans:
        publisher.publish("urn:a", {})
        client.rpush(queue, json.dumps({"job": "urn:a", "trace_id": "chain-7"}))
        consumer = consumer_of({"urn:a": lambda envelope: None})
        while consumer.poll(0):
            pass
        assert len(spans.all) == expected


def test_a_publish_that_fails_ends_its_span_with_the_error(spans: Spans) -> None:
    """And restores the context."""
    before = context.get_current()
    with pytest.raises(PublishError):
        RedisPublisher(redis.Redis(port=free_port()), "orders").publish("urn:a", {})
    (span,) = spans.all
    assert span.status.status_code is StatusCode.ERROR
    assert (span.attributes or {})["error.type"] == "babelqueue_redis.errors.PublishError"
    assert context.get_current() == before


def test_bad_input_makes_no_span(spans: Spans, publisher: RedisPublisher) -> None:
    """It never becomes a publish."""
    with pytest.raises(ValueError, match="data"):
        publisher.publish("urn:a", {"a": object()})
    assert not spans.all


def test_payloads_and_header_values_stay_out_of_spans_and_logs(
    spans: Spans,
    publisher: RedisPublisher,
    consumer_of: Make,
    client: Client,
    queue: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Of good messages, of poison, of failures."""
    with caplog.at_level(logging.DEBUG):
        publisher.publish("urn:a", {"s": "S3CRET"}, headers={"k": "S3CRET"}, meta={"x": "S3CRET"})
        publisher.publish("urn:unknown", {"s": "S3CRET"})
        client.rpush(queue, b'S3CRET {"a":')
        client.rpush(queue, b'{"job":"urn:a","data":["S3CRET"]}')
        consumer = consumer_of({"urn:a": fail}, max_tries=1)
        while consumer.poll(0):
            pass
    assert len(spans.all) == 6
    assert "S3CRET" not in caplog.text
    for span in spans.all:
        assert "S3CRET" not in span.to_json()

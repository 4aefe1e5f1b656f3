"""The steps around a delivery, what goes wrong in them, and what outlives them."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import context, trace
from opentelemetry._logs import SeverityNumber
from opentelemetry.sdk._logs import LoggerProvider, LoggingHandler
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.trace import SpanKind, StatusCode

from babelqueue_redis import (
    AsyncRedisConsumer,
    Envelope,
    Outcome,
    PublishError,
    RedisConsumer,
    RedisPublisher,
    SettlementError,
    TransportError,
)
from kit.redis_server import free_port
from tests.support.instrumented import instrumented
from tests.support.server import Client
from tests.support.spans import Spans
from tests.support.store import Store

Make = Callable[..., RedisConsumer]
HANDLERS = {"urn:a": lambda envelope: None}


def told(span: ReadableSpan) -> dict[str, Any]:
    """Return a span's attributes."""
    return dict(span.attributes or {})


def fail(_: Envelope) -> None:
    """A handler that always fails."""
    raise ValueError("boom")  # noqa: EM101 - short


@pytest.mark.parametrize("layout", ["legacy", "zset"])
@pytest.mark.parametrize("kind", ["sync", "aio"])
@pytest.mark.parametrize(
    ("options", "stored", "operation", "outcome"),
    [
        ({}, "urn:a", "ack", "acked"),
        ({}, "urn:fails", "release", "retried"),
        ({"max_tries": 1}, "urn:fails", "dead_letter", "dead_lettered"),
        ({"unknown_urn": "delete"}, "urn:new", "ack", "dropped"),
        ({"unknown_urn": "release"}, "urn:new", "release", "released"),
    ],
    ids=str,
)
def test_a_settlement_may_have_a_span(
    monkeypatch: pytest.MonkeyPatch,
    publisher: RedisPublisher,
    consumer_of: Make,
    queue: str,
    options: dict[str, Any],
    stored: str,
    operation: str,
    outcome: str,
) -> None:
    """A CLIENT under the span of the delivery, linked to the creation context."""
    with instrumented(monkeypatch, TracerProvider(), settle_spans=True) as spans:
        message_id = publisher.publish(stored, {})
        handlers = {**HANDLERS, "urn:fails": fail}
        consumer_of(handlers, on_error=lambda *_: None, **options).poll(0)
        sent, taken, settled = spans.all
    assert (settled.name, settled.kind) == (f"{operation} {queue}", SpanKind.CLIENT)
    assert settled.parent is not None
    assert settled.parent.span_id == taken.context.span_id
    assert [link.context for link in settled.links] == [link.context for link in taken.links]
    assert settled.context.trace_id == sent.context.trace_id
    attributes = told(settled)
    assert attributes["messaging.operation.name"] == operation
    assert attributes["messaging.operation.type"] == "settle"
    assert attributes["messaging.message.id"] == message_id
    assert attributes["messaging.babelqueue.outcome"] == outcome


@pytest.mark.parametrize("layout", ["legacy", "zset"])
@pytest.mark.parametrize("kind", ["sync", "aio"])
@pytest.mark.parametrize("concurrency", [1, 3])
def test_settlements_that_travel_together_have_a_span_each(
    monkeypatch: pytest.MonkeyPatch,
    publisher: RedisPublisher,
    consumer_of: Make,
    concurrency: int,
) -> None:
    """Under the span of their own delivery, with their own outcome."""
    with instrumented(monkeypatch, TracerProvider(), settle_spans=True) as spans:
        for urn in ("urn:a", "urn:fails", "urn:a", "urn:new", "urn:a"):
            publisher.publish(urn, {})
        consumer = consumer_of(
            {**HANDLERS, "urn:fails": fail},
            prefetch=5,
            concurrency=concurrency,
            block_timeout=0,
            max_tries=1,
            unknown_urn="delete",
            on_error=lambda *_: None,
        )
        asked = iter(range(5))
        consumer.run(lambda: next(asked, None) is not None)
        made = {span.context.span_id: span for span in spans.all}
    settled = [
        span for span in made.values() if told(span).get("messaging.operation.type") == "settle"
    ]
    assert len(settled) == 5
    for span in settled:
        assert span.parent is not None
        process = made[span.parent.span_id]
        assert process.name.startswith("process")
        for key in ("messaging.message.id", "messaging.babelqueue.outcome"):
            assert told(process)[key] == told(span)[key]
    outcomes = sorted(str(told(span)["messaging.babelqueue.outcome"]) for span in settled)
    assert outcomes == ["acked", "acked", "acked", "dead_lettered", "dropped"]


def test_a_settlement_that_came_too_late_says_so(
    monkeypatch: pytest.MonkeyPatch, publisher: RedisPublisher, consumer_of: Make, store: Store
) -> None:
    """The span of the delivery says what was intended; the log line is the settlement's."""

    def handle(_: Envelope) -> None:
        store.expire()
        assert consumer_of()._reserve(0) is not None

    with instrumented(monkeypatch, TracerProvider(), settle_spans=True) as spans:
        publisher.publish("urn:a", {})
        assert consumer_of({"urn:a": handle}).poll(0) is Outcome.EXPIRED
        _, taken, settled = spans.all
    assert told(taken)["messaging.babelqueue.outcome"] == "acked"
    assert told(settled)["messaging.babelqueue.outcome"] == "expired"


def test_a_settlement_that_fails_ends_its_span_with_the_error(
    monkeypatch: pytest.MonkeyPatch, private_client: Client
) -> None:
    """As a publish does."""
    settings = private_client.connection_pool.connection_kwargs
    url = f"redis://127.0.0.1:{settings['port']}"

    def shut_down(_: Envelope) -> None:
        private_client.shutdown(nosave=True)

    with instrumented(monkeypatch, TracerProvider(), settle_spans=True) as spans:
        RedisPublisher(url, "orders").publish("urn:a", {})
        with pytest.raises(SettlementError):
            RedisConsumer(url, "orders", {"urn:a": shut_down}).poll(0)
        settled = spans.all[-1]
    assert settled.name == "ack orders"
    assert settled.status.status_code is StatusCode.ERROR
    assert told(settled)["error.type"] == "babelqueue_redis.errors.SettlementError"


def test_nothing_is_settled_when_a_message_is_left(
    monkeypatch: pytest.MonkeyPatch, publisher: RedisPublisher, consumer_of: Make
) -> None:
    """``on_failure="leave"`` sends nothing."""
    with instrumented(monkeypatch, TracerProvider(), settle_spans=True) as spans:
        publisher.publish("urn:a", {})
        consumer = consumer_of({"urn:a": fail}, on_failure="leave", on_error=lambda *_: None)
        assert consumer.poll(0) is Outcome.LEFT
        assert [span.name.split()[0] for span in spans.all] == ["publish", "process"]


@pytest.mark.parametrize("layout", ["legacy", "zset"])
@pytest.mark.parametrize("kind", ["sync", "aio"])
def test_a_message_that_a_program_takes_itself_has_a_receive_span(
    spans: Spans, publisher: RedisPublisher, consumer_of: Make, queue: str, layout: str
) -> None:
    """Under what is current there, linked to its creation; none when nothing came."""
    message_id = publisher.publish("urn:a", {})
    consumer = consumer_of(HANDLERS)
    with trace.get_tracer("app").start_as_current_span("loop") as loop:
        reservation = consumer.reserve(0)
        assert consumer.reserve(0) is None
    assert reservation is not None
    consumer.handle(reservation)
    sent, received, _, taken = spans.all
    assert (received.name, received.kind) == (f"receive {queue}", SpanKind.CLIENT)
    assert received.parent is not None
    assert received.parent.span_id == loop.get_span_context().span_id
    assert [link.context.trace_id for link in received.links] == [sent.context.trace_id]
    if layout == "legacy":
        assert [link.context.span_id for link in received.links] == [sent.context.span_id]
    assert received.start_time is not None
    assert received.end_time is not None
    assert sent.end_time is not None
    assert sent.end_time <= received.start_time <= received.end_time
    assert told(received)["messaging.operation.type"] == "receive"
    assert told(received)["messaging.message.id"] == message_id
    assert taken.parent is not None


def test_poison_that_a_program_takes_itself_has_a_receive_span(
    spans: Spans, consumer_of: Make, store: Store
) -> None:
    """It was received; that it is poison is found out when it is handled."""
    store.push(b"poison")
    assert consumer_of(HANDLERS).reserve(0) is not None
    (received,) = spans.all
    assert "messaging.message.id" not in told(received)
    assert not received.links


def test_a_reserve_that_fails_makes_no_span(spans: Spans) -> None:
    """No message came; the error is the program's to see."""
    before = context.get_current()
    with pytest.raises(TransportError):
        RedisConsumer(f"redis://127.0.0.1:{free_port()}", "orders").reserve(0)
    assert not spans.all
    assert context.get_current() == before


def test_a_cancelled_handler_ends_its_span(
    spans: Spans, publisher: RedisPublisher, redis_url: str, queue: str
) -> None:
    """``CancelledError`` is an error, and the message is given back."""

    async def main() -> None:
        running = asyncio.Event()

        async def handle(_: Envelope) -> None:
            running.set()
            await asyncio.Event().wait()

        async with AsyncRedisConsumer(redis_url, queue, {"urn:a": handle}) as consumer:
            task = asyncio.ensure_future(consumer.poll(0))
            await running.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    publisher.publish("urn:a", {})
    asyncio.run(main())
    taken = spans.all[-1]
    assert taken.status.status_code is StatusCode.ERROR
    assert told(taken)["error.type"] == "asyncio.exceptions.CancelledError"
    assert told(taken)["messaging.babelqueue.outcome"] == "released"


def test_a_handler_that_a_shutdown_interrupts_ends_its_span(
    spans: Spans, publisher: RedisPublisher, consumer_of: Make
) -> None:
    """With what interrupted it."""

    def handle(_: Envelope) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait(60)

    publisher.publish("urn:a", {})
    consumer_of({"urn:a": handle}, shutdown_timeout=0).run()
    taken = spans.all[-1]
    assert told(taken)["error.type"] == "babelqueue_redis.sync.shutdown.HandlerInterrupted"
    assert told(taken)["messaging.babelqueue.outcome"] == "released"


def test_what_an_exception_calls_its_reason_is_no_error_type(
    spans: Spans, publisher: RedisPublisher, consumer_of: Make
) -> None:
    """Many have one, a text as long as it likes."""

    def handle(_: Envelope) -> None:
        b"\xff".decode()

    publisher.publish("urn:a", {})
    consumer_of({"urn:a": handle}, on_error=lambda *_: None).poll(0)
    assert told(spans.all[-1])["error.type"] == "UnicodeDecodeError"


@pytest.mark.parametrize(
    ("signal_", "events", "logs"), [("", 1, 0), ("logs/dup", 1, 1), ("logs", 0, 1)]
)
def test_exceptions_are_span_events_or_log_events(
    monkeypatch: pytest.MonkeyPatch,
    publisher: RedisPublisher,
    consumer_of: Make,
    signal_: str,
    events: int,
    logs: int,
) -> None:
    """As ``OTEL_SEMCONV_EXCEPTION_SIGNAL_OPT_IN`` says; status and type are there in any case."""
    monkeypatch.setenv("OTEL_SEMCONV_EXCEPTION_SIGNAL_OPT_IN", signal_)
    exporter = InMemoryLogRecordExporter()  # type: ignore[no-untyped-call]
    logger_provider = LoggerProvider()
    logger_provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    with instrumented(monkeypatch, TracerProvider(), logger_provider=logger_provider) as spans:
        publisher.publish("urn:a", {})
        consumer_of({"urn:a": fail}, on_error=lambda *_: None).poll(0)
        with pytest.raises(PublishError):
            RedisPublisher(f"redis://127.0.0.1:{free_port()}", "orders").publish("urn:a", {})
        _, taken, failed = spans.all
    records = [each.log_record for each in exporter.get_finished_logs()]
    for span in (taken, failed):
        assert [event.name for event in span.events] == ["exception"] * events
        assert span.status.status_code is StatusCode.ERROR
        assert "error.type" in told(span)
    assert [record.event_name for record in records] == [
        "messaging.process.exception",
        "messaging.send.exception",
    ][: 2 * logs]
    for record, span in zip(records, (taken, failed), strict=False):
        attributes = dict(record.attributes or {})
        assert record.span_id == span.context.span_id
        assert attributes["exception.type"] == told(span)["error.type"]
        assert attributes["exception.message"]
        assert "Traceback" in str(attributes["exception.stacktrace"])
    if records:
        severities = [record.severity_number for record in records]
        assert severities == [SeverityNumber.ERROR, SeverityNumber.WARN]


@pytest.mark.filterwarnings("ignore:`LoggingHandler`:DeprecationWarning")
@pytest.mark.parametrize("kind", ["sync", "aio"])
def test_what_a_handler_logs_carries_its_span(
    spans: Spans, publisher: RedisPublisher, consumer_of: Make
) -> None:
    """With the SDK's logging handler, also from the thread that runs a plain function."""
    exporter = InMemoryLogRecordExporter()  # type: ignore[no-untyped-call]
    provider = LoggerProvider()
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    logger = logging.getLogger("an.application")
    handler = LoggingHandler(logger_provider=provider)
    logger.addHandler(handler)
    publisher.publish("urn:a", {})
    consumer_of({"urn:a": lambda envelope: logger.warning("hello")}).poll(0)
    logger.removeHandler(handler)
    (record,) = [each.log_record for each in exporter.get_finished_logs()]
    taken = spans.all[-1]
    assert (record.trace_id, record.span_id) == (taken.context.trace_id, taken.context.span_id)


def test_no_logger_of_ours_is_noisy(
    monkeypatch: pytest.MonkeyPatch,
    publisher: RedisPublisher,
    consumer_of: Make,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """When all goes well there is nothing to say, at any level."""
    caplog.set_level(logging.DEBUG)
    with instrumented(monkeypatch, TracerProvider(), settle_spans=True):
        publisher.publish("urn:a", {})
        publisher.publish_many([("urn:a", {})])
        consumer = consumer_of(HANDLERS)
        while consumer.poll(0):
            pass
    assert not [r for r in caplog.records if r.name.startswith(("opentelemetry", "babelqueue"))]


@pytest.mark.parametrize("kind", ["sync", "aio"])
def test_the_end_of_a_worker_hands_over_what_there_is(
    monkeypatch: pytest.MonkeyPatch, publisher: RedisPublisher, consumer_of: Make
) -> None:
    """Every provider that can be flushed is, and one that fails breaks nothing."""
    flushed: list[str] = []
    with instrumented(monkeypatch, TracerProvider()) as spans:

        def flush(_timeout: int) -> bool:
            flushed.append("traces")
            raise RuntimeError

        monkeypatch.setattr(spans.provider, "force_flush", flush)
        publisher.publish("urn:a", {})
        consumer = consumer_of(HANDLERS)
        turns = iter([True, False])
        assert consumer.run(lambda: next(turns)) == 1
    assert flushed == ["traces"]


def test_a_forked_child_leaves_the_parents_span_to_the_parent(
    spans: Spans, publisher: RedisPublisher, consumer_of: Make
) -> None:
    """It is not current there, and ends once: in the parent."""
    ours, theirs = multiprocessing.Pipe(duplex=False)

    def handle(_: Envelope) -> None:
        child = os.fork()
        if child == 0:
            current = trace.get_current_span().get_span_context().is_valid
            raise SystemExit(str(current))
        os.waitpid(child, 0)

    publisher.publish("urn:a", {})
    parent = os.getpid()
    try:
        consumer_of({"urn:a": handle}).poll(0)
    except SystemExit as error:
        assert os.getpid() != parent
        theirs.send((str(error), len(spans.all)))
        os._exit(0)
    assert ours.recv() == ("False", 1)
    assert [span.name.split()[0] for span in spans.all] == ["publish", "process"]

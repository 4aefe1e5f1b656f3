"""Providers that change under way, propagators that mean harm, threads that come between."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry import baggage, context, propagate, trace
from opentelemetry.context import Context
from opentelemetry.instrumentation.babelqueue import BabelQueueInstrumentor
from opentelemetry.propagators.textmap import (
    TextMapPropagator,
    default_getter,
    default_setter,
)
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import Span, SpanProcessor, TracerProvider

from babelqueue_redis import Outcome, RedisConsumer, RedisPublisher, hooks
from babelqueue_redis.verdict import accepts
from tests.support.instrumented import instrumented
from tests.support.metrics import Metrics
from tests.support.server import Client
from tests.support.spans import Spans

Make = Callable[..., RedisConsumer]
HANDLERS = {"urn:a": lambda envelope: None}


def test_a_provider_may_come_late_change_and_go(
    monkeypatch: pytest.MonkeyPatch,
    publisher: RedisPublisher,
    consumer_of: Make,
    client: Client,
    queue: str,
) -> None:
    """Each message is told to whoever is there when it is sent, and when it is handled."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    first, second = Spans(TracerProvider()), Spans(TracerProvider())
    consumer = consumer_of(HANDLERS)
    BabelQueueInstrumentor().instrument()
    try:
        for now in (None, first, second, None):
            monkeypatch.setattr(trace, "_TRACER_PROVIDER", now and now.provider)
            publisher.publish("urn:a", {})
            assert accepts(client.lindex(queue, 0)) is (now is None)
            assert consumer.poll(0) is Outcome.ACKED
    finally:
        BabelQueueInstrumentor().uninstrument()
    for spans in (first, second):
        assert [span.name.split()[0] for span in spans.all] == ["publish", "process"]


def test_a_provider_that_changes_inside_a_handler_splits_nothing(
    monkeypatch: pytest.MonkeyPatch, publisher: RedisPublisher, consumer_of: Make
) -> None:
    """A span ends where it began."""
    later = Spans(TracerProvider())

    def change(_: object) -> None:
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", later.provider)

    with instrumented(monkeypatch, TracerProvider(), settle_spans=True) as spans:
        publisher.publish("urn:a", {})
        assert consumer_of({"urn:a": change}).poll(0) is Outcome.ACKED
    assert [span.name.split()[0] for span in spans.all] == ["publish", "process"]
    (settled,) = later.all
    assert settled.name.startswith("ack ")
    assert settled.parent is not None
    assert settled.parent.span_id == spans.all[1].context.span_id


def test_instrumenting_comes_between_threads_that_publish(
    monkeypatch: pytest.MonkeyPatch,
    publisher: RedisPublisher,
    consumer_of: Make,
    client: Client,
    queue: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Every message is stored once and handled once, and every span that begins ends."""
    provider = TracerProvider()
    spans = Spans(provider)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    ids: list[str] = []
    leaked: list[Context] = []

    def publish() -> None:
        ids.extend(publisher.publish("urn:a", {"n": n}) for n in range(150))
        if context.get_current():
            leaked.append(context.get_current())

    threads = [threading.Thread(target=publish) for _ in range(3)]
    for thread in threads:
        thread.start()
    turns = 0
    while any(thread.is_alive() for thread in threads):
        BabelQueueInstrumentor().instrument()
        BabelQueueInstrumentor().uninstrument()
        turns += 1
    for thread in threads:
        thread.join()
    handled: list[str] = []
    consumer = consumer_of({"urn:a": lambda envelope: handled.append(envelope.meta.id)})
    while consumer.poll(0):
        pass
    assert sorted(handled) == sorted(ids)
    assert len(set(ids)) == 450
    assert turns > 1
    assert not leaked
    assert hooks._registered == ()
    assert all(span.end_time for span in spans.all)
    assert not caplog.records
    assert client.llen(queue) == 0


class Hostile(TextMapPropagator):
    """Does what it is told to with what it is given."""

    fields: set[str] = set()  # noqa: RUF012 - the base's

    def __init__(self, written: dict[str, str], read: Any) -> None:
        self.written, self.read = written, read

    def extract(self, carrier: Any, context: Any = None, getter: Any = default_getter) -> Any:
        """Return whatever it is."""
        return self.read

    def inject(self, carrier: Any, context: Any = None, setter: Any = default_setter) -> None:
        """Write it all."""
        carrier.update(self.written)


@pytest.fixture
def propagated_by() -> Iterator[Callable[[TextMapPropagator], None]]:
    """Set a propagator for as long as the test runs."""
    before = propagate.get_global_textmap()
    yield propagate.set_global_textmap
    propagate.set_global_textmap(before)


class Begun(SpanProcessor):
    """Keeps every span that begins."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Keep it."""
        self.spans.append(span)


@pytest.mark.parametrize("read", [None, {}, Context(), "text", 5], ids=repr)
@pytest.mark.parametrize("ambient", [False, True])
def test_a_propagator_may_return_anything(
    spans: Spans,
    publisher: RedisPublisher,
    consumer_of: Make,
    propagated_by: Callable[[TextMapPropagator], None],
    read: Any,
    *,
    ambient: bool,
) -> None:
    """The message is handled, no context is left behind and no span stays open."""
    propagated_by(Hostile({"x": "y"}, read))
    sampled = trace.TraceFlags(trace.TraceFlags.SAMPLED)
    span = trace.NonRecordingSpan(trace.SpanContext(1, 2, is_remote=False, trace_flags=sampled))
    token = context.attach(trace.set_span_in_context(span)) if ambient else None
    before = context.get_current()
    begun = Begun()
    spans.provider.add_span_processor(begun)
    try:
        publisher.publish("urn:a", {})
        assert consumer_of(HANDLERS).poll(0) is Outcome.ACKED
        assert context.get_current() is before
    finally:
        if token is not None:
            context.detach(token)
    assert begun.spans
    assert all(span.end_time for span in begun.spans)


def test_headers_as_long_as_they_like_reach_the_handler_and_no_span(
    spans: Spans,
    publisher: RedisPublisher,
    consumer_of: Make,
    propagated_by: Callable[[TextMapPropagator], None],
) -> None:
    """A hundred thousand of them, and a megabyte in one."""
    many = {f"x-{n}": "y" for n in range(100_000)}
    propagated_by(Hostile({"long": "z" * 1_000_000, **many}, Context()))
    seen: list[int] = []
    publisher.publish("urn:a", {})
    consumer = consumer_of({"urn:a": lambda envelope, raw, headers: seen.append(len(headers))})
    assert consumer.poll(0) is Outcome.ACKED
    assert seen == [100_001]
    assert all(len(span.to_json()) < 5000 for span in spans.all)


@pytest.mark.filterwarnings("ignore")
def test_baggage_beyond_measure_leaves_the_trace(
    spans: Spans, publisher: RedisPublisher, consumer_of: Make
) -> None:
    """The propagator keeps what the standard allows; the trace goes on in any case."""
    here = context.get_current()
    for n in range(500):
        here = baggage.set_baggage(f"key-{n}", "v" * 3000, here)
    kept: list[int] = []
    token = context.attach(here)
    try:
        publisher.publish("urn:a", {})
    finally:
        context.detach(token)
    consumer = consumer_of({"urn:a": lambda envelope: kept.append(len(baggage.get_all()))})
    assert consumer.poll(0) is Outcome.ACKED
    sent, taken = spans.all
    assert taken.parent is not None
    assert taken.parent.span_id == sent.context.span_id
    assert kept[0] < 500


def test_a_meter_that_changes_what_it_is_given_changes_nothing_else(
    monkeypatch: pytest.MonkeyPatch, publisher: RedisPublisher, consumer_of: Make
) -> None:
    """The next value has the attributes it should have."""
    metrics = Metrics()
    with instrumented(monkeypatch, TracerProvider(), meter_provider=metrics.provider):
        publisher.publish("urn:a", {})
        instruments = BabelQueueInstrumentor()._hook.signals.active().instruments
        for each in (instruments.sent, instruments.consumed):
            monkeypatch.setattr(each, "add", lambda _n, attributes, *_: attributes.clear())
        for each in (instruments.operation_duration, instruments.process_duration):
            monkeypatch.setattr(each, "record", lambda _n, attributes, *_: attributes.clear())
        publisher.publish("urn:a", {})
        assert consumer_of(HANDLERS).poll(0) is Outcome.ACKED
        monkeypatch.undo()
    with instrumented(monkeypatch, TracerProvider(), meter_provider=metrics.provider):
        publisher.publish("urn:a", {})
    name = "messaging.client.sent.messages"
    assert metrics.counts(name, "messaging.operation.name") == {"publish": 2}


class Nothing(trace.Tracer):
    """Makes the span that is none."""

    def start_span(self, *_: Any, **__: Any) -> trace.Span:
        """Return it."""
        return trace.INVALID_SPAN

    def start_as_current_span(self, *_: Any, **__: Any) -> Any:
        """Is not asked for."""
        raise NotImplementedError


class NothingProvider(trace.TracerProvider):
    """Gives such tracers."""

    def get_tracer(self, *_: Any, **__: Any) -> trace.Tracer:
        """Return one."""
        return Nothing()


def test_a_span_that_is_none_hides_none(
    publisher: RedisPublisher, consumer_of: Make, client: Client, queue: str
) -> None:
    """What is current stays so, and nothing is injected."""
    seen: list[trace.SpanContext] = []
    ambient = trace.SpanContext(1, 2, is_remote=False)
    BabelQueueInstrumentor().instrument(tracer_provider=NothingProvider())
    try:
        with trace.use_span(trace.NonRecordingSpan(ambient)):
            publisher.publish("urn:a", {})
            assert accepts(client.lindex(queue, 0))
            consumer = consumer_of(
                {"urn:a": lambda envelope: seen.append(trace.get_current_span().get_span_context())}
            )
            assert consumer.poll(0) is Outcome.ACKED
    finally:
        BabelQueueInstrumentor().uninstrument()
    assert seen == [ambient]


class Raises:
    """A provider one of whose attributes cannot be had."""

    def __init__(self, real: Any, method: str) -> None:
        self._real, self._method = real, method

    def __getattr__(self, name: str) -> Any:
        if name == self._method:
            raise RuntimeError
        return getattr(self._real, name)


@pytest.mark.parametrize("method", ["get_tracer", "sampler", "force_flush"])
def test_a_provider_that_raises_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, publisher: RedisPublisher, consumer_of: Make, method: str
) -> None:
    """Whatever it is asked for: the message is sent and handled, with headers and without."""
    provider: Any = Raises(TracerProvider(), method)
    meters = MeterProvider()
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    BabelQueueInstrumentor().instrument(meter_provider=meters)
    try:
        publisher.publish("urn:a", {})
        publisher.publish("urn:a", {}, headers={"traceparent": "nonsense"})
        turns = iter([True, True, False])
        assert consumer_of(HANDLERS).run(lambda: next(turns)) == 2
    finally:
        BabelQueueInstrumentor().uninstrument()
        meters.shutdown()
    assert not context.get_current()

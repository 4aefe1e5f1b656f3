from __future__ import annotations

import contextlib
import logging
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib import metadata
from typing import Any

import opentelemetry.instrumentation.babelqueue as instrumentation
import pytest
from opentelemetry import baggage, context, propagate, trace
from opentelemetry.instrumentation import dependencies
from opentelemetry.instrumentation.babelqueue import BabelQueueInstrumentor
from opentelemetry.instrumentation.babelqueue.config import Options
from opentelemetry.instrumentation.babelqueue.signals import Signals
from opentelemetry.instrumentation.babelqueue.telemetry import Telemetry
from opentelemetry.instrumentation.utils import suppress_instrumentation
from opentelemetry.propagators.textmap import (
    TextMapPropagator,
    default_getter,
    default_setter,
)
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider

from babelqueue_redis import Envelope, Outcome, RedisConsumer, RedisPublisher, hooks
from babelqueue_redis.verdict import accepts
from tests.support.server import Client
from tests.support.spans import Spans

Make = Callable[..., RedisConsumer]


def test_the_entry_point_names_the_instrumentor() -> None:
    """``opentelemetry-instrument`` finds it there."""
    (entry,) = metadata.entry_points(group="opentelemetry_instrumentor", name="babelqueue_redis")
    assert entry.load() is BabelQueueInstrumentor


def test_uninstrumenting_takes_everything_back(
    spans: Spans, publisher: RedisPublisher, consumer_of: Make, client: Client, queue: str
) -> None:
    """For objects made before and after; twice is once; again and again."""
    consumer = consumer_of({"urn:a": lambda envelope: None})
    instrumentor = BabelQueueInstrumentor()
    for _ in range(3):
        instrumentor.uninstrument()
        instrumentor.uninstrument()
        publisher.publish("urn:a", {})
        assert accepts(client.lindex(queue, 0))  # bare
        assert consumer.poll(0) is Outcome.ACKED
        assert not spans.all
        assert hooks._registered == ()
        instrumentor.instrument()
        instrumentor.instrument()
        publisher.publish("urn:a", {})
        assert consumer.poll(0) is Outcome.ACKED
        assert len(spans.all) == 2
        spans.clear()


def test_suppressed_calls_go_through_untouched(
    spans: Spans, publisher: RedisPublisher, consumer_of: Make, client: Client, queue: str
) -> None:
    """Nothing injected, nothing recorded."""
    with suppress_instrumentation():
        publisher.publish("urn:a", {})
        assert accepts(client.lindex(queue, 0))
        assert consumer_of({"urn:a": lambda envelope: None}).poll(0) is Outcome.ACKED
    assert not spans.all


def test_without_an_sdk_nothing_is_built_and_nothing_injected(
    monkeypatch: pytest.MonkeyPatch, publisher: RedisPublisher, client: Client, queue: str
) -> None:
    """Not even where a remote context is current."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    hook = Telemetry(Signals(Options()))
    monkeypatch.setattr(hooks, "_registered", (hook,))
    remote = trace.NonRecordingSpan(trace.SpanContext(1, 2, is_remote=True))
    with trace.use_span(remote):
        publisher.publish("urn:a", {})
    assert accepts(client.lindex(queue, 0))
    assert hook.signals.active() is None


def test_a_disabled_sdk_stores_the_bare_envelope(
    monkeypatch: pytest.MonkeyPatch, publisher: RedisPublisher, client: Client, queue: str
) -> None:
    """``OTEL_SDK_DISABLED=true``."""
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    hook = Telemetry(Signals(Options(), TracerProvider(), MeterProvider()))
    monkeypatch.setattr(hooks, "_registered", (hook,))
    remote = trace.NonRecordingSpan(trace.SpanContext(1, 2, is_remote=True))
    here = baggage.set_baggage("user", "7", trace.set_span_in_context(remote))
    token = context.attach(here)
    try:
        publisher.publish("urn:a", {})
    finally:
        context.detach(token)
    assert accepts(client.lindex(queue, 0))


def test_a_provider_can_be_given(
    monkeypatch: pytest.MonkeyPatch, publisher: RedisPublisher, consumer_of: Make
) -> None:
    """It is used in place of the global one."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    provider = TracerProvider()
    spans = Spans(provider)
    instrumentor = BabelQueueInstrumentor()
    instrumentor.instrument(tracer_provider=provider)
    try:
        publisher.publish("urn:a", {})
        consumer_of({"urn:a": lambda envelope: None}).poll(0)
    finally:
        instrumentor.uninstrument()
    assert len(spans.all) == 2


@pytest.mark.parametrize("broken", ["inject", "extract"])
def test_a_propagator_that_fails_breaks_nothing(
    spans: Spans,
    publisher: RedisPublisher,
    consumer_of: Make,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    broken: str,
) -> None:
    """The publish is stored once, the handler runs once, the log has a line, no context leaks."""

    def raises(*_: object, **__: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(propagate, broken, raises)
    before = context.get_current()
    runs: list[Envelope] = []
    publisher.publish("urn:a", {})
    consumer = consumer_of({"urn:a": runs.append})
    assert consumer.poll(0) is Outcome.ACKED
    assert consumer.poll(0) is None
    assert len(runs) == 1
    assert "hook" in caplog.text
    assert context.get_current() == before
    assert all(span.end_time for span in spans.all)


class OddPropagator(TextMapPropagator):
    """Writes a header that is no text."""

    fields: set[str] = set()  # noqa: RUF012 - the base's

    def __init__(self, name: Any, value: Any) -> None:
        self.odd = (name, value)

    def extract(self, carrier: Any, context: Any = None, getter: Any = default_getter) -> Any:
        """Read nothing."""
        return context

    def inject(self, carrier: Any, context: Any = None, setter: Any = default_setter) -> None:
        """Write the odd header."""
        setter.set(carrier, *self.odd)


@pytest.mark.parametrize(
    "odd", [("x", 1), ("x", None), ("x", b"y"), ("x", "\ud800"), (5, "x")], ids=str
)
def test_a_propagator_that_writes_no_text_breaks_nothing(
    spans: Spans,
    publisher: RedisPublisher,
    client: Client,
    queue: str,
    request: pytest.FixtureRequest,
    caplog: pytest.LogCaptureFixture,
    odd: tuple[Any, Any],
) -> None:
    """The message is stored, without the header; the log has a line."""
    request.addfinalizer(partial(propagate.set_global_textmap, propagate.get_global_textmap()))
    propagate.set_global_textmap(OddPropagator(*odd))
    publisher.publish("urn:a", {})
    publisher.publish_many([("urn:a", {}), ("urn:b", {})])
    assert [accepts(element) for element in client.lrange(queue, 0, -1)] == [True] * 3
    assert "made no publication" in caplog.text
    assert len(spans.all) == 4


@pytest.mark.parametrize(
    "method", ["start_span", "set_attribute", "record_exception", "set_status", "end"]
)
def test_a_span_that_fails_breaks_nothing(
    publisher: RedisPublisher,
    consumer_of: Make,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    method: str,
) -> None:
    """Whichever of its methods does; the failing handler fails once."""

    class BrokenSpan(trace.NonRecordingSpan):
        def is_recording(self) -> bool:
            return True

    class BrokenTracer(trace.Tracer):
        def start_span(self, *_: object, **__: object) -> trace.Span:
            if method == "start_span":
                raise RuntimeError
            return BrokenSpan(trace.SpanContext(1, 2, is_remote=False))

        def start_as_current_span(self, *_: object, **__: object) -> Any:
            raise NotImplementedError

    class BrokenProvider(trace.TracerProvider):
        def get_tracer(self, *_: object, **__: object) -> trace.Tracer:
            return BrokenTracer()

    def raises(*_: object, **__: object) -> None:
        raise RuntimeError

    if method != "start_span":
        setattr(BrokenSpan, method, raises)
    monkeypatch.setattr(hooks, "_registered", (Telemetry(Signals(Options(), BrokenProvider())),))
    before = context.get_current()
    runs = 0

    def fail(_: Envelope) -> None:
        nonlocal runs
        runs += 1
        raise ValueError

    with caplog.at_level(logging.ERROR):
        publisher.publish("urn:a", {})
        consumer = consumer_of({"urn:a": fail}, on_error=lambda *_: None)
        assert consumer.poll(0) is Outcome.RETRIED
    assert runs == 1
    assert caplog.text
    assert context.get_current() == before


def test_a_handler_that_never_detaches_does_not_reach_the_next_message(
    spans: Spans, publisher: RedisPublisher, consumer_of: Make
) -> None:
    """What it attached ends with it."""
    seen: list[object] = []

    def handle(_: Envelope) -> None:
        seen.append(context.get_value("left"))
        context.attach(context.set_value("left", "behind"))

    publisher.publish_many([("urn:a", {}), ("urn:a", {})])
    consumer = consumer_of({"urn:a": handle})
    while consumer.poll(0):
        pass
    assert seen == [None, None]
    assert spans.all


WITHOUT_SDK = """
import importlib.abc, sys

class NoSdk(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0:1] and name.startswith("opentelemetry.sdk"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, NoSdk())
import redis
from babelqueue_redis import RedisConsumer, RedisPublisher
from opentelemetry.instrumentation import dependencies
from opentelemetry.instrumentation.babelqueue import BabelQueueInstrumentor

BabelQueueInstrumentor().instrument()
url, queue = sys.argv[1:]
RedisPublisher(url, queue).publish("urn:a", {})
print(RedisConsumer(url, queue, {"urn:a": lambda envelope: None}).poll(0))
RedisPublisher(url, queue).publish("urn:a", {})
"""


def test_without_the_sdk_installed_the_instrumentation_does_nothing(
    redis_url: str, client: Client, queue: str
) -> None:
    """It needs the API only."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_SDK, redis_url, queue],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "acked\n", done.stderr
    assert accepts(client.lindex(queue, 0))


def test_the_error_of_an_exception_without_a_message_is_recorded(
    spans: Spans, publisher: RedisPublisher, consumer_of: Make
) -> None:
    """Its class may refuse to print it."""

    class Unprintable(Exception):  # noqa: N818
        def __str__(self) -> str:
            raise RuntimeError

    def handle(_: Envelope) -> None:
        raise Unprintable

    publisher.publish("urn:a", {})
    assert consumer_of({"urn:a": handle}, on_error=lambda *_: None).poll(0) is Outcome.RETRIED
    span = spans.all[-1]
    assert span.status.status_code is trace.StatusCode.ERROR
    assert "Unprintable" in str((span.attributes or {})["error.type"])


def test_a_pre_release_of_the_target_will_do(
    monkeypatch: pytest.MonkeyPatch, publisher: RedisPublisher, client: Client, queue: str
) -> None:
    """It is what developers run."""
    monkeypatch.setattr(dependencies, "version", lambda _: "0.2.0.dev1")
    instrumentor = BabelQueueInstrumentor()
    instrumentor.instrument(tracer_provider=TracerProvider())
    try:
        publisher.publish("urn:a", {})
    finally:
        instrumentor.uninstrument()
    assert not accepts(client.lindex(queue, 0))  # framed


def test_the_extra_installs_the_instrumentation() -> None:
    """``babelqueue-redis[otel]``."""
    requires = metadata.requires("babelqueue-redis") or []
    (wanted,) = [each for each in requires if "opentelemetry-instrumentation" in each]
    assert 'extra == "otel"' in wanted.replace("'", '"')


@pytest.mark.parametrize("missing", ["absent", "too old", "broken"])
def test_instrumenting_without_a_fit_target_does_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, missing: str
) -> None:
    """And raises nothing: that would stop the instrumentors after it."""
    if missing == "absent":
        monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    elif missing == "too old":
        monkeypatch.setattr(instrumentation, "_instruments_any", ("babelqueue-redis >= 99",))
    else:
        monkeypatch.setattr(hooks, "register", lambda _: 1 / 0)
    instrumentor = BabelQueueInstrumentor()
    with contextlib.ExitStack() as stack:
        instrumentor.instrument()
        stack.callback(instrumentor.uninstrument)
        assert hooks._registered == ()
    assert bool(caplog.records) is (missing != "absent")

"""Whatever of the SDK raises, the program goes on: each part of it in turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import context, trace
from opentelemetry.instrumentation.babelqueue import BabelQueueInstrumentor
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider
from opentelemetry.sdk.trace import Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler, SamplingResult

from babelqueue_redis import Envelope, Outcome, RedisConsumer, RedisPublisher
from tests.support.instrumented import instrumented
from tests.support.server import Client

Make = Callable[..., RedisConsumer]


class BreaksError(Exception):
    """What the parts raise."""


class Breaks(Sampler, SpanProcessor):
    """A sampler and a processor of which one method raises."""

    def __init__(self, method: str) -> None:
        self._method = method

    def _came(self, method: str) -> None:
        if method == self._method:
            raise BreaksError

    def should_sample(self, *args: Any, **kwargs: Any) -> SamplingResult:
        """Sample everything, or raise."""
        self._came("should_sample")
        return ALWAYS_ON.should_sample(*args, **kwargs)

    def get_description(self) -> str:
        """Describe it."""
        return "Breaks"

    def on_start(self, span: Span, parent_context: context.Context | None = None) -> None:
        """Raise, if that is to be."""
        self._came("on_start")

    def on_end(self, span: Any) -> None:
        """Raise, if that is to be."""
        self._came("on_end")


@pytest.mark.parametrize("part", ["should_sample", "on_start", "on_end", "add", "record"])
def test_whatever_raises_in_the_sdk_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
    publisher: RedisPublisher,
    consumer_of: Make,
    client: Client,
    queue: str,
    caplog: pytest.LogCaptureFixture,
    part: str,
) -> None:
    """Each message is stored, handled and settled once, failing or not, and nothing leaks."""

    def fail(*_: object, **__: object) -> None:
        raise BreaksError

    if part in {"add", "record"}:
        monkeypatch.setattr({"add": Counter, "record": Histogram}[part], part, fail)
    breaks, meters = Breaks(part), MeterProvider()
    provider = TracerProvider(sampler=breaks)
    provider.add_span_processor(breaks)
    seen: list[str] = []

    def handle(envelope: Envelope) -> None:
        seen.append(envelope.job)
        if envelope.job == "urn:b":
            raise ValueError

    with instrumented(monkeypatch, provider, meter_provider=meters, settle_spans=True):
        publisher.publish("urn:a", {})
        publisher.publish_many([("urn:b", {}), ("urn:a", {})])
        handlers = {"urn:a": handle, "urn:b": handle}
        consumer = consumer_of(handlers, max_tries=1, on_error=lambda *_: None)
        outcomes = [consumer.poll(0) for _ in range(4)]
    meters.shutdown()
    assert seen == ["urn:a", "urn:b", "urn:a"]
    assert outcomes == [Outcome.ACKED, Outcome.DEAD_LETTERED, Outcome.ACKED, None]
    assert client.llen(queue) == 0
    assert BreaksError.__name__ in caplog.text
    assert not context.get_current()


def test_a_hook_that_interrupts_before_the_handler_leaves_no_span_open(
    monkeypatch: pytest.MonkeyPatch, publisher: RedisPublisher, consumer_of: Make
) -> None:
    """It stops the program, as it wants to; the span says why, and is not current any more."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    seen: list[Envelope] = []
    with instrumented(monkeypatch, TracerProvider(), process_hook=interrupt) as spans:
        publisher.publish("urn:a", {})
        with consumer_of({"urn:a": seen.append}) as consumer, pytest.raises(KeyboardInterrupt):
            consumer.poll(0)
        sent, taken = spans.all
    assert not seen
    assert sent.end_time
    assert taken.end_time
    assert (taken.attributes or {})["error.type"] == "KeyboardInterrupt"
    assert not trace.get_current_span().get_span_context().is_valid
    assert not BabelQueueInstrumentor().is_instrumented_by_opentelemetry

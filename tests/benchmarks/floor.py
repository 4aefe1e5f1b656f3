"""The least that one traced publish and process can cost: the SDK's calls, and nothing around them.

The same spans, with as many attributes and the same link; the same values. What an instrumentation
must do besides is not here: looking whether there is an SDK, options, errors, a guard around each
call that may fail.

:meth:`Floor.parts` takes it to pieces.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

from opentelemetry import context, propagate, trace
from opentelemetry.context import Context
from opentelemetry.instrumentation.babelqueue import semconv
from opentelemetry.instrumentation.babelqueue.config import Options
from opentelemetry.instrumentation.babelqueue.metrics import Instruments
from opentelemetry.instrumentation.babelqueue.telling import told_by
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import Link, Span, SpanKind, Tracer

from babelqueue_redis.values import Destination

PLACE = Destination("orders", "legacy", "127.0.0.1", 6379)
MESSAGE = {
    semconv.MESSAGING_MESSAGE_ID: str(uuid.uuid4()),
    semconv.BABELQUEUE_URN: "urn:a",
}
CONVERSATION = semconv.MESSAGING_MESSAGE_CONVERSATION_ID, str(uuid.uuid4())
OUTCOME = semconv.BABELQUEUE_OUTCOME, "acked"
BARE = "a bare span"


class Floor:
    """One publish, its processing and its settlement, told with the SDK's bare calls."""

    def __init__(self, tracer: Tracer, meters: MeterProvider | None = None) -> None:
        """Prepare whatever can be prepared once."""
        self._tracer = tracer
        self._values = Instruments(meters.get_meter("floor")) if meters is not None else None
        self._sent = told_by(Options(), PLACE, "publish", "send")
        self._taken = told_by(Options(), PLACE, "process", "process")
        self._settled = told_by(Options(), PLACE, "ack", "settle")

        self._headers: dict[str, str] = {}

    def publish(self) -> None:
        """Tell of a publish."""
        told, values = self._sent, self._values
        span = self._span_of_publish()
        where = trace.set_span_in_context(span)
        propagate.inject(self._headers, where)
        span.set_attribute(*CONVERSATION)
        context.detach(context.attach(where))
        if values is not None:
            values.operation_duration.record(0.001, told.timed, where)
            values.sent.add(1, told.metric, where)
        span.end()

    def process(self) -> None:
        """Tell of the delivery of what was published."""
        told, values = self._taken, self._values
        created = propagate.extract(self._headers, Context())
        span = self._span_of_process(created)
        where = trace.set_span_in_context(span)
        if values is not None:
            values.queue_time.record(0.001, told.metric, where)
            values.consumed.add(1, told.metric, where)
        context.detach(context.attach(where))
        span.set_attribute(*OUTCOME)
        if values is not None:
            values.process_duration.record(0.001, told.metric, where)
        span.end()

    def settle(self) -> None:
        """Tell of its settlement."""
        if self._values is not None:
            attributes = {**self._settled.timed, OUTCOME[0]: OUTCOME[1]}
            self._values.operation_duration.record(0.001, attributes)

    def parts(self) -> dict[str, Callable[[], object]]:
        """Return what it is made of, each to be done alone, and the yardstick likewise.

        Done alone they are quicker than between other things. There must have been a publish.
        """
        values, told, headers = self._values, self._sent, self._headers
        created = propagate.extract(headers, Context())
        open_span = self._span_of_publish()
        parts: dict[str, Callable[[], object]] = {
            BARE: lambda: self._tracer.start_span("x").end(),
            "the span of a publish": lambda: self._span_of_publish().end(),
            "the span of a process": lambda: self._span_of_process(created).end(),
            "inject": lambda: propagate.inject({}, created),
            "extract": lambda: propagate.extract(headers, Context()),
            "an attribute later on": lambda: open_span.set_attribute(*OUTCOME),
        }
        if values is not None:
            where = trace.set_span_in_context(open_span)
            record, add = values.operation_duration.record, values.sent.add
            parts["a histogram's value"] = lambda: record(0.001, told.timed, where)
            parts["a counter's value"] = lambda: add(1, told.metric, where)
        return parts

    def _span_of_publish(self) -> Span:
        told = self._sent
        attributes = {**told.span, **MESSAGE}
        return self._tracer.start_span(told.name, kind=SpanKind.PRODUCER, attributes=attributes)

    def _span_of_process(self, created: Context) -> Span:
        told = self._taken
        link = Link(trace.get_current_span(created).get_span_context())
        attributes = {**told.span, semconv.BABELQUEUE_ATTEMPTS: 0, **MESSAGE}
        attributes[CONVERSATION[0]] = CONVERSATION[1]
        return self._tracer.start_span(
            told.name, created, kind=SpanKind.CONSUMER, attributes=attributes, links=[link]
        )

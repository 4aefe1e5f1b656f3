"""The spans and metrics around a delivery: taking a message, and ending its reservation."""

from __future__ import annotations

import time

from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.instrumentation.babelqueue import semconv
from opentelemetry.instrumentation.babelqueue.contexts import (
    Placement,
    around,
    asked,
    created_in,
    links_to,
)
from opentelemetry.instrumentation.babelqueue.metrics import Instruments
from opentelemetry.instrumentation.babelqueue.operation import Operation, captured
from opentelemetry.instrumentation.babelqueue.processing import PLACEMENT, RECEIVED, describe
from opentelemetry.instrumentation.babelqueue.signals import Active
from opentelemetry.instrumentation.babelqueue.telling import failing
from opentelemetry.trace import INVALID_SPAN, SpanKind

from babelqueue_redis.envelope import Envelope
from babelqueue_redis.steps import Receiving, Settling
from babelqueue_redis.values import Outcome, Reservation
from babelqueue_redis.verdict import verdict

NAMES = {
    str(Outcome.ACKED): "ack",
    str(Outcome.DROPPED): "ack",
    str(Outcome.RETRIED): "release",
    str(Outcome.RELEASED): "release",
    str(Outcome.DEAD_LETTERED): "dead_letter",
}
"""The operation that brings an outcome about. Of text, for to hash a member takes a call."""


class Settle(Operation):
    """Around the command that ends a reservation. Its span is made when the options say so."""

    operation_type = "settle"

    def __init__(self, active: Active, settling: Settling) -> None:
        """Prepare."""
        self._settling = settling
        super().__init__(active, settling.destination)

    def __enter__(self) -> None:
        """Start the span, if there is to be one."""
        tracer = self._active.tracer
        if tracer is None or not self._active.options.settle_spans:
            self._enter()
            return
        place = self._hanging()
        message_id = self._settling.message_id
        told = {semconv.MESSAGING_MESSAGE_ID: message_id} if message_id else {}
        span = tracer.start_span(
            self._told.name,
            context=place.context,
            kind=SpanKind.CLIENT,
            links=place.links,
            attributes={**self._told.span, **told},
        )
        self._enter(span, around(span, place.context, context.get_current()))

    @property
    def operation(self) -> str:  # type: ignore[override]  # it depends on the outcome
        """The operation that brings the intended outcome about."""
        return NAMES[str(self._settling.intended)]

    def _hanging(self) -> Placement:
        """Return where the span of the delivery is; a message given back unhandled has none."""
        noted = self._settling.reservation.notes.get(PLACEMENT)
        if isinstance(noted, Placement):
            return noted
        headers = self._settling.reservation.headers
        created = created_in(self._active, self._told, headers, "")
        return Placement(created.context, links_to(created.span_context))

    def _finish(self, error: BaseException | None) -> None:
        span = self._span
        if span is INVALID_SPAN:
            super()._finish(error)
            return
        outcome = self._settling.outcome or self._settling.intended
        span.set_attribute(semconv.BABELQUEUE_OUTCOME, str(outcome))
        super()._finish(error)
        if span.is_recording():
            asked(self._active.options.settle_hook, span, self._settling)

    def _measure(self, instruments: Instruments, seconds: float, failure: str) -> None:
        outcome = self._settling.outcome or self._settling.intended
        attributes = failing(self._told.timed, failure)
        attributes[semconv.BABELQUEUE_OUTCOME] = str(outcome)
        instruments.operation_duration.record(seconds, attributes, self._context)


class Receive(Operation):
    """Around a ``reserve()`` that a program called. There is a span only if a message came."""

    operation = "receive"
    operation_type = "receive"

    def __init__(self, active: Active, receiving: Receiving) -> None:
        """Prepare."""
        super().__init__(active, receiving.destination)
        self._receiving = receiving

    def __enter__(self) -> None:
        """Look at the clock; the span is made when it is known that there is one."""
        self._since = time.time_ns()
        self._enter()

    def _finish(self, error: BaseException | None) -> None:
        reservation = self._receiving.reservation
        if reservation is not None:
            self._tell(reservation)
            reservation.notes[RECEIVED] = True
        if reservation is not None or error is not None:
            super()._finish(error)

    def _measure(self, instruments: Instruments, seconds: float, failure: str) -> None:
        super()._measure(instruments, seconds, failure)
        if self._receiving.reservation is not None:
            instruments.consumed.add(1, failing(self._told.metric, failure), self._context)

    def _tell(self, reservation: Reservation) -> None:
        active, told = self._active, self._told
        if active.tracer is None:
            return
        judged = None if reservation.poison else verdict(reservation.body)
        envelope = judged if isinstance(judged, Envelope) else None
        attributes = {**told.span, **captured(reservation.headers, active)}
        if envelope is not None:
            describe(envelope, attributes)
        trace_id = "" if envelope is None else envelope.trace_id
        created = created_in(active, told, reservation.headers, trace_id)
        self._span = active.tracer.start_span(
            told.name,
            kind=SpanKind.CLIENT,
            links=links_to(created.span_context),
            attributes=attributes,
            start_time=self._since,
        )
        self._context = trace.set_span_in_context(self._span, Context())

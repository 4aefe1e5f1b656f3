"""The span and the metrics of handling one delivery of this suite's transport."""

from __future__ import annotations

from typing import Any

from opentelemetry.instrumentation.babelqueue import semconv
from opentelemetry.instrumentation.babelqueue.contexts import Placement
from opentelemetry.instrumentation.babelqueue.kinds import Process
from opentelemetry.instrumentation.babelqueue.operation import captured
from opentelemetry.instrumentation.babelqueue.signals import Active
from opentelemetry.trace import Tracer

from babelqueue_redis.envelope import Envelope
from babelqueue_redis.values import Delivery

PLACEMENT = object()
"""The note that tells a settlement where the span of its delivery is."""
RECEIVED = object()
"""The note that tells that a delivery was counted when it was received."""


class Processing(Process):
    """Around the handling of one delivery."""

    def __init__(self, active: Active, delivery: Delivery) -> None:
        """Prepare."""
        super().__init__(active, delivery.destination)
        self._delivery = delivery

    def __enter__(self) -> None:
        """Start the span, and count the delivery unless that was done when it was received."""
        delivery, tracer = self._delivery, self._active.tracer
        envelope = delivery.envelope
        created_at = 0 if envelope is None else envelope.meta.created_at
        if tracer is None:
            self._enter()
        else:
            self._begin(tracer, envelope, created_at)
        received = RECEIVED in delivery.reservation.notes
        self._entered(delivery, created_at, delivery.refusal, counted=received)

    def _begin(self, tracer: Tracer, envelope: Envelope | None, created_at: int) -> None:
        delivery, options = self._delivery, self._active.options
        reservation = delivery.reservation
        attributes, trace_id = self._told.span.copy(), ""
        if envelope is not None:
            describe(envelope, attributes)
            attributes[semconv.BABELQUEUE_ATTEMPTS] = envelope.attempts
            trace_id = envelope.trace_id
        if options.captured_headers:
            attributes |= captured(reservation.headers, self._active)
        if options.body_size:
            attributes[semconv.MESSAGING_MESSAGE_BODY_SIZE] = len(reservation.body)
        place = self._start(
            tracer,
            delivery,
            attributes,
            headers=reservation.headers,
            trace_id=trace_id,
            created_at=created_at,
        )
        if options.settle_spans and self._context is not None:
            reservation.notes[PLACEMENT] = Placement(self._context, place.links)

    def _finish(self, error: BaseException | None) -> None:
        outcome = self._delivery.intended(error)
        self._span.set_attribute(semconv.BABELQUEUE_OUTCOME, str(outcome))
        super()._finish(error)


def describe(envelope: Envelope, attributes: dict[str, Any]) -> None:
    """Add the attributes that tell which message it is."""
    attributes[semconv.BABELQUEUE_URN] = envelope.job
    if message_id := envelope.meta.id:
        attributes[semconv.MESSAGING_MESSAGE_ID] = message_id
    if envelope.trace_id:
        attributes[semconv.MESSAGING_MESSAGE_CONVERSATION_ID] = envelope.trace_id

"""The span and the metrics of handling one delivery of this suite's transport."""

from __future__ import annotations

from typing import Any

from opentelemetry.instrumentation.babelqueue import semconv
from opentelemetry.instrumentation.babelqueue.contexts import Placement, asked
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

    __slots__ = ("_delivery",)

    def __init__(self, active: Active, delivery: Delivery) -> None:
        """Prepare."""
        super().__init__(active, delivery.destination)
        self._delivery = delivery

    def __enter__(self) -> None:
        """Start the span, and count the delivery unless that was done when it was received."""
        envelope, active = self._delivery.envelope, self._active
        created_at = envelope.meta.created_at if envelope else 0
        if active.tracer is None:
            self._enter()
        else:
            self._begin(active.tracer, envelope, created_at)
        self._entered(lambda: self._tell(created_at))

    def _tell(self, created_at: int) -> None:
        delivery, active = self._delivery, self._active
        if self._span.is_recording():
            asked(active.options.process_hook, self._span, delivery)
        if active.instruments is not None:
            received = RECEIVED in delivery.reservation.notes
            self._tell_delivery(active.instruments, created_at, delivery.refusal, counted=received)

    def _begin(self, tracer: Tracer, envelope: Envelope | None, created_at: int) -> None:
        delivery, active = self._delivery, self._active
        place = self._start(
            tracer,
            delivery,
            self._about(envelope),
            headers=delivery.headers,
            trace_id=envelope.trace_id if envelope else "",
            created_at=created_at,
        )
        if active.options.settle_spans and self._context is not None:
            delivery.reservation.notes[PLACEMENT] = Placement(self._context, place.links)

    def _about(self, envelope: Envelope | None) -> dict[str, Any]:
        attributes: dict[str, Any] = captured(self._delivery.headers, self._active)
        if envelope is not None:
            attributes[semconv.BABELQUEUE_ATTEMPTS] = envelope.attempts
            attributes |= about(envelope)
        if self._active.options.body_size:
            attributes[semconv.MESSAGING_MESSAGE_BODY_SIZE] = len(self._delivery.reservation.body)
        return attributes

    def _finish(self, error: BaseException | None) -> None:
        outcome = self._delivery.intended(error)
        self._span.set_attribute(semconv.BABELQUEUE_OUTCOME, outcome.value)
        super()._finish(error)


def about(envelope: Envelope) -> dict[str, Any]:
    """Return the attributes that tell which message it is."""
    attributes = {semconv.BABELQUEUE_URN: envelope.job}
    if envelope.meta.id:
        attributes[semconv.MESSAGING_MESSAGE_ID] = envelope.meta.id
    if envelope.trace_id:
        attributes[semconv.MESSAGING_MESSAGE_CONVERSATION_ID] = envelope.trace_id
    return attributes

"""Sending and processing, whoever does it: this suite's transport, or another."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from opentelemetry._logs import SeverityNumber
from opentelemetry.instrumentation.babelqueue.contexts import (
    Placement,
    around,
    created_in,
    placed,
)
from opentelemetry.instrumentation.babelqueue.metrics import Instruments
from opentelemetry.instrumentation.babelqueue.operation import Operation, error_type
from opentelemetry.instrumentation.babelqueue.signals import Active
from opentelemetry.instrumentation.babelqueue.telling import Place, failing
from opentelemetry.trace import Link, Span, SpanKind, Tracer


class Send(Operation):
    """Around one publish of ``_count`` messages."""

    __slots__ = ("_count",)

    operation = "publish"
    operation_type = "send"

    def __init__(self, active: Active, place: Place) -> None:
        """Prepare, for one message."""
        super().__init__(active, place)
        self._count = 1

    def _start(
        self, tracer: Tracer, kind: SpanKind, links: list[Link], about: dict[str, Any]
    ) -> Span:
        """Start the span, under the current one."""
        return tracer.start_span(
            self._told.name, kind=kind, links=links, attributes=self._attributes(about)
        )

    def _measure(self, instruments: Instruments, seconds: float, failure: str) -> None:
        super()._measure(instruments, seconds, failure)
        instruments.sent.add(self._count, failing(self._told.metric, failure), self._context)


class Process(Operation):
    """Around the handling of one delivery."""

    __slots__ = ()

    operation = "process"
    operation_type = "process"
    severity = SeverityNumber.ERROR

    def _start(  # noqa: PLR0913 - all that a delivery tells
        self,
        tracer: Tracer,
        delivery: object,
        about: dict[str, Any],
        *,
        headers: Mapping[str, str],
        trace_id: str,
        created_at: int,
    ) -> Placement:
        """Start the span where the message was created, and make it current.

        Args:
            tracer: Starts it.
            delivery: What a function for the mode is given.
            about: Attributes of the message.
            headers: Its headers.
            trace_id: Its ``trace_id``; ``""`` for none.
            created_at: When it was created, epoch milliseconds; 0 when nobody knows.

        Returns:
            Where the span hangs.
        """
        active, name = self._active, self._told.name
        attributes = self._attributes(about)
        created = created_in(
            active, self._place.queue, headers, trace_id=trace_id, name=name, attributes=attributes
        )
        place = placed(active, created, delivery, created_at)
        span = tracer.start_span(
            name,
            context=place.context,
            kind=SpanKind.CONSUMER,
            links=place.links,
            attributes=attributes,
        )
        self._enter(span, around(span, place.context))
        return place

    def _tell_delivery(
        self,
        instruments: Instruments,
        created_at: int,
        refusal: BaseException | None,
        *,
        counted: bool = False,
    ) -> None:
        """Count the delivery, unless it is counted, and tell how long the message waited."""
        attributes = failing(self._told.metric, "" if refusal is None else error_type(refusal))
        if refusal is None and created_at > 0:
            instruments.waited(time.time() - created_at / 1000, attributes, self._context)
        if not counted:
            instruments.consumed.add(1, attributes, self._context)

    def _measure(self, instruments: Instruments, seconds: float, failure: str) -> None:
        attributes = failing(self._told.metric, failure)
        instruments.process_duration.record(seconds, attributes, self._context)

"""Sending and processing, whoever does it: this suite's transport, or another."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from opentelemetry import context
from opentelemetry._logs import SeverityNumber
from opentelemetry.instrumentation.babelqueue.contexts import (
    Placement,
    around,
    asked,
    created_in,
    placed,
)
from opentelemetry.instrumentation.babelqueue.metrics import Instruments
from opentelemetry.instrumentation.babelqueue.operation import Operation, error_type
from opentelemetry.instrumentation.babelqueue.telling import failing
from opentelemetry.trace import SpanKind, Tracer

logger = logging.getLogger(__name__)


class Send(Operation):
    """Around one publish of ``_count`` messages."""

    operation = "publish"
    operation_type = "send"

    _count = 1

    def _measure(self, instruments: Instruments, seconds: float, failure: str) -> None:
        super()._measure(instruments, seconds, failure)
        instruments.sent.add(self._count, failing(self._told.metric, failure), self._context)


class Process(Operation):
    """Around the handling of one delivery."""

    operation = "process"
    operation_type = "process"
    severity = SeverityNumber.ERROR

    def _start(
        self,
        tracer: Tracer,
        delivery: object,
        attributes: dict[str, Any],
        *,
        headers: Mapping[str, str],
        trace_id: str,
        created_at: int,
    ) -> Placement:
        """Start the span where the message was created, and make it current.

        Args:
            tracer: Starts it.
            delivery: What a function for the mode is given.
            attributes: The span's, when it begins.
            headers: Its headers.
            trace_id: Its ``trace_id``; ``""`` for none.
            created_at: When it was created, epoch milliseconds; 0 when nobody knows.

        Returns:
            Where the span hangs.
        """
        active, told = self._active, self._told
        created = created_in(active, told, headers, trace_id, attributes)
        here = context.get_current()
        place = placed(active, created, here, delivery, created_at)
        span = tracer.start_span(
            told.name,
            context=place.context,
            kind=SpanKind.CONSUMER,
            links=place.links,
            attributes=attributes,
        )
        self._enter(span, around(span, place.context, here))
        return place

    def _entered(
        self,
        delivery: object,
        created_at: int,
        refusal: BaseException | None = None,
        *,
        counted: bool = False,
    ) -> None:
        """Do what may fail once the span is current, without leaking it.

        Args:
            delivery: What the user's hook is given.
            created_at: As for :meth:`_start`.
            refusal: Why no handler will be called.
            counted: The delivery was counted before.
        """
        hook, instruments = self._active.options.process_hook, self._active.instruments
        try:
            if hook is not None and self._span.is_recording():
                asked(hook, self._span, delivery)
            if instruments is not None:
                self._tell_delivery(instruments, created_at, refusal, counted=counted)
        except Exception:
            logger.exception("something is not told of %s", self._told.name)
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise

    def _tell_delivery(
        self,
        instruments: Instruments,
        created_at: int,
        refusal: BaseException | None,
        *,
        counted: bool,
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

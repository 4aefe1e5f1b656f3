"""One messaging operation as a ``with``: its span, current inside, and its metrics."""

from __future__ import annotations

import logging
import os
import time
import traceback as tracebacks
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from opentelemetry import context, trace
from opentelemetry._logs import SeverityNumber
from opentelemetry.context import Context
from opentelemetry.instrumentation.babelqueue import semconv
from opentelemetry.instrumentation.babelqueue.metrics import Instruments
from opentelemetry.instrumentation.babelqueue.signals import SCOPE, Active
from opentelemetry.instrumentation.babelqueue.telling import Place, failing
from opentelemetry.trace import INVALID_SPAN, Span, Status, StatusCode

from babelqueue_carrier.errors import message_of, qualified_name

logger = logging.getLogger(__name__)

_REASONS = ("poison", "unknown_urn")
"""What ``error.type`` says of a message or job that no handler was given, in place of a class."""


class Operation:
    """Around one operation. What derives from it starts the span, and says how it is measured.

    Attributes:
        operation: The ``messaging.operation.name``.
        operation_type: The ``messaging.operation.type``.
        severity: Of the log event that an exception becomes.
    """

    operation = ""
    operation_type = ""
    severity = SeverityNumber.WARN

    _span: Span = INVALID_SPAN
    _context: Context | None = None
    _token: Any = None

    def __init__(self, active: Active, place: Place) -> None:
        """Prepare; nothing is started yet."""
        self._active = active
        self._told = active.told(place, self.operation, self.operation_type)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the span with the error that passes through, and measure."""
        inherited = self._forks != _forks
        try:
            if not inherited:
                self._finish(error)
        finally:
            if self._token is not None:
                context.detach(self._token)
            if not inherited:
                self._span.end()

    def _enter(self, span: Span = INVALID_SPAN, where: Context | None = None) -> None:
        """Make the span current. Last: nothing after it may fail, or the context would leak.

        Args:
            span: What is told of the operation; without one it is only measured.
            where: The context that holds it.
        """
        self._span = span
        self._forks = _forks
        self._started = time.perf_counter()
        if where is not None and span is not INVALID_SPAN:
            self._context = where
            self._token = context.attach(where)

    def _finish(self, error: BaseException | None) -> None:
        """Measure, and tell the error. Either may fail without the other."""
        seconds = time.perf_counter() - self._started
        failure = "" if error is None else error_type(error)
        try:
            if self._active.instruments is not None:
                self._measure(self._active.instruments, seconds, failure)
        finally:
            if error is not None:
                record_error(self._active, self._span, self._context, self, error, failure)

    def _measure(self, instruments: Instruments, seconds: float, failure: str) -> None:
        """Record what this operation is measured by."""
        attributes = failing(self._told.timed, failure)
        instruments.operation_duration.record(seconds, attributes, self._context)


def captured(headers: Mapping[str, str], active: Active) -> dict[str, Any]:
    """Return the attributes of those headers that are allowed to be told."""
    wanted = active.options.captured_headers
    if not wanted or not headers:
        return {}
    return {
        semconv.MESSAGING_HEADER + name.lower(): [value]
        for name, value in headers.items()
        if name.lower() in wanted
    }


def error_type(error: BaseException) -> str:
    """Return what ``error.type`` says of an error."""
    reason = vars(type(error)).get("reason")  # of the class: what an instance says may be anything
    return reason if reason in _REASONS else qualified_name(error)


def record_error(
    active: Active,
    span: Span,
    where: Context | None,
    operation: Operation | type[Operation],
    error: BaseException,
    failure: str,
) -> None:
    """Give a span its error: status, type, and the exception as the options say."""
    if span.is_recording():
        span.set_attribute(semconv.ERROR_TYPE, failure)
        span.set_status(Status(StatusCode.ERROR, message_of(error)))
    if active.options.exception_logs:
        stack = "".join(tracebacks.format_exception(type(error), error, error.__traceback__))
        active.signals.logger().emit(
            context=where,
            severity_number=operation.severity,
            event_name=f"messaging.{operation.operation_type}.exception",
            attributes={
                semconv.EXCEPTION_TYPE: qualified_name(error),
                semconv.EXCEPTION_MESSAGE: message_of(error),
                semconv.EXCEPTION_STACKTRACE: "".join(stack)
                .encode("utf-8", "backslashreplace")
                .decode("utf-8"),
            },
        )
    if active.options.exception_events and span.is_recording():
        span.record_exception(error)


_forks = 0
"""How many forks lie between this process and the one that loaded the module."""


def _in_child() -> None:
    """Leave to the parent what is the parent's: it ends the spans that are open in it.

    A span of ours that was current is not current here, so that what a forked worker does is not
    told as something that the parent's handler does.
    """
    global _forks  # noqa: PLW0603 - a process is one process
    _forks += 1
    scope = getattr(trace.get_current_span(), "instrumentation_scope", None)
    if getattr(scope, "name", None) == SCOPE:
        context.attach(trace.set_span_in_context(INVALID_SPAN))


os.register_at_fork(after_in_child=_in_child)

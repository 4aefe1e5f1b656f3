"""One messaging operation as a ``with``: its span, current inside, and its metrics."""

from __future__ import annotations

import logging
import os
import time
import traceback as tracebacks
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Protocol

from opentelemetry import context, trace
from opentelemetry._logs import SeverityNumber
from opentelemetry.context import Context
from opentelemetry.instrumentation.babelqueue import semconv
from opentelemetry.instrumentation.babelqueue.metrics import Instruments
from opentelemetry.instrumentation.babelqueue.signals import SCOPE, Active
from opentelemetry.trace import INVALID_SPAN, Span, Status, StatusCode

from babelqueue_carrier.errors import message_of, qualified_name

logger = logging.getLogger(__name__)

_REASONS = ("poison", "unknown_urn")
"""What ``error.type`` says of a message or job that no handler was given, in place of a class."""


class Place(Protocol):
    """A queue and the server it is on: a ``Destination`` of the transport, or the like."""

    @property
    def queue(self) -> str:
        """The logical name."""

    @property
    def layout(self) -> str:
        """How it is stored; ``""`` when nobody knows."""

    @property
    def address(self) -> str:
        """The server's name, or its socket's path; ``""`` when nobody knows."""

    @property
    def port(self) -> int | None:
        """The server's TCP port, if there is one."""


class Operation:
    """Around one operation. What derives from it starts the span, and says how it is measured.

    Attributes:
        operation: The ``messaging.operation.name``.
        operation_type: The ``messaging.operation.type``.
        severity: Of the log event that an exception becomes.
    """

    __slots__ = (
        "_active",
        "_context",
        "_forks",
        "_place",
        "_span",
        "_started",
        "_token",
    )

    operation = ""
    operation_type = ""
    severity = SeverityNumber.WARN

    def __init__(self, active: Active, place: Place) -> None:
        """Prepare; nothing is started yet."""
        self._active = active
        self._place = place
        self._span: Span = INVALID_SPAN
        self._context: Context | None = None
        self._token: Any = None
        self._started: float | None = None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the span with the error that passes through, and measure."""
        if self._started is None:
            return
        inherited = self._forks != _forks
        try:
            if not inherited:
                self._finish(error)
        finally:
            if self._token is not None:
                context.detach(self._token)
            if not inherited:
                self._span.end()

    def _enter(self, span: Span = INVALID_SPAN, parent: Context | None = None) -> None:
        """Make the span current. Last: nothing after it may fail, or the context would leak."""
        self._span = span
        self._forks = _forks
        self._started = time.perf_counter()
        if span is not INVALID_SPAN:
            around = {**context.get_current(), **(parent or {})}  # what others keep there stays
            self._context = trace.set_span_in_context(span, Context(around))
            self._token = context.attach(self._context)

    def _entered(self, tell: Callable[[], None]) -> None:
        """Do what may fail once the span is current, without leaking it."""
        try:
            tell()
        except Exception:
            logger.exception("something is not told of %s %s", self.operation, self._place.queue)
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise

    def _common(self) -> dict[str, Any]:
        """Return the attributes that spans and metrics share."""
        return common_attributes(self._place, self.operation, self._active.options.system)

    def _attributes(self, about: dict[str, Any]) -> dict[str, Any]:
        """Return the attributes that the span begins with."""
        return span_attributes(self._place, self._common(), self.operation_type, about)

    def _finish(self, error: BaseException | None) -> None:
        """Measure, and tell the error. Either may fail without the other."""
        seconds = time.perf_counter() - (self._started or 0)
        failure = "" if error is None else error_type(error)
        try:
            if self._active.instruments is not None:
                attributes = self._common()
                if failure:
                    attributes[semconv.ERROR_TYPE] = failure
                self._measure(self._active.instruments, seconds, attributes)
        finally:
            if error is not None:
                record_error(self._active, self._span, self._context, self, error, failure)

    def _measure(
        self, instruments: Instruments, seconds: float, attributes: dict[str, Any]
    ) -> None:
        """Record what this operation is measured by."""
        attributes = {**attributes, semconv.MESSAGING_OPERATION_TYPE: self.operation_type}
        instruments.operation_duration.record(seconds, attributes, self._context)


def common_attributes(place: Place, name: str, system: str) -> dict[str, Any]:
    """Return what spans and metrics of an operation share."""
    attributes: dict[str, Any] = {
        semconv.MESSAGING_SYSTEM: system,
        semconv.MESSAGING_OPERATION_NAME: name,
        semconv.MESSAGING_DESTINATION_NAME: place.queue,
    }
    if place.address:
        attributes[semconv.SERVER_ADDRESS] = place.address
    if place.port is not None:
        attributes[semconv.SERVER_PORT] = place.port
    return attributes


def span_attributes(
    place: Place, common: dict[str, Any], operation_type: str, about: dict[str, Any]
) -> dict[str, Any]:
    """Return the attributes that a span of an operation begins with, the common ones extended."""
    common[semconv.MESSAGING_OPERATION_TYPE] = operation_type
    if place.layout:
        common[semconv.BABELQUEUE_LAYOUT] = place.layout
    common.update(about)
    return common


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


def record_error(  # noqa: PLR0913, PLR0917 - all that an error is told with
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

"""The spans and metrics of what the SDK publishes and handles."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from opentelemetry import trace
from opentelemetry.instrumentation.babelqueue import semconv
from opentelemetry.instrumentation.babelqueue.contexts import (
    asked,
    given_context,
    injected,
    kind_of,
    stamp_of,
)
from opentelemetry.instrumentation.babelqueue.kinds import Process, Send
from opentelemetry.instrumentation.babelqueue.operation import captured
from opentelemetry.instrumentation.babelqueue.sdk_messages import (
    Call,
    RefusedError,
    SdkPlace,
    attempts,
    envelope_of,
    mapping,
    text,
    urn_of,
)
from opentelemetry.instrumentation.babelqueue.signals import Active
from opentelemetry.trace import Span, SpanContext, SpanKind, Tracer

logger = logging.getLogger(__name__)

_BY_STRATEGY = {"delete": "dropped", "release": "released", "dead_letter": "dead_lettered"}


class Guarded:
    """Enters an operation; what fails in it is logged and changes nothing."""

    def __init__(self, make: Callable[[], Any]) -> None:
        """Prepare; what is to be entered is made later, for that may fail too."""
        self._make = make
        self.operation: Any = None

    def __enter__(self) -> Any:
        """Enter; ``None`` when that failed."""
        try:
            self.operation = self._make()
            return self.operation.__enter__()
        except Exception:
            self.operation = None
            logger.exception("an operation of the babelqueue SDK is not traced")
            return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave."""
        if self.operation is None:
            return
        try:
            self.operation.__exit__(kind, error, traceback)
        except Exception:
            logger.exception("an operation of the babelqueue SDK was not traced to its end")


class SdkPublish(Send):
    """Around a publish of the SDK."""

    def __init__(self, active: Active, app: Any, call: Call) -> None:
        """Prepare."""
        super().__init__(active, SdkPlace.of(app, call.options.get("queue") or app.queue))
        self._call = call
        self.message_id: str | None = None

    def __enter__(self) -> Call:
        """Start the span, and return the call with its context in it."""
        active, told, call = self._active, self._told, self._call
        given = given_context(told, call.headers)
        if active.tracer is None or _is_current_producer(given):
            self._enter()  # the SDK's own helper has made the span
            return call
        span = self._begin(active.tracer, given)
        where = trace.set_span_in_context(span)
        try:
            origin = given or span.get_span_context()
            headers = call.headers
            if given is None:
                headers = injected(told, where, headers)
            trace_id = call.options.get("trace_id") or stamp_of(told, origin)
            carrying = call._replace(
                headers=headers, options={**call.options, "trace_id": trace_id}
            )
            self._tell(span, carrying)
        except BaseException:
            span.end()
            raise
        self._enter(span, where)
        return carrying

    def _begin(self, tracer: Tracer, given: SpanContext | None) -> Span:
        call = self._call
        attributes = {
            **self._told.span,
            semconv.BABELQUEUE_URN: str(call.urn),
            **captured(call.headers, self._active),
        }
        kind, links = kind_of(given)
        return tracer.start_span(self._told.name, kind=kind, links=links, attributes=attributes)

    def _tell(self, span: Span, call: Call) -> None:
        if not span.is_recording():
            return
        if trace_id := call.options.get("trace_id"):
            span.set_attribute(semconv.MESSAGING_MESSAGE_CONVERSATION_ID, str(trace_id))
        asked(self._active.options.publish_hook, span, call)

    def _finish(self, error: BaseException | None) -> None:
        if isinstance(self.message_id, str):
            self._span.set_attribute(semconv.MESSAGING_MESSAGE_ID, self.message_id)
        super()._finish(error)


class SdkProcess(Process):
    """Around the handler of a message that the SDK dispatches."""

    def __init__(
        self,
        active: Active,
        app: Any,
        received: Any,
        refusal: RefusedError | None = None,
    ) -> None:
        """Prepare."""
        super().__init__(active, SdkPlace.of(app, received.queue))
        self._app = app
        self._refusal = refusal
        self._received = received
        self._envelope = envelope_of(received.body)

    def __enter__(self) -> None:
        """Start the span, and count the delivery."""
        active, envelope, received = self._active, self._envelope, self._received
        meta = mapping(envelope.get("meta"))
        created_at = meta.get("created_at")
        created_at = created_at if isinstance(created_at, int) else 0
        if active.tracer is None:
            self._enter()
        else:
            self._start(
                active.tracer,
                received,
                self._about(envelope, meta),
                headers=received.headers,
                trace_id=text(envelope.get("trace_id")),
                created_at=created_at,
            )
        self._entered(received, created_at, self._refusal)

    def _about(self, envelope: Mapping[str, Any], meta: Mapping[str, Any]) -> dict[str, Any]:
        about = {
            semconv.BABELQUEUE_URN: self._received.route_urn or urn_of(envelope),
            semconv.MESSAGING_MESSAGE_ID: text(meta.get("id")),
            semconv.MESSAGING_MESSAGE_CONVERSATION_ID: text(envelope.get("trace_id")),
        }
        about = {key: value for key, value in about.items() if value}
        if envelope:
            about[semconv.BABELQUEUE_ATTEMPTS] = attempts(envelope)
        headers = captured(self._received.headers, self._active)
        return {**self._told.span, **about, **headers}

    def _finish(self, error: BaseException | None) -> None:
        self._span.set_attribute(semconv.BABELQUEUE_OUTCOME, self._intended(error))
        super()._finish(error)

    def _intended(self, error: BaseException | None) -> str:
        """Return what becomes of the message, as the SDK decides it for a handler's failure."""
        if error is None:
            return "acked"
        if not isinstance(error, Exception):
            return "released"
        if self._refusal is not None and (planned := self._planned(self._refusal)):
            return planned
        if attempts(self._envelope) + 1 < self._app.max_attempts and self._envelope:
            return "retried"
        return "dead_lettered" if self._app.dead_letter_enabled else "dropped"

    def _planned(self, refusal: RefusedError) -> str:
        """Return what the SDK's strategy makes of a message without a handler, if it is that."""
        strategy = self._app.on_unknown_urn
        if refusal.reason == "poison" and getattr(self._app.transport, "classifies_poison", False):
            return "dead_lettered"
        if refusal.reason == "poison" and strategy == "release":
            return ""
        return _BY_STRATEGY.get(strategy, "")


def _is_current_producer(given: SpanContext | None) -> bool:
    """Tell whether headers name the current span, and it is a publish span already."""
    if given is None:
        return False
    current = trace.get_current_span()
    kind = getattr(current, "kind", None)
    return kind is SpanKind.PRODUCER and current.get_span_context().span_id == given.span_id

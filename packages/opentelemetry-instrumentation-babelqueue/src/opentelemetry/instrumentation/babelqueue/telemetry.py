"""The spans: one hook on the transport's seam."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Any

from opentelemetry import context, propagate, trace
from opentelemetry.context import Context
from opentelemetry.instrumentation.babelqueue import semconv
from opentelemetry.instrumentation.babelqueue.version import __version__
from opentelemetry.instrumentation.utils import is_instrumentation_enabled
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode

from babelqueue_carrier.errors import message_of, qualified_name
from babelqueue_carrier.trace import creation, given_span_context, uuid_of
from babelqueue_redis.hooks import Hook
from babelqueue_redis.values import Delivery, Destination, Publication

logger = logging.getLogger(__name__)


class Telemetry(Hook):
    """Encloses each publish and each delivery in a span."""

    def __init__(self, tracer_provider: trace.TracerProvider | None = None) -> None:
        """Use ``tracer_provider``, or the global one of the moment."""
        self._provider = tracer_provider
        self._tracers: tuple[object, trace.Tracer] | None = None

    def publishing(self, publication: Publication) -> PublishOne:
        """Make the ``publish <queue>`` span and put its context into the message."""
        return PublishOne(self.tracer(), (publication,))

    def publishing_many(self, publications: tuple[Publication, ...]) -> PublishMany:
        """Make one ``publish <queue>`` span for the batch and put its context into each message."""
        return PublishMany(self.tracer(), publications)

    def processing(self, delivery: Delivery) -> Processing:
        """Make the ``process <queue>`` span as a child of the producer's."""
        return Processing(self.tracer(), self.provider(), delivery)

    def provider(self) -> trace.TracerProvider:
        """Return the tracer provider in use."""
        return self._provider or trace.get_tracer_provider()

    def tracer(self) -> trace.Tracer | None:
        """Return the tracer, or ``None`` when there is nothing to do.

        That is the case while instrumentation is suppressed, and while the provider is still the
        API's own or the SDK is disabled: then nothing is built and nothing is injected.
        """
        provider = self.provider()
        if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
            return None
        if not is_instrumentation_enabled():
            return None
        if self._tracers is None or self._tracers[0] is not provider:
            tracer = provider.get_tracer(__name__, __version__, schema_url=semconv.SCHEMA_URL)
            self._tracers = (provider, tracer)
        tracer = self._tracers[1]
        return None if isinstance(tracer, trace.NoOpTracer) else tracer


class _Enclosed:
    """A span that is current inside a ``with``; ended by it, with the error that passes through."""

    __slots__ = ("_span", "_token", "_tracer")

    def __init__(self, tracer: trace.Tracer | None) -> None:
        self._tracer = tracer
        self._span: Span | None = None
        self._token: Any = None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._span is None:
            return
        try:
            self._finish(self._span, error)
            if error is not None:
                _record(self._span, error)
        finally:
            context.detach(self._token)
            self._span.end()

    def _make_current(self, span: Span, parent: Context | None = None) -> None:
        self._span = span
        self._token = context.attach(trace.set_span_in_context(span, parent))

    def _finish(self, span: Span, error: BaseException | None) -> None:
        """Set what is known only at the end."""


class _Publish(_Enclosed):
    """Around one publish of one or more messages."""

    __slots__ = ("_publications",)

    def __init__(self, tracer: trace.Tracer | None, publications: tuple[Publication, ...]) -> None:
        super().__init__(tracer)
        self._publications = publications

    def _enter(self, attributes: dict[str, Any]) -> tuple[Publication, ...]:
        """Start the span, and return the publications with its context in them.

        Headers that already name a creation context are the caller's: they stay as they are, and
        the span is a CLIENT span that links to that context.
        """
        first = self._publications[0]
        if self._tracer is None:
            return self._publications
        given = given_span_context(first.headers)
        span = self._tracer.start_span(
            f"publish {first.destination.queue}",
            kind=SpanKind.CLIENT if given.is_valid else SpanKind.PRODUCER,
            links=[Link(given)] if given.is_valid else [],
            attributes={
                **_destination_attributes(first.destination, "publish", "send"),
                **attributes,
            },
        )
        try:
            carrying = _carrying(self._publications, span, given)
            if len(carrying) == 1 and carrying[0].trace_id is not None:
                chain = carrying[0].trace_id
                span.set_attribute(semconv.MESSAGING_MESSAGE_CONVERSATION_ID, chain)
        except BaseException:
            span.end()
            raise
        self._make_current(span)  # last: nothing after it may fail, or the context would leak
        return carrying


class PublishOne(_Publish):
    """Around ``publish``."""

    __slots__ = ()

    def __enter__(self) -> Publication:
        publication = self._publications[0]
        attributes = {
            semconv.MESSAGING_MESSAGE_ID: publication.message_id,
            semconv.BABELQUEUE_URN: publication.urn,
        }
        return self._enter(attributes)[0]


class PublishMany(_Publish):
    """Around ``publish_many``."""

    __slots__ = ()

    def __enter__(self) -> tuple[Publication, ...]:
        return self._enter({semconv.MESSAGING_BATCH_MESSAGE_COUNT: len(self._publications)})


class Processing(_Enclosed):
    """Around the handling of one delivery."""

    __slots__ = ("_delivery", "_provider")

    def __init__(
        self, tracer: trace.Tracer | None, provider: trace.TracerProvider, delivery: Delivery
    ) -> None:
        super().__init__(tracer)
        self._provider = provider
        self._delivery = delivery

    def __enter__(self) -> None:
        if self._tracer is None:
            return
        delivery = self._delivery
        name = f"process {delivery.destination.queue}"
        attributes = _delivery_attributes(delivery)
        trace_id = delivery.envelope.trace_id if delivery.envelope else ""
        created = creation(delivery.headers, trace_id, self._provider, name, attributes)
        span = self._tracer.start_span(
            name,
            context=created.context,
            kind=SpanKind.CONSUMER,
            links=[Link(created.span_context)] if created.span_context.is_valid else [],
            attributes=attributes,
        )
        self._make_current(span, created.context)

    def _finish(self, span: Span, error: BaseException | None) -> None:
        outcome = self._delivery.intended(error)
        span.set_attribute(semconv.BABELQUEUE_OUTCOME, outcome.value)


def _carrying(
    publications: tuple[Publication, ...], span: Span, given: trace.SpanContext
) -> tuple[Publication, ...]:
    """Return the publications with their creation context in the headers, and its trace stamped."""
    injected: dict[str, str] = {}
    if not given.is_valid:
        propagate.inject(injected, trace.set_span_in_context(span))
        given = span.get_span_context()
    stamp = uuid_of(given.trace_id) if given.is_valid else None
    return tuple(
        each.carrying({**injected, **each.headers}, each.trace_id or stamp) for each in publications
    )


def _destination_attributes(destination: Destination, name: str, kind: str) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        semconv.MESSAGING_SYSTEM: semconv.SYSTEM,
        semconv.MESSAGING_OPERATION_NAME: name,
        semconv.MESSAGING_OPERATION_TYPE: kind,
        semconv.MESSAGING_DESTINATION_NAME: destination.queue,
        semconv.BABELQUEUE_LAYOUT: destination.layout,
        semconv.SERVER_ADDRESS: destination.address,
    }
    if destination.port is not None:
        attributes[semconv.SERVER_PORT] = destination.port
    return attributes


def _delivery_attributes(delivery: Delivery) -> dict[str, Any]:
    attributes = _destination_attributes(delivery.destination, "process", "process")
    envelope = delivery.envelope
    if envelope is not None:
        attributes[semconv.BABELQUEUE_URN] = envelope.job
        attributes[semconv.BABELQUEUE_ATTEMPTS] = envelope.attempts
        if envelope.meta.id:
            attributes[semconv.MESSAGING_MESSAGE_ID] = envelope.meta.id
        if envelope.trace_id:
            attributes[semconv.MESSAGING_MESSAGE_CONVERSATION_ID] = envelope.trace_id
    return attributes


def _record(span: Span, error: BaseException) -> None:
    kind = getattr(error, "reason", None) or qualified_name(error)
    span.set_attribute(semconv.ERROR_TYPE, kind)
    span.set_status(Status(StatusCode.ERROR, message_of(error)))
    span.record_exception(error)

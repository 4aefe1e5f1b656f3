"""The spans and metrics of publishing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opentelemetry import trace
from opentelemetry.instrumentation.babelqueue import semconv
from opentelemetry.instrumentation.babelqueue.contexts import (
    asked,
    given_context,
    injected,
    links_to,
    stamp_of,
)
from opentelemetry.instrumentation.babelqueue.kinds import Send
from opentelemetry.instrumentation.babelqueue.operation import (
    captured,
    common_attributes,
    span_attributes,
)
from opentelemetry.instrumentation.babelqueue.signals import Active
from opentelemetry.trace import Span, SpanContext, SpanKind, Tracer

from babelqueue_redis.core.publishing import message_of
from babelqueue_redis.values import Publication

_SOME_UUID = "0" * 36


class Publish(Send):
    """Around one publish of one or more messages."""

    __slots__ = ("_publications",)

    def __init__(self, active: Active, publications: tuple[Publication, ...]) -> None:
        """Prepare."""
        super().__init__(active, publications[0].destination)
        self._count = len(publications)
        self._publications = publications


class PublishOne(Publish):
    """Around ``publish``."""

    __slots__ = ()

    def __enter__(self) -> Publication:
        """Start the span, and return the publication with its context in it.

        Headers that already name a creation context are the caller's: they stay as they are, and
        the span is a CLIENT span that links to that context.
        """
        publication = self._publications[0]
        tracer = self._active.tracer
        if tracer is None:
            self._enter()
            return publication
        given = given_context(self._active, publication.destination.queue, publication.headers)
        kind = SpanKind.CLIENT if given.is_valid else SpanKind.PRODUCER
        publication = foreseen(self._active, publication, given)
        span = self._start(tracer, kind, links_to(given), _about(self._active, publication))
        try:
            carrying = carried(self._active, publication, span, given)
            _tell(self._active, span, carrying, is_new=publication.trace_id is None)
        except BaseException:
            span.end()
            raise
        self._enter(span)
        return carrying


class PublishMany(Publish):
    """Around ``publish_many``."""

    __slots__ = ()

    def __enter__(self) -> tuple[Publication, ...]:
        """Start the spans, and return the publications with their contexts in them."""
        tracer = self._active.tracer
        if tracer is None:
            self._enter()
            return self._publications
        count = {semconv.MESSAGING_BATCH_MESSAGE_COUNT: len(self._publications)}
        if not self._active.options.create_spans:
            return self._as_creator(tracer, count)
        carrying, creations = create_all(self._active, tracer, self._publications)
        self._enter(self._start(tracer, SpanKind.CLIENT, links_to(*creations), count))
        return carrying

    def _as_creator(self, tracer: Tracer, count: dict[str, Any]) -> tuple[Publication, ...]:
        """Let the one span be the creation context of all messages that have none."""
        active, first = self._active, self._publications[0]
        given = given_context(active, first.destination.queue, first.headers)
        kind = SpanKind.CLIENT if given.is_valid else SpanKind.PRODUCER
        span = self._start(tracer, kind, links_to(given), count)
        try:
            carrying = tuple(carried(active, each, span, given) for each in self._publications)
            for each in carrying:
                _tell(active, span, each, is_new=len(carrying) == 1)
        except BaseException:
            span.end()
            raise
        self._enter(span)
        return carrying


def create_all(
    active: Active, tracer: Tracer, publications: Sequence[Publication]
) -> tuple[tuple[Publication, ...], list[SpanContext]]:
    """Make a ``create`` span for each message that names no creation context yet.

    Returns:
        The publications with their contexts in them, and the contexts.
    """
    place = publications[0].destination
    system, name = active.options.system, f"create {place.queue}"
    carrying, creations = [], []
    for each in publications:
        given = given_context(active, place.queue, each.headers)
        if given.is_valid:
            carrying.append(carried(active, each, trace.INVALID_SPAN, given))
            creations.append(given)
            continue
        common = common_attributes(place, "create", system)
        message = foreseen(active, each, given)
        attributes = span_attributes(place, common, "create", _about(active, message))
        span = tracer.start_span(name, kind=SpanKind.PRODUCER, attributes=attributes)
        try:
            carrying.append(carried(active, message, span, given))
            _tell(active, span, carrying[-1], is_new=message.trace_id is None)
        finally:
            span.end()
        creations.append(span.get_span_context())
    return tuple(carrying), creations


def foreseen(active: Active, publication: Publication, given: SpanContext) -> Publication:
    """Return a publication with its ``trace_id``, if that is known before its span is started."""
    if publication.trace_id is not None:
        return publication
    origin = given if given.is_valid else trace.get_current_span().get_span_context()
    stamp = stamp_of(active, publication.destination.queue, origin)
    return publication if stamp is None else publication.carrying(publication.headers, stamp)


def carried(
    active: Active, publication: Publication, span: Span, given: SpanContext
) -> Publication:
    """Return a publication with its creation context in it.

    Args:
        active: What there is to record with.
        publication: What is published.
        span: Its creation context, unless there is one already.
        given: The context that its headers name.
    """
    queue = publication.destination.queue
    origin = given if given.is_valid else span.get_span_context()
    trace_id = publication.trace_id or stamp_of(active, queue, origin)
    headers = publication.headers
    if not given.is_valid:
        headers = {**injected(active, queue, span), **headers}
    return publication.carrying(headers, trace_id)


def _tell(active: Active, span: Span, publication: Publication, *, is_new: bool) -> None:
    """Tell a span of a message that it creates, and of its ``trace_id`` where that is new."""
    if not span.is_recording():
        return
    if is_new and publication.trace_id is not None:
        span.set_attribute(semconv.MESSAGING_MESSAGE_CONVERSATION_ID, publication.trace_id)
    asked(active.options.publish_hook, span, publication)


def _about(active: Active, publication: Publication) -> dict[str, Any]:
    about: dict[str, Any] = {
        semconv.MESSAGING_MESSAGE_ID: publication.message_id,
        semconv.BABELQUEUE_URN: publication.urn,
        **captured(publication.headers, active),
    }
    if publication.trace_id is not None:
        about[semconv.MESSAGING_MESSAGE_CONVERSATION_ID] = publication.trace_id
    if active.options.body_size:
        about[semconv.MESSAGING_MESSAGE_BODY_SIZE] = len(message_of(publication, _SOME_UUID)[0])
    return about

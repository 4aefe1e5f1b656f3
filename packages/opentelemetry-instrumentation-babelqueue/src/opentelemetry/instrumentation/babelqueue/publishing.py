"""The spans and metrics of publishing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.instrumentation.babelqueue import semconv
from opentelemetry.instrumentation.babelqueue.contexts import (
    asked,
    given_context,
    injected,
    links_to,
    stamp_of,
)
from opentelemetry.instrumentation.babelqueue.kinds import Send
from opentelemetry.instrumentation.babelqueue.operation import captured
from opentelemetry.instrumentation.babelqueue.signals import Active
from opentelemetry.instrumentation.babelqueue.telling import told_by
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
        trace_id = foreseen(self._active, publication, given)
        about = _about(self._active, publication, trace_id)
        span = self._start(tracer, kind, links_to(given), about)
        where = trace.set_span_in_context(span)
        try:
            carrying = carried(self._active, publication, where, given, trace_id)
            _tell(self._active, span, carrying, is_new=trace_id is None)
        except BaseException:
            span.end()
            raise
        self._enter(span, where)
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
        span = self._start(tracer, SpanKind.CLIENT, links_to(*creations), count)
        self._enter(span, trace.set_span_in_context(span))
        return carrying

    def _as_creator(self, tracer: Tracer, count: dict[str, Any]) -> tuple[Publication, ...]:
        """Let the one span be the creation context of all messages that have none."""
        active, first = self._active, self._publications[0]
        given = given_context(active, first.destination.queue, first.headers)
        kind = SpanKind.CLIENT if given.is_valid else SpanKind.PRODUCER
        span = self._start(tracer, kind, links_to(given), count)
        where = trace.set_span_in_context(span)
        try:
            carrying = tuple(
                carried(active, each, where, given, each.trace_id) for each in self._publications
            )
            for each in carrying:
                _tell(active, span, each, is_new=len(carrying) == 1)
        except BaseException:
            span.end()
            raise
        self._enter(span, where)
        return carrying


def create_all(
    active: Active, tracer: Tracer, publications: Sequence[Publication]
) -> tuple[tuple[Publication, ...], list[SpanContext]]:
    """Make a ``create`` span for each message that names no creation context yet.

    Returns:
        The publications with their contexts in them, and the contexts.
    """
    place = publications[0].destination
    told = told_by(place, "create", "create", active.options.system)
    carrying, creations = [], []
    for each in publications:
        given = given_context(active, place.queue, each.headers)
        if given.is_valid:
            carrying.append(carried(active, each, Context(), given, each.trace_id))
            creations.append(given)
            continue
        trace_id = foreseen(active, each, given)
        attributes = {**told.span, **_about(active, each, trace_id)}
        span = tracer.start_span(told.name, kind=SpanKind.PRODUCER, attributes=attributes)
        try:
            where = trace.set_span_in_context(span)
            carrying.append(carried(active, each, where, given, trace_id))
            _tell(active, span, carrying[-1], is_new=trace_id is None)
        finally:
            span.end()
        creations.append(span.get_span_context())
    return tuple(carrying), creations


def foreseen(active: Active, publication: Publication, given: SpanContext) -> str | None:
    """Return the ``trace_id`` of a publication, if it is known before its span is started."""
    if publication.trace_id is not None:
        return publication.trace_id
    origin = given if given.is_valid else trace.get_current_span().get_span_context()
    return stamp_of(active, publication.destination.queue, origin)


def carried(
    active: Active,
    publication: Publication,
    where: Context,
    given: SpanContext,
    trace_id: str | None,
) -> Publication:
    """Return a publication with its creation context in it.

    Args:
        active: What there is to record with.
        publication: What is published.
        where: The context of the span that creates it, unless it has a creation context already.
        given: The creation context that its headers name.
        trace_id: Its ``trace_id``, as far as that is known.
    """
    queue, headers, origin = publication.destination.queue, publication.headers, given
    if not given.is_valid:
        headers = {**injected(active, queue, where), **headers}
        origin = trace.get_current_span(where).get_span_context()
    return publication.carrying(headers, trace_id or stamp_of(active, queue, origin))


def _tell(active: Active, span: Span, publication: Publication, *, is_new: bool) -> None:
    """Tell a span of a message that it creates, and of its ``trace_id`` where that is new."""
    if not span.is_recording():
        return
    if is_new and publication.trace_id is not None:
        span.set_attribute(semconv.MESSAGING_MESSAGE_CONVERSATION_ID, publication.trace_id)
    asked(active.options.publish_hook, span, publication)


def _about(active: Active, publication: Publication, trace_id: str | None) -> dict[str, Any]:
    about: dict[str, Any] = {
        semconv.MESSAGING_MESSAGE_ID: publication.message_id,
        semconv.BABELQUEUE_URN: publication.urn,
        **captured(publication.headers, active),
    }
    if trace_id is not None:
        about[semconv.MESSAGING_MESSAGE_CONVERSATION_ID] = trace_id
    if active.options.body_size:
        about[semconv.MESSAGING_MESSAGE_BODY_SIZE] = len(message_of(publication, _SOME_UUID)[0])
    return about

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
    kind_of,
    stamp_of,
)
from opentelemetry.instrumentation.babelqueue.kinds import Send
from opentelemetry.instrumentation.babelqueue.operation import captured
from opentelemetry.instrumentation.babelqueue.signals import Active
from opentelemetry.instrumentation.babelqueue.telling import Told
from opentelemetry.trace import INVALID_SPAN, Link, Span, SpanContext, SpanKind, Tracer

from babelqueue_redis.core.publishing import message_of
from babelqueue_redis.values import Publication

_SOME_UUID = "0" * 36


class PublishOne(Send):
    """Around ``publish``."""

    def __init__(self, active: Active, publication: Publication) -> None:
        """Prepare."""
        super().__init__(active, publication.destination)
        self._publication = publication

    def __enter__(self) -> Publication:
        """Start the span, and return the publication with its context in it.

        Headers that already name a creation context are the caller's: they stay as they are, and
        the span is a CLIENT span that links to that context.
        """
        active, told, publication = self._active, self._told, self._publication
        tracer = active.tracer
        if tracer is None:
            self._enter()
            return publication
        given = given_context(told, publication.headers)
        span, where, carrying = begun(active, told, tracer, publication, given)
        self._enter(span, where)
        return carrying


class PublishMany(Send):
    """Around ``publish_many``."""

    def __init__(self, active: Active, publications: tuple[Publication, ...]) -> None:
        """Prepare."""
        super().__init__(active, publications[0].destination)
        self._count = len(publications)
        self._publications = publications

    def __enter__(self) -> tuple[Publication, ...]:
        """Start the spans, and return the publications with their contexts in them."""
        tracer = self._active.tracer
        if tracer is None:
            self._enter()
            return self._publications
        if not self._active.options.create_spans:
            return self._as_creator(tracer)
        carrying, creations = create_all(self._active, tracer, self._publications)
        span = self._start(tracer, SpanKind.CLIENT, creations)
        self._enter(span, trace.set_span_in_context(span))
        return carrying

    def _as_creator(self, tracer: Tracer) -> tuple[Publication, ...]:
        """Let the one span be the creation context of all messages that have none."""
        active, told, first = self._active, self._told, self._publications[0]
        given = given_context(told, first.headers)
        span = self._start(tracer, *kind_of(given))
        where = trace.set_span_in_context(span)
        try:
            carrying = tuple(
                carried(told, each, span, where, given, each.trace_id)
                for each in self._publications
            )
            for each in carrying:
                _tell(active, span, each, is_new=len(carrying) == 1)
        except BaseException:
            span.end()
            raise
        self._enter(span, where)
        return carrying

    def _start(self, tracer: Tracer, kind: SpanKind, links: list[Link]) -> Span:
        """Start the span, under the current one."""
        count = {semconv.MESSAGING_BATCH_MESSAGE_COUNT: self._count}
        attributes = {**self._told.span, **count}
        return tracer.start_span(self._told.name, kind=kind, links=links, attributes=attributes)


def create_all(
    active: Active, tracer: Tracer, publications: Sequence[Publication]
) -> tuple[tuple[Publication, ...], list[Link]]:
    """Make a ``create`` span for each message that names no creation context yet.

    Returns:
        The publications with their contexts in them, and a link to each context.
    """
    told = active.told(publications[0].destination, "create", "create")
    carrying, creations = [], {}
    for each in publications:
        given = given_context(told, each.headers)
        if given is not None:
            carrying.append(carried(told, each, INVALID_SPAN, Context(), given, each.trace_id))
            creations[given.span_id] = given
            continue
        span, _, carrier = begun(active, told, tracer, each, given)
        span.end()
        carrying.append(carrier)
        creation = span.get_span_context()
        creations[creation.span_id] = creation
    return tuple(carrying), [Link(each) for each in creations.values() if each.is_valid]


def begun(
    active: Active,
    told: Told,
    tracer: Tracer,
    publication: Publication,
    given: SpanContext | None,
) -> tuple[Span, Context, Publication]:
    """Start the span of one message.

    Returns:
        The span, the context that holds it, and the publication with its creation context in it.
    """
    trace_id = foreseen(told, publication, given)
    attributes = _about(active, told, publication, trace_id)
    kind, links = kind_of(given)
    span = tracer.start_span(told.name, kind=kind, links=links, attributes=attributes)
    try:
        where = trace.set_span_in_context(span)
        carrying = carried(told, publication, span, where, given, trace_id)
        _tell(active, span, carrying, is_new=trace_id is None)
    except BaseException:
        span.end()
        raise
    return span, where, carrying


def foreseen(told: Told, publication: Publication, given: SpanContext | None) -> str | None:
    """Return the ``trace_id`` of a publication, if it is known before its span is started."""
    if publication.trace_id is not None:
        return publication.trace_id
    return stamp_of(told, given or trace.get_current_span().get_span_context())


def carried(
    told: Told,
    publication: Publication,
    span: Span,
    where: Context,
    given: SpanContext | None,
    trace_id: str | None,
) -> Publication:
    """Return a publication with its creation context in it.

    Args:
        told: What is told of the queue.
        publication: What is published.
        span: What creates it, unless it has a creation context already.
        where: The context with that span.
        given: The creation context that its headers name, if they do.
        trace_id: Its ``trace_id``, as far as that is known.
    """
    headers = publication.headers
    if given is None:
        headers = injected(told, where, headers)
    if not trace_id:
        trace_id = stamp_of(told, given or span.get_span_context())
    return publication.carrying(headers, trace_id)


def _tell(active: Active, span: Span, publication: Publication, *, is_new: bool) -> None:
    """Tell a span of a message that it creates, and of its ``trace_id`` where that is new."""
    hook = active.options.publish_hook
    if not (is_new or hook) or not span.is_recording():
        return
    if is_new and publication.trace_id is not None:
        span.set_attribute(semconv.MESSAGING_MESSAGE_CONVERSATION_ID, publication.trace_id)
    asked(hook, span, publication)


def _about(
    active: Active, told: Told, publication: Publication, trace_id: str | None
) -> dict[str, Any]:
    """Return what the span of one message begins with."""
    about = {
        **told.span,
        semconv.MESSAGING_MESSAGE_ID: publication.message_id,
        semconv.BABELQUEUE_URN: publication.urn,
    }
    if trace_id is not None:
        about[semconv.MESSAGING_MESSAGE_CONVERSATION_ID] = trace_id
    if active.options.captured_headers:
        about |= captured(publication.headers, active)
    if active.options.body_size:
        about[semconv.MESSAGING_MESSAGE_BODY_SIZE] = len(message_of(publication, _SOME_UUID)[0])
    return about

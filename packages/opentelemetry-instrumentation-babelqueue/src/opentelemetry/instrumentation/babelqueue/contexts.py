"""Where spans hang, and how messages tell it: parents, links, headers."""

from __future__ import annotations

import logging
import time
from asyncio import CancelledError
from collections.abc import Mapping
from typing import Any, NamedTuple

from opentelemetry import baggage, propagate, trace
from opentelemetry.context import Context
from opentelemetry.instrumentation.babelqueue.config import MODES, Function
from opentelemetry.instrumentation.babelqueue.signals import Active
from opentelemetry.instrumentation.babelqueue.telling import Told
from opentelemetry.trace import (
    INVALID_SPAN,
    INVALID_SPAN_CONTEXT,
    Link,
    Span,
    SpanContext,
    SpanKind,
)

from babelqueue_carrier.headers import Headers
from babelqueue_carrier.trace import Creation, creation, given_span_context, uuid_of

logger = logging.getLogger(__name__)


class Placement(NamedTuple):
    """Where a span hangs.

    Attributes:
        context: What the handler's context is made of: the parent, if there is one, and baggage.
        links: To the creation context, and to what was current.
    """

    context: Context
    links: list[Link]


def created_in(
    active: Active,
    told: Told,
    headers: Mapping[str, str],
    trace_id: str,
    attributes: Mapping[str, Any] | None = None,
) -> Creation:
    """Return where a message was created, as far as the options let us ask.

    Args:
        active: What there is to record with.
        told: What is told of the operation that takes the message.
        headers: Its headers.
        trace_id: Its ``trace_id``; ``""`` for none.
        attributes: Of the span that is to hang there.
    """
    if not told.propagates:
        return Creation(Context(), INVALID_SPAN_CONTEXT)
    if active.options.headerless == "none":
        trace_id = ""
    provider = active.sampler_of or trace.get_tracer_provider()
    created = creation(headers, trace_id, provider, told.name, attributes)
    if not told.carries_baggage:
        return created._replace(context=baggage.clear(created.context))
    return created


def placed(
    active: Active, created: Creation, here: Context, delivery: object, created_at: int
) -> Placement:
    """Return where the span of a delivery hangs.

    Args:
        active: What there is to record with.
        created: Where the message was created.
        here: The context that is current.
        delivery: What a function for the mode is given.
        created_at: When the message was created, epoch milliseconds; 0 when nobody knows.
    """
    mode = active.options.mode
    if not isinstance(mode, str):
        mode = _chosen(mode, delivery)
    age = active.options.max_parent_age
    if mode == "parent" and age is not None and 0 < created_at < (time.time() - age) * 1000:
        mode = "link"
    links = [] if mode == "none" else links_to(created.span_context)
    if here:
        ambient = trace.get_current_span(here).get_span_context()
        if not links or ambient.span_id != created.span_context.span_id:
            links += links_to(ambient)
    if mode == "none":
        return Placement(Context(), links)
    if mode == "parent":
        return Placement(created.context, links)
    return Placement(trace.set_span_in_context(INVALID_SPAN, created.context), links)


def given_context(told: Told, headers: Headers) -> SpanContext | None:
    """Return the creation context that a caller's headers name, if they name one."""
    if not headers or not told.propagates:
        return None
    given = given_span_context(headers)
    return given if given.is_valid else None


def around(span: Span, parent: Context, here: Context) -> Context:
    """Return the context of a handler; what others keep in the one that is current stays."""
    both = Context({**here, **parent}) if here and parent else parent or here
    return trace.set_span_in_context(span, both)


def injected(told: Told, where: Context, headers: Headers) -> Headers:
    """Return headers and those that lead to the span of a context, and what travels with it."""
    if not told.propagates:
        return headers
    if not told.carries_baggage:
        where = baggage.clear(where)
    found: dict[str, str] = {}
    propagate.inject(found, where)
    return {**found, **headers} if headers else found


def stamp_of(told: Told, origin: SpanContext) -> str | None:
    """Return the ``trace_id`` of an envelope that is created in a span, if it is to have one."""
    if not origin.is_valid or not told.propagates:
        return None
    return uuid_of(origin.trace_id)


def _chosen(function: Function, delivery: object) -> str:
    chosen = asked(function, delivery)
    if chosen is None:
        return "parent"
    if chosen not in MODES:
        logger.error("mode must be one of %s, not %r", ", ".join(MODES), chosen)
        return "parent"
    return str(chosen)


def asked(function: Function | None, *args: object) -> Any:
    """Call a function of the user's; when it fails, say so and return ``None``."""
    if function is None:
        return None
    try:
        return function(*args)
    except (Exception, CancelledError, GeneratorExit, SystemExit):
        logger.exception("%r failed; it changes nothing", function)
        return None


def kind_of(given: SpanContext | None) -> tuple[SpanKind, list[Link]]:
    """Return of which kind a span is that sends, and its links.

    Args:
        given: Where the message was created, if that was elsewhere.
    """
    return (SpanKind.PRODUCER, []) if given is None else (SpanKind.CLIENT, [Link(given)])


def links_to(span_context: SpanContext) -> list[Link]:
    """Return a link to a span context, if it is one."""
    return [Link(span_context)] if span_context.is_valid else []

"""Trace context on the wire: headers by the global propagator, and the envelope's ``trace_id``.

Two ways lead from a message to its producer's trace. The headers (``traceparent`` and whatever
else the configured propagator writes) name the producer's span. Without them, the envelope's
``trace_id`` names at least the trace: a UUID's 32 hex digits *are* the OpenTelemetry trace id.

This module needs ``opentelemetry-api`` only. The package loads it on first use, because the
import costs about 30 ms.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from babelqueue_carrier.headers import ASCII_WHITESPACE, Headers, clean

MAX_HEADERS = 128
MAX_NAME = 256
MAX_VALUE = 8192
"""What propagators are shown: the first headers, and none that is longer, in characters."""
_HEX_32 = re.compile(r"[0-9a-fA-F]{32}", re.ASCII)


def inject(headers: Headers | None = None) -> dict[str, str]:
    """Return ``headers`` plus what the global propagator writes for the current context.

    This is the explicit way to propagate: ``publisher.publish(urn, data, headers=inject())``.
    Without an active span nothing is added, and the message stays a bare envelope.

    Raises:
        HeaderError: One of the given headers is not text.
    """
    carrier = clean(headers)
    propagate.inject(carrier)
    return carrier


class Creation(NamedTuple):
    """Where a message was created.

    Attributes:
        context: The context to go on in: baggage, and the span context unless it is undecided.
        span_context: The producer's span, or one derived from the ``trace_id``; invalid for none.
        undecided: The span context is derived, and nobody could say whether it is sampled.
    """

    context: Context
    span_context: SpanContext
    undecided: bool = False


def extract(headers: Headers, trace_id: str = "") -> Context:
    """Return the context a message was created in.

    Args:
        headers: The delivered headers, ``{}`` when there are none.
        trace_id: The envelope's ``trace_id``; blank when it has none.

    Returns:
        A context that does not depend on the current one. Its span context is the one of a valid
        ``traceparent`` (or of whatever format the global propagator reads); with none, one in the
        trace that ``trace_id`` names, sampled as the tracer provider's own sampler would decide
        for a new trace of that id; with neither, none. Baggage is restored in every case.
    """
    created = creation(headers, trace_id, trace.get_tracer_provider(), "process")
    if created.undecided:
        return trace.set_span_in_context(NonRecordingSpan(created.span_context), created.context)
    return created.context


def creation(
    headers: Headers,
    trace_id: str,
    provider: trace.TracerProvider,
    name: str,
    attributes: Mapping[str, Any] | None = None,
) -> Creation:
    """Return where a message was created, from its headers, or else from its ``trace_id``.

    Nothing on the wire says whether a trace that only the ``trace_id`` names is sampled. Forcing
    the flag would overrule a sampler set to 0, so ``provider``'s sampler is asked as for a new
    trace: for a CONSUMER span of this ``name`` and these ``attributes``.
    """
    context = propagate.extract(_bounded(headers), context=Context())
    span_context = trace.get_current_span(context).get_span_context()
    if span_context.is_valid or not trace_id.strip(ASCII_WHITESPACE):
        return Creation(context, span_context)
    sampled = _root_decision(provider, trace_id, name, attributes)
    derived = SpanContext(
        trace_id=trace_id_of(trace_id),
        span_id=parent_span_id_of(trace_id),
        is_remote=True,
        trace_flags=TraceFlags(TraceFlags.SAMPLED if sampled else TraceFlags.DEFAULT),
    )
    if sampled is None:
        return Creation(context, derived, undecided=True)
    return Creation(trace.set_span_in_context(NonRecordingSpan(derived), context), derived)


def given_span_context(headers: Headers) -> SpanContext:
    """Return the span context that ``headers`` name; an invalid one when they name none."""
    context = propagate.extract(_bounded(headers), context=Context())
    return trace.get_current_span(context).get_span_context()


def _bounded(headers: Headers) -> dict[str, str]:
    """Keep a hostile producer's headers out of contexts and spans; handlers get all of them."""
    return {
        name: value
        for name, value in itertools.islice(headers.items(), MAX_HEADERS)
        if len(name) <= MAX_NAME and len(value) <= MAX_VALUE
    }


def _root_decision(
    provider: trace.TracerProvider,
    trace_id: str,
    name: str,
    attributes: Mapping[str, Any] | None,
) -> bool | None:
    """Ask the sampler about a new trace; ``None`` when it cannot be asked."""
    sampler = getattr(provider, "sampler", None)
    if sampler is None:
        return None
    try:
        result = sampler.should_sample(
            parent_context=Context(),
            trace_id=trace_id_of(trace_id),
            name=name,
            kind=trace.SpanKind.CONSUMER,
            attributes=attributes,
        )
        return bool(result.decision.is_sampled())
    except Exception:  # noqa: BLE001 - somebody else's sampler, and telemetry must not raise
        return None


def trace_id_of(trace_id: str) -> int:
    """Return the 128-bit OpenTelemetry trace id of an envelope's ``trace_id``; never zero.

    A UUID gives its own 32 hex digits. Any other text, and the all-zero UUID, gives the first 16
    bytes of its SHA-256.
    """
    digits = trace_id.replace("-", "")
    if _HEX_32.fullmatch(digits) and (number := int(digits, 16)):
        return number
    return _hashed(trace_id, 16)


def uuid_of(trace_id: int) -> str:
    """Return an OpenTelemetry trace id as the UUID text that an envelope carries."""
    digits = f"{trace_id:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def parent_span_id_of(trace_id: str) -> int:
    """Return the 64-bit span id every SDK derives as the parent in a header-less message."""
    return _hashed("babelqueue-span:" + trace_id, 8)


def _hashed(text: str, size: int) -> int:
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:size], "big") or 1

"""Trace context on the wire: headers by the global propagator, and the envelope's ``trace_id``.

Two ways lead from a message to its producer's trace. The headers (``traceparent`` and whatever
else the configured propagator writes) name the producer's span. Without them, the envelope's
``trace_id`` names at least the trace: a UUID's 32 hex digits *are* the OpenTelemetry trace id.

This module needs ``opentelemetry-api`` only. The package loads it on first use, because the
import costs about 30 ms.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from babelqueue_carrier.headers import ASCII_WHITESPACE, Headers, clean
from opentelemetry import propagate, trace

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
    context = remote_context(headers)
    if trace_id.strip(ASCII_WHITESPACE) and not span_context_of(context).is_valid:
        sampled = root_decision(trace.get_tracer_provider(), trace_id, "process")
        context = trace.set_span_in_context(
            NonRecordingSpan(derived_span_context(trace_id, sampled=bool(sampled))), context
        )
    return context


def remote_context(headers: Headers) -> Context:
    """Return what the global propagator reads from ``headers``, starting from an empty context."""
    return propagate.extract(headers, context=Context())


def span_context_of(context: Context) -> SpanContext:
    """Return the span context in ``context``; an invalid one when there is none."""
    return trace.get_current_span(context).get_span_context()


def derived_span_context(trace_id: str, *, sampled: bool) -> SpanContext:
    """Return the remote span context that stands for a message without headers."""
    return SpanContext(
        trace_id=trace_id_of(trace_id),
        span_id=parent_span_id_of(trace_id),
        is_remote=True,
        trace_flags=TraceFlags(TraceFlags.SAMPLED if sampled else TraceFlags.DEFAULT),
    )


def root_decision(
    provider: trace.TracerProvider,
    trace_id: str,
    name: str,
    attributes: Mapping[str, Any] | None = None,
) -> bool | None:
    """Ask the provider's sampler whether it would sample a new trace of this id.

    Nothing on the wire says whether the producer sampled, and forcing the flag would overrule a
    sampler set to 0. ``None`` means that the provider cannot be asked.
    """
    sampler = getattr(provider, "sampler", None)
    try:
        result = sampler.should_sample(  # type: ignore[union-attr]  # the SDK's, checked by trying
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
    return "-".join(
        (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]),
    )


def parent_span_id_of(trace_id: str) -> int:
    """Return the 64-bit span id every SDK derives as the parent in a header-less message."""
    return _hashed("babelqueue-span:" + trace_id, 8)


def _hashed(text: str, size: int) -> int:
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:size], "big") or 1

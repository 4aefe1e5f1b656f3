"""What demos ask of the traces they have made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kit.forest import MESSAGE_ID
from kit.otlp import Span


def ours(spans: Sequence[Span]) -> list[Span]:
    """Leave out what other instrumentations add, such as redis-py's."""
    return [span for span in spans if span.attributes.get("messaging.system") == "babelqueue"]


def message_of(span: Span) -> str:
    """Return the id of the message that a span is about."""
    return str(span.attributes.get(MESSAGE_ID))


def path_to(span: Span, by_id: Mapping[str, Span]) -> tuple[str, ...]:
    """Return services and operations from the root down to the span, and how it ended."""
    path = []
    at: Span | None = span
    while at is not None:
        path.append(f"{at.service} {at.name.split()[0]}")
        at = by_id.get(at.parent_id)
    return (*reversed(path), str(span.attributes.get("messaging.babelqueue.outcome", "")))


def wrong_parents(spans: Sequence[Span]) -> list[str]:
    """Name the deliveries that are no child of, and not linked to, the span that sent them."""
    sent = {message_of(span): span for span in ours(spans) if span.kind == "PRODUCER"}
    faults = []
    for span in (each for each in ours(spans) if each.kind == "CONSUMER"):
        what = f"{span.service}: {span.name}"
        sender = sent.get(message_of(span))
        if sender is None or (span.trace_id, span.parent_id) != (sender.trace_id, sender.span_id):
            faults.append(f"{what} is no child of the span that sent its message")
        if span.parent_id not in span.links:
            faults.append(f"{what} has no link to its creation context")
    return faults


def wrong_paths(spans: Sequence[Span], expected: Sequence[tuple[str, ...]]) -> list[str]:
    """Say so when the paths to the spans are not the expected ones."""
    by_id = {span.span_id: span for span in spans}
    found = sorted(path_to(span, by_id) for span in ours(spans))
    if found == sorted(expected):
        return []
    return [f"the spans are {found}, not {sorted(expected)}"]

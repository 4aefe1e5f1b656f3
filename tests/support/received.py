"""Spans as the examples' receiver keeps them, made by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

from kit.otlp import Event, Span

_PLAIN = Span(
    service="shop",
    name="publish orders",
    kind="PRODUCER",
    trace_id="a" * 32,
    span_id="",
    parent_id="",
    links=(),
    start=0,
    end=1_000_000,
    status="UNSET",
    description="",
    attributes={},
    events=(),
    scope="tests",
)


def span_id(number: int) -> str:
    """Return the id of the span with a number."""
    return f"{number:016x}"


def received(number: int, parent: int = 0, **fields: Any) -> Span:
    """Make the span with a number, which begins that many milliseconds after the epoch."""
    start = number * 1_000_000
    return dataclasses.replace(
        _PLAIN,
        span_id=span_id(number),
        parent_id=span_id(parent) if parent else "",
        start=start,
        end=start + 1_000_000,
        **fields,
    )


def delivery(number: int, parent: int, message: str, outcome: str, **fields: Any) -> Span:
    """Make the span of a delivery, linked to its parent."""
    attributes = {"messaging.message.id": message, "messaging.babelqueue.outcome": outcome}
    return received(
        number,
        parent,
        service="worker",
        name="process orders",
        kind="CONSUMER",
        links=(span_id(parent),),
        attributes=attributes,
        **fields,
    )


HOSTILE = """</script><script>window.owned = 1</script>"><img src="//evil.test/x">'&amp;${title}"""
"""Text that would run, load or break something, were it not escaped everywhere."""

ORDERS = (
    received(1),
    delivery(2, 1, "m1", "retried", status="ERROR", description="the total is negative"),
    delivery(4, 1, "m1", "dead_lettered", status="ERROR", description="the total is negative"),
    received(3, 2, service="worker", name="publish refusals"),
    delivery(5, 3, "m2", "acked"),
)
"""One message that is tried twice, and another that the first attempt sent."""

ATTACK = (
    received(
        1,
        service=HOSTILE,
        name=HOSTILE,
        status="ERROR",
        description=HOSTILE,
        attributes={HOSTILE: HOSTILE, "messaging.message.id": HOSTILE},
        events=(Event(HOSTILE, 0, {HOSTILE: HOSTILE}),),
    ),
)

"""Spans in the order in which they hang together, for whoever shows them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from kit.otlp import Span

MESSAGE_ID = "messaging.message.id"


@dataclass
class Node:
    """A span, and what was done inside it."""

    span: Span
    children: list[Node] = field(default_factory=list)


@dataclass
class Trace:
    """One trace; its roots are the spans whose parents were not received."""

    trace_id: str
    roots: list[Node]

    def nodes(self) -> Iterator[Node]:
        """Go through all spans, parents before children."""
        waiting = list(self.roots)
        while waiting:
            node = waiting.pop(0)
            yield node
            waiting.extend(node.children)


def forest(spans: Sequence[Span]) -> list[Trace]:
    """Return the traces, the one that began first first; spans are in order of their start."""
    nodes = [Node(span) for span in sorted(spans, key=lambda span: span.start)]
    by_id = {(node.span.trace_id, node.span.span_id): node for node in nodes}
    roots: dict[str, list[Node]] = {}
    for node in nodes:
        trace = roots.setdefault(node.span.trace_id, [])
        parent = by_id.get((node.span.trace_id, node.span.parent_id))
        (trace if parent is None else parent.children).append(node)
    return [Trace(trace_id, members) for trace_id, members in roots.items()]


def attempts(siblings: Sequence[Node]) -> list[list[Node]]:
    """Group siblings: the deliveries of one message together, everything else by itself."""
    groups: dict[object, list[Node]] = defaultdict(list)
    for node in siblings:
        message = node.span.attributes.get(MESSAGE_ID)
        alone = node.span.kind != "CONSUMER" or message is None
        groups[id(node) if alone else str(message)].append(node)
    return list(groups.values())

"""A trace as a tree in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from rich.tree import Tree

from kit.forest import Node, forest
from kit.otlp import Span

_COLOURS = ("cyan", "magenta", "green", "yellow", "blue")


def trace_trees(spans: Sequence[Span], *, attributes: bool = True) -> list[Tree]:
    """Return one tree per trace, oldest first; a span whose parent is missing is a root."""
    services = list(dict.fromkeys(span.service for span in spans))
    colours = {name: _COLOURS[i % len(_COLOURS)] for i, name in enumerate(services)}
    width = max(map(len, services), default=0)
    trees = []
    for trace in forest(spans):
        tree = Tree(Text(f"trace {trace.trace_id}", style="bold"))
        waiting = [(tree, node) for node in reversed(trace.roots)]
        while waiting:
            branch, node = waiting.pop()
            label = _label(node.span, colours[node.span.service], width)
            if attributes:
                _describe(label, node)
            grown = branch.add(label)
            waiting.extend((grown, child) for child in reversed(node.children))
        trees.append(tree)
    return trees


def _label(span: Span, colour: str, width: int) -> Text:
    label = Text()
    label.append(f"{span.service:{width}} ", style=colour)
    label.append(span.name, style="bold")
    label.append(f"  {span.kind}  {span.milliseconds:.1f} ms")
    if span.status == "ERROR":
        label.append(f"  ERROR {span.description}", style="bold red")
    return label


def _describe(label: Text, node: Node) -> None:
    for key, value in sorted(node.span.attributes.items()):
        label.append(f"\n{key}=", style="dim")
        label.append(str(value))

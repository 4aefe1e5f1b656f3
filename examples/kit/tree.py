"""A trace as a tree in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from rich.tree import Tree

from kit.otlp import Span

_COLOURS = ("cyan", "magenta", "green", "yellow", "blue")


def trace_trees(spans: Sequence[Span]) -> list[Tree]:
    """Return one tree per trace, oldest first; a span whose parent is missing is a root."""
    services = list(dict.fromkeys(span.service for span in spans))
    colours = {name: _COLOURS[i % len(_COLOURS)] for i, name in enumerate(services)}
    known = {span.span_id for span in spans}
    trees = []
    for trace_id in dict.fromkeys(span.trace_id for span in spans):
        tree = Tree(Text(f"trace {trace_id}", style="bold"))
        members = [span for span in spans if span.trace_id == trace_id]
        for span in members:
            if span.parent_id not in known:
                _grow(tree, span, members, colours)
        trees.append(tree)
    return trees


def _grow(tree: Tree, span: Span, members: Sequence[Span], colours: dict[str, str]) -> None:
    branch = tree.add(_label(span, colours[span.service]))
    for child in members:
        if child.parent_id == span.span_id:
            _grow(branch, child, members, colours)


def _label(span: Span, colour: str) -> Text:
    label = Text()
    label.append(f"{span.service:8} ", style=colour)
    label.append(span.name, style="bold")
    label.append(f"  {span.kind}  {span.milliseconds:.1f} ms")
    if span.status == "ERROR":
        label.append(f"  ERROR {span.description}", style="bold red")
    for key, value in sorted(span.attributes.items()):
        label.append(f"\n{key}=", style="dim")
        label.append(str(value))
    return label

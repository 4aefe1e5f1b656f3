"""The page that shows traces, as text; ``tests/browser`` looks at it."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

from kit.forest import attempts, forest
from kit.otlp import Span
from kit.page import page, write_page
from kit.tree import trace_trees
from tests.support.received import ATTACK, HOSTILE, ORDERS, received, span_id


class Elements(HTMLParser):
    """What a browser would see."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.said: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep the name."""
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        """Keep the text."""
        self.said.append(data)


def test_hostile_text_stays_text() -> None:
    """Names, attributes, messages and events make no element, and are shown as they are."""
    seen = Elements(page(ATTACK, HOSTILE))
    assert seen.tags.count("script") == 1
    assert "img" not in seen.tags
    shown = [said for said in seen.said if HOSTILE in said]
    # title, heading, legend, trace name, service, span name, its error and status, one attribute's
    # key and value, the message id, the event's name, its attribute
    assert len(shown) == 13


def test_the_page_is_whole_by_itself() -> None:
    """It names nothing that would have to be fetched."""
    text = page(ORDERS)
    assert "default-src 'none'" in text
    assert not re.search(r"(?:src|srcset)=|url\(|@import|<link", text)
    assert set(re.findall(r'href="(.)', text)) == {"#"}
    assert set(re.findall(r"https?://[^\s\"']+", text)) == {"http://www.w3.org/2000/svg"}


def test_an_empty_page_says_so(tmp_path: Path) -> None:
    """It is written all the same, and its folder made."""
    written = write_page([], tmp_path / "deep" / "page.html")
    assert "No spans were received" in written.read_text()


def test_a_parent_that_never_came_is_named() -> None:
    """Its child is a root, and the page says why."""
    text = page([received(1, parent=99)])
    assert f"{span_id(99)}, which is not on this page" in text
    assert "1 span with a parent that is not here" in text


def test_spans_hang_together_whatever_order_they_came_in() -> None:
    """Children stand under their parents by time; attempts at one message stand together."""
    (trace,) = forest(tuple(reversed(ORDERS)))
    (root,) = trace.roots
    assert [node.span.span_id for node in root.children] == [span_id(2), span_id(4)]
    assert [len(group) for group in attempts(root.children)] == [2]
    assert len(list(trace.nodes())) == len(ORDERS)


def test_equal_span_ids_of_two_traces_are_two_spans() -> None:
    """Nothing is hung into the other trace, and nothing is lost."""
    spans = [received(1), received(1, trace_id="b" * 32), received(2, 1, trace_id="b" * 32)]
    assert [len(list(trace.nodes())) for trace in forest(spans)] == [1, 2]


def test_a_tree_shows_every_span_once() -> None:
    """With its error, and its attributes when they are asked for."""

    def text(spans: tuple[Span, ...], *, attributes: bool) -> str:
        labels = []
        waiting = list(trace_trees(spans, attributes=attributes))
        while waiting:
            tree = waiting.pop()
            labels.append(str(tree.label))
            waiting.extend(tree.children)
        return "\n".join(labels)

    short, long = (text(ORDERS, attributes=wanted) for wanted in (False, True))
    assert short.count(" ms") == len(ORDERS)
    assert short.count("ERROR the total is negative") == 2
    assert "messaging.message.id=m1" not in short
    assert "messaging.message.id=m1" in long

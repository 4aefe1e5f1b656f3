"""Traces as one HTML page: a waterfall that needs no network and no server.

The page is static: what a span says is escaped text in it, and the script only moves the focus and
draws the links. Its content security policy lets it load nothing and run nothing but that script.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from string import Template

from kit.forest import Node, Trace, attempts, forest
from kit.otlp import Span

_HERE = Path(__file__).parent
_COLOURS = 8
_OUTCOME = "messaging.babelqueue.outcome"


def write_page(spans: Sequence[Span], path: Path, title: str = "Traces") -> Path:
    """Write a page that shows ``spans``; return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(spans, title), encoding="utf-8")
    return path


def page(spans: Sequence[Span], title: str = "Traces") -> str:
    """Return the HTML of a page that shows ``spans``."""
    script = (_HERE / "page.js").read_text(encoding="utf-8")
    digest = hashlib.sha256(script.encode()).digest()
    shown = _Page(spans)
    return Template((_HERE / "page.html").read_text(encoding="utf-8")).substitute(
        title=escape(title),
        digest=base64.b64encode(digest).decode(),
        style=(_HERE / "page.css").read_text(encoding="utf-8"),
        script=script,
        legend="".join(shown.legend()),
        traces="".join(shown.traces()) or "<p>No spans were received.</p>",
    )


class _Page:
    """What all traces of a page share: the colours of services, and who is there to be linked."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._forest = forest(spans)
        services = dict.fromkeys(span.service for span in sorted(spans, key=lambda s: s.start))
        self._colours = {name: f"s{i % _COLOURS}" for i, name in enumerate(services)}
        self._names = {span.span_id: f"{span.service}: {span.name}" for span in spans}

    def legend(self) -> Iterator[str]:
        """Name the services."""
        for service, colour in self._colours.items():
            yield f'<li class="{colour}"><i class="dot"></i>{escape(service)}</li>'

    def traces(self) -> Iterator[str]:
        """Show each trace with a time axis of its own."""
        for trace in self._forest:
            yield from self._trace(trace)

    def _trace(self, trace: Trace) -> Iterator[str]:
        spans = [node.span for node in trace.nodes()]
        start = min(span.start for span in spans)
        length = max(max(span.end for span in spans) - start, 1)
        faults = sum(span.status == "ERROR" for span in spans)
        counts = [_count(len(spans), "span"), _duration(length)]
        orphans = sum(bool(root.span.parent_id) for root in trace.roots)
        counts += [f"{_count(orphans, 'span')} with a parent that is not here"] * bool(orphans)
        counts += [f'<b class="fault">{_count(faults, "error")}</b>'] * bool(faults)
        name = escape(spans[0].name)
        yield f'<section class="trace" aria-label="trace of {name}"><header><h2>{name}</h2>'
        yield f"<p><code>{escape(trace.trace_id)}</code> · {' · '.join(counts)}</p></header>"
        ticks = "".join(f"<span>{_duration(length * part // 4)}</span>" for part in range(5))
        yield f'<div class="axis" aria-hidden="true"><div class="ticks">{ticks}</div></div>'
        yield from self._rows(trace.roots, 0, start, length)
        yield "</section>"

    def _rows(self, nodes: list[Node], depth: int, start: int, length: int) -> Iterator[str]:
        for group in attempts(nodes):
            if len(group) > 1:
                ended = str(group[-1].span.attributes.get(_OUTCOME, ""))
                label = f"{len(group)} attempts at one message{ended and f', in the end {ended}'}"
                yield f'<div class="attempts" role="group" aria-label="{escape(label)}">'
                yield f'<p style="--depth:{depth}">{escape(label)}</p>'
            for node in group:
                yield self._row(node.span, depth, start, length)
                yield from self._rows(node.children, depth + 1, start, length)
            if len(group) > 1:
                yield "</div>"

    def _row(self, span: Span, depth: int, start: int, length: int) -> str:
        begin = 100 * (span.start - start) / length
        width = 100 * (span.end - span.start) / length
        failed = span.status == "ERROR"
        fault = f'<span class="fault">ERROR {escape(span.description)}</span>' if failed else ""
        place = f"--depth:{depth};--begin:{begin:.3f}%;--width:{width:.3f}%"
        return (
            f'<details class="span {self._colours[span.service]}{" failed" * failed}"'
            f' id="span-{escape(span.span_id)}" data-links="{escape(" ".join(span.links))}"'
            f' style="{place}"><summary>'
            f'<span class="what"><i class="dot"></i><span class="service">{escape(span.service)}'
            f"</span> <b>{escape(span.name)}</b></span>"
            f'<span class="lane"><span class="bar"></span></span>'
            f'<span class="long">{_duration(span.end - span.start)}</span>{fault}'
            f"</summary><dl>{''.join(self._facts(span, start))}</dl></details>"
        )

    def _facts(self, span: Span, start: int) -> Iterator[str]:
        """Say all there is to say about a span."""
        yield _fact("kind", escape(span.kind.lower()))
        yield _fact("starts at", _duration(span.start - start))
        if span.description:
            yield _fact("status", escape(f"{span.status} {span.description}"))
        yield _fact("span id", escape(span.span_id))
        if span.parent_id:
            yield _fact("parent", self._reference(span.parent_id))
        for link in span.links:
            yield _fact("link to", self._reference(link))
        for key, value in sorted(span.attributes.items()):
            yield _fact(escape(key), escape(str(value)))
        for event in span.events:
            said = "\n".join(f"{key}: {value}" for key, value in event.attributes.items())
            at = _duration(event.time - start)
            yield _fact(f"event at {at}", f"{escape(event.name)}<pre>{escape(said)}</pre>")

    def _reference(self, span_id: str) -> str:
        name = self._names.get(span_id)
        if name is None:
            return f"{escape(span_id)}, which is not on this page"
        return f'<a href="#span-{escape(span_id)}">{escape(name)}</a>'


def _fact(name: str, value: str) -> str:
    return f"<div><dt>{name}</dt><dd>{value}</dd></div>"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _duration(nanoseconds: int) -> str:
    milliseconds = nanoseconds / 1e6
    if abs(milliseconds) >= 1000:  # noqa: PLR2004 - a second
        return f"{milliseconds / 1000:.2f} s"
    return f"{milliseconds:.1f} ms"

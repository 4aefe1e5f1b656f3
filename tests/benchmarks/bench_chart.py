"""The picture for the README: messages a second, as bars, in light and in dark.

It brings its own background: a picture follows the colours of the system, not those of the page.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

from tests.benchmarks.bench_contenders import Measure
from tests.benchmarks.bench_measures import MEASURES
from tests.benchmarks.bench_report import TIMES, ratios, where

WIDTH, MARGIN, COLUMN, NAME, BAR, LINE, TITLE = 860, 24, 394, 154, 118, 22, 30
STYLE = """
text { font: 12.5px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328 }
.head { font-size: 17px; font-weight: 600 } .title { font-size: 13px; font-weight: 600 }
.small { font-size: 11px; fill: #59636e } .end { text-anchor: end } .them { fill: #59636e }
.card { fill: #fff; stroke: #d1d9e0 } .bar { fill: #b7c0ca } .ours { fill: #0969da }
.times { font-weight: 600; fill: #0969da }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc } .small, .them { fill: #9198a1 } .card { fill: #0d1117; stroke: #3d444d }
  .bar { fill: #59636e } .ours { fill: #4493f8 } .times { fill: #4493f8 }
}
"""


def chart(results: dict[str, Any], about: dict[str, Any]) -> str:
    """Return an SVG document; a bar's length is its speed next to the fastest of its group."""
    groups = [(MEASURES[name], found) for name, found in results.items() if MEASURES[name].charted]
    height = sum(_height(measure) for measure, _ in groups)
    parts: list[str] = []
    tops, column = [72, 72], 0
    for measure, found in groups:
        if tops[0] - 72 + _height(measure) / 2 > height / 2:
            column = 1
        parts += _group(measure, found, MARGIN + column * (COLUMN + MARGIN), tops[column])
        tops[column] += _height(measure)
    bottom = max(tops) + 30
    return "\n".join([*_frame(bottom, where(about, 1)), *parts, "</svg>\n"])


def _height(measure: Measure) -> int:
    return TITLE + LINE * len(measure.contenders) + 16


def _frame(bottom: int, place: str) -> Iterator[str]:
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom}" role="img"'
    yield f'aria-label="Messages a second of each system">\n<style>{STYLE}</style>'
    yield f'<rect class="card" x=".5" y=".5" width="{WIDTH - 1}" height="{bottom - 1}" rx="8"/>'
    yield f'<text x="{MARGIN}" y="36" class="head">Messages a second</text>'
    aside = f'<text x="{WIDTH - MARGIN}" y="36" class="small end">'
    yield f'{aside}<tspan class="times">{TIMES}</tspan> how many times as fast we are</text>'
    yield f'<text x="{MARGIN}" y="{bottom - 18}" class="small">{escape(place)}</text>'


def _group(measure: Measure, found: dict[str, Any], left: int, top: int) -> Iterator[str]:
    yield f'<text x="{left}" y="{top + 14}" class="title">{escape(measure.title)}</text>'
    rates = {name: 1 / reading["seconds"] for name, reading in found.items()}
    times = ratios(measure, found, "seconds")
    for row, contender in enumerate(measure.contenders):
        y, rate = top + TITLE + row * LINE, rates[contender.name]
        ours, width = contender.system.startswith("ours"), max(2, BAR * rate / max(rates.values()))
        kind = "bar ours" if ours else "bar"
        who = "" if ours else ' class="them"'
        yield f'<text x="{left}" y="{y + 11}"{who}>{escape(contender.label)}</text>'
        box = f'x="{left + NAME}" y="{y}" width="{width:.1f}" height="14" rx="3"'
        yield f'<rect {box} class="{kind}"/>'
        label = f"{rate:,.0f}".replace(",", " ")  # a narrow space
        yield f'<text x="{left + NAME + width + 7:.1f}" y="{y + 11}"{who}>{label}</text>'
        if not ours:
            ratio = f"{times[contender.name]:.1f}{TIMES}</text>"
            yield f'<text x="{left + COLUMN}" y="{y + 11}" class="times end">{ratio}'

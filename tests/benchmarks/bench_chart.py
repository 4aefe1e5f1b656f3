"""The picture for the README: messages a second, as bars, in light and in dark."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

from tests.benchmarks.bench_measures import MEASURES, Measure

WIDTH, NAME, BAR, LINE = 760, 190, 400, 19
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #24292f }
.title { font-weight: 600 } .small { font-size: 10.5px; fill: #57606a } .bar { fill: #afb8c1 }
.ours { fill: #0969da }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .small { fill: #9198a1 } .bar { fill: #484f58 } .ours { fill: #4493f8 }
}
"""


def chart(results: dict[str, Any], about: dict[str, Any], cores: int) -> str:
    """Return an SVG document; a bar's length is its speed next to the fastest of its group."""
    parts: list[str] = []
    top = 34
    for name, found in results.items():
        measure = MEASURES[name]
        rates = _rates(measure, found) if measure.charted else {}
        if len(rates) > 1:
            parts += _group(measure, rates, top)
            top += LINE * (len(rates) + 1) + 10
    where = (
        f"{about['date']}, {about['cpu']}, client and server on {cores} of {about['cores']} "
        f"processors, Redis {about['redis']}, Python {about['python']}"
    )
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top + 20}" role="img" '
        f'aria-label="Messages a second of each system">\n<style>{STYLE}</style>\n'
        f'<text x="8" y="18" class="title">Messages a second</text>\n'
    )
    foot = f'<text x="8" y="{top + 8}" class="small">{escape(where)}</text>\n</svg>\n'
    return head + "\n".join(parts) + "\n" + foot


def _rates(measure: Measure, found: dict[str, Any]) -> dict[str, float]:
    readings = {each.name: found.get(each.name, {}) for each in measure.contenders}
    return {name: 1 / each["seconds"] for name, each in readings.items() if "seconds" in each}


def _group(measure: Measure, rates: dict[str, float], top: int) -> Iterator[str]:
    yield f'<text x="8" y="{top + 13}" class="title">{escape(measure.title)}</text>'
    for row, (name, rate) in enumerate(rates.items(), 1):
        y, width = top + row * LINE, max(2, BAR * rate / max(rates.values()))
        kind = "bar ours" if name.startswith("ours") else "bar"
        yield f'<text x="20" y="{y + 13}">{escape(name)}</text>'
        box = f'x="{NAME}" y="{y + 3}" width="{width:.1f}" height="13" rx="2"'
        yield f'<rect {box} class="{kind}"/>'
        label = f"{rate:,.0f}".replace(",", " ")
        yield f'<text x="{NAME + width + 6:.1f}" y="{y + 13}">{label}</text>'

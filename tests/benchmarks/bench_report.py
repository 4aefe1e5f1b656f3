"""What was measured, for people and for programs."""

from __future__ import annotations

import datetime as dt
import platform
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.table import Table

from tests.benchmarks.bench_measures import MEASURES, Measure

Results = dict[str, dict[str, Any]]
"""Readings by the name of a measure and of a contender."""


def machine(server: dict[str, Any], cores: int) -> dict[str, Any]:
    """Say where it was measured."""
    info = Path("/proc/cpuinfo")
    models = re.findall(r"model name\s*:\s*(.*)", info.read_text()) if info.exists() else []
    return {
        "date": dt.datetime.now(dt.timezone.utc).date().isoformat(),
        "cpu": models[0] if models else platform.machine(),
        "cores": cores,
        "python": platform.python_version(),
        "redis": server["redis_version"],
        "system": platform.system(),
    }


def ratios(measure: Measure, found: dict[str, Any], figure: str) -> dict[str, float]:
    """Return how many times as good as each other contender ours is, by a figure."""
    first, *others = (contender.name for contender in measure.contenders)
    ours = found.get(first, {}).get(figure)
    if not ours:
        return {}
    rivals = {name: found.get(name, {}).get(figure) for name in others}
    return {name: value / ours for name, value in rivals.items() if value}


def reached(measure: Measure, name: str, ratio: float) -> str:
    """Say what was to be reached, and colour it."""
    if name not in measure.targets:
        return ""
    least, aim = measure.targets[name]
    colour = "green" if ratio >= aim else "yellow" if ratio >= least else "red"
    return f"[{colour}]{least:.3g} to {aim:.3g}[/]"


def table(cores: int, results: Results) -> Table:
    """Return a table of one setting."""
    made = Table(title=f"client and server on {cores} processor{'s' if cores > 1 else ''}")
    for heading in ("", "messages/s", "us", "us of CPU", "trips", "us a script call"):
        made.add_column(heading, justify="left" if not heading else "right")
    for heading in ("ours is x", "by CPU", "target"):
        made.add_column(heading, justify="right")
    for name, found in results.items():
        measure = MEASURES[name]
        made.add_row(f"[bold]{measure.title}[/]", end_section=False)
        for row in _rows(measure, found):
            made.add_row(*row)
        made.add_section()
    return made


def markdown(results: Results, about: dict[str, Any], cores: int) -> str:
    """Return the table of what was to be reached, for the README."""
    lines = [
        f"{about['date']}, {about['cpu']}, {about['cores']} processors, of which client and server",
        f"had {cores}; Redis {about['redis']}, Python {about['python']}:",
        "",
        "| what | messages/s | next to | messages/s | times | by CPU |",
        "|---|---|---|---|---|---|",
    ]
    for name, found in results.items():
        measure = MEASURES[name]
        ours = measure.contenders[0].name
        times, processor = (ratios(measure, found, figure) for figure in ("seconds", "cpu"))
        for rival in filter(times.__contains__, measure.targets):
            speeds = [f"{1 / found[each]['seconds']:,.0f}" for each in (ours, rival)]
            compared = f"{times[rival]:.1f} | {_number(processor.get(rival), 1)}"
            lines.append(f"| {measure.title} | {speeds[0]} | {rival} | {speeds[1]} | {compared} |")
    return "\n".join(lines) + "\n"


def _rows(measure: Measure, found: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    times, processor = (ratios(measure, found, figure) for figure in ("seconds", "cpu"))
    for contender in measure.contenders:
        name = contender.name
        reading = found.get(name, {})
        if "value" in reading:
            moved = f", {reading['moved']} moved" if "moved" in reading else ""
            yield f"  {name}", f"{reading['value']:.2f} {measure.unit}{moved}"
        else:
            figures = (f"  {name}", f"{1 / reading['seconds']:,.0f}", *_figures(reading))
            ratio = times.get(name)
            compared = (f"{ratio:.2f}", _number(processor.get(name))) if ratio else ("", "")
            yield (*figures, *compared, reached(measure, name, ratio) if ratio else "")


def _figures(reading: dict[str, Any]) -> tuple[str, ...]:
    micros = [reading["seconds"] * 1e6, (reading.get("cpu") or 0) * 1e6]
    trips, script = reading.get("trips"), reading.get("script")
    return (*(_number(value, 1) for value in micros), _number(trips), _number(script, 1))


def _number(value: float | None, digits: int = 2) -> str:
    return f"{value:.{digits}f}" if value else ""

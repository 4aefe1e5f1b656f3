"""What was measured, for people and for programs."""

from __future__ import annotations

import datetime as dt
import platform
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.table import Table

from tests.benchmarks.bench_contenders import Measure
from tests.benchmarks.bench_measures import MEASURES

TIMES = "\N{MULTIPLICATION SIGN}"
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


def where(about: dict[str, Any], cores: int) -> str:
    """Say where and when it was measured, in a line."""
    form = "in the quick form " if about["quick"] else ""
    share = f"{cores} of {about['cores']} processors"
    if not about["pinned"]:
        share = f"any of {about['cores']} processors"
    return (
        f"Measured {form}on {about['date']}: {about['cpu']}, client and server on {share}, "
        f"Redis {about['redis']}, Python {about['python']}"
    )


def met(measure: Measure, found: dict[str, Any]) -> Iterator[tuple[bool, str]]:
    """Tell of every target whether it is reached, and what was."""
    times = ratios(measure, found, "seconds")
    for contender in measure.contenders:
        if target := measure.targets.get(contender.name):
            ratio = times[contender.name]
            said = f"{ratio:.2f} of {target[0]:.2g}{TIMES} {contender.label}"
            yield round(ratio, 2) >= round(target[0], 2), said
        elif measure.most and contender.system == "ours":
            value = found[contender.name]["value"]
            yield value <= measure.most, f"{value:.1f} {measure.unit}, not {measure.most:g}"


def _rows(measure: Measure, found: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    times, processor = (ratios(measure, found, figure) for figure in ("seconds", "cpu"))
    for contender in measure.contenders:
        name = contender.name
        reading = found.get(name, {})
        if "value" in reading:
            moved = f", {reading['moved']} moved" if "moved" in reading else ""
            most = f"at most {measure.most:g}" if measure.most else ""
            yield f"  {name}", f"{reading['value']:.2f} {measure.unit}{moved}", *[""] * 6, most
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

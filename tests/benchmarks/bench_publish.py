"""What was measured, in the README and in the documentation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from textwrap import wrap
from typing import Any

from tests.benchmarks.bench_chart import chart
from tests.benchmarks.bench_contenders import Contender, Measure
from tests.benchmarks.bench_environments import ROOT
from tests.benchmarks.bench_measures import MEASURES
from tests.benchmarks.bench_report import TIMES, Results, met, ratios, where

README, PAGE, PICTURE = ROOT / "README.md", ROOT / "docs" / "speed.md", ROOT / "docs" / "speed.svg"
BLOCK = re.compile(r"(?<=<!-- bench: start -->\n).*?(?=<!-- bench: end -->)", re.DOTALL)
ALT = (
    "Bars of messages a second: this package next to babelqueue, Huey, Dramatiq, SAQ and taskiq; "
    "the table below says the same."
)
SHOWN = 12
HEAD = """# Speed

Every worker is measured in the middle of a long queue, warm, with a handler that does nothing.
Every system has an environment and a process of its own, and the best of its rounds counts. *CPU*
is what the processors worked for a message, on both sides; *trips* are reads that Redis counted;
*times* is how many times as fast the first line is, by the clock and by CPU.

The others are tuned by their settings, with JSON on the wire, and hiredis: Dramatiq a prefetch of
1 000, no middleware and its eight threads; Huey no results; SAQ ten at a time, msgspec, rare
timers; taskiq a hundred at a time and a hundred ahead, orjson, no validation. In three trials on a
loaded machine Dramatiq was 5 to 10 % cheaper with sixteen threads, and 5 to 25 % with an encoder
written for msgspec; neither is used here. `babelqueue` is its 1.24.0 as installed, and this package
is without hiredis where it does not say so. `nox -s bench -- publish` writes this page.

![Messages a second](speed.svg)

## What bounds one message at a time

On one core client and server push each other out of its caches, so that everything is two to three
times as slow as in a loop of its own. Of about 170 us for a message with `prefetch=1`, in parts
measured one on top of the other:

| | us |
|---|---:|
| a `PING` over a raw socket and back | 22 |
| the reserve script with its ack, sent as ready-made bytes over a raw socket | 56 to 60 |
| the same packed and read by redis-py, the reply made a reservation | 130 to 140 |
| all of it: verdict, handler, heartbeat, deadline of the run, outcome, the next look | 165 to 185 |

Four times the pace of `babelqueue` would be 125 us: less than the smallest loop over redis-py's
connection takes. hiredis takes 8 us of it away. Batches share a trip, so the defaults are
bounded by the script (6.5 us a message in a hundred) and by the verdict (2 us).
"""


def publish(by_cores: dict[int, Results], about: dict[str, Any]) -> list[str]:
    """Write the picture, the page and the section of the README; return their names."""
    PICTURE.write_text(chart(by_cores[1], about))
    PAGE.write_text(page(by_cores, about))
    text = README.read_text()
    README.write_text(BLOCK.sub(lambda _: section(by_cores[1], about), text))
    return [path.name for path in (README, PAGE, PICTURE)]


def section(results: Results, about: dict[str, Any]) -> str:
    """Return what stands in the README."""
    lines = [
        f"![{ALT}](docs/speed.svg)\n",
        "| messages a second | this package | times as fast as |",
        "|---|---|---|",
    ]
    for name in list(filter(_rivals, results))[:SHOWN]:
        measure, found = MEASURES[name], results[name]
        ours = found[measure.contenders[0].name]
        lines.append(f"| {measure.title} | {_rate(ours)} | {_over(measure, found)} |")
    lines += ["", *wrap(" ".join(_verdict(results)), 116), "", f"{where(about, 1)}.", ""]
    return "\n".join(lines)


def page(by_cores: dict[int, Results], about: dict[str, Any]) -> str:
    """Return the page with everything."""
    parts = [HEAD]
    for cores, results in by_cores.items():
        parts.append(f"## {where(about, cores)}\n")
        parts.append("| | messages/s | us | us of CPU | trips | times | by CPU | at least |")
        parts.append("|---|---:|---:|---:|---:|---:|---:|---:|")
        for name, found in results.items():
            parts += _rows(MEASURES[name], found)
        parts.append("")
    return "\n".join(parts)


def _rows(measure: Measure, found: dict[str, Any]) -> Iterator[str]:
    yield f"| **{measure.title}** | | | | | | | |"
    times, processor = (ratios(measure, found, figure) for figure in ("seconds", "cpu"))
    for contender in measure.contenders:
        reading = found[contender.name]
        if "value" in reading:
            most = f"at most {measure.most:g}" if measure.most and _is_ours(contender) else ""
            value = f"{reading['value']:.1f} {measure.unit}"
            yield f"| {contender.label} | {value} | | | | | | {most} |"
            continue
        cpu, trips = (reading.get("cpu") or 0) * 1e6, reading.get("trips")
        worked = f"{cpu:.1f} | {trips:.2f}" if trips else " | "
        ratio, target = times.get(contender.name), measure.targets.get(contender.name)
        compared = " | ".join(
            f"{x:.2f}" if x else "" for x in (ratio, processor.get(contender.name))
        )
        least = f"{target[0]:.2g}" if target else ""
        micros = f"{reading['seconds'] * 1e6:.1f}"
        figures = f"{_rate(reading)} | {micros} | {worked} | {compared} | {least}"
        yield f"| {contender.label} | {figures} |"


def _is_ours(contender: Contender) -> bool:
    return contender.system.startswith("ours")


def _rivals(name: str) -> list[Contender]:
    measure = MEASURES[name]
    return [c for c in measure.contenders if c.name in measure.targets and not _is_ours(c)]


def _rate(reading: dict[str, Any]) -> str:
    return f"{1 / reading['seconds']:,.0f}".replace(",", " ")


def _over(measure: Measure, found: dict[str, Any]) -> str:
    times = ratios(measure, found, "seconds")
    return " · ".join(f"{c.label} **{times[c.name]:.1f}{TIMES}**" for c in _rivals(measure.name))


def _verdict(results: Results) -> Iterator[str]:
    """Say what was to be reached and was not, and what is no speed."""
    count, missed = 0, []
    for name, found in results.items():
        targets = list(met(MEASURES[name], found))
        count += len(targets)
        if said := [said for reached, said in targets if not reached]:
            missed.append((len(said), f"{MEASURES[name].title}: {', '.join(said)}"))
    short = sum(each for each, _ in missed)
    yield f"Of {count} targets {count - short} are reached" + (
        f"; not yet: {'; '.join(said for _, said in missed)}." if missed else "."
    )
    if {"consume_1", "consume"} <= results.keys():
        one, many = (results[name]["ours"]["trips"] for name in ("consume_1", "consume"))
        yield f"A busy worker needs {one:.2f} round trips a message one at a time, and {many:.2f}"
        yield "with the defaults."
    if waits := results.get("latency"):
        ours, theirs = (waits[name]["value"] for name in ("ours", "sdk"))
        yield f"An idle one has a message {ours:.1f} ms after it was published (`babelqueue`, which"
        yield f"polls, after {theirs:.0f} ms)."

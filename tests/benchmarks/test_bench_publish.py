"""What ``nox -s bench -- publish`` writes, of made-up readings."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree as ET

from tests.benchmarks.bench_chart import chart
from tests.benchmarks.bench_measures import MEASURES
from tests.benchmarks.bench_publish import BLOCK, README, page, section
from tests.benchmarks.bench_report import Results

ABOUT: dict[str, Any] = {
    "date": "2026-11-30",
    "cpu": "abacus <1>",
    "cores": 2,
    "python": "3.11",
    "redis": "7.0",
    "pinned": True,
    "quick": False,
}


def readings(times: float) -> Results:
    """Ours takes a millisecond everywhere, and the others so many times as long."""
    found: Results = {}
    for name, measure in MEASURES.items():
        first = measure.contenders[0]
        found[name] = {
            contender.name: {"value": 10 / times}
            if measure.unit
            else {"seconds": 1e-3 * (1 if contender == first else times), "cpu": 1e-3, "trips": 1}
            for contender in measure.contenders
        }
    return found


def test_the_picture_names_every_system_and_the_place() -> None:
    """It is XML, whatever the processor is called."""
    root = ET.fromstring(chart(readings(2), ABOUT))  # noqa: S314 - it is ours
    drawn = [node.text for node in root.iter() if node.text]
    shown = [measure for measure in MEASURES.values() if measure.charted]
    assert len(shown) > 1
    for measure in shown:
        assert measure.title in drawn
        assert {contender.label for contender in measure.contenders} <= set(drawn)
    assert any("abacus <1>" in text and "2026-11-30" in text for text in drawn)


def test_the_readme_says_which_targets_are_not_reached() -> None:
    """All where ours is a hundred times as fast, none where it is half as fast."""
    (count,) = re.findall(r"Of (\d+) targets \1 are reached\.", section(readings(100), ABOUT))
    assert f"Of {count} targets 0 are reached; not yet:" in section(readings(0.5), ABOUT)
    (slow,) = re.findall(r"prefetch=1\): ([^;]*);", section(readings(3), ABOUT).replace("\n", " "))
    assert slow == "3.00 of 4\N{MULTIPLICATION SIGN} babelqueue"


def test_the_table_of_the_readme_is_short_and_the_page_has_everything() -> None:
    """At most twelve rows; the page has a part for each number of processors."""
    rows = re.findall(r"^\| (?!messages).*\*\*", section(readings(2), ABOUT), re.MULTILINE)
    assert 1 < len(rows) <= 12
    text = page({1: readings(2), 2: readings(2)}, ABOUT)
    assert all(text.count(f"**{measure.title}**") == 2 for measure in MEASURES.values())


def test_the_readme_has_one_place_for_it() -> None:
    """A second one would be forgotten."""
    assert len(BLOCK.findall(README.read_text())) == 1

"""Who is measured, and with what: the shapes of the list in ``bench_measures``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

LABELS = {
    "ours": "this package",
    "ours with hiredis": "with hiredis",
    "sdk": "babelqueue",
    "huey": "Huey",
    "dramatiq": "Dramatiq",
    "saq": "SAQ",
    "taskiq": "taskiq",
}
Target = tuple[float, float]
"""At least, and the aim: how many times as fast as another system."""


@dataclass(frozen=True)
class Contender:
    """A system, and what it is asked to do.

    Attributes:
        system: An environment, see :mod:`tests.benchmarks.bench_environments`.
        work: The name of the work in its peer.
        options: What it is asked with.
        note: What tells it from the others of its system.
        n: How often, where the others are too fast or too slow for that.
    """

    system: str
    work: str
    options: dict[str, Any] = field(default_factory=dict)
    note: str = ""
    n: int = 0

    @property
    def name(self) -> str:
        """The name in tables for us."""
        return f"{self.system}, {self.note}" if self.note else self.system

    @property
    def label(self) -> str:
        """The name for readers."""
        if self.note and self.system == "ours":
            return self.note
        return f"{LABELS[self.system]}, {self.note}" if self.note else LABELS[self.system]


@dataclass(frozen=True)
class Measure:
    """A row of systems that do the same.

    Attributes:
        name: For the command line.
        title: For people.
        n: How many messages a round takes.
        contenders: Ours first.
        targets: By the name of another contender: what ours is to reach.
        unit: What a value is; ``""`` means that the time of a message counts.
        most: A value of ours that is not to be exceeded.
        charted: Whether it is in the picture.
        rounds: How many at most, where one takes long.
        both: Whether it is repeated with a second processor.
    """

    name: str
    title: str
    n: int
    contenders: tuple[Contender, ...]
    targets: dict[str, Target] = field(default_factory=dict)
    unit: str = ""
    most: float = 0
    charted: bool = False
    rounds: int = 1000
    both: bool = True

"""Waiting on a predicate, never on a clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(predicate: Callable[[], T], seconds: float = 60) -> T:
    """Return the first true value of ``predicate``; fail when none comes in time."""
    end = time.monotonic() + seconds
    while not (value := predicate()):
        assert time.monotonic() < end, f"still {value!r} after {seconds} s"
        time.sleep(0.01)
    return value

"""The clock and the dice. Shells call these; nothing below a shell does."""

from __future__ import annotations

import os
import platform
import random
import time
import uuid


def epoch_ms() -> int:
    """Return the time as epoch milliseconds."""
    return time.time_ns() // 1_000_000


def worker_id() -> str:
    """Return a name for a worker: its host, its process, and four hex digits."""
    return f"{platform.node()}-{os.getpid()}-{os.urandom(2).hex()}"


def new_id() -> str:
    """Return a fresh UUID as text."""
    return str(uuid.uuid4())


def draw() -> float:
    """Return a random number from 0 up to 1."""
    return random.random()  # noqa: S311 - it spreads retries, it keeps no secret


class Tokens:
    """Makes reservation tokens: 32 hex digits that sort by time.

    Sixteen digits of time in nanoseconds, which do not go back when the clock does; eight random
    ones, which keep threads and processes apart; eight for the place in a batch.
    """

    def __init__(self) -> None:
        """Start at the present time."""
        self._last = 0

    def __call__(self, index: int = 0) -> str:
        """Return the next token."""
        self._last = moment = max(time.time_ns(), self._last + 1)
        return f"{moment:016x}{os.urandom(4).hex()}{index:08x}"


new_token = Tokens()

"""When to try again. Times are seconds."""

from __future__ import annotations

import math

LONGEST = 10 * 365 * 24 * 3600
"""What an unbounded back-off ends at."""
_ENOUGH = 10_000  # attempts after which no back-off changes any more


def backoff(
    attempt: int,
    *,
    base: float,
    multiplier: float = 1,
    maximum: float = 0,
    jitter: str = "none",
    draw: float = 0,
) -> float:
    """Return how long to keep a message back.

    ``min(maximum, base * multiplier ** (attempt - 1))``, and with ``full`` jitter a part of it.

    Args:
        attempt: Which attempt failed, from 1.
        base: The first delay; 0 is none at all.
        multiplier: What it grows by.
        maximum: Its bound; 0 is none.
        jitter: ``none`` or ``full``.
        draw: A random number from 0 to 1, for ``full``.
    """
    if base == 0:
        return 0
    try:
        # Floats overflow at once, where a power of whole numbers would be computed for hours.
        delay = base * float(multiplier) ** min(attempt - 1, _ENOUGH)
    except OverflowError:
        delay = LONGEST
    delay = min(delay, maximum or LONGEST, LONGEST)
    return delay * draw if jitter == "full" else delay


def due_at(now: float, delay: float) -> int:
    """Return the score of a message delayed by ``delay`` from ``now``, epoch seconds.

    Whole seconds, as Laravel's are: the delay is rounded up, the moment down.
    """
    return math.floor(now) + math.ceil(delay)

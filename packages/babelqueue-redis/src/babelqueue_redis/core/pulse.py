"""Whether a consumer's loop is alive. Times are seconds of a monotonic clock."""

from __future__ import annotations

import math

PATIENCE = 15.0
"""Seconds without a sign of life after which a loop counts as dead.

Longer than the longest wait of a loop that is well: a server is asked at least every 6 seconds, and
a frozen one is left after 11, with redis-py's settings as they are.
"""


class Pulse:
    """Until when a consumer is healthy, as far as is known.

    It is while its ``run()`` goes on and

    - Redis answered it within the last :data:`PATIENCE` seconds, or
    - it handles a message, for no longer than the reservation may be extended (``handler_timeout``,
      ``max_lease``) and :data:`PATIENCE`.

    So it is not before the first answer, nor when an outage lasts, a handler hangs, or the loop
    stands still. One attribute is replaced whole, so any thread may ask.
    """

    def __init__(self, limit: float) -> None:
        """Begin before a run.

        Args:
            limit: Seconds that a reservation is extended at most.
        """
        self._limit = limit
        self._until = -math.inf

    def beat(self, now: float) -> None:
        """Note that Redis answered."""
        self._until = now + PATIENCE

    def busy(self, now: float) -> None:
        """Note that the loop goes into a handler, and may not beat before it has ended."""
        self._until = now + self._limit + PATIENCE

    def outage(self, now: float) -> None:
        """Note that Redis did not answer; may be told again and again while it does not."""
        self._until = min(self._until, now + PATIENCE)

    def end(self) -> None:
        """Note that the loop ended."""
        self._until = -math.inf

    def alive(self, now: float) -> bool:
        """Tell whether the consumer is healthy."""
        return now < self._until

"""How many messages a worker reserves at once."""

from __future__ import annotations

_BUDGET = 0.005
"""Seconds that the handling of a batch may take, going by the last ones."""
_MOST = 100
_WEIGHT = 0.1
"""What the last message counts for in the average."""


class Window:
    """Sizes batches by what messages took lately."""

    def __init__(self, prefetch: int | str, lanes: int = 1) -> None:
        """Begin with one message.

        Args:
            prefetch: A fixed size, or ``auto``.
            lanes: How many messages are handled at once.
        """
        self._fixed = prefetch if isinstance(prefetch, int) else 0
        self._lanes = lanes
        self._seconds = 0.0
        self._last = 0

    def size(self) -> int:
        """Return how many messages to reserve: at most twice as many as the last time."""
        if self._fixed:
            return self._fixed
        fitting = _BUDGET * self._lanes / self._seconds if self._seconds else _MOST
        self._last = max(1, min(int(fitting), 2 * self._last, _MOST))
        return self._last

    def note(self, seconds: float) -> None:
        """Take into account how long the handling of a message took."""
        self._seconds += _WEIGHT * (seconds - self._seconds) if self._seconds else seconds

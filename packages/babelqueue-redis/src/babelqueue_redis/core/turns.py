"""Whose turn it is, where one worker serves several queues."""

from __future__ import annotations

from collections.abc import Sequence


class Turns:
    """The order in which queues are asked for messages."""

    def __init__(self, count: int, weights: Sequence[int] | None = None) -> None:
        """Begin with the first one.

        Args:
            count: How many queues there are.
            weights: How often each one's turn comes, beside the others; ``None`` asks them in
                order, the second only while the first one is empty.
        """
        self._weights = weights
        self._in_order = range(count)
        self._credit = [0] * count

    def order(self) -> Sequence[int]:
        """Return the places of the queues, the one whose turn it is first."""
        if self._weights is None:
            return self._in_order
        due = [credit + weight for credit, weight in zip(self._credit, self._weights, strict=True)]
        return sorted(self._in_order, key=lambda place: -due[place])

    def served(self, place: int) -> None:
        """Note that messages of a queue were taken: the others come closer to their turn."""
        if self._weights is not None:
            self._credit = [c + w for c, w in zip(self._credit, self._weights, strict=True)]
            self._credit[place] -= sum(self._weights)

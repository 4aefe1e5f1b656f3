"""What a shell needs of a layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from babelqueue_redis.core.command import Command, Op
from babelqueue_redis.core.settlement import Settlement
from babelqueue_redis.values import Reservation

Message = tuple[bytes, Mapping[str, str]]
"""An encoded envelope and its headers."""


class Layout(Protocol):
    """What a shell needs of a layout.

    ``now`` is epoch seconds; ``None``, the rule outside tests, asks the server's clock.
    """

    def publish(self, messages: Sequence[Message]) -> Command[None]:
        """Append messages to the queue: all of them or none."""

    def reserve(self, token: str, now: float | None = None) -> Op[Reservation | None]:
        """Bring expired reservations back, then take the oldest message, if there is one."""

    def settle(self, reservation: Reservation, settlement: Settlement) -> Command[bool] | None:
        """Carry a settlement out. The result is ``False`` when the reservation had expired.

        ``None`` means that there is nothing to send.
        """

    def wait(self, seconds: float, idle: int) -> Command[float]:
        """Block until a message may be there, at most ``seconds``.

        Args:
            seconds: How long.
            idle: How many waits in a row found nothing.

        Returns:
            The seconds that the shell shall sleep instead, where the server does not let us block.
        """

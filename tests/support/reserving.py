"""One reservation of a layout, at a time of the test's choosing."""

from __future__ import annotations

from typing import Any

from babelqueue_redis import entropy
from babelqueue_redis.core.command import Command
from babelqueue_redis.core.settlement import Settlement
from babelqueue_redis.layouts import Layout
from babelqueue_redis.values import Outcome, Reservation

REMOVED = (Outcome.ACKED, Outcome.DROPPED)


def reserved(driver: Any, layout: Layout, now: float | None = None) -> Reservation | None:
    """Reserve one message, if there is one."""
    taken: list[Reservation] = driver.run(layout.reserve(entropy.new_token(), now))
    return taken[0] if taken else None


def settle(
    driver: Any, layout: Layout, taken: Reservation, end: Settlement, now: float | None = None
) -> bool:
    """Settle a reservation; tell whether it was still there."""
    if end.outcome in REMOVED:
        (there,) = driver.send(layout.take("0" * 32, now, 0, [taken])).ended
        return bool(there)
    command: Command[bool] = layout.replace(taken, end, now)
    return bool(driver.send(command))

"""The legacy layout: lists, and a sorted set of deadlines.

::

    <q>                        list        ready; the head is the oldest
    <q>:processing             list        reserved elements
    <q>:processing:deadlines   sorted set  <token>:<element> by the second its reservation ends
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from babelqueue_carrier.frame import frame_value, unframe
from babelqueue_redis import lua
from babelqueue_redis.core.command import Arg, Command, Op, Refused
from babelqueue_redis.core.settlement import Settlement
from babelqueue_redis.layouts.protocol import Message
from babelqueue_redis.values import Outcome, Reservation

_CHUNK = 500
"""Members one sweep call looks at: about 3 ms of Redis' time."""
_SHORTEST_BLOCK = 0.001
"""Seconds. Redis would take 0 for "for ever"."""
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 1.0


class Swept(msgspec.Struct, frozen=True):
    """What one sweep call did, and whether expired members may be left."""

    moved: int
    seen: int
    more: bool


class LegacyLayout:
    """See :class:`babelqueue_redis.layouts.protocol.Layout`."""

    def __init__(self, queue: str, lease: int | None = None, batch: int = -1) -> None:
        """Name the keys.

        Args:
            queue: The logical name, which is the ready list's key.
            lease: Seconds until a reservation expires; ``None`` is never.
            batch: How many expired reservations one sweep moves at most; -1 is all.
        """
        self.queue = queue
        self._processing = f"{queue}:processing"
        self._keys = (queue, self._processing, f"{self._processing}:deadlines")
        self._lease: Arg = "" if lease is None else lease
        self._batch = batch

    def publish(self, messages: Sequence[Message]) -> Command[None]:
        """Append messages to the queue: all of them or none."""
        values = tuple(frame_value(body, headers) for body, headers in messages)
        return Command("RPUSH", (self.queue,), values, _nothing)

    def reserve(self, token: str, now: float | None = None) -> Op[Reservation | None]:
        """Sweep, and take the head. A long sweep goes on after the take, chunk by chunk."""
        take = Command(
            lua.LEGACY_RESERVE,
            self._keys,
            (_clock(now), self._lease, token),
            lambda reply: self._reservation(token, reply),
        )
        swept, taken = yield (self._sweep_chunk(self._batch, now), take)
        if swept.more:
            moved = yield from self._sweep_rest(swept, now)
            if taken is None and moved:
                (taken,) = yield (take,)
        return taken  # type: ignore[no-any-return]  # the parse of ``take``

    def sweep(self, now: float | None = None) -> Op[int]:
        """Move expired reservations back to the ready list; return how many."""
        (swept,) = yield (self._sweep_chunk(self._batch, now),)
        return (yield from self._sweep_rest(swept, now))

    def settle(self, reservation: Reservation, settlement: Settlement) -> Command[bool] | None:
        """Remove the reservation, if it is still there, and write what replaces the message."""
        outcome = settlement.outcome
        if outcome is Outcome.LEFT:
            return None
        keys: tuple[str, ...] = self._keys[1:]
        args: tuple[Arg, ...] = (reservation.token, reservation.stored)
        if outcome is Outcome.RELEASED:
            keys, args = (*keys, self.queue), (*args, reservation.stored)
        elif outcome in (Outcome.RETRIED, Outcome.DEAD_LETTERED):
            target = settlement.dead_letter_queue or self.queue
            value = frame_value(settlement.body, reservation.headers)
            keys, args = (*keys, target), (*args, value)
        return Command(lua.LEGACY_SETTLE, keys, args, bool)

    def wait(self, seconds: float, idle: int) -> Command[float]:
        """Move the head to the head: it blocks while there is none, and takes nothing."""
        pause = min(_FIRST_PAUSE * 2 ** min(idle, 10), _LONGEST_PAUSE)
        return Command(
            "BLMOVE",
            (self.queue,),
            (self.queue, "LEFT", "LEFT", f"{max(seconds, _SHORTEST_BLOCK):.3f}"),
            lambda reply: pause if isinstance(reply, Refused) else 0.0,
            tolerates=("NOPERM", "OOM", "UNKNOWN COMMAND"),
        )

    def _sweep_rest(self, swept: Swept, now: float | None) -> Op[int]:
        moved, seen = swept.moved, swept.seen
        while swept.more and seen != self._batch:
            left = -1 if self._batch < 0 else self._batch - seen
            (swept,) = yield (self._sweep_chunk(left, now),)
            moved, seen = moved + swept.moved, seen + swept.seen
        return moved

    def _sweep_chunk(self, left: int, now: float | None) -> Command[Swept]:
        size = _CHUNK if left < 0 else min(_CHUNK, left)
        return Command(lua.LEGACY_SWEEP, self._keys, (_clock(now), size), _swept)

    def _reservation(self, token: str, stored: bytes | None) -> Reservation | None:
        if stored is None:
            return None
        body, headers = unframe(stored)
        poison = None if body is stored or _is_utf8(stored) else "the bytes are not UTF-8"
        return Reservation(self.queue, body, headers, token, stored, poison)


def _clock(now: float | None) -> Arg:
    return "" if now is None else repr(float(now))


def _swept(reply: list[int]) -> Swept:
    moved, seen, more = reply
    return Swept(moved, seen, bool(more))


def _nothing(_reply: Any) -> None:  # noqa: ANN401 - whatever Redis answers
    return None


def _is_utf8(stored: bytes) -> bool:
    try:
        stored.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True

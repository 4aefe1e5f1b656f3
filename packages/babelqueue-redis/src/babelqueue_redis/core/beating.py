"""Which reservations are to be extended, and when. Times are seconds of a monotonic clock."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

import msgspec

from babelqueue_redis.settings import ConsumerOptions
from babelqueue_redis.values import LOST, Reservation

logger = logging.getLogger("babelqueue_redis.heartbeat")

_SHORTEST_LEASE = 2
_BEATS_PER_LEASE = 3
NOTHING_TO_DO = 3600.0
LATE = 0.025
"""Seconds after which somebody settles what ended; whoever looks, looks as often."""

_BETWEEN_LOOKS = 0.1


class Looks:
    """When a busy worker looks for expired reservations: ten times a second.

    Their deadlines are whole seconds, and each look is a command more for Redis.
    """

    def __init__(self) -> None:
        """Begin with a look."""
        self._next = -math.inf

    def due(self, now: float) -> bool:
        """Tell whether to look now; then it is done."""
        if now < self._next:
            return False
        self._next = now + _BETWEEN_LOOKS
        return True


class _Watch(msgspec.Struct):
    reservation: Reservation
    since: float
    due: float


class Beats:
    """The reservations of one consumer that are being handled.

    One thread may add and drop while another one looks: every step on the dictionary is atomic.
    """

    def __init__(self, options: ConsumerOptions) -> None:
        """Take the options of a consumer.

        Attributes:
            interval: Seconds between two beats, and so between two looks; 0 when there are none.
        """
        retry_after, lease = options.retry_after, options.lease
        self._watched: dict[str, _Watch] = {}
        self._queue = options.queue
        self._limit = options.longest_hold
        self.interval = lease / _BEATS_PER_LEASE if lease and options.heartbeat else 0.0
        if options.heartbeat and retry_after is not None and retry_after < _SHORTEST_LEASE:
            logger.warning(
                "retry_after=%s on queue %r is too short for the heartbeat, because deadlines are "
                "whole seconds: use %s or more, or heartbeat=False",
                *(retry_after, options.queue, _SHORTEST_LEASE),
            )

    def __bool__(self) -> bool:
        """Whether any reservation is watched."""
        return bool(self._watched)

    def add(self, reservations: Sequence[Reservation], now: float) -> None:
        """Watch reservations that were made just now."""
        for reservation in reservations:
            self._watched[reservation.token] = _Watch(reservation, now, now + self.interval)

    def started(self, reservation: Reservation, now: float) -> None:
        """Note that the handling of a reservation begins, which may have waited its turn."""
        watch = self._watched.get(reservation.token)
        if watch is not None:
            watch.since = now

    def drop(self, reservations: Sequence[Reservation]) -> None:
        """Watch them no more; they are about to be settled."""
        for reservation in reservations:
            self._watched.pop(reservation.token, None)

    def clear(self) -> None:
        """Forget all: in a forked child they are the parent's."""
        self._watched.clear()

    def due(self, now: float) -> list[Reservation]:
        """Return what is to be extended. What was held long enough is dropped, and told."""
        if not self.interval:
            return []
        late = [watch for watch in list(self._watched.values()) if watch.due <= now]
        for watch in late:
            if now - watch.since >= self._limit:
                self.drop((watch.reservation,))
                logger.warning(
                    "a message of queue %r has been handled for %.0f s: its reservation is not "
                    "extended any more (handler_timeout, max_lease), and ends with retry_after",
                    *(self._queue, now - watch.since),
                )
        return [watch.reservation for watch in late if now - watch.since < self._limit]

    def extended(self, reservation: Reservation, now: float, *, there: bool) -> None:
        """Note the answer to a beat; a reservation that is not there any more is lost.

        One that was dropped meanwhile was settled in between: that is no loss.
        """
        watch = self._watched.get(reservation.token)
        if watch is not None and there:
            watch.due = now + self.interval
        elif watch is not None:
            self.drop((reservation,))
            reservation.notes[LOST] = True
            logger.warning(
                "reservation lost: a message of queue %r is still being handled here, but somebody "
                "else has it by now; its settlement will change nothing",
                self._queue,
            )

    def pause(self, now: float) -> float:
        """Return how long to wait before the next look.

        Never longer than the interval, so that nobody has to tell of a new reservation; and never
        much shorter, so that a server that cannot be reached is not asked all the time.
        """
        if not self.interval:
            return NOTHING_TO_DO
        first = min((watch.due for watch in list(self._watched.values())), default=math.inf)
        return min(max(first - now, self.interval / 4), self.interval)

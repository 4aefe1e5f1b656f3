"""The task that extends reservations while their messages are handled."""

from __future__ import annotations

import asyncio
import logging
from types import TracebackType

from babelqueue_redis.aio.driver import Driver
from babelqueue_redis.core.beating import Beats
from babelqueue_redis.errors import TransportError
from babelqueue_redis.layouts import Layout
from babelqueue_redis.settings import ConsumerOptions
from babelqueue_redis.values import Reservation

logger = logging.getLogger("babelqueue_redis.heartbeat")


class Heartbeat:
    """Extends the reservations of one consumer.

    A message costs an entry in a dictionary. A timer of the event loop looks at it now and then,
    and starts a task where there is something to extend. A coroutine that blocks the loop blocks
    this, too.
    """

    def __init__(self, options: ConsumerOptions, driver: Driver, layout: Layout) -> None:
        """Prepare; nothing is sent yet.

        Args:
            options: The consumer's.
            driver: One of its own; the consumer's may be waiting for a message.
            layout: The consumer's.
        """
        self._beats = Beats(options)
        self._driver = driver
        self._layout = layout
        self._loop: asyncio.AbstractEventLoop | None = None
        self._next: asyncio.TimerHandle | asyncio.Task[None] | None = None

    def over(self, reservation: Reservation) -> _Watching:
        """Return a ``with`` that keeps a reservation from running out."""
        return _Watching(self, reservation)

    def begin(self, reservation: Reservation) -> None:
        """Extend a reservation from now on."""
        if self._beats.interval:
            loop = asyncio.get_running_loop()
            if self._next is None or self._loop is not loop:
                self._loop = loop
                self._next = loop.call_later(self._beats.interval, self._look)
            self._beats.add(reservation, self._driver.monotonic())

    def end(self, reservation: Reservation) -> None:
        """Extend it no more: before it is settled, so that nobody takes that for a loss."""
        self._beats.drop(reservation)

    async def close(self) -> None:
        """End the beating; the next message starts it again."""
        coming, self._next = self._next, None
        if coming is not None:
            coming.cancel()
        await self._driver.close()

    async def beat(self) -> float:
        """Extend what is due; return the seconds until the next look."""
        for reservation in self._beats.due(self._driver.monotonic()):
            try:
                there = await self._driver.send(self._layout.extend(reservation))
            except TransportError as error:
                logger.info("a reservation of queue %r: no beat: %s", reservation.queue, error)
            else:
                self._beats.extended(reservation, self._driver.monotonic(), there=there)
        return self._beats.pause(self._driver.monotonic())

    def _look(self) -> None:
        if self._loop is not None:
            self._next = self._loop.create_task(self._beat()) if self._beats else None

    async def _beat(self) -> None:
        pause = self._beats.interval
        try:
            pause = await self.beat()
        except Exception:
            logger.exception("the heartbeat stumbled")
        self._next = asyncio.get_running_loop().call_later(pause, self._look)


class _Watching:
    """Class-based: several times cheaper than ``@contextmanager``."""

    __slots__ = ("_heartbeat", "_reservation")

    def __init__(self, heartbeat: Heartbeat, reservation: Reservation) -> None:
        self._heartbeat = heartbeat
        self._reservation = reservation

    def __enter__(self) -> None:
        self._heartbeat.begin(self._reservation)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._heartbeat.end(self._reservation)

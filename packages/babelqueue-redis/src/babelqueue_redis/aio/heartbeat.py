"""The task that extends reservations while their messages are handled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType

from babelqueue_redis.aio.driver import Driver
from babelqueue_redis.core.beating import LATE, NOTHING_TO_DO, Beats
from babelqueue_redis.errors import TransportError
from babelqueue_redis.layouts import Layout
from babelqueue_redis.settings import ConsumerOptions
from babelqueue_redis.values import Reservation

_PATIENCE = 10.0
"""Seconds to wait for the task where it may be settling."""

logger = logging.getLogger("babelqueue_redis.heartbeat")


class Heartbeat:
    """Extends the reservations of one consumer, and settles what its worker has no time for.

    A message costs an entry in a dictionary. A timer of the event loop looks at it now and then,
    and starts a task where there is something to do. A coroutine that blocks the loop blocks this,
    too.

    Attributes:
        beats: The reservations that it looks after.
    """

    def __init__(self, options: ConsumerOptions, driver: Driver, layout: Layout) -> None:
        """Prepare; nothing is sent yet.

        Args:
            options: The consumer's.
            driver: One of its own; the consumer's may be waiting for a message.
            layout: The consumer's.
        """
        self.beats = Beats(options)
        self._driver = driver
        self._layout = layout
        self._loop: asyncio.AbstractEventLoop | None = None
        self._next: asyncio.TimerHandle | asyncio.Task[None] | None = None
        self._is_awake = False
        self._settle_late: Callable[[Driver], Awaitable[bool]] | None = None

    def settles(self, settle_late: Callable[[Driver], Awaitable[bool]]) -> None:
        """Have something called that settles late ends, once :meth:`wake` was called.

        Args:
            settle_late: Tells whether there is more to come.
        """
        self._settle_late = settle_late

    def over(self, reservation: Reservation) -> _Watching:
        """Return a ``with`` that keeps a reservation from running out."""
        return _Watching(self, reservation)

    def begin(self, reservations: Sequence[Reservation]) -> None:
        """Extend reservations from now on."""
        self.beats.add(reservations, self._driver.monotonic())
        loop = asyncio.get_running_loop()
        if self.beats.interval and (self._next is None or self._loop is not loop):
            self._look_in(self.beats.interval)

    def end(self, reservations: Sequence[Reservation]) -> None:
        """Extend them no more: before they are settled, so that nobody takes that for a loss."""
        self.beats.drop(reservations)

    def wake(self) -> None:
        """Look for late ends from now on, as long as there are any."""
        if not self._is_awake:
            self._is_awake = True
            if isinstance(self._next, asyncio.TimerHandle):
                self._next.cancel()
                self._next = None
            if self._next is None:
                self._look_in(LATE)

    async def close(self) -> None:
        """End the beating; the next message starts it again."""
        coming, self._next = self._next, None
        if self._is_awake and isinstance(coming, asyncio.Task) and self._is_here():
            await asyncio.wait([coming], timeout=_PATIENCE)  # it may be settling what ended last
            coming, self._next = self._next, None
        self._is_awake = False
        if coming is not None:
            coming.cancel()
        await self._driver.close()

    async def beat(self) -> float:
        """Extend what is due, settle what is late; return the seconds until the next look."""
        for reservation in self.beats.due(self._driver.monotonic()):
            try:
                there = await self._driver.send(self._layout.extend(reservation))
            except TransportError as error:
                logger.info("a reservation of queue %r: no beat: %s", reservation.queue, error)
            else:
                self.beats.extended(reservation, self._driver.monotonic(), there=there)
        if self._is_awake and self._settle_late is not None:
            self._is_awake = await self._settle_late(self._driver)
        pause = self.beats.pause(self._driver.monotonic())
        return min(pause, LATE) if self._is_awake else pause

    def _is_here(self) -> bool:
        return self._loop is asyncio.get_running_loop()

    def _look_in(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._next = self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        if self._loop is not None:
            self._next = self._loop.create_task(self._beat()) if self.beats else None
            self._is_awake = self._is_awake and self._next is not None

    async def _beat(self) -> None:
        pause = self.beats.interval or NOTHING_TO_DO
        try:
            pause = await self.beat()
        except Exception:
            logger.exception("the heartbeat stumbled")
        self._look_in(pause)


class _Watching:
    """Class-based: several times cheaper than ``@contextmanager``."""

    __slots__ = ("_heartbeat", "_reservation")

    def __init__(self, heartbeat: Heartbeat, reservation: Reservation) -> None:
        self._heartbeat = heartbeat
        self._reservation = reservation

    def __enter__(self) -> None:
        self._heartbeat.begin((self._reservation,))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._heartbeat.end((self._reservation,))

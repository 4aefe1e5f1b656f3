"""The tasks that handle messages, where several are handled at once."""

from __future__ import annotations

import asyncio
import contextlib

from babelqueue_redis.aio.feed import Feed
from babelqueue_redis.redis_py import LONGEST_BLOCK
from babelqueue_redis.values import Reservation

_STRIKE_AGAIN = 1.0
"""Seconds between cancellations of a handler that does not end."""


class MessageLanes:
    """Handles messages for one run: one at a time in the calling task, or several in others.

    Attributes:
        may_be_full: Whether a message may have to wait for another one's end.
        handled: How many messages were handled.
        error: What a handler raised that is to end the run, ``SystemExit`` for instance.
    """

    def __init__(self, concurrency: int) -> None:
        """Begin idle."""
        self._count = concurrency
        self.may_be_full = concurrency > 1
        self._running: set[asyncio.Task[BaseException | None]] = set()
        self._fresh: dict[str, tuple[Feed, Reservation]] = {}
        self.handled = 0
        self.error: BaseException | None = None

    def free(self) -> int:
        """Return how many messages could be started at once."""
        return self._count - len(self._running)

    async def wait_for_room(self) -> bool:
        """Wait a while until a message can be started; tell whether it can."""
        if not self.free():
            await asyncio.wait(
                self._running, timeout=LONGEST_BLOCK, return_when=asyncio.FIRST_COMPLETED
            )
        return self.free() > 0

    async def start(self, feed: Feed, reservation: Reservation) -> None:
        """Handle a message: to the end in this task, or begin with it in another."""
        if self._count == 1:
            await feed.handle(reservation, feed.keep)
            self.handled += 1
            return
        if reservation.alone:
            await self.join()
        self._fresh[reservation.token] = (feed, reservation)
        task = asyncio.ensure_future(self._handle(feed, reservation))
        self._running.add(task)
        task.add_done_callback(self._note)
        if reservation.alone:
            await self.join()

    async def join(self) -> None:
        """Wait until all that was started has ended."""
        while self._running:
            await asyncio.wait(self._running)

    async def abandon(self) -> None:
        """Cancel what is still being handled, and wait until that has ended.

        A task that is cancelled before its first step does nothing: its message waits again.
        """
        while self._running:
            for task in self._running:
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):  # it is cancelling already
                await asyncio.wait(self._running, timeout=_STRIKE_AGAIN)
        for feed, reservation in self._fresh.values():
            feed.waiting.append(reservation)
        self._fresh.clear()

    async def _handle(self, feed: Feed, reservation: Reservation) -> BaseException | None:
        """Return what a handler raised that ends the run: a task would end the loop with it."""
        del self._fresh[reservation.token]
        try:
            await feed.handle(reservation, feed.keep)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - the run raises it
            return error
        return None

    def _note(self, task: asyncio.Task[BaseException | None]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            error = task.result()
            self.handled += error is None
            self.error = self.error or error

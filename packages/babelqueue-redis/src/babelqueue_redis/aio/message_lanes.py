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
        handled: How many messages were handled.
        error: What a handler raised that is to end the run, ``SystemExit`` for instance.
    """

    def __init__(self, concurrency: int) -> None:
        """Begin idle."""
        self._count = concurrency
        self._running: set[asyncio.Task[None]] = set()
        self._fresh: dict[str, tuple[Feed, Reservation]] = {}
        self._room: asyncio.Future[None] | None = None
        self.handled = 0
        self.error: BaseException | None = None

    def free(self) -> int:
        """Return how many messages could be started at once."""
        return self._count - len(self._running)

    async def wait_for_room(self) -> bool:
        """Wait a while until a message can be started; tell whether it can."""
        if not self.free():
            await self._some_end()
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
        task = asyncio.get_running_loop().create_task(self._handle(feed, reservation))
        if not task.done():  # a factory of eager tasks may have run it to its end
            self._running.add(task)
        if reservation.alone:
            await self.join()

    async def join(self) -> None:
        """Wait until all that was started has ended."""
        while self._running:
            await self._some_end()

    async def abandon(self) -> None:
        """Cancel what is still being handled, and wait until that has ended.

        A task that is cancelled before its first step does nothing: its message waits again.
        """
        while self._running:
            for task in self._running:
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):  # it is cancelling already
                await asyncio.wait(self._running, timeout=_STRIKE_AGAIN)
            self._running = {task for task in self._running if not task.done()}
        for feed, reservation in self._fresh.values():
            feed.waiting.append(reservation)
        self._fresh.clear()

    async def _some_end(self) -> None:
        """Wait a while until something ended that was started.

        A task that somebody cancels before its first step does not note its end.
        """
        self._room = asyncio.get_running_loop().create_future()
        await asyncio.wait((self._room,), timeout=LONGEST_BLOCK)
        self._running = {task for task in self._running if not task.done()}

    async def _handle(self, feed: Feed, reservation: Reservation) -> None:
        """Handle a message, and keep what ends the run: a task would end the loop with it.

        It notes its own end: a callback of the task would be one more turn of the loop.
        """
        del self._fresh[reservation.token]
        try:
            await feed.handle(reservation, feed.keep)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - the run raises it
            self.error = self.error or error
        else:
            self.handled += 1
        finally:
            task = asyncio.current_task()
            if task is not None:
                self._running.discard(task)
            if self._room is not None and not self._room.done():
                self._room.set_result(None)

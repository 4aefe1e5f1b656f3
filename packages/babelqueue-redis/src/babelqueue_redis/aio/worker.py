"""The loop that takes messages and has them handled."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Sequence

from babelqueue_redis import hooks
from babelqueue_redis.aio.asking import from_threads
from babelqueue_redis.aio.feed import Feed
from babelqueue_redis.aio.knocking import Knocking
from babelqueue_redis.aio.message_lanes import MessageLanes
from babelqueue_redis.aio.shutdown import Shutdown
from babelqueue_redis.core.pulse import Pulse
from babelqueue_redis.core.turns import Turns
from babelqueue_redis.errors import BabelQueueError
from babelqueue_redis.layouts.operations import Operations
from babelqueue_redis.redis_py import LONGEST_BLOCK
from babelqueue_redis.steps import Serving
from babelqueue_redis.values import Destination

_EARLY = 0.01
"""Seconds that the end of a wait may come before its time, by the server's clock."""
_GRACE = 0.2
"""Seconds that the end of a wait may come late: the server looks ten times a second."""


class Worker:
    """Takes messages of one or several queues until it is told to stop.

    Attributes:
        pulse: Whether the loop is alive.
    """

    def __init__(self, feeds: Sequence[Feed], weights: Sequence[int] | None = None) -> None:
        """Prepare; nothing is sent yet.

        Args:
            feeds: The queues.
            weights: As for :class:`~babelqueue_redis.core.turns.Turns`.
        """
        self._feeds = feeds
        self._turns = Turns(len(feeds), weights)
        self._concurrency = max(feed.options.concurrency for feed in feeds)
        self._block = min(feed.options.block_timeout for feed in feeds)
        self._patience = max(feed.options.shutdown_timeout for feed in feeds)
        self._lanes = MessageLanes(self._concurrency)
        self._knocking, self._knocks = Knocking(), len(feeds) > 1
        self._stopping = False
        self.pulse = Pulse(max(feed.options.longest_hold for feed in feeds))

    def monotonic(self) -> float:
        """Return the time that the pulse counts in."""
        return self._feeds[0].driver.monotonic()

    def stop(self) -> None:
        """Ask the loop to end. A request made before :meth:`run` ends that run at once."""
        self._stopping = True

    async def run(self, should_continue: Callable[[], bool]) -> int:
        """Loop; return how many messages were handled.

        Args:
            should_continue: Asked before every message.
        """
        busy = next((feed for feed in self._feeds if feed.is_served), None)
        if busy is not None:
            queue = busy.options.queue
            msg = f"run() is running already on queue {queue!r}: use a consumer for each task"
            raise BabelQueueError(msg)
        self._serve(is_served=True)
        self._lanes = MessageLanes(self._concurrency)
        try:
            with (
                Shutdown(self.stop, self._interrupt, self._patience),
                contextlib.ExitStack() as serving,
            ):
                for feed in self._feeds:
                    serving.enter_context(hooks.serving(_serving(feed)))
                await self._loop(should_continue)
        finally:
            self.pulse.end()
            self._stopping = False
            self._serve(is_served=False)
            await self._knocking.end()
            for feed in self._feeds:
                await feed.close()
        return self._lanes.handled

    async def _loop(self, should_continue: Callable[[], bool]) -> None:
        lanes = self._lanes
        try:
            try:
                await self._take_turns(should_continue)
            except Exception as error:  # noqa: BLE001 - raised below: what runs may end before
                lanes.error = error
            for feed in self._feeds:
                await feed.give_back()
            await lanes.join()
        finally:
            await lanes.abandon()
            for feed in self._feeds:
                await feed.give_back()
        if lanes.error is not None:
            raise lanes.error

    async def _take_turns(self, should_continue: Callable[[], bool]) -> None:
        lanes, feed = self._lanes, None
        while not self._stopping and lanes.error is None and should_continue():
            if feed is None or not feed.waiting or not lanes.free():
                feed = await self._fill()
            if feed is not None and not self._stopping:
                self.pulse.busy(feed.driver.monotonic())
                await lanes.start(feed, feed.waiting.popleft())
                if feed.waiting and feed.is_late():
                    await feed.settle()

    async def _fill(self) -> Feed | None:
        """Return a queue with a message to start, waiting for one; ``None`` to be called again."""
        clock = self._feeds[0].driver
        deadline, idle = 0.0, 0
        while await self._lanes.wait_for_room():
            feed = await self._ready()
            if feed is not None or self._stopping:
                return feed
            deadline = deadline or clock.monotonic() + self._block
            left = deadline - clock.monotonic()
            if left <= 0:
                return None
            if await self._is_paused():
                return None
            await self._wait(min(left, LONGEST_BLOCK), idle)
            idle += 1
        return None

    async def _ready(self) -> Feed | None:
        """Return a queue that has a message now."""
        for feed in self._feeds:
            if feed.waiting:
                return feed
        for place in self._turns.order():
            feed = self._feeds[place]
            if self._pause(feed):
                continue
            found = await feed.fetch(self._lanes.free())
            if self._knocks:
                self._knocking.forget(feed)
            (self.pulse.outage if feed.is_away else self.pulse.beat)(feed.driver.monotonic())
            if found:
                self._turns.served(place)
                return feed
        return None

    async def _is_paused(self) -> bool:
        """Sleep a while where no queue is to be asked."""
        pause = min(map(self._pause, self._feeds))
        if pause:
            for feed in self._feeds:
                await feed.settle()
            await self._feeds[0].driver.sleep(min(pause, LONGEST_BLOCK))
        return pause > 0

    def _pause(self, feed: Feed) -> float:
        """Return the seconds until a queue may be asked, without keeping the others."""
        pause = feed.pause()
        if self._knocks and not pause and self._knocking.is_out(feed):
            return math.inf
        return pause

    async def _wait(self, seconds: float, idle: int) -> None:
        feeds = [feed for feed in self._feeds if not self._pause(feed)]
        if len(feeds) == 1:
            await feeds[0].wait(seconds, idle)
        elif feeds:
            await _wait_for_any(feeds, seconds, idle)

    def _interrupt(self) -> None:
        for feed in self._feeds:
            feed.lane.interrupt()

    def _serve(self, *, is_served: bool) -> None:
        for feed in self._feeds:
            feed.is_served = is_served
            feed.is_shared = len(self._feeds) > 1 or self._concurrency > 1
            feed.lane.interrupted = False


async def _wait_for_any(feeds: Sequence[Feed], seconds: float, idle: int) -> None:
    """Wait until one of several queues may have a message."""
    until = asyncio.get_running_loop().time() + seconds - _EARLY
    waits = [asyncio.ensure_future(feed.wait(seconds, idle)) for feed in feeds]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if asyncio.get_running_loop().time() >= until:
            await asyncio.wait(waits, timeout=_GRACE)  # the others' ends come at once, too
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.wait(waits)


def _serving(feed: Feed) -> Serving:
    """Return what hooks are told of a run."""
    options, driver = feed.options, feed.driver
    destination = Destination(options.queue, options.layout, driver.address, driver.port)
    counts = Operations(options, options.dead_letter_target).counts()
    return Serving(destination, from_threads(lambda: driver.send(counts)))

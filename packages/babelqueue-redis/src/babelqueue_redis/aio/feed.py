"""What a worker takes from one queue: batches, with what ended in between on the way."""

from __future__ import annotations

import logging
import random
from collections import deque
from collections.abc import Callable
from typing import Any

from babelqueue_redis import entropy
from babelqueue_redis.aio.driver import Driver
from babelqueue_redis.aio.heartbeat import Heartbeat
from babelqueue_redis.aio.lane import Lane
from babelqueue_redis.aio.settler import Settler
from babelqueue_redis.core.command import Command
from babelqueue_redis.core.prefetching import Window
from babelqueue_redis.core.settlement import GIVE_BACK, End
from babelqueue_redis.errors import CommandRefusedError, TransportError
from babelqueue_redis.layouts import Layout
from babelqueue_redis.settings import MOST_PREFETCHED, ConsumerOptions
from babelqueue_redis.values import Outcome, Reservation

logger = logging.getLogger("babelqueue_redis.worker")

_PAUSE_AFTER_RELEASE = 0.1
"""Seconds before a message that was just given back unchanged may be taken again."""
_BETWEEN_ADOPTIONS = 5.0
"""Seconds between two looks for elements that were reserved without a deadline."""
_FIRST_BACKOFF = 0.1
_LONGEST_BACKOFF = 5.0


class Feed:
    """The messages of one queue for a worker, and how they are handled.

    Attributes:
        options: The consumer's.
        driver: The consumer's.
        lane: The consumer's.
        waiting: What is reserved and not started, the oldest first.
        is_served: Whether a worker is taking its messages.
        is_shared: Whether that worker may do much else before the next trip of this queue.
    """

    def __init__(
        self,
        *,
        options: ConsumerOptions,
        driver: Driver,
        layout: Layout,
        heartbeat: Heartbeat,
        settler: Settler,
        lane: Lane,
        work: Callable[[Reservation, Callable[[End], None]], Any],
    ) -> None:
        """Prepare; nothing is sent yet.

        Args:
            options: The consumer's, and so are the other parts.
            driver: Sends.
            layout: Says what.
            heartbeat: Keeps what was taken from running out.
            settler: Settles what ended.
            lane: Runs handlers.
            work: Handles a message, and calls its second argument with how that ended.
        """
        self.options = options
        self.driver = driver
        self.lane = lane
        self.waiting: deque[Reservation] = deque()
        self.is_served = self.is_shared = False
        self._work = work
        self._layout = layout
        self._heartbeat = heartbeat
        self._settler = settler
        self._window = Window(options.prefetch, options.concurrency)
        self._next_adoption = 0.0
        self._resumes = 0.0
        self._outages = 0

    @property
    def is_away(self) -> bool:
        """Whether Redis did not answer the last time."""
        return self._outages > 0

    def pause(self) -> float:
        """Return the seconds until messages are to be asked for again: 0 is now."""
        return self._resumes and max(0.0, self._resumes - self.driver.monotonic())

    def keep(self, end: End) -> None:
        """Keep how a message ended, until the next trip."""
        self._settler.keep(end)
        if self.waiting or self.is_shared:
            self._heartbeat.wake()  # the next trip may be a long way off
        if end.settlement.outcome is Outcome.RELEASED:
            self._resumes = self.driver.monotonic() + _PAUSE_AFTER_RELEASE

    async def handle(self, reservation: Reservation, keep: Callable[[End], None]) -> None:
        """Handle a message; raises what came from outside meanwhile."""
        started = self.driver.monotonic()
        self._heartbeat.beats.started(reservation, started)
        try:
            await self._work(reservation, keep)
        finally:
            self._window.note(self.driver.monotonic() - started)

    async def fetch(self, free: int) -> bool:
        """Settle what ended and reserve more, in one trip; tell whether messages wait.

        Redis may be away: then it pauses.

        Args:
            free: How many messages could be started at once.
        """
        return await self.driver.whole(self._fetch(free))

    async def settle(self) -> None:
        """Settle what ended, and take nothing."""
        ends = self._settler.drain()
        if ends:
            await self.driver.whole(self._settler.settle_all(ends))

    def is_late(self) -> bool:
        """Tell whether something ended a while ago, and is not settled."""
        return self._settler.is_late()

    async def give_back(self, also: tuple[Reservation, ...] = ()) -> None:
        """Give back what waits unchanged, and settle what ended."""
        for reservation in (*also, *self.waiting):
            self._settler.keep(End(reservation, GIVE_BACK))
        self.waiting.clear()
        await self.settle()

    async def wait(self, seconds: float, idle: int) -> None:
        """Wait until a message may be there."""
        try:
            pause = await self.driver.send(self.wait_for(seconds, idle))
        except TransportError as error:
            await self.away(error)
        else:
            await self.driver.sleep(min(pause, seconds))

    def wait_for(self, seconds: float, idle: int) -> Command[float]:
        """Return the command that waits until a message may be there."""
        return self._layout.wait(seconds, idle)

    async def away(self, error: TransportError) -> None:
        """Pause before the next try; say once per outage that there is one."""
        if self._outages == 0:
            logger.error("queue %r cannot be served for now: %s", self.options.queue, error)
        await self.driver.close()  # the name may lead to another server by then
        longest = min(_FIRST_BACKOFF * 2 ** min(self._outages, 10), _LONGEST_BACKOFF)
        self._outages += 1
        pause = random.uniform(longest / 2, longest)  # noqa: S311 - it spreads, it keeps no secret
        self._resumes = self.driver.monotonic() + pause

    async def close(self) -> None:
        """Close the connections; the next trip opens new ones."""
        await self._heartbeat.close()
        await self.driver.close()

    async def _fetch(self, free: int) -> bool:
        """Do what :meth:`fetch` says; whoever cancels it finds what was taken waiting."""
        size = self._window.size()
        count = size if self.options.prefetch != "auto" else max(size, min(free, MOST_PREFETCHED))
        taken = await self._settler.settle_all(self._settler.drain(), count)
        if isinstance(taken, TransportError):
            await self.away(taken)
            return False
        if self._outages:
            self._note_recovery()
        if taken:
            self.waiting.extend(taken)
            self._heartbeat.begin(taken)
        if self.driver.monotonic() >= self._next_adoption:
            try:
                await self._adopt()
            except TransportError as error:
                await self.away(error)
        return bool(taken)

    async def _adopt(self) -> None:
        """Give elements that were reserved without a deadline one; nobody else would miss them."""
        self._next_adoption = self.driver.monotonic() + _BETWEEN_ADOPTIONS
        try:
            count = await self.driver.run(self._layout.adopt(entropy.new_token))
        except CommandRefusedError as error:
            logger.info("queue %r: %s", self.options.queue, error)
            return
        if count:
            logger.warning(
                "%d messages of queue %r were reserved without a deadline; they come back after "
                "retry_after (%s s)",
                *(count, self.options.queue, self.options.retry_after),
            )

    def _note_recovery(self) -> None:
        logger.warning("queue %r is served again", self.options.queue)
        self._outages = 0

"""The loop that takes messages and has them handled."""

from __future__ import annotations

import contextlib
import math
import selectors
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from babelqueue_redis import hooks
from babelqueue_redis.core.command import Command
from babelqueue_redis.core.pulse import Pulse
from babelqueue_redis.core.turns import Turns
from babelqueue_redis.errors import BabelQueueError, TransportError
from babelqueue_redis.layouts.operations import Operations
from babelqueue_redis.redis_py import LONGEST_BLOCK
from babelqueue_redis.steps import Serving
from babelqueue_redis.sync.feed import Feed
from babelqueue_redis.sync.knocking import Knocking
from babelqueue_redis.sync.message_lanes import MessageLanes, Running
from babelqueue_redis.sync.shutdown import HandlerInterrupted, listening
from babelqueue_redis.values import Destination

T = TypeVar("T")

_LONGEST_TRIP = 1.0
"""Seconds that an interruption waits for a trip that is under way."""
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
        self._spared_until = 0.0
        self._is_owed = False
        self.pulse = Pulse(max(feed.options.longest_hold for feed in feeds))

    def monotonic(self) -> float:
        """Return the time that the pulse counts in."""
        return self._feeds[0].driver.monotonic()

    def stop(self) -> None:
        """Ask the loop to end. A request made before :meth:`run` ends that run at once."""
        # A plain flag: a signal handler may set it at any point, and an Event's lock could be held.
        self._stopping = True

    def run(self, should_continue: Callable[[], bool]) -> int:
        """Loop; return how many messages were handled.

        Args:
            should_continue: Asked before every message.
        """
        busy = next((feed for feed in self._feeds if feed.is_served), None)
        if busy is not None:
            queue = busy.options.queue
            msg = f"run() is running already on queue {queue!r}: use a consumer for each thread"
            raise BabelQueueError(msg)
        self._serve(is_served=True)
        self._lanes = MessageLanes(self._concurrency)
        try:
            with (
                listening(self.stop, self._interrupt, self._patience),
                contextlib.ExitStack() as serving,
            ):
                for feed in self._feeds:
                    serving.enter_context(hooks.serving(_serving(feed)))
                self._loop(should_continue)
        finally:
            self.pulse.end()
            self._stopping = False
            self._serve(is_served=False)
            for feed in self._feeds:
                feed.close()
        return self._lanes.handled

    def _loop(self, should_continue: Callable[[], bool]) -> None:
        lanes = self._lanes
        try:
            try:
                self._take_turns(should_continue)
            except Exception as error:  # noqa: BLE001 - raised below: what runs may end before
                lanes.error = error
            self._spared(self._give_back)
            lanes.join()
        finally:
            self._spared(lambda: self._give_back(lanes.abandon()))
        if lanes.error is not None:
            raise lanes.error

    def _take_turns(self, should_continue: Callable[[], bool]) -> None:
        lanes, feed = self._lanes, None
        while not self._stopping and lanes.error is None and should_continue():
            if feed is None or not feed.waiting or self._concurrency > 1:
                feed = self._fill()
            if feed is not None and not self._stopping:
                self.pulse.busy(feed.driver.monotonic())
                lanes.start(feed, feed.waiting.popleft())
                if feed.waiting and feed.is_late():
                    self._spared(feed.settle)

    def _give_back(self, abandoned: Sequence[Running] = ()) -> None:
        for feed in self._feeds:
            feed.give_back(tuple(taken for owner, taken in abandoned if owner is feed))

    def _fill(self) -> Feed | None:
        """Return a queue with a message to start, waiting for one; ``None`` to be called again."""
        clock = self._feeds[0].driver
        deadline, idle = 0.0, 0
        while self._lanes.wait_for_room():
            feed = self._ready()
            if feed is not None or self._stopping:
                return feed
            deadline = deadline or clock.monotonic() + self._block
            left = deadline - clock.monotonic()
            if left <= 0:
                return None
            if self._is_paused():
                return None
            self._wait(min(left, LONGEST_BLOCK), idle)
            idle += 1
        return None

    def _ready(self) -> Feed | None:
        """Return a queue that has a message now."""
        for feed in self._feeds:
            if feed.waiting:
                return feed
        for place in self._turns.order():
            feed = self._feeds[place]
            if self._pause(feed):
                continue
            found = self._spared(feed.fetch, self._lanes.free())
            if self._knocks:
                self._knocking.forget(feed)
            (self.pulse.outage if feed.is_away else self.pulse.beat)(feed.driver.monotonic())
            if found:
                self._turns.served(place)
                return feed
        return None

    def _is_paused(self) -> bool:
        """Sleep a while where no queue is to be asked."""
        pause = min(map(self._pause, self._feeds))
        if pause:
            for feed in self._feeds:
                self._spared(feed.settle)
            self._feeds[0].driver.sleep(min(pause, LONGEST_BLOCK))
        return pause > 0

    def _pause(self, feed: Feed) -> float:
        """Return the seconds until a queue may be asked, without keeping the others."""
        pause = feed.pause()
        if self._knocks and not pause and self._knocking.is_out(feed):
            return math.inf
        return pause

    def _wait(self, seconds: float, idle: int) -> None:
        feeds = [feed for feed in self._feeds if not self._pause(feed)]
        if len(feeds) == 1:
            feeds[0].wait(seconds, idle)
        elif feeds:  # a lane's thread may have just told one to pause
            _wait_for_any(feeds, seconds, idle)

    def _spared(self, trip: Callable[..., T], *args: int) -> T:
        """Make a trip that an interruption waits for: what it takes and ends is not to be lost."""
        self._spared_until = self.monotonic() + _LONGEST_TRIP
        try:
            return trip(*args)
        finally:
            self._spared_until = 0.0
            if self._is_owed:
                self._is_owed = False
                raise HandlerInterrupted

    def _interrupt(self) -> bool:
        """Prepare for an interruption; tell whether it may be now."""
        for feed in self._feeds:
            feed.lane.interrupt()
        self._is_owed = self.monotonic() < self._spared_until
        return not self._is_owed

    def _serve(self, *, is_served: bool) -> None:
        for feed in self._feeds:
            feed.is_served = is_served
            feed.is_shared = len(self._feeds) > 1 or self._concurrency > 1
            feed.lane.interrupted = False


def _wait_for_any(feeds: Sequence[Feed], seconds: float, idle: int) -> None:
    """Wait until one of several queues may have a message.

    Each is asked through its own connection; those that have not answered by then are closed.
    """
    asked: dict[Feed, Command[float]] = {}
    clock, pause = feeds[0].driver, 0.0
    until = clock.monotonic() + seconds - _EARLY
    with selectors.DefaultSelector() as selector:
        try:
            for feed in feeds:
                with _outage_of(feed):
                    command = feed.wait_for(seconds, idle)
                    feed.driver.post(command)
                    asked[feed] = command
                    selector.register(feed.driver, selectors.EVENT_READ, feed)
            # An answer after the wait is none: then the others' come at once, too.
            while asked and (left := until + _GRACE - clock.monotonic()) > 0:
                answered = [key.data for key, _ in selector.select(left)]
                for feed in answered:
                    selector.unregister(feed.driver)
                    with _outage_of(feed):
                        pause = max(pause, feed.driver.collect(asked.pop(feed)))
                if answered and clock.monotonic() < until:
                    break
        finally:
            for feed in asked:
                feed.driver.close()
    clock.sleep(min(pause, seconds))


@contextlib.contextmanager
def _outage_of(feed: Feed) -> Iterator[None]:
    try:
        yield
    except TransportError as error:
        feed.away(error)


def _serving(feed: Feed) -> Serving:
    """Return what hooks are told of a run."""
    options, driver = feed.options, feed.driver
    destination = Destination(options.queue, options.layout, driver.address, driver.port)
    counts = Operations(options, options.dead_letter_target).counts()
    return Serving(destination, lambda: driver.send(counts))

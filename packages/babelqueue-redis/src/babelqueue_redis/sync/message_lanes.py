"""The threads that handle messages, where several are handled at once."""

from __future__ import annotations

import contextvars
import queue
from collections.abc import Callable

from babelqueue_redis.core.settlement import End
from babelqueue_redis.redis_py import LONGEST_BLOCK
from babelqueue_redis.sync.feed import Feed
from babelqueue_redis.sync.job_lanes import Lanes
from babelqueue_redis.values import Reservation

Running = tuple[Feed, Reservation]


class MessageLanes:
    """Handles messages for one run: one at a time in the calling thread, or several in others.

    Attributes:
        handled: How many messages were handled.
        error: What a handler raised that is to end the run, ``SystemExit`` for instance.
    """

    def __init__(self, concurrency: int) -> None:
        """Begin idle."""
        self._count = concurrency
        self._busy = 0
        self._running: dict[str, Running] = {}
        self._done: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._threads = Lanes()
        self.handled = 0
        self.error: BaseException | None = None

    def free(self) -> int:
        """Return how many messages could be started at once."""
        while self._busy and not self._done.empty():
            self._note(self._done.get())
        return self._count - self._busy

    def wait_for_room(self) -> bool:
        """Wait a while until a message can be started; tell whether it can."""
        try:
            while not self.free():
                self._note(self._done.get(timeout=LONGEST_BLOCK))
        except queue.Empty:
            return False
        return True

    def start(self, feed: Feed, reservation: Reservation) -> None:
        """Handle a message: to the end in this thread, or begin with it in another."""
        if self._count == 1:
            feed.handle(reservation, feed.keep)
            self.handled += 1
            return
        if reservation.alone:
            self.join()
        self._start(feed, reservation)
        if reservation.alone:
            self.join()

    def join(self) -> None:
        """Wait until all that was started has ended."""
        while self._busy:
            self._note(self._done.get())

    def abandon(self) -> list[Running]:
        """Return what is still being handled; how that ends is nobody's concern any more."""
        self._threads.end()
        abandoned = []
        while self._running:
            try:
                abandoned.append(self._running.popitem()[1])
            except KeyError:  # it has just ended
                break
        return abandoned

    def _start(self, feed: Feed, reservation: Reservation) -> None:
        token = reservation.token
        self._running[token] = (feed, reservation)
        context = contextvars.copy_context()

        def keep(end: End) -> None:
            if self._running.pop(token, None) is not None:  # not abandoned
                feed.keep(end)

        self._busy += 1
        self._threads.start(
            lambda: context.run(_contained, lambda: feed.handle(reservation, keep)), self._done.put
        )

    def _note(self, error: BaseException | None) -> None:
        self._busy -= 1
        self.handled += error is None
        self.error = self.error or error


def _contained(call: Callable[[], None]) -> BaseException | None:
    try:
        call()
    except BaseException as error:  # noqa: BLE001 - the run raises it
        return error
    return None

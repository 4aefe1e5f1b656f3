"""The loop of ``RedisConsumer.run()``, and how signals end it."""

from __future__ import annotations

import contextlib
import logging
import random
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Protocol, TypeVar

from babelqueue_redis.core.settlement import GIVE_BACK, Settlement
from babelqueue_redis.errors import TransportError
from babelqueue_redis.settings import ConsumerOptions
from babelqueue_redis.sync.driver import Driver
from babelqueue_redis.values import Outcome, Reservation

T = TypeVar("T")

logger = logging.getLogger("babelqueue_redis.worker")

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_PAUSE_AFTER_RELEASE = 0.1
"""Seconds before a message that was just given back unchanged may be taken again."""
_FIRST_BACKOFF = 0.1
_LONGEST_BACKOFF = 5.0


class HandlerInterrupted(KeyboardInterrupt):
    """Raised inside a handler that may not go on because the worker is shutting down."""


class Consumer(Protocol):
    """What the loop needs of a consumer."""

    def reserve_until(
        self, timeout: float | None, stopping: Callable[[], bool]
    ) -> Reservation | None:
        """Take a message."""

    def handle(self, reservation: Reservation) -> Outcome:
        """Run its handler and settle it."""

    def settle(self, reservation: Reservation, end: Settlement) -> Outcome:
        """Settle it without running anything."""


class Lane:
    """Where a handler runs: in the calling thread. Knows whether one is running."""

    def __init__(self) -> None:
        """Nothing runs yet."""
        self.interruptible = False

    def run(self, function: Callable[..., T], *args: Any) -> T:  # noqa: ANN401
        """Run ``function``; meanwhile a signal may raise :class:`HandlerInterrupted` in it."""
        self.interruptible = True
        try:
            return function(*args)
        finally:
            self.interruptible = False


class Worker:
    """Takes messages one by one until it is told to stop."""

    def __init__(self, options: ConsumerOptions, driver: Driver, lane: Lane) -> None:
        """Prepare; nothing is sent yet."""
        self._options = options
        self._driver = driver
        self._lane = lane
        self._stopping = False
        self._outages = 0

    def stop(self) -> None:
        """Ask the loop to end. A request made before :meth:`run` ends that run at once."""
        # A plain flag: a signal handler may set it at any point, and an Event's lock could be held.
        self._stopping = True

    def run(self, consumer: Consumer, should_continue: Callable[[], bool] | None) -> int:
        """Loop; return how many messages were handled."""
        handled = 0
        with self._handling_signals():
            while not self._stopping and (should_continue is None or should_continue()):
                try:
                    outcome = self._step(consumer)
                except HandlerInterrupted:
                    break
                except TransportError as error:
                    self._wait_out(error)
                    continue
                self._note_recovery()
                handled += outcome is not None
                if outcome is Outcome.RELEASED:
                    self._driver.sleep(_PAUSE_AFTER_RELEASE)
        self._stopping = False
        self._driver.close()
        return handled

    def _step(self, consumer: Consumer) -> Outcome | None:
        reservation = consumer.reserve_until(None, lambda: self._stopping)
        if reservation is None:
            return None
        if self._stopping:
            consumer.settle(reservation, GIVE_BACK)
            return None
        return consumer.handle(reservation)

    def _wait_out(self, error: TransportError) -> None:
        """Wait before the next try; say once per outage that there is one."""
        if self._outages == 0:
            logger.error("queue %r cannot be served for now: %s", self._options.queue, error)
        longest = min(_FIRST_BACKOFF * 2 ** min(self._outages, 10), _LONGEST_BACKOFF)
        self._outages += 1
        until = self._driver.monotonic() + random.uniform(longest / 2, longest)  # noqa: S311
        while not self._stopping and (left := until - self._driver.monotonic()) > 0:
            self._driver.sleep(min(left, 1.0))

    def _note_recovery(self) -> None:
        if self._outages:
            logger.info("queue %r is served again", self._options.queue)
            self._outages = 0

    @contextlib.contextmanager
    def _handling_signals(self) -> Iterator[None]:
        """Turn SIGTERM and SIGINT into a graceful end; only the main thread can."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        shutdown = _Shutdown(self, self._lane, self._options.shutdown_timeout)
        previous = {number: signal.signal(number, shutdown) for number in _SIGNALS}
        try:
            yield
        finally:
            shutdown.cancel()
            for number, handler in previous.items():
                signal.signal(number, handler)


class _Shutdown:
    """The signal handler of one run.

    The first signal stops the loop and starts the clock for a running handler. The second one, or
    the clock, interrupts the handler.
    """

    def __init__(self, worker: Worker, lane: Lane, timeout: float) -> None:
        self._worker = worker
        self._lane = lane
        self._timeout = timeout
        self._asked = False
        self._clock: threading.Timer | None = None

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        self._worker.stop()
        if not self._lane.interruptible:
            self._asked = True
        elif self._asked or self._timeout == 0:
            raise HandlerInterrupted
        else:
            self._asked = True
            self._start_clock(number)

    def cancel(self) -> None:
        """Stop the clock; when it has just struck, its signal is delivered before this returns."""
        if self._clock is not None:
            self._clock.cancel()
            self._clock.join()

    def _start_clock(self, number: int) -> None:
        if self._timeout > threading.TIMEOUT_MAX:
            return
        main = threading.main_thread().ident or 0
        # A real signal, unlike an exception set from another thread, also ends a blocking call.
        self._clock = threading.Timer(self._timeout, signal.pthread_kill, (main, number))
        self._clock.daemon = True
        self._clock.start()

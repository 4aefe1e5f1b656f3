"""The loop of ``RedisConsumer.run()``, and how signals end it."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import random
import select
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from babelqueue_redis import entropy, hooks
from babelqueue_redis.core.pulse import Pulse
from babelqueue_redis.core.routing import check_result, prepared
from babelqueue_redis.errors import (
    BabelQueueError,
    CommandRefusedError,
    SettlementError,
    TransportError,
)
from babelqueue_redis.layouts import Layout
from babelqueue_redis.layouts.operations import Operations
from babelqueue_redis.settings import ConsumerOptions
from babelqueue_redis.steps import Serving
from babelqueue_redis.sync.driver import Driver
from babelqueue_redis.sync.heartbeat import Heartbeat
from babelqueue_redis.values import Delivery, Destination, Outcome, Reservation

logger = logging.getLogger("babelqueue_redis.worker")

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_PAUSE_AFTER_RELEASE = 0.1
"""Seconds before a message that was just given back unchanged may be taken again."""
_BETWEEN_ADOPTIONS = 5.0
"""Seconds between two looks for elements that were reserved without a deadline."""
_FIRST_BACKOFF = 0.1
_LONGEST_BACKOFF = 5.0
_STRIKE_AGAIN = 1.0
"""Seconds between interruptions of a handler that does not end."""


class HandlerInterrupted(KeyboardInterrupt):
    """Raised in the main thread, in a handler for instance, when a shutdown takes too long."""


class Lane:
    """Where a handler runs: in the calling thread."""

    awaits = False
    interrupted = False

    def run(self, delivery: Delivery) -> None:
        """Run a delivery's handler, or raise why there is none to run.

        A handler that was interrupted, and turns that into an error of its own, did not fail.
        """
        try:
            self.call(prepared(delivery))
        except Exception as error:
            if self.interrupted:
                raise HandlerInterrupted from error
            raise

    def call(self, function: Callable[..., Any], *args: Any) -> None:  # noqa: ANN401
        """Call a user's function."""
        check_result(function(*args))


class Worker:
    """Takes messages one by one until it is told to stop."""

    def __init__(
        self,
        options: ConsumerOptions,
        driver: Driver,
        lane: Lane,
        layout: Layout,
        heartbeat: Heartbeat,
    ) -> None:
        """Prepare; nothing is sent yet."""
        self._options = options
        self._driver = driver
        self._layout = layout
        self._heartbeat = heartbeat
        self._next_adoption = 0.0
        self._lane = lane
        self._running = False
        self._stopping = False
        self._outages = 0
        self.pulse = Pulse(options)

    def stop(self) -> None:
        """Ask the loop to end. A request made before :meth:`run` ends that run at once."""
        # A plain flag: a signal handler may set it at any point, and an Event's lock could be held.
        self._stopping = True

    def run(
        self,
        take: Callable[[Callable[[], bool]], Reservation | None],
        handle: Callable[[Reservation], Outcome],
        give_back: Callable[[Reservation], Outcome],
        should_continue: Callable[[], bool],
    ) -> int:
        """Loop; return how many messages were handled.

        Args:
            take: Waits for a message, until the callable it is given says that it is time to stop.
            handle: Runs a message's handler and settles it.
            give_back: Settles a message unchanged.
            should_continue: Asked before every wait.
        """
        if self._running:
            msg = "run() is running already: use a consumer for each thread"
            raise BabelQueueError(msg)
        self._running = True
        handled = 0
        try:
            with self._handling_signals(), hooks.serving(self._serving()):
                while not self._stopping and should_continue():
                    outcome = self._step(take, handle, give_back)
                    handled += outcome is not None
                    if outcome is Outcome.RELEASED:
                        self._driver.sleep(_PAUSE_AFTER_RELEASE)
        finally:
            self.pulse.end()
            self._running = self._stopping = self._lane.interrupted = False
            self._driver.close()
            self._heartbeat.close()
        return handled

    def _step(
        self,
        take: Callable[[Callable[[], bool]], Reservation | None],
        handle: Callable[[Reservation], Outcome],
        give_back: Callable[[Reservation], Outcome],
    ) -> Outcome | None:
        try:
            if self._is_to_adopt():
                self._adopt()
            reservation = take(lambda: self._stopping or self._is_to_adopt())
            self._note_recovery()
            self.pulse.beat(self._driver.monotonic())
            if reservation is None:
                return None
            if self._stopping:
                give_back(reservation)
                return None
            self.pulse.busy(self._driver.monotonic())
            return handle(reservation)
        except SettlementError as error:
            logger.error("%s", error)  # noqa: TRY400 - expected, and it says all there is to say
            return None
        except TransportError as error:
            self._wait_out(error)
            return None

    def _is_to_adopt(self) -> bool:
        return self._driver.monotonic() >= self._next_adoption

    def _adopt(self) -> None:
        """Give elements that were reserved without a deadline one; nobody else would miss them."""
        self._next_adoption = self._driver.monotonic() + _BETWEEN_ADOPTIONS
        try:
            count = self._driver.run(self._layout.adopt(entropy.new_token))
        except CommandRefusedError as error:
            logger.info("queue %r: %s", self._options.queue, error)
            return
        if count:
            logger.warning(
                "%d messages of queue %r were reserved without a deadline; they come back after "
                "retry_after (%s s)",
                *(count, self._options.queue, self._options.retry_after),
            )

    def _serving(self) -> Serving:
        options, driver = self._options, self._driver
        destination = Destination(options.queue, options.layout, driver.address, driver.port)
        counts = Operations(options, options.dead_letter_target).counts()
        return Serving(destination, lambda: driver.send(counts))

    def _wait_out(self, error: TransportError) -> None:
        """Wait before the next try; say once per outage that there is one."""
        self.pulse.outage(self._driver.monotonic())
        if self._outages == 0:
            logger.error("queue %r cannot be served for now: %s", self._options.queue, error)
        self._driver.close()  # the name may lead to another server by then
        longest = min(_FIRST_BACKOFF * 2 ** min(self._outages, 10), _LONGEST_BACKOFF)
        self._outages += 1
        until = self._driver.monotonic() + random.uniform(longest / 2, longest)  # noqa: S311
        while not self._stopping and (left := until - self._driver.monotonic()) > 0:
            self._driver.sleep(min(left, 1.0))

    def _note_recovery(self) -> None:
        if self._outages:
            logger.warning("queue %r is served again", self._options.queue)
            self._outages = 0

    @contextlib.contextmanager
    def _handling_signals(self) -> Iterator[None]:
        """Turn SIGTERM and SIGINT into a graceful end; only the main thread can."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        shutdown = _Shutdown(self, self._lane, self._options.shutdown_timeout)
        try:
            yield
        except HandlerInterrupted:
            pass
        finally:
            shutdown.over()


class _Shutdown:
    """The signal handlers of one run.

    The first signal stops the loop and starts the clock. A second one, or the clock, interrupts
    whatever the main thread does; the clock strikes until the run is over.

    The clock is a thread that was started before any signal could come, and is told through a
    pipe: a signal handler may run at any point, where it must not take a lock or start a thread.
    """

    def __init__(self, worker: Worker, lane: Lane, timeout: float) -> None:
        self._worker = worker
        self._lane = lane
        self._timeout = min(timeout, threading.TIMEOUT_MAX)
        self._pid = os.getpid()
        self._earlier_signals = itertools.count()  # atomic: one handler may interrupt another
        self._is_over = False
        self._ears, self._mouth = os.pipe()
        self._clock = threading.Thread(target=self._run_clock, name="babelqueue-clock", daemon=True)
        self._start_clock()
        self._previous = {int(number): signal.signal(number, self) for number in _SIGNALS}

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self._pid != os.getpid():  # a child forked by a handler: not ours to shut down
            signal.signal(number, self._previous[number] or signal.SIG_DFL)
            signal.raise_signal(number)
        elif not self._is_over:
            self._worker.stop()
            if next(self._earlier_signals) or self._timeout == 0:
                self._lane.interrupted = True
                raise HandlerInterrupted
            os.write(self._mouth, bytes([number]))
            self._pass_on(number, frame)

    def over(self) -> None:
        """End the clock and give the signals back."""
        self._is_over = True
        os.write(self._mouth, b"\0")
        self._clock.join()
        for number, handler in self._previous.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        os.close(self._ears)
        os.close(self._mouth)

    def _start_clock(self) -> None:
        """Start it deaf to signals: one that is delivered there would not wake the main thread."""
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        self._clock.start()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        """Tell an outer run, whose handler called this one."""
        outer = self._previous[number]
        if isinstance(outer, _Shutdown):
            outer(number, frame)

    def _run_clock(self) -> None:
        number = os.read(self._ears, 1)[0]
        wait = self._timeout
        while number and not select.select([self._ears], [], [], wait)[0]:
            # A real signal, unlike an exception set from another thread, ends a blocking call.
            signal.pthread_kill(threading.main_thread().ident or 0, number)
            wait = _STRIKE_AGAIN

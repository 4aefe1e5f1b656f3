"""The loop of ``AsyncRedisConsumer.run()``, and how signals end it."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
import logging
import random
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from babelqueue_redis import hooks
from babelqueue_redis.aio.driver import Driver
from babelqueue_redis.core.routing import check_result, prepared
from babelqueue_redis.errors import BabelQueueError, SettlementError, TransportError
from babelqueue_redis.layouts.counting import counting
from babelqueue_redis.settings import ConsumerOptions
from babelqueue_redis.steps import Serving
from babelqueue_redis.values import Delivery, Destination, Outcome, Reservation

logger = logging.getLogger("babelqueue_redis.worker")

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_PAUSE_AFTER_RELEASE = 0.1
"""Seconds before a message that was just given back unchanged may be taken again."""
_FIRST_BACKOFF = 0.1
_LONGEST_BACKOFF = 5.0
_LONGEST_COUNT = 5.0
"""Seconds that another thread waits for the loop to count."""
_STRIKE_AGAIN = 1.0
"""Seconds between cancellations of a handler that does not end."""


class Lane:
    """Where a handler runs: a coroutine in the calling task, a plain function in a thread."""

    awaits = True

    async def run(self, delivery: Delivery) -> None:
        """Run a delivery's handler, or raise why there is none to run.

        A plain function sees the context of the task. It cannot be cancelled: its thread goes on.
        """
        call = prepared(delivery)
        if delivery.handler is not None and delivery.handler.awaits:
            await call()
        else:
            await _awaited(await asyncio.to_thread(call))

    async def call(self, function: Callable[..., Any], *args: Any) -> None:  # noqa: ANN401
        """Call a user's function, and await what it returns if that is to be awaited."""
        await _awaited(function(*args))


async def _awaited(result: object) -> None:
    if inspect.isawaitable(result):
        await result
    else:
        check_result(result)


class Worker:
    """Takes messages one by one until it is told to stop."""

    def __init__(self, options: ConsumerOptions, driver: Driver, _lane: Lane) -> None:
        """Prepare; nothing is sent yet."""
        self._options = options
        self._driver = driver
        self._running = False
        self._stopping = False
        self._outages = 0

    def stop(self) -> None:
        """Ask the loop to end. A request made before :meth:`run` ends that run at once."""
        self._stopping = True

    async def run(
        self,
        take: Callable[[Callable[[], bool]], Awaitable[Reservation | None]],
        handle: Callable[[Reservation], Awaitable[Outcome]],
        give_back: Callable[[Reservation], Awaitable[Outcome]],
        should_continue: Callable[[], bool],
    ) -> int:
        """Loop; return how many messages were handled. As in the blocking worker."""
        if self._running:
            msg = "run() is running already: use a consumer for each task"
            raise BabelQueueError(msg)
        self._running = True
        handled = 0
        try:
            with self._handling_signals(), hooks.serving(self._serving()):
                while not self._stopping and should_continue():
                    outcome = await self._step(take, handle, give_back)
                    handled += outcome is not None
                    if outcome is Outcome.RELEASED:
                        await self._driver.sleep(_PAUSE_AFTER_RELEASE)
        finally:
            self._running = self._stopping = False
            await self._driver.close()
        return handled

    async def _step(
        self,
        take: Callable[[Callable[[], bool]], Awaitable[Reservation | None]],
        handle: Callable[[Reservation], Awaitable[Outcome]],
        give_back: Callable[[Reservation], Awaitable[Outcome]],
    ) -> Outcome | None:
        try:
            reservation = await take(lambda: self._stopping)
            self._note_recovery()
            if reservation is None:
                return None
            if self._stopping:
                await give_back(reservation)
                return None
            return await handle(reservation)
        except SettlementError as error:
            logger.error("%s", error)  # noqa: TRY400 - expected, and it says all there is to say
            return None
        except TransportError as error:
            await self._wait_out(error)
            return None

    def _serving(self) -> Serving:
        options, driver = self._options, self._driver
        destination = Destination(options.queue, options.layout, driver.address, driver.port)
        loop = asyncio.get_running_loop()

        def counts() -> dict[str, int]:
            try:
                asyncio.get_running_loop()
            except RuntimeError:
                asked = asyncio.run_coroutine_threadsafe(driver.run(counting(options)), loop)
                return asked.result(_LONGEST_COUNT)
            return {}  # a loop must not wait, least of all for itself

        return Serving(destination, counts)

    async def _wait_out(self, error: TransportError) -> None:
        """Wait before the next try; say once per outage that there is one."""
        if self._outages == 0:
            logger.error("queue %r cannot be served for now: %s", self._options.queue, error)
        await self._driver.close()  # the name may lead to another server by then
        longest = min(_FIRST_BACKOFF * 2 ** min(self._outages, 10), _LONGEST_BACKOFF)
        self._outages += 1
        until = self._driver.monotonic() + random.uniform(longest / 2, longest)  # noqa: S311
        while not self._stopping and (left := until - self._driver.monotonic()) > 0:
            await self._driver.sleep(min(left, 1.0))

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
        shutdown = _Shutdown(self, self._options.shutdown_timeout)
        try:
            yield
        except asyncio.CancelledError:
            if not shutdown.struck():
                raise
        finally:
            shutdown.over()


class _Shutdown:
    """The signal handlers of one run.

    The first signal stops the loop and starts the clock. A second one, or the clock, cancels what
    the run awaits; the clock strikes until the run is over.
    """

    def __init__(self, worker: Worker, timeout: float) -> None:
        self._worker = worker
        self._timeout = min(timeout, threading.TIMEOUT_MAX)
        self._task: asyncio.Task[Any] | None = asyncio.current_task()
        self._loop = asyncio.get_running_loop()
        self._earlier_signals = itertools.count()
        self._strikes = 0
        self._clock: asyncio.TimerHandle | None = None
        self._previous = {number: signal.getsignal(number) for number in _SIGNALS}
        for number in _SIGNALS:
            self._loop.add_signal_handler(number, self._on_signal)

    def struck(self) -> bool:
        """Tell whether a cancellation is ours; then it ends here."""
        uncancel = getattr(self._task, "uncancel", lambda: 0)  # from Python 3.11 on
        for _ in range(self._strikes):
            uncancel()
        return self._strikes > 0

    def over(self) -> None:
        """End the clock and give the signals back."""
        if self._clock is not None:
            self._clock.cancel()
        for number, handler in self._previous.items():
            self._loop.remove_signal_handler(number)
            signal.signal(number, handler)

    def _on_signal(self) -> None:
        self._worker.stop()
        if next(self._earlier_signals) or self._timeout == 0:
            self._strike()
        else:
            self._clock = self._loop.call_later(self._timeout, self._strike)

    def _strike(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
        self._clock = self._loop.call_later(_STRIKE_AGAIN, self._strike)
        if self._task is not None:
            self._strikes += 1
            self._task.cancel()

"""The loop of ``AsyncRedisConsumer.run()``, and the lane that handlers run in."""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any

from babelqueue_redis import entropy, hooks
from babelqueue_redis.aio.driver import Driver
from babelqueue_redis.aio.heartbeat import Heartbeat
from babelqueue_redis.aio.shutdown import Shutdown
from babelqueue_redis.core.pulse import Pulse
from babelqueue_redis.core.routing import check_result, prepared
from babelqueue_redis.core.stored import Counts
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
from babelqueue_redis.values import Delivery, Destination, Outcome, Reservation

logger = logging.getLogger("babelqueue_redis.worker")

_PAUSE_AFTER_RELEASE = 0.1
"""Seconds before a message that was just given back unchanged may be taken again."""
_BETWEEN_ADOPTIONS = 5.0
"""Seconds between two looks for elements that were reserved without a deadline."""
_FIRST_BACKOFF = 0.1
_LONGEST_BACKOFF = 5.0
_LONGEST_COUNT = 5.0
"""Seconds that another thread waits for the loop to count."""


class Lane:
    """Where a handler runs: a coroutine in the calling task, a plain function in a thread."""

    awaits = True
    interrupted = False

    async def run(self, delivery: Delivery) -> None:
        """Run a delivery's handler, or raise why there is none to run.

        A plain function sees the context of the task. It cannot be cancelled: its thread goes on.
        A handler that was cancelled, and turns that into an error of its own, did not fail; one
        that awaits something else that was cancelled did.
        """
        call = prepared(delivery)
        try:
            await finish(call, awaits=delivery.handler is not None and delivery.handler.awaits)
        except asyncio.CancelledError as error:
            if not self._cancelled(default=True):
                msg = "what the handler awaited was cancelled"
                raise RuntimeError(msg) from error
            raise
        except Exception as error:
            if self._cancelled(default=False):
                raise asyncio.CancelledError from error
            raise

    def interrupt(self) -> None:
        """Note that the handler is cancelled by a shutdown."""
        self.interrupted = True

    def _cancelled(self, *, default: bool) -> bool:
        """Tell whether the task that runs the handler was cancelled.

        Python tells that from 3.11 on; before, ``default`` is assumed.
        """
        asked = getattr(asyncio.current_task(), "cancelling", None)
        return self.interrupted or (default if asked is None else asked() > 0)

    async def call(self, function: Callable[..., Any], *args: Any) -> None:  # noqa: ANN401
        """Call a user's function, and await what it returns if that is to be awaited."""
        await _awaited(function(*args))


async def finish(call: Callable[[], Any], *, awaits: bool) -> None:
    """Call a handler and see it to its end: a plain function in a thread, what it returns here."""
    if awaits:
        await _awaited(call())
        return
    result, error = await asyncio.to_thread(_contained, call)
    if error is not None:
        raise error
    await _awaited(result)


def _contained(call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """Return what a call returns or raises: a future would hang on a ``StopIteration``."""
    try:
        return call(), None
    except BaseException as error:  # noqa: BLE001 - raised again by who awaits
        return None, error


async def _awaited(result: object) -> None:
    if inspect.isawaitable(result):
        await result
    else:
        check_result(result)


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
        self._lane = lane
        self._layout = layout
        self._heartbeat = heartbeat
        self._next_adoption = 0.0
        self._running = False
        self._stopping = False
        self._outages = 0
        self.pulse = Pulse(options)

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
        shutdown = Shutdown(self.stop, self._lane.interrupt, self._options.shutdown_timeout)
        try:
            with shutdown, hooks.serving(self._serving()):
                while not self._stopping and should_continue():
                    outcome = await self._step(take, handle, give_back)
                    handled += outcome is not None
                    if outcome is Outcome.RELEASED:
                        await self._driver.sleep(_PAUSE_AFTER_RELEASE)
        finally:
            self.pulse.end()
            self._running = self._stopping = self._lane.interrupted = False
            await self._driver.close()
            await self._heartbeat.close()
        return handled

    async def _step(
        self,
        take: Callable[[Callable[[], bool]], Awaitable[Reservation | None]],
        handle: Callable[[Reservation], Awaitable[Outcome]],
        give_back: Callable[[Reservation], Awaitable[Outcome]],
    ) -> Outcome | None:
        try:
            if self._is_to_adopt():
                await self._adopt()
            reservation = await take(lambda: self._stopping or self._is_to_adopt())
            self._note_recovery()
            self.pulse.beat(self._driver.monotonic())
            if reservation is None:
                return None
            if self._stopping:
                await give_back(reservation)
                return None
            self.pulse.busy(self._driver.monotonic())
            return await handle(reservation)
        except SettlementError as error:
            logger.error("%s", error)  # noqa: TRY400 - expected, and it says all there is to say
            return None
        except TransportError as error:
            await self._wait_out(error)
            return None

    def _is_to_adopt(self) -> bool:
        return self._driver.monotonic() >= self._next_adoption

    async def _adopt(self) -> None:
        """Give elements that were reserved without a deadline one; nobody else would miss them."""
        self._next_adoption = self._driver.monotonic() + _BETWEEN_ADOPTIONS
        try:
            count = await self._driver.run(self._layout.adopt(entropy.new_token))
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
        loop = asyncio.get_running_loop()

        command = Operations(options, options.dead_letter_target).counts()

        def counts() -> Counts | None:
            try:
                asyncio.get_running_loop()
            except RuntimeError:
                asked = asyncio.run_coroutine_threadsafe(driver.send(command), loop)
                return asked.result(_LONGEST_COUNT)
            return None  # a loop must not wait, least of all for itself

        return Serving(destination, counts)

    async def _wait_out(self, error: TransportError) -> None:
        """Wait before the next try; say once per outage that there is one."""
        self.pulse.outage(self._driver.monotonic())
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

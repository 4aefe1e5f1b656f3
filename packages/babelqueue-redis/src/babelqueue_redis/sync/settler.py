"""How deliveries end: what is reported, what is sent, what is said when it came too late."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

from babelqueue_redis import entropy, hooks
from babelqueue_redis.core.beating import LATE
from babelqueue_redis.core.command import Op
from babelqueue_redis.core.settlement import (
    EXPIRED,
    End,
    failure,
    interruption,
    settlement,
    unconfirmed,
)
from babelqueue_redis.errors import PayloadError, SettlementError, TransportError
from babelqueue_redis.layouts import Layout
from babelqueue_redis.layouts.ending import Settled, nothing, settling
from babelqueue_redis.settings import ConsumerOptions
from babelqueue_redis.steps import Settling
from babelqueue_redis.sync.driver import Driver
from babelqueue_redis.sync.heartbeat import Heartbeat
from babelqueue_redis.sync.lane import Lane
from babelqueue_redis.values import Delivery, Destination, Outcome, counts_as_failure

T = TypeVar("T")

logger = logging.getLogger("babelqueue_redis.consumer")


class Settler:
    """Settles the reservations of one consumer."""

    def __init__(
        self,
        options: ConsumerOptions,
        driver: Driver,
        layout: Layout,
        lane: Lane,
        heartbeat: Heartbeat,
    ) -> None:
        """Keep what it speaks through, and the lane that calls ``on_error``."""
        self._options = options
        self._driver = driver
        self._layout = layout
        self._lane = lane
        self._destination = Destination(options.queue, options.layout, driver.address, driver.port)
        self._heartbeat = heartbeat
        self._ended: deque[End] = deque()

    def end(
        self, delivery: Delivery, error: BaseException | None, keep: Callable[[End], None]
    ) -> None:
        """Report how handling ended, and keep what is to be settled."""
        now_ms, draw = entropy.epoch_ms(), entropy.draw()
        end = settlement(delivery, error, self._options, now_ms, draw)
        try:
            if error is not None and counts_as_failure(error):
                self._report(error, delivery)
            elif error is not None:
                logger.warning(*interruption(delivery, error))
        finally:
            since = self._driver.monotonic()
            keep(End(delivery.reservation, end, delivery.message_id, since))

    def keep(self, end: End) -> None:
        """Keep an end until somebody settles it: the next reserve, or the heartbeat."""
        self._ended.append(end)

    def drain(self) -> list[End]:
        """Take what is kept; whoever does settles it. Safe from any thread."""
        ends = []
        while self._ended:
            try:
                ends.append(self._ended.popleft())
            except IndexError:  # another thread was faster
                break
        return ends

    def is_late(self) -> bool:
        """Tell whether something ended a while ago, and is still kept."""
        try:
            return self._driver.monotonic() - self._ended[0].since >= LATE
        except IndexError:
            return False

    def settle_late(self, driver: Driver) -> bool:
        """Settle what is kept for a while, through another driver; tell whether more may come."""
        if self.is_late():
            self.settle_all(self.drain(), nothing(), driver)
        return bool(self._ended)

    def settle(self, end: End) -> Outcome:
        """Settle one reservation.

        Raises:
            SettlementError: Redis did not confirm.
        """
        (outcome,), _ = self._settle((end,), nothing(), self._driver)
        if isinstance(outcome, SettlementError):
            raise outcome from outcome.__cause__
        return outcome

    def settle_all(
        self, ends: Sequence[End], then: Op[T], driver: Driver | None = None
    ) -> T | TransportError:
        """Settle reservations in the first trip of another op, and return that one's result.

        What Redis did not confirm is logged.
        """
        outcomes, result = self._settle(ends, then, driver or self._driver)
        for outcome in outcomes:
            if isinstance(outcome, SettlementError):
                logger.error("%s", outcome)
        return result

    def _settle(
        self, ends: Sequence[End], then: Op[T], driver: Driver
    ) -> tuple[list[Outcome | SettlementError], T | TransportError]:
        self._heartbeat.end([end.reservation for end in ends])
        steps = [self._step(end) for end in ends] if hooks.are_registered() else []
        with hooks.settling_all(steps) as errors:
            settled: list[Settled]
            try:
                settled, result = driver.run(settling(self._layout, ends, then))
            except TransportError as error:
                settled, result = [error] * len(ends), error
            outcomes = [self._outcome(*pair) for pair in zip(ends, settled, strict=True)]
            for place, step in enumerate(steps):
                outcome = outcomes[place]
                if isinstance(outcome, SettlementError):
                    errors[place] = outcome
                else:
                    step.outcome = outcome
        return outcomes, result

    def _step(self, end: End) -> Settling:
        return Settling(self._destination, end.reservation, end.settlement.outcome, end.message_id)

    def _outcome(self, end: End, settled: Settled) -> Outcome | SettlementError:
        if settled is True:
            return end.settlement.outcome
        if isinstance(settled, TransportError):
            return unconfirmed(settled, end)
        limit = self._options.retry_after
        logger.warning(
            EXPIRED, end.message_id, end.reservation.queue, end.settlement.outcome, limit
        )
        return Outcome.EXPIRED

    def _report(self, error: BaseException, delivery: Delivery) -> None:
        tell = self._options.on_error
        if tell is None:
            quiet = delivery.refusal or isinstance(error, PayloadError)
            logger.warning(*failure(delivery, error), exc_info=None if quiet else error)
            return
        try:
            self._lane.call(tell, error, delivery.envelope, delivery.reservation.body)
        except Exception:
            logger.exception("on_error failed on queue %r", delivery.destination.queue)

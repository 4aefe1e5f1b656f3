"""How a delivery ends: what is reported, what is sent, what is said when it came too late."""

from __future__ import annotations

import logging

from babelqueue_redis import entropy, hooks
from babelqueue_redis.core.settlement import (
    EXPIRED,
    Settlement,
    failure,
    interruption,
    settlement,
    unconfirmed,
)
from babelqueue_redis.errors import PayloadError, TransportError
from babelqueue_redis.layouts import Layout
from babelqueue_redis.settings import ConsumerOptions
from babelqueue_redis.steps import Settling
from babelqueue_redis.sync.driver import Driver
from babelqueue_redis.sync.heartbeat import Heartbeat
from babelqueue_redis.sync.worker import Lane
from babelqueue_redis.values import Delivery, Destination, Outcome, Reservation, counts_as_failure

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

    def end(self, delivery: Delivery, error: BaseException | None) -> Outcome:
        """Report how handling ended, and settle."""
        now_ms, draw = entropy.epoch_ms(), entropy.draw()
        end = settlement(delivery, error, self._options, now_ms, draw)
        try:
            if error is not None and counts_as_failure(error):
                self._report(error, delivery)
            elif error is not None:
                logger.warning(*interruption(delivery, error))
        finally:
            outcome = self.settle(delivery.reservation, end, delivery.message_id)
        return outcome

    def settle(self, reservation: Reservation, end: Settlement, message_id: str = "") -> Outcome:
        """Carry out what was decided about a reservation."""
        self._heartbeat.end(reservation)
        step = Settling(self._destination, reservation, end.outcome, message_id)
        with hooks.settling(step):
            outcome = step.outcome = self._carry_out(reservation, end, message_id)
        return outcome

    def _carry_out(self, reservation: Reservation, end: Settlement, message_id: str) -> Outcome:
        command = self._layout.settle(reservation, end)
        try:
            if command is None or self._driver.send(command):
                return end.outcome
        except TransportError as error:
            raise unconfirmed(error, reservation, end, message_id) from error
        limit = self._options.retry_after
        logger.warning(EXPIRED, message_id, reservation.queue, end.outcome, limit)
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

# Generated from aio/settler.py by `nox -s sync`. Edit that file, not this one.
"""How deliveries end: what is reported, what is sent, what is said when it came too late."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence

from babelqueue_redis import entropy, hooks
from babelqueue_redis.core.beating import LATE, Looks
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
from babelqueue_redis.layouts.ending import Ending, Settled
from babelqueue_redis.settings import ConsumerOptions
from babelqueue_redis.steps import Settling
from babelqueue_redis.sync.driver import Driver
from babelqueue_redis.sync.heartbeat import Heartbeat
from babelqueue_redis.sync.lane import Lane
from babelqueue_redis.values import Delivery, Destination, Outcome, Reservation, counts_as_failure

logger = logging.getLogger("babelqueue_redis.consumer")


class Settler:
    """Settles the reservations of one consumer.

    Attributes:
        destination: The queue, and the server it is on.
    """

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
        self.destination = Destination(options.queue, options.layout, driver.address, driver.port)
        self._heartbeat = heartbeat
        self._ended: deque[End] = deque()
        self._looks = Looks()

    def fail(self, delivery: Delivery, error: BaseException, keep: Callable[[End], None]) -> None:
        """Report why handling failed, and keep what is to be settled."""
        # Decided before the try: whatever interrupts that acks nothing.
        now_ms, draw = entropy.epoch_ms(), entropy.draw()
        end = settlement(delivery, error, self._options, now_ms, draw)
        try:
            self._report(error, delivery)
        finally:
            since = self._driver.monotonic()
            keep(End(delivery.reservation, end, delivery.message_id, since))

    def keep(self, end: End) -> None:
        """Keep an end until somebody settles it: the next reserve, or the heartbeat."""
        self._ended.append(end)

    def drain(self) -> list[End]:
        """Take what is kept; whoever does settles it. Safe from any thread."""
        ends: list[End] = []
        for _ in range(len(self._ended)):
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
            self.settle_all(self.drain(), driver=driver)
        return bool(self._ended)

    def settle(self, end: End) -> Outcome:
        """Settle one reservation.

        Raises:
            SettlementError: Redis did not confirm.
        """
        (outcome,), _ = self._settle((end,), 0, self._driver)
        if isinstance(outcome, SettlementError):
            raise outcome from outcome.__cause__
        return outcome

    def settle_all(
        self, ends: Sequence[End], count: int = 0, driver: Driver | None = None
    ) -> list[Reservation] | TransportError:
        """Settle reservations and take others, in one trip where nothing is in the way.

        What Redis did not confirm is logged.

        Args:
            ends: What is settled.
            count: How many messages to take at most.
            driver: Another one than the consumer's.

        Returns:
            What was taken, or why nothing was.
        """
        outcomes, taken = self._settle(ends, count, driver or self._driver)
        for outcome in outcomes:
            if isinstance(outcome, SettlementError):
                logger.error("%s", outcome)
        return taken

    def _settle(
        self, ends: Sequence[End], count: int, driver: Driver
    ) -> tuple[list[Outcome | SettlementError], list[Reservation] | TransportError]:
        self._heartbeat.end([end.reservation for end in ends])
        if not hooks.are_registered():
            settled, taken = self._send(ends, count, driver)
            return self._outcomes(ends, settled), taken
        steps = [self._step(end) for end in ends]
        with hooks.settling_all(steps) as errors:
            settled, taken = self._send(ends, count, driver)
            outcomes = self._outcomes(ends, settled)
            for place, outcome in enumerate(outcomes):
                if isinstance(outcome, SettlementError):
                    errors[place] = outcome
                else:
                    steps[place].outcome = outcome
        return outcomes, taken

    def _send(
        self, ends: Sequence[End], count: int, driver: Driver
    ) -> tuple[list[Settled | None], list[Reservation] | TransportError]:
        ending, token = Ending(self._layout, ends), entropy.new_token() if count else ""
        looks = count > 0 and self._looks.due(self._driver.monotonic())
        taken: list[Reservation] | TransportError | None
        try:
            commands = ending.commands(token, count, looks=looks)
            taken = ending.read(driver.send_all(commands))
            if None in ending.settled:
                ending.read(driver.send_all(ending.commands(token, 0)))
            if taken is None:
                taken = driver.run(self._layout.restore(token, None, count))
        except TransportError as error:
            ending.give_up(error)
            taken = error
        return ending.settled, taken

    def _step(self, end: End) -> Settling:
        return Settling(self.destination, end.reservation, end.settlement.outcome, end.message_id)

    def _outcomes(
        self, ends: Sequence[End], settled: Sequence[Settled | None]
    ) -> list[Outcome | SettlementError]:
        return [
            end.settlement.outcome if there is True else self._outcome(end, there)
            for end, there in zip(ends, settled, strict=True)
        ]

    def _outcome(self, end: End, settled: Settled | None) -> Outcome | SettlementError:
        if isinstance(settled, TransportError):
            return unconfirmed(settled, end)
        limit = self._options.retry_after
        logger.warning(
            EXPIRED, end.message_id, end.reservation.queue, end.settlement.outcome, limit
        )
        return Outcome.EXPIRED

    def _report(self, error: BaseException, delivery: Delivery) -> None:
        tell = self._options.on_error
        if not counts_as_failure(error):
            logger.warning(*interruption(delivery, error))
            return
        if tell is None:
            quiet = delivery.refusal or isinstance(error, PayloadError)
            logger.warning(*failure(delivery, error), exc_info=None if quiet else error)
            return
        try:
            self._lane.call(tell, error, delivery.envelope, delivery.reservation.body)
        except Exception:
            logger.exception("on_error failed on queue %r", delivery.destination.queue)

# Generated from aio/consumer.py by `nox -s sync`. Edit that file, not this one.
"""The consumer: reserve, handle, settle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from babelqueue_redis import entropy, hooks
from babelqueue_redis.checks import check_timeout
from babelqueue_redis.cluster import refuse_scattered
from babelqueue_redis.core.command import Command
from babelqueue_redis.core.payloads import converter
from babelqueue_redis.core.routing import Routes, deliver
from babelqueue_redis.core.settlement import ACK, GIVE_BACK, End
from babelqueue_redis.envelope import checked_urn
from babelqueue_redis.errors import ConfigurationError
from babelqueue_redis.layouts import layout_of
from babelqueue_redis.redis_py import LONGEST_BLOCK
from babelqueue_redis.settings import ConsumerOptions
from babelqueue_redis.steps import Receiving
from babelqueue_redis.sync.driver import Client, Driver
from babelqueue_redis.sync.feed import Feed
from babelqueue_redis.sync.heartbeat import Heartbeat
from babelqueue_redis.sync.lane import Lane
from babelqueue_redis.sync.settler import Settler
from babelqueue_redis.sync.worker import Worker
from babelqueue_redis.values import Outcome, Reservation

HandlerT = TypeVar("HandlerT", bound=Callable[..., Any])


class RedisConsumer:
    """Consumes one queue and routes its messages to handlers by URN.

    Delivery is at least once: a message is gone only after its handler returned. Make handlers
    idempotent. While one runs, a heartbeat extends its message's reservation.

    Args:
        client: A ``redis.Redis`` or ``redis.RedisCluster``, whose connection
            settings are used, or a URL.
        queue: The logical queue name.
        handlers: URN to handler. A handler takes ``(envelope)``, ``(envelope, raw)`` or
            ``(envelope, raw, headers)``: an ``Envelope``, the message's bytes, a mapping that is
            ``{}`` when there are no headers. More can be added with :meth:`handler`.

    The keywords are the fields of :class:`~babelqueue_redis.settings.ConsumerOptions`.

    Raises:
        ConfigurationError: An option cannot work.
        TypeError: A handler cannot take a message.
    """

    def __init__(
        self,
        client: Client,
        queue: str,
        handlers: Mapping[str, Callable[..., Any]] | None = None,
        *,
        layout: str = "legacy",
        key_prefix: str = "queues:",
        retry_after: float | None = 90,
        block_timeout: float = 5,
        max_tries: int = 3,
        dead_letter_queue: str | None = "",
        dead_letter_max_length: int | None = None,
        unknown_urn: str = "fail",
        on_unknown_urn: Callable[..., Any] | None = None,
        on_error: Callable[..., Any] | None = None,
        on_failure: str = "release",
        max_recoveries: int | None = -1,
        heartbeat: bool = True,
        handler_timeout: float | None = None,
        max_lease: float = 3600,
        migration_batch_size: int = -1,
        shutdown_timeout: float = 30,
        prefetch: int | str = "auto",
        concurrency: int = 1,
        retry_backoff: float = 0,
        retry_backoff_multiplier: float = 1,
        retry_backoff_max: float = 0,
        retry_jitter: str = "none",
    ) -> None:
        """Check the options and resolve the handlers; nothing is sent yet."""
        self._options = ConsumerOptions(
            queue,
            layout,
            key_prefix,
            retry_after=retry_after,
            block_timeout=block_timeout,
            max_tries=max_tries,
            dead_letter_queue=dead_letter_queue,
            dead_letter_max_length=dead_letter_max_length,
            unknown_urn=unknown_urn,
            on_unknown_urn=on_unknown_urn,
            on_error=on_error,
            on_failure=on_failure,
            max_recoveries=max_recoveries,
            heartbeat=heartbeat,
            handler_timeout=handler_timeout,
            max_lease=max_lease,
            migration_batch_size=migration_batch_size,
            shutdown_timeout=shutdown_timeout,
            prefetch=prefetch,
            concurrency=concurrency,
            retry_backoff=retry_backoff,
            retry_backoff_multiplier=retry_backoff_multiplier,
            retry_backoff_max=retry_backoff_max,
            retry_jitter=retry_jitter,
        )
        self._assemble(client, handlers)

    def __enter__(self) -> RedisConsumer:
        """Return the consumer; leaving the block closes it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the consumer."""
        self.close()

    def handler(
        self,
        urn: str,
        payload: Any = None,
    ) -> Callable[[HandlerT], HandlerT]:
        """Register the decorated function for ``urn``; it stays what it was.

        Args:
            urn: What it handles.
            payload: The type that ``envelope.data`` shall have: any that ``msgspec`` knows, such as
                a Struct, dataclass, TypedDict or attrs class, or a pydantic model. Data that does
                not fit is dead-lettered without a run. ``None`` leaves it a ``dict``.

        Raises:
            ConfigurationError: The payload is no such type.
            EnvelopeError: The URN is blank, or there is none: write ``@consumer.handler("urn:…")``.
            TypeError: The function cannot take a message.
        """
        urn = checked_urn(urn)
        convert = None if payload is None else converter(payload)

        def register(function: HandlerT) -> HandlerT:
            self._routes.add(urn, function, convert)
            return function

        return register

    def reserve(self, timeout: float | None = None) -> Reservation | None:
        """Take the oldest message, waiting for one.

        The message is yours until ``retry_after`` has passed. Give it to :meth:`handle`, once.

        Args:
            timeout: Seconds to wait; ``None`` is ``block_timeout``, 0 or less is one attempt.

        Returns:
            The reservation, or ``None`` when no message came in time.

        Raises:
            TransportError: Redis did not answer, or refused.
        """
        step = Receiving(self._destination)
        with hooks.receiving(step):
            step.reservation = self._reserve(timeout)
        return step.reservation

    def handle(self, reservation: Reservation) -> Outcome:
        """Route a reserved message to its handler, run it, and settle the reservation.

        A handler that raises is no error here: its message is retried or dead-lettered, and
        ``on_error`` is told. ``SystemExit`` counts as a failure and goes on; what else is no
        ``Exception`` comes from outside (a ``KeyboardInterrupt``, a cancellation): it gives the
        message back unchanged and goes on.

        Returns:
            What became of the message; ``Outcome.EXPIRED`` when the reservation had run out.

        Raises:
            ConfigurationError: The reservation is another queue's.
            SettlementError: Redis did not confirm. The message comes back after ``retry_after``.
        """
        if reservation.queue != self._destination.queue:
            msg = f"{reservation!r} cannot be handled by a consumer of {self._destination.queue!r}"
            raise ConfigurationError(msg)
        ends: list[End] = []
        with self._heartbeat.over(reservation):
            try:
                self._work(reservation, ends.append)
            except BaseException:
                self._settler.settle_all(ends)
                raise
            return self._settler.settle(ends[0])

    def poll(self, timeout: float | None = None) -> Outcome | None:
        """Take one message, handle it and settle it.

        Args:
            timeout: As for :meth:`reserve`.

        Returns:
            What became of it, or ``None`` when there was none.

        Raises:
            TransportError: As for :meth:`reserve` and :meth:`handle`.
        """
        reservation = self._reserve(timeout)
        return None if reservation is None else self.handle(reservation)

    def run(self, should_continue: Callable[[], bool] | None = None) -> int:
        """Consume until stopped.

        Called in the main thread, it handles SIGTERM and SIGINT: no further message is taken,
        those that wait their turn are given back unchanged, and the handlers that run may finish
        within ``shutdown_timeout``; after that, or on a second signal, they are interrupted and
        their messages given back, too. A thread cannot be interrupted: with ``concurrency`` it goes
        on, and nobody waits for it. When Redis is away it waits, and goes on when Redis is back.

        Args:
            should_continue: Asked before every message, and every wait for one; a false answer
                ends the run.

        Returns:
            How many messages were handled.

        Raises:
            BabelQueueError: This consumer is running already.
        """
        return self._worker.run(should_continue or (lambda: True))

    def stop(self) -> None:
        """End :meth:`run` after the current message. Safe from any thread and from handlers."""
        self._worker.stop()

    @property
    def healthy(self) -> bool:
        """Whether :meth:`run` goes on and Redis answered within 15 s, or its handlers are busy.

        They count for as long as their reservations may be extended. Ask from any thread.
        """
        return self._worker.pulse.alive(self._driver.monotonic())

    def close(self) -> None:
        """Close the connection of this thread or loop; a later call opens a new one."""
        self._heartbeat.close()
        self._driver.close()

    def _reserve(self, timeout: float | None) -> Reservation | None:
        wait = self._options.block_timeout if timeout is None else check_timeout(timeout)
        deadline, idle = self._driver.monotonic() + wait, 0
        while True:
            reserve = self._layout.reserve(entropy.new_token())
            taken = self._driver.take(reserve, self._giving_back)
            left = deadline - self._driver.monotonic()
            if taken or left <= 0:
                return taken[0] if taken else None
            pause = self._driver.send(self._layout.wait(min(left, LONGEST_BLOCK), idle))
            self._driver.sleep(min(pause, left))
            idle += 1

    def _assemble(self, client: Client, handlers: Mapping[str, Callable[..., Any]] | None) -> None:
        self._lane = Lane()
        self._routes = Routes(handlers, self._options.on_unknown_urn, awaits=self._lane.awaits)
        refuse_scattered(client, self._options)
        self._driver = Driver(client, blocks=True)
        self._layout = layout_of(self._options)
        self._heartbeat = Heartbeat(self._options, Driver(client), self._layout)
        self._settler = Settler(
            self._options, self._driver, self._layout, self._lane, self._heartbeat
        )
        self._destination = self._settler.destination
        self._heartbeat.settles(self._settler.settle_late)
        self.feed = Feed(
            options=self._options,
            driver=self._driver,
            layout=self._layout,
            heartbeat=self._heartbeat,
            settler=self._settler,
            lane=self._lane,
            work=self._work,
        )
        self._worker = Worker((self.feed,))

    def _work(self, reservation: Reservation, keep: Callable[[End], None]) -> None:
        delivery = deliver(reservation, self._destination, self._routes, self._options)
        done = False
        try:
            with hooks.processing(delivery):
                self._lane.run(delivery)
                done = True
        except BaseException as error:
            if not done:
                self._settler.fail(delivery, error, keep)
            if not isinstance(error, Exception):
                raise
        finally:
            if done:
                keep(End(reservation, ACK, delivery.message_id, self._driver.monotonic()))

    def _giving_back(self, taken: list[Reservation]) -> Command[Any] | None:
        """Return what gives back what a call took that was cancelled meanwhile."""
        return self._layout.replace(taken[0], GIVE_BACK) if taken else None

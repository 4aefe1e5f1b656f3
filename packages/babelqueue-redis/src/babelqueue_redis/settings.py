"""The options of publishers and consumers, checked on construction.

A wrong option is an error here, before anything is read or written.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

from babelqueue_redis.checks import (
    MAX_SECONDS,
    check_count,
    check_prefix,
    check_queue,
    number,
    one_of,
    refuse,
)
from babelqueue_redis.errors import ConfigurationError

LAYOUTS = ("legacy", "zset")
UNKNOWN_URN_STRATEGIES = ("fail", "delete", "release", "dead_letter")
ON_FAILURE = ("release", "leave")
JITTERS = ("none", "full")
MOST_PREFETCHED = 1000
MOST_CONCURRENT = 10_000


@dataclasses.dataclass(frozen=True)
class QueueOptions:
    """Which queue, in which layout.

    Attributes:
        queue: The logical name.
        layout: ``legacy``, the list layout of all SDKs, or ``zset``, Laravel's.
        key_prefix: What the Redis keys of the zset layout begin with.
    """

    queue: str
    layout: str = "legacy"
    key_prefix: str = "queues:"

    def __post_init__(self) -> None:
        """Check the names."""
        object.__setattr__(self, "queue", check_queue(self.queue, "queue"))
        one_of("layout", self.layout, LAYOUTS)
        object.__setattr__(self, "key_prefix", check_prefix(self.key_prefix))

    @property
    def delays(self) -> bool:
        """Whether the layout can keep a message back."""
        return self.layout == "zset"

    @functools.cached_property
    def counts_deliveries(self) -> bool:
        """Whether a reservation raises ``attempts``, so that a crash of its worker counts."""
        return self.layout == "zset"

    def check_delay(self, delay: float | None) -> None:
        """Refuse a delay that is no number of seconds, or that the layout cannot keep.

        Raises:
            ConfigurationError: It is one of those.
        """
        if delay is not None:
            number("delay", delay, 0, MAX_SECONDS, "or None")
            self._check_delayed("delay", delay)

    def _check_delayed(self, option: str, seconds: float) -> None:
        if seconds > 0 and not self.delays:
            msg = (
                f"{option}={seconds!r} cannot work on queue {self.queue!r}: the legacy layout has "
                "no delayed set, a message is ready at once; use 0"
            )
            raise ConfigurationError(msg)


@dataclasses.dataclass(frozen=True)
class ConsumerOptions(QueueOptions):
    """How a consumer takes and settles messages. Durations are seconds.

    Attributes:
        retry_after: How long a reservation lasts before a sweep gives the message to somebody
            else; rounded up to whole seconds. ``None`` keeps it for ever.
        block_timeout: How long ``poll()`` and ``reserve()`` wait; 0 or less is one attempt.
        max_tries: How often a failing handler runs before the message is dead-lettered.
        dead_letter_queue: Its name, by default ``<queue>.dlq``. ``None`` drops exhausted messages
            and those with an unknown URN; poison still goes to ``<queue>.dlq``.
        dead_letter_max_length: How many dead letters that queue keeps: when one is added beyond
            it, the oldest go. ``None`` keeps all.
        unknown_urn: What happens to a message that no handler takes: ``fail`` retries it, then
            dead-letters it; ``delete``; ``release`` gives it back unchanged; ``dead_letter``.
        on_unknown_urn: A handler for such messages instead, with the signature of a handler.
        on_error: Called with ``(error, envelope, raw)`` for every failure and every refused
            message; ``envelope`` is ``None`` for poison.
        on_failure: ``release`` gives a failed message back with ``attempts`` raised; ``leave``
            lets it wait for the sweep, ``attempts`` unchanged.
        max_recoveries: How often a message may come back because its worker crashed, before it is
            dead-lettered without a run. ``None`` is for ever; -1 is ``max_tries``, or ``None`` with
            ``on_failure="leave"``. The zset layout counts deliveries instead, as attempts.
        heartbeat: Whether a reservation is extended while its message is handled.
        handler_timeout: How long a handler may run before its reservation is not extended any
            more; ``None`` is ``max_lease``.
        max_lease: How long a reservation is extended at most.
        migration_batch_size: How many expired reservations one sweep moves at most; -1 is all.
        shutdown_timeout: How long a handler may go on after SIGTERM or SIGINT.
        prefetch: How many messages one trip reserves at most, and about a megabyte of them.
            ``auto`` takes as many as are handled in a few milliseconds, up to 100, and as many as
            can be started at once, up to 1000: batches where handlers are fast, one for each free
            handler where they are slow.
        concurrency: How many handlers run at once: in threads, or in tasks with asyncio. Messages
            are taken in order.
        retry_backoff: How long a failed message is kept back. Must be 0 on the legacy layout,
            which cannot keep one back.
        retry_backoff_multiplier: What the back-off grows by with each attempt.
        retry_backoff_max: Its bound; 0 is none.
        retry_jitter: ``full`` draws from 0 up to the back-off; ``none`` keeps it.
    """

    retry_after: float | None = 90
    block_timeout: float = 5
    max_tries: int = 3
    dead_letter_queue: str | None = ""
    dead_letter_max_length: int | None = None
    unknown_urn: str = "fail"
    on_unknown_urn: Callable[..., Any] | None = None
    on_error: Callable[..., Any] | None = None
    on_failure: str = "release"
    max_recoveries: int | None = -1
    heartbeat: bool = True
    handler_timeout: float | None = None
    max_lease: float = 3600
    migration_batch_size: int = -1
    shutdown_timeout: float = 30
    prefetch: int | str = "auto"
    concurrency: int = 1
    retry_backoff: float = 0
    retry_backoff_multiplier: float = 1
    retry_backoff_max: float = 0
    retry_jitter: str = "none"

    def __post_init__(self) -> None:
        """Check every option, and name the dead-letter queue."""
        super().__post_init__()
        self._check_dead_letter_queue()
        self._check_times()
        self._check_counts()
        self._check_strategies()

    @property
    def dead_letter_target(self) -> str:
        """Where dead letters go; poison does so in every configuration."""
        return self.dead_letter_queue or f"{self.queue}.dlq"

    @property
    def lease(self) -> int | None:
        """``retry_after`` in whole seconds, rounded up."""
        return None if self.retry_after is None else math.ceil(self.retry_after)

    @property
    def longest_hold(self) -> float:
        """How many seconds a reservation is extended at most while its handler runs."""
        timeout = self.handler_timeout
        return self.max_lease if timeout is None else min(timeout, self.max_lease)

    @property
    def alone(self) -> int | None:
        """From how many deliveries without a settlement on a message is reserved alone.

        It has one left. Were it taken with others, those would be counted with it.
        """
        limit = self.max_tries if self.counts_deliveries else self.max_recoveries
        return None if limit is None else limit - 1

    def _check_dead_letter_queue(self) -> None:
        if self.dead_letter_queue == "":
            object.__setattr__(self, "dead_letter_queue", f"{self.queue}.dlq")
        if self.dead_letter_queue is not None:
            checked = check_queue(self.dead_letter_queue, "dead_letter_queue")
            object.__setattr__(self, "dead_letter_queue", checked)
        if self.dead_letter_queue == self.queue:
            refuse("dead_letter_queue", self.dead_letter_queue, "a name other than the queue's")

    def _check_times(self) -> None:
        if self.retry_after is not None:
            number("retry_after", self.retry_after, 0, MAX_SECONDS, "or None")
        elif self.on_failure == "leave":
            msg = "on_failure='leave' needs a retry_after: nothing else brings a left message back"
            raise ConfigurationError(msg)
        number("block_timeout", self.block_timeout, -math.inf, MAX_SECONDS)
        number("shutdown_timeout", self.shutdown_timeout, 0, math.inf)
        if self.handler_timeout is not None:
            number("handler_timeout", self.handler_timeout, 0, MAX_SECONDS, "or None")
        number("max_lease", self.max_lease, 0, MAX_SECONDS)
        number("retry_backoff", self.retry_backoff, 0, MAX_SECONDS)
        number("retry_backoff_multiplier", self.retry_backoff_multiplier, 0, math.inf)
        number("retry_backoff_max", self.retry_backoff_max, 0, MAX_SECONDS)
        self._check_delayed("retry_backoff", self.retry_backoff)

    def _check_counts(self) -> None:
        check_count("max_tries", self.max_tries)
        if self.max_recoveries == -1:
            limit = None if self.on_failure == "leave" else self.max_tries
            object.__setattr__(self, "max_recoveries", limit)
        if self.max_recoveries is not None:
            check_count("max_recoveries", self.max_recoveries, also="or None, or -1 for max_tries")
        if self.dead_letter_max_length is not None:
            check_count("dead_letter_max_length", self.dead_letter_max_length, also="or None")
        if self.migration_batch_size != -1:
            check_count("migration_batch_size", self.migration_batch_size, also="or -1 for all")
        if self.prefetch != "auto":
            check_count("prefetch", self.prefetch, MOST_PREFETCHED, also="or 'auto'")
        check_count("concurrency", self.concurrency, MOST_CONCURRENT)

    def _check_strategies(self) -> None:
        one_of(
            "unknown_urn",
            self.unknown_urn,
            UNKNOWN_URN_STRATEGIES,
            "on_unknown_urn= takes a callable",
        )
        one_of("on_failure", self.on_failure, ON_FAILURE)
        one_of("heartbeat", self.heartbeat, (True, False))
        one_of("retry_jitter", self.retry_jitter, JITTERS)
        if self.on_error is not None and not callable(self.on_error):
            refuse("on_error", self.on_error, "a callable")
        if self.on_unknown_urn is None:
            return
        if not callable(self.on_unknown_urn):
            refuse(
                "on_unknown_urn",
                self.on_unknown_urn,
                "a callable; a strategy's name goes into unknown_urn=",
            )
        if self.unknown_urn != "fail":
            msg = "give either unknown_urn or on_unknown_urn: a callable takes all unknown URNs"
            raise ConfigurationError(msg)

"""The options of publishers and consumers, checked on construction.

A wrong option is an error here, before anything is read or written.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

from babelqueue_carrier.headers import ASCII_WHITESPACE
from babelqueue_redis.errors import ConfigurationError, EnvelopeError

LAYOUTS = ("legacy",)
UNKNOWN_URN_STRATEGIES = ("fail", "delete", "release", "dead_letter")
ON_FAILURE = ("release", "leave")
RESERVED_SUFFIXES = (":processing", ":processing:deadlines", ":delayed", ":reserved", ":notify")
MAX_RETRY_AFTER = 10 * 365 * 24 * 3600
"""Seconds. A longer lease is a mistake; ``None`` is the way to say "never"."""

MAX_BATCH = 1000

Pair = tuple[str, Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class PublisherOptions:
    """Which queue, in which layout.

    Attributes:
        queue: The logical name.
        layout: ``legacy``.
        key_prefix: What the Redis keys of the zset layout begin with.
    """

    queue: str
    layout: str = "legacy"
    key_prefix: str = "queues:"

    def __post_init__(self) -> None:
        """Check the names."""
        check_queue(self.queue, "queue")
        _one_of("layout", self.layout, LAYOUTS)


@dataclasses.dataclass(frozen=True)
class ConsumerOptions(PublisherOptions):
    """How a consumer takes and settles messages. Durations are seconds.

    Attributes:
        retry_after: How long a reservation lasts before a sweep gives the message to somebody
            else; rounded up to whole seconds. ``None`` keeps it for ever.
        block_timeout: How long ``poll()`` and ``reserve()`` wait; 0 or less is one attempt.
        max_tries: How often a failing handler runs before the message is dead-lettered.
        dead_letter_queue: Its name, by default ``<queue>.dlq``. ``None`` drops exhausted messages
            and those with an unknown URN; poison still goes to ``<queue>.dlq``.
        unknown_urn: What happens to a message that no handler takes: ``fail`` retries it, then
            dead-letters it; ``delete``; ``release`` gives it back unchanged; ``dead_letter``.
        on_unknown_urn: A handler for such messages instead, with the signature of a handler.
        on_error: Called with ``(error, envelope, raw)`` for every failure and every refused
            message; ``envelope`` is ``None`` for poison.
        on_failure: ``release`` gives a failed message back with ``attempts`` raised; ``leave``
            lets it wait for the sweep, ``attempts`` unchanged.
        migration_batch_size: How many expired reservations one sweep moves at most; -1 is all.
        shutdown_timeout: How long a handler may go on after SIGTERM or SIGINT.
        prefetch: How many messages one trip reserves: 1, and so is ``auto`` for now.
        concurrency: How many handlers run at once: 1.
        retry_backoff: Must be 0 on the legacy layout, which cannot delay a message; so must
            ``retry_backoff_max``, and ``retry_jitter`` must be ``none``.
    """

    retry_after: float | None = 90
    block_timeout: float = 5
    max_tries: int = 3
    dead_letter_queue: str | None = ""
    unknown_urn: str = "fail"
    on_unknown_urn: Callable[..., Any] | None = None
    on_error: Callable[..., Any] | None = None
    on_failure: str = "release"
    migration_batch_size: int = -1
    shutdown_timeout: float = 30
    prefetch: int | str = "auto"
    concurrency: int = 1
    retry_backoff: float = 0

    def __post_init__(self) -> None:
        """Check every option, and name the dead-letter queue."""
        super().__post_init__()
        self._check_dead_letter_queue()
        self._check_times()
        self._check_counts()
        self._check_strategies()

    @property
    def poison_queue(self) -> str:
        """Where poison goes, in every configuration."""
        return self.dead_letter_queue or f"{self.queue}.dlq"

    @property
    def lease(self) -> int | None:
        """``retry_after`` in whole seconds, rounded up."""
        return None if self.retry_after is None else math.ceil(self.retry_after)

    def _check_dead_letter_queue(self) -> None:
        if self.dead_letter_queue == "":
            object.__setattr__(self, "dead_letter_queue", f"{self.queue}.dlq")
        if self.dead_letter_queue is not None:
            check_queue(self.dead_letter_queue, "dead_letter_queue")
        if self.dead_letter_queue == self.queue:
            _refuse("dead_letter_queue", self.dead_letter_queue, "a name other than the queue's")

    def _check_times(self) -> None:
        if self.retry_after is not None:
            _number("retry_after", self.retry_after, 0, MAX_RETRY_AFTER, "or None")
        elif self.on_failure == "leave":
            msg = "on_failure='leave' needs a retry_after: nothing else brings a left message back"
            raise ConfigurationError(msg)
        _number("block_timeout", self.block_timeout, -math.inf, math.inf)
        _number("shutdown_timeout", self.shutdown_timeout, 0, math.inf)
        _number("retry_backoff", self.retry_backoff, 0, math.inf)
        if self.retry_backoff > 0 and self.layout == "legacy":
            msg = (
                f"retry_backoff={self.retry_backoff!r} cannot work on queue {self.queue!r}: the "
                "legacy layout has no delayed set, so a retry is always immediate; use 0"
            )
            raise ConfigurationError(msg)

    def _check_counts(self) -> None:
        _integer("max_tries", self.max_tries, 1)
        if self.migration_batch_size != -1:
            _integer("migration_batch_size", self.migration_batch_size, 1, "or -1 for all")
        _one_of("prefetch", self.prefetch, ("auto", 1))
        _one_of("concurrency", self.concurrency, (1,))

    def _check_strategies(self) -> None:
        if callable(self.unknown_urn):
            _refuse(
                "unknown_urn",
                self.unknown_urn,
                "a strategy's name; on_unknown_urn= takes a callable",
            )
        _one_of("unknown_urn", self.unknown_urn, UNKNOWN_URN_STRATEGIES)
        _one_of("on_failure", self.on_failure, ON_FAILURE)
        if self.on_unknown_urn is not None and not callable(self.on_unknown_urn):
            _refuse(
                "on_unknown_urn",
                self.on_unknown_urn,
                "a callable; unknown_urn= takes a strategy's name",
            )
        if self.on_error is not None and not callable(self.on_error):
            _refuse("on_error", self.on_error, "a callable")


def check_queue(name: object, option: str) -> None:
    """Refuse a queue name that could not be told from a key of another queue.

    Raises:
        ConfigurationError: It is not text, is blank, or ends like a key of the layouts.
    """
    if not isinstance(name, str) or not name.strip(ASCII_WHITESPACE):
        _refuse(option, name, "a queue name that is not blank")
    elif name.endswith(RESERVED_SUFFIXES):
        suffix = next(suffix for suffix in RESERVED_SUFFIXES if name.endswith(suffix))
        _refuse(option, name, f"a name that does not end in {suffix!r}, as a key of a queue does")
    else:
        try:
            name.encode("utf-8")
        except UnicodeEncodeError:
            _refuse(option, name, "text without lone surrogates")


def check_url(url: str) -> None:
    """Refuse a Redis URL that carries options of ours; redis-py would hand them to its sockets.

    Raises:
        ConfigurationError: It carries one.
    """
    ours = {field.name for field in dataclasses.fields(ConsumerOptions)}
    misplaced = ours.intersection(parse_qs(urlsplit(url).query))
    if misplaced:
        option = min(misplaced)
        msg = f"{option} is no option of a Redis URL: pass it as a keyword, {option}=…"
        raise ConfigurationError(msg)


def check_delay(delay: float | None, options: PublisherOptions) -> None:
    """Refuse a delay that is no number of seconds, or that the layout cannot keep.

    Raises:
        ConfigurationError: It is one of those.
    """
    if delay is None:
        return
    _number("delay", delay, 0, MAX_RETRY_AFTER, "or None")
    if delay > 0:
        msg = (
            f"delay={delay!r} cannot work on queue {options.queue!r}: "
            f"the {options.layout} layout has no delayed set"
        )
        raise ConfigurationError(msg)


def check_batch(messages: Iterable[Pair]) -> list[Pair]:
    """Return the ``(urn, data)`` pairs of a ``publish_many``.

    Raises:
        EnvelopeError: They are more than 1 000, or one is not a pair.
    """
    pairs = list(messages)
    if len(pairs) > MAX_BATCH:
        msg = f"publish_many takes at most {MAX_BATCH} messages, got {len(pairs)}: split the list"
        raise EnvelopeError(msg)
    for index, pair in enumerate(pairs):
        if not isinstance(pair, tuple | list) or len(pair) != 2:  # noqa: PLR2004 - a pair
            msg = f"message {index} of the batch must be a pair (urn, data)"
            raise EnvelopeError(msg)
    return pairs


def _one_of(option: str, value: object, allowed: tuple[object, ...]) -> None:
    if isinstance(value, bool) or value not in allowed:
        _refuse(option, value, " or ".join(map(repr, allowed)))


def _number(option: str, value: object, low: float, high: float, also: str = "") -> None:
    valid = isinstance(value, int | float) and not isinstance(value, bool)
    if not valid or not low <= value <= high:  # type: ignore[operator]  # valid says it is a number
        floor = "" if low == -math.inf else f" of at least {low:g}"
        ceiling = "" if high == math.inf else f" and at most {high:g}"
        _refuse(option, value, f"a number of seconds{floor}{ceiling} {also}".rstrip())


def _integer(option: str, value: object, low: int, also: str = "") -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        _refuse(option, value, f"a whole number of at least {low} {also}".rstrip())


def _refuse(option: str, value: object, wanted: str) -> None:
    msg = f"{option}={value!r} is refused: it must be {wanted}"
    raise ConfigurationError(msg)

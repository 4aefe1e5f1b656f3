"""The options of job stores and job workers, checked on construction."""

from __future__ import annotations

import dataclasses
import math
from typing import Protocol

from babelqueue_carrier.headers import is_text
from babelqueue_redis.checks import check_timeout
from babelqueue_redis.errors import ConfigurationError
from babelqueue_redis.settings import JITTERS


class Moment(Protocol):
    """What an aware ``datetime`` is to us."""

    @property
    def tzinfo(self) -> object:
        """Its time zone."""

    def timestamp(self) -> float:
        """Return epoch seconds."""


When = int | Moment | None
"""Epoch milliseconds or an aware ``datetime``; ``None`` is now, by the server's clock."""


MOST = 2**53
"""What numbers end at: beyond it JavaScript and Lua cannot count on."""

_NO_TIME = 10**15
"""Epoch milliseconds in the year 33658: nanoseconds, more likely."""


@dataclasses.dataclass(frozen=True)
class JobStoreOptions:
    """Where the jobs are, and how long finished ones are kept.

    Attributes:
        key_prefix: What every key begins with. For a cluster it holds a hash tag, ``{…}``.
        keep_done: Seconds that done and canceled jobs are kept; ``None`` is for ever.
        keep_dead: Seconds that dead jobs are kept; ``None`` is for ever.
    """

    key_prefix: str = "absolutejs:queue:"
    keep_done: float | None = None
    keep_dead: float | None = None

    def __post_init__(self) -> None:
        """Check every option."""
        check_text("key_prefix", self.key_prefix)
        for option in ("keep_done", "keep_dead"):
            seconds = getattr(self, option)
            if seconds is not None:
                check_timeout(seconds, option, 0)


@dataclasses.dataclass(frozen=True)
class JobWorkerOptions:
    """How a worker claims and runs jobs. Durations are seconds.

    Attributes:
        concurrency: How many handlers run at once.
        lease: How long a claim lasts unless a heartbeat extends it, three times as often.
        handler_timeout: How long a handler may run; ``None`` is for ever.
        poll_interval: How long to wait when nothing was due.
        reap_interval: How often jobs are looked for whose worker died.
        retry_backoff: How long a failed job is kept back at first; 0 is not at all.
        retry_backoff_multiplier: What that grows by with each attempt.
        retry_backoff_max: Its bound; 0 is none.
        retry_jitter: ``full`` draws from 0 up to the back-off; ``none`` keeps it.
        shutdown_timeout: How long handlers may go on after SIGTERM or SIGINT.
        worker_id: Who claims; it need not be unique.
    """

    concurrency: int = 1
    lease: float = 60
    handler_timeout: float | None = None
    poll_interval: float = 0.5
    reap_interval: float = 10
    retry_backoff: float = 1
    retry_backoff_multiplier: float = 2
    retry_backoff_max: float = 300
    retry_jitter: str = "full"
    shutdown_timeout: float = 30
    worker_id: str = ""

    def __post_init__(self) -> None:
        """Check every option."""
        check_whole("concurrency", self.concurrency)
        check_lease(self.lease)
        check_timeout(self.handler_timeout or 0, "handler_timeout", 0)
        check_timeout(self.shutdown_timeout, "shutdown_timeout", 0)
        for option in ("poll_interval", "reap_interval"):
            check_timeout(getattr(self, option), option, 0.001)
        for option in ("retry_backoff", "retry_backoff_multiplier", "retry_backoff_max"):
            check_timeout(getattr(self, option), option, 0)
        if self.retry_jitter not in JITTERS:
            msg = f"retry_jitter={self.retry_jitter!r} is refused: it must be one of {JITTERS}"
            raise ConfigurationError(msg)
        check_text("worker_id", self.worker_id)

    @property
    def heartbeat(self) -> float:
        """How often a claim is extended."""
        return self.lease / 3


def check_whole(option: str, value: object, low: int = 1) -> int:
    """Return a whole number of at least ``low``, with which JavaScript and Lua can count.

    Raises:
        ConfigurationError: It is none.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= MOST:
        msg = f"{option}={value!r} is refused: it must be a whole number from {low} to 2**53"
        raise ConfigurationError(msg)
    return value


def check_text(option: str, value: object) -> str:
    """Return text that Redis can hold and that can be told from what stands beside it.

    Raises:
        ConfigurationError: It is none.
    """
    if not isinstance(value, str) or not is_text(value) or "\0" in value:
        msg = f"{option} must be text without lone surrogates and NULs, not {value!r}"
        raise ConfigurationError(msg)
    return value


def check_lease(seconds: float) -> int:
    """Return a lease in milliseconds, rounded up.

    Raises:
        ConfigurationError: It is no time, or none at all.
    """
    return math.ceil(check_timeout(seconds, "lease", 0.001) * 1000)


def epoch_ms(moment: When, option: str) -> int | None:
    """Return a moment as epoch milliseconds.

    Raises:
        ConfigurationError: It is neither whole milliseconds nor an aware ``datetime``.
    """
    if moment is None:
        return None
    if isinstance(moment, int):
        if type(moment) is int and 0 <= moment < _NO_TIME:
            return moment
    elif hasattr(moment, "timestamp") and moment.tzinfo is not None:
        return round(moment.timestamp() * 1000)
    msg = (
        f"{option}={moment!r} is refused: it must be whole epoch milliseconds, as they are stored, "
        "or a datetime with a time zone"
    )
    raise ConfigurationError(msg)

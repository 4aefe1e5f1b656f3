"""What a delivery's end means for its message. Pure: the shell sends what is decided here."""

from __future__ import annotations

import msgspec

from babelqueue_carrier.errors import message_of, qualified_name
from babelqueue_redis import dead_letter
from babelqueue_redis.core.retry import backoff
from babelqueue_redis.envelope import with_attempts
from babelqueue_redis.errors import (
    ExhaustedError,
    PayloadError,
    SettlementError,
)
from babelqueue_redis.settings import ConsumerOptions
from babelqueue_redis.values import Delivery, Outcome, Reservation, next_attempts


class Settlement(msgspec.Struct, frozen=True):
    """What to do with a reservation.

    Attributes:
        outcome: What becomes of the message. ``ACKED`` and ``DROPPED`` remove it; ``RELEASED``
            gives it back unchanged; ``LEFT`` does nothing.
        body: The envelope to write instead, for ``RETRIED`` and ``DEAD_LETTERED``.
        dead_letter_queue: Where a dead letter goes.
        delay: How long a retry is kept back, in seconds.
        dead_letter_max_length: How many dead letters stay there; ``None`` is all.
    """

    outcome: Outcome
    body: bytes = b""
    dead_letter_queue: str = ""
    delay: float = 0
    dead_letter_max_length: int | None = None


class End(msgspec.Struct, frozen=True):
    """The end of a delivery: what is to be done with its reservation.

    Attributes:
        reservation: What is settled.
        settlement: How.
        message_id: The ``meta.id``; ``""`` when there is none, or nobody looked.
        since: When the handling ended, in seconds of a monotonic clock.
    """

    reservation: Reservation
    settlement: Settlement
    message_id: str = ""
    since: float = 0


EXPIRED = (
    "reservation expired: message %r of queue %r is not %s, nothing was touched; it is "
    "delivered again. Without a heartbeat, handlers must be shorter than retry_after (%s s)"
)
"""What the log says of a settlement that came too late."""

ACK = Settlement(Outcome.ACKED)
GIVE_BACK = Settlement(Outcome.RELEASED)


def settlement(
    delivery: Delivery,
    error: BaseException,
    options: ConsumerOptions,
    now_ms: int,
    draw: float = 0,
) -> Settlement:
    """Return the settlement of a delivery whose handling ended with ``error``.

    Args:
        delivery: What was handled.
        error: What its handling raised.
        options: The consumer's.
        now_ms: Epoch milliseconds.
        draw: A random number from 0 to 1, for the jitter of a retry.
    """
    outcome = delivery.intended(error)
    body = delivery.reservation.body
    if outcome is Outcome.RETRIED:
        attempts = next_attempts(delivery.envelope)
        delay = backoff(
            attempts,
            base=options.retry_backoff,
            multiplier=options.retry_backoff_multiplier,
            maximum=options.retry_backoff_max,
            jitter=options.retry_jitter,
            draw=draw,
        )
        return Settlement(outcome, with_attempts(body, attempts), delay=delay)
    if outcome is not Outcome.DEAD_LETTERED:
        return Settlement(outcome)
    write = dead_letter.poison_record if delivery.envelope is None else dead_letter.record
    block = _block(delivery, error, options, now_ms)
    return Settlement(
        outcome,
        write(body, block),
        options.dead_letter_target,
        dead_letter_max_length=options.dead_letter_max_length,
    )


def failure(delivery: Delivery, error: BaseException) -> tuple[object, ...]:
    """Return what the log says of a delivery that failed: a format and its arguments."""
    explains_itself = delivery.refusal or isinstance(error, PayloadError)
    return (
        "message %r of queue %r is %s: %s",
        delivery.message_id or "(poison)",
        delivery.destination.queue,
        delivery.intended(error),
        error if explains_itself else "its handler failed",
    )


def interruption(delivery: Delivery, error: BaseException) -> tuple[object, ...]:
    """Return what the log says of a delivery that was interrupted from outside."""
    return (
        "the handling of message %r of queue %r was interrupted (%s); it is given back unchanged",
        delivery.message_id,
        delivery.destination.queue,
        qualified_name(error),
    )


def unconfirmed(error: Exception, end: End) -> SettlementError:
    """Return what is raised when Redis did not confirm a settlement."""
    outcome = end.settlement.outcome
    msg = (
        f"message {end.message_id!r} of queue {end.reservation.queue!r} is not confirmed to be "
        f"{outcome}; it may come back after retry_after: {error}"
    )
    raised = SettlementError(msg, message_id=end.message_id, outcome=outcome)
    raised.__cause__ = error
    return raised


def _block(
    delivery: Delivery, error: BaseException, options: ConsumerOptions, now_ms: int
) -> dict[str, object]:
    envelope = delivery.envelope
    attempts = next_attempts(envelope)
    if envelope is not None and isinstance(delivery.refusal, ExhaustedError):
        attempts = envelope.attempts  # this delivery was no attempt
    return dead_letter.block(
        getattr(delivery.refusal, "reason", "failed"),
        error=message_of(error),
        exception=qualified_name(error),
        failed_at=now_ms,
        original_queue=(envelope.meta.queue if envelope else "") or options.queue,
        attempts=attempts,
    )

"""The values that travel: from a publish call to Redis, and from Redis to a handler.

They are frozen: a change makes another one. What a handler is given (``envelope.data``, the
headers) is a copy of its own.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from babelqueue_redis.envelope import INT64_MAX, Envelope
from babelqueue_redis.errors import (
    BabelQueueError,
    ExhaustedError,
    PayloadError,
    PoisonError,
    UnknownUrnError,
)
from babelqueue_redis.settings import ConsumerOptions


class Handler(msgspec.Struct, frozen=True):
    """A handler once its signature is resolved.

    Attributes:
        call: Takes ``(envelope, raw, headers)``.
        awaits: What it returns is to be awaited.
        convert: Makes the payload's type of ``data``; ``None`` leaves the decoded JSON.
    """

    call: Callable[[Envelope, bytes, Mapping[str, str]], Any]
    awaits: bool = False
    convert: Callable[[dict[str, Any]], Any] | None = None


class Outcome(str, enum.Enum):
    """What became of a delivery."""

    ACKED = "acked"
    """The handler returned, and the message is gone."""
    RETRIED = "retried"
    """The handler failed; the message is back in the queue with ``attempts`` raised."""
    DEAD_LETTERED = "dead_lettered"
    """The message is in the dead-letter queue."""
    DROPPED = "dropped"
    """The message was deleted on purpose: a strategy or a missing dead-letter queue said so."""
    RELEASED = "released"
    """The message was given back unchanged."""
    LEFT = "left"
    """The message stays reserved; the sweep brings it back after ``retry_after``."""
    EXPIRED = "expired"
    """The reservation had run out before it was settled; somebody else has the message now."""

    __str__ = str.__str__


class Destination(msgspec.Struct, frozen=True):
    """A queue, and the server it is on.

    Attributes:
        queue: The logical name.
        layout: ``legacy`` or ``zset``.
        address: Host name or socket path of the server, as the client was given it.
        port: TCP port; ``None`` for a socket path.
    """

    queue: str
    layout: str
    address: str = ""
    port: int | None = None


class Publication(msgspec.Struct, frozen=True):
    """A message on its way into a queue, as a ``publishing`` hook sees it.

    Attributes:
        destination: The queue it goes to.
        urn: The URN, trimmed.
        message_id: Its ``meta.id``, a UUID.
        trace_id: The ``trace_id`` the caller gave; ``None`` when a fresh one is to be made.
        headers: Clean headers; ``{}`` stores a bare envelope.
        data: The ``data`` object, as encoded JSON.
        meta: Extra ``meta`` entries, each as encoded JSON.
        created_at: ``meta.created_at``, epoch milliseconds.
    """

    destination: Destination
    urn: str
    message_id: str
    trace_id: str | None
    headers: Mapping[str, str]
    data: msgspec.Raw
    meta: Mapping[str, msgspec.Raw]
    created_at: int

    def carrying(self, headers: Mapping[str, str], trace_id: str | None) -> Publication:
        """Return a copy with other headers and another ``trace_id``."""
        return msgspec.structs.replace(self, headers=headers, trace_id=trace_id)

    def __repr__(self) -> str:
        """Leave the payload, the headers and the extra entries out: logs are full of reprs."""
        return f"Publication({self.urn!r}, {self.message_id}, queue {self.destination.queue!r})"


LOST = "lost"
"""The note on a reservation that is somebody else's by now."""


class Reservation(msgspec.Struct, frozen=True):
    """A message taken from a queue and not settled yet.

    Attributes:
        queue: The logical queue name.
        body: The envelope's bytes, without the header frame.
        headers: The delivered headers, ``{}`` for a bare message.
        token: The reservation's own 32 hex digits.
        stored: The bytes as they stand in Redis: the handle that settles the reservation.
        poison: Why the layout already knows that this is no envelope, or ``None``.
        recoveries: How often it came back because its worker did not settle it; always 0 in the
            zset layout, which counts that as attempts.
        alone: Whether one more delivery without a settlement would be its last, so that it is
            handled while nothing else is: it may be what makes its workers crash.
        notes: Where a hook leaves what its later steps with this message need.
    """

    queue: str
    body: bytes
    headers: Mapping[str, str]
    token: str
    stored: bytes
    poison: str | None = None
    recoveries: int = 0
    alone: bool = False
    notes: dict[object, Any] = {}  # msgspec gives each its own

    @property
    def lost(self) -> bool:
        """Whether the heartbeat found that it had run out: somebody else has the message."""
        return LOST in self.notes

    def __repr__(self) -> str:
        """Leave the payload and the headers out."""
        return f"Reservation(queue {self.queue!r}, {self.token}, {len(self.body)} bytes)"


class Delivery(msgspec.Struct, frozen=True):
    """A reservation that is about to be handled, as a ``processing`` hook sees it.

    Attributes:
        destination: The queue it came from.
        reservation: What was taken, with the raw bytes and the headers.
        envelope: The decoded message; ``None`` for poison.
        handler: What will run; ``None`` for poison and for an unknown URN.
        refusal: Why nothing will run: poison, an unknown URN, too many deliveries.
        options: The consumer's.
    """

    destination: Destination
    reservation: Reservation
    envelope: Envelope | None
    handler: Handler | None
    refusal: BabelQueueError | None
    options: ConsumerOptions

    @property
    def if_failed(self) -> Outcome:
        """The outcome when handling raises."""
        refusal, options = self.refusal, self.options
        if isinstance(refusal, PoisonError):
            return Outcome.DEAD_LETTERED
        if isinstance(refusal, ExhaustedError):
            return self.if_unfit
        if isinstance(refusal, UnknownUrnError) and options.unknown_urn != "fail":
            return _BY_STRATEGY.get(options.unknown_urn, self.if_unfit)
        if refusal is None and options.on_failure == "leave":
            return Outcome.LEFT
        is_last = next_attempts(self.envelope) >= options.max_tries
        return self.if_unfit if is_last else Outcome.RETRIED

    @property
    def if_unfit(self) -> Outcome:
        """The outcome when there is no use in another try, as with data of another type."""
        return Outcome.DEAD_LETTERED if self.options.dead_letter_queue else Outcome.DROPPED

    @property
    def headers(self) -> Mapping[str, str]:
        """The delivered headers, ``{}`` for a bare message."""
        return self.reservation.headers

    @property
    def lost(self) -> bool:
        """Whether the reservation ran out while it is handled; see the heartbeat."""
        return self.reservation.lost

    @property
    def message_id(self) -> str:
        """The ``meta.id``; ``""`` for poison, or when the producer gave none."""
        return self.envelope.meta.id if self.envelope else ""

    def intended(self, error: BaseException | None) -> Outcome:
        """Return what becomes of the message once its handling ended with ``error``.

        Intended, because a reservation may have run out meanwhile.
        """
        if error is None:
            return Outcome.ACKED
        if isinstance(error, PayloadError):
            return self.if_unfit
        return self.if_failed if counts_as_failure(error) else Outcome.RELEASED

    def __repr__(self) -> str:
        """Leave the payload and the headers out."""
        what = self.message_id or self.reservation.token
        return f"Delivery({what}, queue {self.destination.queue!r}, if failed {self.if_failed})"


_BY_STRATEGY = {"delete": Outcome.DROPPED, "release": Outcome.RELEASED}


def next_attempts(envelope: Envelope | None) -> int:
    """Return ``attempts`` after one more failure. A negative count starts from zero."""
    return min(max(envelope.attempts, 0) + 1, INT64_MAX) if envelope else 1


def counts_as_failure(error: BaseException) -> bool:
    """Tell whether a handler that ended with ``error`` failed, or was interrupted from outside.

    What is no ``Exception`` comes from outside: a ``KeyboardInterrupt``, a cancellation, a time
    limit. Only ``SystemExit`` is the handler's own doing.
    """
    return isinstance(error, Exception | SystemExit)

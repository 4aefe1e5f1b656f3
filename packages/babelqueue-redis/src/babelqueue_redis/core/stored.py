"""What stands in a queue, as an operator sees it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from babelqueue_carrier.frame import is_utf8, unframe
from babelqueue_redis.envelope import Envelope
from babelqueue_redis.errors import PoisonError
from babelqueue_redis.strict_json import read
from babelqueue_redis.verdict import verdict

STATES = ("ready", "delayed", "reserved", "dead")
"""Where a message can stand."""


class Counts(msgspec.Struct, frozen=True):
    """How many messages stand where, all at one moment.

    Attributes:
        ready: They can be taken.
        delayed: They become ready later; always 0 in the legacy layout.
        reserved: Consumers have taken them and not settled them yet.
        dead: They are in the dead-letter queue, and ready there.
        overdue: Those of the reserved ones whose reservation has ended: the next consumer that
            asks for a message brings them back, unless its ``retry_after`` is ``None``.
    """

    ready: int
    delayed: int
    reserved: int
    dead: int
    overdue: int


class DeadLetter(msgspec.Struct, frozen=True):
    """The ``dead_letter`` block of a message. A member that is missing or null is ``None``.

    Attributes:
        reason: ``failed``, ``unknown_urn`` or ``poison``; ``""`` when there is no block.
        error: The exception's message.
        exception: The exception's class name.
        failed_at: Epoch milliseconds.
        original_queue: The queue it came from.
        attempts: How often it was tried.
        lang: The language of the SDK that gave it up.
    """

    reason: str = ""
    error: str | None = None
    exception: str | None = None
    failed_at: int | None = None
    original_queue: str | None = None
    attempts: int | None = None
    lang: str | None = None

    def __repr__(self) -> str:
        """Leave the error's text out: it may quote the payload."""
        return f"DeadLetter({self.reason!r}, from {self.original_queue!r})"


class StoredMessage(msgspec.Struct, frozen=True):
    """A message as it stands in a queue.

    Attributes:
        state: ``ready``, ``delayed``, ``reserved`` or ``dead``.
        body: The envelope's bytes, without the header frame.
        headers: Its headers, ``{}`` for a bare message.
        envelope: The decoded message; ``None`` when it cannot be decoded.
        poison: Why no handler may have it; ``None`` for a good message.
        dead_letter: Its ``dead_letter`` block, or an empty one.
        stored: The bytes as they stand in Redis.
    """

    state: str
    body: bytes
    headers: Mapping[str, str]
    envelope: Envelope | None
    poison: str | None
    dead_letter: DeadLetter
    stored: bytes

    @property
    def message_id(self) -> str:
        """The ``meta.id``; ``""`` when there is none."""
        return self.envelope.meta.id if self.envelope else ""

    @property
    def urn(self) -> str:
        """The URN; ``""`` when there is none."""
        return self.envelope.job if self.envelope else ""

    def __repr__(self) -> str:
        """Leave the payload and the headers out."""
        what = (self.poison and "poison") or f"{self.urn!r}, id {self.message_id!r}"
        return f"StoredMessage({self.state}, {what}, {len(self.body)} bytes)"


class _Record(msgspec.Struct):
    dead_letter: DeadLetter | None = None


_RECORD = msgspec.json.Decoder(_Record)


def stored_message(state: str, stored: bytes, *, framed: bool) -> StoredMessage:
    """Return what an element of a queue is. Never raises.

    Args:
        state: Where it stands.
        stored: Its bytes.
        framed: Whether the layout keeps headers in a frame.
    """
    body, headers = unframe(stored) if framed else (stored, {})
    judged = verdict(body)
    record = read(_RECORD, body)
    block = None if isinstance(record, PoisonError) else record.dead_letter
    poison = None
    if block is not None and block.reason == PoisonError.reason:
        poison = block.error or "it was dead-lettered as poison"
    elif isinstance(judged, PoisonError):
        poison = str(judged)
    elif body is not stored and not is_utf8(stored):
        poison = "the bytes are not UTF-8"
    envelope = None if isinstance(judged, PoisonError) else judged
    return StoredMessage(state, body, headers, envelope, poison, block or DeadLetter(), stored)

"""What a publish writes, and what its failure means."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from babelqueue_carrier.headers import ASCII_WHITESPACE
from babelqueue_redis import envelope
from babelqueue_redis.errors import (
    ConnectionLostError,
    EnvelopeError,
    PublishError,
    TransportError,
)
from babelqueue_redis.values import Publication


def checked_trace_id(trace_id: str | None) -> str | None:
    """Return a given ``trace_id`` trimmed, and ``None`` for a blank one.

    Raises:
        EnvelopeError: It is not a ``str``.
    """
    if trace_id is None:
        return None
    if not isinstance(trace_id, str):
        msg = f"trace_id must be text, a UUID for instance; got {type(trace_id).__name__}"
        raise EnvelopeError(msg)
    return trace_id.strip(ASCII_WHITESPACE) or None


def message_of(
    publication: Publication, new_id: Callable[[], str]
) -> tuple[bytes, Mapping[str, str]]:
    """Return the encoded envelope of a publication and its headers."""
    members = envelope.make(
        publication.urn,
        publication.data,
        queue=publication.place.queue,
        message_id=publication.message_id,
        trace_id=publication.trace_id or new_id(),
        created_at=publication.created_at,
        meta=publication.meta,
    )
    return envelope.encode(members), publication.headers


def unconfirmed(error: TransportError, publications: Sequence[Publication]) -> PublishError:
    """Return what the caller of a failed publish is told."""
    may_be_stored = isinstance(error, ConnectionLostError) and error.sent
    ids = [publication.message_id for publication in publications]
    what = (
        f"message {ids[0]}" if len(ids) == 1 else f"batch of {len(ids)} messages from {ids[0]} on"
    )
    fate = (
        "may be stored all the same; publishing again could store it twice"
        if may_be_stored
        else "was not stored"
    )
    msg = f"{what} for queue {publications[0].place.queue!r} {fate}: {error}"
    return PublishError(msg, message_ids=ids, may_be_stored=may_be_stored)

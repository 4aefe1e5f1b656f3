"""What a publish writes, and what its failure means."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from babelqueue_carrier.headers import clean
from babelqueue_redis import envelope
from babelqueue_redis.errors import (
    ConnectionLostError,
    EnvelopeError,
    PublishError,
    TransportError,
)
from babelqueue_redis.values import Destination, Publication

MAX_BATCH = 1000
"""Messages of one ``publish_many``."""

Pair = tuple[str, Mapping[str, Any]]


def publication(
    destination: Destination,
    urn: str,
    data: Mapping[str, Any],
    *,
    trace_id: str | None,
    headers: Mapping[str, str] | None,
    meta: Mapping[str, Any] | None,
    message_id: str,
    now_ms: int,
) -> Publication:
    """Check what is to be published, all of it, and return it.

    Raises:
        EnvelopeError, HeaderError: It cannot be written.
    """
    return Publication(
        destination,
        envelope.checked_urn(urn),
        message_id,
        envelope.checked_trace_id(trace_id),
        clean(headers),
        envelope.encode_data(data),
        envelope.encode_meta(meta),
        now_ms,
    )


def publications(
    destination: Destination,
    messages: Iterable[Pair],
    *,
    trace_id: str | None,
    headers: Mapping[str, str] | None,
    new_ids: Callable[[int], list[str]],
    now_ms: int,
) -> tuple[Publication, ...]:
    """Check a batch, all of it, and return it; each message has headers of its own.

    Raises:
        EnvelopeError, HeaderError: It cannot be written.
    """
    pairs = checked_batch(messages)
    chain, cleaned = envelope.checked_trace_id(trace_id), clean(headers)
    urn_of, data_of = envelope.checked_urn, envelope.encode_data
    ids = zip(pairs, new_ids(len(pairs)), strict=True)
    return tuple(
        [
            Publication(
                destination, urn_of(urn), one, chain, cleaned.copy(), data_of(data), {}, now_ms
            )
            for (urn, data), one in ids
        ]
    )


def rechecked(changed: Publication, before: Publication) -> Publication:
    """Return what a hook made of a publication, if it can be written.

    Raises:
        EnvelopeError, HeaderError: It cannot be written.
    """
    if not isinstance(changed.data, msgspec.Raw) or changed.destination != before.destination:
        msg = "a hook may change urn, trace_id, headers and meta, nothing else"
        raise EnvelopeError(msg)
    return Publication(
        destination=before.destination,
        urn=before.urn if changed.urn is before.urn else envelope.checked_urn(changed.urn),
        message_id=before.message_id,
        trace_id=envelope.checked_trace_id(changed.trace_id),
        headers=clean(changed.headers),
        data=changed.data,
        meta=before.meta if changed.meta is before.meta else envelope.encode_meta(changed.meta),
        created_at=before.created_at,
    )


def checked_batch(messages: Iterable[Pair]) -> list[Pair]:
    """Return the ``(urn, data)`` pairs of a ``publish_many``.

    Raises:
        EnvelopeError: They are more than 1 000, or one is not a pair.
    """
    pairs = list(itertools.islice(messages, MAX_BATCH + 1))
    if len(pairs) > MAX_BATCH:
        msg = f"publish_many takes at most {MAX_BATCH} messages in one trip: split the list"
        raise EnvelopeError(msg)
    for index, pair in enumerate(pairs):
        if not isinstance(pair, tuple | list) or len(pair) != 2:  # noqa: PLR2004 - a pair
            msg = f"message {index} of the batch must be a pair (urn, data)"
            raise EnvelopeError(msg)
    return pairs


def message_of(publication: Publication, new_trace_id: str) -> tuple[bytes, Mapping[str, str]]:
    """Return the encoded envelope of a publication and its headers.

    Args:
        publication: What is published.
        new_trace_id: Its ``trace_id`` when neither the caller nor a hook gave one.
    """
    body = envelope.written(
        publication.urn,
        publication.data,
        queue=publication.destination.queue,
        message_id=publication.message_id,
        trace_id=publication.trace_id or new_trace_id,
        created_at=publication.created_at,
        meta=publication.meta,
    )
    return body, publication.headers


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
    msg = f"{what} for queue {publications[0].destination.queue!r} {fate}: {error}"
    return PublishError(msg, message_ids=ids, may_be_stored=may_be_stored)

"""The publisher."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import redis

from babelqueue_carrier.headers import clean
from babelqueue_redis import entropy, hooks
from babelqueue_redis.core.publishing import checked_trace_id, message_of, unconfirmed
from babelqueue_redis.envelope import checked_meta, checked_urn, encode_data
from babelqueue_redis.errors import TransportError
from babelqueue_redis.layouts import layout_of
from babelqueue_redis.settings import PublisherOptions, check_batch, check_delay
from babelqueue_redis.sync.driver import Driver
from babelqueue_redis.values import Place, Publication


class RedisPublisher:
    """Publishes messages to one queue. Safe to share between threads.

    Args:
        client: A ``redis.Redis``, whose connection settings are used, or a URL.
        queue: The logical queue name.
        layout: How the queue is stored: ``legacy``.
        key_prefix: What the keys of the zset layout begin with.

    Raises:
        ConfigurationError: One of those cannot work.
    """

    def __init__(
        self,
        client: redis.Redis | str,
        queue: str,
        *,
        layout: str = "legacy",
        key_prefix: str = "queues:",
    ) -> None:
        """Check the options; nothing is sent yet."""
        self._options = PublisherOptions(queue, layout, key_prefix)
        self._driver = Driver(client, shows_spans=True)
        self._layout = layout_of(self._options)
        self._place = Place(queue, layout, self._driver.address, self._driver.port)

    def __enter__(self) -> RedisPublisher:
        """Return the publisher; leaving the block closes it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the publisher."""
        self.close()

    def publish(  # noqa: PLR0913 - the public signature
        self,
        urn: str,
        data: Mapping[str, Any],
        *,
        trace_id: str | None = None,
        headers: Mapping[str, str] | None = None,
        meta: Mapping[str, Any] | None = None,
        delay: float | None = None,
    ) -> str:
        """Append one message to the queue.

        Args:
            urn: What kind of message it is, for example ``urn:acme:orders:created``.
            data: The payload, a JSON object. Dates, UUIDs and the like become text.
            trace_id: The id of the chain it belongs to; a fresh UUID when blank.
            headers: Text to ride beside the envelope, such as a ``traceparent``. Empty names and
                values are dropped.
            meta: Further ``meta`` entries, such as ``{"ext": {"acme": {…}}}``.
            delay: Seconds; the legacy layout has no delays, so there it must be ``None`` or 0.

        Returns:
            The message's ``meta.id``.

        Raises:
            EnvelopeError: The URN is blank, or ``data`` or ``meta`` cannot be written.
            HeaderError: A header is not text.
            ConfigurationError: The layout cannot delay.
            PublishError: Redis did not confirm. Its ``message_id`` is the one that would have been
                returned, and ``may_be_stored`` tells whether it may be in the queue.
        """
        check_delay(delay, self._options)
        publication = Publication(
            place=self._place,
            urn=checked_urn(urn),
            message_id=entropy.new_id(),
            trace_id=checked_trace_id(trace_id),
            headers=clean(headers),
            data=encode_data(data),
            meta=checked_meta(meta),
            created_at=entropy.epoch_ms(),
        )
        with hooks.publishing(publication) as publication:
            self._send((publication,))
        return publication.message_id

    def publish_many(
        self,
        messages: Iterable[tuple[str, Mapping[str, Any]]],
        *,
        headers: Mapping[str, str] | None = None,
        trace_id: str | None = None,
        delay: float | None = None,
    ) -> list[str]:
        """Append up to 1 000 messages in one trip: all of them or none.

        Args:
            messages: ``(urn, data)`` pairs, in the order they are to be delivered.
            headers: Headers of every message.
            trace_id: The ``trace_id`` of every message; blank gives each its own.
            delay: As for :meth:`publish`.

        Returns:
            The ``meta.id`` of each message, in order.

        Raises:
            EnvelopeError, HeaderError, ConfigurationError, PublishError: As :meth:`publish`.
        """
        check_delay(delay, self._options)
        now = entropy.epoch_ms()
        cleaned = clean(headers)
        chain = checked_trace_id(trace_id)
        publications = tuple(
            Publication(
                place=self._place,
                urn=checked_urn(urn),
                message_id=entropy.new_id(),
                trace_id=chain,
                headers=cleaned,
                data=encode_data(data),
                meta={},
                created_at=now,
            )
            for urn, data in check_batch(messages)
        )
        if publications:
            with hooks.publishing_many(publications) as publications:
                self._send(publications)
        return [publication.message_id for publication in publications]

    def close(self) -> None:
        """Close the calling thread's connection; a later publish opens a new one."""
        self._driver.close()

    def _send(self, publications: tuple[Publication, ...]) -> None:
        messages = [message_of(each, entropy.new_id) for each in publications]
        try:
            self._driver.send(self._layout.publish(messages))
        except TransportError as error:
            raise unconfirmed(error, publications) from error

"""The publisher."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from babelqueue_redis import entropy, hooks
from babelqueue_redis.aio.driver import Client, Driver
from babelqueue_redis.aio.outbox import Outbox
from babelqueue_redis.cluster import refuse_scattered
from babelqueue_redis.core.publishing import (
    Pair,
    message_of,
    publication,
    publications,
    unconfirmed,
)
from babelqueue_redis.core.retry import due_at
from babelqueue_redis.layouts import layout_of
from babelqueue_redis.settings import QueueOptions
from babelqueue_redis.values import Destination, Publication


class AsyncRedisPublisher:
    """Publishes messages to one queue. Safe to share between threads, or tasks.

    Args:
        client: A ``redis.asyncio.Redis`` or ``redis.asyncio.RedisCluster``, whose connection
            settings are used, or a URL.
        queue: The logical queue name.
        layout: How the queue is stored: ``legacy`` or ``zset``. The latter has no place for
            headers and drops them.
        key_prefix: What the keys of the zset layout begin with.

    Raises:
        ConfigurationError: One of those cannot work.
    """

    def __init__(
        self,
        client: Client,
        queue: str,
        *,
        layout: str = "legacy",
        key_prefix: str = "queues:",
    ) -> None:
        """Check the options; nothing is sent yet."""
        self._options = QueueOptions(queue, layout, key_prefix)
        refuse_scattered(client, self._options)
        self._driver = Driver(client, shows_spans=True)
        self._outbox = Outbox(self._driver, layout_of(self._options))
        self._destination = Destination(
            self._options.queue, layout, self._driver.address, self._driver.port
        )

    async def __aenter__(self) -> AsyncRedisPublisher:
        """Return the publisher; leaving the block closes it."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the publisher."""
        await self.close()

    async def publish(
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
            data: The payload, a JSON object. Dates, UUIDs, bytes, sets and the like become text
                and arrays, keys that are numbers become text.
            trace_id: The id of the chain it belongs to; a fresh UUID when blank.
            headers: Text to ride beside the envelope, such as a ``traceparent``. Empty names and
                values are dropped.
            meta: Further ``meta`` entries, such as ``{"ext": {"acme": {…}}}``.
            delay: Seconds until it becomes ready, rounded up; only in the zset layout.

        Returns:
            The message's ``meta.id``.

        Raises:
            EnvelopeError: The URN is blank, or ``data`` or ``meta`` cannot be written.
            HeaderError: A header is not text.
            ConfigurationError: The layout cannot delay.
            PublishError: Redis did not confirm. Its ``message_id`` is the one that would have been
                returned, and ``may_be_stored`` tells whether it may be in the queue.
        """
        self._options.check_delay(delay)
        message_id, new_trace_id = entropy.new_ids(2)
        message = publication(
            self._destination,
            urn,
            data,
            trace_id=trace_id,
            headers=headers,
            meta=meta,
            message_id=message_id,
            now_ms=entropy.epoch_ms(),
        )
        with hooks.publishing(message) as message:
            await self._send((message,), (new_trace_id,), delay)
        return message.message_id

    async def publish_many(
        self,
        messages: Iterable[Pair],
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
        self._options.check_delay(delay)
        batch = publications(
            self._destination,
            messages,
            trace_id=trace_id,
            headers=headers,
            new_ids=entropy.new_ids,
            now_ms=entropy.epoch_ms(),
        )
        if batch:
            with hooks.publishing_many(batch) as batch:
                await self._send(batch, entropy.new_ids(len(batch)), delay)
        return [message.message_id for message in batch]

    async def close(self) -> None:
        """Close the connection of this thread or loop; a later publish opens a new one."""
        await self._driver.close()

    async def _send(
        self, batch: tuple[Publication, ...], new_trace_ids: Iterable[str], delay: float | None
    ) -> None:
        due = due_at(batch[0].created_at / 1000, delay) if delay else None
        encoded = list(map(message_of, batch, new_trace_ids))
        error = await self._outbox.put(encoded, due)
        if error is not None:
            raise unconfirmed(error, batch) from error

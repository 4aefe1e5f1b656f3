"""BabelQueue on Redis: publish and consume messages that other languages understand.

::

    publisher = RedisPublisher(redis.Redis(), "orders")
    publisher.publish("urn:acme:orders:created", {"order_id": 1042})

    consumer = RedisConsumer(redis.Redis(), "orders")

    @consumer.handler("urn:acme:orders:created")
    def created(envelope):
        print(envelope.data["order_id"])

    consumer.run()

``AsyncRedisPublisher`` and ``AsyncRedisConsumer`` are the same for asyncio.
"""

from __future__ import annotations

from babelqueue_redis.aio.consumer import AsyncRedisConsumer
from babelqueue_redis.aio.publisher import AsyncRedisPublisher
from babelqueue_redis.aio.seen_store import AsyncRedisSeenStore
from babelqueue_redis.envelope import Envelope, Meta
from babelqueue_redis.errors import (
    BabelQueueError,
    CommandRefusedError,
    ConfigurationError,
    ConnectionLostError,
    EnvelopeError,
    ExhaustedError,
    HeaderError,
    PayloadError,
    PoisonError,
    PublishError,
    SettlementError,
    TransportError,
    UnknownUrnError,
)
from babelqueue_redis.idempotency import idempotent
from babelqueue_redis.sync.consumer import RedisConsumer
from babelqueue_redis.sync.publisher import RedisPublisher
from babelqueue_redis.sync.seen_store import RedisSeenStore
from babelqueue_redis.values import Delivery, Outcome, Publication, Reservation

__all__ = [
    "AsyncRedisConsumer",
    "AsyncRedisPublisher",
    "AsyncRedisSeenStore",
    "BabelQueueError",
    "CommandRefusedError",
    "ConfigurationError",
    "ConnectionLostError",
    "Delivery",
    "Envelope",
    "EnvelopeError",
    "ExhaustedError",
    "HeaderError",
    "Meta",
    "Outcome",
    "PayloadError",
    "PoisonError",
    "Publication",
    "PublishError",
    "RedisConsumer",
    "RedisPublisher",
    "RedisSeenStore",
    "Reservation",
    "SettlementError",
    "TransportError",
    "UnknownUrnError",
    "idempotent",
]

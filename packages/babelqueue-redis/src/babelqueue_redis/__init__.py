"""BabelQueue on Redis: publish and consume messages that other languages understand.

::

    publisher = RedisPublisher(redis.Redis(), "orders")
    publisher.publish("urn:acme:orders:created", {"order_id": 1042})

    consumer = RedisConsumer(redis.Redis(), "orders")

    @consumer.handler("urn:acme:orders:created")
    def created(envelope):
        print(envelope.data["order_id"])

    consumer.run()

``RedisQueue`` is for operators. ``AsyncRedisPublisher``, ``AsyncRedisConsumer`` and
``AsyncRedisQueue`` are the same for asyncio.
"""

from __future__ import annotations

from babelqueue_redis.aio.consumer import AsyncRedisConsumer
from babelqueue_redis.aio.publisher import AsyncRedisPublisher
from babelqueue_redis.aio.queue import AsyncRedisQueue
from babelqueue_redis.aio.seen_store import AsyncRedisSeenStore
from babelqueue_redis.core.redriving import Moved, Redriven
from babelqueue_redis.core.stored import Counts, DeadLetter, StoredMessage
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
from babelqueue_redis.sync.queue import RedisQueue
from babelqueue_redis.sync.seen_store import RedisSeenStore
from babelqueue_redis.values import Delivery, Outcome, Publication, Reservation

__all__ = [
    "AsyncRedisConsumer",
    "AsyncRedisPublisher",
    "AsyncRedisQueue",
    "AsyncRedisSeenStore",
    "BabelQueueError",
    "CommandRefusedError",
    "ConfigurationError",
    "ConnectionLostError",
    "Counts",
    "DeadLetter",
    "Delivery",
    "Envelope",
    "EnvelopeError",
    "ExhaustedError",
    "HeaderError",
    "Meta",
    "Moved",
    "Outcome",
    "PayloadError",
    "PoisonError",
    "Publication",
    "PublishError",
    "RedisConsumer",
    "RedisPublisher",
    "RedisQueue",
    "RedisSeenStore",
    "Redriven",
    "Reservation",
    "SettlementError",
    "StoredMessage",
    "TransportError",
    "UnknownUrnError",
    "idempotent",
]

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
from babelqueue_redis.aio.job_store import AsyncRedisJobStore
from babelqueue_redis.aio.job_worker import AsyncJobWorker
from babelqueue_redis.aio.publisher import AsyncRedisPublisher
from babelqueue_redis.aio.queue import AsyncRedisQueue
from babelqueue_redis.aio.redis_worker import AsyncRedisWorker
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
    HandlerTimeoutError,
    HeaderError,
    LeaseLostError,
    PayloadError,
    PoisonError,
    PublishError,
    SettlementError,
    ShutdownError,
    TransportError,
    UnknownUrnError,
)
from babelqueue_redis.idempotency import idempotent
from babelqueue_redis.jobs.registry import JobRegistry
from babelqueue_redis.jobs.values import ClaimedJob, Job, JobPage, JobRun, NewJob
from babelqueue_redis.sync.consumer import RedisConsumer
from babelqueue_redis.sync.job_store import RedisJobStore
from babelqueue_redis.sync.job_worker import JobWorker
from babelqueue_redis.sync.publisher import RedisPublisher
from babelqueue_redis.sync.queue import RedisQueue
from babelqueue_redis.sync.redis_worker import RedisWorker
from babelqueue_redis.sync.seen_store import RedisSeenStore
from babelqueue_redis.values import Delivery, Outcome, Publication, Reservation

__all__ = [
    "AsyncJobWorker",
    "AsyncRedisConsumer",
    "AsyncRedisJobStore",
    "AsyncRedisPublisher",
    "AsyncRedisQueue",
    "AsyncRedisSeenStore",
    "AsyncRedisWorker",
    "BabelQueueError",
    "ClaimedJob",
    "CommandRefusedError",
    "ConfigurationError",
    "ConnectionLostError",
    "Counts",
    "DeadLetter",
    "Delivery",
    "Envelope",
    "EnvelopeError",
    "ExhaustedError",
    "HandlerTimeoutError",
    "HeaderError",
    "Job",
    "JobPage",
    "JobRegistry",
    "JobRun",
    "JobWorker",
    "LeaseLostError",
    "Meta",
    "Moved",
    "NewJob",
    "Outcome",
    "PayloadError",
    "PoisonError",
    "Publication",
    "PublishError",
    "RedisConsumer",
    "RedisJobStore",
    "RedisPublisher",
    "RedisQueue",
    "RedisSeenStore",
    "RedisWorker",
    "Redriven",
    "Reservation",
    "SettlementError",
    "ShutdownError",
    "StoredMessage",
    "TransportError",
    "UnknownUrnError",
    "idempotent",
]

"""Publish and consume without a Redis, in tests of your own.

Publishers and consumers that exist already, of either shell, are moved into memory for a while::

    from babelqueue_redis.testing import in_memory

    def test_an_order_is_published_and_handled():
        with in_memory(publisher, consumer) as queues:
            place_order(1042)
            queues["orders"].assert_published("urn:shop:order:placed", {"order_id": 1042})
            assert queues.drain(consumer) == [Outcome.ACKED]  # await it for an asyncio consumer

Everything but the storage is what runs in production: the checks, the bytes, routing, payload
types, retries, dead letters, hooks. No time passes: a delayed message is taken once no other one is
ready, and waiting ends at once. :func:`call_handler` runs one handler without any queue, and lets
its exception through.
"""

from __future__ import annotations

import threading
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, overload
from unittest import mock

from babelqueue_redis import entropy, hooks
from babelqueue_redis.aio.consumer import AsyncRedisConsumer
from babelqueue_redis.aio.publisher import AsyncRedisPublisher
from babelqueue_redis.core.publishing import message_of, publication
from babelqueue_redis.core.routing import deliver
from babelqueue_redis.envelope import with_attempts
from babelqueue_redis.errors import ConfigurationError
from babelqueue_redis.sync.consumer import RedisConsumer
from babelqueue_redis.sync.publisher import RedisPublisher
from babelqueue_redis.testing.backend import AsyncDriver, Driver, MemoryLayout
from babelqueue_redis.testing.queues import MemoryMessage, MemoryQueue
from babelqueue_redis.values import Delivery, Outcome, Reservation

__all__ = ["MemoryMessage", "MemoryQueue", "MemoryQueues", "call_handler", "in_memory"]

_PARTS = ("_outbox", "_settler", "_heartbeat", "feed")
_SHELLS = (RedisPublisher, RedisConsumer, AsyncRedisPublisher, AsyncRedisConsumer)


class MemoryQueues(dict[str, MemoryQueue]):
    """The queues by name; a dead-letter queue is one like any other."""

    def __missing__(self, name: str) -> MemoryQueue:
        """Make a queue when it is first asked for."""
        return self.setdefault(name, MemoryQueue(name))

    @overload
    def drain(self, consumer: RedisConsumer, limit: int = 1000) -> list[Outcome]: ...
    @overload
    def drain(
        self, consumer: AsyncRedisConsumer, limit: int = 1000
    ) -> Coroutine[Any, Any, list[Outcome]]: ...
    def drain(self, consumer: RedisConsumer | AsyncRedisConsumer, limit: int = 1000) -> Any:
        """Let a consumer handle all there is, its retries and delayed messages included.

        Args:
            consumer: One that :func:`in_memory` was given.
            limit: How many deliveries may be needed.

        Returns:
            What became of each; to be awaited for an asyncio consumer.

        Raises:
            AssertionError: It took more than ``limit`` deliveries.
            ConfigurationError: The consumer is not in memory.
        """
        if not isinstance(getattr(consumer, "_driver", None), Driver):
            msg = "give the consumer to in_memory() first"
            raise ConfigurationError(msg)
        if isinstance(consumer, AsyncRedisConsumer):
            return self._drain_async(consumer, limit)
        outcomes: list[Outcome] = []
        while (outcome := consumer.poll(0)) is not None:
            _add(outcomes, outcome, limit)
        return outcomes

    async def _drain_async(self, consumer: AsyncRedisConsumer, limit: int) -> list[Outcome]:
        outcomes: list[Outcome] = []
        while (outcome := await consumer.poll(0)) is not None:
            _add(outcomes, outcome, limit)
        return outcomes


def _add(outcomes: list[Outcome], outcome: Outcome, limit: int) -> None:
    outcomes.append(outcome)
    if len(outcomes) > limit:
        msg = f"not drained by {limit} deliveries; the last one was {outcome}"
        raise AssertionError(msg)


@contextmanager
def in_memory(*shells: Any) -> Iterator[MemoryQueues]:
    """Move publishers and consumers into memory for the length of a ``with``.

    Args:
        shells: Publishers and consumers, of either shell.

    Raises:
        ConfigurationError: One of them is something else.
    """
    queues = MemoryQueues()
    lock = threading.Lock()
    with ExitStack() as stack:
        for shell in shells:
            if not isinstance(shell, _SHELLS):
                msg = f"in_memory() takes publishers and consumers; got {shell!r}"
                raise ConfigurationError(msg)
            is_async = isinstance(shell, AsyncRedisPublisher | AsyncRedisConsumer)
            driver = AsyncDriver() if is_async else Driver()
            layout = MemoryLayout(queues, lock, shell._options)  # noqa: SLF001 - ours
            for part in (shell, *(getattr(shell, name, shell) for name in _PARTS)):
                for name, value in (("_driver", driver), ("driver", driver), ("_layout", layout)):
                    if hasattr(part, name):
                        stack.enter_context(mock.patch.object(part, name, value))
        yield queues


@overload
def call_handler(
    consumer: RedisConsumer,
    urn: str,
    data: Mapping[str, Any],
    *,
    headers: Mapping[str, str] | None = None,
    attempts: int = 0,
) -> None: ...
@overload
def call_handler(
    consumer: AsyncRedisConsumer,
    urn: str,
    data: Mapping[str, Any],
    *,
    headers: Mapping[str, str] | None = None,
    attempts: int = 0,
) -> Coroutine[Any, Any, None]: ...
def call_handler(
    consumer: RedisConsumer | AsyncRedisConsumer,
    urn: str,
    data: Mapping[str, Any],
    *,
    headers: Mapping[str, str] | None = None,
    attempts: int = 0,
) -> Any:
    """Run the handler that a message would be routed to, as its delivery would.

    Await the result for an asyncio consumer. Nothing is stored, retried or dead-lettered.

    Args:
        consumer: Whose handler.
        urn: The message's.
        data: The message's.
        headers: The message's; dropped in the zset layout.
        attempts: How often it was tried before.

    Raises:
        UnknownUrnError: No handler takes it.
        PayloadError: The data is not of the type that the handler asked for.
        EnvelopeError, HeaderError: It is no message.
        Exception: Whatever the handler raises.
    """
    options, destination = consumer._options, consumer._destination  # noqa: SLF001 - ours
    made = publication(
        destination,
        urn,
        data,
        trace_id=None,
        headers=headers,
        meta=None,
        message_id=entropy.new_id(),
        now_ms=entropy.epoch_ms(),
    )
    body, kept = message_of(made, entropy.new_id())
    body, kept = with_attempts(body, attempts), {} if options.layout == "zset" else kept
    reservation = Reservation(options.queue, body, kept, entropy.new_token(), body)
    delivery = deliver(reservation, destination, consumer._routes, options)  # noqa: SLF001 - ours
    if isinstance(consumer, AsyncRedisConsumer):
        return _call_async(consumer, delivery)
    with hooks.processing(delivery):
        return consumer._lane.run(delivery)  # noqa: SLF001 - ours


async def _call_async(consumer: AsyncRedisConsumer, delivery: Delivery) -> None:
    with hooks.processing(delivery):
        await consumer._lane.run(delivery)  # noqa: SLF001 - ours

"""What users test with: publishers and consumers in memory, in both shells, without a Redis."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from babelqueue_redis import (
    AsyncRedisConsumer,
    AsyncRedisPublisher,
    ConfigurationError,
    EnvelopeError,
    Outcome,
    PayloadError,
    RedisConsumer,
    RedisPublisher,
    UnknownUrnError,
    hooks,
)
from babelqueue_redis.testing import call_handler, in_memory

NOWHERE = "redis://127.0.0.1:1"


def both(layout: str = "legacy", **options: Any) -> tuple[RedisPublisher, RedisConsumer]:
    """Make a publisher and a consumer of one queue, on a server that is not there."""
    publisher = RedisPublisher(NOWHERE, "orders", layout=layout)
    return publisher, RedisConsumer(NOWHERE, "orders", layout=layout, **options)


def test_a_message_goes_round_in_memory() -> None:
    """Headers and all."""
    publisher, consumer = both()
    seen: list[Any] = []
    consumer.handler("urn:a")(lambda envelope, raw, headers: seen.append((envelope, raw, headers)))
    with in_memory(publisher, consumer) as queues:
        message_id = publisher.publish("urn:a", {"n": 1}, headers={"k": "v"})
        (waiting,) = queues["orders"].waiting
        assert waiting.envelope.meta.id == message_id
        assert queues.drain(consumer) == [Outcome.ACKED]
        queues["orders"].assert_published("urn:a", {"n": 1})
        assert queues["orders"].waiting == []
        assert queues["orders"].reserved == {}
    assert seen == [(waiting.envelope, waiting.body, {"k": "v"})]


def test_asyncio_objects_go_round_as_well() -> None:
    """With coroutines, and the same queues."""
    publisher = AsyncRedisPublisher(NOWHERE, "orders", layout="zset")
    consumer = AsyncRedisConsumer(NOWHERE, "orders", layout="zset")
    seen: list[Any] = []

    @consumer.handler("urn:a")
    async def handle(envelope: Any, raw: bytes, headers: Any) -> None:
        await asyncio.sleep(0)
        seen.append((envelope.data["n"], headers))

    async def main() -> None:
        with in_memory(publisher, consumer) as queues:
            await publisher.publish("urn:a", {"n": 2}, delay=600)
            await publisher.publish_many([("urn:a", {"n": 1})], headers={"k": "v"})
            assert await queues.drain(consumer) == [Outcome.ACKED] * 2
            assert await consumer.poll(60) is None
            await consumer.close()

    asyncio.run(main())
    assert seen == [(1, {}), (2, {})]


def test_failures_are_retried_and_dead_lettered_in_memory() -> None:
    """As on a Redis; a back-off is over at once."""
    publisher, consumer = both("zset", retry_backoff=600)
    attempts: list[int] = []

    @consumer.handler("urn:a")
    def fail(envelope: Any) -> None:
        attempts.append(envelope.attempts)
        raise ZeroDivisionError

    with in_memory(publisher, consumer) as queues:
        publisher.publish("urn:a", {})
        outcomes = queues.drain(consumer)
        assert outcomes == [Outcome.RETRIED, Outcome.RETRIED, Outcome.DEAD_LETTERED]
        (dead,) = queues["orders.dlq"].waiting
        assert dead.envelope.attempts == 3
        assert b'"reason":"failed"' in dead.body
        assert queues["orders.dlq"].published == []
    assert attempts == [0, 1, 2]


def test_dead_letters_are_bounded_in_memory_too() -> None:
    """The oldest go."""
    publisher, consumer = both(max_tries=1, dead_letter_max_length=2)
    with in_memory(publisher, consumer) as queues:
        ids = publisher.publish_many([("urn:unknown", {})] * 3)
        assert queues.drain(consumer) == [Outcome.DEAD_LETTERED] * 3
        assert [message.envelope.meta.id for message in queues["orders.dlq"].waiting] == ids[1:]


def test_a_worker_runs_in_memory() -> None:
    """Until it is stopped, and it stops when it is idle, too."""
    publisher, consumer = both(block_timeout=60)
    consumer.handler("urn:a")(lambda envelope: consumer.stop() if envelope.data["last"] else None)
    with in_memory(publisher, consumer):
        publisher.publish_many([("urn:a", {"last": False}), ("urn:a", {"last": True})])
        assert consumer.run() == 2
        assert consumer.poll() is None  # after a minute that nobody waits for
        left = iter([True, True, False])
        assert consumer.run(lambda: next(left)) == 0


def test_everything_goes_back_to_redis_afterwards() -> None:
    """Even when the test failed."""
    publisher, consumer = both()
    parts = [publisher, consumer, consumer._settler, consumer._worker]
    before = [dict(vars(part)) for part in parts]

    def fail() -> None:
        with in_memory(publisher, consumer):
            assert dict(vars(consumer)) != before[1]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert [dict(vars(part)) for part in parts] == before


def test_what_was_not_published_is_told_with_what_was() -> None:
    """An assertion that explains itself."""
    publisher, _ = both()
    with in_memory(publisher) as queues:
        queues["orders"].assert_published("urn:a", times=0)
        publisher.publish("urn:a", {"n": 1})
        publisher.publish("urn:a", {"n": 2})
        queues["orders"].assert_published("urn:a", times=2)
        queues["orders"].assert_published("urn:a", {"n": 2})
        with pytest.raises(AssertionError, match="2 messages 'urn:a'"):
            queues["orders"].assert_published("urn:a")
        with pytest.raises(AssertionError, match=r"\{'n': 1\}"):
            queues["orders"].assert_published("urn:a", {"n": 3})
        with pytest.raises(AssertionError, match="'urn:a'"):
            queues["orders"].assert_published("urn:b")


def test_a_message_that_never_goes_away_does_not_hang_a_test() -> None:
    """It says what goes on."""
    publisher, consumer = both(unknown_urn="release")
    with in_memory(publisher, consumer) as queues:
        publisher.publish("urn:a", {})
        with pytest.raises(AssertionError, match="released"):
            queues.drain(consumer, limit=10)


def test_what_cannot_be_moved_is_refused() -> None:
    """And draining what was not moved."""
    _, consumer = both()
    with pytest.raises(ConfigurationError), in_memory(object()):
        pass
    with in_memory() as queues, pytest.raises(ConfigurationError, match="in_memory"):
        queues.drain(consumer)


class Order(msgspec.Struct):
    """A payload."""

    order_id: int


def test_a_handler_is_called_inline() -> None:
    """Routed, typed, with its headers and count; its exception comes through."""
    _, consumer = both()
    seen: list[Any] = []

    @consumer.handler("urn:a", payload=Order)
    def handle(envelope: Any, raw: bytes, headers: Any) -> None:
        seen.append((envelope.data, envelope.attempts, headers))
        if envelope.data.order_id < 0:
            raise ZeroDivisionError

    call_handler(consumer, "urn:a", {"order_id": 7}, headers={"k": "v"}, attempts=2)
    assert seen == [(Order(7), 2, {"k": "v"})]
    with pytest.raises(ZeroDivisionError):
        call_handler(consumer, "urn:a", {"order_id": -7})
    with pytest.raises(PayloadError, match="order_id"):
        call_handler(consumer, "urn:a", {})
    with pytest.raises(UnknownUrnError):
        call_handler(consumer, "urn:b", {})
    with pytest.raises(EnvelopeError):
        call_handler(consumer, "", {})


def test_an_asyncio_handler_is_called_inline() -> None:
    """When the call is awaited, inside the hooks."""
    consumer = AsyncRedisConsumer(NOWHERE, "orders", layout="zset")
    seen: list[Any] = []

    @consumer.handler("urn:a")
    async def handle(envelope: Any, raw: bytes, headers: Any) -> None:
        seen.append(headers)

    class Seeing(hooks.Hook):
        def processing(self, delivery: Any) -> Any:
            seen.append(delivery.message_id)
            return super().processing(delivery)

    hook = Seeing()
    hooks.register(hook)
    try:
        asyncio.run(call_handler(consumer, "urn:a", {}, headers={"k": "v"}))
    finally:
        hooks.unregister(hook)
    assert seen == [seen[0], {}]
    assert len(seen[0]) == 36

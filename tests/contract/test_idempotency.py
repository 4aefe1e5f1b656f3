"""A handler made idempotent runs once for each message, in both shells."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from babelqueue_redis import (
    AsyncRedisSeenStore,
    ConfigurationError,
    Envelope,
    Outcome,
    RedisConsumer,
    RedisSeenStore,
    TransportError,
    idempotent,
)
from tests.support.marks import both_shells
from tests.support.server import Client
from tests.support.shells import Shell
from tests.support.store import Store

pytestmark = both_shells


@pytest.fixture
def seen_store(
    kind: str, shell: Shell, redis_url: str, queue: str, client: Client
) -> Iterator[Any]:
    """A store whose keys are gone afterwards."""
    prefix = f"seen:{queue.removeprefix('bq-test-')}:"
    made: Any = RedisSeenStore if kind == "sync" else AsyncRedisSeenStore
    store = made(redis_url, key_prefix=prefix)
    yield store
    if kind == "sync":
        store.close()
    for other in shell._made:
        other._loop.run_until_complete(store.close())
    client.delete(*client.keys(f"{prefix}*") or ["none"])


Make = Callable[..., RedisConsumer]


def test_a_second_delivery_does_not_run(
    publisher: Any, consumer_of: Make, seen_store: Any, store: Store
) -> None:
    """It is acked."""
    seen: list[Any] = []
    consumer = consumer_of({"urn:a": idempotent(lambda e: seen.append(e.data), seen_store)})
    publisher.publish("urn:a", {"n": 1})
    (body,) = store.ready()
    store.push(body)
    publisher.publish("urn:a", {"n": 2})
    assert [consumer.poll(0) for _ in range(3)] == [Outcome.ACKED] * 3
    assert seen == [{"n": 1}, {"n": 2}]


def test_a_failure_is_not_remembered(publisher: Any, consumer_of: Make, seen_store: Any) -> None:
    """Its retry runs, and then no other."""
    seen: list[int] = []

    def handle(envelope: Envelope, raw: bytes, headers: Any) -> None:
        seen.append(envelope.attempts)
        assert raw
        if envelope.attempts < 2:
            raise ValueError

    consumer = consumer_of({"urn:a": idempotent(handle, seen_store)}, max_tries=5)
    publisher.publish("urn:a", {})
    outcomes = [consumer.poll(0) for _ in range(3)]
    assert outcomes == [Outcome.RETRIED, Outcome.RETRIED, Outcome.ACKED]
    assert seen == [0, 1, 2]


def test_what_a_store_forgets_runs_again(redis_url: str, queue: str, client: Client) -> None:
    """And it forgets by itself after its time."""
    prefix = f"seen:{queue}:"
    store = RedisSeenStore(redis_url, key_prefix=prefix, ttl=60)
    assert not store.seen("a")
    store.remember("a")
    assert store.seen("a")
    assert 0 < client.ttl(f"{prefix}a") <= 60
    store.forget("a")
    assert not store.seen("a")
    store.close()


def test_coroutines_and_plain_functions_are_awaited_as_they_need(redis_url: str) -> None:
    """With a store of coroutines."""
    seen: list[str] = []

    class Memory(dict[str, bool]):
        async def seen(self, message_id: str) -> bool:
            return message_id in self

        async def remember(self, message_id: str) -> None:
            self[message_id] = True

    async def late(envelope: Envelope) -> None:
        await asyncio.sleep(0)
        seen.append("late")

    async def main() -> None:
        from babelqueue_redis import Meta  # noqa: PLC0415

        store = Memory()
        handlers = (late, lambda envelope: seen.append("plain"), lambda envelope: late(envelope))  # noqa: PLW0108 - hides what it is
        for i, handler in enumerate(handlers):
            wrapped = idempotent(handler, store)
            for _ in range(2):
                await wrapped(Envelope("urn:a", meta=Meta(id=str(i))), b"", {})

    asyncio.run(main())
    assert seen == ["late", "plain", "late"]


def test_a_store_that_fails_before_the_run_fails_the_message(
    publisher: Any, consumer_of: Make
) -> None:
    """Nothing ran, so it is retried."""

    class Broken:
        def seen(self, message_id: str) -> bool:
            raise TransportError

        def remember(self, message_id: str) -> None: ...

    consumer = consumer_of({"urn:a": idempotent(lambda envelope: None, Broken())})
    publisher.publish("urn:a", {})
    assert consumer.poll(0) is Outcome.RETRIED


def test_a_store_whose_answer_would_have_to_be_awaited_runs_nothing(
    publisher: Any, consumer_of: Make
) -> None:
    """An awaitable would always be true, and every message be acked without a run."""

    async def no() -> bool:
        return False

    class Wrapping:
        def seen(self, message_id: str) -> Any:
            return no()

        def remember(self, message_id: str) -> None: ...

    runs: list[Any] = []
    consumer = consumer_of({"urn:a": idempotent(runs.append, Wrapping())})
    publisher.publish("urn:a", {})
    assert consumer.poll(0) is Outcome.RETRIED
    assert runs == []


def test_a_signature_that_a_handler_claims_is_not_taken_over(redis_url: str) -> None:
    """A consumer sees the three parameters that the wrapper has."""

    def handle(envelope: Envelope) -> None: ...

    handle.__signature__ = inspect.signature(lambda envelope: None)  # type: ignore[attr-defined]
    wrapped = idempotent(handle, RedisSeenStore(redis_url))
    assert len(inspect.signature(wrapped).parameters) == 3
    assert wrapped.__name__ == "handle"


def test_a_store_that_fails_after_the_run_does_not_run_it_again(
    publisher: Any, consumer_of: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """The work is done: the message is acked, and the log says what is missing."""

    class Broken:
        def seen(self, message_id: str) -> bool:
            return False

        def remember(self, message_id: str) -> None:
            raise TransportError

    consumer = consumer_of({"urn:a": idempotent(lambda envelope: None, Broken())})
    message_id = publisher.publish("urn:a", {})
    with caplog.at_level(logging.ERROR):
        assert consumer.poll(0) is Outcome.ACKED
    assert message_id in caplog.text


def test_what_cannot_work_is_refused_at_once(redis_url: str) -> None:
    """When the handler is made."""

    async def late(envelope: Envelope) -> None: ...

    store = RedisSeenStore(redis_url)
    with pytest.raises(ConfigurationError, match="asyncio store"):
        idempotent(late, store)
    with pytest.raises(TypeError):
        idempotent(lambda: None, store)
    for ttl in (0, -1, 0.5, float("nan"), "week"):
        with pytest.raises(ConfigurationError, match="ttl"):
            RedisSeenStore(redis_url, ttl=ttl)  # type: ignore[arg-type]
    for prefix in (None, 5, "\ud800"):
        with pytest.raises(ConfigurationError, match="key_prefix"):
            RedisSeenStore(redis_url, key_prefix=prefix)  # type: ignore[arg-type]

"""``dead_letter_max_length``: how many dead letters a queue keeps."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable

import pytest

from babelqueue_carrier import unframe
from babelqueue_redis import Outcome, RedisConsumer, RedisPublisher
from tests.support.handlers import fail
from tests.support.marks import both_layouts, both_shells
from tests.support.server import Client
from tests.support.store import Store

pytestmark = [both_layouts, both_shells]

Make = Callable[..., RedisConsumer]


def tokens(client: Client, store: Store) -> int:
    """Count the wake-up tokens of the dead-letter queue."""
    count: int = client.llen(f"{store.dead_key}:notify")
    return count


def test_the_oldest_dead_letters_go_when_one_more_is_added(
    publisher: RedisPublisher,
    consumer_of: Make,
    store: Store,
    client: Client,
    queue: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In the settlement itself, with their tokens; how many and where is in the log."""
    consumer = consumer_of(
        {"urn:a": fail}, max_tries=1, dead_letter_max_length=3, on_error=lambda *_: None
    )
    for n in range(3):
        publisher.publish("urn:a", {"n": n}, headers={"k": "v"})
        assert consumer.poll(0) is Outcome.DEAD_LETTERED
    assert caplog.records == []
    store.push(b"poison")
    publisher.publish("urn:a", {"n": 4})
    with caplog.at_level(logging.WARNING):
        assert consumer.poll(0) is consumer.poll(0) is Outcome.DEAD_LETTERED
    kept = [json.loads(unframe(dead)[0]) for dead in store.dead()]
    assert [dead["dead_letter"]["reason"] for dead in kept] == ["failed", "poison", "failed"]
    assert [dead.get("data") for dead in kept] == [{"n": 2}, None, {"n": 4}]
    assert store.counts() == {"dead": 3}
    assert tokens(client, store) == (3 if store.layout == "zset" else 0)
    expected = f"dead letters dropped from queue '{queue}.dlq', the oldest: 1; it keeps 3 "
    told = [record.getMessage() for record in caplog.records]
    assert told == [expected + "(dead_letter_max_length)"] * 2


def test_a_long_dead_letter_queue_becomes_short_in_steps(
    publisher: RedisPublisher, consumer_of: Make, store: Store, client: Client
) -> None:
    """No settlement removes more than 1 000: it holds everybody up meanwhile."""
    client.rpush(store.dead_key, *[f"old {i}" for i in range(1500)])
    client.rpush(f"{store.dead_key}:notify", *[1] * 1500)
    consumer = consumer_of(
        {"urn:a": fail}, max_tries=1, dead_letter_max_length=2, on_error=lambda *_: None
    )
    for left in (501, 2):
        publisher.publish("urn:a", {"left": left})
        assert consumer.poll(0) is Outcome.DEAD_LETTERED
        assert len(store.dead()) == left
        assert tokens(client, store) == (left if store.layout == "zset" else 1500)
    assert [json.loads(dead)["data"]["left"] for dead in store.dead()] == [501, 2]
    client.delete(f"{store.dead_key}:notify")


def test_what_is_no_dead_letter_is_never_dropped(
    publisher: RedisPublisher, consumer_of: Make, store: Store
) -> None:
    """A retry and a message given back go into queues of any length."""
    consumer = consumer_of(
        {"urn:a": fail}, dead_letter_max_length=1, unknown_urn="release", on_error=lambda *_: None
    )
    publisher.publish_many([("urn:a", {}), ("urn:b", {}), ("urn:b", {})])
    assert [consumer.poll(0) for _ in range(3)] == [
        Outcome.RETRIED,
        Outcome.RELEASED,
        Outcome.RELEASED,
    ]
    assert store.counts() == {"ready": 3}

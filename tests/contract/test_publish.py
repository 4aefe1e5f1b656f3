from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
import redis

from babelqueue_redis import (
    BabelQueueError,
    ConfigurationError,
    EnvelopeError,
    HeaderError,
    PublishError,
    RedisConsumer,
    RedisPublisher,
)
from babelqueue_redis.verdict import accepts
from tests.support.marks import both_shells
from tests.support.server import Client

pytestmark = both_shells


def test_a_publish_stores_the_bare_envelope(
    publisher: RedisPublisher, client: Client, queue: str
) -> None:
    """The element in the list is what the contract names, and the id is its ``meta.id``."""
    message_id = publisher.publish("urn:a", {"n": 1.0})
    (stored,) = client.lrange(queue, 0, -1)
    assert accepts(stored)
    document = json.loads(stored)
    assert list(document) == ["job", "trace_id", "data", "meta", "attempts"]
    assert document["meta"]["id"] == message_id == str(uuid.UUID(message_id))
    assert str(uuid.UUID(document["trace_id"])) == document["trace_id"]
    assert document["meta"]["queue"] == queue
    assert document["meta"]["lang"] == "python"
    assert b'"data":{"n":1.0}' in stored


def test_headers_are_framed_and_meta_is_added(
    publisher: RedisPublisher, client: Client, queue: str
) -> None:
    """Beside the envelope, and inside it."""
    publisher.publish(
        " urn:a\t",
        {},
        trace_id=" chain-7 ",
        headers={"tenant": "acme", "": "x", "blank": ""},
        meta={"ext": {"acme": {"tier": "gold"}}},
        delay=0,
    )
    frame = json.loads(client.lindex(queue, 0))
    assert frame["__bq_frame"] == 1
    assert frame["headers"] == {"tenant": "acme"}
    document = json.loads(frame["body"])
    assert document["job"] == "urn:a"
    assert document["trace_id"] == "chain-7"
    assert document["meta"]["ext"] == {"acme": {"tier": "gold"}}


def test_a_batch_is_stored_in_order_in_one_command(private_client: Client) -> None:
    """All of them or none."""
    client, queue = private_client, "orders"
    publisher = RedisPublisher(client, queue)
    ids = publisher.publish_many([(f"urn:{i}", {"i": i}) for i in range(1000)])
    assert client.info("commandstats")["cmdstat_rpush"]["calls"] == 1
    stored = [json.loads(element) for element in client.lrange(queue, 0, -1)]
    assert [document["meta"]["id"] for document in stored] == ids
    assert [document["data"]["i"] for document in stored] == list(range(1000))
    assert len({document["trace_id"] for document in stored}) == 1000


def test_a_batch_shares_headers_and_chain(
    publisher: RedisPublisher, client: Client, queue: str
) -> None:
    """Where they are given."""
    publisher.publish_many([("urn:a", {}), ("urn:b", {})], headers={"k": "v"}, trace_id="chain")
    frames = [json.loads(element) for element in client.lrange(queue, 0, -1)]
    assert [frame["headers"] for frame in frames] == [{"k": "v"}, {"k": "v"}]
    assert {json.loads(frame["body"])["trace_id"] for frame in frames} == {"chain"}


def test_an_empty_batch_sends_nothing(private_client: Client) -> None:
    """There is nothing to store."""
    assert RedisPublisher(private_client, "orders").publish_many([]) == []
    assert "cmdstat_rpush" not in private_client.info("commandstats")


BAD: list[tuple[type[Exception], dict[str, Any]]] = [
    (EnvelopeError, {"urn": " "}),
    (EnvelopeError, {"urn": None}),
    (EnvelopeError, {"data": None}),
    (EnvelopeError, {"data": ["a"]}),
    (EnvelopeError, {"data": {"a": float("nan")}}),
    (EnvelopeError, {"data": {"a": ...}}),
    (EnvelopeError, {"meta": {"id": "mine"}}),
    (EnvelopeError, {"meta": {"a": ...}}),
    (EnvelopeError, {"trace_id": 5}),
    (EnvelopeError, {"trace_id": "\ud800"}),
    (HeaderError, {"headers": {"a": 1}}),
    (HeaderError, {"headers": {"a": None}}),
    (HeaderError, {"headers": "traceparent"}),
    (ConfigurationError, {"delay": 5}),
    (ConfigurationError, {"delay": -1}),
]


@pytest.mark.parametrize(("error", "bad"), BAD, ids=str)
def test_bad_input_is_a_clear_error_and_nothing_is_written(
    publisher: RedisPublisher, client: Client, queue: str, error: type[Exception], bad: Any
) -> None:
    """At the call."""
    with pytest.raises(error) as caught:
        publisher.publish(**{"urn": "urn:a", "data": {}, **bad})
    assert isinstance(caught.value, BabelQueueError)
    assert client.exists(queue) == 0


def test_one_bad_message_keeps_a_batch_out(
    publisher: RedisPublisher, client: Client, queue: str
) -> None:
    """All of them or none."""
    with pytest.raises(EnvelopeError):
        publisher.publish_many([("urn:a", {}), ("", {})])
    assert client.exists(queue) == 0


@pytest.mark.parametrize(
    "client_like", [None, 5, redis.asyncio.Redis(), b"redis://127.0.0.1", "http://127.0.0.1"]
)
def test_a_client_that_cannot_serve_is_refused(client_like: Any) -> None:
    """With what would."""
    with pytest.raises(ConfigurationError, match="Redis"):
        RedisPublisher(client_like, "orders")
    with pytest.raises(ConfigurationError, match="Redis"):
        RedisConsumer(client_like, "orders")


def test_an_unknown_option_is_an_error() -> None:
    """Ours, and redis-py's in a URL, which it would only tell at the first connection."""
    with pytest.raises(TypeError, match="lease"):
        RedisConsumer(redis.Redis(), "orders", lease=5)  # type: ignore[call-arg]
    with pytest.raises(ConfigurationError, match="scoket_timeout"):
        RedisPublisher("redis://127.0.0.1:6379/0?scoket_timeout=1", "orders")
    with pytest.raises(ConfigurationError, match="retry_after"):
        RedisConsumer("redis://127.0.0.1:6379/0?retry_after=1", "orders")
    with pytest.raises(ConfigurationError, match="layout"):
        RedisPublisher(redis.Redis(), "orders", layout="list")


def test_a_url_is_as_good_as_a_client(redis_url: str, client: Client, queue: str) -> None:
    """With redis-py's own options in it."""
    with RedisPublisher(f"{redis_url}?socket_timeout=5", queue) as publisher:
        publisher.publish("urn:a", {})
    assert client.llen(queue) == 1


def test_a_key_of_the_wrong_type_is_an_error_that_names_the_message(
    publisher: RedisPublisher, client: Client, queue: str
) -> None:
    """And the message is not stored."""
    client.set(queue, "a string")
    with pytest.raises(PublishError, match=queue) as caught:
        publisher.publish("urn:a", {})
    assert not caught.value.may_be_stored
    assert caught.value.message_id in str(caught.value)
    assert client.get(queue) == b"a string"

"""Dead letters of the reference SDK in our hands, and ours in its hands."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import babelqueue
import pytest
from babelqueue.redis_transport import RedisTransport
from babelqueue.redrive import redrive

from babelqueue_redis import Outcome, RedisConsumer, RedisPublisher, RedisQueue
from tests.support.handlers import fail
from tests.support.marks import both_layouts
from tests.support.server import Client
from tests.support.store import Store

pytestmark = both_layouts


@pytest.fixture
def sdk(client: Client, queue: str, layout: str) -> babelqueue.BabelQueue:
    """The SDK's app on the test's queue."""
    transport = RedisTransport(client=client, laravel_compat=layout == "zset")
    return babelqueue.BabelQueue(transport=transport, queue=queue, dead_letter=True, max_attempts=1)


@pytest.fixture
def operator(client: Client, queue: str, layout: str) -> RedisQueue:
    """The test's queue in an operator's hands."""
    return RedisQueue(client, queue, layout=layout)


def consume(sdk: babelqueue.BabelQueue) -> None:
    """Let the SDK handle one message."""
    sdk.consume(max_messages=1, timeout=0, handle_signals=False)


def test_dead_letters_of_the_sdk_go_back(
    sdk: babelqueue.BabelQueue, operator: RedisQueue, store: Store, queue: str
) -> None:
    """As it published them, headers included; its poison records stay."""
    sdk.register("urn:a", fail)
    sdk.publish_with_headers("urn:a", {"text": "é", "f": 1.0, "list": []}, {"k": "v"})
    published = store.ready()
    store.push(b"[junk")
    consume(sdk)
    consume(sdk)
    letter, poison = operator.peek(10, "dead")
    assert (letter.urn, letter.poison) == ("urn:a", None)
    assert (letter.dead_letter.reason, letter.dead_letter.original_queue) == ("failed", queue)
    assert poison.dead_letter.reason == "poison"
    done = operator.redrive()
    assert [moved.queue for moved in done.moved] == [queue]
    assert done.left == {"poison": 1}
    assert store.ready() == published
    assert store.dead() == [poison.stored]
    seen: list[Any] = []
    sdk.register("urn:a", lambda data, meta: seen.append((data, meta["id"])))
    consume(sdk)
    assert seen == [({"text": "é", "f": 1.0, "list": []}, letter.message_id)]
    assert store.counts() == {"dead": 1}


def test_the_sdk_handles_what_we_send_back(
    sdk: babelqueue.BabelQueue,
    publisher: RedisPublisher,
    consumer_of: Callable[..., RedisConsumer],
    operator: RedisQueue,
    store: Store,
) -> None:
    """Our dead letter, redriven by us, is a message like any other to it."""
    message_id = publisher.publish("urn:a", {"n": 2**53}, headers={"k": "v"})
    consumer = consumer_of({"urn:a": fail}, max_tries=1, on_error=print)
    assert consumer.poll(0) is Outcome.DEAD_LETTERED
    assert len(operator.redrive().moved) == 1
    seen: list[Any] = []
    sdk.register("urn:a", lambda data, meta: seen.append((data, meta["id"])))
    consume(sdk)
    assert seen == [({"n": 2**53}, message_id)]
    assert store.counts() == {}


def test_the_sdk_redrives_our_dead_letters(
    sdk: babelqueue.BabelQueue,
    publisher: RedisPublisher,
    consumer_of: Callable[..., RedisConsumer],
    store: Store,
    queue: str,
) -> None:
    """It reads our block; our poison record stays where it is."""
    message_id = publisher.publish("urn:a", {"n": 1})
    published = [json.loads(each) for each in store.ready()]
    store.push(b"[junk")
    consumer = consumer_of({"urn:a": fail}, max_tries=1, on_error=print)
    assert consumer.poll(0) is consumer.poll(0) is Outcome.DEAD_LETTERED
    poison = store.dead()[1]
    result = redrive(sdk.transport, f"{queue}.dlq", timeout=0)
    (item,) = [item for item in result.items if item.redriven]
    assert (item.message_id, item.reason, item.to) == (message_id, "failed", queue)
    assert [json.loads(each) for each in store.ready()] == published
    assert store.dead() == [poison]

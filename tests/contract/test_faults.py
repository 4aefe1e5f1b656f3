"""What becomes of messages when a link or a server fails, in both layouts and both shells."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from babelqueue_redis import (
    ConnectionLostError,
    Outcome,
    PublishError,
    RedisConsumer,
    RedisPublisher,
    SettlementError,
    lua,
)
from babelqueue_redis.core.command import Script
from kit.redis_server import free_port
from tests.support.handlers import fail
from tests.support.marks import both_layouts, both_shells
from tests.support.proxy import Proxy, proxy_to
from tests.support.server import Client
from tests.support.shells import Shell
from tests.support.store import Store

pytestmark = [both_layouts, both_shells]

Make = Callable[..., Any]
Start = Callable[..., str]


@pytest.fixture
def make(shell: Shell, queue: str, layout: str) -> Make:
    """Make a publisher or a consumer of the test's queue at any address."""

    def made(what: str, client: Any, *args: Any, **options: Any) -> Any:
        return shell.make(what, client, queue, *args, layout=layout, **options)

    return made


@pytest.fixture
def proxy(redis_url: str, client: Client) -> Iterator[Proxy]:
    """A link that can be cut, to a server that knows all scripts."""
    for script in vars(lua).values():
        if isinstance(script, Script):
            client.script_load(script.source)
    with proxy_to(redis_url) as made:
        yield made


def ignore(*_: object) -> None:
    """A handler, or an ``on_error``, that does nothing."""


def ids(elements: list[bytes]) -> list[str]:
    """Return the ids of bare envelopes."""
    return [json.loads(element)["meta"]["id"] for element in elements]


def test_a_publish_whose_reply_is_lost_is_one_clear_error_and_one_message(
    make: Make, shell: Shell, proxy: Proxy, store: Store
) -> None:
    """It carries the id, says that the message may be stored, and sends nothing again.

    Whatever the client that was given does by default.
    """
    publisher = make("publisher", shell.client(proxy.url))
    proxy.cut_before_the_reply_to(b"urn:lost", times=9)
    with pytest.raises(PublishError, match="may be stored") as caught:
        publisher.publish("urn:lost", {})
    assert proxy.requests_with(b"urn:lost") == 1
    assert ids(store.ready()) == [caught.value.message_id]
    assert caught.value.may_be_stored
    assert isinstance(caught.value.__cause__, ConnectionLostError)


def test_a_batch_whose_reply_is_lost_carries_all_ids(
    make: Make, proxy: Proxy, store: Store
) -> None:
    """In order."""
    publisher = make("publisher", proxy.url)
    proxy.cut_before_the_reply_to(b"urn:lost", times=9)
    with pytest.raises(PublishError, match="batch of 2") as caught:
        publisher.publish_many([("urn:lost", {}), ("urn:b", {})])
    assert ids(store.ready()) == list(caught.value.message_ids)


def test_a_publish_without_a_connection_was_not_stored(make: Make) -> None:
    """There is no doubt about it."""
    publisher = make("publisher", f"redis://127.0.0.1:{free_port()}")
    with pytest.raises(PublishError, match="was not stored") as caught:
        publisher.publish("urn:a", {})
    assert not caught.value.may_be_stored


def test_the_next_publish_after_a_lost_link_works(make: Make, proxy: Proxy, store: Store) -> None:
    """A broken connection is not used again, and no stale reply is read."""
    publisher = make("publisher", proxy.url)
    proxy.cut_before_the_reply_to(b"urn:lost")
    with pytest.raises(PublishError):
        publisher.publish("urn:lost", {})
    publisher.publish("urn:b", {})
    assert store.counts() == {"ready": 2}


def test_a_reserve_whose_reply_is_lost_comes_back_after_one_lease_once(
    make: Make, proxy: Proxy, publisher: RedisPublisher, store: Store
) -> None:
    """The message is reserved, not lost."""
    handled: list[Any] = []
    consumer = make("consumer", proxy.url, {"urn:a": handled.append}, retry_after=1)
    publisher.publish("urn:a", {})
    proxy.cut_before_the_reply_to(b"EVALSHA")
    with pytest.raises(ConnectionLostError):
        consumer.poll(0)
    assert store.counts() == {"reserved": 1}
    assert consumer.poll(60) is Outcome.ACKED
    assert consumer.poll(0) is None
    assert len(handled) == 1


@pytest.mark.parametrize("urn", ["urn:good", "urn:bad", "urn:dead", "urn:unknown"])
def test_a_settlement_whose_reply_is_lost_has_happened_once(
    make: Make, proxy: Proxy, publisher: RedisPublisher, store: Store, urn: str
) -> None:
    """It is an error, nothing is sent again, and the message is in one place or gone."""
    handlers = {"urn:good": ignore, "urn:bad": fail, "urn:dead": fail}
    consumer = make(
        "consumer",
        proxy.url,
        handlers,
        on_error=ignore,
        unknown_urn="release",
        max_tries=1 if urn == "urn:dead" else 3,
    )
    message_id = publisher.publish(urn, {})
    reservation = consumer.reserve(0)
    assert reservation is not None
    proxy.cut_before_the_reply_to(message_id.encode(), times=9)
    with pytest.raises(SettlementError, match="not confirmed to be") as caught:
        consumer.handle(reservation)
    assert caught.value.message_id == message_id
    assert proxy.requests_with(message_id.encode()) == 1
    where: dict[str, dict[str, int]] = {"urn:good": {}, "urn:dead": {"dead": 1}}
    assert store.counts() == where.get(urn, {"ready": 1})


def test_scripts_may_be_flushed_between_any_two_calls(
    publisher: RedisPublisher, consumer_of: Make, store: Store
) -> None:
    """A server that forgot a script is given its source."""
    consumer = consumer_of(
        {"urn:good": ignore, "urn:bad": fail}, on_error=ignore, unknown_urn="release"
    )
    outcomes = []
    for urn in ("urn:good", "urn:bad", "urn:unknown"):
        store.client.script_flush()
        publisher.publish(urn, {})
        store.client.script_flush()
        reservation = consumer.reserve(0)
        store.client.script_flush()
        outcomes.append(consumer.handle(reservation))
        assert store.reserved() == []
        store.client.delete(store.ready_key, f"{store.ready_key}:delayed")
    assert outcomes == [Outcome.ACKED, Outcome.RETRIED, Outcome.RELEASED]


def test_at_maxmemory_the_queue_drains_and_publish_raises(
    make: Make, own_server: Start, queue: str, layout: str
) -> None:
    """Reserves, acks, retries and dead letters go on."""
    url = own_server("--maxmemory-policy", "noeviction")
    client = redis.Redis.from_url(url)
    store = Store(client, queue, layout)
    publisher = make("publisher", url)
    for urn in ("urn:good", "urn:bad", "urn:unknown"):
        publisher.publish(urn, {"filler": "x" * 1000})
    store.push(b"poison")
    client.config_set("maxmemory", 1)
    with pytest.raises(PublishError, match="maxmemory") as caught:
        publisher.publish("urn:good", {})
    assert not caught.value.may_be_stored
    handlers = {"urn:good": ignore, "urn:bad": fail}
    consumer = make("consumer", url, handlers, max_tries=2, on_error=ignore)
    outcomes = []
    while outcome := consumer.poll(0.01):
        outcomes.append(outcome)
    assert outcomes == [
        Outcome.ACKED,
        Outcome.RETRIED,
        Outcome.RETRIED,
        Outcome.DEAD_LETTERED,
        Outcome.DEAD_LETTERED,
        Outcome.DEAD_LETTERED,
    ]
    assert store.counts() == {"dead": 3}


def test_at_maxmemory_a_crash_is_recovered_from(make: Make, own_server: Start) -> None:
    """At the worst moment, too."""
    url = own_server("--maxmemory-policy", "noeviction")
    make("publisher", url).publish("urn:a", {})
    assert make("consumer", url, retry_after=0).reserve(0)
    redis.Redis.from_url(url).config_set("maxmemory", 1)
    assert make("consumer", url, {"urn:a": ignore}).poll(5) is Outcome.ACKED


def test_a_demoted_master_is_left(make: Make, own_server: Start) -> None:
    """The next command connects anew, and asks the name again."""
    url = own_server()
    admin = redis.Redis.from_url(url)
    publisher = make("publisher", url)
    publisher.publish("urn:a", {})
    connected = admin.info("stats")["total_connections_received"]
    admin.replicaof("127.0.0.1", free_port())
    with pytest.raises(PublishError, match="read only") as caught:
        publisher.publish("urn:a", {})
    assert not caught.value.may_be_stored
    admin.replicaof("NO", "ONE")
    publisher.publish("urn:a", {})
    assert admin.info("stats")["total_connections_received"] == connected + 1


@pytest.mark.parametrize(
    "options",
    [
        {"decode_responses": True},
        {"decode_responses": True, "encoding": "latin-1"},
        {"protocol": 3},
        {"protocol": 3, "decode_responses": True},
        {"socket_timeout": 1},
        {"health_check_interval": 1},
        {"retry_on_timeout": True},
        {"client_name": "worker", "db": 3},
    ],
    ids=str,
)
def test_clients_of_every_kind_serve(
    make: Make, shell: Shell, redis_url: str, queue: str, layout: str, options: dict[str, Any]
) -> None:
    """The driver makes connections of its own; what the client decodes does not matter."""
    store = Store(redis.Redis.from_url(redis_url, db=options.get("db", 0)), queue, layout)
    given = shell.client(redis_url, **options)
    seen: list[bytes] = []
    consumer: RedisConsumer = make(
        "consumer", given, {"urn:a": lambda _, raw: seen.append(raw)}, on_error=ignore
    )
    make("publisher", given).publish("urn:a", {"text": "é"}, headers={"k": "ü"})
    store.push(b"\xff")
    assert consumer.poll(0) is Outcome.ACKED
    assert consumer.poll(0) is Outcome.DEAD_LETTERED
    assert consumer.poll(0.01) is None
    assert type(seen[0]) is bytes
    assert "é".encode() in seen[0]
    assert store.counts() == {"dead": 1}
    store.client.delete(store.dead_key, f"{store.dead_key}:notify")


def test_a_wait_longer_than_the_socket_timeout_is_sliced(
    make: Make, shell: Shell, redis_url: str
) -> None:
    """``poll`` returns ``None`` when its own time is up, without an exception."""
    consumer = make("consumer", shell.client(redis_url, socket_timeout=0.2))
    start = time.monotonic()
    assert consumer.poll(1) is None
    assert time.monotonic() - start >= 1


def test_the_shortest_wait_ends(consumer_of: Make) -> None:
    """Redis 6.2 would take a millisecond for ever."""
    consumer = consumer_of()
    assert [consumer.poll(0.0001 * n) for n in range(1, 20)] == [None] * 19

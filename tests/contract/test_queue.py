"""``RedisQueue``: counts, peek, purge."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from babelqueue_redis import (
    CommandRefusedError,
    ConfigurationError,
    Counts,
    Outcome,
    RedisConsumer,
    RedisPublisher,
    RedisQueue,
    TransportError,
)
from tests.support.handlers import fail
from tests.support.marks import both_layouts, both_shells
from tests.support.server import Client
from tests.support.shells import Shell
from tests.support.store import Store

pytestmark = [both_layouts, both_shells]

Make = Callable[..., RedisConsumer]


@pytest.fixture
def operator(shell: Shell, redis_url: str, queue: str, layout: str) -> RedisQueue:
    """The test's queue in an operator's hands."""
    made: RedisQueue = shell.make("queue", redis_url, queue, layout=layout)
    return made


def quiet(*_: object) -> None:
    """An ``on_error`` that says nothing."""


def test_counts_tell_where_every_message_is(
    operator: RedisQueue,
    publisher: RedisPublisher,
    consumer_of: Make,
    store: Store,
    client: Client,
    layout: str,
) -> None:
    """The same names in both layouts; of the reserved ones, how many are overdue."""
    assert operator.counts() == Counts(0, 0, 0, 0, 0)
    publisher.publish("urn:a", {})
    assert consumer_of({"urn:a": fail}, max_tries=1, on_error=quiet).poll(0)
    publisher.publish_many([("urn:a", {"n": n}) for n in range(5)])
    delayed = 2 if layout == "zset" else 0
    for _ in range(delayed):
        publisher.publish("urn:a", {}, delay=1000)
    consumer = consumer_of()
    assert all(consumer.reserve(0) for _ in range(3))
    store.expire()
    member = client.zrange(store.deadlines_key, 0, 0)[0]
    client.zadd(store.deadlines_key, {member: 1 << 40})
    assert operator.counts() == Counts(ready=2, delayed=delayed, reserved=3, dead=1, overdue=2)


def test_a_reserved_message_without_a_deadline_is_counted(
    operator: RedisQueue, client: Client, store: Store, layout: str
) -> None:
    """It is stuck, and an operator has to see it."""
    if layout == "legacy":
        client.rpush(store.reserved_key, b"stuck")
    else:
        client.zadd(store.reserved_key, {b"stuck": "+inf"})
    assert operator.counts() == Counts(ready=0, delayed=0, reserved=1, dead=0, overdue=0)


def test_peek_shows_the_next_messages_and_takes_none(
    operator: RedisQueue, publisher: RedisPublisher, store: Store, client: Client, layout: str
) -> None:
    """In order, with everything a handler would be given; poison says why."""
    headers = {"k": "v"} if layout == "legacy" else {}
    message_id = publisher.publish("urn:a", {"secret": 1}, headers={"k": "v"})
    store.push(b"no json")
    publisher.publish("urn:b", {})
    before = store.ready(), client.llen(f"{store.ready_key}:notify")
    (first,) = operator.peek()
    assert first.envelope is not None
    assert (first.state, first.urn, first.message_id) == ("ready", "urn:a", message_id)
    assert (first.envelope.data, first.headers, first.poison) == ({"secret": 1}, headers, None)
    assert first.stored == store.ready()[0]
    assert json.loads(first.body)["meta"]["id"] == message_id
    assert first.dead_letter.reason == ""
    assert "secret" not in repr(first)
    again, poison, last = operator.peek(1000)
    assert again == first
    assert (poison.body, poison.envelope, poison.urn, poison.message_id) == (
        b"no json",
        None,
        "",
        "",
    )
    assert poison.poison is not None
    assert poison.poison.startswith("it is not one JSON object")
    assert last.urn == "urn:b"
    assert [message.urn for message in operator.peek(2)] == ["urn:a", ""]
    assert before == (store.ready(), client.llen(f"{store.ready_key}:notify"))


def test_peek_looks_at_every_state(
    operator: RedisQueue,
    publisher: RedisPublisher,
    consumer_of: Make,
    store: Store,
    queue: str,
    layout: str,
) -> None:
    """What waits, what is kept back, what is being handled, what is dead."""
    for state in ("ready", "delayed", "reserved", "dead"):
        assert operator.peek(10, state) == []
    store.push(b"\xff")
    publisher.publish("urn:dead", {}, headers={"k": "v"})
    consumer = consumer_of({"urn:dead": fail}, max_tries=1, on_error=quiet)
    assert consumer.poll(0) is consumer.poll(0) is Outcome.DEAD_LETTERED
    publisher.publish("urn:reserved", {})
    assert consumer.reserve(0)
    if layout == "zset":
        publisher.publish("urn:later", {}, delay=2000)
        publisher.publish("urn:sooner", {}, delay=1000)
    publisher.publish("urn:ready", {})
    assert [message.urn for message in operator.peek(10)] == ["urn:ready"]
    later = ["urn:sooner", "urn:later"] if layout == "zset" else []
    assert [message.urn for message in operator.peek(10, "delayed")] == later
    assert [message.urn for message in operator.peek(10, "reserved")] == ["urn:reserved"]
    poison, dead = operator.peek(10, "dead")
    assert poison.poison is not None
    assert poison.envelope is None
    assert poison.dead_letter.reason == "poison"
    assert (dead.urn, dead.state, dead.poison) == ("urn:dead", "dead", None)
    assert dead.headers == ({"k": "v"} if layout == "legacy" else {})
    block = dead.dead_letter
    assert (block.reason, block.error, block.exception) == ("failed", "boom", "ValueError")
    assert (block.original_queue, block.attempts, block.lang) == (queue, 1, "python")
    assert block.failed_at
    assert "boom" not in repr(dead) + repr(block)


def test_peek_begins_where_it_is_told(operator: RedisQueue, publisher: RedisPublisher) -> None:
    """From the head, or from the end; past either there is less."""
    ids = publisher.publish_many([("urn:a", {"n": n}) for n in range(5)])

    def peeked(n: int, start: int) -> list[str]:
        return [each.message_id for each in operator.peek(n, start=start)]

    assert peeked(2, 1) == ids[1:3]
    assert peeked(2, -3) == ids[2:4]
    assert peeked(9, -2) == ids[3:]
    assert peeked(9, -9) == ids
    assert peeked(1, 5) == []


@pytest.mark.parametrize(
    ("arguments", "names"),
    [((0,), "n=0"), ((1001,), "n=1001"), ((1, "lost"), "state='lost'"), ((True,), "n=True")],
    ids=str,
)
def test_peek_refuses_what_it_cannot_show(
    operator: RedisQueue, arguments: tuple[Any, ...], names: str
) -> None:
    """Before anything is sent."""
    with pytest.raises(ConfigurationError, match=names):
        operator.peek(*arguments)


def test_purge_removes_what_waits_and_nothing_else(
    operator: RedisQueue,
    publisher: RedisPublisher,
    consumer_of: Make,
    store: Store,
    client: Client,
    layout: str,
) -> None:
    """Ready and delayed go, with their tokens; reserved and dead stay what they are."""
    publisher.publish("urn:a", {})
    consumer = consumer_of({"urn:a": fail}, max_tries=2, on_error=quiet)
    publisher.publish_many([("urn:a", {})] * 3)
    taken = consumer.reserve(0)
    assert taken
    store.push(b"poison")
    client.rpush(store.dead_key, b"dead")
    if layout == "zset":
        publisher.publish("urn:a", {}, delay=1000)
    assert operator.purge() == (5 if layout == "zset" else 4)
    assert operator.counts() == Counts(ready=0, delayed=0, reserved=1, dead=1, overdue=0)
    assert client.llen(f"{store.ready_key}:notify") == 0
    assert operator.purge() == 0
    assert consumer.handle(taken) is Outcome.RETRIED
    assert operator.purge() == 1
    assert store.counts() == {"dead": 1}


def test_a_dead_letter_queue_is_purged_like_any_other(
    shell: Shell, redis_url: str, queue: str, layout: str, store: Store, client: Client
) -> None:
    """By its own name."""
    client.rpush(store.dead_key, b"dead", b"dead")
    with shell.make("queue", redis_url, f"{queue}.dlq", layout=layout) as dead:
        assert dead.counts().ready == 2
        assert dead.purge() == 2
    assert store.counts() == {}


@pytest.mark.parametrize("what", ["counts", "peek", "purge"])
def test_a_key_of_the_wrong_type_is_an_error(
    operator: RedisQueue, store: Store, client: Client, what: str
) -> None:
    """That names the key; nothing is removed."""
    client.set(store.ready_key, "a string")
    if what == "purge" and store.layout == "zset":
        client.zadd(f"{store.ready_key}:delayed", {"kept": 1})
    with pytest.raises(CommandRefusedError, match=store.ready_key):
        getattr(operator, what)()
    assert client.get(store.ready_key) == b"a string"
    if what == "purge" and store.layout == "zset":
        assert client.zcard(f"{store.ready_key}:delayed") == 1


@pytest.mark.parametrize("part", [":delayed", ":notify"])
def test_a_purge_is_never_half_done(
    operator: RedisQueue, store: Store, client: Client, layout: str, part: str
) -> None:
    """A place of the wrong type stops it before anything is gone."""
    store.push(b"kept")
    if layout == "legacy":
        assert operator.purge() == 1
        return
    client.delete(store.ready_key + part)
    client.set(store.ready_key + part, "a string")
    with pytest.raises(CommandRefusedError):
        operator.purge()
    assert client.lrange(store.ready_key, 0, -1) == [b"kept"]


def test_without_a_redis_it_says_so(shell: Shell) -> None:
    """One error of ours."""
    with (
        shell.make("queue", "redis://127.0.0.1:1", "orders") as operator,
        pytest.raises(TransportError, match="no connection to Redis"),
    ):
        operator.counts()


@pytest.mark.parametrize(
    "options", [{"layout": "x"}, {"dead_letter_queue": "q:notify"}, {"dead_letter_queue": "orders"}]
)
def test_a_wrong_option_is_refused(shell: Shell, options: dict[str, Any]) -> None:
    """At construction."""
    with pytest.raises(ConfigurationError, match=f"{next(iter(options))}="):
        shell.make("queue", "redis://127.0.0.1:1", "orders", **options)

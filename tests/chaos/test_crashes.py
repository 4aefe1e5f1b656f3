"""What becomes of the messages of workers that crash, again and again or many at once."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from babelqueue_redis import (
    Envelope,
    ExhaustedError,
    Outcome,
    RedisConsumer,
    RedisPublisher,
    entropy,
)
from tests.support.running import running
from tests.support.server import Client
from tests.support.store import Store
from tests.support.waiting import eventually

Make = Callable[..., RedisConsumer]
SUICIDE = """
import asyncio, os, signal, sys
from babelqueue_redis import AsyncRedisConsumer, RedisConsumer

kind, url, queue, layout = sys.argv[1:]

def handle(envelope):
    print("started", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

if kind == "sync":
    RedisConsumer(url, queue, {"urn:bad": handle}, layout=layout).poll(30)
else:
    asyncio.run(AsyncRedisConsumer(url, queue, {"urn:bad": handle}, layout=layout).poll(30))
"""


def crash(consumer_of: Make, store: Store, **options: Any) -> None:
    """Take the oldest message and end without a settlement; then let its lease be over."""
    assert consumer_of(**options).reserve(0) is not None
    store.expire()


def test_a_message_that_kills_its_worker_is_dead_lettered_and_others_go_on(
    publisher: RedisPublisher,
    consumer_of: Make,
    store: Store,
    redis_url: str,
    queue: str,
    layout: str,
    kind: str,
) -> None:
    """It runs three times, by the default, and not a fourth time."""
    bad = publisher.publish("urn:bad", {})
    for _ in range(3):
        command = [sys.executable, "-c", SUICIDE, kind, redis_url, queue, layout]
        child = subprocess.run(command, check=False, capture_output=True, text=True)
        assert (child.stdout, child.returncode) == ("started\n", -9), child.stderr
        store.expire()
    good = publisher.publish("urn:good", {})
    handled: list[Envelope] = []
    told: list[Exception] = []
    consumer = consumer_of(
        dict.fromkeys(("urn:bad", "urn:good"), handled.append),
        on_error=lambda error, *_: told.append(error),
    )
    assert {consumer.poll(0), consumer.poll(0)} == {Outcome.DEAD_LETTERED, Outcome.ACKED}
    assert [envelope.meta.id for envelope in handled] == [good]
    assert isinstance(told[0], ExhaustedError)
    (letter,) = store.dead()
    record = json.loads(letter)
    assert record["meta"]["id"] == bad
    assert record["dead_letter"]["reason"] == "failed"
    assert "3 times" in record["dead_letter"]["error"]
    assert not store.client.exists(f"{queue}:recoveries")


@pytest.mark.parametrize("layout", ["legacy"])
@pytest.mark.parametrize(
    ("limit", "outcome"), [(1, "dead_lettered"), (2, "acked"), (None, "acked")]
)
def test_the_limit_is_an_option(
    publisher: RedisPublisher,
    consumer_of: Make,
    store: Store,
    limit: int | None,
    outcome: str,
) -> None:
    """``None`` lets it come back for ever."""
    publisher.publish("urn:a", {})
    crash(consumer_of, store)
    consumer = consumer_of(
        {"urn:a": lambda _: None}, max_recoveries=limit, on_error=lambda *_: None
    )
    assert consumer.poll(0) == outcome


@pytest.mark.parametrize("layout", ["legacy"])
def test_failures_that_are_left_to_the_sweep_are_no_crashes(
    publisher: RedisPublisher, consumer_of: Make, store: Store
) -> None:
    """Such a message comes back for ever, as asked for."""

    def fail(_: object) -> None:
        raise ValueError

    publisher.publish("urn:a", {})
    consumer = consumer_of({"urn:a": fail}, on_failure="leave", on_error=lambda *_: None)
    for _ in range(5):
        assert consumer.poll(0) is Outcome.LEFT
        store.expire()


@pytest.mark.parametrize("layout", ["legacy"])
@pytest.mark.parametrize("end", ["acked", "retried", "dead_lettered", "dropped"])
def test_a_count_ends_with_its_message(
    publisher: RedisPublisher, consumer_of: Make, store: Store, queue: str, end: str
) -> None:
    """Whatever becomes of it: the key is gone."""

    def handle(_: object) -> None:
        if end != "acked":
            raise ValueError

    publisher.publish("urn:a", {})
    crash(consumer_of, store)
    consumer = consumer_of(
        {"urn:a": handle},
        max_tries=3 if end == "retried" else 1,
        max_recoveries=2,
        dead_letter_queue=None if end == "dropped" else "",
        on_error=lambda *_: None,
    )
    reservation = consumer.reserve(0)
    assert reservation is not None
    assert store.client.hvals(f"{queue}:recoveries") == [b"1"]
    assert reservation.recoveries == 1
    assert consumer.handle(reservation) == end
    assert not store.client.exists(f"{queue}:recoveries")


@pytest.mark.parametrize("layout", ["legacy"])
def test_a_count_stays_with_a_message_that_is_given_back(
    publisher: RedisPublisher, consumer_of: Make, store: Store
) -> None:
    """A shutdown in between is no success."""
    publisher.publish("urn:unknown", {})
    crash(consumer_of, store)
    releasing = consumer_of(unknown_urn="release", on_error=lambda *_: None)
    assert releasing.poll(0) is Outcome.RELEASED
    taken = releasing.reserve(0)
    assert taken is not None
    assert taken.recoveries == 1


def many(client: Client, store: Store, count: int) -> list[bytes]:
    """Write the reservations of crashed workers, expired long ago."""
    elements = [
        b'{"job":"urn:a","trace_id":"%b","data":{"n":%d},"attempts":0}'
        % (str(uuid.uuid4()).encode(), n)
        for n in range(count)
    ]
    if store.layout == "zset":
        client.zadd(store.reserved_key, dict.fromkeys(elements, 1))
        return elements
    client.rpush(store.reserved_key, *elements)
    members = {f"{entropy.new_token(i)}:".encode() + e: 1 for i, e in enumerate(elements)}
    client.zadd(store.deadlines_key, members)
    return elements


def test_5000_expired_reservations_come_back_to_one_idle_worker(
    client: Client, consumer_of: Make, store: Store
) -> None:
    """Without new traffic: 100 with each message that it takes, and each message once."""
    many(client, store, 5000)
    seen: list[int] = []
    consumer = consumer_of({"urn:a": lambda envelope: seen.append(envelope.data["n"])})
    for _ in range(50):
        assert consumer.poll(0) is Outcome.ACKED
    assert store.counts() == {"ready": 4950}
    with running(consumer):
        eventually(store.is_empty)
    assert sorted(seen) == list(range(5000))


def test_a_worker_in_a_long_handler_does_not_stop_the_recovery_of_others(
    publisher: RedisPublisher, consumer_of: Make, store: Store
) -> None:
    """Every worker that waits for a message brings back what expired."""
    started, release = threading.Event(), threading.Event()

    def hold(_: object) -> None:
        started.set()
        release.wait(60)

    seen: list[object] = []
    with running(consumer_of({"urn:long": hold})):
        publisher.publish("urn:long", {})
        assert started.wait(60)
        publisher.publish("urn:a", {})
        assert consumer_of(retry_after=1).reserve(0) is not None
        assert consumer_of({"urn:a": seen.append}).poll(60) is Outcome.ACKED
        release.set()
        eventually(store.is_empty)
    assert len(seen) == 1


@pytest.mark.parametrize("layout", ["legacy"])
def test_an_element_without_a_deadline_is_adopted_and_recovered(
    client: Client,
    publisher: RedisPublisher,
    consumer_of: Make,
    store: Store,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """By a worker that runs, about one lease after it was found."""
    publisher.publish("urn:a", {})
    client.lmove(store.ready_key, store.reserved_key)
    seen: list[object] = []
    with caplog.at_level(logging.WARNING, "babelqueue_redis.worker"):
        consumer = consumer_of({"urn:a": seen.append}, retry_after=2)
        with running(consumer):
            eventually(lambda: seen)
            eventually(store.is_empty)
    assert len(seen) == 1
    assert "reserved without a deadline" in caplog.text

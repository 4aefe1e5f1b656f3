"""A reservation lasts as long as its message is handled, and no longer than it may."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis

from babelqueue_redis import Delivery, Outcome, RedisConsumer, RedisPublisher, hooks
from babelqueue_redis.layouts import layout_of
from babelqueue_redis.settings import ConsumerOptions
from babelqueue_redis.sync.driver import Driver
from tests.support.reserving import reserved
from tests.support.running import running
from tests.support.server import Client
from tests.support.shells import Shell
from tests.support.store import Store
from tests.support.waiting import eventually

Make = Callable[..., RedisConsumer]
LEASE = 3
"""Seconds: a beat each second, and two to spare on a busy machine."""
LONG = 5.2
"""Long enough for the other worker to have seen the reservation run out."""


def wait(seconds: float) -> None:
    """Wait for longer than a lease, which only a clock can tell."""
    end = time.monotonic() + seconds
    eventually(lambda: time.monotonic() >= end)


class Log:
    """A handler, a long one, that counts its runs."""

    def __init__(self, seconds: float) -> None:
        self.started = 0
        self.ended = 0
        self._seconds = seconds

    def __call__(self, _: object) -> None:
        """Be a plain one."""
        self.started += 1
        wait(self._seconds)
        self.ended += 1

    async def coroutine(self, _: object) -> None:
        """Be one of asyncio."""
        self.started += 1
        await asyncio.sleep(self._seconds)
        self.ended += 1


class Deliveries(hooks.Hook):
    """Keeps what is delivered."""

    def __init__(self) -> None:
        self.seen: list[Delivery] = []

    @contextmanager
    def processing(self, delivery: Delivery) -> Iterator[None]:
        """Keep it."""
        self.seen.append(delivery)
        yield


@pytest.fixture
def deliveries() -> Iterator[Deliveries]:
    """A hook that keeps what is delivered."""
    hook = Deliveries()
    hooks.register(hook)
    yield hook
    hooks.unregister(hook)


def test_a_handler_longer_than_its_lease_runs_once(
    publisher: RedisPublisher, consumer_of: Make, store: Store, kind: str
) -> None:
    """Although another worker waits for its message."""
    log = Log(LONG)
    handler = log if kind == "sync" else log.coroutine
    consumers = [consumer_of({"urn:a": handler}, retry_after=LEASE) for _ in range(2)]
    with running(*consumers):
        publisher.publish("urn:a", {})
        eventually(lambda: log.ended)
        eventually(store.is_empty)
    assert log.started == 1


@pytest.mark.parametrize("concurrency", [1, 2])
def test_messages_that_wait_for_their_turn_are_kept_as_well(
    publisher: RedisPublisher, consumer_of: Make, store: Store, kind: str, concurrency: int
) -> None:
    """What was reserved behind a slow message is handled once, here."""
    log = Log(LONG / 2)
    handler = log if kind == "sync" else log.coroutine
    options: dict[str, Any] = {"retry_after": LEASE, "prefetch": 4, "concurrency": concurrency}
    publisher.publish_many([("urn:a", {})] * 4)
    first = consumer_of({"urn:a": handler}, **options)
    other: list[object] = []
    second = consumer_of({"urn:a": other.append}, retry_after=60)
    with running(first):
        eventually(lambda: log.started)
        with running(second):
            eventually(store.is_empty)
    assert (log.started, log.ended, other) == (4, 4, [])


def test_without_a_heartbeat_it_runs_again_and_the_late_end_is_told(
    publisher: RedisPublisher, consumer_of: Make, store: Store
) -> None:
    """The late settlement writes nothing: its message is somebody else's."""
    first = Log(2.5)
    taken: list[Any] = []
    slow = consumer_of({"urn:a": first}, retry_after=1, heartbeat=False)
    quick = consumer_of({"urn:a": taken.append}, retry_after=60)
    publisher.publish("urn:a", {})
    outcomes: list[Outcome | None] = []
    thread = threading.Thread(target=lambda: outcomes.append(slow.poll(5)))
    thread.start()
    eventually(lambda: first.started)
    reservation = eventually(lambda: quick.reserve(0))
    thread.join(60)
    assert outcomes == [Outcome.EXPIRED]
    assert store.counts() == {"reserved": 1}
    assert reservation is not None
    assert quick.handle(reservation) is Outcome.ACKED
    assert store.counts() == {}


@pytest.mark.parametrize("urn", ["urn:good", "urn:dead"])
def test_a_worker_that_lost_its_reservation_is_told_and_writes_nothing(
    publisher: RedisPublisher,
    consumer_of: Make,
    store: Store,
    deliveries: Deliveries,
    caplog: pytest.LogCaptureFixture,
    urn: str,
) -> None:
    """While it works: by ``delivery.lost`` and a log line; at its end: by the outcome."""

    def handle(_: object) -> None:
        eventually(lambda: deliveries.seen[0].lost)
        if urn != "urn:good":
            raise ValueError

    consumer = consumer_of(
        {urn: handle},
        retry_after=LEASE,
        max_tries=1 if urn == "urn:dead" else 3,
        on_error=lambda *_: None,
    )
    publisher.publish(urn, {})
    reservation = consumer.reserve(0)
    assert reservation is not None
    store.expire()
    other = consumer_of(retry_after=60).reserve(0)
    assert other is not None
    with caplog.at_level(logging.WARNING, "babelqueue_redis.heartbeat"):
        assert consumer.handle(reservation) is Outcome.EXPIRED
    told = [record for record in caplog.records if record.name == "babelqueue_redis.heartbeat"]
    assert [record.getMessage()[:16] for record in told] == ["reservation lost"]
    assert store.reserved() == [other.stored]
    assert store.counts() == {"reserved": 1}


def test_an_extension_is_by_the_servers_clock_rounded_up(
    client: Client, store: Store, queue: str, layout: str
) -> None:
    """``ceil(now)`` plus the lease; and nothing where the reservation is gone."""
    driver = Driver(client)
    made = layout_of(ConsumerOptions(queue, layout, retry_after=90))
    store.push(b'{"job":"urn:a","attempts":0}')
    taken = reserved(driver, made, 1000.7)
    assert taken is not None

    def deadline() -> float:
        ((_, score),) = client.zrange(store.deadlines_key, 0, -1, withscores=True)
        return float(score)

    assert deadline() == 1090
    assert driver.send(made.extend(taken, 1000.7))
    assert deadline() == 1091
    assert driver.send(made.extend(taken, 1001.0))
    assert deadline() == 1091
    before = client.time()
    assert driver.send(made.extend(taken))
    after = client.time()
    assert math.ceil(before[0] + before[1] / 1e6) + 90 <= deadline()
    assert deadline() <= math.ceil(after[0] + after[1] / 1e6) + 90
    store.expire()
    assert reserved(driver, made) is not None
    assert not driver.send(made.extend(taken))
    assert client.zcard(store.deadlines_key) == 1


def test_a_hung_handler_does_not_keep_its_message(
    publisher: RedisPublisher, consumer_of: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """The beat stops at the bound, and the message comes back after the lease."""
    release = threading.Event()
    handlers = {"urn:a": lambda _: release.wait(60)}
    hung = consumer_of(handlers, retry_after=LEASE, max_lease=0.5 * LEASE)
    seen: list[object] = []
    other = consumer_of({"urn:a": seen.append}, retry_after=60)
    with running(hung):
        publisher.publish("urn:a", {})
        eventually(lambda: "not extended any more" in caplog.text)
        assert other.poll(60) is Outcome.ACKED
        release.set()


@pytest.mark.long
def test_a_message_that_is_not_settled_yet_is_kept_too(
    publisher: RedisPublisher, consumer_of: Make, store: Store, kind: str
) -> None:
    """While ``on_error`` is told."""
    log, seen = Log(LONG), list[object]()

    def tell(error: object, *_: object) -> None:
        log(error)

    async def tell_async(error: object, *_: object) -> None:
        await log.coroutine(error)

    def fail(_: object) -> None:
        raise ValueError

    on_error = tell if kind == "sync" else tell_async
    consumer = consumer_of({"urn:a": fail}, retry_after=LEASE, on_error=on_error, max_tries=1)
    publisher.publish("urn:a", {})
    with running(consumer):
        eventually(lambda: log.started)
        with running(consumer_of({"urn:a": seen.append}, retry_after=60)):
            eventually(lambda: log.ended)
        eventually(store.dead)
    assert store.counts() == {"dead": 1}
    assert (log.started, seen) == (1, [])


def test_a_short_handler_opens_no_connection(
    shell: Shell, redis_url: str, client: Client, publisher: RedisPublisher, queue: str, layout: str
) -> None:
    """The first beat does."""
    log = Log(LEASE)
    named = shell.client(redis_url, client_name=queue)
    handlers = {"urn:short": lambda _: None, "urn:long": log}
    consumer = shell.make("consumer", named, queue, handlers, layout=layout, retry_after=LEASE)

    def connections() -> int:
        return sum(each["name"] == queue for each in client.client_list())

    publisher.publish_many([("urn:short", {})] * 20)
    for _ in range(20):
        assert consumer.poll(0) is Outcome.ACKED
    assert connections() == 1
    publisher.publish("urn:long", {})
    assert consumer.poll(0) is Outcome.ACKED
    assert connections() == 2
    consumer.close()
    eventually(lambda: connections() == 0)


@pytest.mark.long
def test_beats_survive_killed_links(
    own_server: Callable[..., str], shell: Shell, layout: str, queue: str
) -> None:
    """Every client is thrown out again and again; the handler runs once."""
    url = own_server()
    admin = redis.Redis.from_url(url)
    log = Log(LONG)
    made = [
        shell.make("consumer", url, queue, {"urn:a": log}, layout=layout, retry_after=LEASE)
        for _ in range(2)
    ]
    with running(*made):
        shell.make("publisher", url, queue, layout=layout).publish("urn:a", {})

        def killed_until_handled() -> int:
            time.sleep(0.3)
            admin.client_kill_filter(_type="normal", skipme=True)
            return log.ended

        eventually(killed_until_handled)
        eventually(Store(admin, queue, layout).is_empty)
    assert log.started == 1


@pytest.mark.parametrize("kind", ["sync"])
def test_the_thread_ends_with_its_consumer(consumer_of: Make, publisher: RedisPublisher) -> None:
    """When it is closed, and when it is forgotten."""

    def beating() -> set[threading.Thread]:
        return {each for each in threading.enumerate() if each.name == "babelqueue-heartbeat"}

    before = beating()  # of other tests, which may end meanwhile
    publisher.publish_many([("urn:a", {})] * 3)
    consumer = consumer_of({"urn:a": lambda _: None}, retry_after=2)
    consumer.poll(0)
    assert len(beating() - before) == 1
    consumer.close()
    eventually(lambda: beating() <= before)
    consumer.poll(0)
    assert len(beating() - before) == 1
    del consumer
    gc.collect()
    eventually(lambda: beating() <= before)


@pytest.mark.parametrize("kind", ["sync"])
def test_a_thread_that_could_not_start_is_started_with_the_next_message(
    consumer_of: Make, publisher: RedisPublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A system may be out of threads for a while; and signals are not lost over it."""

    def fail_to_start(_thread: threading.Thread) -> None:
        msg = "can't start new thread"
        raise RuntimeError(msg)

    publisher.publish("urn:a", {})
    consumer = consumer_of(retry_after=LEASE)
    taken = consumer.reserve(0)
    assert taken is not None
    heartbeat, blocked = consumer._heartbeat, signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fail_to_start)
        with pytest.raises(RuntimeError, match="new thread"):
            heartbeat.begin((taken,))
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == blocked
    heartbeat.begin((taken,))
    assert heartbeat._thread is not None
    assert heartbeat._thread.is_alive()
    consumer.close()


@pytest.mark.parametrize("kind", ["sync"])
def test_a_forked_child_extends_only_what_is_its_own(
    consumer_of: Make, publisher: RedisPublisher
) -> None:
    """Its parent's reservations are its parent's."""
    publisher.publish_many([("urn:a", {})] * 2)
    consumer = consumer_of(retry_after=LEASE)
    first, second = consumer.reserve(0), consumer.reserve(0)
    assert first is not None
    assert second is not None
    heartbeat = consumer._heartbeat
    heartbeat.begin((first,))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            heartbeat.begin((second,))
            alive = heartbeat._thread is not None and heartbeat._thread.is_alive()
            code = 0 if alive and list(heartbeat.beats._watched) == [second.token] else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert list(heartbeat.beats._watched) == [first.token]
    consumer.close()


def test_a_lease_that_whole_seconds_cannot_hold_is_warned_of(
    consumer_of: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """Below two seconds a beat may come too late."""
    consumer_of(retry_after=2)
    consumer_of(retry_after=1, heartbeat=False)
    consumer_of(retry_after=None)
    assert not caplog.records
    consumer_of(retry_after=1.5)
    assert "too short for the heartbeat" in caplog.text

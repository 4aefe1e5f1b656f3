from __future__ import annotations

import json
import logging
import threading
import time
import uuid
from collections.abc import Callable

import pytest
import redis

from babelqueue_redis import CommandRefusedError, Outcome, RedisConsumer, RedisPublisher, entropy
from babelqueue_redis.core.command import ErrorReply
from babelqueue_redis.core.settlement import ACK, GIVE_BACK, Settlement
from babelqueue_redis.layouts import LegacyLayout
from babelqueue_redis.sync.driver import Driver
from babelqueue_redis.values import Reservation
from tests.support.marks import both_layouts, both_shells
from tests.support.reserving import reserved, settle
from tests.support.server import Client
from tests.support.shells import Shell
from tests.support.store import Store
from tests.support.waiting import eventually

Make = Callable[..., RedisConsumer]
BODY = b'{"job": "urn:a",  "attempts": 2, "data": {"f": 1.0}}'
NOW = 1_000_000.5


def take(driver: Driver, layout: LegacyLayout, now: float | None = NOW) -> Reservation:
    """Reserve at a time of our choosing."""
    taken = reserved(driver, layout, now)
    assert taken is not None
    return taken


def send(driver: Driver, layout: LegacyLayout, taken: Reservation, end: Settlement) -> bool:
    """Settle."""
    return settle(driver, layout, taken, end)


def test_an_expired_reservation_comes_back_byte_for_byte(client: Client, queue: str) -> None:
    """At the end of the queue, attempts unchanged: a recovery is no attempt here."""
    driver, layout = Driver(client), LegacyLayout(queue, 90)
    client.rpush(queue, BODY)
    take(driver, layout)
    client.rpush(queue, b"behind")
    assert driver.run(layout.sweep(NOW + 89)) == 0
    assert driver.run(layout.sweep(NOW + 90)) == 1
    assert client.lrange(queue, 0, -1) == [b"behind", BODY]
    assert client.llen(f"{queue}:processing") == client.zcard(f"{queue}:processing:deadlines") == 0


@both_layouts
@both_shells
def test_the_deadline_is_the_servers_time_plus_the_lease(
    publisher: RedisPublisher, consumer_of: Make, store: Store
) -> None:
    """Whatever the worker's own clock says."""
    publisher.publish("urn:a", {})
    before = store.client.time()[0]
    taken = consumer_of(retry_after=89.5).reserve(0)
    after = store.client.time()[0]
    assert taken is not None
    ((member, score),) = store.client.zrange(store.deadlines_key, 0, -1, withscores=True)
    token = f"{taken.token}:".encode() if store.layout == "legacy" else b""
    assert member == token + taken.stored
    assert before + 90 <= score <= after + 90
    assert score == int(score)


def test_without_a_lease_a_reservation_stays_for_ever(client: Client, queue: str) -> None:
    """And foreign ones that expired are still swept."""
    driver, layout = Driver(client), LegacyLayout(queue, None)
    client.rpush(queue, BODY)
    take(driver, layout)
    assert driver.run(layout.sweep(1e12)) == 0
    foreign = "f" * 32
    client.rpush(f"{queue}:processing", b"foreign")
    client.zadd(f"{queue}:processing:deadlines", {f"{foreign}:foreign": 1})
    assert driver.run(layout.sweep(NOW)) == 1
    assert client.lrange(queue, 0, -1) == [b"foreign"]


@pytest.mark.parametrize(
    "end",
    [
        ACK,
        GIVE_BACK,
        Settlement(Outcome.RETRIED, b"{}"),
        Settlement(Outcome.DEAD_LETTERED, b"{}", "x"),
    ],
)
def test_a_late_settlement_touches_nothing(client: Client, queue: str, end: Settlement) -> None:
    """The message is somebody else's by then."""
    driver, layout = Driver(client), LegacyLayout(queue, 10)
    if end.dead_letter_queue:
        end = Settlement(end.outcome, end.body, f"{queue}.dlq")
    client.rpush(queue, BODY)
    late = take(driver, layout)
    driver.run(layout.sweep(NOW + 10))
    current = take(driver, layout, NOW + 10)
    assert send(driver, layout, late, end) is False
    assert client.lrange(f"{queue}:processing", 0, -1) == [BODY]
    assert client.llen(queue) == client.llen(f"{queue}.dlq") == 0
    assert send(driver, layout, current, ACK) is True
    assert send(driver, layout, current, ACK) is False
    assert client.llen(f"{queue}:processing") == 0


@both_layouts
@both_shells
def test_a_late_ack_is_reported(
    publisher: RedisPublisher,
    consumer_of: Make,
    store: Store,
    queue: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """By the outcome and by one warning that says what to do."""
    consumer = consumer_of({"urn:a": lambda envelope: store.client.delete(store.deadlines_key)})
    publisher.publish("urn:a", {})
    with caplog.at_level(logging.WARNING):
        assert consumer.poll(0) is Outcome.EXPIRED
    (record,) = caplog.records
    assert record.getMessage().startswith("reservation expired")
    assert queue in record.getMessage()


def test_copies_are_settled_one_by_one(client: Client, queue: str) -> None:
    """Equal bytes are two messages: each ack takes one, and claims success for one."""
    driver, layout = Driver(client), LegacyLayout(queue, 90)
    client.rpush(queue, BODY, BODY)
    first, second = take(driver, layout), take(driver, layout)
    assert first.token != second.token
    assert send(driver, layout, first, ACK)
    assert client.lrange(f"{queue}:processing", 0, -1) == [BODY]
    assert not send(driver, layout, first, ACK)
    assert send(driver, layout, second, ACK)
    assert client.llen(f"{queue}:processing") == 0


def test_an_empty_element_can_be_recovered(client: Client, queue: str) -> None:
    """Its deadline's member ends with the colon."""
    driver, layout = Driver(client), LegacyLayout(queue, 10)
    client.rpush(queue, b"")
    take(driver, layout)
    assert driver.run(layout.sweep(NOW + 10)) == 1
    assert client.lrange(queue, 0, -1) == [b""]


def test_malformed_and_orphan_members_are_removed_and_nothing_is_invented(
    client: Client, queue: str
) -> None:
    """Only what stands in the processing list comes back."""
    driver, layout = Driver(client), LegacyLayout(queue, 10)
    deadlines = f"{queue}:processing:deadlines"
    members = ["short", "x" * 33, "z" * 32 + ":not hex", "a" * 32 + ":orphan", "A" * 31 + ":y"]
    client.zadd(deadlines, dict.fromkeys(members, 1))
    client.rpush(f"{queue}:processing", b"no deadline")
    assert driver.run(layout.sweep(NOW)) == 0
    assert client.zcard(deadlines) == client.llen(queue) == 0
    assert client.lrange(f"{queue}:processing", 0, -1) == [b"no deadline"]
    client.delete(f"{queue}:processing")


def test_a_batch_size_bounds_one_sweep(client: Client, queue: str) -> None:
    """Across its chunks."""
    driver = Driver(client)
    fill(client, queue, 1300)
    assert driver.run(LegacyLayout(queue, 10, 1200).sweep(NOW)) == 1200
    assert client.zcard(f"{queue}:processing:deadlines") == 100
    assert driver.run(LegacyLayout(queue, 10, 7).sweep(NOW)) == 7
    assert driver.run(LegacyLayout(queue, 10).sweep(NOW)) == 93


def fill(
    client: Client, queue: str, count: int, *, sortable: bool = True, size: int = 0
) -> list[bytes]:
    """Put expired reservations of one second into the processing list, oldest first."""
    tokens = [entropy.new_token(i) if sortable else uuid.uuid4().hex for i in range(count)]
    elements = [f"element {i}".ljust(size).encode() for i in range(count)]
    with client.pipeline(transaction=False) as pipe:
        pipe.rpush(f"{queue}:processing", *elements)
        pipe.zadd(
            f"{queue}:processing:deadlines",
            {f"{t}:".encode() + e: 1 for t, e in zip(tokens, elements, strict=True)},
        )
        pipe.execute()
    return elements


def test_20_000_expired_reservations_come_back_in_order_none_twice(
    private_client: Client,
) -> None:
    """One sweep moves all, in calls that look at 100 members each."""
    client, queue = private_client, "orders"
    driver, layout = Driver(client), LegacyLayout(queue, 10)
    elements = fill(client, queue, 20_000)
    client.config_resetstat()
    assert driver.run(layout.sweep(NOW)) == 20_000
    assert client.lrange(queue, 0, -1) == elements
    assert client.llen(f"{queue}:processing") == client.zcard(f"{queue}:processing:deadlines") == 0
    stats = client.info("commandstats")
    assert stats["cmdstat_evalsha"]["calls"] == 20_000 / 100 + 1  # it was unknown at first
    assert stats["cmdstat_lrem"]["calls"] == 20_000


def test_random_tokens_of_other_makers_end_a_call_after_ten_scans(
    private_client: Client,
) -> None:
    """So that no call blocks the server for long; all come back all the same."""
    client, queue = private_client, "orders"
    driver, layout = Driver(client), LegacyLayout(queue, 10)
    elements = fill(client, queue, 5000, sortable=False)
    chunk = layout._sweep_chunk(0, NOW)
    client.config_resetstat()
    swept = driver.send(chunk)
    assert swept.more
    assert swept.moved < 100
    scans = client.info("commandstats")["cmdstat_lpos"]["calls"] - swept.seen
    assert scans == 10
    assert driver.run(layout.sweep(NOW)) == 5000 - swept.moved
    assert sorted(client.lrange(queue, 0, -1)) == sorted(elements)


def test_reserving_sweeps_first_and_a_long_sweep_goes_on_with_the_next(
    client: Client, queue: str
) -> None:
    """The oldest expired one is taken at once; its lease does not run while others are moved."""
    driver, layout = Driver(client), LegacyLayout(queue, 10)
    elements = fill(client, queue, 250)
    taken = [take(driver, layout).body for _ in range(3)]
    assert taken == elements[:3]
    assert client.lrange(queue, 0, -1) == elements[3:]
    assert client.lrange(f"{queue}:processing", 0, -1) == elements[:3]


@pytest.mark.parametrize(("size", "at_once"), [(10_000, 27), (200_000, 2), (1_000_000, 1)])
def test_a_sweep_moves_about_a_quarter_of_a_mebibyte_in_one_call(
    client: Client, queue: str, size: int, at_once: int
) -> None:
    """Large elements must not hold the server up."""
    driver, layout = Driver(client), LegacyLayout(queue, 10)
    elements = fill(client, queue, 30, size=size)
    swept = driver.send(layout._sweep_chunk(0, NOW))
    assert (swept.moved, swept.seen, swept.more) == (at_once, at_once, True)
    assert driver.run(layout.sweep(NOW)) == 30 - at_once
    assert client.lrange(queue, 0, -1) == elements


@both_shells
@pytest.mark.parametrize(
    ("layout", "denied"),
    [("legacy", "lpos"), ("legacy", "zrangebyscore"), ("zset", "zrangebyscore")],
)
def test_a_sweep_that_is_refused_strands_nothing(
    own_server: Callable[..., str], shell: Shell, layout: str, denied: str
) -> None:
    """What is there is delivered; the refusal is raised once nothing is."""
    url = own_server()
    store = Store(redis.Redis.from_url(url), "orders", layout)
    RedisPublisher(url, "orders", layout=layout).publish_many([("urn:a", {})] * 4)
    assert RedisConsumer(url, "orders", layout=layout).reserve(0)
    store.expire()
    restricted = restrict(store.client, url, denied)
    consumer = shell.make("consumer", restricted, "orders", {"urn:a": ignore}, layout=layout)
    assert [consumer.poll(0) for _ in range(3)] == [Outcome.ACKED] * 3
    script = {"legacy": "legacy_sweep on orders", "zset": "zset_migrate on queues:orders"}[layout]
    with pytest.raises(CommandRefusedError, match=script):
        consumer.poll(0)
    assert store.counts() == {"reserved": 1}


def restrict(admin: Client, url: str, denied: str) -> str:
    """Return the URL of a user who may send all commands but one."""
    rules = {"enabled": True, "passwords": "+p/w:@", "keys": "*"}
    admin.acl_setuser("worker", **rules, commands=["+@all", f"-{denied}"])
    return url.replace("redis://", "redis://worker:p%2Fw%3A%40@")


def ignore(_: object) -> None:
    """A handler that does nothing."""


WAITS = pytest.mark.parametrize(("layout", "wait"), [("legacy", "blmove"), ("zset", "blpop")])


def test_a_settlement_searches_from_the_newest(client: Client, queue: str) -> None:
    """It stands at the tail, behind whatever is stuck."""
    driver, layout = Driver(client), LegacyLayout(queue, 10)
    client.rpush(f"{queue}:processing", BODY, b"between")
    client.rpush(queue, BODY)
    assert send(driver, layout, take(driver, layout), ACK)
    assert client.lrange(f"{queue}:processing", 0, -1) == [BODY, b"between"]


@WAITS
@both_shells
def test_a_denied_wait_does_not_spin(
    own_server: Callable[..., str], shell: Shell, layout: str, wait: str
) -> None:
    """Its pauses double, from 100 ms to 1 s."""
    url = own_server()
    admin = redis.Redis.from_url(url)
    shell.make("consumer", restrict(admin, url, wait), "orders", layout=layout).poll(1)
    assert admin.info("commandstats")[f"cmdstat_{wait}"]["rejected_calls"] <= 5
    pauses = [layout_wait(idle) for idle in range(8)]
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0, 1.0]


def layout_wait(idle: int) -> float:
    """Return the pause after a refused wait."""
    return LegacyLayout("q").wait(1, idle).parse(ErrorReply("unknown command"))


def test_reserving_finds_what_a_later_chunk_brought_back(client: Client, queue: str) -> None:
    """When the first chunk held nothing but orphans."""
    driver, layout = Driver(client), LegacyLayout(queue, 10)
    deadlines = f"{queue}:processing:deadlines"
    client.zadd(deadlines, {f"{i:032x}:orphan": 1 for i in range(700)})
    client.rpush(f"{queue}:processing", BODY)
    client.zadd(deadlines, {"f" * 32 + ":" + BODY.decode(): 2})
    assert take(driver, layout).body == BODY


@both_layouts
@both_shells
def test_an_idle_consumer_is_woken_by_a_message(
    publisher: RedisPublisher, consumer_of: Make, client: Client
) -> None:
    """It blocks on the queue and takes nothing while it waits."""
    consumer = consumer_of({"urn:a": ignore})
    outcomes: list[Outcome | None] = []
    thread = threading.Thread(target=lambda: outcomes.append(consumer.poll(60)))
    thread.start()
    eventually(lambda: client.info("clients")["blocked_clients"])
    publisher.publish("urn:a", {})
    thread.join(60)
    assert outcomes == [Outcome.ACKED]


@both_layouts
@both_shells
def test_a_wait_ends_when_it_should(consumer_of: Make) -> None:
    """Not early; an attempt without waiting does not wait."""
    start = time.monotonic()
    assert consumer_of().poll(0.3) is None
    assert time.monotonic() - start >= 0.3
    assert consumer_of().poll(-5) is None


@both_layouts
@both_shells
def test_an_expired_message_is_found_while_waiting(
    publisher: RedisPublisher, consumer_of: Make, layout: str
) -> None:
    """A worker that sleeps in the queue still sweeps: the crash of another ends in a delivery."""
    seen: list[int] = []
    crashed = consumer_of(retry_after=1)
    publisher.publish("urn:a", {})
    assert crashed.reserve(0) is not None
    waiting = consumer_of({"urn:a": lambda envelope: seen.append(envelope.attempts)})
    assert waiting.poll(60) is Outcome.ACKED
    assert seen == [0 if layout == "legacy" else 1]


@WAITS
@both_shells
def test_a_denied_blocking_command_is_replaced_by_short_sleeps(
    own_server: Callable[..., str], shell: Shell, layout: str, wait: str
) -> None:
    """An ACL may forbid it; the queue is served all the same."""
    url = own_server()
    restricted = restrict(redis.Redis.from_url(url), url, wait)
    consumer = shell.make("consumer", restricted, "orders", {"urn:a": ignore}, layout=layout)
    assert consumer.poll(0.3) is None
    RedisPublisher(url, "orders", layout=layout).publish("urn:a", {})
    assert consumer.poll(5) is Outcome.ACKED


@both_layouts
@both_shells
def test_the_pull_api_hands_out_and_settles(
    publisher: RedisPublisher, consumer_of: Make, store: Store, queue: str
) -> None:
    """``reserve`` and ``handle`` are ``poll`` in two steps."""
    consumer = consumer_of({"urn:a": ignore})
    publisher.publish("urn:a", {}, headers={"k": "v"})
    reservation = consumer.reserve(0)
    assert reservation is not None
    assert reservation.queue == queue
    assert reservation.headers == ({"k": "v"} if store.layout == "legacy" else {})
    assert json.loads(reservation.body)["job"] == "urn:a"
    assert store.counts() == {"reserved": 1}
    assert consumer.handle(reservation) is Outcome.ACKED
    assert store.counts() == {}
    assert consumer.reserve(0) is None

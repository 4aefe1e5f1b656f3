"""What only the zset layout has: delays, back-off, counted deliveries, tokens."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from babelqueue_redis import (
    ConfigurationError,
    Outcome,
    RedisConsumer,
    RedisPublisher,
)
from babelqueue_redis.core.settlement import ACK, GIVE_BACK, Settlement
from babelqueue_redis.envelope import CORE_META_KEYS, FORBIDDEN_META_KEYS, encode, make
from babelqueue_redis.layouts import ZsetLayout
from babelqueue_redis.sync.driver import Driver
from babelqueue_redis.values import Reservation
from tests.support.handlers import fail
from tests.support.marks import both_shells
from tests.support.reserving import reserved, settle
from tests.support.server import Client
from tests.support.shells import Shell
from tests.support.store import Store
from tests.support.waiting import calls, eventually

pytestmark = both_shells


@pytest.fixture
def layout() -> str:
    """Every queue of this module."""
    return "zset"


Make = Callable[..., RedisConsumer]
NOW = 1_000_000.5


def take(driver: Driver, queue: ZsetLayout, now: float | None = NOW) -> Reservation:
    """Reserve at a time of our choosing."""
    taken = reserved(driver, queue, now)
    assert taken is not None
    return taken


def send(driver: Driver, queue: ZsetLayout, taken: Reservation, end: Settlement) -> bool:
    """Settle."""
    return settle(driver, queue, taken, end, NOW)


def test_a_delayed_message_becomes_ready_when_it_is_due(
    publisher: RedisPublisher, consumer_of: Make, store: Store, client: Client
) -> None:
    """Whole seconds: the delay is rounded up."""
    before = time.time()
    publisher.publish("urn:a", {}, delay=0.5)
    publisher.publish_many([("urn:a", {}), ("urn:a", {})], delay=1)
    scores = [s for _, s in client.zrange(f"{store.ready_key}:delayed", 0, -1, withscores=True)]
    assert scores == sorted(scores)
    assert int(before) + 1 <= scores[0] <= time.time() + 1
    assert client.llen(store.ready_key) == client.llen(f"{store.ready_key}:notify") == 0
    consumer = consumer_of({"urn:a": lambda envelope: None})
    assert consumer.poll(0) is None or time.time() >= int(before) + 1
    while store.counts():
        consumer.poll(10)
    assert time.time() >= int(before) + 1


@pytest.fixture
def alone(private_client: Client, queue: str) -> Store:
    """The queue on a server where nobody else blocks or is counted."""
    return Store(private_client, queue, "zset")


def consumer_at(store: Store, shell: Shell, queue: str, **options: Any) -> Any:
    """Make a consumer of the queue of ``alone``."""
    kwargs = store.client.connection_pool.connection_kwargs
    url = f"redis://{kwargs['host']}:{kwargs['port']}"
    return shell.make(
        "consumer", url, queue, {"urn:a": lambda envelope: None}, layout="zset", **options
    )


def test_a_due_message_wakes_an_idle_consumer(alone: Store, shell: Shell, queue: str) -> None:
    """Within a slice of its wait, without a lease of its own too."""
    client = alone.client
    consumer = consumer_at(alone, shell, queue, retry_after=None)
    outcomes: list[Outcome | None] = []
    thread = threading.Thread(target=lambda: outcomes.append(consumer.poll(60)))
    thread.start()
    eventually(lambda: client.info("clients")["blocked_clients"])
    RedisPublisher(client, queue, layout="zset").publish("urn:a", {}, delay=3)
    thread.join(60)
    assert outcomes == [Outcome.ACKED]
    # More than one slice passed before it was due, and they were no busy loop.
    assert 2 <= calls(client, "blpop") <= 20


def test_headers_are_dropped_without_an_error(
    publisher: RedisPublisher, client: Client, store: Store
) -> None:
    """Laravel's wire has no place for them."""
    publisher.publish("urn:a", {}, headers={"traceparent": "tp"})
    assert b"traceparent" not in client.lindex(store.ready_key, 0)


def test_a_retry_is_kept_back_for_the_back_off(
    publisher: RedisPublisher, consumer_of: Make, store: Store, client: Client
) -> None:
    """It doubles from retry to retry, up to its bound, rounded up to seconds."""
    consumer = consumer_of(
        {"urn:a": fail},
        max_tries=9,
        retry_backoff=10.5,
        retry_backoff_multiplier=2,
        retry_backoff_max=40,
        on_error=print,
    )
    publisher.publish("urn:a", {})
    delayed = f"{store.ready_key}:delayed"
    for expected in (11, 21, 40, 40):
        now = client.time()[0]
        assert consumer.poll(0) is Outcome.RETRIED
        ((member, due),) = client.zrange(delayed, 0, -1, withscores=True)
        assert now + expected <= due <= client.time()[0] + expected
        client.zadd(delayed, {member: 1})


def test_full_jitter_keeps_a_part_of_the_back_off(
    publisher: RedisPublisher, consumer_of: Make, store: Store, client: Client
) -> None:
    """Not every message for the same time."""
    consumer = consumer_of(
        {"urn:a": fail}, retry_backoff=100_000, retry_jitter="full", on_error=print
    )
    publisher.publish_many([("urn:a", {})] * 20)
    now = client.time()[0]
    while consumer.poll(0):
        pass
    delayed = client.zrange(f"{store.ready_key}:delayed", 0, -1, withscores=True)
    delays = {score - now for _, score in delayed}
    assert len(delays) > 10
    assert all(0 <= delay <= 100_002 for delay in delays)


def test_a_back_off_on_the_legacy_layout_says_why_it_cannot_be(client: Client, queue: str) -> None:
    """It has no delayed set."""
    with pytest.raises(ConfigurationError, match="no delayed set"):
        RedisConsumer(client, queue, retry_backoff=1)
    with pytest.raises(ConfigurationError, match="no delayed set"):
        RedisPublisher(client, queue).publish("urn:a", {}, delay=1)


def test_a_crash_counts_as_an_attempt(
    publisher: RedisPublisher, consumer_of: Make, store: Store
) -> None:
    """After ``max_tries`` deliveries the message is dead without a run, and the next one runs."""
    seen: list[int] = []
    errors: list[str] = []
    consumer = consumer_of(
        {"urn:a": lambda envelope: seen.append(envelope.attempts)},
        on_error=lambda error, *_: errors.append(str(error)),
    )
    message_id = publisher.publish("urn:a", {"f": 1.0})
    for _ in range(3):
        assert consumer.reserve(0) is not None  # and its worker is gone
        store.expire()
    publisher.publish("urn:a", {})
    assert [consumer.poll(0), consumer.poll(0)] == [Outcome.ACKED, Outcome.DEAD_LETTERED]
    assert seen == [0]
    assert message_id in errors[0]
    document = json.loads(store.dead()[0])
    assert document["attempts"] == document["dead_letter"]["attempts"] == 3
    assert document["dead_letter"]["reason"] == "failed"
    assert "3 times" in document["dead_letter"]["error"]


def test_failures_and_crashes_count_together(
    publisher: RedisPublisher, consumer_of: Make, store: Store
) -> None:
    """A delivery whose worker died is one of the ``max_tries``: the handler runs in the others."""
    seen: list[int] = []

    def fail_and_tell(envelope: Any) -> None:
        seen.append(envelope.attempts)
        raise ValueError

    consumer = consumer_of({"urn:a": fail_and_tell}, on_error=print)
    publisher.publish("urn:a", {})
    assert consumer.poll(0) is Outcome.RETRIED
    assert consumer.reserve(0) is not None
    store.expire()
    assert consumer.poll(0) is Outcome.DEAD_LETTERED
    assert seen == [0, 2]


WORKER = """
import os, signal, sys
from babelqueue_redis import RedisConsumer

def handle(envelope):
    print(envelope.attempts, flush=True)
    if envelope.attempts == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    raise ValueError

consumer = RedisConsumer(*sys.argv[1:], {"urn:a": handle}, layout="zset", on_error=lambda *_: None)
while consumer.poll(0):
    pass
"""


def test_a_handler_runs_max_tries_times_with_a_kill_in_between(
    publisher: RedisPublisher, redis_url: str, queue: str, store: Store
) -> None:
    """And sees its count each time."""
    publisher.publish("urn:a", {})
    seen = []
    for ends in (-signal.SIGKILL, 0):
        command = [sys.executable, "-c", WORKER, redis_url, queue]
        child = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
        assert child.returncode == ends, child.stderr
        seen += child.stdout.split()
        store.expire()
    assert seen == ["0", "1", "2"]
    assert store.counts() == {"dead": 1}
    assert json.loads(store.dead()[0])["attempts"] == 3


def test_without_a_lease_reservations_of_others_are_left(client: Client, queue: str) -> None:
    """And due messages are still promoted."""
    driver, ours = Driver(client), ZsetLayout(queue)
    client.zadd(ours.reserved, {"a": 1})
    client.zadd(ours.delayed, {"b": 1})
    assert take(driver, ours).body == b"b"
    assert client.zrange(ours.reserved, 0, 0) == [b"a"]
    assert client.zscore(ours.reserved, "b") == float("inf")


def test_a_message_without_a_token_is_found_within_a_slice(
    alone: Store, shell: Shell, queue: str
) -> None:
    """By a consumer that waits for a token that never comes."""
    client = alone.client
    consumer = consumer_at(alone, shell, queue)
    outcomes: list[Outcome | None] = []
    thread = threading.Thread(target=lambda: outcomes.append(consumer.poll(60)))
    thread.start()
    eventually(lambda: client.info("clients")["blocked_clients"])
    client.rpush(alone.ready_key, b'{"job":"urn:a","attempts":0}')
    thread.join(60)
    assert outcomes == [Outcome.ACKED]
    assert calls(client, "blpop") <= 20


def test_tokens_that_are_too_many_are_used_up_and_nothing_spins(
    alone: Store, shell: Shell, queue: str
) -> None:
    """One look each, and then a wait."""
    client, notify = alone.client, f"{alone.ready_key}:notify"
    consumer = consumer_at(alone, shell, queue)
    assert consumer.poll(0) is None
    client.config_resetstat()
    client.rpush(notify, *[1] * 50)
    assert consumer.poll(2) is None
    assert client.llen(notify) == 0
    waits = calls(client, "blpop")
    assert 50 < waits <= 55
    assert calls(client, "evalsha") <= 3 * (waits + 1)


def test_equal_bodies_share_a_reservation_and_one_settlement(
    consumer_of: Make, store: Store, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """No ack claims success for both: the second one finds it expired."""
    body = b'{"job":"urn:a","attempts":0}'
    store.push(body, body)
    consumer = consumer_of({"urn:a": lambda envelope: None})
    first, second = consumer.reserve(0), consumer.reserve(0)
    assert first is not None
    assert second is not None
    assert client.zcard(store.reserved_key) == 1
    assert consumer.handle(first) is Outcome.ACKED
    with caplog.at_level(logging.WARNING):
        assert consumer.handle(second) is Outcome.EXPIRED
    assert "reservation expired" in caplog.text


@pytest.mark.parametrize(
    "end", [ACK, GIVE_BACK, Settlement(Outcome.RETRIED, b"{}"), Settlement(Outcome.DROPPED)]
)
def test_a_late_settlement_touches_nothing(client: Client, queue: str, end: Settlement) -> None:
    """The message is somebody else's by then."""
    driver, ours = Driver(client), ZsetLayout(queue, lease=10)
    driver.send(ours.publish([(b'{"job":"urn:a","attempts":0}', {})]))
    late = take(driver, ours)
    assert driver.run(ours.migrate(NOW + 10)) == 1
    current = take(driver, ours, NOW + 10)
    assert send(driver, ours, late, end) is False
    assert client.zrange(ours.reserved, 0, -1) == [current.stored]
    assert client.llen(ours.ready) == client.zcard(ours.delayed) == 0
    assert send(driver, ours, current, end) is True
    assert send(driver, ours, current, end) is False


def test_a_message_given_back_is_what_it_was(client: Client, queue: str) -> None:
    """Its attempts are not raised, and it has its token."""
    driver, ours = Driver(client), ZsetLayout(queue, lease=10)
    body = b'{"job":"urn:a","attempts":0}'
    driver.send(ours.publish([(body, {})]))
    assert send(driver, ours, take(driver, ours), GIVE_BACK)
    assert client.lrange(ours.ready, 0, -1) == [body]
    assert client.llen(ours.notify) == 1


@pytest.mark.parametrize("source", ["delayed", "reserved"])
def test_20_000_due_messages_move_in_order_none_twice(private_client: Client, source: str) -> None:
    """One migration moves all, in calls of 100, with a token each."""
    driver, ours = Driver(private_client), ZsetLayout("orders", lease=10)
    members = [f"member {i:05}".encode() for i in range(20_000)]
    private_client.zadd(getattr(ours, source), {member: i for i, member in enumerate(members)})
    private_client.config_resetstat()
    assert driver.run(ours.migrate(NOW)) == 20_000
    assert private_client.lrange(ours.ready, 0, -1) == members
    assert private_client.llen(ours.notify) == 20_000
    assert private_client.zcard(getattr(ours, source)) == 0
    calls = private_client.info("commandstats")["cmdstat_evalsha"]["calls"]
    assert calls == 20_000 / 100 + 2  # it was unknown at first, and the other set holds nothing


def test_a_migration_moves_about_a_quarter_of_a_mebibyte_in_one_call(
    client: Client, queue: str
) -> None:
    """Large messages must not hold the server up."""
    driver, ours = Driver(client), ZsetLayout(queue, lease=10)
    members = [f"{i:02}".ljust(10_000).encode() for i in range(50)]
    client.zadd(ours.reserved, dict.fromkeys(members, 1))
    migrated = driver.send(ours._migrate(ours.reserved, 0, NOW))
    assert (migrated.moved, migrated.more) == (30, True)
    assert driver.run(ours.migrate(NOW)) == 20
    assert client.lrange(ours.ready, 0, -1) == members
    assert client.llen(ours.notify) == 50


def test_a_batch_size_bounds_one_migration(client: Client, queue: str) -> None:
    """Of each set, across its chunks."""
    driver, ours = Driver(client), ZsetLayout(queue, lease=10, batch=1200)
    for source in (ours.delayed, ours.reserved):
        client.zadd(source, {f"{source} {i}": i for i in range(1300)})
    assert driver.run(ours.migrate(NOW)) == 2400
    assert client.zcard(ours.delayed) == client.zcard(ours.reserved) == 100
    assert driver.run(ours.migrate(NOW)) == 200
    assert client.llen(ours.ready) == client.llen(ours.notify) == 2600


CANONICAL = [
    b'{"job":"urn:a","data":{"i":123456789012345678,"f":1.0,"e":1e20,"a":[],"o":{}},"attempts":0}',
    b'{"job":"urn:a","meta":{"attempts":7},"s":"x,\\"attempts\\":5}","attempts":999999999999999}',
    b'{"attempts":0}',
    '{"job":"urn:a","s":"é ☕","attempts":41}'.encode(),
]
OTHERS = [
    b'{"attempts":0,"job":"urn:a"}',
    b'{"job":"urn:a","attempts":0 }',
    b'{"job":"urn:a","attempts": 0}',
    b'{"job":"urn:a","attempts":0}\n',
    b'{"job":"urn:a","attempts":-1}',
    b'{"job":"urn:a","attempts":1e3}',
    b'{"job":"urn:a","attempts":1,"attempts":0}',
    b'{"job":"urn:a","x":{"attempts":0}}',
    b'{"job":"urn:a","attempts":1,"x":{"attempts":5}}',
]


@pytest.mark.parametrize("body", CANONICAL)
def test_a_canonical_message_is_patched_in_its_text(
    client: Client, queue: str, body: bytes
) -> None:
    """The reservation, and so a recovered message, differs in its attempts alone."""
    driver, ours = Driver(client), ZsetLayout(queue, lease=10)
    driver.send(ours.publish([(body, {})]))
    taken = take(driver, ours)
    head, _, tail = body.rpartition(b":")
    expected = head + b":%d}" % (int(tail[:-1]) + 1)
    assert taken.stored == expected
    assert taken.body == body


@pytest.mark.parametrize("body", OTHERS)
def test_another_shape_is_counted_by_its_value(client: Client, queue: str, body: bytes) -> None:
    """The count of the root object is raised, no look-alike's."""
    driver, ours = Driver(client), ZsetLayout(queue, lease=10)
    driver.send(ours.publish([(body, {})]))
    taken = take(driver, ours)
    before, after = json.loads(body), json.loads(taken.stored)
    if "attempts" not in before:
        assert taken.poison
        assert taken.stored == body
        return
    assert after == {**before, "attempts": before["attempts"] + 1}
    assert taken.poison is None


KEYS = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | KEYS,
    lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner),
    max_leaves=15,  # the default 100 takes four times as long, nearly all of it to draw
)
TAKEN = {"job", "urn", "trace_id", "data", "meta", "attempts", "dead_letter", "timestamp"}
TAKEN |= {*CORE_META_KEYS, *FORBIDDEN_META_KEYS}
MORE = st.dictionaries(KEYS.filter(lambda key: key not in TAKEN), JSON, max_size=4)
STEPS = st.lists(st.sampled_from(["crash", "fail", "give back"]), max_size=6)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.dictionaries(KEYS, JSON), MORE, MORE, STEPS)
def test_a_message_keeps_every_byte_through_crashes_and_failures(
    client: Client,
    queue: str,
    data: dict[str, Any],
    meta: dict[str, Any],
    unknown: dict[str, Any],
    steps: list[str],
) -> None:
    """From the publish to the dead letter, ``attempts`` and ``dead_letter`` apart."""
    store = Store(client, queue, "zset")
    members = make(
        "urn:a", data, queue=queue, message_id="i", trace_id="t", created_at=1, meta=meta
    )
    del members["attempts"]
    head = encode({**members, **unknown}).removesuffix(b"}")
    attempts, raws, step = 0, [], ""

    def handle(_envelope: Any, raw: bytes) -> None:
        raws.append(raw)
        if step == "give back":
            raise KeyboardInterrupt
        fail()

    def stored() -> bytes:
        return head + b',"attempts":%d}' % attempts

    store.push(stored())
    tries = 1 + sum(each != "give back" for each in steps)
    options: dict[str, Any] = {"max_tries": tries, "layout": "zset", "on_error": ignore}
    with RedisConsumer(client, queue, {"urn:a": handle}, **options) as consumer:
        for step in steps:
            raws.clear()
            if step == "crash":
                assert consumer.reserve(0) is not None
                store.expire()
            elif step == "give back":
                with pytest.raises(KeyboardInterrupt):
                    consumer.poll(0)
            else:
                assert consumer.poll(0) is Outcome.RETRIED
            assert raws == ([] if step == "crash" else [stored()])
            attempts += step != "give back"
            assert [*store.ready(), *store.reserved()] == [stored()]
        step = "fail"
        assert consumer.poll(0) is Outcome.DEAD_LETTERED
    attempts += 1
    (dead,) = store.dead()
    kept, _, block = dead.rpartition(b',"dead_letter":')
    assert kept + b"}" == stored()
    assert json.loads(block[:-1])["attempts"] == attempts
    client.delete(store.dead_key, f"{store.dead_key}:notify", f"{store.ready_key}:notify")
    assert not client.keys(f"*{queue}*")


def ignore(*_: object) -> None:
    """An ``on_error`` that says nothing."""

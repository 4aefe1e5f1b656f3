"""``RedisQueue.redrive``: dead letters go back, each once, whole."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from babelqueue_carrier import frame_value
from babelqueue_redis import (
    AsyncRedisQueue,
    CommandRefusedError,
    ConfigurationError,
    ConnectionLostError,
    DeadLetter,
    Moved,
    Outcome,
    RedisConsumer,
    RedisPublisher,
    RedisQueue,
    StoredMessage,
)
from babelqueue_redis.dead_letter import block, poison_record, record
from babelqueue_redis.envelope import encode, make
from kit import redis_server
from tests.support.handlers import fail
from tests.support.marks import both_layouts, both_shells
from tests.support.proxy import proxy_to
from tests.support.server import Client
from tests.support.shells import Shell
from tests.support.store import Store
from tests.support.waiting import eventually

pytestmark = [both_layouts, both_shells]

Make = Callable[..., RedisConsumer]


@pytest.fixture
def operator(shell: Shell, redis_url: str, queue: str, layout: str) -> RedisQueue:
    """The test's queue in an operator's hands."""
    made: RedisQueue = shell.make("queue", redis_url, queue, layout=layout)
    return made


def quiet(*_: object) -> None:
    """An ``on_error`` that says nothing."""


def grave(queue: str, reason: str = "failed", attempts: int = 3) -> dict[str, Any]:
    """Return a ``dead_letter`` block."""
    return block(
        reason, error="e", exception="E", failed_at=1, original_queue=queue, attempts=attempts
    )


def body(n: int) -> bytes:
    """Return an envelope as it is published."""
    return b'{"job":"urn:a","data":{"n":%d},"attempts":0}' % n


def dead(queue: str, n: int) -> bytes:
    """Return its dead letter."""
    return record(body(n), grave(queue))


def bury(store: Store, *elements: bytes) -> None:
    """Write dead letters, as a consumer does."""
    store.client.rpush(store.dead_key, *elements)
    if store.layout == "zset":
        store.client.rpush(f"{store.dead_key}:notify", *[1] * len(elements))


def check_tokens(store: Store) -> None:
    """A token per ready message, on both sides; none where there is no place for them."""
    for key in (store.ready_key, store.dead_key):
        expected = store.client.llen(key) if store.layout == "zset" else 0
        assert store.client.llen(f"{key}:notify") == expected


def test_a_dead_letter_goes_back_as_it_was_published(
    operator: RedisQueue, publisher: RedisPublisher, consumer_of: Make, store: Store, queue: str
) -> None:
    """With its headers, without its block, and it is tried as often as a new one."""
    message_id = publisher.publish("urn:a", {"f": 1.0, "i": 2**60}, headers={"k": "v"})
    published = store.ready()
    consumer = consumer_of({"urn:a": fail}, max_tries=1, on_error=quiet)
    assert consumer.poll(0) is Outcome.DEAD_LETTERED
    done = operator.redrive()
    assert done.moved == (Moved(message_id, "urn:a", queue),)
    assert done.left == {}
    assert store.ready() == published
    assert store.dead() == []
    check_tokens(store)
    assert consumer.poll(0) is Outcome.DEAD_LETTERED
    assert operator.redrive(limit=1).moved == done.moved


KEYS = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | KEYS,
    lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner),
    max_leaves=15,  # the default 100 takes four times as long, nearly all of it to draw
)
UNKNOWN = st.dictionaries(KEYS.map("x-{}".format), JSON, max_size=3)
NUMBERS = st.sampled_from([b"1e400", b"-0", b"123456789012345678901234567890", b"1.0", b"1E2"])


@settings(
    max_examples=30,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    data=st.dictionaries(KEYS, JSON),
    unknown=UNKNOWN,
    number=NUMBERS,
    headers=st.dictionaries(KEYS, KEYS),
    attempts=st.integers(0, 5),
)
def test_a_dead_letter_that_goes_back_has_every_byte_but_its_attempts(
    operator: RedisQueue,
    consumer_of: Make,
    store: Store,
    queue: str,
    data: dict[str, Any],
    unknown: dict[str, Any],
    number: bytes,
    headers: dict[str, str],
    attempts: int,
) -> None:
    """Whatever its data, its unknown keys, its numbers and its headers are."""
    made = make("urn:a", data, queue=queue, message_id="i", trace_id="t", created_at=1)
    text = encode({**unknown, **made})
    tail = b'"attempts":0}'
    assert text.endswith(tail)
    if store.layout == "legacy":  # Redis' JSON library, which counts in the other, knows no 1e400
        text = text.removesuffix(tail) + b'"x-number":' + number + b"," + tail
    sent = headers if store.layout == "legacy" else {}
    tried = text.removesuffix(tail) + b'"attempts":%d}' % attempts
    store.push(frame_value(tried, sent))
    consumer = consumer_of({"urn:a": fail}, max_tries=1, on_error=quiet)
    assert consumer.poll(0) is Outcome.DEAD_LETTERED
    assert len(operator.redrive().moved) == 1
    assert store.ready() == [frame_value(text, sent)]
    check_tokens(store)
    store.client.delete(store.ready_key, f"{store.ready_key}:notify")


def test_they_go_back_in_order_and_no_more_than_asked_for(
    operator: RedisQueue, store: Store, queue: str
) -> None:
    """The oldest first, behind what waits already."""
    store.push(body(99))
    bury(store, *[dead(queue, n) for n in range(5)])
    assert len(operator.redrive(limit=2).moved) == 2
    assert store.ready() == [body(99), body(0), body(1)]
    assert store.dead() == [dead(queue, n) for n in (2, 3, 4)]
    check_tokens(store)
    assert len(operator.redrive(limit=100).moved) == 3
    assert store.ready() == [body(99), *map(body, range(5))]
    assert operator.redrive().moved == ()


def test_a_selection_is_by_what_the_dead_letter_says(
    operator: RedisQueue, store: Store, queue: str
) -> None:
    """The predicate sees the message, its headers and its block; never poison."""
    seen: list[StoredMessage] = []

    def select(message: StoredMessage) -> bool:
        seen.append(message)
        return message.envelope is not None and message.envelope.data["n"] % 2 == 1

    poison = poison_record(b"junk", grave(queue, "poison"))
    bury(store, poison, *[dead(queue, n) for n in range(4)])
    done = operator.redrive(select=select)
    assert [message.dead_letter for message in seen] == [
        DeadLetter("failed", "e", "E", 1, queue, 3, "python")
    ] * 4
    assert [moved.queue for moved in done.moved] == [queue, queue]
    assert done.left == {"not selected": 2, "poison": 1}
    assert store.ready() == [body(1), body(3)]
    assert store.dead() == [poison, dead(queue, 0), dead(queue, 2)]
    check_tokens(store)


def test_a_selection_that_raises_moves_nothing_more(
    operator: RedisQueue, store: Store, queue: str
) -> None:
    """And is the caller's to see."""
    bury(store, dead(queue, 1))
    with pytest.raises(ValueError, match="boom"):
        operator.redrive(select=fail)  # type: ignore[arg-type]
    assert store.counts() == {"dead": 1}


def test_a_dry_run_says_what_would_be_done(
    operator: RedisQueue, store: Store, client: Client, queue: str
) -> None:
    """In full, over several steps, and does none of it."""
    bury(store, b"junk", *[dead(queue, n) for n in range(250)])
    before = store.dead()
    plan = operator.redrive(to="elsewhere", limit=220, dry_run=True)
    assert plan.moved == (Moved("", "urn:a", "elsewhere"),) * 220
    assert plan.left == {"poison": 1}
    assert len(operator.redrive(dry_run=True).moved) == 250
    assert store.dead() == before
    assert not client.exists(store.ready_key)
    check_tokens(store)


def test_all_can_go_to_one_queue(
    operator: RedisQueue, store: Store, client: Client, queue: str, layout: str
) -> None:
    """Whatever queues they came from; without it each goes to its own."""
    other, prefix = f"bq-test-{uuid.uuid4().hex}", "" if layout == "legacy" else "queues:"
    try:
        bury(store, dead(queue, 1), dead(other, 2), dead("", 3))
        assert operator.redrive(limit=1, to=other).moved == (Moved("", "urn:a", other),)
        done = operator.redrive()
        assert done.moved == (Moved("", "urn:a", other),)
        assert done.left == {"no usable original queue": 1}
        assert client.lrange(prefix + other, 0, -1) == [body(1), body(2)]
        assert client.llen(f"{prefix}{other}:notify") == (2 if layout == "zset" else 0)
        assert len(operator.redrive(to=queue).moved) == 1
        assert store.ready() == [body(3)]
        check_tokens(store)
    finally:
        client.delete(prefix + other, f"{prefix}{other}:notify")


def hostile(queue: str) -> list[bytes]:
    """Return what may stand in a dead-letter queue and must not go back."""
    return [
        b"",
        b"\xff",
        b"5",
        b"[1]",
        b"null",
        b"not json",
        b'{"dead_letter":{"reason":"failed","original_queue":"q"}}',
        body(1),
        b'{"job":"urn:a","dead_letter":null}',
        b'{"job":"urn:a","dead_letter":"x"}',
        b'{"job":"urn:a","dead_letter":{"reason":5}}',
        b'{"job":"urn:a","dead_letter":{}}',
        b'{"job":"urn:a","dead_letter":{"reason":"failed"}}',
        b'{"job":"urn:a","dead_letter":{"reason":"failed","original_queue":" "}}',
        dead(f"{queue}:processing", 1),
        dead(f"{queue}:notify", 1),
        dead(f"{queue}.dlq", 1),
        poison_record(b'{"job":"urn:a"}', grave(queue, "poison")),
        poison_record(b"\xff", grave(queue, "poison")),
        frame_value(poison_record(b"junk", grave(queue, "poison")), {"k": "v"}),
        record(b'{"job":"urn:a","meta":{"schema_version":2}}', grave(queue)),
    ]


def test_what_is_no_dead_letter_of_ours_stays_where_it_is(
    operator: RedisQueue, store: Store, queue: str
) -> None:
    """Each byte of it; the good ones behind it go."""
    elements = hostile(queue)
    bury(store, *elements, dead(queue, 7))
    done = operator.redrive()
    assert len(done.moved) == 1
    assert sum(done.left.values()) == len(elements)
    assert set(done.left) == {"poison", "not a dead letter", "no usable original queue"}
    assert store.dead() == elements
    assert store.ready() == [body(7)]
    check_tokens(store)


@pytest.mark.parametrize(("layout", "part"), [("legacy", ""), ("zset", ""), ("zset", ":notify")])
def test_a_target_of_another_type_keeps_its_letters_in_place(
    operator: RedisQueue, store: Store, client: Client, queue: str, layout: str, part: str
) -> None:
    """One that somebody else's message names must not stop the others."""
    other = f"bq-test-{uuid.uuid4().hex}"
    key = f"{'' if layout == 'legacy' else 'queues:'}{other}"
    client.set(key + part, "a string")
    try:
        bury(store, dead(other, 1), dead(queue, 2))
        done = operator.redrive()
        assert done.moved == (Moved("", "urn:a", queue),)
        assert done.left == {"the queue's key holds another type": 1}
        assert store.dead() == [dead(other, 1)]
        assert store.ready() == [body(2)]
        assert client.get(key + part) == b"a string"
        assert client.exists(key) == (1 if part == "" else 0)
    finally:
        client.delete(key, f"{key}:notify")


def test_a_dead_letter_queue_of_another_type_is_an_error(
    operator: RedisQueue, store: Store, client: Client
) -> None:
    """That names the key."""
    client.set(store.dead_key, "a string")
    with pytest.raises(CommandRefusedError, match=store.dead_key):
        operator.redrive()
    assert client.get(store.dead_key) == b"a string"


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"to": "a:processing"}, "to="),
        ({"to": " "}, "to="),
        ({"limit": 0}, "limit="),
        ({"limit": 1.5}, "limit="),
        ({"select": "failed"}, "select"),
    ],
    ids=str,
)
def test_what_cannot_work_is_refused(
    operator: RedisQueue, store: Store, queue: str, options: dict[str, Any], names: str
) -> None:
    """Before anything is sent."""
    bury(store, dead(queue, 1))
    with pytest.raises(ConfigurationError, match=names):
        operator.redrive(**options)
    with pytest.raises(ConfigurationError, match="itself"):
        operator.redrive(f"{queue}.dlq")
    assert store.counts() == {"dead": 1}


def test_what_a_consumer_of_the_dead_letters_has_is_not_touched(
    operator: RedisQueue,
    shell: Shell,
    redis_url: str,
    store: Store,
    queue: str,
    layout: str,
) -> None:
    """It is that consumer's to settle; an equal copy that nobody took goes back."""
    bury(store, dead(queue, 1), dead(queue, 1), dead(queue, 2))
    consumer = shell.make(
        "consumer",
        redis_url,
        f"{queue}.dlq",
        {"urn:a": lambda envelope: None},
        layout=layout,
        max_tries=99,
    )
    taken = consumer.reserve(0)
    assert len(operator.redrive().moved) == 2
    assert store.ready() == [body(1), body(2)]
    assert consumer.handle(taken) is Outcome.ACKED
    assert store.counts() == {"ready": 2}
    check_tokens(store)


def test_a_long_queue_goes_back_in_bounded_steps(
    own_server: Callable[..., str], shell: Shell, layout: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A script call moves one message, a read shows 100; the log tells how far it is."""
    url = own_server()
    with redis.Redis.from_url(url) as client:
        store = Store(client, "orders", layout)
        junk = [b"junk %d" % n for n in range(150)]
        letters = [dead("orders", n) for n in range(1050)]
        bury(store, *junk[:120], *letters[:500], *junk[120:], *letters[500:])
        client.config_resetstat()
        operator = shell.make("queue", url, "orders", layout=layout)
        heard: list[tuple[int, int]] = []
        with caplog.at_level(logging.INFO):
            done = operator.redrive(progress=lambda moved, left: heard.append((moved, left)))
            assert len(done.moved) == 1050
        calls = client.info("commandstats")
        assert store.ready() == [body(n) for n in range(1050)]
        assert store.dead() == junk
        check_tokens(store)
    assert calls["cmdstat_evalsha"]["calls"] == 1050
    assert calls["cmdstat_lrange"]["calls"] == 12
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 12
    assert told[-1] == "redrive of 'orders.dlq': moved 1050, left 150 in place"
    assert (len(heard), heard[0], heard[-1]) == (12, (0, 100), (1050, 150))


def test_what_dies_again_meanwhile_is_not_looked_at(
    operator: RedisQueue, store: Store, queue: str
) -> None:
    """Else a message that always fails would go round for ever."""
    seen: list[StoredMessage] = []

    def select(message: StoredMessage) -> bool:
        seen.append(message)
        bury(store, dead(queue, 7))
        return True

    bury(store, *[dead(queue, n) for n in range(150)])
    assert len(operator.redrive(select=select).moved) == 150
    assert len(seen) == 150
    assert store.counts() == {"ready": 150, "dead": 150}


def numbers(elements: list[bytes]) -> Counter[int]:
    """Count the messages by number."""
    return Counter(json.loads(element)["data"]["n"] for element in elements)


def in_threads(*calls: Callable[[], object]) -> None:
    """Run the calls at the same time, and wait for all."""
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_two_redrives_at_once_move_each_message_once(
    shell: Shell, redis_url: str, store: Store, queue: str, layout: str
) -> None:
    """What one of them finds gone, the other one has moved."""
    bury(store, *[dead(queue, n) for n in range(600)], *[dead(queue, 7)] * 50)
    results: list[Any] = []

    def work() -> None:
        operator = shell.make("queue", redis_url, queue, layout=layout)
        results.append(operator.redrive())

    in_threads(work, work)
    assert sum(len(done.moved) for done in results) == 650
    assert numbers(store.ready()) == Counter({**dict.fromkeys(range(600), 1), 7: 51})
    assert store.counts() == {"ready": 650}
    assert all(set(done.left) <= {"taken meanwhile"} for done in results)
    check_tokens(store)


def test_a_consumer_of_the_dead_letters_may_work_meanwhile(
    shell: Shell, redis_url: str, store: Store, queue: str, layout: str
) -> None:
    """Each message is either handled there or moved, never both, never neither."""
    bury(store, *[dead(queue, n) for n in range(500)])
    handled: list[int] = []
    moved: list[Moved] = []

    def consume() -> None:
        consumer = shell.make(
            "consumer",
            redis_url,
            f"{queue}.dlq",
            {"urn:a": lambda envelope: handled.append(envelope.data["n"])},
            layout=layout,
            max_tries=99,
        )
        while consumer.poll(0):
            pass

    def redrive() -> None:
        operator = shell.make("queue", redis_url, queue, layout=layout)
        while store.dead():
            moved.extend(operator.redrive(limit=20).moved)

    in_threads(consume, redrive)
    back = numbers(store.ready())
    assert back + Counter(handled) == Counter(range(500))
    assert len(moved) == sum(back.values())
    assert store.dead() == store.reserved() == []
    check_tokens(store)


REDRIVE = """
import sys
from babelqueue_redis import RedisQueue
url, queue, layout = sys.argv[1:]
RedisQueue(url, queue, layout=layout).redrive()
"""


@pytest.mark.parametrize("kind", ["sync"])
def test_a_redrive_that_is_killed_has_moved_each_message_or_left_it(
    redis_url: str, store: Store, queue: str, layout: str, kind: str
) -> None:
    """The next one goes on; no message is lost or doubled."""
    bury(store, *[dead(queue, n) for n in range(3000)])
    command = [sys.executable, "-c", REDRIVE, redis_url, queue, layout]
    for _ in range(2):
        before = store.client.llen(store.dead_key)
        with subprocess.Popen(command) as process:
            eventually(lambda: store.client.llen(store.dead_key) < before)  # noqa: B023 - runs now
            os.kill(process.pid, signal.SIGKILL)
    assert store.client.llen(store.dead_key) + store.client.llen(store.ready_key) == 3000
    check_tokens(store)
    assert subprocess.run(command, check=True).returncode == 0
    assert store.ready() == [body(n) for n in range(3000)]
    assert store.dead() == []


def test_a_lost_reply_is_an_error_and_the_next_redrive_goes_on(
    shell: Shell, redis_url: str, store: Store, queue: str, layout: str
) -> None:
    """What was sent may have run; nothing is sent twice."""
    bury(store, *[dead(queue, n) for n in range(10)])
    with proxy_to(redis_url) as proxy:
        operator = shell.make("queue", proxy.url, queue, layout=layout)
        proxy.cut_before_the_reply_to(b"EVALSHA")
        with pytest.raises(ConnectionLostError):
            operator.redrive()
        operator.redrive()
        assert store.ready() == [body(n) for n in range(10)]
        assert store.dead() == []
        check_tokens(store)


def test_a_user_who_may_not_push_loses_nothing(
    own_server: Callable[..., str], shell: Shell, layout: str
) -> None:
    """The new place is written before the old one is removed."""
    url = own_server()
    with redis.Redis.from_url(url) as client:
        store = Store(client, "orders", layout)
        bury(store, dead("orders", 1))
        client.acl_setuser(
            "reader", enabled=True, nopass=True, keys="*", categories=["+@all"], commands=["-rpush"]
        )
        operator = shell.make("queue", url.replace("//", "//reader:x@"), "orders", layout=layout)
        with pytest.raises(CommandRefusedError, match="redrive"):
            operator.redrive()
        assert store.counts() == {"dead": 1}
        check_tokens(store)


def test_at_maxmemory_a_redrive_goes_on(
    own_server: Callable[..., str], shell: Shell, layout: str
) -> None:
    """It is a move, and consumers make room."""
    url = own_server()
    with redis.Redis.from_url(url) as client:
        store = Store(client, "orders", layout)
        bury(store, dead("orders", 1))
        client.config_set("maxmemory", 1)
        with pytest.raises(redis.exceptions.OutOfMemoryError):
            client.rpush("full", b"x")
        operator = shell.make("queue", url, "orders", layout=layout)
        assert len(operator.redrive().moved) == 1
        assert operator.purge() == 1
        client.config_set("maxmemory", 0)


def test_on_a_cluster_names_share_a_hash_tag_or_one_error_says_so(
    own_server: Callable[..., str], shell: Shell, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is lost; with the tag it works."""
    # A cluster's nodes talk on the port 10 000 above.
    low = (port for port in iter(redis_server.free_port, 0) if port <= 55_535)
    monkeypatch.setattr(redis_server, "free_port", lambda: next(low))
    url = own_server("--cluster-enabled", "yes")
    with redis.Redis.from_url(url) as client:
        client.execute_command("CLUSTER", "ADDSLOTS", *range(16384))
        eventually(lambda: b"cluster_state:ok" in client.execute_command("CLUSTER", "INFO"))
        store = Store(client, "{orders}", layout)
        bury(store, dead("bills", 1), dead("{orders}", 2))
        operator = shell.make("queue", url, "{orders}", layout=layout)
        with pytest.raises(CommandRefusedError, match=r"redrive on .*bills.*same slot.*\{orders\}"):
            operator.redrive()
        assert store.dead() == [dead("bills", 1)]
        assert store.ready() == [body(2)]
        assert len(operator.redrive(to="{orders}").moved) == 1
        assert operator.counts().ready == operator.purge() == 2


async def cancel_in_the_middle(url: str, queue: str, layout: str) -> None:
    """Start a redrive, and cancel it once it has begun."""
    async with AsyncRedisQueue(url, queue, layout=layout) as operator:
        task = asyncio.create_task(operator.redrive())
        while not (await operator.counts()).ready:
            pass
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.mark.parametrize("kind", ["aio"])
def test_a_redrive_that_is_cancelled_stops_after_its_step(
    redis_url: str, store: Store, queue: str, layout: str, kind: str
) -> None:
    """And leaves each message in one place."""
    bury(store, *[dead(queue, n) for n in range(5000)])
    asyncio.run(cancel_in_the_middle(redis_url, queue, layout))
    moved = store.client.llen(store.ready_key)
    assert 0 < moved < 5000
    assert moved % 100 == 0
    assert store.ready() == [body(n) for n in range(moved)]
    assert store.dead() == [dead(queue, n) for n in range(moved, 5000)]
    check_tokens(store)

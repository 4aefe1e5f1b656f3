"""Laravel's queue as a peer on the zset layout: the real one where there is one, and a stand-in.

Both run the same tests, so the stand-in cannot tell another story than Laravel; where PHP with
illuminate/queue is missing, the stand-in is alone. Install ``php-cli php-redis
php-illuminate-queue php-illuminate-redis`` on Debian for the real one.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from babelqueue_redis import Envelope, Outcome, RedisConsumer, RedisPublisher, Reservation, entropy
from tests.interop.laravel.peers import Laravel, Peer, StandIn, laravel_version
from tests.support.handlers import fail
from tests.support.marks import both_shells
from tests.support.server import Client
from tests.support.store import Store

pytestmark = both_shells

Make = Callable[..., RedisConsumer]
DATA = {"i": 123456789012345678, "f": 1.0, "e": 1e20, "l": [], "o": {}, "s": "é/", "n": None}


@pytest.fixture
def layout() -> str:
    """Laravel's."""
    return "zset"


@pytest.fixture(scope="module", params=["laravel", "stand-in"])
def peer_class(request: pytest.FixtureRequest) -> type[Laravel | StandIn]:
    """The real Laravel, and the stand-in."""
    if request.param == "stand-in":
        return StandIn
    if not laravel_version():
        pytest.skip("no PHP with illuminate/queue and phpredis here: the stand-in is alone")
    return Laravel


@pytest.fixture(scope="module")
def peer(peer_class: type[Laravel | StandIn], redis_url: str) -> Iterator[Peer]:
    """A Laravel program."""
    made = peer_class(redis_url)
    yield made
    made.close()


@pytest.fixture
def seen() -> list[Envelope]:
    """What a handler of ours was given."""
    return []


@pytest.fixture
def consumer(consumer_of: Make, seen: list[Envelope]) -> RedisConsumer:
    """One of ours that keeps what it sees."""
    return consumer_of({"urn:a": seen.append})


def with_attempts(body: str, attempts: int) -> str:
    """Return a canonical body with another count."""
    return body.replace('"attempts":0}', f'"attempts":{attempts}}}')


def let_come_due(store: Store) -> None:
    """Let the time pass that messages are kept back."""
    delayed = f"{store.ready_key}:delayed"
    store.client.zadd(delayed, dict.fromkeys(store.client.zrange(delayed, 0, -1), 1), xx=True)


def published(publisher: RedisPublisher, store: Store) -> str:
    """Publish with ours; return the message's text."""
    publisher.publish("urn:a", DATA)
    text: str = store.client.lindex(store.ready_key, -1).decode()
    return text


def left(client: Client, queue: str) -> list[bytes]:
    """Return the keys of the queue."""
    return list(client.scan_iter(f"*{queue}*", count=10_000))


def test_ours_handles_an_envelope_that_laravel_pushes(
    peer: Peer, consumer_of: Make, publisher: RedisPublisher, store: Store, queue: str
) -> None:
    """As raw payload, with its bytes as they were."""
    bodies: list[bytes] = []
    body = published(publisher, store)
    store.client.delete(store.ready_key, f"{store.ready_key}:notify")
    peer.push_raw(queue, body)
    consumer = consumer_of({"urn:a": lambda envelope, raw: bodies.append(raw)})
    assert consumer.poll(0) is Outcome.ACKED
    assert bodies == [body.encode()]
    assert left(store.client, queue) == []


def test_ours_handles_a_job_of_laravels_own(
    peer: Peer, consumer: RedisConsumer, seen: list[Envelope], client: Client, queue: str
) -> None:
    """A job that is named like a URN is a message without an id and a trace."""
    peer.push(queue, "urn:a", {"n": 1})
    assert consumer.poll(0) is Outcome.ACKED
    (envelope,) = seen
    assert (envelope.job, envelope.data, envelope.attempts) == ("urn:a", {"n": 1}, 0)
    assert (envelope.trace_id, envelope.meta.id) == ("", "")
    assert left(client, queue) == []


def test_an_empty_array_of_php_is_poison(
    peer: Peer, consumer: RedisConsumer, store: Store, queue: str
) -> None:
    """JSON has it as a list, and data is an object: push an empty one, or null."""
    peer.push(queue, "urn:a", [])
    peer.push(queue, "urn:a", None)
    assert [consumer.poll(0), consumer.poll(0)] == [Outcome.DEAD_LETTERED, Outcome.ACKED]
    assert json.loads(store.dead()[0])["dead_letter"]["reason"] == "poison"


def test_laravel_handles_what_ours_publishes(
    peer: Peer, publisher: RedisPublisher, store: Store, queue: str
) -> None:
    """It sees the bytes that were published, and deletes the job."""
    body = published(publisher, store)
    job = peer.pop(queue)
    assert job is not None
    assert (job.body, job.attempts) == (body, 1)
    peer.delete(job)
    assert left(store.client, queue) == []
    assert peer.pop(queue) is None


def test_either_keeps_back_and_promotes_for_the_other(
    peer: Peer, publisher: RedisPublisher, consumer: RedisConsumer, store: Store, queue: str
) -> None:
    """For as long as the one that published wants."""
    before = int(time.time())
    peer.later(queue, 60, "urn:a", {"n": 1})
    peer.later_raw(queue, 61, '{"job":"urn:a","attempts":0}')
    publisher.publish("urn:a", {}, delay=62)
    scores = [due for _, due in store.client.zscan_iter(f"{store.ready_key}:delayed")]
    assert all(60 <= due - before <= 62 + time.time() - before for due in scores)
    assert consumer.poll(0) is None
    assert peer.pop(queue) is None
    let_come_due(store)
    job = peer.pop(queue)
    assert job is not None
    peer.delete(job)
    assert [consumer.poll(0), consumer.poll(0), consumer.poll(0.01)] == [Outcome.ACKED] * 2 + [None]
    assert left(store.client, queue) == []


def test_a_failure_at_ours_is_a_retry_at_laravel(
    peer: Peer, publisher: RedisPublisher, consumer_of: Make, store: Store, queue: str
) -> None:
    """With the attempt counted, and every other byte kept."""
    body = published(publisher, store)
    assert consumer_of({"urn:a": fail}, on_error=print).poll(0) is Outcome.RETRIED
    job = peer.pop(queue)
    assert job is not None
    assert (job.body, job.attempts) == (with_attempts(body, 1), 2)


def test_a_failed_job_of_laravels_own_keeps_its_members(
    peer: Peer, consumer_of: Make, store: Store, queue: str
) -> None:
    """Laravel finds its id and its settings again."""
    peer.push(queue, "urn:a", {"n": 1})
    before = json.loads(store.client.lindex(store.ready_key, 0))
    assert consumer_of({"urn:a": fail}, on_error=print).poll(0) is Outcome.RETRIED
    job = peer.pop(queue)
    assert job is not None
    assert json.loads(job.body) == {**before, "attempts": 1}


def test_what_laravel_releases_ours_handles_as_redis_wrote_it_anew(
    peer: Peer,
    publisher: RedisPublisher,
    consumer: RedisConsumer,
    seen: list[Envelope],
    store: Store,
    queue: str,
) -> None:
    """Laravel gives back the reserved form: long integers, 1.0 and [] are damaged by then."""
    message_id = publisher.publish("urn:a", DATA)
    job = peer.pop(queue)
    assert job is not None
    peer.release(job, 60)
    assert consumer.poll(0) is None
    let_come_due(store)
    assert consumer.poll(0) is Outcome.ACKED
    (envelope,) = seen
    assert (envelope.meta.id, envelope.attempts) == (message_id, 1)
    damaged = {**DATA, "i": 123456789012350000, "f": 1, "l": {}}
    assert envelope.data == damaged
    assert type(envelope.data["f"]) is int
    assert left(store.client, queue) == []


def test_laravel_settles_what_ours_reserved(
    peer: Peer,
    publisher: RedisPublisher,
    consumer: RedisConsumer,
    seen: list[Envelope],
    store: Store,
    queue: str,
) -> None:
    """Ours finds its reservation gone, and touches nothing; a released one is delivered again."""
    for settle in (peer.delete, lambda job: peer.release(job, 0)):
        publisher.publish("urn:a", DATA)
        reserved = consumer.reserve(0)
        assert reserved is not None
        job = peer.adopt(queue, reserved.body.decode(), reserved.stored.decode())
        settle(job)
        assert consumer.handle(reserved) is Outcome.EXPIRED
    assert consumer.poll(0) is Outcome.ACKED
    assert [envelope.attempts for envelope in seen] == [0, 0, 1]
    assert seen[-1].data == DATA
    assert left(store.client, queue) == []


def test_ours_settles_what_laravel_reserved(
    peer: Peer, publisher: RedisPublisher, consumer_of: Make, store: Store, queue: str
) -> None:
    """An ack, a retry from the bytes that were published, and a return; Laravel is late then."""
    outcomes = []
    bodies = [published(publisher, store) for _ in range(2)]
    for handler in (fail, lambda envelope: None):
        job = peer.pop(queue)
        assert job is not None
        theirs = Reservation(
            queue, job.body.encode(), {}, entropy.new_token(), job.reserved.encode()
        )
        outcomes.append(consumer_of({"urn:a": handler}, on_error=print).handle(theirs))
        peer.delete(job)
    assert outcomes == [Outcome.RETRIED, Outcome.ACKED]
    assert store.ready() == [with_attempts(bodies[0], 1).encode()]
    assert store.reserved() == []


def test_ours_recovers_what_laravel_left_behind(
    peer: Peer,
    publisher: RedisPublisher,
    consumer: RedisConsumer,
    seen: list[Envelope],
    store: Store,
    queue: str,
) -> None:
    """The crash counts as an attempt."""
    message_id = publisher.publish("urn:a", {})
    before = int(time.time())
    assert peer.pop(queue) is not None
    ((_, until),) = store.client.zscan_iter(store.reserved_key)
    assert 60 <= until - before <= 60 + time.time() - before
    assert consumer.poll(0) is None
    store.expire()
    assert consumer.poll(0) is Outcome.ACKED
    assert [(envelope.meta.id, envelope.attempts) for envelope in seen] == [(message_id, 1)]
    assert left(store.client, queue) == []


def test_laravel_recovers_what_ours_left_behind(
    peer: Peer, publisher: RedisPublisher, consumer: RedisConsumer, store: Store, queue: str
) -> None:
    """The crash counts as an attempt, and our reservation has kept every byte."""
    body = published(publisher, store)
    assert consumer.reserve(0) is not None
    assert peer.pop(queue) is None
    store.expire()
    job = peer.pop(queue)
    assert job is not None
    assert (job.body, job.attempts) == (with_attempts(body, 1), 2)
    peer.delete(job)
    assert left(store.client, queue) == []


def test_dead_letters_of_ours_are_a_queue_of_laravels(
    peer: Peer, publisher: RedisPublisher, consumer_of: Make, store: Store, queue: str
) -> None:
    """With the reason in them."""
    publisher.publish("urn:a", {})
    consumer = consumer_of({"urn:a": fail}, on_error=print, max_tries=1)
    assert consumer.poll(0) is Outcome.DEAD_LETTERED
    job = peer.pop(f"{queue}.dlq")
    assert job is not None
    assert json.loads(job.body)["dead_letter"]["reason"] == "failed"
    peer.delete(job)
    assert left(store.client, queue) == []


def test_a_prefix_of_laravels_connection_is_a_part_of_ours(
    peer_class: type[Laravel | StandIn], shell: Any, redis_url: str, client: Client, queue: str
) -> None:
    """A Laravel project has one unless it says otherwise."""
    ours = {"layout": "zset", "key_prefix": "shop_queues:"}
    publisher = shell.make("publisher", redis_url, queue, **ours)
    consumer = shell.make("consumer", redis_url, queue, {"urn:a": lambda envelope: None}, **ours)
    with contextlib.closing(peer_class(redis_url, "shop_")) as peer:
        publisher.publish("urn:a", {})
        job = peer.pop(queue)
        assert job is not None
        peer.release(job, 0)
        peer.push(queue, "urn:a", {"n": 1})
    assert [consumer.poll(0), consumer.poll(0)] == [Outcome.ACKED] * 2
    assert left(client, queue) == []

"""A reply that comes later than ``socket_timeout``: one clear error, and nobody else reads it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from babelqueue_redis import (
    ConnectionLostError,
    Outcome,
    PublishError,
    RedisPublisher,
    SettlementError,
    lua,
)
from babelqueue_redis.core.command import Command, Script
from tests.support.marks import both_layouts, both_shells
from tests.support.proxy import Proxy, proxy_to
from tests.support.server import Client
from tests.support.shells import Shell
from tests.support.store import Store
from tests.support.waiting import eventually

pytestmark = [both_layouts, both_shells]

Make = Callable[..., Any]


@pytest.fixture
def proxy(redis_url: str, client: Client) -> Iterator[Proxy]:
    """A link that can be slow, to a server that knows all scripts."""
    for script in vars(lua).values():
        if isinstance(script, Script):
            client.script_load(script.source)
    with proxy_to(redis_url) as made:
        yield made


@pytest.fixture
def make(shell: Shell, proxy: Proxy, queue: str, layout: str) -> Make:
    """Make a publisher or a consumer of the test's queue that is not patient."""

    def made(what: str, *args: Any, **options: Any) -> Any:
        url = f"{proxy.url}?socket_timeout=0.3"
        return shell.make(what, url, queue, *args, layout=layout, **options)

    return made


def test_a_late_reply_is_read_by_no_later_command(
    shell: Shell, proxy: Proxy, client: Client, queue: str
) -> None:
    """Neither before it comes nor after."""
    client.mset({f"{queue}:notify": "late", queue: "now"})
    driver = shell.make("driver", f"{proxy.url}?socket_timeout=0.3")
    late, now = (Command("GET", (key,), (), bytes) for key in (f"{queue}:notify", queue))
    proxy.hold_the_reply_to(b":notify")
    with pytest.raises(ConnectionLostError) as caught:
        driver.send(late)
    assert caught.value.sent
    assert driver.send(now) == b"now"
    proxy.let_go()
    assert [driver.send(each) for each in (now, late, now)] == [b"now", b"late", b"now"]


def test_a_publish_that_is_confirmed_too_late_is_stored_once(
    make: Make, proxy: Proxy, store: Store
) -> None:
    """The error says that it may be stored, and the next message is the next one's."""
    publisher = make("publisher")
    proxy.hold_the_reply_to(b"urn:late")
    with pytest.raises(PublishError, match="may be stored") as caught:
        publisher.publish("urn:late", {})
    assert caught.value.may_be_stored
    then = [publisher.publish("urn:a", {})]
    proxy.let_go()
    then += publisher.publish_many([("urn:a", {}), ("urn:b", {})])
    ids = [json.loads(element)["meta"]["id"] for element in store.ready()]
    assert ids == [caught.value.message_id, *then]
    assert proxy.requests_with(b"urn:late") == 1


def test_a_message_that_is_handed_over_too_late_comes_back_once(
    make: Make, proxy: Proxy, publisher: RedisPublisher, store: Store
) -> None:
    """After one lease; until then it is reserved."""
    handled: list[Any] = []
    consumer = make("consumer", {"urn:a": handled.append}, retry_after=1)
    message_id = publisher.publish("urn:a", {})
    proxy.hold_the_reply_to(b"EVALSHA")
    with pytest.raises(ConnectionLostError):
        consumer.poll(0)
    assert store.counts() == {"reserved": 1}
    proxy.let_go()
    assert consumer.poll(60) is Outcome.ACKED
    assert consumer.poll(0) is None
    assert [envelope.meta.id for envelope in handled] == [message_id]


def test_an_ack_that_is_confirmed_too_late_has_happened(
    make: Make, proxy: Proxy, publisher: RedisPublisher, store: Store
) -> None:
    """It is an error all the same, and the next message is acked by its own reply."""
    consumer = make("consumer", {"urn:a": lambda _: None})
    first = publisher.publish("urn:a", {})
    publisher.publish("urn:a", {})
    reservation = consumer.reserve(0)
    proxy.hold_the_reply_to(first.encode())
    with pytest.raises(SettlementError, match="not confirmed to be") as caught:
        consumer.handle(reservation)
    assert caught.value.message_id == first
    assert store.counts() == {"ready": 1}
    proxy.let_go()
    assert consumer.poll(0) is Outcome.ACKED
    assert consumer.poll(0) is None
    assert store.is_empty()


def test_jobs_are_stored_claimed_and_done_once_whatever_comes_too_late(
    shell: Shell, proxy: Proxy, client: Client, prefix: str
) -> None:
    """A key finds the job again, a reaper brings the claim back, and the end is the end."""
    jobs = shell.make("job_store", f"{proxy.url}?socket_timeout=0.3", key_prefix=prefix)
    proxy.hold_the_reply_to(b"email.send")
    with pytest.raises(PublishError) as caught:
        jobs.enqueue("email.send", 1, idempotency_key="k")
    assert caught.value.may_be_stored
    assert jobs.enqueue("email.send", 2, idempotency_key="k") == caught.value.message_id
    proxy.hold_the_reply_to(b"worker")
    with pytest.raises(ConnectionLostError):
        jobs.claim_due(1, "worker", 0.001)
    assert jobs.count_by_status()["claimed"] == 1
    proxy.let_go()
    assert eventually(jobs.reap_stuck) == 1
    (job,) = jobs.claim_due(1, "worker", 60)
    assert (job.attempts, job.payload) == (1, 1)
    proxy.hold_the_reply_to(b":finished:done\r\n")
    with pytest.raises(ConnectionLostError):
        jobs.complete(job)
    proxy.let_go()
    assert not jobs.complete(job)
    counted = jobs.count_by_status()
    assert (counted["done"], sum(counted.values())) == (1, 1)

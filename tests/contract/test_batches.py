"""Messages that are reserved and settled together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from babelqueue_redis import Envelope, RedisConsumer, RedisPublisher, entropy
from babelqueue_redis.layouts import layout_of
from babelqueue_redis.settings import ConsumerOptions
from babelqueue_redis.sync.driver import Driver
from tests.support.handlers import fail
from tests.support.marks import both_layouts, both_shells
from tests.support.running import running
from tests.support.server import Client
from tests.support.store import Store
from tests.support.waiting import eventually

pytestmark = [both_layouts, both_shells]
Make = Callable[..., RedisConsumer]


def publish(publisher: RedisPublisher, count: int, urn: str = "urn:a") -> list[str]:
    """Publish numbered messages."""
    return publisher.publish_many([(urn, {"n": number}) for number in range(count)])


def held(store: Store) -> list[bytes]:
    """Return what is reserved, in one look: settlements go on meanwhile."""
    found: list[bytes] = store.client.zrange(store.deadlines_key, 0, -1)
    return found


def test_fast_handlers_get_batches(
    publisher: RedisPublisher, consumer_of: Make, store: Store
) -> None:
    """By default; in order, each once, and with a fraction of the trips."""
    publish(publisher, 600)
    seen: list[int] = []
    sizes: list[int] = []

    def handle(envelope: Envelope) -> None:
        seen.append(envelope.data["n"])
        if len(seen) % 50 == 0:
            sizes.append(len(held(store)))

    consumer = consumer_of({"urn:a": handle}, block_timeout=0)
    assert consumer.run(lambda: len(seen) < 600) == 600
    assert seen == list(range(600))
    assert store.is_empty()
    assert max(sizes) > 1


def test_slow_handlers_get_one_message_at_a_time(
    publisher: RedisPublisher, consumer_of: Make, store: Store
) -> None:
    """So that nothing waits, reserved, behind a slow one."""
    publish(publisher, 6)
    reserved: list[int] = []

    def handle(_: Envelope) -> None:
        reserved.append(len(held(store)))
        time.sleep(0.02)

    consumer_of({"urn:a": handle}, block_timeout=0).run(lambda: len(reserved) < 6)
    assert reserved == [1] * 6


def test_a_size_may_be_fixed(publisher: RedisPublisher, consumer_of: Make, store: Store) -> None:
    """So many are reserved in one trip, however slow the handlers are."""
    publish(publisher, 8)
    reserved: list[int] = []

    def handle(_: Envelope) -> None:
        reserved.append(len(held(store)))

    consumer_of({"urn:a": handle}, prefetch=5, block_timeout=0).run(lambda: len(reserved) < 8)
    assert reserved[0] == 5
    assert max(reserved) == 5


def test_a_batch_has_a_bounded_number_of_bytes(
    publisher: RedisPublisher, consumer_of: Make, store: Store
) -> None:
    """About a megabyte; and a message that is larger comes alone."""
    sizes = [400_000] * 5 + [3_000_000, 10]
    for size in sizes:
        publisher.publish("urn:a", {"n": "x" * size})
    reserved: list[int] = []

    def handle(envelope: Envelope) -> None:
        sizes_held = [len(each) for each in held(store)]
        assert sum(sizes_held) - max(sizes_held) < 1 << 20
        reserved.append(len(envelope.data["n"]))

    consumer_of({"urn:a": handle}, prefetch=100, block_timeout=0).run(lambda: len(reserved) < 7)
    assert reserved == sizes
    assert store.is_empty()


def test_every_message_of_a_batch_has_an_end_of_its_own(
    publisher: RedisPublisher, consumer_of: Make, store: Store
) -> None:
    """Handled, retried, dead, poison, unknown: in one trip."""
    publisher.publish("urn:a", {"n": 1})
    store.push(b"no envelope")
    publisher.publish("urn:fails", {"n": 2})
    publisher.publish("urn:unknown", {"n": 3})
    publisher.publish("urn:a", {"n": 4})
    seen: list[int] = []
    errors: list[str] = []
    consumer = consumer_of(
        {"urn:a": lambda envelope: seen.append(envelope.data["n"]), "urn:fails": fail},
        prefetch=5,
        block_timeout=0,
        unknown_urn="dead_letter",
        on_error=lambda error, *_: errors.append(type(error).__name__),
    )
    assert consumer.run(lambda: len(seen) + len(errors) < 5) == 5
    assert seen == [1, 4]
    assert errors == ["PoisonError", "ValueError", "UnknownUrnError"]
    assert store.counts() == {"ready": 1, "dead": 2}


def test_a_finished_message_is_settled_while_the_next_one_is_handled(
    publisher: RedisPublisher, consumer_of: Make, store: Store
) -> None:
    """It does not wait for a slow one behind it."""
    publish(publisher, 3)
    release = threading.Event()
    started = threading.Event()

    def handle(envelope: Envelope) -> None:
        if envelope.data["n"] == 1:
            started.set()
            release.wait(60)

    with running(consumer_of({"urn:a": handle}, prefetch=3)):
        assert started.wait(60)
        eventually(lambda: store.client.zcard(store.deadlines_key) == 2)
        release.set()
        eventually(store.is_empty)


def test_a_stop_gives_back_what_was_not_started(
    publisher: RedisPublisher, consumer_of: Make, store: Store
) -> None:
    """Unchanged, and at once."""
    publish(publisher, 10)
    before = store.ready()
    consumer: Any = None

    def handle(envelope: Envelope) -> None:
        if envelope.data["n"] == 3:
            consumer.stop()

    consumer = consumer_of({"urn:a": handle}, prefetch=10)
    assert consumer.run() == 4
    assert store.ready() == before[4:]
    assert store.counts() == {"ready": 6}


def test_what_is_asked_before_a_message_counts_messages(
    publisher: RedisPublisher, consumer_of: Make, store: Store
) -> None:
    """A run that is to handle so many handles so many, whatever it has reserved."""
    publish(publisher, 10)
    seen: list[object] = []
    consumer = consumer_of({"urn:a": seen.append}, prefetch=10)
    assert consumer.run(lambda: len(seen) < 4) == 4
    assert store.counts() == {"ready": 6}


def test_a_refused_reserve_does_not_undo_the_settlement_before_it(
    publisher: RedisPublisher,
    consumer_of: Make,
    store: Store,
    client: Client,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """They travel together; the message is handled, so it goes, and is not told to have expired."""
    publisher.publish("urn:a", {"n": 1})
    handled: list[object] = []

    def handle(envelope: Envelope) -> None:
        handled.append(envelope)
        client.delete(store.ready_key)
        client.set(store.ready_key, "no list")

    with running(consumer_of({"urn:a": handle}, prefetch=1)):
        eventually(lambda: handled and not client.exists(store.reserved_key))
        assert client.zcard(store.deadlines_key) == 0
    client.delete(store.ready_key)
    assert "expired" not in caplog.text


def test_a_message_on_its_last_chance_is_taken_alone(
    publisher: RedisPublisher, queue: str, layout: str, store: Store, client: Client
) -> None:
    """Were it what crashes its workers, the others of its batch would be counted with it."""
    publish(publisher, 5)
    driver = Driver(client)
    made = layout_of(ConsumerOptions(queue, layout, max_tries=3))

    def take() -> list[int]:
        taken = driver.run(made.reserve(entropy.new_token(), count=5))
        return [len(taken), sum(each.alone for each in taken)]

    assert take() == [5, 0]
    store.expire()
    assert take() == [5, 0]  # the first time may be a mere restart
    store.expire()
    assert take() == [1, 1]
    publish(publisher, 3)
    assert [take() for _ in range(4)] == [[1, 1]] * 4
    assert take() == [3, 0]


def test_with_one_try_each_message_is_on_its_last_chance(
    publisher: RedisPublisher, consumer_of: Make, store: Store, layout: str
) -> None:
    """One at a time, then; on the list layout more recoveries free the batches."""
    publish(publisher, 4)
    sizes: list[int] = []

    def handle(_: Envelope) -> None:
        sizes.append(len(held(store)))

    options = {"prefetch": 4, "max_tries": 1, "block_timeout": 0}
    consumer_of({"urn:a": handle}, **options).run(lambda: len(sizes) < 4)
    assert sizes == [1] * 4
    if layout == "legacy":
        publish(publisher, 4)
        consumer_of({"urn:a": handle}, max_recoveries=3, **options).run(lambda: len(sizes) < 8)
        assert sizes[4] == 4


def test_what_interrupts_the_decision_about_a_failure_acks_nothing(
    publisher: RedisPublisher,
    consumer_of: Make,
    store: Store,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The message stays reserved, and comes back."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"babelqueue_redis.{kind}.settler.settlement", interrupted)
    publisher.publish("urn:fails", {})
    with pytest.raises(KeyboardInterrupt):
        consumer_of({"urn:fails": fail}).poll(0)
    assert store.counts() == {"reserved": 1}


@pytest.mark.parametrize("prefetch", [1, "auto"])
def test_a_worker_that_is_never_idle_brings_back_what_expired(
    publisher: RedisPublisher, consumer_of: Make, prefetch: int | str
) -> None:
    """It does not look at every trip, but it goes on looking."""
    publisher.publish("urn:lost", {})
    assert consumer_of(retry_after=1).reserve(0) is not None
    publish(publisher, 200)
    found: list[Envelope] = []

    def handle(_envelope: Envelope) -> None:
        publisher.publish("urn:a", {})  # so that there is always a next one

    options: dict[str, Any] = {"retry_after": 1, "prefetch": prefetch}
    consumer = consumer_of({"urn:a": handle, "urn:lost": found.append}, **options)
    end = time.monotonic() + 30
    consumer.run(lambda: not found and time.monotonic() < end)
    assert found

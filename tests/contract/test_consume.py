from __future__ import annotations

import base64
import contextlib
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from babelqueue_carrier import unframe
from babelqueue_redis import (
    CommandRefusedError,
    ConfigurationError,
    Delivery,
    Envelope,
    EnvelopeError,
    Outcome,
    PoisonError,
    RedisConsumer,
    RedisPublisher,
    SettlementError,
    UnknownUrnError,
    hooks,
)
from tests.support.handlers import fail
from tests.support.marks import both_layouts, both_shells
from tests.support.server import Client
from tests.support.store import Store

pytestmark = [both_layouts, both_shells]

Make = Callable[..., RedisConsumer]


def body(**members: Any) -> bytes:
    """Return an envelope."""
    return json.dumps({"job": "urn:a", "attempts": 0, **members}, separators=(",", ":")).encode()


def headers_in(layout: str, headers: dict[str, str]) -> dict[str, str]:
    """Return what arrives of headers: nothing, where there is no place for them."""
    return headers if layout == "legacy" else {}


def envelope_in(stored: bytes) -> dict[str, Any]:
    """Return the envelope of a stored element, framed or not."""
    document: dict[str, Any] = json.loads(unframe(stored)[0])
    return document


def bytes_kept_in(record: bytes) -> bytes:
    """Return what a record of poison was made of."""
    head, _, block = record.rpartition(b',"dead_letter":')
    assert json.loads(block[:-1])["reason"] == "poison"
    kept = head + b"}"
    if not kept.startswith(b'{"raw":'):
        return kept
    wrapper = json.loads(kept)
    raw: bytes = wrapper["raw"].encode()
    return base64.b64decode(raw) if wrapper.get("raw_encoding") == "base64" else raw


def test_a_message_reaches_its_handler_once_and_is_gone(
    publisher: RedisPublisher, consumer_of: Make, store: Store, layout: str
) -> None:
    """With the envelope, its bytes and its headers."""
    seen: list[tuple[Any, ...]] = []
    consumer = consumer_of({"urn:a": lambda *args: seen.append(args)})
    message_id = publisher.publish("urn:a", {"n": 1}, headers={"k": "v"})
    assert consumer.poll(0) is Outcome.ACKED
    ((envelope, raw, headers),) = seen
    assert isinstance(envelope, Envelope)
    assert (envelope.meta.id, envelope.data, envelope.attempts) == (message_id, {"n": 1}, 0)
    assert json.loads(raw)["meta"]["id"] == message_id
    assert headers == headers_in(layout, {"k": "v"})
    assert store.counts() == {}
    assert consumer.poll(0) is None


def test_messages_come_in_order(publisher: RedisPublisher, consumer_of: Make) -> None:
    """First in, first out."""
    seen: list[int] = []
    consumer = consumer_of({"urn:a": lambda envelope: seen.append(envelope.data["n"])})
    for n in range(5):
        publisher.publish("urn:a", {"n": n})
    while consumer.poll(0):
        pass
    assert seen == list(range(5))


def test_a_bare_message_has_headers_that_are_empty(
    publisher: RedisPublisher, consumer_of: Make
) -> None:
    """``{}``, not ``None``."""
    seen: list[Any] = []
    consumer = consumer_of()

    @consumer.handler("urn:a")
    def handler(envelope: Envelope, raw: bytes, headers: dict[str, str]) -> None:
        seen.append(headers)

    publisher.publish("urn:a", {})
    consumer.poll(0)
    assert seen == [{}]
    assert handler.__name__ == "handler"  # the decorator gives the function back


def test_a_failing_handler_runs_max_tries_times_and_then_the_message_is_dead(
    publisher: RedisPublisher, consumer_of: Make, store: Store, layout: str
) -> None:
    """With attempts 0, 1, 2 as the handler sees them, the headers kept, all else untouched."""
    seen: list[int] = []
    errors: list[tuple[Any, ...]] = []
    sent = headers_in(layout, {"k": "v"})

    def fail_and_tell(envelope: Envelope, _raw: bytes, headers: dict[str, str]) -> None:
        assert headers == sent
        seen.append(envelope.attempts)
        fail()

    consumer = consumer_of({"urn:a": fail_and_tell}, on_error=lambda *args: errors.append(args))
    message_id = publisher.publish("urn:a", {"f": 1.0, "i": 2**60}, headers={"k": "v"})
    (before,) = store.ready()
    outcomes = [consumer.poll(0) for _ in range(4)]
    assert outcomes == [Outcome.RETRIED, Outcome.RETRIED, Outcome.DEAD_LETTERED, None]
    assert seen == [0, 1, 2]
    assert [str(error) for error, _, _ in errors] == ["boom"] * 3
    assert all(envelope.meta.id == message_id for _, envelope, _ in errors)
    assert store.counts() == {"dead": 1}
    (dead,) = store.dead()
    assert unframe(dead)[1] == sent
    document = envelope_in(dead)
    block = document.pop("dead_letter")
    assert (block["reason"], block["attempts"], document["attempts"]) == ("failed", 3, 3)
    assert {**document, "attempts": 0} == envelope_in(before)
    assert b'"data":{"f":1.0,"i":1152921504606846976}' in unframe(dead)[0]


def test_a_retry_goes_to_the_end_of_the_queue(
    publisher: RedisPublisher, consumer_of: Make, store: Store, queue: str
) -> None:
    """A bad message does not hold up the good ones."""
    seen: list[int] = []

    def handle(envelope: Envelope) -> None:
        seen.append(envelope.data["n"])
        if envelope.data["n"] == 0 and envelope.attempts == 0:
            raise ValueError

    consumer = consumer_of({"urn:a": handle}, on_error=print)
    for n in range(3):
        publisher.publish("urn:a", {"n": n})
    while consumer.poll(0):
        pass
    assert seen == [0, 1, 2, 0]
    assert store.counts() == {}


HOSTILE: dict[str, bytes] = {
    "lone surrogate": b'{"job":"urn:a","data":{"a":"\\ud800"},"attempts":0}',
    "1e400": b'{"job":"urn:a","data":{"a":1e400},"attempts":0}',
    "NaN": b'{"job":"urn:a","data":{"a":NaN},"attempts":0}',
    "1 001 deep": b'{"job":"urn:a","data":{"a":' + b"[" * 1001 + b"]" * 1001 + b'},"attempts":0}',
    "100 000 deep": b'{"job":"urn:a","data":{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}}",
    "byte order mark": b'\xef\xbb\xbf{"job":"urn:a","attempts":0}',
    "trailing bytes": b'{"job":"urn:a","attempts":0}x',
    "array": b"[1]",
    "number": b"5",
    "null": b"null",
    "empty": b"",
    "attempts of text": b'{"job":"urn:a","attempts":"3"}',
    "not utf-8": b'{"job":"urn:a","data":{"a":"\xff"},"attempts":0}',
    "gzip": b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\x03\x00\x00\x00\x00\x00",
    "php": b'O:8:"stdClass":1:{s:3:"job";s:5:"urn:a";}',
    "no identity": b'{"data":{}}',
    "version 2": b'{"job":"urn:a","meta":{"schema_version":2},"attempts":0}',
}


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE.keys())
def test_poison_goes_to_the_dead_letter_queue_and_the_next_message_is_handled(
    consumer_of: Make, store: Store, queue: str, hostile: bytes
) -> None:
    """At once, with its bytes, never to a handler: what came in is what is there."""
    handled: list[Envelope] = []
    errors: list[tuple[Any, ...]] = []
    consumer = consumer_of({"urn:a": handled.append}, on_error=lambda *args: errors.append(args))
    store.push(hostile, body())
    assert [consumer.poll(0) for _ in range(3)] == [Outcome.DEAD_LETTERED, Outcome.ACKED, None]
    assert len(handled) == 1
    ((error, envelope, raw),) = errors
    assert isinstance(error, PoisonError)
    assert envelope is None
    assert raw == hostile
    assert store.counts() == {"dead": 1}
    assert bytes_kept_in(store.dead()[0]) == hostile


@pytest.mark.parametrize("attempts", [b"", b',"attempts":null'])
def test_a_body_without_a_count_is_counted_from_zero_or_poison(
    consumer_of: Make, store: Store, layout: str, attempts: bytes
) -> None:
    """The list layout delivers it; Laravel's script cannot count it."""
    store.push(b'{"job":"urn:a"' + attempts + b"}")
    consumer = consumer_of({"urn:a": lambda envelope: None}, on_error=print)
    expected = Outcome.ACKED if layout == "legacy" else Outcome.DEAD_LETTERED
    assert consumer.poll(0) is expected
    assert store.counts() == ({} if layout == "legacy" else {"dead": 1})


@pytest.mark.parametrize(
    "stored",
    [
        b'{"__bq_frame":1,"headers":{"traceparent":"tp"},"body":"not json"}',
        b'{"__bq_frame":1,"headers":{"traceparent":"tp"},"body":"a\xffb"}',
        b'{"__bq_frame":1,"headers":{"traceparent":"tp"},"body":"\\ud800"}',
        b'{"__bq_frame":1,"headers":{"traceparent":"tp","x":"\xff"},"body":"{\\"job\\":\\"urn:a\\"}"}',
    ],
)
def test_poison_in_a_frame_keeps_its_headers(
    consumer_of: Make, store: Store, layout: str, stored: bytes
) -> None:
    """The record is built from the body, and framed again."""
    if layout == "zset":
        pytest.skip("there are no frames")
    consumer = consumer_of({"urn:a": lambda envelope: None}, on_error=print)
    store.push(stored)
    assert consumer.poll(0) is Outcome.DEAD_LETTERED
    frame = json.loads(store.dead()[0])
    assert frame["headers"] == {"traceparent": "tp"}
    assert json.loads(frame["body"])["dead_letter"]["reason"] == "poison"


@pytest.mark.parametrize("unknown_urn", ["fail", "delete", "release", "dead_letter"])
def test_poison_is_dead_lettered_in_every_configuration(
    consumer_of: Make, store: Store, queue: str, unknown_urn: str
) -> None:
    """Even without a dead-letter queue: then the default name takes it."""
    consumer = consumer_of(dead_letter_queue=None, unknown_urn=unknown_urn, on_error=print)
    store.push(b"poison")
    assert consumer.poll(0) is Outcome.DEAD_LETTERED
    assert store.counts() == {"dead": 1}


def test_an_unknown_urn_is_retried_and_then_dead_lettered(
    publisher: RedisPublisher, consumer_of: Make, store: Store, queue: str
) -> None:
    """The default, ``fail``: a deployment in progress gets its chances."""
    errors: list[BaseException] = []
    consumer = consumer_of(on_error=lambda error, *_: errors.append(error))
    publisher.publish("urn:new", {})
    assert [consumer.poll(0) for _ in range(3)] == [
        Outcome.RETRIED,
        Outcome.RETRIED,
        Outcome.DEAD_LETTERED,
    ]
    assert all(isinstance(error, UnknownUrnError) for error in errors)
    dead = json.loads(store.dead()[0])
    assert dead["dead_letter"]["reason"] == "unknown_urn"
    assert dead["dead_letter"]["attempts"] == dead["attempts"] == 3


@pytest.mark.parametrize(
    ("options", "outcome", "left"),
    [
        ({"unknown_urn": "delete"}, Outcome.DROPPED, {}),
        ({"unknown_urn": "release"}, Outcome.RELEASED, {"ready": 1}),
        ({"unknown_urn": "dead_letter"}, Outcome.DEAD_LETTERED, {"dead": 1}),
        ({"unknown_urn": "dead_letter", "dead_letter_queue": None}, Outcome.DROPPED, {}),
        ({"max_tries": 1, "dead_letter_queue": None}, Outcome.DROPPED, {}),
    ],
)
def test_an_unknown_urn_follows_its_strategy(
    publisher: RedisPublisher,
    consumer_of: Make,
    store: Store,
    queue: str,
    options: dict[str, Any],
    outcome: Outcome,
    left: dict[str, int],
) -> None:
    """As configured; a released one is what it was, byte for byte."""
    publisher.publish("urn:new", {"f": 1.0}, headers={"k": "v"})
    before = store.ready()[0]
    assert consumer_of(on_error=print, **options).poll(0) is outcome
    assert store.counts() == left
    if outcome is Outcome.RELEASED:
        assert store.ready()[0] == before


def test_a_callable_takes_unknown_urns_and_they_are_acked(
    publisher: RedisPublisher, consumer_of: Make, store: Store, queue: str
) -> None:
    """The Java transport's way; when it fails, it fails like a handler."""
    seen: list[str] = []

    def unknown(envelope: Envelope, raw: bytes) -> None:
        seen.append(envelope.job)
        if envelope.job == "urn:bad":
            raise ValueError

    consumer = consumer_of(on_unknown_urn=unknown, on_error=print)
    publisher.publish("urn:new", {})
    publisher.publish("urn:bad", {})
    assert consumer.poll(0) is Outcome.ACKED
    assert consumer.poll(0) is Outcome.RETRIED
    assert seen == ["urn:new", "urn:bad"]
    assert store.counts() == {"ready": 1}


def test_a_left_failure_waits_for_the_sweep(
    publisher: RedisPublisher, consumer_of: Make, store: Store, queue: str
) -> None:
    """``on_failure="leave"``, the Java transport's way: nothing is written."""
    consumer = consumer_of({"urn:a": fail}, on_failure="leave", retry_after=0, on_error=print)
    publisher.publish("urn:a", {})
    before = envelope_in(store.ready()[0])
    assert consumer.poll(0) is Outcome.LEFT
    assert store.counts() == {"reserved": 1}
    counted = 1 if store.layout == "zset" else 0  # there, every delivery counts
    assert envelope_in(store.reserved()[0]) == {**before, "attempts": counted}
    assert consumer.poll(0) is Outcome.LEFT  # a lease of 0 s is over at once


def test_on_error_that_fails_itself_changes_nothing(
    publisher: RedisPublisher, consumer_of: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged, and the message is settled."""
    consumer = consumer_of({"urn:a": fail}, on_error=fail)
    publisher.publish("urn:a", {})
    with caplog.at_level(logging.ERROR):
        assert consumer.poll(0) is Outcome.RETRIED
    assert "on_error failed" in caplog.text


def test_without_on_error_a_failure_is_logged(
    publisher: RedisPublisher,
    consumer_of: Make,
    store: Store,
    queue: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With the queue and the id; with a traceback only where a handler has one."""
    consumer = consumer_of({"urn:a": fail})
    message_id = publisher.publish("urn:a", {})
    store.push(b"poison with a secret")
    with caplog.at_level(logging.WARNING):
        consumer.poll(0)
        consumer.poll(0)
    failed, poison = caplog.records
    assert message_id in failed.getMessage()
    assert queue in failed.getMessage()
    assert failed.exc_info
    assert "poison" in poison.getMessage()
    assert not poison.exc_info
    assert "secret" not in caplog.text


@pytest.mark.parametrize("way_out", [KeyboardInterrupt, SystemExit])
def test_an_exit_inside_a_handler_leaves_the_message_in_one_place(
    publisher: RedisPublisher,
    consumer_of: Make,
    store: Store,
    queue: str,
    way_out: type[BaseException],
) -> None:
    """An interruption gives it back unchanged; a handler that exits has failed."""

    def leave(_: Envelope) -> None:
        raise way_out

    consumer = consumer_of({"urn:a": leave}, on_error=print)
    publisher.publish("urn:a", {})
    with pytest.raises(way_out):
        consumer.poll(0)
    assert store.counts() == {"ready": 1}
    expected = 0 if way_out is KeyboardInterrupt else 1
    assert json.loads(store.ready()[0])["attempts"] == expected


KEYS = {
    "legacy": ("", ":processing", ":processing:deadlines"),
    "zset": ("", ":reserved", ":notify", ":delayed"),
}


@pytest.mark.parametrize("number", range(4))
def test_a_key_of_the_wrong_type_is_an_error_and_loses_nothing(
    publisher: RedisPublisher, consumer_of: Make, store: Store, queue: str, number: int
) -> None:
    """Nothing is half done, however often it is tried."""
    suffixes = KEYS[store.layout]
    if number >= len(suffixes):
        pytest.skip("the layout has no further keys")
    key = f"{store.ready_key}{suffixes[number]}"
    if number:
        publisher.publish("urn:a", {})
    store.client.delete(key)  # what a publish had put there
    store.client.set(key, "a string")
    consumer = consumer_of({"urn:a": lambda envelope: None})
    outcomes: list[Any] = []
    for _ in range(3):
        try:
            outcomes.append(consumer.poll(0))
        except CommandRefusedError as error:
            assert queue in str(error)  # noqa: PT017 - it may come at any of the turns
            outcomes.append(error)
    assert any(isinstance(outcome, CommandRefusedError) for outcome in outcomes)
    assert store.client.get(key) == b"a string"
    store.client.delete(key)
    while outcome := consumer.poll(0):
        outcomes.append(outcome)
    assert outcomes.count(Outcome.ACKED) == (1 if number else 0)
    assert store.counts() == {}


def test_a_dead_letter_queue_of_the_wrong_type_keeps_the_message_reserved(
    publisher: RedisPublisher, consumer_of: Make, store: Store, queue: str
) -> None:
    """It is not removed before its new place is written."""
    consumer = consumer_of({"urn:a": fail}, max_tries=1, retry_after=0, on_error=print)
    message_id = publisher.publish("urn:a", {})
    store.client.set(store.dead_key, "a string")
    with pytest.raises(SettlementError, match="WRONGTYPE") as caught:
        consumer.poll(0)
    assert caught.value.message_id == message_id
    assert caught.value.outcome == "dead_lettered"
    assert store.client.exists(store.dead_key)
    assert len(store.reserved()) == 1
    store.client.delete(store.dead_key)
    assert consumer.poll(0) is Outcome.DEAD_LETTERED
    assert store.counts() == {"dead": 1}


@pytest.mark.parametrize("change", ["add", "clear"])
def test_what_a_handler_does_to_its_arguments_stays_with_it(
    publisher: RedisPublisher, consumer_of: Make, store: Store, queue: str, change: str
) -> None:
    """The retry is made from what was stored."""

    def spoil(envelope: Envelope, _raw: bytes, headers: Any) -> None:
        envelope.data.clear()
        if change == "add":
            headers["n"] = 1
        else:
            headers.clear()
        raise ValueError

    consumer = consumer_of({"urn:a": spoil}, on_error=print)
    publisher.publish("urn:a", {"n": 1}, headers={"k": "v"})
    assert consumer.poll(0) is Outcome.RETRIED
    (stored,) = store.ready()
    assert unframe(stored)[1] == headers_in(store.layout, {"k": "v"})
    assert envelope_in(stored)["data"] == {"n": 1}


async def coroutine(_: Envelope) -> None:
    """Something that has not run when it returns."""


def generator(_: Envelope) -> Iterator[None]:
    """Something that has not run when it returns."""
    yield


@pytest.mark.parametrize("late", [coroutine, generator])
def test_a_handler_that_returns_something_to_run_has_failed(
    publisher: RedisPublisher, consumer_of: Make, late: Callable[..., Any], kind: str
) -> None:
    """A message is not acked for work that nobody did."""
    errors: list[BaseException] = []
    consumer = consumer_of(
        {"urn:a": lambda envelope: late(envelope)},  # noqa: PLW0108 - a wrapper hides what it is
        on_error=lambda error, *_: errors.append(error),
    )
    publisher.publish("urn:a", {})
    if late is coroutine and kind == "aio":
        assert consumer.poll(0) is Outcome.ACKED  # there it is awaited
        return
    assert consumer.poll(0) is Outcome.RETRIED
    assert isinstance(errors[0], TypeError)


@pytest.mark.parametrize("way_out", [SystemExit, KeyboardInterrupt])
def test_an_exit_in_on_error_does_not_keep_the_message(
    publisher: RedisPublisher,
    consumer_of: Make,
    store: Store,
    queue: str,
    way_out: type[BaseException],
) -> None:
    """It is settled, and the exit goes on."""

    def leave(*_: object) -> None:
        raise way_out

    consumer = consumer_of({"urn:a": fail}, on_error=leave, max_tries=1)
    publisher.publish("urn:a", {})
    store.push(b"poison")
    for _ in range(2):
        with pytest.raises(way_out):
            consumer.poll(0)
    assert store.counts() == {"dead": 2}


def test_an_exit_goes_on_when_its_message_cannot_be_settled(
    publisher: RedisPublisher, consumer_of: Make, store: Store, queue: str
) -> None:
    """The program wanted to end; what could not be settled is in the log."""

    def leave(_: Envelope) -> None:
        store.client.set(store.dead_key, "a string")
        raise SystemExit

    consumer = consumer_of({"urn:a": leave}, on_error=print, max_tries=1)
    publisher.publish("urn:a", {})
    with pytest.raises(SystemExit):
        consumer.poll(0)
    assert len(store.reserved()) == 1


def test_a_reservation_of_another_queue_is_refused(
    publisher: RedisPublisher, consumer_of: Make, client: Client
) -> None:
    """Its handler would run for nothing."""
    publisher.publish("urn:a", {})
    reservation = consumer_of().reserve(0)
    assert reservation is not None
    with pytest.raises(ConfigurationError, match="elsewhere"):
        RedisConsumer(client, "elsewhere").handle(reservation)


def test_a_decorator_without_a_urn_is_an_error(consumer_of: Make) -> None:
    """Or the handler would never be called."""
    with pytest.raises(EnvelopeError, match="function"):
        consumer_of().handler(lambda envelope: None)  # type: ignore[arg-type]
    with pytest.raises(EnvelopeError):
        consumer_of().handler(" ")


@pytest.mark.parametrize("timeout", [float("nan"), "5", None.__class__, 10**400])
def test_a_timeout_that_is_no_number_is_refused(consumer_of: Make, timeout: Any) -> None:
    """Before anything is taken."""
    with pytest.raises(ConfigurationError, match="timeout"):
        consumer_of().poll(timeout)


def test_a_consumer_is_a_context_manager(client: Client, queue: str) -> None:
    """It closes its connection, and opens another one when it is used again."""
    with RedisConsumer(client, queue) as consumer, RedisPublisher(client, queue) as publisher:
        publisher.publish("urn:a", {})
        assert consumer.reserve(0) is not None
    assert consumer._driver._own.connection is publisher._driver._own.connection is None
    assert consumer.poll(0) is None


def test_middleware_encloses_the_handler_in_its_thread(
    publisher: RedisPublisher, consumer_of: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's own hook, as the docstring of the module shows one."""
    seen: list[object] = []

    class Middleware(hooks.Hook):
        @contextlib.contextmanager
        def processing(self, delivery: Delivery) -> Iterator[None]:
            seen.append(("before", delivery.message_id))
            try:
                yield
            except ValueError as error:
                seen.append(str(error))
                raise
            finally:
                seen.append("after")

    monkeypatch.setattr(hooks, "_registered", (Middleware(),))
    consumer = consumer_of(
        {"urn:a": lambda envelope: seen.append("handler"), "urn:b": fail}, on_error=print
    )
    first, second = publisher.publish("urn:a", {}), publisher.publish("urn:b", {})
    assert [consumer.poll(0), consumer.poll(0)] == [Outcome.ACKED, Outcome.RETRIED]
    assert seen == [("before", first), "handler", "after", ("before", second), "boom", "after"]


@pytest.mark.parametrize("where", ["enter", "exit"])
def test_an_exit_inside_a_hook_does_not_spoil_the_step(
    publisher: RedisPublisher,
    consumer_of: Make,
    store: Store,
    queue: str,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
) -> None:
    """A handler that finished is acked; one that did not run is given back; hooks are left."""
    left: list[str] = []

    class Outer(hooks.Hook):
        @contextlib.contextmanager
        def processing(self, delivery: Delivery) -> Iterator[None]:
            try:
                yield
            finally:
                left.append("outer")

    class Inner(hooks.Hook):
        @contextlib.contextmanager
        def processing(self, delivery: Delivery) -> Iterator[None]:
            if where == "enter":
                raise KeyboardInterrupt
            yield
            raise KeyboardInterrupt

    monkeypatch.setattr(hooks, "_registered", (Outer(), Inner()))
    publisher.publish("urn:a", {})
    with pytest.raises(KeyboardInterrupt):
        consumer_of({"urn:a": lambda envelope: None}).poll(0)
    assert left == ["outer"]
    expected = {"ready": 1} if where == "enter" else {}
    assert store.counts() == expected
    if where == "enter":
        assert json.loads(store.ready()[0])["attempts"] == 0

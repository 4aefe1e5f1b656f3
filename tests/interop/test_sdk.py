"""The reference SDK (the PyPI package ``babelqueue``) as a peer on the same queue."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import babelqueue
import pytest
from babelqueue import otel
from babelqueue.codec import EnvelopeCodec
from babelqueue.headers import headers_from_context
from babelqueue.redis_transport import RedisTransport, _frame_value, _unframe
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import trace

from babelqueue_carrier import frame_value, unframe
from babelqueue_redis import Envelope, Outcome, PoisonError, RedisConsumer, RedisPublisher
from babelqueue_redis.verdict import verdict
from tests.support.marks import both_layouts, both_shells
from tests.support.server import Client
from tests.support.shells import Shell
from tests.support.spans import Spans
from tests.support.store import Store

TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.fixture
def sdk(client: Client, queue: str, layout: str) -> babelqueue.BabelQueue:
    """The SDK's app on the test's queue."""
    transport = RedisTransport(client=client, retry_after=1, laravel_compat=layout == "zset")
    return babelqueue.BabelQueue(transport=transport, queue=queue, dead_letter=True, max_attempts=2)


def consume(sdk: babelqueue.BabelQueue, count: int = 1) -> int:
    """Let the SDK handle messages."""
    handled: int = sdk.consume(max_messages=count, timeout=0, handle_signals=False)
    return handled


@given(TEXT, st.dictionaries(TEXT, TEXT))
def test_frames_are_byte_identical(body: str, headers: dict[str, str]) -> None:
    """Both ways: the same bytes for the same input, and each reads the other's."""
    ours = frame_value(body.encode(), headers)
    theirs = _frame_value(body, headers).encode()
    assert ours == theirs
    assert unframe(theirs) == (body.encode(), {k: v for k, v in headers.items() if k and v})
    assert _unframe(ours.decode()) == (body, {k: v for k, v in headers.items() if k and v})


@both_shells
@both_layouts
@pytest.mark.parametrize(
    "headers", [{}, {"traceparent": "00-" + "1" * 32 + "-" + "2" * 16 + "-01"}]
)
def test_ours_consumes_what_the_sdk_publishes(
    sdk: babelqueue.BabelQueue,
    consumer_of: Callable[..., RedisConsumer],
    headers: dict[str, str],
    layout: str,
) -> None:
    """With and without headers, which the zset layout has no place for."""
    seen: list[tuple[Envelope, Any]] = []
    consumer = consumer_of({"urn:a": lambda envelope, raw, given: seen.append((envelope, given))})
    message_id = sdk.publish_with_headers("urn:a", {"n": 1, "text": "é"}, headers)
    assert consumer.poll(0) is Outcome.ACKED
    ((envelope, given_headers),) = seen
    assert envelope.meta.id == message_id
    assert envelope.data == {"n": 1, "text": "é"}
    assert given_headers == (headers if layout == "legacy" else {})


@both_shells
@both_layouts
@pytest.mark.parametrize("headers", [{}, {"tenant": "acme"}])
def test_the_sdk_consumes_what_ours_publishes(
    sdk: babelqueue.BabelQueue,
    publisher: RedisPublisher,
    client: Client,
    queue: str,
    headers: dict[str, str],
    layout: str,
) -> None:
    """With and without headers, which the zset layout has no place for."""
    seen: list[Any] = []
    sdk.register(
        "urn:a", lambda data, meta: seen.append((data, meta["id"], dict(headers_from_context())))
    )
    message_id = publisher.publish("urn:a", {"n": 1.0, "text": "é"}, headers=headers)
    assert consume(sdk) == 1
    expected = headers if layout == "legacy" else {}
    assert seen == [({"n": 1.0, "text": "é"}, message_id, expected)]
    assert client.keys(f"*{queue}*") == []


@both_shells
@both_layouts
@pytest.mark.parametrize("last", ["sdk", "ours"])
def test_a_message_that_fails_at_one_is_retried_by_the_other(
    sdk: babelqueue.BabelQueue,
    publisher: RedisPublisher,
    consumer_of: Callable[..., RedisConsumer],
    store: Store,
    last: str,
) -> None:
    """Attempts and headers go on, and the dead letter has both hands' marks."""
    tries: list[str] = []

    def fail_at(name: str) -> Callable[..., None]:
        def fail(*_: Any) -> None:
            tries.append(name)
            raise ValueError

        return fail

    sdk.register("urn:a", fail_at("sdk"))
    consumer = consumer_of({"urn:a": fail_at("ours")}, on_error=print, max_tries=2)
    message_id = publisher.publish("urn:a", {"f": 1.0}, headers={"k": "v"})
    if last == "ours":
        consume(sdk)
    consumer.poll(0)
    if last == "sdk":
        consume(sdk)
    assert store.counts() == {"dead": 1}
    body, headers = unframe(store.dead()[0])
    assert headers == ({"k": "v"} if store.layout == "legacy" else {})
    dead = json.loads(body)
    assert dead["attempts"] == dead["dead_letter"]["attempts"] == len(tries) == 2
    assert tries[1] == last
    assert dead["dead_letter"]["reason"] == "failed"
    assert (dead["meta"]["id"], dead["data"]) == (message_id, {"f": 1.0})


@both_shells
@both_layouts
def test_either_consumes_the_dead_letters_of_the_other(
    sdk: babelqueue.BabelQueue,
    shell: Shell,
    publisher: RedisPublisher,
    consumer_of: Callable[..., RedisConsumer],
    redis_url: str,
    store: Store,
) -> None:
    """A dead-letter queue is a queue, with its tokens where the layout has them."""
    dead = f"{sdk.queue}.dlq"
    seen: list[str] = []
    sdk.register("urn:a", lambda data, meta: seen.append("sdk"))
    of_dead = shell.make(
        "consumer", redis_url, dead, {"urn:b": lambda _: seen.append("ours")}, layout=store.layout
    )
    publisher.publish("urn:a", {})
    assert consumer_of(unknown_urn="dead_letter", on_error=print).poll(0) is Outcome.DEAD_LETTERED
    assert sdk.consume(dead, max_messages=1, timeout=0, handle_signals=False) == 1
    sdk.on_unknown_urn = "dead_letter"
    publisher.publish("urn:b", {})
    consume(sdk)
    assert of_dead.poll(0) is Outcome.ACKED
    assert seen == ["sdk", "ours"]
    assert store.client.keys(f"*{sdk.queue}*") == []


@both_shells
@pytest.mark.parametrize("layout", ["zset"])
def test_either_promotes_what_the_other_delays(
    sdk: babelqueue.BabelQueue,
    publisher: RedisPublisher,
    consumer_of: Callable[..., RedisConsumer],
    store: Store,
) -> None:
    """It is not there before it is due."""
    delayed = f"{store.ready_key}:delayed"
    seen: list[str] = []
    sdk.register("urn:a", lambda data, meta: seen.append("sdk"))
    consumer = consumer_of({"urn:a": lambda envelope: seen.append("ours")})
    body = EnvelopeCodec.encode(EnvelopeCodec.make("urn:a", {}, queue=sdk.queue))
    start = int(time.time())
    sdk.transport.publish_delayed(sdk.queue, body, 59.5)
    assert consumer.poll(0) is None
    assert store.client.zscore(delayed, body) - start in range(60, 62 + int(time.time()) - start)
    store.client.zadd(delayed, {body: 1})
    assert consumer.poll(0) is Outcome.ACKED
    publisher.publish("urn:a", {}, delay=59.5)
    assert consume(sdk) == 0
    store.client.zadd(delayed, dict.fromkeys(store.ready(), 1), xx=True)
    assert consume(sdk) == 1
    assert seen == ["ours", "sdk"]
    assert store.client.keys(f"*{sdk.queue}*") == []


@both_shells
@both_layouts
def test_either_recovers_what_the_other_left_behind(
    sdk: babelqueue.BabelQueue,
    publisher: RedisPublisher,
    consumer_of: Callable[..., RedisConsumer],
    store: Store,
    queue: str,
) -> None:
    """A crash of one is a delivery at the other, and an attempt where reservations are counted."""
    seen: list[tuple[str, int]] = []
    sdk.register("urn:a", lambda data, meta, whole: seen.append(("sdk", whole["attempts"])))
    consumer = consumer_of({"urn:a": lambda envelope: seen.append(("ours", envelope.attempts))})
    publisher.publish("urn:a", {})
    assert consumer.reserve(0) is not None
    store.expire()
    assert consume(sdk) == 1
    publisher.publish("urn:a", {})
    assert sdk.transport.pop(queue, timeout=0) is not None
    store.expire()
    assert consumer.poll(0) is Outcome.ACKED
    attempts = 0 if store.layout == "legacy" else 1
    assert seen == [("sdk", attempts), ("ours", attempts)]
    assert store.client.keys(f"*{queue}*") == []


@both_shells
@both_layouts
@pytest.mark.parametrize("body", [b"no json", b"\xff", b"", b'{"job":"urn:a","attempts":"1"}'])
def test_poison_ends_alike(
    sdk: babelqueue.BabelQueue, consumer_of: Callable[..., RedisConsumer], store: Store, body: bytes
) -> None:
    """Whoever takes it, the record is the same, but for what the suite leaves to each SDK."""
    consumer = consumer_of({}, on_error=print)
    records = []
    for consume_one in (lambda: consume(sdk), lambda: consumer.poll(0)):
        store.push(body)
        consume_one()
        assert store.counts() == {"dead": 1}
        record = json.loads(store.client.lpop(store.dead_key))
        block = record["dead_letter"]
        record["dead_letter"] = (block.keys(), block["reason"], block["original_queue"])
        records.append(record)
    assert records[0] == records[1]


def test_the_spans_of_its_helper_and_ours_join_one_trace(
    sdk: babelqueue.BabelQueue,
    publisher: RedisPublisher,
    consumer_of: Callable[..., RedisConsumer],
    spans: Spans,
) -> None:
    """Its producer, our consumer; our producer, its consumer."""
    tracer = trace.get_tracer("helper")
    consumer = consumer_of({"urn:a": lambda envelope: None})
    otel.publish(tracer, sdk, "urn:a", {})
    consumer.poll(0)
    sent, taken = spans.named("publish urn:a")[0], spans.starting("process ")[0]
    assert taken.parent is not None
    assert taken.parent.span_id == sent.context.span_id
    assert taken.context.trace_id == sent.context.trace_id

    spans.clear()
    sdk.register("urn:a", otel.wrap_handler(tracer, lambda data, meta: None))
    publisher.publish("urn:a", {})
    consume(sdk)
    sent, taken = spans.starting("publish ")[0], spans.named("process urn:a")[0]
    assert taken.parent is not None
    assert taken.parent.span_id == sent.context.span_id
    assert taken.context.trace_id == sent.context.trace_id


BODIES = st.one_of(
    st.binary(),
    st.builds(
        lambda members: json.dumps(members).encode(),
        st.fixed_dictionaries(
            {},
            optional={
                "job": st.sampled_from(["urn:a", " ", "", None, 5, [], {}]),
                "urn": st.sampled_from(["urn:b", " ", None, 5]),
                "trace_id": st.sampled_from(["t", "", None, 5]),
                "data": st.sampled_from([{}, {"a": [1.5, None]}, None, [], "x"]),
                "meta": st.sampled_from(
                    [
                        {},
                        None,
                        [],
                        {"id": "i"},
                        {"id": 5},
                        {"created_at": 1.5},
                        {"created_at": 2**63},
                    ]
                ),
                "attempts": st.sampled_from([0, 1, -1, None, "3", 1.0, True, 2**63, 2**63 - 1]),
                "dead_letter": st.sampled_from([{}, None, "x", {"attempts": "3"}, {"error": None}]),
                "x": st.sampled_from([0, [1e300], "\u2003"]),
            },
        ),
    ),
)


@given(BODIES)
def test_verdicts_agree(body: bytes) -> None:
    """What the SDK calls poison, ours does, and the other way round."""
    text = body.decode("utf-8", "surrogateescape")
    theirs = EnvelopeCodec.poison_cause(text)
    assert (theirs is not None) is isinstance(verdict(body), PoisonError)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b'{"job":"urn:a","data":{"a":"\\ud800"}}', "a lone surrogate is poison here"),
        (b'{"job":"urn:a","meta":{"schema_version":2}}', "an unknown version is poison here"),
    ],
)
def test_verdicts_differ_where_the_contract_says_so(body: bytes, why: str) -> None:
    """The SDK's legacy layout delivers these; ours does not."""
    assert EnvelopeCodec.poison_cause(body.decode()) is None
    assert isinstance(verdict(body), PoisonError), why

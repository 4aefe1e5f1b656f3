"""Every option: as a keyword, as a variable, as a flag; and what each does."""

from __future__ import annotations

import dataclasses
import json
import logging
import re
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.instrumentation.babelqueue import environment_variables
from opentelemetry.instrumentation.babelqueue.config import Named, Options, variable
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

import babelqueue_redis
from babelqueue_redis import Outcome, RedisConsumer, RedisPublisher
from babelqueue_redis.verdict import accepts
from tests.support.instrumented import instrumented
from tests.support.server import Client
from tests.support.spans import Spans
from tests.support.store import Store

Make = Callable[..., RedisConsumer]
With = Callable[..., Spans]
HANDLERS = {"urn:a": lambda envelope: None}


@pytest.fixture
def instrumented_with(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> With:
    """Instrument with options until the test ends."""

    def begin(**options: Any) -> Spans:
        entered = instrumented(monkeypatch, TracerProvider(), **options)
        request.addfinalizer(lambda: entered.__exit__(None, None, None))
        return entered.__enter__()

    return begin


def told(span: ReadableSpan) -> dict[str, Any]:
    """Return a span's attributes."""
    return dict(span.attributes or {})


def links(span: ReadableSpan) -> set[int]:
    """Return the ids of the spans that a span is linked to."""
    return {link.context.span_id for link in span.links}


FIELDS = [field.name for field in dataclasses.fields(Options)]
SAID: dict[str, tuple[str, Any]] = {
    "mode": ("link", "link"),
    "max_parent_age": ("3600", 3600.0),
    "headerless": ("none", "none"),
    "create_spans": ("false", False),
    "settle_spans": ("true", True),
    "redis_spans": ("1", True),
    "system": ("redis", "redis"),
    "body_size": ("on", True),
    "captured_headers": ("Tenant, x-region", {"tenant", "x-region"}),
    "queues_without_propagation": ("a, b", {"a", "b"}),
    "queues_without_baggage": ("*", {"*"}),
    "gauged_queues": ("orders", {"orders"}),
    "publish_hook": ("os.path:join", None),
    "process_hook": ("os.path:join", None),
    "settle_hook": ("os.path:join", None),
    "exception_signal": ("logs/dup", "logs/dup"),
}


@pytest.mark.parametrize("name", FIELDS)
def test_every_option_is_a_keyword_and_a_variable(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """With the same words; the keyword wins."""
    text, value = SAID[name]
    default = getattr(Options(), name)
    assert getattr(Options.of({}), name) == default
    by_keyword = getattr(Options.of({name: text}), name)
    monkeypatch.setenv(variable(name), text)
    by_variable = getattr(Options.of({}), name)
    for found in (by_keyword, by_variable):
        assert found != default
        assert isinstance(found, Named) if value is None else found == value
    if not callable(default) and default is not None:
        assert getattr(Options.of({name: default}), name) == default


def test_every_variable_is_a_flag_of_the_tool() -> None:
    """The tool makes one of each name in the module that the entry point names."""
    group = "opentelemetry_environment_variables"
    (entry,) = metadata.entry_points(group=group, name="babelqueue")
    assert entry.load() is environment_variables
    shared = {"exception_signal"}  # all instrumentations know it
    names = {name for name in dir(environment_variables) if name.startswith("OTEL_")}
    assert names == {variable(name) for name in FIELDS if name not in shared}
    assert all(getattr(environment_variables, name) == name for name in names)


def test_one_table_has_every_option() -> None:
    """In the README or on its own page, in the order of the fields, and nothing else in it."""
    root = Path(__file__).parents[2]
    pages = (root / "README.md", root / "docs" / "options.md")
    text = "\n\n".join(page.read_text() for page in pages if page.exists())
    tables = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    named = [re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) for table in tables]
    assert named.count(FIELDS) == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mode", "sideways"),
        ("mode", 5),
        ("max_parent_age", "old"),
        ("max_parent_age", -1),
        ("max_parent_age", "nan"),
        ("headerless", "some"),
        ("create_spans", "perhaps"),
        ("captured_headers", 5),
        ("process_hook", "nothing"),
    ],
)
def test_what_cannot_be_used_is_logged_and_changes_nothing(
    caplog: pytest.LogCaptureFixture, name: str, value: object
) -> None:
    """Telemetry stops no program."""
    assert Options.of({name: value, "system": "redis"}) == Options(system="redis")
    (record,) = caplog.records
    assert name in record.getMessage()
    assert record.levelno == logging.ERROR


def test_a_variable_that_says_other_things_to_others_is_no_mistake(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The exception signal is shared by all instrumentations, and may grow."""
    monkeypatch.setenv(variable("exception_signal"), "metrics,database")
    assert Options.of({}) == Options()
    assert not caplog.records


def test_a_named_function_is_imported_when_it_is_called(caplog: pytest.LogCaptureFixture) -> None:
    """One that is not there is said so once."""
    assert Named("os.path:basename")("/a/b") == "b"
    missing = Named("no_such_module:function")
    assert missing(1) is None
    assert missing(2) is None
    assert len(caplog.records) == 1


@pytest.mark.parametrize("mode", ["parent", "link", "none"])
@pytest.mark.parametrize("per_message", [False, True])
def test_a_mode_says_how_a_delivery_hangs_on_its_creation(
    instrumented_with: With,
    publisher: RedisPublisher,
    consumer_of: Make,
    mode: str,
    *,
    per_message: bool,
) -> None:
    """For all, or for each message by a function; a link keeps the baggage."""
    seen: list[object] = []
    spans = instrumented_with(mode=(lambda delivery: mode) if per_message else mode)
    token = context.attach(baggage.set_baggage("user", "7"))
    publisher.publish("urn:a", {})
    context.detach(token)
    consumer_of({"urn:a": lambda envelope: seen.append(baggage.get_baggage("user"))}).poll(0)
    sent, taken = spans.all
    assert (taken.context.trace_id == sent.context.trace_id) is (mode == "parent")
    assert (taken.parent is not None) is (mode == "parent")
    assert links(taken) == (set() if mode == "none" else {sent.context.span_id})
    assert seen == [None if mode == "none" else "7"]


@pytest.mark.parametrize("answer", [None, "sideways", ValueError()])
def test_a_function_without_an_answer_leaves_the_default(
    instrumented_with: With,
    publisher: RedisPublisher,
    consumer_of: Make,
    caplog: pytest.LogCaptureFixture,
    answer: object,
) -> None:
    """``None`` on purpose; nonsense and errors with a line in the log."""

    def mode(_: object) -> object:
        if isinstance(answer, Exception):
            raise answer
        return answer

    spans = instrumented_with(mode=mode)
    publisher.publish("urn:a", {})
    assert consumer_of(HANDLERS).poll(0) is Outcome.ACKED
    sent, taken = spans.all
    assert taken.parent is not None
    assert taken.parent.span_id == sent.context.span_id
    assert bool(caplog.records) is (answer is not None)


@pytest.mark.parametrize(("age", "expected"), [(10, "parent"), (3600, "link")])
def test_an_old_message_is_linked_only(
    instrumented_with: With, consumer_of: Make, store: Store, age: float, expected: str
) -> None:
    """A trace does not stay open for days."""
    spans = instrumented_with(max_parent_age=600)
    created = int((time.time() - age) * 1000)
    body = {"job": "urn:a", "trace_id": "chain-7", "meta": {"created_at": created}}
    store.push(json.dumps(body).encode())
    consumer_of(HANDLERS).poll(0)
    (taken,) = spans.all
    assert ("parent" if taken.parent else "link") == expected
    assert len(taken.links) == 1


def test_what_is_current_where_a_worker_runs_is_linked(
    spans: Spans, publisher: RedisPublisher, consumer_of: Make
) -> None:
    """It is not the parent: that is the producer."""
    publisher.publish("urn:a", {})
    with trace.get_tracer("app").start_as_current_span("cron") as cron:
        consumer_of(HANDLERS).poll(0)
    sent, taken = spans.named(spans.all[0].name)[0], spans.starting("process ")[0]
    assert taken.parent is not None
    assert taken.parent.span_id == sent.context.span_id
    assert links(taken) == {sent.context.span_id, cron.get_span_context().span_id}


@pytest.mark.parametrize("layout", ["legacy", "zset"])
def test_without_headers_a_message_may_begin_a_new_trace(
    instrumented_with: With, consumer_of: Make, store: Store
) -> None:
    """``headerless="none"``: there is nothing to be linked to."""
    spans = instrumented_with(headerless="none")
    store.push(b'{"job":"urn:a","trace_id":"chain-7","attempts":0}')
    consumer_of(HANDLERS).poll(0)
    (taken,) = spans.all
    assert taken.parent is None
    assert not taken.links
    assert told(taken)["messaging.message.conversation_id"] == "chain-7"


@pytest.mark.parametrize("layout", ["legacy", "zset"])
@pytest.mark.parametrize("kind", ["sync", "aio"])
@pytest.mark.parametrize(("ratio", "expected"), [(0, 0), (1, 5)])
def test_sampling_is_never_forced_in_either_layout(
    monkeypatch: pytest.MonkeyPatch,
    publisher: RedisPublisher,
    consumer_of: Make,
    store: Store,
    ratio: float,
    expected: int,
) -> None:
    """A ratio of 0 gives no span end to end, 1 gives all of them."""
    provider = TracerProvider(sampler=ParentBased(TraceIdRatioBased(ratio)))
    with instrumented(monkeypatch, provider, create_spans=False) as spans:
        publisher.publish("urn:a", {})
        publisher.publish_many([("urn:a", {})])
        store.push(b'{"job":"urn:a","trace_id":"chain-7","attempts":0}')
        consumer = consumer_of(HANDLERS)
        while consumer.poll(0):
            pass
        assert len(spans.all) == expected
        assert len({span.context.trace_id for span in spans.all}) == min(expected, 3)


def test_the_zset_layout_goes_on_by_trace_id(
    spans: Spans, shell: Any, redis_url: str, queue: str
) -> None:
    """It has no place for headers; the envelope names the trace."""
    publisher = shell.make("publisher", redis_url, queue, layout="zset")
    publisher.publish("urn:a", {})
    shell.make("consumer", redis_url, queue, HANDLERS, layout="zset").poll(0)
    sent, taken = spans.all
    assert taken.context.trace_id == sent.context.trace_id
    assert told(taken)["messaging.babelqueue.layout"] == "zset"


@pytest.mark.parametrize("layout", ["zset"])
@pytest.mark.parametrize("kind", ["sync", "aio"])
def test_delays_and_retries_of_the_zset_layout_stay_in_the_trace(
    spans: Spans, publisher: RedisPublisher, consumer_of: Make, store: Store
) -> None:
    """Kept back by the producer, or by a back-off: every attempt, and the dead letter."""

    def fail(_: object) -> None:
        raise ValueError

    def poll(consumer: RedisConsumer) -> Outcome | None:
        for member in store.client.zrange(f"{store.ready_key}:delayed", 0, -1):
            store.client.zadd(f"{store.ready_key}:delayed", {member: 1})
        return consumer.poll(0)

    publisher.publish("urn:a", {}, delay=1000)
    consumer = consumer_of({"urn:a": fail}, retry_backoff=1000, on_error=lambda *_: None)
    outcomes = [poll(consumer) for _ in range(3)]
    assert outcomes == [Outcome.RETRIED, Outcome.RETRIED, Outcome.DEAD_LETTERED]
    sent, *tries = spans.all
    assert {span.context.trace_id for span in tries} == {sent.context.trace_id}
    assert len({next(iter(links(span))) for span in tries}) == 1


@pytest.mark.parametrize("kind", ["sync", "aio"])
def test_who_handles_a_dead_letter_goes_on_under_the_publish(
    spans: Spans,
    publisher: RedisPublisher,
    shell: Any,
    consumer_of: Make,
    redis_url: str,
    queue: str,
) -> None:
    """Its record has the headers of the message."""

    def fail(_: object) -> None:
        raise ValueError

    publisher.publish("urn:a", {})
    consumer_of({"urn:a": fail}, max_tries=1, on_error=lambda *_: None).poll(0)
    shell.make("consumer", redis_url, f"{queue}.dlq", HANDLERS).poll(0)
    sent, _, buried = spans.all
    assert buried.name == f"process {queue}.dlq"
    assert buried.parent is not None
    assert buried.parent.span_id == sent.context.span_id
    assert links(buried) == {sent.context.span_id}


@pytest.mark.skipif(
    not hasattr(babelqueue_redis, "RedisQueue"), reason="this version cannot redrive"
)
def test_a_redriven_message_goes_on_under_the_publish(
    spans: Spans, publisher: RedisPublisher, consumer_of: Make, redis_url: str, queue: str
) -> None:
    """All attempts, those after an operator sent it back too."""

    def fail(_: object) -> None:
        raise ValueError

    publisher.publish("urn:a", {})
    consumer_of({"urn:a": fail}, max_tries=1, on_error=lambda *_: None).poll(0)
    operator: Any = getattr(babelqueue_redis, "RedisQueue")  # noqa: B009 - it may not be there
    operator(redis_url, queue).redrive()
    assert consumer_of(HANDLERS).poll(0) is Outcome.ACKED
    sent, *tries = spans.starting("p")
    assert len(tries) == 2
    for span in tries:
        assert span.parent is not None
        assert span.parent.span_id == sent.context.span_id
        assert links(span) == {sent.context.span_id}


@pytest.mark.parametrize("named", ["this", "*", "another"])
def test_a_queue_may_be_without_propagation(
    instrumented_with: With,
    publisher: RedisPublisher,
    consumer_of: Make,
    client: Client,
    queue: str,
    named: str,
) -> None:
    """Nothing is put into its messages, and nothing in them is believed."""
    spans = instrumented_with(queues_without_propagation=[queue if named == "this" else named])
    publisher.publish("urn:a", {})
    publisher.publish_many([("urn:a", {})])
    bare = [accepts(raw) for raw in client.lrange(queue, 0, -1)]
    publisher.publish("urn:a", {}, headers={"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"})
    consumer = consumer_of(HANDLERS)
    while consumer.poll(0):
        pass
    taken = spans.starting("process ")
    roots = [span.parent is None and not span.links for span in taken]
    assert len(taken) == 3
    assert bare == [named != "another"] * 2
    assert roots == [named != "another"] * 3


@pytest.mark.parametrize("named", ["this", "another"])
def test_a_queue_may_be_without_baggage(
    instrumented_with: With,
    publisher: RedisPublisher,
    consumer_of: Make,
    client: Client,
    queue: str,
    named: str,
) -> None:
    """The trace goes on; what else the caller carries stays here."""
    seen: list[object] = []
    spans = instrumented_with(queues_without_baggage=queue if named == "this" else named)
    token = context.attach(baggage.set_baggage("user", "7"))
    publisher.publish("urn:a", {})
    context.detach(token)
    headers = json.loads(client.lindex(queue, 0))["headers"]
    publisher.publish("urn:a", {}, headers={"baggage": "user=8"})
    consumer = consumer_of({"urn:a": lambda envelope: seen.append(baggage.get_baggage("user"))})
    while consumer.poll(0):
        pass
    assert "traceparent" in headers
    assert ("baggage" in headers) is (named == "another")
    assert seen == (["7", "8"] if named == "another" else [None, None])
    assert len(spans.all) == 4


def test_the_system_and_the_body_size_may_be_told(
    instrumented_with: With,
    publisher: RedisPublisher,
    consumer_of: Make,
    client: Client,
    queue: str,
) -> None:
    """The size is the envelope's, without the header frame."""
    spans = instrumented_with(system="redis", body_size=True)
    publisher.publish("urn:a", {"text": "ä" * 100})
    size = len(json.loads(client.lindex(queue, 0))["body"].encode())
    consumer_of(HANDLERS).poll(0)
    for span in spans.all:
        assert told(span)["messaging.system"] == "redis"
        assert told(span)["messaging.message.body.size"] == size


def test_headers_are_told_by_an_allow_list_only(
    instrumented_with: With, publisher: RedisPublisher, consumer_of: Make
) -> None:
    """Whatever their case; all others stay out."""
    spans = instrumented_with(captured_headers=["tenant"])
    publisher.publish("urn:a", {}, headers={"Tenant": "acme", "token": "S3CRET"})
    consumer_of(HANDLERS).poll(0)
    for span in spans.all:
        assert told(span)["messaging.header.tenant"] == ("acme",)
        assert "S3CRET" not in span.to_json()


@pytest.mark.parametrize("kind", ["sync", "aio"])
def test_hooks_may_add_to_spans(
    instrumented_with: With, publisher: RedisPublisher, consumer_of: Make
) -> None:
    """They are given the span, while it is open, and what it is about."""

    def on_publish(span: Any, publication: Any) -> None:
        span.set_attribute("app.urn", publication.urn)

    def on_process(span: Any, delivery: Any) -> None:
        span.set_attribute("app.id", delivery.message_id)

    def on_settle(span: Any, settling: Any) -> None:
        span.set_attribute("app.outcome", str(settling.outcome))

    spans = instrumented_with(
        publish_hook=on_publish,
        process_hook=on_process,
        settle_hook=on_settle,
        settle_spans=True,
    )
    message_id = publisher.publish("urn:a", {})
    consumer = consumer_of(HANDLERS)
    consumer.poll(0)
    sent, taken, settled = spans.all
    assert told(sent)["app.urn"] == "urn:a"
    assert told(taken)["app.id"] == message_id
    assert told(settled)["app.outcome"] == "acked"
    spans.clear()
    publisher.publish_many([("urn:a", {}), ("urn:b", {})])
    assert [told(span).get("app.urn") for span in spans.all] == ["urn:a", "urn:b", None]


def test_a_raising_hook_is_logged_and_changes_nothing(
    instrumented_with: With,
    publisher: RedisPublisher,
    consumer_of: Make,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The message is sent, handled and settled; the spans are there, in one trace."""

    def fail(*_: object) -> None:
        raise RuntimeError

    spans = instrumented_with(
        publish_hook=fail, process_hook=fail, settle_hook=fail, settle_spans=True
    )
    publisher.publish("urn:a", {})
    assert consumer_of(HANDLERS).poll(0) is Outcome.ACKED
    assert len(spans.all) == 3
    assert len({span.context.trace_id for span in spans.all}) == 1
    assert caplog.text.count("it changes nothing") == 3

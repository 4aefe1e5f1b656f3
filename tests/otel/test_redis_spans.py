"""Beside redis-py's own instrumentation: a publish keeps its Redis span, and it tells the truth."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from opentelemetry.instrumentation.redis import RedisInstrumentor
from opentelemetry.trace import StatusCode

from babelqueue_redis import RedisConsumer, RedisPublisher
from tests.support.marks import both_layouts, both_shells
from tests.support.shells import Shell
from tests.support.spans import Spans


@pytest.fixture(autouse=True)
def _redis_instrumented(spans: Spans) -> Iterator[None]:
    """redis-py instrumented, to the same place."""
    RedisInstrumentor().instrument(tracer_provider=spans.provider)
    yield
    RedisInstrumentor().uninstrument()


def outcomes(spans: Spans) -> list[tuple[str, bool]]:
    """Return the names of spans in short, and whether they say that something failed.

    The test's own commands are left out: they are no part of anything.
    """
    return [
        (span.name.split()[0], span.status.status_code is StatusCode.ERROR)
        for span in spans.all
        if span.parent is not None or span.name.split()[0].islower()
    ]


@both_shells
def test_a_script_that_is_not_loaded_yet_is_no_error(
    spans: Spans, shell: Shell, own_server: Callable[..., str]
) -> None:
    """It is loaded first, once for each connection, in no span of its own."""
    url = own_server()
    publisher: Any = shell.make("publisher", url, "orders", layout="zset")
    store: Any = shell.make("job_store", url)
    publisher.publish("urn:a", {})
    publisher.publish("urn:a", {})
    publisher.publish_many([("urn:a", {})])
    store.enqueue("mail", {})
    assert outcomes(spans) == [
        *[("EVALSHA", False), ("publish", False)] * 2,
        *[("create", False), ("EVALSHA", False), ("publish", False)],
        *[("EVALSHA", False), ("enqueue", False)],
    ]
    with redis.Redis.from_url(url) as client:
        assert client.info("commandstats")["cmdstat_script|load"]["calls"] == 2


@both_shells
def test_a_link_that_was_cut_loads_its_scripts_again(
    spans: Spans,
    shell: Shell,
    own_server: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server may have been another one since."""
    monkeypatch.setattr(f"babelqueue_redis.{shell.name}.driver.TRUSTED_FOR", 0)
    url = own_server()
    publisher: Any = shell.make("publisher", url, "orders", layout="zset")
    publisher.publish("urn:a", {})
    with redis.Redis.from_url(url) as client:
        client.script_flush()
        client.client_kill_filter(_type="normal", skipme=True)
        publisher.publish("urn:a", {})
        assert client.llen("queues:orders") == 2
    assert outcomes(spans) == [("EVALSHA", False), ("publish", False)] * 2


def test_a_user_who_may_not_load_scripts_publishes_all_the_same(
    spans: Spans, shell: Shell, own_server: Callable[..., str]
) -> None:
    """Then the source is sent, and the span of the first attempt says why."""
    url = own_server()
    with redis.Redis.from_url(url) as client:
        client.acl_setuser("weak", enabled=True, nopass=True, keys=["*"], commands=["+@all"])
        client.execute_command("ACL", "SETUSER", "weak", "-script|load")
        publisher: Any = shell.make(
            "publisher", url.replace("redis://", "redis://weak:x@"), "orders", layout="zset"
        )
        publisher.publish("urn:a", {})
        assert client.llen("queues:orders") == 1
    assert outcomes(spans) == [("EVALSHA", True), ("EVAL", False), ("publish", False)]


@both_layouts
@both_shells
def test_a_workers_own_traffic_is_in_no_span(
    spans: Spans,
    publisher: RedisPublisher,
    consumer_of: Callable[..., RedisConsumer],
    layout: str,
) -> None:
    """One message makes exactly these; polling, waiting, settling and retrying make none."""

    def fail(_: object) -> None:
        raise ValueError

    publisher.publish("urn:a", {})
    consumer = consumer_of({"urn:a": fail}, max_tries=2, on_error=lambda *_: None)
    while consumer.poll(0.05):
        pass
    stored = "RPUSH" if layout == "legacy" else "EVALSHA"
    assert outcomes(spans) == [(stored, False), ("publish", False), *[("process", True)] * 2]

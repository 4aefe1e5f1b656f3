from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.instrumentation.redis import RedisInstrumentor
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from babelqueue_carrier import inject
from babelqueue_redis import (
    AsyncJobWorker,
    AsyncRedisJobStore,
    ClaimedJob,
    JobRegistry,
    JobWorker,
    PublishError,
    RedisJobStore,
)
from kit.redis_server import free_port
from tests.support.server import Client
from tests.support.spans import Spans


@pytest.fixture(params=["sync", "aio"])
def kind(request: pytest.FixtureRequest) -> str:
    """Both shells of the store."""
    return str(request.param)


def work(kind: str, url: str, prefix: str, registry: JobRegistry, runs: int = 1) -> None:
    """Run a worker of the kind until it has run so many jobs."""
    seen: list[object] = []
    count = registry.find("a").function

    def counting(payload: object) -> None:
        seen.append(payload)
        count(payload)

    counted = JobRegistry()
    counted.job("a")(counting)
    options: dict[str, Any] = {"poll_interval": 0.01, "retry_backoff": 0}
    if kind == "sync":
        with RedisJobStore(url, key_prefix=prefix) as store:
            JobWorker(store, counted, **options).run(lambda: len(seen) < runs)
    else:
        asyncio.run(work_async(url, prefix, counted, options, lambda: len(seen) < runs))


async def work_async(url: str, prefix: str, registry: JobRegistry, options: Any, more: Any) -> None:
    """Run an asyncio worker."""
    async with AsyncRedisJobStore(url, key_prefix=prefix) as store:
        await AsyncJobWorker(store, registry, **options).run(more)


def registry_of(handler: Any) -> JobRegistry:
    """A registry of one kind."""
    registry = JobRegistry()
    registry.job("a")(handler)
    return registry


def is_child(child: ReadableSpan, parent: ReadableSpan) -> bool:
    """Tell whether one span is the other's child, and linked to it."""
    return (
        child.parent is not None
        and child.parent.span_id == parent.context.span_id
        and child.context.trace_id == parent.context.trace_id
        and [link.context.span_id for link in child.links] == [parent.context.span_id]
    )


def test_a_run_is_the_child_of_its_enqueue(
    spans: Spans, jobs: RedisJobStore, kind: str, redis_url: str, prefix: str
) -> None:
    """Names, kinds and attributes; the span is current in the handler, thread or task."""
    inside: list[int] = []
    job_id = jobs.enqueue("a", 1)
    handler = lambda payload: inside.append(trace.get_current_span().get_span_context().span_id)  # noqa: E731
    work(kind, redis_url, prefix, registry_of(handler))
    sent, taken = spans.all
    assert (sent.name, sent.kind) == ("enqueue a", SpanKind.PRODUCER)
    assert (taken.name, taken.kind) == ("process a", SpanKind.CONSUMER)
    assert sent.parent is None
    assert is_child(taken, sent)
    assert inside == [taken.context.span_id]
    both = {
        "messaging.system": "babelqueue",
        "messaging.destination.name": "a",
        "messaging.message.id": job_id,
        "messaging.babelqueue.layout": "jobs",
        "server.address": "127.0.0.1",
        "server.port": jobs.server.port,
    }
    assert sent.attributes == {
        **both,
        "messaging.operation.name": "enqueue",
        "messaging.operation.type": "send",
    }
    assert taken.attributes == {
        **both,
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.babelqueue.attempts": 0,
        "messaging.babelqueue.outcome": "acked",
    }


def test_all_runs_of_a_job_hang_under_one_enqueue(
    spans: Spans, jobs: RedisJobStore, kind: str, redis_url: str, prefix: str
) -> None:
    """Delayed, reaped, retried after a failure, and retried by hand after its death."""
    fails = iter([True, True, False])

    def handler(payload: object) -> None:
        if next(fails):
            raise ValueError("boom")  # noqa: EM101 - short

    job_id = jobs.enqueue("a", 1, max_attempts=3, run_at=1000, now=1)
    assert len(jobs.claim_due(1, "crashed", 0.001, now=1000)) == 1
    assert jobs.reap_stuck(now=2000) == 1
    work(kind, redis_url, prefix, registry_of(handler), runs=2)
    assert jobs.count_by_status()["dead"] == 1
    assert jobs.retry(job_id)
    work(kind, redis_url, prefix, registry_of(handler))
    sent, *taken = spans.all
    assert all(is_child(each, sent) for each in taken)
    told = [
        (span.attributes["messaging.babelqueue.outcome"], span.status.status_code)
        for span in taken
        if span.attributes is not None
    ]
    assert told == [
        ("retried", StatusCode.ERROR),
        ("dead_lettered", StatusCode.ERROR),
        ("acked", StatusCode.UNSET),
    ]
    assert taken[0].attributes is not None
    assert taken[0].attributes["error.type"] == "ValueError"


def test_a_batch_has_one_span(spans: Spans, jobs: RedisJobStore) -> None:
    """Of one kind, or of several; each job carries its context."""
    ids = jobs.enqueue_many([("a", 1), ("a", 2)])
    jobs.enqueue_many([("a", 1), ("b", 2)])
    one, mixed = spans.all
    assert (one.name, mixed.name) == ("enqueue a", "enqueue")
    assert one.attributes is not None
    assert mixed.attributes is not None
    assert one.attributes["messaging.batch.message_count"] == 2
    assert "messaging.destination.name" not in mixed.attributes
    expected = f"00-{one.context.trace_id:032x}-{one.context.span_id:016x}-"
    for job_id in ids:
        job = jobs.get(job_id)
        assert job is not None
        assert job.headers["traceparent"].startswith(expected)


def test_headers_of_the_caller_are_never_changed(spans: Spans, jobs: RedisJobStore) -> None:
    """The span is a CLIENT span then, and links to the context they name."""
    with spans.provider.get_tracer("t").start_as_current_span("mine") as mine:
        headers = inject({"k": "v"})
    job_id = jobs.enqueue("a", 1, headers=headers)
    (sent,) = spans.named("enqueue a")
    assert sent.kind is SpanKind.CLIENT
    assert [link.context.span_id for link in sent.links] == [mine.get_span_context().span_id]
    job = jobs.get(job_id)
    assert job is not None
    assert job.headers == headers


def test_baggage_reaches_the_handler(
    spans: Spans, jobs: RedisJobStore, kind: str, redis_url: str, prefix: str
) -> None:
    """As the global propagator wrote it."""
    token = context.attach(baggage.set_baggage("who", "me"))
    try:
        jobs.enqueue("a", 1)
    finally:
        context.detach(token)
    seen: list[object] = []
    handler = lambda payload: seen.append(baggage.get_baggage("who"))  # noqa: E731
    work(kind, redis_url, prefix, registry_of(handler))
    assert seen == ["me"]


def test_a_failed_enqueue_is_an_error(spans: Spans, prefix: str) -> None:
    """With the type of what was raised."""
    store = RedisJobStore(f"redis://127.0.0.1:{free_port()}", key_prefix=prefix)
    with pytest.raises(PublishError):
        store.enqueue("a", 1)
    (sent,) = spans.all
    assert sent.status.status_code is StatusCode.ERROR
    assert sent.attributes is not None
    assert sent.attributes["error.type"] == "babelqueue_redis.errors.PublishError"


def test_a_refused_payload_and_an_ended_run_are_told_by_their_span(
    spans: Spans, redis_url: str, prefix: str
) -> None:
    """A payload that does not fit is dead at once; a time limit and a cancel end a run early."""
    registry = JobRegistry()
    registry.job("typed", payload=int)(lambda payload: None)
    store = RedisJobStore(redis_url, key_prefix=prefix)

    @registry.job("slow")
    async def slow(payload: object) -> None:
        await asyncio.sleep(600)

    @registry.job("canceled")
    async def canceled(payload: object, job: ClaimedJob) -> None:
        store.cancel(job.id)
        await asyncio.sleep(600)

    store.enqueue_many([("typed", "text"), ("slow", 1), ("canceled", 1)], max_attempts=1)
    options = {"concurrency": 3, "lease": 0.3, "handler_timeout": 2.0, "poll_interval": 0.01}

    def more() -> bool:
        return len(spans.starting("process ")) < 3

    asyncio.run(work_async(redis_url, prefix, registry, options, more))
    store.close()
    told = {
        span.name: (
            span.attributes["messaging.babelqueue.outcome"],
            span.attributes["error.type"],
        )
        for span in spans.starting("process ")
        if span.attributes is not None
    }
    errors = "babelqueue_redis.errors."
    assert told == {
        "process typed": ("dead_lettered", "babelqueue_redis.errors.PayloadError"),
        "process slow": ("dead_lettered", f"{errors}HandlerTimeoutError"),
        "process canceled": ("expired", f"{errors}LeaseLostError"),
    }


def test_an_id_that_is_no_utf_8_can_be_exported(
    spans: Spans, client: Client, kind: str, redis_url: str, prefix: str
) -> None:
    """Another program's job runs, and no exporter chokes on its name."""
    job_id = b"\xff"
    fields = {"id": job_id, "kind": "a", "payload": 1, "status": "pending"}
    client.hset(prefix.encode() + b"job:" + job_id, mapping=fields)
    client.zadd(f"{prefix}due", {job_id: 1})
    work(kind, redis_url, prefix, registry_of(lambda _: None))
    (taken,) = spans.all
    assert taken.attributes is not None
    assert taken.attributes["messaging.message.id"] == "\\udcff"
    assert client.hget(prefix.encode() + b"job:" + job_id, "status") == b"done"


def test_run_once_makes_a_root_span(spans: Spans, jobs: RedisJobStore, redis_url: str) -> None:
    """It was not enqueued by anybody."""
    with RedisJobStore(redis_url) as store:
        JobWorker(store, registry_of(lambda payload: None)).run_once("a", 1)
    (taken,) = spans.all
    assert (taken.name, taken.parent, taken.links) == ("process a", None, ())


@pytest.fixture
def _redis_seen(spans: Spans) -> Iterator[None]:
    """redis-py instrumented."""
    RedisInstrumentor().instrument(tracer_provider=trace.get_tracer_provider())
    yield
    RedisInstrumentor().uninstrument()


@pytest.mark.usefixtures("_redis_seen")
def test_an_idle_worker_makes_no_span(spans: Spans, kind: str, redis_url: str, prefix: str) -> None:
    """Neither its claims nor its heartbeats nor its reaping do, with redis-py instrumented."""
    asked = iter(range(20))
    registry = registry_of(lambda payload: None)
    options: dict[str, Any] = {"poll_interval": 0.001, "reap_interval": 0.001, "lease": 0.003}
    if kind == "sync":
        with RedisJobStore(redis_url, key_prefix=prefix) as store:
            JobWorker(store, registry, **options).run(lambda: next(asked, None) is not None)
    else:
        more = lambda: next(asked, None) is not None  # noqa: E731
        asyncio.run(work_async(redis_url, prefix, registry, options, more))
    assert list(spans.all) == []

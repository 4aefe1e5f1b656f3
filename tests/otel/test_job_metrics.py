"""What is measured of jobs, and their commands seen by redis-py's own instrumentation."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from opentelemetry.instrumentation.redis import RedisInstrumentor
from opentelemetry.sdk.trace import TracerProvider

from babelqueue_redis import (
    AsyncJobWorker,
    AsyncRedisJobStore,
    JobRegistry,
    JobWorker,
    PublishError,
    RedisJobStore,
)
from babelqueue_redis.jobs.values import NewJob
from kit.redis_server import free_port
from tests.support.instrumented import instrumented
from tests.support.metrics import Metrics


def fail(payload: object) -> None:
    """A handler that always fails."""
    raise ValueError("boom")  # noqa: EM101 - short


def registry() -> JobRegistry:
    """Two kinds: one fails."""
    made = JobRegistry()
    made.job("good", payload=int)(lambda payload: None)
    made.job("bad")(fail)
    return made


def drain(store: RedisJobStore) -> None:
    """Run everything that is due, to its end."""
    worker = JobWorker(store, registry(), poll_interval=0.01, retry_backoff=0)
    worker.run(lambda: store.count_by_status()["pending"] > 0)


def test_jobs_are_counted_and_timed(
    monkeypatch: pytest.MonkeyPatch, redis_url: str, prefix: str
) -> None:
    """By kind, with the type of their error; a batch is one operation."""
    metrics = Metrics()
    kind, error = "messaging.destination.name", "error.type"
    with (
        instrumented(monkeypatch, TracerProvider(), meter_provider=metrics.provider),
        RedisJobStore(redis_url, key_prefix=prefix) as store,
    ):
        store.enqueue("good", 1)
        store.enqueue("good", "text")
        store.enqueue_many([("bad", 1), ("bad", 2)], max_attempts=1)
        offline = RedisJobStore(f"redis://127.0.0.1:{free_port()}")
        with pytest.raises(PublishError):
            offline.enqueue("good", 1)
        drain(store)
        name = "messaging.client.sent.messages"
        assert metrics.counts(name, kind, error) == {
            ("good", None): 2,
            ("good", "babelqueue_redis.errors.PublishError"): 1,
            ("bad", None): 2,
        }
        assert metrics.counts("messaging.client.consumed.messages", kind) == {"good": 2, "bad": 2}
        assert metrics.counts("messaging.process.duration", kind, error) == {
            ("good", None): 1,
            ("good", "babelqueue_redis.errors.PayloadError"): 1,
            ("bad", "ValueError"): 2,
        }
        assert metrics.counts("messaging.babelqueue.queue.time", kind) == {"good": 2, "bad": 2}
        duration = "messaging.client.operation.duration"
        assert metrics.counts(duration, "messaging.operation.name", kind, error) == {
            ("enqueue", "good", None): 2,
            ("enqueue", "good", "babelqueue_redis.errors.PublishError"): 1,
            ("enqueue", "bad", None): 1,
        }


def test_a_stores_commands_can_be_shown(
    monkeypatch: pytest.MonkeyPatch, redis_url: str, prefix: str
) -> None:
    """With ``redis_spans``; redis-py's own way to read replies changes nothing."""
    provider = TracerProvider()
    with (
        instrumented(monkeypatch, provider, redis_spans=True) as spans,
        RedisJobStore(redis_url, key_prefix=prefix) as store,
    ):
        RedisInstrumentor().instrument(tracer_provider=provider)
        try:
            job_id = store.enqueue("good", 1)
            drain(store)
            job = store.get(job_id)
            assert job is not None
            assert job.status == "done"
            assert store.reindex() == 0
            assert {"HGETALL", "EVALSHA"} <= {span.name for span in spans.all}
        finally:
            RedisInstrumentor().uninstrument()


@pytest.mark.parametrize("kind", ["sync", "aio"])
@pytest.mark.parametrize("named", ["this", "*", "another"])
def test_the_jobs_of_a_served_store_may_be_counted(
    monkeypatch: pytest.MonkeyPatch,
    jobs: RedisJobStore,
    redis_url: str,
    prefix: str,
    kind: str,
    named: str,
) -> None:
    """By status, while a worker serves it; a store is named by its key prefix."""
    metrics, go_on, running = Metrics(), threading.Event(), threading.Event()
    made = JobRegistry()

    @made.job("waits")
    def wait(payload: object) -> None:
        running.set()
        go_on.wait(60)

    def work() -> None:
        if kind == "sync":
            JobWorker(jobs, made).run(lambda: not go_on.is_set())
            return
        store = AsyncRedisJobStore(redis_url, key_prefix=prefix)
        asyncio.run(AsyncJobWorker(store, made).run(lambda: not go_on.is_set()))

    gauged = prefix if named == "this" else named
    with instrumented(
        monkeypatch, TracerProvider(), meter_provider=metrics.provider, gauged_queues=gauged
    ):
        jobs.enqueue_many([("waits", 1), ("waits", 2), ("other", 3)])
        jobs.cancel(jobs.enqueue("other", 4))
        worker = threading.Thread(target=work)
        worker.start()
        running.wait(60)
        store, status = "messaging.destination.name", "messaging.babelqueue.state"
        found = metrics.counts("messaging.babelqueue.jobs", store, status)
        go_on.set()
        worker.join()
        assert not metrics.points("messaging.babelqueue.jobs")
    expected = {"pending": 2, "claimed": 1, "done": 0, "dead": 0, "canceled": 1}
    told = {(prefix, each): count for each, count in expected.items()}
    assert found == (told if named != "another" else {})
    assert not metrics.points("messaging.babelqueue.queue.messages")


def test_a_publish_hook_is_given_the_jobs(
    monkeypatch: pytest.MonkeyPatch, jobs: RedisJobStore
) -> None:
    """Each of a batch, with the span that all of them have; one that raises changes nothing."""
    seen: list[tuple[Any, str]] = []

    def told(span: Any, job: NewJob) -> None:
        span.set_attribute("app.kind", job.kind)
        seen.append((span.get_span_context(), job.id))
        raise RuntimeError

    with instrumented(monkeypatch, TracerProvider(), publish_hook=told) as spans:
        ids = [jobs.enqueue("good", 1), *jobs.enqueue_many([("good", 2), ("bad", 3)])]
        one, many = spans.all
    assert seen == list(zip((one.context, many.context, many.context), ids, strict=True))
    assert (one.attributes or {})["app.kind"] == "good"
    assert jobs.count_by_status()["pending"] == 3

"""What is measured of jobs, and their commands seen by redis-py's own instrumentation."""

from __future__ import annotations

import pytest
from opentelemetry.instrumentation.redis import RedisInstrumentor
from opentelemetry.sdk.trace import TracerProvider

from babelqueue_redis import JobRegistry, JobWorker, PublishError, RedisJobStore
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

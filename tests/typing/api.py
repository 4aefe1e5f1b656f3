"""What type checkers make of our public names: checked by mypy and pyright, never run."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import redis
import redis.asyncio
from opentelemetry.context import Context
from opentelemetry.instrumentation.babelqueue import BabelQueueInstrumentor
from opentelemetry.instrumentation.babelqueue.sdk import BabelQueueSdkInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Span
from typing_extensions import assert_type

from babelqueue_carrier import extract, frame_value, headers_of, inject, unframe
from babelqueue_redis import (
    AsyncJobWorker,
    AsyncRedisConsumer,
    AsyncRedisJobStore,
    AsyncRedisPublisher,
    AsyncRedisQueue,
    AsyncRedisSeenStore,
    ClaimedJob,
    Counts,
    DeadLetter,
    Delivery,
    Envelope,
    Job,
    JobPage,
    JobRegistry,
    JobRun,
    JobWorker,
    Moved,
    NewJob,
    Outcome,
    Publication,
    PublishError,
    RedisConsumer,
    RedisJobStore,
    RedisPublisher,
    RedisQueue,
    RedisSeenStore,
    RedisWorker,
    Redriven,
    Reservation,
    StoredMessage,
    hooks,
    idempotent,
)
from babelqueue_redis.steps import Settling
from babelqueue_redis.testing import MemoryMessage, call_handler, in_memory

# Publishers

publisher = RedisPublisher(redis.Redis(), "orders", layout="legacy", key_prefix="queues:")
assert_type(publisher.publish("urn:a", {"n": 1}, headers=inject(), meta={"ext": {}}), str)
assert_type(publisher.publish("urn:a", {}, trace_id="id", delay=0.5), str)
assert_type(publisher.publish_many([("urn:a", {"n": 1})]), list[str])
with RedisPublisher("redis://127.0.0.1", "orders") as opened:
    assert_type(opened, RedisPublisher)
try:
    publisher.publish("urn:a", {})
except PublishError as error:
    assert_type(error.message_id, str)
    assert_type(error.may_be_stored, bool)

# Consumers

consumer = RedisConsumer(
    "redis://127.0.0.1", "orders", {"urn:a": lambda envelope: None}, retry_after=None
)


@consumer.handler("urn:a")
def handler(envelope: Envelope, raw: bytes, headers: Mapping[str, str]) -> int:
    """Keep its own type under the decorator."""
    assert_type(envelope.meta.created_at, int)
    return len(raw) + len(headers) + envelope.attempts


class OrderPlaced:
    """A payload's type."""


@consumer.handler("urn:b", payload=OrderPlaced)
def typed(envelope: Envelope) -> str:
    """Keep its own type here as well; the data are of the payload's."""
    data: OrderPlaced = envelope.data
    return str(data) + envelope.trace_id


assert_type(handler(Envelope("urn:a"), b"", {}), int)
assert_type(typed(Envelope("urn:b")), str)
reserved = consumer.reserve()
assert_type(reserved, Reservation | None)
if reserved is not None:
    assert_type(consumer.handle(reserved), Outcome)
    assert_type(reserved.lost, bool)
assert_type(consumer.poll(0), Outcome | None)
assert_type(consumer.run(lambda: True), int)
assert_type(consumer.healthy, bool)
several = RedisWorker([consumer, RedisConsumer("redis://127.0.0.1", "b")], weights=(3, 1))
assert_type(several.run(), int)
assert_type(several.healthy, bool)
consumer.handler("urn:a")(idempotent(handler, RedisSeenStore("redis://127.0.0.1", ttl=60)))


async def asynchronous() -> None:
    """The same names, awaited."""
    async with AsyncRedisPublisher(redis.asyncio.Redis(), "orders", layout="zset") as sender:
        assert_type(await sender.publish("urn:a", {"n": 1}, delay=0.5), str)
        assert_type(await sender.publish_many([("urn:a", {"n": 1})]), list[str])
    worker = AsyncRedisConsumer("redis://127.0.0.1", "orders", layout="zset", retry_backoff=1)

    @worker.handler("urn:a", payload=dict[str, int])
    async def awaited(envelope: Envelope) -> int:
        return len(envelope.data)

    assert_type(await awaited(Envelope("urn:a")), int)
    assert_type(await worker.reserve(0), Reservation | None)
    assert_type(await worker.poll(0), Outcome | None)
    assert_type(await worker.run(), int)
    worker.handler("urn:c")(idempotent(awaited, AsyncRedisSeenStore("redis://127.0.0.1")))


# Tests of a user's own

with in_memory(publisher, consumer) as queues:
    assert_type(queues.drain(consumer), list[Outcome])
    assert_type(queues["orders"].assert_published("urn:a", {"n": 1}), list[MemoryMessage])
    call_handler(consumer, "urn:a", {"n": 1})


async def in_memory_for_asyncio(worker: AsyncRedisConsumer) -> None:
    """Await what an asyncio consumer does."""
    with in_memory(worker) as memory:
        assert_type(await memory.drain(worker), list[Outcome])
        await call_handler(worker, "urn:a", {})


# Operators

operator = RedisQueue(redis.Redis(), "orders", layout="zset")
assert_type(operator.counts(), Counts)
assert_type(operator.counts().overdue, int)
assert_type(operator.peek(10, "dead"), list[StoredMessage])
assert_type(operator.purge(), int)


def is_wanted(message: StoredMessage) -> bool:
    """Choose among dead letters."""
    assert_type(message.dead_letter, DeadLetter)
    return message.dead_letter.reason == "failed"


done = operator.redrive(limit=5, select=is_wanted, dry_run=True)
assert_type(done, Redriven)
assert_type(done.moved, tuple[Moved, ...])


async def operate(queue: AsyncRedisQueue) -> None:
    """Await the same."""
    assert_type(await queue.counts(), Counts)
    assert_type(await queue.peek(), list[StoredMessage])
    assert_type(await queue.purge(), int)
    assert_type(await queue.redrive("elsewhere", limit=1), Redriven)


# Jobs

registry = JobRegistry()
jobs = RedisJobStore(redis.Redis(), key_prefix="jobs:", keep_done=60, registry=registry)


@registry.job("email.send", payload=dict[str, str])
def send(payload: dict[str, str], job: ClaimedJob) -> int:
    """Keep its own type under the decorator."""
    return job.attempts + len(payload)


@registry.job("email.fetch")
async def fetch(payload: Any) -> str:
    """Likewise."""
    return str(payload)


assert_type(registry.kinds, tuple[str, ...])
assert_type(jobs.enqueue("email.send", {"to": "a"}, idempotency_key="k"), str)
assert_type(jobs.enqueue_many([("email.send", {"to": "a"})]), list[str])
claimed = jobs.claim_due(1, "worker", 60, kinds=registry.kinds)
assert_type(claimed, list[ClaimedJob])
assert_type(send({}, claimed[0]), int)
assert_type(jobs.extend(claimed[0], 60), bool)
assert_type(jobs.complete(claimed[0]), bool)
assert_type(jobs.complete_many(claimed), list[bool])
assert_type(jobs.fail(claimed[0], ValueError(), dead=True), bool)
assert_type(jobs.release(*claimed), bool)
assert_type(jobs.reap_stuck(), int)
assert_type(jobs.get("id"), Job | None)
assert_type(jobs.list("dead"), JobPage)
assert_type(jobs.list_by_kind("email.send"), list[Job])
assert_type(jobs.count_by_status(), dict[str, int])
assert_type(jobs.cancel("id"), bool)
assert_type(jobs.retry("id"), bool)
assert_type(JobWorker(jobs, registry, concurrency=2, lease=60).run(), int)


async def counted() -> None:
    """The asyncio twin has the same names."""
    assert_type(await fetch({}), str)
    async with AsyncRedisJobStore("redis://127.0.0.1") as store:
        assert_type(await store.enqueue("email.fetch", {}), str)
        assert_type(await store.claim_due(1, "worker", 60), list[ClaimedJob])
        assert_type(await store.count_by_status(), dict[str, int])
        assert_type(await store.list(), JobPage)
        assert_type(await AsyncJobWorker(store, registry, concurrency=10).run(), int)


# Hooks


class Middleware(hooks.Hook):
    """Overrides steps with the types that they have."""

    def publishing(self, publication: Publication) -> AbstractContextManager[Publication] | None:
        """Look at what is published."""
        assert_type(publication.headers, Mapping[str, str])
        return None

    def processing(self, delivery: Delivery) -> AbstractContextManager[object] | None:
        """Look at what is handled."""
        assert_type(delivery.envelope, Envelope | None)
        assert_type(delivery.message_id, str)
        return None

    def settling(self, settling: Settling) -> AbstractContextManager[object] | None:
        """Look at what is settled."""
        assert_type(settling.intended, Outcome)
        return None

    def enqueuing(self, job: NewJob) -> AbstractContextManager[NewJob] | None:
        """Look at what is enqueued."""
        assert_type(job.kind, str)
        return None

    def processing_job(self, run: JobRun) -> AbstractContextManager[object] | None:
        """Look at what is run."""
        assert_type(run.job, ClaimedJob)
        return None


hooks.register(Middleware())
hooks.unregister(Middleware())


# The carrier

assert_type(frame_value(b"", {"k": "v"}), bytes)
assert_type(unframe(b""), tuple[bytes, dict[str, str]])
assert_type(headers_of(b""), dict[str, str])
context: Context = extract({}, "trace id")


# The instrumentation


def on_publish(span: Span, publication: Publication) -> None:
    """Add to a span."""
    span.set_attribute("team", publication.headers.get("team", ""))


BabelQueueInstrumentor().instrument(
    tracer_provider=TracerProvider(),
    mode=lambda delivery: "link",
    max_parent_age=60,
    settle_spans=True,
    captured_headers=["tenant"],
    publish_hook=on_publish,
)
BabelQueueSdkInstrumentor().instrument(mode="link")
BabelQueueInstrumentor().uninstrument()

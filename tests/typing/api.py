"""What a type checker makes of our public names: checked by mypy, never run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import redis
import redis.asyncio
from typing_extensions import assert_type

from babelqueue_carrier import extract, frame_value, headers_of, inject, unframe
from babelqueue_redis import (
    AsyncRedisConsumer,
    AsyncRedisJobStore,
    AsyncRedisPublisher,
    AsyncRedisQueue,
    ClaimedJob,
    Counts,
    Envelope,
    Job,
    JobPage,
    JobRegistry,
    JobWorker,
    Moved,
    Outcome,
    PublishError,
    RedisConsumer,
    RedisJobStore,
    RedisPublisher,
    RedisQueue,
    RedisSeenStore,
    Redriven,
    Reservation,
    StoredMessage,
    idempotent,
)
from babelqueue_redis.testing import MemoryMessage, call_handler, in_memory

if TYPE_CHECKING:
    from opentelemetry.context import Context

publisher = RedisPublisher(redis.Redis(), "orders", layout="legacy")
assert_type(publisher.publish("urn:a", {"n": 1}, headers=inject(), meta={"ext": {}}), str)
assert_type(publisher.publish_many([("urn:a", {"n": 1})]), list[str])

consumer = RedisConsumer(
    "redis://127.0.0.1", "orders", {"urn:a": lambda envelope: None}, retry_after=None
)


@consumer.handler("urn:a")
def handler(envelope: Envelope, raw: bytes, headers: Mapping[str, str]) -> int:
    """Keep its own type under the decorator."""
    assert_type(envelope.meta.created_at, int)
    return len(raw) + len(headers) + envelope.attempts


assert_type(handler(Envelope("urn:a"), b"", {}), int)
assert_type(consumer.reserve(), Reservation | None)
assert_type(consumer.poll(0), Outcome | None)
assert_type(consumer.run(lambda: True), int)


async def asynchronous() -> None:
    """The same names, awaited."""
    sender = AsyncRedisPublisher(redis.asyncio.Redis(), "orders", layout="zset")
    assert_type(await sender.publish("urn:a", {"n": 1}, delay=0.5), str)
    assert_type(await sender.publish_many([("urn:a", {"n": 1})]), list[str])
    worker = AsyncRedisConsumer("redis://127.0.0.1", "orders", layout="zset", retry_backoff=1)

    @worker.handler("urn:a", payload=dict[str, int])
    async def awaited(envelope: Envelope) -> None:
        pass

    assert_type(await worker.poll(0), Outcome | None)
    with in_memory(sender, worker) as queues:
        assert_type(await queues.drain(worker), list[Outcome])
        assert_type(queues["orders"].assert_published("urn:a"), list[MemoryMessage])
        await call_handler(worker, "urn:a", {})


consumer.handler("urn:a")(idempotent(handler, RedisSeenStore("redis://127.0.0.1")))
with in_memory(publisher, consumer) as queues:
    assert_type(queues.drain(consumer), list[Outcome])
operator = RedisQueue(redis.Redis(), "orders", layout="zset")
assert_type(operator.counts(), Counts)
assert_type(operator.peek(10, "dead"), list[StoredMessage])
assert_type(operator.purge(), int)
done = operator.redrive(select=lambda message: message.dead_letter.reason == "failed", dry_run=True)
assert_type(done, Redriven)
assert_type(done.moved, tuple[Moved, ...])


async def operate(queue: AsyncRedisQueue) -> None:
    """Await the same."""
    assert_type(await queue.counts(), Counts)
    assert_type(await queue.peek(), list[StoredMessage])
    assert_type(await queue.redrive("elsewhere", limit=1), Redriven)


assert_type(frame_value(b"", {"k": "v"}), bytes)
assert_type(unframe(b""), tuple[bytes, dict[str, str]])
assert_type(headers_of(b""), dict[str, str])
context: Context = extract({}, "trace id")

registry = JobRegistry()
jobs = RedisJobStore(redis.Redis(), key_prefix="jobs:", keep_done=60, registry=registry)


@registry.job("email.send", payload=dict[str, str])
def send(payload: dict[str, str], job: ClaimedJob) -> int:
    """Keep its own type under the decorator."""
    return job.attempts + len(payload)


assert_type(jobs.enqueue("email.send", {"to": "a"}, idempotency_key="k"), str)
assert_type(jobs.enqueue_many([("email.send", {"to": "a"})]), list[str])
claimed = jobs.claim_due(1, "worker", 60, kinds=registry.kinds)
assert_type(claimed, list[ClaimedJob])
assert_type(send({}, claimed[0]), int)
assert_type(jobs.complete_many(claimed), list[bool])
assert_type(jobs.fail(claimed[0], ValueError(), dead=True), bool)
assert_type(jobs.get("id"), Job | None)
assert_type(jobs.list("dead"), JobPage)
assert_type(jobs.list_by_kind("email.send"), list[Job])
assert_type(jobs.count_by_status(), dict[str, int])
assert_type(JobWorker(jobs, registry, concurrency=2).run(), int)


async def counted() -> None:
    """The asyncio twin has the same names."""
    async with AsyncRedisJobStore("redis://127.0.0.1") as store:
        assert_type(await store.count_by_status(), dict[str, int])


try:
    publisher.publish("urn:a", {})
except PublishError as error:
    assert_type(error.message_id, str)
    assert_type(error.may_be_stored, bool)

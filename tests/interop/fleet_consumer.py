"""A consumer in a process of its own, to be killed: ``MAKE LAYOUT URL QUEUE LEDGER``.

Every delivery stands in the ledger, under the make and the process id, before its handler ends.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Any

import redis

from babelqueue_redis import AsyncRedisConsumer, RedisConsumer
from tests.support.batches import PREFETCH
from tests.support.ledger import Ledger

GOOD, BAD = "urn:good", "urn:bad"
TRIES = 10
"""More than a message can be killed in: a dead letter is one that failed so often."""
LEASE = 1
WORK = 0.003
"""Seconds of a handler: long enough to be killed in."""

make, layout, url, queue, path = sys.argv[1:]
ledger = Ledger(path)
who = f"{make}:{os.getpid()}"


def note(message_id: str, job: str) -> None:
    """Write the delivery down; fail where the message says so."""
    ledger.write(who, message_id)
    if job == BAD:
        raise ValueError(job)


def work(envelope: Any) -> None:
    """Handle for our blocking consumer."""
    time.sleep(WORK)
    note(envelope.meta.id, envelope.job)


async def work_async(envelope: Any) -> None:
    """Handle for our asyncio consumer."""
    await asyncio.sleep(WORK)
    note(envelope.meta.id, envelope.job)


def work_sdk(data: Any, meta: Any, envelope: Any) -> None:
    """Handle for the reference SDK's."""
    time.sleep(WORK)
    note(meta["id"], envelope["job"])


def run() -> None:
    """Consume until a signal comes."""
    options: dict[str, Any] = {
        "layout": layout,
        "retry_after": LEASE,
        "max_tries": TRIES,
        "on_error": lambda *_: None,
        "prefetch": PREFETCH,
    }
    if make == "sync":
        RedisConsumer(url, queue, dict.fromkeys((GOOD, BAD), work), **options).run()
    elif make == "aio":
        handlers = dict.fromkeys((GOOD, BAD), work_async)
        consumer = AsyncRedisConsumer(url, queue, handlers, concurrency=4, **options)
        asyncio.run(run_async(consumer))
    else:
        run_sdk()


async def run_async(consumer: AsyncRedisConsumer) -> None:
    """Consume on a loop."""
    await consumer.run()


def run_sdk() -> None:
    """Consume with the reference SDK."""
    from babelqueue import BabelQueue  # noqa: PLC0415 - the other children start without it
    from babelqueue.redis_transport import RedisTransport  # noqa: PLC0415 - as above

    transport = RedisTransport(
        client=redis.Redis.from_url(url), laravel_compat=layout == "zset", retry_after=LEASE
    )
    app = BabelQueue(transport=transport, queue=queue, dead_letter=True, max_attempts=TRIES)
    app.register(GOOD, work_sdk)
    app.register(BAD, work_sdk)
    app.consume(timeout=0.2)


if __name__ == "__main__":
    run()

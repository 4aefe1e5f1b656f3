"""This package: messages."""

from __future__ import annotations

import asyncio
import contextlib
import random
import resource
import threading
import time
from collections.abc import Iterator
from typing import Any

from babelqueue_redis import (
    AsyncRedisConsumer,
    AsyncRedisPublisher,
    RedisConsumer,
    RedisPublisher,
)
from tests.benchmarks.peers import ours_jobs, ours_queue
from tests.benchmarks.peers.protocol import (
    URN,
    Meter,
    Reading,
    Stretch,
    Work,
    data_of,
    metered,
    serve,
)

QUEUE = "ours"
BATCH, LARGE = 100, 10_000


def publish(url: str, n: int, layout: str = "legacy", size: int = 0) -> Reading:
    """One after the other."""
    publisher, data = RedisPublisher(url, QUEUE, layout=layout), data_of(size)
    publisher.publish(URN, data)
    return metered(url, n, lambda: publisher.publish(URN, data))


def publish_many(url: str, n: int, layout: str = "legacy", size: int = 0) -> Reading:
    """A hundred at once."""
    publisher, batch = RedisPublisher(url, QUEUE, layout=layout), [(URN, data_of(size))] * 100
    publisher.publish_many(batch)
    return metered(url, n // 100, lambda: publisher.publish_many(batch), 100)


def publish_tasks(url: str, n: int, tasks: int = 100) -> Reading:
    """From so many tasks at a time."""
    data = data_of()

    async def some(publisher: AsyncRedisPublisher) -> None:
        for _ in range(n // tasks):
            await publisher.publish(URN, data)

    async def main() -> Reading:
        async with AsyncRedisPublisher(url, QUEUE) as publisher:
            await publisher.publish(URN, data)
            meter = Meter(url)
            meter.start()
            await asyncio.gather(*(some(publisher) for _ in range(tasks)))
            return meter.result(n)

    return asyncio.run(main())


@contextlib.contextmanager
def instrumented(*, traced: bool) -> Iterator[None]:
    """Trace, or do not."""
    if not traced:
        yield
        return
    from opentelemetry.instrumentation.babelqueue import BabelQueueInstrumentor  # noqa: PLC0415
    from opentelemetry.metrics import NoOpMeterProvider  # noqa: PLC0415 - the SDK's has none

    from tests.benchmarks.peers.spans import dropping  # noqa: PLC0415 - needs OpenTelemetry

    provider, meters = dropping(), NoOpMeterProvider()
    BabelQueueInstrumentor().instrument(tracer_provider=provider, meter_provider=meters)
    try:
        yield
    finally:
        BabelQueueInstrumentor().uninstrument()


def stretch_of(url: str, n: int, size: int = 0) -> Stretch:
    """Return a stretch, with the largest batch that is fetched ahead."""
    return Stretch(url, n, ahead=1 if size > LARGE else BATCH)


def fill(url: str, count: int, size: int, layout: str) -> None:
    """Publish so many."""
    publisher, some = RedisPublisher(url, QUEUE, layout=layout), 1 if size > LARGE else BATCH
    for start in range(0, count, some):
        publisher.publish_many([(URN, data_of(size))] * min(some, count - start))


def consume(
    url: str, n: int, size: int = 0, *, traced: bool = False, filled: bool = False, **options: Any
) -> Reading:
    """A worker with a handler that does nothing."""
    stretch = stretch_of(url, n, size)

    def handle(_envelope: Any) -> None:
        if stretch.passed():
            consumer.stop()

    consumer = RedisConsumer(url, QUEUE, {URN: handle}, **options)
    with instrumented(traced=traced):
        if not filled:
            fill(url, stretch.total, size, options.get("layout", "legacy"))
        consumer.run()
    return stretch.result()


def consume_async(url: str, n: int, **options: Any) -> Reading:
    """The same in asyncio, with a coroutine for a handler."""
    stretch = stretch_of(url, n)
    fill(url, stretch.total, 0, "legacy")

    async def main() -> None:
        async def handle(_envelope: Any) -> None:
            if stretch.passed():
                consumer.stop()

        async with AsyncRedisConsumer(url, QUEUE, {URN: handle}, **options) as consumer:
            await consumer.run()

    asyncio.run(main())
    return stretch.result()


def latency(url: str, n: int, layout: str = "legacy") -> Reading:
    """How long a message waits for a worker that was idle: milliseconds, the median."""
    waited: list[float] = []
    received = threading.Event()

    def handle(envelope: Any) -> None:
        waited.append(time.perf_counter() - envelope.data["sent"])
        received.set()

    publisher = RedisPublisher(url, QUEUE, layout=layout)
    consumer = RedisConsumer(url, QUEUE, {URN: handle}, layout=layout)
    worker = threading.Thread(target=consumer.run)
    worker.start()
    for _ in range(n):
        time.sleep(random.uniform(0.1, 0.5))  # noqa: S311 - to come at any moment
        received.clear()
        publisher.publish(URN, {"sent": time.perf_counter()})
        received.wait(10)
    consumer.stop()
    worker.join()
    return {"value": sorted(waited)[len(waited) // 2] * 1000}


def memory(url: str, n: int) -> Reading:
    """The most that this process needed so far, a worker among it: MiB."""
    consume(url, n)
    return {"value": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


if __name__ == "__main__":
    works: dict[str, Work] = {
        "publish": publish,
        "publish_many": publish_many,
        "publish_tasks": publish_tasks,
        "consume": consume,
        "consume_async": consume_async,
        "latency": latency,
        "memory": memory,
        **ours_queue.works(consume),
        **ours_jobs.WORKS,
    }
    serve(works, "babelqueue-redis", "msgspec", "opentelemetry-sdk")

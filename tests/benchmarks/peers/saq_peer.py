"""SAQ, tuned: ten at a time, fast JSON, its loggers and timers silent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from saq import Job, Queue, Status, Worker

from tests.benchmarks.peers.protocol import Meter, Reading, Stretch, data_of, serve

logging.disable(logging.CRITICAL)
CONCURRENCY = 10
"""Its default; from five to a hundred makes no difference."""
RARE: Any = dict.fromkeys(("schedule", "worker_info", "sweep", "abort"), 3600)


def with_queue(url: str, work: Callable[[Any], Awaitable[Reading]]) -> Reading:
    """Do something with a queue that has been used."""

    async def main() -> Reading:
        json = msgspec.json
        queue = Queue.from_url(url, name="saq", dump=json.encode, load=json.decode)
        await queue.connect()
        await enqueue(queue, 1)
        await queue.dequeue(1)
        try:
            return await work(queue)
        finally:
            await queue.disconnect()

    return asyncio.run(main())


async def enqueue(queue: Any, n: int) -> None:
    """Enqueue so many, one after the other."""
    for _ in range(n):
        await queue.enqueue("nothing", **data_of())


def publish(url: str, n: int, tasks: int = 1) -> Reading:
    """One after the other, or from so many tasks at a time."""

    async def work(queue: Any) -> Reading:
        await asyncio.gather(*(enqueue(queue, 1) for _ in range(tasks)))  # they connect
        meter = Meter(url)
        meter.start()
        await asyncio.gather(*(enqueue(queue, n // tasks) for _ in range(tasks)))
        return meter.result(n)

    return with_queue(url, work)


def consume(url: str, n: int, concurrency: int = CONCURRENCY) -> Reading:
    """A worker with a function that does nothing."""
    stretch = Stretch(url, n, ahead=concurrency)

    async def work(queue: Any) -> Reading:
        done = asyncio.Event()

        async def handle(_context: Any, **_data: Any) -> None:
            if stretch.passed():
                done.set()

        await enqueue(queue, stretch.total)
        functions: Any = [("nothing", handle)]
        worker: Worker[Any] = Worker(queue, functions, concurrency=concurrency, timers=RARE)
        running = asyncio.create_task(worker.start())
        await asyncio.wait_for(done.wait(), 60)
        await worker.stop()
        running.cancel()
        await asyncio.wait([running])
        return stretch.result()

    return with_queue(url, work)


def run_jobs(url: str, n: int) -> Reading:
    """Claim and complete one after the other, as its worker does."""

    async def work(queue: Any) -> Reading:
        await enqueue(queue, n)
        meter = Meter(url)
        meter.start()
        for _ in range(n):
            job: Job = await queue.dequeue(1)
            await job.update(status=Status.ACTIVE)
            await job.finish(Status.COMPLETE)
        return meter.result(n)

    return with_queue(url, work)


if __name__ == "__main__":
    serve({"publish": publish, "consume": consume, "run_jobs": run_jobs}, "saq")

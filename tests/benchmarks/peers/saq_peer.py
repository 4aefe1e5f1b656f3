"""SAQ, tuned: a hundred at a time, its loggers silent."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from saq import Job, Queue, Status, Worker

from tests.benchmarks.peers.protocol import Meter, Reading, data_of, serve

logging.disable(logging.CRITICAL)


async def nothing(_context: Any, **_data: Any) -> None:
    """Do nothing."""


async def enqueued(url: str, n: int) -> tuple[Any, Reading]:
    """Return a queue, and what an enqueue took."""
    queue, data, meter = Queue.from_url(url, name="saq"), data_of(), Meter(url)
    await queue.connect()
    meter.start()
    for _ in range(n):
        await queue.enqueue("nothing", **data)
    return queue, meter.result(n)


def publish(url: str, n: int) -> Reading:
    """One after the other."""

    async def main() -> Reading:
        queue, reading = await enqueued(url, n)
        await queue.disconnect()
        return reading

    return asyncio.run(main())


def consume(url: str, n: int) -> Reading:
    """A worker with a function that does nothing."""

    async def main() -> Reading:
        queue, _ = await enqueued(url, n)
        done, meter, left = asyncio.Event(), Meter(url), n

        async def handle(_context: Any, **_data: Any) -> None:
            nonlocal left
            left -= 1
            if not left:
                meter.stop()
                done.set()

        handle.__qualname__ = "nothing"
        worker: Worker[Any] = Worker(queue, [handle], concurrency=100)
        meter.start()
        running = asyncio.create_task(worker.start())
        await asyncio.wait_for(done.wait(), 60)
        reading = meter.result(n)
        await worker.stop()
        running.cancel()
        await asyncio.wait([running])
        await queue.disconnect()
        return reading

    return asyncio.run(main())


def run_jobs(url: str, n: int) -> Reading:
    """Claim and complete one after the other, as its worker does."""

    async def main() -> Reading:
        queue, _ = await enqueued(url, n)
        meter = Meter(url)
        meter.start()
        for _ in range(n):
            job: Job = await queue.dequeue(1)
            await job.update(status=Status.ACTIVE)
            await job.finish(Status.COMPLETE)
        reading = meter.result(n)
        await queue.disconnect()
        return reading

    return asyncio.run(main())


if __name__ == "__main__":
    serve({"publish": publish, "consume": consume, "run_jobs": run_jobs}, "saq")

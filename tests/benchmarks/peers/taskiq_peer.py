"""taskiq on Redis lists, tuned: a hundred at a time and a hundred ahead, no validation."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from taskiq.receiver import Receiver
from taskiq.serializers import ORJSONSerializer
from taskiq_redis import ListQueueBroker

from tests.benchmarks.peers.protocol import Reading, Stretch, data_of, serve

logging.disable(logging.CRITICAL)


def consume(url: str, n: int, tasks: int = 100, ahead: int = 100) -> Reading:
    """A receiver with a task that does nothing; a list broker takes each message for good."""
    stretch = Stretch(url, n, ahead=tasks + ahead)

    async def main() -> Reading:
        broker = ListQueueBroker(url, queue_name="taskiq").with_serializer(ORJSONSerializer())
        done, finish = asyncio.Event(), asyncio.Event()

        async def handle(_data: Any) -> None:
            if stretch.passed():
                done.set()

        work = broker.register_task(handle, task_name="work")
        await broker.startup()
        data = data_of()
        for _ in range(stretch.total):
            await work.kiq(data)
        receiver = Receiver(
            broker,
            max_async_tasks=tasks,
            max_prefetch=ahead,
            validate_params=False,
            run_startup=False,
        )
        running = asyncio.create_task(receiver.listen(finish))
        await asyncio.wait_for(done.wait(), 60)
        finish.set()
        running.cancel()
        await asyncio.wait([running])
        await broker.shutdown()
        return stretch.result()

    return asyncio.run(main())


if __name__ == "__main__":
    serve({"consume": consume}, "taskiq", "taskiq-redis")

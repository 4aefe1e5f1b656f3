"""taskiq on Redis lists, tuned: a hundred at a time and a hundred ahead, no validation."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from taskiq.receiver import Receiver
from taskiq_redis import ListQueueBroker

from tests.benchmarks.peers.protocol import Meter, Reading, data_of, serve

logging.disable(logging.CRITICAL)


def consume(url: str, n: int) -> Reading:
    """A receiver with a task that does nothing; a list broker takes each message for good."""

    async def main() -> Reading:
        broker, meter, left = ListQueueBroker(url, queue_name="taskiq"), Meter(url), n
        done, finish = asyncio.Event(), asyncio.Event()

        async def handle(_data: Any) -> None:
            nonlocal left
            left -= 1
            if not left:
                meter.stop()
                done.set()

        work = broker.register_task(handle, task_name="work")
        await broker.startup()
        data = data_of()
        for _ in range(n):
            await work.kiq(data)
        receiver = Receiver(
            broker,
            max_async_tasks=100,
            max_prefetch=100,
            validate_params=False,
            run_startup=False,
        )
        meter.start()
        running = asyncio.create_task(receiver.listen(finish))
        await asyncio.wait_for(done.wait(), 60)
        reading = meter.result(n)
        finish.set()
        running.cancel()
        await asyncio.wait([running])
        await broker.shutdown()
        return reading

    return asyncio.run(main())


if __name__ == "__main__":
    serve({"consume": consume}, "taskiq", "taskiq-redis")

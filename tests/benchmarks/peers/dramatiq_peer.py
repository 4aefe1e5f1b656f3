"""Dramatiq, tuned: a prefetch of 1 000, no middleware, one thread, for the handler does nothing."""

from __future__ import annotations

import os
import threading
from typing import Any

os.environ["dramatiq_queue_prefetch"] = "1000"  # noqa: SIM112 - that is its name; read at import

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from tests.benchmarks.peers.protocol import Meter, Reading, data_of, metered, serve


def publish(url: str, n: int) -> Reading:
    """One after the other."""
    broker = RedisBroker(url=url, middleware=[])
    work = dramatiq.actor(lambda _data: None, broker=broker, actor_name="work")
    data = data_of()
    work.send(data)
    return metered(url, n, lambda: work.send(data))


def consume(url: str, n: int) -> Reading:
    """A worker with an actor that does nothing."""
    broker, meter = RedisBroker(url=url, middleware=[]), Meter(url)
    done, left = threading.Event(), [n]

    def handle(_data: Any) -> None:
        left[0] -= 1
        if not left[0]:
            meter.stop()
            done.set()

    work = dramatiq.actor(handle, broker=broker, actor_name="work")
    data = data_of()
    for _ in range(n):
        work.send(data)
    worker = dramatiq.Worker(broker, worker_threads=1, worker_timeout=10)
    meter.start()
    worker.start()
    assert done.wait(60)
    reading = meter.result(n)
    worker.stop()
    broker.close()
    return reading


if __name__ == "__main__":
    serve({"publish": publish, "consume": consume}, "dramatiq")

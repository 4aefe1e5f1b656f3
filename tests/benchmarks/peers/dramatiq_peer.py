"""Dramatiq, tuned: a prefetch of 1 000, no middleware, its eight threads."""

from __future__ import annotations

import os
import threading
from typing import Any

os.environ["dramatiq_queue_prefetch"] = "1000"  # noqa: SIM112 - that is its name; read at import

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from tests.benchmarks.peers.protocol import Reading, Stretch, data_of, metered, serve

AHEAD = 1000


def publish(url: str, n: int) -> Reading:
    """One after the other."""
    broker = RedisBroker(url=url, middleware=[])
    work = dramatiq.actor(lambda _data: None, broker=broker, actor_name="work")
    data = data_of()
    work.send(data)
    return metered(url, n, lambda: work.send(data))


def consume(url: str, n: int) -> Reading:
    """A worker with an actor that does nothing."""
    broker, stretch = RedisBroker(url=url, middleware=[]), Stretch(url, n, AHEAD)
    done = threading.Event()

    def handle(_data: Any) -> None:
        if stretch.passed():
            done.set()

    work = dramatiq.actor(handle, broker=broker, actor_name="work")
    data = data_of()
    for _ in range(stretch.total):
        work.send(data)
    worker = dramatiq.Worker(broker, worker_timeout=10)
    worker.start()
    assert done.wait(60)
    worker.stop()
    broker.close()
    return stretch.result()


if __name__ == "__main__":
    serve({"publish": publish, "consume": consume}, "dramatiq")

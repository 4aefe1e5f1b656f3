"""The reference SDK, `babelqueue`."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

from babelqueue import BabelQueue, otel
from babelqueue.redis_transport import RedisTransport

from tests.benchmarks.peers.protocol import URN, Reading, Stretch, data_of, metered, serve


def app_of(url: str, layout: str) -> Any:
    """Return an app on a queue of its own."""
    transport = RedisTransport(url, laravel_compat=layout == "zset")
    return BabelQueue(transport=transport, queue="sdk")


def publish(url: str, n: int, layout: str = "legacy", size: int = 0) -> Reading:
    """One after the other."""
    app, data = app_of(url, layout), data_of(size)
    app.publish(URN, data)
    return metered(url, n, lambda: app.publish(URN, data))


def consume(
    url: str, n: int, layout: str = "legacy", size: int = 0, *, traced: bool = False
) -> Reading:
    """A worker with a handler that does nothing, with its tracing helper or without."""
    app, data, stretch = app_of(url, layout), data_of(size), Stretch(url, n)

    def handle(data: Any, meta: Any) -> None:
        stretch.passed()

    if traced:
        from tests.benchmarks.peers.spans import dropping  # noqa: PLC0415 - needs OpenTelemetry

        tracer = dropping().get_tracer("bench")
        app.register(URN, otel.wrap_handler(tracer, handle))
        for _ in range(stretch.total):
            otel.publish(tracer, app, URN, data)
    else:
        app.register(URN, handle)
        for _ in range(stretch.total):
            app.publish(URN, data)
    app.consume(max_messages=stretch.total)
    return stretch.result()


def latency(url: str, n: int, layout: str = "legacy") -> Reading:
    """How long a message waits for a worker that was idle: milliseconds, the median."""
    app, waited = app_of(url, layout), []
    received = threading.Event()

    def handle(data: Any, meta: Any) -> None:
        waited.append(time.perf_counter() - data["sent"])
        received.set()

    app.register(URN, handle)
    worker = threading.Thread(target=app.consume, kwargs={"timeout": 5.0})
    worker.start()
    for _ in range(n):
        time.sleep(random.uniform(0.1, 0.5))  # noqa: S311 - to come at any moment
        received.clear()
        app.publish(URN, {"sent": time.perf_counter()})
        received.wait(10)
    app.stop()
    app.publish(URN, {"sent": 0})
    worker.join()
    return {"value": sorted(waited)[len(waited) // 2] * 1000}


if __name__ == "__main__":
    works = {"publish": publish, "consume": consume, "latency": latency}
    serve(works, "babelqueue", "opentelemetry-sdk")

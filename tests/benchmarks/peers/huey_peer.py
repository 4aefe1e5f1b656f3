"""Huey."""

from __future__ import annotations

from typing import Any

from huey import RedisHuey

from tests.benchmarks.peers.protocol import Reading, data_of, metered, serve


def publish(url: str, n: int) -> Reading:
    """One after the other, without results."""
    app = RedisHuey("huey", url=url, results=False, utc=False)

    def handle(data: Any) -> None:
        pass

    work, data = app.task()(handle), data_of()
    work(data)
    return metered(url, n, lambda: work(data))


if __name__ == "__main__":
    serve({"publish": publish}, "huey")

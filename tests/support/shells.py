"""Both shells behind one face, so that one suite asks both.

The asyncio objects are driven by an event loop of their own; a call returns when its task has.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import redis
import redis.asyncio

from babelqueue_redis import (
    AsyncRedisConsumer,
    AsyncRedisJobStore,
    AsyncRedisPublisher,
    AsyncRedisQueue,
    RedisConsumer,
    RedisJobStore,
    RedisPublisher,
    RedisQueue,
)
from babelqueue_redis.aio.driver import Driver as AsyncDriver
from babelqueue_redis.sync.driver import Driver

KINDS: dict[str, tuple[Any, Any]] = {
    "publisher": (RedisPublisher, AsyncRedisPublisher),
    "consumer": (RedisConsumer, AsyncRedisConsumer),
    "queue": (RedisQueue, AsyncRedisQueue),
    "job_store": (RedisJobStore, AsyncRedisJobStore),
    "driver": (Driver, AsyncDriver),
}


class Blocking:
    """An asyncio object whose coroutine methods are called like plain ones."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._loop = asyncio.new_event_loop()

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._inner, name)
        if not inspect.iscoroutinefunction(attribute):
            return attribute

        def call(*args: Any, **keywords: Any) -> Any:
            return self._loop.run_until_complete(attribute(*args, **keywords))

        return call

    def __enter__(self) -> Blocking:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Close the connection and the loop."""
        if not self._loop.is_closed():
            self._loop.run_until_complete(self._inner.close())
            self._loop.close()


class Shell:
    """Makes publishers, consumers and drivers of one kind."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._made: list[Blocking] = []

    def client(self, url: str, **options: Any) -> Any:
        """Make a client of the kind."""
        kind: Any = redis.Redis if self.name == "sync" else redis.asyncio.Redis
        return kind.from_url(url, **options)

    def make(self, what: str, *args: Any, **options: Any) -> Any:
        """Make a publisher, a consumer or a driver."""
        blocking, asynchronous = KINDS[what]
        if self.name == "sync":
            return blocking(*args, **options)
        made = Blocking(asynchronous(*args, **options))
        self._made.append(made)
        return made

    def end(self) -> None:
        """Close what was made."""
        for made in self._made:
            made.end()


Maker = Callable[..., Any]

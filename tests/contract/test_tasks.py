"""Tasks that do not run as usual: all at once, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from babelqueue_redis import AsyncRedisConsumer, Envelope, RedisPublisher
from tests.support.marks import both_layouts
from tests.support.store import Store

pytestmark = both_layouts
LONGEST = 20.0
"""Seconds that no run here takes."""
Factory = Callable[..., asyncio.Task[Any]]


def handled_with(
    factory: Factory, redis_url: str, queue: str, layout: str, wanted: int
) -> list[object]:
    """Run a consumer of two lanes whose tasks are made so; return what it handled."""
    seen: list[object] = []

    async def handle(envelope: Envelope) -> None:
        seen.append(envelope.data["n"])

    async def run() -> None:
        asyncio.get_running_loop().set_task_factory(factory)
        options: dict[str, Any] = {"concurrency": 2, "prefetch": 5, "block_timeout": 0.1}
        options["layout"] = layout
        async with AsyncRedisConsumer(redis_url, queue, {"urn:a": handle}, **options) as consumer:
            running = consumer.run(lambda: len(seen) < wanted)
            assert await asyncio.wait_for(running, LONGEST) == len(seen)

    asyncio.run(run())
    return seen


@pytest.mark.skipif(not hasattr(asyncio, "eager_task_factory"), reason="Python 3.12 has it")
def test_tasks_that_end_at_once_leave_their_lanes_free(
    redis_url: str, queue: str, layout: str, store: Store
) -> None:
    """An eager task is over before whoever made it knows it."""
    RedisPublisher(redis_url, queue, layout=layout).publish_many(
        [("urn:a", {"n": n}) for n in range(9)]
    )
    eager: Factory = getattr(asyncio, "eager_task_factory")  # noqa: B009 - not in mypy's Python
    assert handled_with(eager, redis_url, queue, layout, 9) == list(range(9))
    assert store.counts() == {}


def test_tasks_that_somebody_else_cancels_leave_their_lanes_free(
    redis_url: str, queue: str, layout: str, store: Store
) -> None:
    """Before its first step a task cannot say that it ended; its message is given back."""
    RedisPublisher(redis_url, queue, layout=layout).publish_many(
        [("urn:a", {"n": n}) for n in range(9)]
    )
    made: list[str] = []

    def cancelling(
        loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **options: Any
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=loop, **options)
        if "MessageLanes._handle" in repr(coro):
            made.append(repr(coro))
            if len(made) % 3 == 0:
                task.cancel()
        return task

    seen = handled_with(cancelling, redis_url, queue, layout, 5)
    assert len(made) > len(seen) >= 5
    assert store.counts() == {"ready": 9 - len(seen)}

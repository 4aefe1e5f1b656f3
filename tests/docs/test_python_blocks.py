"""Every Python block of the README and of the pages runs, page by page, on a real Redis."""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
from opentelemetry.instrumentation.babelqueue import BabelQueueInstrumentor

from babelqueue_redis import AsyncRedisConsumer, JobWorker, RedisConsumer, RedisWorker, hooks

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = [
    path
    for path in sorted(
        [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("packages/*/*.md")]
    )
    if BLOCK.search(path.read_text())
]


@pytest.fixture
def _redis_is_the_readers(
    own_server: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Make ``redis.Redis()`` a client of a private server, and let what runs for ever end."""
    there = redis.connection.parse_url(own_server())

    class Here(redis.Redis):
        def __init__(self, **options: Any) -> None:
            super().__init__(**{**there, **options})

    class AsyncHere(redis.asyncio.Redis):
        def __init__(self, **options: Any) -> None:
            super().__init__(**{**there, **options})

    def run(consumer: RedisConsumer) -> None:
        while consumer.poll(0):
            pass

    async def run_async(consumer: AsyncRedisConsumer) -> None:
        while await consumer.poll(0):
            pass

    work = JobWorker.run

    def run_jobs(worker: JobWorker) -> None:
        count = worker._store.count_by_status
        work(worker, lambda: bool(count()["pending"]))

    monkeypatch.setattr(redis, "Redis", Here)
    monkeypatch.setattr(redis.asyncio, "Redis", AsyncHere)
    serve = RedisWorker.run
    monkeypatch.setattr(RedisConsumer, "run", run)
    monkeypatch.setattr(
        RedisWorker, "run", lambda worker: serve(worker, iter([True, False]).__next__)
    )
    monkeypatch.setattr(AsyncRedisConsumer, "run", run_async)
    monkeypatch.setattr(JobWorker, "run", run_jobs)
    yield
    BabelQueueInstrumentor().uninstrument()
    for hook in hooks._registered:
        hooks.unregister(hook)


@pytest.mark.usefixtures("_redis_is_the_readers")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_python_blocks_of_a_page_run_in_order(
    page: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In one namespace, and no handler fails; then the tests that they define."""
    module = types.ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)  # where dataclasses look for their names
    names = vars(module)
    for block in BLOCK.finditer(page.read_text()):
        line = page.read_text()[: block.start(1)].count("\n")
        exec(compile("\n" * line + block[1], str(page), "exec"), names)  # noqa: S102 - our own pages
    failures = [record.getMessage() for record in caplog.records if record.levelno >= 40]
    assert failures == []
    for name, test in list(names.items()):
        if name.startswith("test_"):
            test()

"""Job workers that are killed at any moment: every job is done, and the store is whole."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from babelqueue_redis import RedisJobStore
from tests.support.ledger import Ledger
from tests.support.waiting import eventually

JOBS = 200
KILLS = 4
WORKER = """
import asyncio, sys
from babelqueue_redis import (
    AsyncJobWorker, AsyncRedisJobStore, JobRegistry, JobWorker, RedisJobStore
)
from tests.support.ledger import Ledger
kind, url, prefix, path = sys.argv[1:]
registry, ledger = JobRegistry(), Ledger(path)

@registry.job("a")
def handle(payload):
    ledger.write(kind, str(payload))

options = dict(concurrency=4, lease=2, poll_interval=0.01, reap_interval=0.05, retry_backoff=0)
if kind == "sync":
    JobWorker(RedisJobStore(url, key_prefix=prefix), registry, **options).run()
else:
    async def main():
        store = AsyncRedisJobStore(url, key_prefix=prefix)
        await AsyncJobWorker(store, registry, **options).run()
    asyncio.run(main())
"""


class Crew:
    """Two workers of each kind, in processes of their own."""

    def __init__(self, *arguments: str) -> None:
        self._arguments = arguments
        self._crew = [(kind, self._start(kind)) for kind in ("sync", "aio", "sync", "aio")]

    def _start(self, kind: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", WORKER, kind, *self._arguments])

    def kill(self, number: int) -> None:
        """Kill one, and let another take its place."""
        kind, process = self._crew[number % len(self._crew)]
        process.kill()
        process.wait()
        self._crew[number % len(self._crew)] = kind, self._start(kind)

    def end(self) -> None:
        """Leave no process behind."""
        for _, process in self._crew:
            process.kill()
            process.wait()


@pytest.fixture
def kind() -> str:
    """The kind of the store that looks on; the workers are of both."""
    return "sync"


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """What was handled."""
    made = Ledger(tmp_path / "ledger")
    yield made
    made.close()


def test_every_job_is_done_though_workers_are_killed(
    jobs: RedisJobStore, ledger: Ledger, redis_url: str, prefix: str, tmp_path: Path
) -> None:
    """What ran twice is what a killed worker held; nothing is left claimed, and no index is off."""
    ids = jobs.enqueue_many([("a", n) for n in range(JOBS)], max_attempts=KILLS + 2)
    crew = Crew(redis_url, prefix, str(tmp_path / "ledger"))

    def handled(count: int) -> Any:
        return len(ledger.entries()) >= count

    try:
        for number in range(KILLS):
            eventually(lambda: handled(JOBS * (number + 1) // (KILLS + 2)))  # noqa: B023 - called within the turn
            crew.kill(number)
        eventually(lambda: jobs.count_by_status()["done"] == JOBS)
    finally:
        crew.end()
    runs = Counter(entry.what for entry in ledger.entries())
    assert runs.keys() == {str(n) for n in range(JOBS)}
    assert runs.total() <= JOBS + KILLS * 4  # as many as a worker runs at once, for each kill
    lost = 0
    for job_id in ids:
        job = jobs.get(job_id)
        assert job is not None
        assert job.locked_by == job.token == ""
        lost += job.attempts
    assert lost >= runs.total() - JOBS
    assert jobs.reindex() == 0
    assert sum(jobs.count_by_status().values()) == JOBS

"""This package: the job store."""

from __future__ import annotations

from babelqueue_redis import RedisJobStore
from tests.benchmarks.peers.protocol import Meter, Reading, Work, data_of, metered

BATCH = 100


def enqueue(url: str, n: int) -> Reading:
    """One after the other."""
    store, data = RedisJobStore(url), data_of()
    store.enqueue("work", data)
    return metered(url, n, lambda: store.enqueue("work", data))


def enqueue_many(url: str, n: int) -> Reading:
    """A hundred at once."""
    store, batch = RedisJobStore(url), [("work", data_of())] * BATCH
    store.enqueue_many(batch)
    return metered(url, n // BATCH, lambda: store.enqueue_many(batch), BATCH)


def run_jobs(url: str, n: int, batch: int = 1) -> Reading:
    """Claim and complete, so many at once."""
    store = RedisJobStore(url)
    for start in range(0, n, BATCH):
        store.enqueue_many([("work", data_of())] * min(BATCH, n - start))
    meter, done = Meter(url), 0
    meter.start()
    while done < n:
        jobs = store.claim_due(batch, "bench", 60)
        done += sum(store.complete_many(jobs)) if batch > 1 else store.complete(jobs[0])
    return meter.result(n)


WORKS: dict[str, Work] = {"enqueue": enqueue, "enqueue_many": enqueue_many, "run_jobs": run_jobs}

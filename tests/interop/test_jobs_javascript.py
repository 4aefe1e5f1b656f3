"""A store that JavaScript and Python workers share.

The JavaScript side is played here, from what its users' document says of its keys, fields and
scripts: it keeps no index, counts no attempt when it reaps, and knows no token.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from babelqueue_redis import ClaimedJob, RedisJobStore
from tests.support.server import Client

CLAIM = """
local ids = redis.call('ZRANGEBYSCORE', KEYS[1], 0, ARGV[1], 'LIMIT', 0, ARGV[4])
local jobs = {}
for _, id in ipairs(ids) do
  redis.call('ZREM', KEYS[1], id)
  redis.call('ZADD', KEYS[2], ARGV[1] + ARGV[2], id)
  redis.call('HSET', KEYS[3] .. id, 'status', 'claimed', 'lockedAt', ARGV[1], 'lockedBy', ARGV[3])
  jobs[#jobs + 1] = redis.call('HGETALL', KEYS[3] .. id)
end
return jobs
"""
REAP = """
local ids = redis.call('ZRANGEBYSCORE', KEYS[1], 0, ARGV[1])
for _, id in ipairs(ids) do
  redis.call('ZREM', KEYS[1], id)
  redis.call('ZADD', KEYS[2], ARGV[1], id)
  redis.call('HSET', KEYS[3] .. id, 'status', 'pending')
  redis.call('HDEL', KEYS[3] .. id, 'lockedAt', 'lockedBy')
end
return #ids
"""


class JavaScript:
    """The other side."""

    def __init__(self, client: Client, prefix: str) -> None:
        self.client = client
        self.prefix = prefix
        self.keys = [f"{prefix}{name}" for name in ("due", "claimed", "job:")]

    def enqueue(self, job_id: str, kind: str, payload: Any, now: int, key: str = "") -> str:
        """Store a job; a key that is taken is the answer."""
        if key and not self.client.set(f"{self.prefix}idempotency:{key}", job_id, nx=True):
            return str(self.client.get(f"{self.prefix}idempotency:{key}").decode())
        fields = {
            "id": job_id,
            "kind": kind,
            "payload": json.dumps(payload),
            "status": "pending",
            "attempts": 0,
            "maxAttempts": 5,
            "runAt": now,
            "createdAt": now,
            "updatedAt": now,
            **({"idempotencyKey": key} if key else {}),
        }
        self.client.hset(f"{self.keys[2]}{job_id}", mapping=fields)
        self.client.zadd(self.keys[0], {job_id: now})
        return job_id

    def claim(self, now: int, lease: int = 1000, worker: str = "node") -> list[dict[str, str]]:
        """Claim all that is due, of any kind."""
        found = self.client.eval(CLAIM, 3, *self.keys, now, lease, worker, 100)
        return [
            {name.decode(): value.decode() for name, value in zip(job[::2], job[1::2], strict=True)}
            for job in found
        ]

    def complete(self, job_id: str, now: int) -> None:
        """Let it be done, without indexes."""
        self.client.zrem(self.keys[1], job_id)
        self.client.hset(f"{self.keys[2]}{job_id}", mapping={"status": "done", "updatedAt": now})
        self.client.hdel(f"{self.keys[2]}{job_id}", "lockedAt", "lockedBy")

    def reap(self, now: int) -> int:
        """Move expired claims back."""
        return int(self.client.eval(REAP, 3, self.keys[1], self.keys[0], self.keys[2], now))


@pytest.fixture
def node(client: Client, prefix: str) -> JavaScript:
    """The other side of the test's store."""
    return JavaScript(client, prefix)


def claim(jobs: RedisJobStore, now: int, lease: float = 1) -> ClaimedJob:
    """Claim one job."""
    (job,) = jobs.claim_due(1, "python", lease, now=now)
    return job


def test_python_works_off_what_javascript_enqueued(jobs: RedisJobStore, node: JavaScript) -> None:
    """It is claimed without an index, and indexed from then on."""
    assert node.enqueue("j1", "email.send", {"to": "a"}, 1000, "k") == "j1"
    assert jobs.enqueue("email.send", 2, idempotency_key="k") == "j1"
    assert jobs.list_by_kind("email.send") == []
    job = claim(jobs, 1000)
    assert (job.id, job.payload, job.max_attempts, job.headers) == ("j1", {"to": "a"}, 5, {})
    assert [each.id for each in jobs.list_by_kind("email.send")] == ["j1"]
    assert jobs.complete(job)
    assert node.enqueue("j2", "email.send", 3, 1000, "k") == "j2"


def test_javascript_works_off_what_python_enqueued(jobs: RedisJobStore, node: JavaScript) -> None:
    """It reads our fields, and what it did is read by us."""
    job_id = jobs.enqueue("email.send", {"to": "a"}, idempotency_key="k", now=1000)
    assert node.enqueue("j1", "email.send", 2, 1000, "k") == job_id
    (job,) = node.claim(1000)
    assert job == {
        "id": job_id,
        "kind": "email.send",
        "payload": '{"to":"a"}',
        "status": "claimed",
        "attempts": "0",
        "maxAttempts": "5",
        "runAt": "1000",
        "createdAt": "1000",
        "updatedAt": "1000",
        "idempotencyKey": "k",
        "lockedAt": "1000",
        "lockedBy": "node",
    }
    assert jobs.count_by_status()["claimed"] == 1
    assert jobs.claim_due(1, "python", 1, now=1000) == []
    node.complete(job_id, 1500)
    done = jobs.get(job_id)
    assert done is not None
    assert done.status == "done"
    assert jobs.reindex() == 1
    assert jobs.count_by_status()["done"] == 1
    assert [each.id for each in jobs.list("done").jobs] == [job_id]
    assert jobs.reindex() == 0


def test_each_reaps_what_the_other_left(jobs: RedisJobStore, node: JavaScript) -> None:
    """And a claim that the other side ended is over, though the token stays in the hash."""
    job_id = jobs.enqueue("a", 1, now=1000)
    stale = claim(jobs, 1000)
    assert node.reap(1999) == 0
    assert node.reap(2000) == 1
    assert not jobs.complete(stale)
    (job,) = node.claim(2000, worker="python")
    assert job["claimToken"] == stale.token
    assert not jobs.complete(stale)
    assert not jobs.extend(stale, 60)
    assert jobs.reap_stuck(now=2999) == 0
    assert jobs.reap_stuck(now=3000) == 1
    again = claim(jobs, 3000)
    assert (again.id, again.attempts) == (job_id, 1)
    assert jobs.complete(again)
    assert node.claim(9000) == []


def test_a_job_that_was_only_moved_back_is_claimed(
    jobs: RedisJobStore, node: JavaScript, client: Client, prefix: str
) -> None:
    """A reaper that leaves the status alone; but a claim that lasts is never taken over."""
    moved, held = node.enqueue("j1", "a", 1, 1000), node.enqueue("j2", "a", 2, 1000)
    assert len(node.claim(1000)) == 2
    client.zrem(f"{prefix}claimed", moved)
    client.zadd(f"{prefix}due", {moved: 1000, held: 1000})
    assert [job.id for job in jobs.claim_due(9, "w", 1, now=1000)] == [moved]
    assert client.zcard(f"{prefix}due") == 0
    assert client.zrange(f"{prefix}claimed", 0, -1) == [moved.encode(), held.encode()]


def test_half_done_work_of_the_other_side_is_repaired(
    jobs: RedisJobStore, node: JavaScript, client: Client, prefix: str
) -> None:
    """Its steps are commands of their own, and it may die between them."""
    for number in range(5):
        node.enqueue(f"j{number}", "a", number, 1000)
    client.zrem(f"{prefix}due", "j0")  # died before it made the job due
    client.hset(f"{prefix}job:j1", "status", "done")  # died before it removed the job
    client.hset(f"{prefix}job:j2", "status", "dead")
    client.zadd(f"{prefix}claimed", {"j3": 1})
    client.delete(f"{prefix}job:j4")
    assert [job.id for job in jobs.claim_due(9, "w", 1, kinds=["b"], now=1000)] == []
    assert jobs.reindex(now=1000) == 4
    expected = {"pending": 2, "claimed": 0, "done": 1, "dead": 1, "canceled": 0}
    assert jobs.count_by_status() == expected
    assert [job.id for job in jobs.claim_due(9, "w", 1, now=1000)] == ["j0", "j3"]


def test_reindex_brings_in_10_000_jobs_in_bounded_steps(
    jobs: RedisJobStore, node: JavaScript, client: Client, prefix: str
) -> None:
    """And sees to it that nothing is listed that is not there."""
    pipe = client.pipeline()
    for number in range(10_000):
        fields = {"id": number, "kind": "a", "payload": 1, "status": "dead", "updatedAt": number}
        pipe.hset(f"{prefix}job:{number}", mapping=fields)
    pipe.zadd(f"{prefix}finished:done", {"ghost": 1, "5": 2})
    pipe.zadd(f"{prefix}kinds", {"a\0ghost": 0})
    pipe.execute()
    assert jobs.reindex() == 10_000
    expected = {"pending": 0, "claimed": 0, "done": 0, "dead": 10_000, "canceled": 0}
    assert jobs.count_by_status() == expected
    assert client.zcard(f"{prefix}kinds") == 10_000
    assert jobs.list("dead").jobs[7].id == "7"

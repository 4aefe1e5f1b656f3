"""What is true of a job store whatever its users do, in whatever order."""

from __future__ import annotations

import contextlib
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import hypothesis
import pytest
import redis
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from babelqueue_redis import ClaimedJob, ConnectionLostError, PublishError, RedisJobStore

T = TypeVar("T")
KINDS = st.sampled_from(["a", "b", "c"])
MOMENTS = st.sampled_from([1, 499, 500, 1000])


@dataclass
class Known:
    """What the model knows of a job."""

    kind: str
    key: str
    most: int
    run_at: int
    status: str = "pending"
    attempts: int = 0
    token: str = ""
    lease_end: int = 0


class JobStoreMachine(RuleBasedStateMachine):
    """Does what users do, kills connections between their calls, and compares with a model."""

    url = ""
    claims = Bundle("claims")

    def __init__(self) -> None:
        super().__init__()
        self.prefix = f"bq-test-{uuid.uuid4().hex}:"
        self.client: Any = redis.Redis.from_url(self.url, decode_responses=True)
        self.store = RedisJobStore(self.url, key_prefix=self.prefix)
        self.now = 1000
        self.known: dict[str, Known] = {}
        self.holders: dict[str, str] = {}

    def teardown(self) -> None:
        """Leave nothing behind."""
        left = list(self.client.scan_iter(match=f"{self.prefix}*", count=10_000))
        if left:
            self.client.delete(*left)
        self.client.close()
        self.store.close()

    def call(self, work: Callable[..., T], *args: Any, **options: Any) -> T:
        """Call; once more where the connection had been killed before."""
        try:
            return work(*args, now=self.now, **options)
        except (ConnectionLostError, PublishError):
            return work(*args, now=self.now, **options)

    def holds(self, job: ClaimedJob) -> Known | None:
        """Return the job of a claim that lasts."""
        known = self.known[job.id]
        return known if (known.status, known.token) == ("claimed", job.token) else None

    def any_of(self, number: int) -> str:
        """Return the id of a job, rather one of the first."""
        return list(self.known)[number % len(self.known)]

    def finish(self, job_id: str, status: str) -> None:
        """Let a job be finished; its key is free."""
        known = self.known[job_id]
        known.status = status
        if self.holders.get(known.key) == job_id:
            del self.holders[known.key]

    def count_attempt(self, job_id: str, run_at: int, *, dead: bool = False) -> None:
        """Let an attempt have failed."""
        known = self.known[job_id]
        known.attempts += 1
        if dead or known.attempts >= known.most:
            self.finish(job_id, "dead")
        else:
            known.status, known.run_at = "pending", run_at

    @initialize(target=claims, keys=st.permutations(["", "k", "l"]), most=st.integers(1, 3))
    def start(self, keys: list[str], most: int) -> Any:
        """Begin with a few jobs, claimed but for one."""
        for number, key in enumerate(keys):
            self.enqueue("abc"[number], key, most, None)
        return self.claim(2, None, 0.5)

    @rule()
    def kill(self) -> None:
        """Cut the connections, as a network or an operator does."""
        for driver in (self.store._driver, self.store._producer):
            connection = getattr(driver._own, "connection", None)
            if connection is not None and connection._sock is not None:
                with contextlib.suppress(OSError):
                    connection._sock.shutdown(socket.SHUT_RDWR)

    @rule(ms=MOMENTS)
    def wait(self, ms: int) -> None:
        """Let time pass."""
        self.now += ms

    @rule(
        kind=KINDS,
        key=st.sampled_from(["", "", "k", "l"]),
        most=st.integers(1, 3),
        later=st.sampled_from([None, None, None, 500]),
    )
    def enqueue(self, kind: str, key: str, most: int, later: int | None) -> None:
        """Enqueue; a job that holds the key is the answer."""
        run_at = None if later is None else self.now + later
        options = {"run_at": run_at, "max_attempts": most, "idempotency_key": key or None}
        job_id = self.call(self.store.enqueue, kind, {"n": len(self.known)}, **options)
        if key in self.holders:
            assert job_id == self.holders[key]
            return
        assert job_id not in self.known
        self.known[job_id] = Known(kind, key, most, run_at or self.now)
        if key:
            self.holders[key] = job_id

    @rule(
        target=claims,
        limit=st.integers(1, 3),
        kinds=st.sampled_from([None, None, None, [], ["a"], ["b", "c"]]),
        lease=st.sampled_from([0.5, 2.0]),
    )
    def claim(self, limit: int, kinds: list[str] | None, lease: float) -> Any:
        """Claim; the longest due come first, and no others."""
        due = sorted(
            (known.run_at, job_id)
            for job_id, known in self.known.items()
            if known.status == "pending"
            and known.run_at <= self.now
            and (kinds is None or known.kind in kinds)
        )
        jobs = self.call(self.store.claim_due, limit, "worker", lease, kinds)
        assert [job.id for job in jobs] == [job_id for _, job_id in due[:limit]]
        for job in jobs:
            known = self.known[job.id]
            assert (job.kind, job.attempts) == (known.kind, known.attempts)
            known.status, known.token = "claimed", job.token
            known.lease_end = self.now + round(lease * 1000)
        return multiple(*jobs)

    @rule(job=claims)
    def complete(self, job: ClaimedJob) -> None:
        """Complete; a stale claim changes nothing."""
        known = self.holds(job)
        assert self.call(self.store.complete, job) is (known is not None)
        if known:
            self.finish(job.id, "done")

    @rule(job=claims, dead=st.booleans(), delay=st.sampled_from([0.0, 1.0]))
    def fail(self, job: ClaimedJob, dead: bool, delay: float) -> None:  # noqa: FBT001 - drawn
        """Fail; a stale claim changes nothing."""
        known = self.holds(job)
        answer = self.call(self.store.fail, job, "boom", dead=dead, delay=delay)
        assert answer is (known is not None)
        if known:
            self.count_attempt(job.id, self.now + round(delay * 1000), dead=dead)

    @rule(job=claims)
    def extend(self, job: ClaimedJob) -> None:
        """Extend; a stale claim changes nothing."""
        known = self.holds(job)
        assert self.call(self.store.extend, job, 1.0) is (known is not None)
        if known:
            known.lease_end = self.now + 1000

    @rule(job=claims)
    def release(self, job: ClaimedJob) -> None:
        """Give back; a stale claim changes nothing."""
        known = self.holds(job)
        assert self.call(self.store.release, job) is (known is not None)
        if known:
            known.status, known.run_at = "pending", self.now

    @rule(number=st.integers(0, 4))
    def cancel(self, number: int) -> None:
        """Cancel what is not finished."""
        job_id = self.any_of(number)
        unfinished = self.known[job_id].status in {"pending", "claimed"}
        assert self.call(self.store.cancel, job_id) is unfinished
        if unfinished:
            self.finish(job_id, "canceled")

    @rule(number=st.integers(0, 4))
    def retry(self, number: int) -> None:
        """Retry what is finished, unless a newer job holds its key."""
        job_id = self.any_of(number)
        known = self.known[job_id]
        may = known.status in {"done", "dead", "canceled"} and known.key not in self.holders
        assert self.call(self.store.retry, job_id) is may
        if may:
            known.status, known.attempts, known.run_at = "pending", 0, self.now
            if known.key:
                self.holders[known.key] = job_id

    @rule(ms=MOMENTS)
    def reap(self, ms: int) -> None:
        """Bring back exactly the jobs whose lease has ended."""
        self.now += ms
        expired = [
            job_id
            for job_id, known in self.known.items()
            if known.status == "claimed" and known.lease_end <= self.now
        ]
        assert self.call(self.store.reap_stuck) == len(expired)
        for job_id in expired:
            self.count_attempt(job_id, self.now)

    @precondition(lambda self: len(self.known) % 3 == 0)
    @rule()
    def reindex(self) -> None:
        """There is nothing to repair."""
        assert self.call(self.store.reindex) == 0

    @invariant()
    def each_job_is_where_its_status_says(self) -> None:
        """In exactly one index, with the score it should have; keys point where they should."""
        read, prefix = self.client, self.prefix
        pipe = read.pipeline()
        for place in ("due", "claimed", *(f"finished:{s}" for s in ("done", "dead", "canceled"))):
            pipe.zrange(f"{prefix}{place}", 0, -1, withscores=True)
        pipe.zrange(f"{prefix}kinds", 0, -1)
        for job_id in self.known:
            pipe.hmget(f"{prefix}job:{job_id}", "status", "attempts", "lockedBy")
        for key in ("k", "l"):
            pipe.get(f"{prefix}idempotency:{key}")
        due, claimed, done, dead, canceled, kinds, *rest = pipe.execute()
        finished = (done, dead, canceled)
        assert dict(due) == self.where("pending", "run_at")
        assert dict(claimed) == self.where("claimed", "lease_end")
        for status, there in zip(("done", "dead", "canceled"), finished, strict=True):
            assert {job_id for job_id, _ in there} == set(self.where(status, "run_at"))
        assert set(kinds) == {f"{known.kind}\0{each}" for each, known in self.known.items()}
        for known, (status, attempts, worker) in zip(self.known.values(), rest[:-2], strict=True):
            assert (status, int(attempts)) == (known.status, known.attempts)
            assert (worker is not None) == (status == "claimed")
        assert rest[-2:] == [self.holders.get("k"), self.holders.get("l")]

    def where(self, status: str, score: str) -> dict[str, float]:
        """Return the ids of a status, with their scores."""
        return {
            job_id: getattr(known, score)
            for job_id, known in self.known.items()
            if known.status == status
        }


def test_each_job_is_in_exactly_the_index_its_status_says(redis_url: str) -> None:
    """Whatever is called in whatever order, and whichever connection dies between two calls."""
    machine = type("Machine", (JobStoreMachine,), {"url": redis_url})
    run_state_machine_as_test(
        machine,
        settings=hypothesis.settings(max_examples=50, stateful_step_count=40, deadline=None),
    )


@pytest.fixture
def others(redis_url: str, prefix: str) -> Iterator[RedisJobStore]:
    """Another process' store, as far as Redis can tell."""
    with RedisJobStore(redis_url, key_prefix=prefix) as made:
        yield made


def cancel(store: RedisJobStore, job: ClaimedJob) -> bool:
    """Cancel the job."""
    return store.cancel(job.id)


def reap(store: RedisJobStore, job: ClaimedJob) -> bool:
    """Reap it: it is its last attempt."""
    return store.reap_stuck() == 1


def complete(store: RedisJobStore, job: ClaimedJob) -> bool:
    """Complete it."""
    return store.complete(job)


def extend(store: RedisJobStore, job: ClaimedJob) -> bool:
    """Extend its lease."""
    return store.extend(job, 60)


def claim_again(store: RedisJobStore, job: ClaimedJob) -> bool:
    """Claim it, after it was given back."""
    return bool(store.claim_due(1, "w", 60, kinds=[job.kind]))


@pytest.mark.parametrize(
    ("one", "other"),
    [(cancel, complete), (cancel, reap), (extend, reap), (claim_again, claim_again)],
    ids=["cancel-complete", "cancel-reap", "extend-reap", "claim-claim"],
)
def test_exactly_one_of_two_racing_calls_wins(
    jobs: RedisJobStore,
    others: RedisJobStore,
    one: Callable[[RedisJobStore, ClaimedJob], bool],
    other: Callable[[RedisJobStore, ClaimedJob], bool],
) -> None:
    """However the race goes."""
    lease = 60 if one is claim_again or other is complete else 0.001
    for number in range(50):
        jobs.enqueue(f"a{number}", 1, max_attempts=1, run_at=1)
        (job,) = jobs.claim_due(1, "w", lease, kinds=[f"a{number}"], now=2)
        if one is claim_again:
            jobs.release(job)
        assert sorted(raced(partial(one, jobs, job), partial(other, others, job))) == [False, True]


def raced(one: Callable[[], bool], other: Callable[[], bool]) -> list[bool]:
    """Return what two calls answer that start at the same moment."""
    start = threading.Barrier(2)
    answers: list[bool] = []

    def call(work: Callable[[], bool]) -> None:
        start.wait()
        answers.append(work())

    rival = threading.Thread(target=call, args=(other,))
    rival.start()
    call(one)
    rival.join()
    return answers

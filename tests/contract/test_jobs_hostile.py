"""Whatever another program wrote into a job store: no exception but ours, and no job is lost."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from babelqueue_redis import BabelQueueError, ClaimedJob, ConfigurationError, Job, RedisJobStore
from tests.contract.test_jobs import STATUSES, pages
from tests.support.server import Client

FIELDS = (
    *("attempts", "createdAt", "id", "idempotencyKey", "kind", "lastError", "lockedAt", "lockedBy"),
    *("maxAttempts", "payload", "runAt", "status", "updatedAt", "claimToken", "headers"),
)
PLACES = ("due", "claimed", *(f"finished:{status}" for status in STATUSES[2:]), "kinds")
NAMES = st.binary(max_size=6) | st.sampled_from(
    [b"\xff", b"\xc3", b"a:1", b"a\0b", b"\xed\xa0\x80", b""]
)
VALUES = NAMES | st.sampled_from(
    [
        *(b"nan", b"-inf", b"1e999", b"-1", b"0x10", b" 7 ", b"9" * 400, b"\xd9\xa3"),
        *(status.encode() for status in STATUSES),
        *(b'{"a": "\\ud800"}', b'{"a": 1}', b"[" * 3000, b'{"traceparent": "x"}'),
    ]
)
SCORES = st.floats(allow_nan=False) | st.just(0.0)
EXAMPLES = hypothesis.settings(max_examples=60, suppress_health_check=list(hypothesis.HealthCheck))


@pytest.fixture(params=["sync", "aio"])
def kind(request: pytest.FixtureRequest) -> str:
    """Both shells."""
    return str(request.param)


class Other:
    """Another program, which writes bytes where we write text."""

    def __init__(self, client: Client, prefix: str) -> None:
        self.client = client
        self.prefix = prefix.encode()

    def clear(self) -> None:
        """Begin anew."""
        left = list(self.client.scan_iter(match=self.prefix + b"*", count=10_000))
        if left:
            self.client.delete(*left)

    def enqueue(self, job_id: bytes, kind: bytes, key: bytes = b"") -> None:
        """Store a job as JavaScript does."""
        fields = {"id": job_id, "kind": kind, "payload": 1, "status": "pending", "runAt": 1}
        if key:
            fields["idempotencyKey"] = key
            self.client.set(self.prefix + b"idempotency:" + key, job_id)
        self.client.hset(self.prefix + b"job:" + job_id, mapping=fields)
        self.client.zadd(self.prefix + b"due", {job_id: 1})

    def idempotency_keys(self) -> list[bytes]:
        """Return those that are held."""
        return list(self.client.scan_iter(match=self.prefix + b"idempotency:*", count=10_000))


@pytest.fixture
def other(client: Client, prefix: str) -> Other:
    """Another program at the test's store."""
    return Other(client, prefix)


def raw(text: str) -> bytes:
    """Return a name as it stands in Redis."""
    return text.encode("utf-8", "surrogateescape")


@EXAMPLES
@hypothesis.given(st.dictionaries(NAMES, st.tuples(NAMES, NAMES), max_size=6), st.integers(0, 3))
def test_jobs_of_any_id_kind_and_key_are_worked_off(
    jobs: RedisJobStore, other: Other, written: dict[bytes, tuple[bytes, bytes]], end: int
) -> None:
    """Found by each list, got by their id, indexed, claimed, ended; their keys are free again."""
    other.clear()
    for number, (job_id, (kind, key)) in enumerate(written.items()):
        other.enqueue(job_id, kind, key and b"%b %d" % (key, number))
    assert jobs.reindex() == len(written)
    listed = {raw(job_id) for job_id in pages(jobs, "pending")}
    assert listed == written.keys()
    for job_id, (kind, _) in written.items():
        if b"\0" not in kind:  # such a kind cannot be told from an id that begins with a NUL
            assert raw_ids(jobs.list_by_kind(kind.decode("utf-8", "surrogateescape"))) >= {job_id}
    claimed = jobs.claim_due(50, "w", 60)
    assert raw_ids(claimed) == written.keys()
    for job in claimed:
        got = jobs.get(job.id)
        assert got is not None
        assert (got.id, got.kind, got.status) == (job.id, job.kind, "claimed")
        assert jobs.extend(job, 60)
    ways: list[Callable[[ClaimedJob], bool]] = [
        jobs.complete,
        lambda job: jobs.fail(job, "why", dead=True),
        lambda job: jobs.cancel(job.id),
        lambda job: jobs.release(job) and jobs.cancel(job.id),
    ]
    assert all(ways[end](job) for job in claimed)
    assert other.idempotency_keys() == []
    assert all(jobs.retry(job.id) for job in claimed)
    assert raw_ids(jobs.claim_due(50, "w", 60)) == written.keys()


def raw_ids(found: Any) -> set[bytes]:
    """Return the ids of jobs as they stand in Redis."""
    return {raw(job.id) for job in found}


HASHES = st.dictionaries(NAMES, st.dictionaries(st.sampled_from(FIELDS), VALUES), max_size=4)
INDEXES = st.lists(st.tuples(st.sampled_from(PLACES), VALUES, SCORES), max_size=8)


@EXAMPLES
@hypothesis.given(HASHES, INDEXES, st.dictionaries(NAMES, VALUES, max_size=2))
def test_whatever_stands_in_the_keys_the_good_jobs_are_served(
    jobs: RedisJobStore,
    other: Other,
    hashes: dict[bytes, dict[str, bytes]],
    indexes: list[tuple[str, bytes, float]],
    holders: dict[bytes, bytes],
) -> None:
    """Every call ends well or with an error of ours, and good jobs are listed, got, and done."""
    other.clear()
    for job_id, fields in hashes.items():
        if fields:
            other.client.hset(other.prefix + b"job:" + job_id, mapping=fields)
    for place, member, score in indexes:
        other.client.zadd(other.prefix + place.encode(), {member: score})
    for key, holder in holders.items():
        other.client.set(other.prefix + b"idempotency:" + key, holder)
    good = jobs.enqueue_many([("good", n, f"good {n}") for n in range(3)])
    looks: list[Callable[[], object]] = [
        *(partial(jobs.list, status) for status in (*STATUSES, None)),
        *(partial(jobs.list, "pending", "good"), partial(jobs.list_by_kind, "\udcff")),
        *(jobs.count_by_status, jobs.reindex, partial(jobs.enqueue, "a", 1, idempotency_key="a:1")),
    ]
    for look in looks:
        look()
    assert [job.id for job in jobs.list_by_kind("good")] == good
    for job_id in {raw(each) for status in STATUSES for each in pages(jobs, status)}:
        text = job_id.decode("utf-8", "surrogateescape")
        assert jobs.get(text) is not None
        assert repr(jobs.get(text)).encode()
    done: set[str] = set()
    claimed = jobs.claim_due(100, "w", 60)
    for job in claimed:
        assert isinstance(job, ClaimedJob)
        with contextlib.suppress(BabelQueueError):
            assert job.payload is not ...
        if jobs.complete(job):
            done.add(job.id)
    assert done == {job.id for job in claimed} >= set(good)
    jobs.reap_stuck()
    jobs.reap_stuck(now=10**14)
    assert {"done"} == {job.status for each in good for job in [jobs.get(each)] if job}


def test_a_job_of_any_bytes_can_be_shown(jobs: RedisJobStore, other: Other) -> None:
    """Its ``repr`` is text that every log can write, whatever its status is."""
    fields = dict.fromkeys(FIELDS, b"\xa8")
    other.client.hset(other.prefix + b"job:\xff", mapping=fields)
    job = jobs.get("\udcff")
    assert repr(job).encode() == b"Job(\\udcff, '\\udca8', \xef\xbf\xbd, attempts 0)"


@pytest.mark.parametrize("bad", ["\ud800", 1, b"a"], ids=ascii)
def test_what_cannot_stand_in_redis_is_no_kind_and_no_cursor(jobs: RedisJobStore, bad: Any) -> None:
    """An error of ours says so, at the call."""
    calls: list[Callable[[], object]] = [
        lambda: jobs.list(kind=bad),
        lambda: jobs.list("done", kind=bad),
        lambda: jobs.list(cursor=bad),
        lambda: jobs.list("done", cursor=bad),
        lambda: jobs.list_by_kind(bad),
    ]
    for call in calls:
        with pytest.raises(ConfigurationError, match="must be text"):
            call()


def test_a_cursor_that_is_none_of_ours_is_refused(jobs: RedisJobStore) -> None:
    """By Redis, which an error of ours tells."""
    with pytest.raises(BabelQueueError, match="not a float"):
        jobs.list("done", cursor="somewhere")


def test_a_page_ends_where_an_id_is_no_utf_8(jobs: RedisJobStore, other: Other) -> None:
    """And the next one begins there, by status and by kind."""
    ids = {b"\xff%03d" % n for n in range(250)}
    for job_id in ids:
        other.enqueue(job_id, b"\xfe")
    jobs.reindex()
    for status, kind in (("pending", None), (None, None), (None, "\udcfe"), ("pending", "\udcfe")):
        listed = [raw(job_id) for job_id in pages(jobs, status, kind)]
        assert len(listed) == 250
        assert set(listed) == ids


def test_a_job_without_its_id_is_listed_under_its_key(jobs: RedisJobStore, other: Other) -> None:
    """And one that names another's id does not pass for that one."""
    victim = jobs.enqueue("a", 1)
    other.client.hset(other.prefix + b"job:x", mapping={"kind": "a", "payload": 1, "id": victim})
    other.client.hset(other.prefix + b"job:y", mapping={"kind": "a", "payload": 1})
    for job_id in ("x", "y"):
        other.client.hset(other.prefix + b"job:" + job_id.encode(), "status", "dead")
        job = jobs.get(job_id)
        assert isinstance(job, Job)
        assert job.id == job_id
    assert jobs.reindex() == 2
    assert sorted(pages(jobs, "dead")) == ["x", "y"]
    assert sorted(pages(jobs, None, "a")) == sorted(["x", "y", victim])


def test_a_job_whose_kind_another_program_changed_is_listed_under_the_new_one(
    jobs: RedisJobStore, other: Other
) -> None:
    """Once, after a reindex."""
    job_id = jobs.enqueue("old", 1)
    other.client.hset(other.prefix + b"job:" + job_id.encode(), "kind", "new")
    assert jobs.list_by_kind("old") == []
    assert jobs.reindex() == 1
    assert pages(jobs) == pages(jobs, None, "new") == [job_id]
    assert jobs.reindex() == 0

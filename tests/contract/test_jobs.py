from __future__ import annotations

import asyncio
import datetime as dt
import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest
import redis
import redis.asyncio

from babelqueue_redis import (
    AsyncRedisJobStore,
    ClaimedJob,
    CommandRefusedError,
    ConfigurationError,
    ConnectionLostError,
    HeaderError,
    Job,
    JobRegistry,
    PayloadError,
    PublishError,
    RedisJobStore,
)
from babelqueue_redis.jobs.commands import CHUNK, REAPED
from kit.redis_server import free_port
from tests.support.proxy import proxy_to
from tests.support.server import Client
from tests.support.shells import Shell
from tests.support.waiting import eventually

STATUSES = ("pending", "claimed", "done", "dead", "canceled")
JAVASCRIPT_FIELDS = {
    *(b"attempts", b"createdAt", b"id", b"idempotencyKey", b"kind", b"lastError", b"lockedAt"),
    *(b"lockedBy", b"maxAttempts", b"payload", b"runAt", b"status", b"updatedAt"),
}


@pytest.fixture(params=["sync", "aio"])
def kind(request: pytest.FixtureRequest) -> str:
    """Both shells."""
    return str(request.param)


def counts(jobs: RedisJobStore) -> dict[str, int]:
    """Count what there is; what is nowhere is left out."""
    counted = jobs.count_by_status()
    assert tuple(counted) == STATUSES
    return {status: count for status, count in counted.items() if count}


def claim(jobs: RedisJobStore, lease: float = 60, **more: Any) -> ClaimedJob:
    """Claim one job."""
    (job,) = jobs.claim_due(1, "worker", lease, **more)
    return job


def test_a_job_is_stored_as_javascript_stores_it(
    jobs: RedisJobStore, client: Client, prefix: str
) -> None:
    """Its fields, decimal epoch milliseconds, JSON; and two fields of ours."""
    job_id = jobs.enqueue(
        "email.send",
        {"to": "a@b"},
        run_at=2000,
        max_attempts=3,
        idempotency_key="k",
        headers={"traceparent": "t"},
        now=1000,
    )
    assert client.hgetall(f"{prefix}job:{job_id}") == {
        b"id": job_id.encode(),
        b"kind": b"email.send",
        b"payload": b'{"to":"a@b"}',
        b"status": b"pending",
        b"attempts": b"0",
        b"maxAttempts": b"3",
        b"runAt": b"2000",
        b"createdAt": b"1000",
        b"updatedAt": b"1000",
        b"idempotencyKey": b"k",
        b"headers": b'{"traceparent":"t"}',
    }
    assert client.zrange(f"{prefix}due", 0, -1, withscores=True) == [(job_id.encode(), 2000)]
    assert client.get(f"{prefix}idempotency:k") == job_id.encode()
    assert jobs.claim_due(1, "w", 60, now=1999) == []
    job = claim(jobs, 1.5, now=2000)
    stored = client.hgetall(f"{prefix}job:{job_id}")
    assert stored.keys() <= JAVASCRIPT_FIELDS | {b"headers", b"claimToken"}
    assert (stored[b"status"], stored[b"lockedAt"], stored[b"lockedBy"]) == (
        b"claimed",
        b"2000",
        b"worker",
    )
    assert client.zrange(f"{prefix}claimed", 0, -1, withscores=True) == [(job_id.encode(), 3500)]
    assert client.zcard(f"{prefix}due") == 0
    assert (job.payload, job.headers, job.attempts) == ({"to": "a@b"}, {"traceparent": "t"}, 0)


def test_what_an_enqueue_is_given_is_stored_to_the_last_byte_and_digit(
    jobs: RedisJobStore, client: Client, prefix: str
) -> None:
    """Text of any characters, and the largest numbers there are; and a claim gives them back."""
    text = '"\\/\x01\x7f\u2028\u00e9\U0001f600\r\n'
    most, due = 2**53, 10**15 - 1
    job_id = jobs.enqueue(
        text, text, run_at=due, max_attempts=most, idempotency_key=text, headers={text: text}
    )
    stored = client.hgetall(f"{prefix}job:{job_id}")
    assert (stored[b"kind"], stored[b"idempotencyKey"]) == (text.encode(), text.encode())
    assert json.loads(stored[b"payload"]) == text
    assert json.loads(stored[b"headers"]) == {text: text}
    assert (stored[b"maxAttempts"], stored[b"runAt"]) == (b"%d" % most, b"%d" % due)
    assert jobs.enqueue("another", 1, idempotency_key=text) == job_id
    assert jobs.enqueue_many([("a", 1, "k"), ("a", 2, text), ("a", 3, "k")])[1] == job_id
    job = claim(jobs, kinds=[text], now=due)
    assert (job.kind, job.payload, job.headers) == (text, text, {text: text})
    assert (job.idempotency_key, job.max_attempts, job.run_at) == (text, most, due)
    shown = jobs.get(job_id)
    assert shown is not None
    assert job == ClaimedJob(**msgspec.structs.asdict(shown))


def test_the_lease_that_is_given_is_the_lease_that_is_stored(jobs: RedisJobStore) -> None:
    """A reaper leaves a running job alone until its lease ends, whoever extended it."""
    jobs.enqueue("a", 1, now=0)
    job = claim(jobs, 10, now=1000)
    assert jobs.reap_stuck(now=10_999) == 0
    assert jobs.extend(job, 10, now=10_999)
    assert jobs.reap_stuck(now=20_998) == 0
    assert jobs.reap_stuck(now=20_999) == 1
    assert not jobs.extend(job, 10, now=20_999)


def test_a_reaped_job_is_due_at_once_and_counts_an_attempt(jobs: RedisJobStore) -> None:
    """And it is dead when that was the last one."""
    job_id = jobs.enqueue("a", 1, max_attempts=2, now=0)
    claim(jobs, 1, now=0)
    assert jobs.reap_stuck(now=1000) == 1
    job = claim(jobs, 1, now=1000)
    assert (job.attempts, job.last_error) == (1, "the lease of worker ran out")
    assert jobs.reap_stuck(now=2000) == 1
    dead = jobs.get(job_id)
    assert dead is not None
    assert (dead.status, dead.attempts, dead.locked_by) == ("dead", 2, "")
    assert counts(jobs) == {"dead": 1}
    assert jobs.claim_due(1, "w", 1, now=9000) == []


def test_a_failed_job_is_retried_when_it_was_told_to_and_dead_after_the_last(
    jobs: RedisJobStore,
) -> None:
    """With the error kept; a delay counts from now; ``dead`` tries no more."""
    moment = dt.datetime(2030, 1, 1, tzinfo=dt.timezone.utc)
    job_id = jobs.enqueue("a", 1, max_attempts=4, now=0)
    assert jobs.fail(claim(jobs, now=0), "boom", now=5)
    assert claim(jobs, now=5).last_error == "boom"
    job = claimed_again(jobs, job_id)
    assert jobs.fail(job, ValueError("x"), delay=1.5, now=10)
    waiting = jobs.get(job_id)
    assert waiting is not None
    assert (waiting.run_at, waiting.last_error, waiting.attempts) == (1510, "ValueError: x", 2)
    assert jobs.fail(claim(jobs, now=1510), "late", retry_at=moment)
    late = jobs.get(job_id)
    assert late is not None
    assert late.run_at == 1_893_456_000_000
    assert jobs.fail(claim(jobs, now=late.run_at), "last", retry_at=moment)
    assert counts(jobs) == {"dead": 1}
    assert jobs.retry(job_id)
    assert jobs.fail(claim(jobs), "hopeless", dead=True)
    assert counts(jobs) == {"dead": 1}


def test_an_error_of_any_text_is_kept(jobs: RedisJobStore) -> None:
    """A file name that is no UTF-8, or a page of it; not more than 4 000 characters."""
    job_id = jobs.enqueue("a", 1)
    assert jobs.fail(claim(jobs), OSError("\udcff" + "x" * 9000))
    job = jobs.get(job_id)
    assert job is not None
    assert job.last_error.startswith("OSError: \\udcffxxx")
    assert len(job.last_error) < 4010


def claimed_again(jobs: RedisJobStore, job_id: str) -> ClaimedJob:
    """Give the claim of a job back, and claim it once more."""
    held = jobs.get(job_id)
    assert held is not None
    fields = {name: getattr(held, name) for name in held.__struct_fields__}
    assert jobs.release(ClaimedJob(**fields), now=6)
    return claim(jobs, now=6)


def test_a_released_job_is_due_at_once_and_counts_no_attempt(jobs: RedisJobStore) -> None:
    """As it was, for the next worker."""
    jobs.enqueue("a", 1, now=0)
    job = claim(jobs, now=0)
    assert jobs.release(job, now=5)
    assert not jobs.release(job, now=5)
    assert claim(jobs, now=5).attempts == 0


def test_a_stale_claim_changes_nothing(jobs: RedisJobStore, client: Client, prefix: str) -> None:
    """Not even for the same worker at the same millisecond: the token tells them apart."""
    job_id = jobs.enqueue("a", 1, now=0)
    stale = claim(jobs, 1, now=500)
    assert jobs.release(stale, now=500)
    fresh = claim(jobs, 1, now=500)
    assert (stale.locked_by, stale.locked_at) == (fresh.locked_by, fresh.locked_at)
    before = client.hgetall(f"{prefix}job:{job_id}")
    assert not jobs.complete(stale)
    assert not jobs.fail(stale, "no")
    assert not jobs.fail(stale, "no", dead=True)
    assert not jobs.extend(stale, 99)
    assert not jobs.release(stale)
    assert client.hgetall(f"{prefix}job:{job_id}") == before
    assert client.zscore(f"{prefix}claimed", job_id) == 1500
    assert jobs.complete_many([stale, fresh]) == [False, True]
    assert counts(jobs) == {"done": 1}
    assert jobs.complete_many([]) == []


def test_an_idempotency_key_gives_the_job_that_holds_it(jobs: RedisJobStore) -> None:
    """While it is pending or claimed; the first payload stays."""
    first = jobs.enqueue("a", 1, idempotency_key="k")
    assert jobs.enqueue("a", 2, idempotency_key="k") == first
    job = claim(jobs)
    assert jobs.enqueue_many([("a", 3, "k"), ("b", 4), ("a", 5, "k")])[::2] == [first, first]
    assert job.payload == 1
    assert jobs.complete(job)
    assert jobs.enqueue("a", 6, idempotency_key="k") != first


def ended_by_complete(jobs: RedisJobStore, job_id: str) -> bool:
    """Let it be done."""
    return jobs.complete(claim(jobs))


def ended_by_fail(jobs: RedisJobStore, job_id: str) -> bool:
    """Let it be dead."""
    return jobs.fail(claim(jobs), "x", dead=True)


def ended_by_reap(jobs: RedisJobStore, job_id: str) -> bool:
    """Let its only attempt time out."""
    claim(jobs, 1, now=10**14)
    return jobs.reap_stuck(now=10**14 + 1000) == 1


def ended_by_cancel(jobs: RedisJobStore, job_id: str) -> bool:
    """Cancel it."""
    return jobs.cancel(job_id)


ENDINGS = [ended_by_complete, ended_by_fail, ended_by_reap, ended_by_cancel]


@pytest.mark.parametrize("end", ENDINGS)
def test_a_finished_job_frees_its_key_and_a_newer_holder_forbids_its_retry(
    jobs: RedisJobStore, client: Client, prefix: str, end: Callable[[RedisJobStore, str], bool]
) -> None:
    """Once the newer one is finished as well, the old one may be retried and holds the key."""
    old = jobs.enqueue("a", "old", idempotency_key="k", max_attempts=1)
    assert end(jobs, old)
    assert client.get(f"{prefix}idempotency:k") is None
    newer = jobs.enqueue("a", "newer", idempotency_key="k")
    assert newer != old
    assert not jobs.retry(old)
    assert jobs.cancel(newer)
    assert jobs.retry(old)
    assert jobs.enqueue("a", "third", idempotency_key="k") == old
    assert not jobs.retry(newer)
    job = claim(jobs)
    assert (job.payload, job.attempts) == ("old", 0)


def test_a_key_of_a_job_that_vanished_or_was_finished_elsewhere_is_taken_over(
    jobs: RedisJobStore, client: Client, prefix: str
) -> None:
    """A key must not be lost to a worker that did not free it."""
    client.set(f"{prefix}idempotency:k", "nobody")
    first = jobs.enqueue("a", 1, idempotency_key="k")
    assert first != "nobody"
    client.hset(f"{prefix}job:{first}", "status", "done")
    assert jobs.enqueue("a", 2, idempotency_key="k") != first


def test_50_processes_enqueue_one_job_under_one_key_200_times(
    redis_url: str, prefix: str, client: Client
) -> None:
    """One id and one payload for each key, whoever comes first."""
    fork = (
        "import os, sys\n"
        "from babelqueue_redis import RedisJobStore\n"
        "url, prefix = sys.argv[1:]\n"
        "for n in range(50):\n"
        "    if os.fork() == 0:\n"
        "        store = RedisJobStore(url, key_prefix=prefix)\n"
        "        ids = [store.enqueue('a', n, idempotency_key=f'k{k}') for k in range(200)]\n"
        "        os.write(1, (' '.join(ids) + '\\n').encode())\n"
        "        os._exit(0)\n"
        "for _ in range(50):\n"
        "    os.wait()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", fork, redis_url, prefix],
        check=True,
        capture_output=True,
        text=True,
        timeout=100,
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 50
    assert len(set(lines)) == 1
    ids = lines[0].split()
    assert len(set(ids)) == 200
    assert client.zcard(f"{prefix}due") == 200
    payloads = {client.hget(f"{prefix}job:{job_id}", "payload") for job_id in ids}
    assert payloads <= {str(n).encode() for n in range(50)}


@pytest.mark.parametrize("left", [{}, {"status": "claimed", "lockedBy": "w"}, {"kind": "a"}])
def test_a_job_whose_hash_vanished_is_cleaned(
    jobs: RedisJobStore, client: Client, prefix: str, left: dict[str, str]
) -> None:
    """It is never handed out half-empty, and nothing makes a ghost of it."""
    waiting, held = jobs.enqueue_many([("a", 1), ("b", 2)])
    (job,) = jobs.claim_due(1, "w", 0.001, ["b"])
    for job_id in (waiting, held):
        client.delete(f"{prefix}job:{job_id}")
        if left:
            client.hset(f"{prefix}job:{job_id}", mapping=left)
    assert jobs.get(waiting) is None
    assert jobs.claim_due(5, "w", 60) == []
    assert not jobs.complete(job)
    assert not jobs.extend(job, 60)
    assert not jobs.retry(held)
    assert eventually(lambda: jobs.reap_stuck() == 0 and not counts(jobs))
    assert list(client.scan_iter(match=f"{prefix}job:*")) == []
    assert not jobs.cancel(waiting)
    assert jobs.list().jobs == []
    assert list(client.scan_iter(match=f"{prefix}*")) == []


@pytest.mark.parametrize("status", STATUSES)
def test_a_key_of_another_type_in_a_jobs_place_stops_nobody(
    jobs: RedisJobStore, client: Client, prefix: str, status: str
) -> None:
    """It is no job: its id is forgotten, whoever meets it, and the jobs beside it are served."""
    index = f"{prefix}{'due' if status == 'pending' else status}"
    if status not in {"pending", "claimed"}:
        index = f"{prefix}finished:{status}"
    jobs.enqueue("a", 1, run_at=10, now=0)
    client.set(f"{prefix}job:zz", "x")
    meetings: list[Callable[[], object]] = [
        *(lambda: jobs.list(status), lambda: jobs.reindex(now=9)),
        *((lambda: jobs.claim_due(1, "w", 60, now=9),) if status == "pending" else ()),
        *((lambda: jobs.reap_stuck(now=9),) if status == "claimed" else ()),
    ]
    for meet in meetings:
        client.zadd(index, {"zz": 2})
        client.zadd(f"{prefix}kinds", {"a\0zz": 0})
        meet()
        assert client.zscore(index, "zz") is None
        assert len(jobs.list().jobs) == len(jobs.list_by_kind("a")) == 1
    assert client.get(f"{prefix}job:zz") == b"x"
    assert claim(jobs, now=10).payload == 1


def test_a_claim_whose_job_became_another_type_is_over(
    jobs: RedisJobStore, client: Client, prefix: str
) -> None:
    """Also when it is given back, and for whoever purges, cancels or retries it."""
    job_id = jobs.enqueue("a", 1)
    job = claim(jobs)
    client.set(f"{prefix}job:{job_id}", "x")
    assert not jobs.extend(job, 60)
    assert not jobs.complete(job)
    assert not jobs.fail(job, "why")
    assert not jobs.release(job)
    assert not jobs.cancel(job_id)
    assert not jobs.retry(job_id)


def test_a_job_is_found_behind_1000_foreign_ones(jobs: RedisJobStore) -> None:
    """By bounded calls, and the foreign ones stay where they are."""
    for _ in range(2):
        jobs.enqueue_many([("foreign", n) for n in range(1000)], now=1)
    mine = jobs.enqueue_many([("mine", n) for n in range(3)], now=2)
    found = jobs.claim_due(10, "w", 60, kinds=["mine", "other"])
    assert [job.id for job in found] == mine
    assert counts(jobs) == {"pending": 2000, "claimed": 3}
    assert jobs.claim_due(10, "w", 60, kinds=["mine"]) == []
    assert jobs.claim_due(10, "w", 60, kinds=(each for each in ["mine"])) == []
    assert jobs.claim_due(10, "w", 60, kinds=[]) == []
    with pytest.raises(ConfigurationError, match="list"):
        jobs.claim_due(10, "w", 60, kinds="mine")
    assert [job.payload for job in jobs.claim_due(4, "w", 60)] == [0, 1, 2, 3]


def test_no_script_call_looks_at_more_than_a_chunk(private_client: Client) -> None:
    """20 000 claimed jobs are reaped without a Lua stack error, in bounded calls."""
    server = private_client.connection_pool.connection_kwargs
    store = RedisJobStore(f"redis://127.0.0.1:{server['port']}")
    for _ in range(20):
        store.enqueue_many([("a", n) for n in range(1000)], now=1)
    claimed = store.claim_due(20_000, "w", 1, now=1)
    assert len({job.id for job in claimed}) == 20_000
    assert store.count_by_status()["claimed"] == 20_000

    def calls(work: Callable[[], object]) -> int:
        private_client.config_resetstat()
        work()
        return sum(
            private_client.info("commandstats").get(f"cmdstat_{name}", {}).get("calls", 0)
            for name in ("evalsha", "eval")
        )

    assert 20_000 / REAPED <= calls(lambda: store.reap_stuck(now=2000)) <= 20_000 / REAPED + 2
    assert store.count_by_status() == dict.fromkeys(STATUSES, 0) | {"pending": 20_000}
    assert 20_000 / CHUNK <= calls(lambda: store.claim_due(1, "w", 1, kinds=["b"])) <= 41 + 1


def test_counts_and_lists_are_exact_for_all_five_statuses(jobs: RedisJobStore) -> None:
    """By status, by kind, by both, page by page."""
    ids = jobs.enqueue_many([("a", n) for n in range(250)] + [("b", n) for n in range(50)], now=1)
    held = jobs.claim_due(40, "w", 60, kinds=["a"])
    assert jobs.complete_many(held[:10]) == [True] * 10
    for job in held[10:15]:
        assert jobs.fail(job, "x", dead=True)
    for job_id in ids[-5:]:
        assert jobs.cancel(job_id)
    expected = {"pending": 255, "claimed": 25, "done": 10, "dead": 5, "canceled": 5}
    assert jobs.count_by_status() == expected
    for status, count in expected.items():
        listed = pages(jobs, status)
        assert len(listed) == len(set(listed)) == count
    assert sorted(pages(jobs)) == sorted(ids)
    assert pages(jobs, None, "b") == ids[250:]
    assert pages(jobs, "pending", "b") == ids[250:295]
    assert pages(jobs, "canceled", "a") == []
    assert [job.id for job in jobs.list_by_kind("a")] == ids[:250]
    assert jobs.list_by_kind("c") == []
    with pytest.raises(ConfigurationError, match="canceled"):
        jobs.list("cancelled")


def pages(jobs: RedisJobStore, status: str | None = None, kind: str | None = None) -> list[str]:
    """Return the ids of a whole list."""
    ids: list[str] = []
    cursor: str | None = None
    while True:
        page = jobs.list(status, kind, cursor)
        ids += [job.id for job in page.jobs]
        assert all(job.status == (status or job.status) for job in page.jobs)
        assert all(job.kind == (kind or job.kind) for job in page.jobs)
        cursor = page.cursor
        if cursor is None:
            return ids


def test_no_page_leaves_a_job_out_because_others_moved_on(jobs: RedisJobStore) -> None:
    """Not even when the whole page before, its last job included, is gone."""
    ids = jobs.enqueue_many([("a", n) for n in range(300)], now=1)
    page = jobs.list("pending")
    for job in page.jobs:
        assert jobs.cancel(job.id)
    rest = []
    while page.cursor is not None:
        page = jobs.list("pending", cursor=page.cursor)
        rest += [job.id for job in page.jobs]
    assert sorted(set(rest)) == ids[100:]


def test_finished_jobs_expire_when_they_are_to(shell: Shell, redis_url: str, prefix: str) -> None:
    """Done and canceled ones after ``keep_done``, dead ones after ``keep_dead``."""
    store = shell.make("job_store", redis_url, key_prefix=prefix, keep_done=10, keep_dead=20)
    done, dead, canceled, other = store.enqueue_many([("a", n) for n in range(4)], now=0)
    held = store.claim_due(2, "w", 60, now=0)
    assert store.complete(held[0], now=1000)
    assert store.fail(held[1], "x", dead=True, now=1000)
    assert store.cancel(canceled, now=1000)
    store.reap_stuck(now=10_999)
    assert counts(store) == {"pending": 1, "done": 1, "dead": 1, "canceled": 1}
    store.reap_stuck(now=11_000)
    assert counts(store) == {"pending": 1, "dead": 1}
    assert store.get(done) is store.get(canceled) is None
    store.reap_stuck(now=21_000)
    assert store.get(dead) is None
    assert pages(store) == [other]


def test_cancel_and_retry_answer_false_when_there_is_nothing_to_do(jobs: RedisJobStore) -> None:
    """Unknown ids, finished jobs, unfinished jobs."""
    job_id = jobs.enqueue("a", 1)
    assert not jobs.cancel("nobody")
    assert not jobs.retry("nobody")
    assert not jobs.retry(job_id)
    assert jobs.cancel(job_id)
    assert not jobs.cancel(job_id)
    assert jobs.retry(job_id)
    assert counts(jobs) == {"pending": 1}
    assert jobs.get("nobody") is None


def test_a_canceled_job_is_over_for_the_worker_that_runs_it(jobs: RedisJobStore) -> None:
    """Its heartbeat and its end are told so."""
    job_id = jobs.enqueue("a", 1)
    job = claim(jobs)
    assert jobs.cancel(job_id)
    assert not jobs.extend(job, 60)
    assert not jobs.complete(job)
    assert counts(jobs) == {"canceled": 1}


class Mail(msgspec.Struct):
    """A payload."""

    to: str


def test_a_registry_checks_payloads_at_enqueue(shell: Shell, redis_url: str, prefix: str) -> None:
    """Of the kinds it knows; a struct and a mapping both do."""
    registry = JobRegistry()
    registry.job("mail", payload=Mail)
    store = shell.make("job_store", redis_url, key_prefix=prefix, registry=registry)
    store.enqueue_many([("mail", Mail("a")), ("mail", {"to": "a"}), ("else", {"to": 1})])
    for bad in ({"to": 1}, {}, "a", None):
        with pytest.raises(PayloadError, match="mail"):
            store.enqueue("mail", bad)
    assert counts(store) == {"pending": 3}


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"kind": " "}, ConfigurationError),
        ({"kind": "a\0b"}, ConfigurationError),
        ({"payload": float("nan")}, PayloadError),
        ({"payload": ...}, PayloadError),
        ({"run_at": 1.5}, ConfigurationError),
        ({"run_at": dt.datetime(2030, 1, 1)}, ConfigurationError),  # noqa: DTZ001 - naive
        ({"run_at": True}, ConfigurationError),
        ({"run_at": -1}, ConfigurationError),
        ({"max_attempts": 0}, ConfigurationError),
        ({"max_attempts": 2**53 + 1}, ConfigurationError),
        ({"headers": {"a": 1}}, HeaderError),
        ({"idempotency_key": "\ud800"}, ConfigurationError),
    ],
    ids=str,
)
def test_bad_input_is_an_error_at_the_call_and_stores_nothing(
    jobs: RedisJobStore, arguments: dict[str, Any], error: type[Exception]
) -> None:
    """And the message says which argument it is."""
    with pytest.raises(error, match="|".join(arguments).replace("headers", "header")):
        jobs.enqueue(**{"kind": "a", "payload": 1, **arguments})
    assert counts(jobs) == {}


@pytest.mark.parametrize("bad", [None, 1, b"a", "a\0b", "\ud800"], ids=ascii)
def test_what_is_no_text_is_no_id_and_no_kind(jobs: RedisJobStore, bad: Any) -> None:
    """An error of ours says so, at the call."""
    calls: list[Callable[[Any], object]] = [lambda kind: jobs.claim_due(1, "w", 60, [kind])]
    if bad != "a\0b":  # another program's id may be that
        calls += [jobs.get, jobs.cancel, jobs.retry]
    for call in calls:
        with pytest.raises(ConfigurationError, match="must be text"):
            call(bad)


def test_a_batch_is_stored_whole_or_not_at_all(jobs: RedisJobStore) -> None:
    """A bad item, or too many of them, and none is there."""
    for bad in (("a",), "ab", ("a", object())):
        with pytest.raises((ConfigurationError, PayloadError)):
            jobs.enqueue_many([("a", 1), bad])  # type: ignore[list-item]
    with pytest.raises(ConfigurationError, match="1000"):
        jobs.enqueue_many([("a", 1)] * 1001)
    assert counts(jobs) == {}
    assert jobs.enqueue_many([]) == []


def test_a_key_of_another_type_stops_a_script_before_its_first_write(
    jobs: RedisJobStore, client: Client, prefix: str
) -> None:
    """Nothing is half done."""
    client.set(f"{prefix}due", "somebody's")
    with pytest.raises(PublishError, match="WRONGTYPE"):
        jobs.enqueue("a", 1, idempotency_key="k")
    assert set(client.scan_iter(match=f"{prefix}*")) == {f"{prefix}due".encode()}
    client.delete(f"{prefix}due")
    jobs.enqueue("a", 1)
    client.set(f"{prefix}claimed", "somebody's")
    with pytest.raises(CommandRefusedError, match="WRONGTYPE"):
        claim(jobs)
    client.delete(f"{prefix}claimed")
    job = claim(jobs)
    client.set(f"{prefix}finished:done", "somebody's")
    with pytest.raises(CommandRefusedError, match="WRONGTYPE"):
        jobs.complete(job)
    client.delete(f"{prefix}finished:done")
    assert jobs.complete(job)


INDEXES = ("due", "claimed", "kinds", *(f"finished:{status}" for status in STATUSES[2:]))


@pytest.mark.parametrize("index", INDEXES)
def test_a_refused_script_has_changed_nothing(
    jobs: RedisJobStore, client: Client, prefix: str, index: str
) -> None:
    """Whatever the call, and whichever index is of another type."""

    def keys() -> dict[bytes, bytes | None]:
        return {key: client.dump(key) for key in client.scan_iter(match=f"{prefix}*")}

    jobs.enqueue("a", 1, idempotency_key="waits", max_attempts=1)
    for status in STATUSES[1:]:
        job_id = jobs.enqueue("b", 1, idempotency_key=status, max_attempts=1)
        (job,) = jobs.claim_due(1, "w", 0.001, ["b"])
        ends = {
            "done": lambda job=job: jobs.complete(job),
            "dead": lambda job=job: jobs.fail(job, ""),
        }
        ends.get(status, lambda: None)()
        if status == "canceled":
            jobs.cancel(job_id)
    every = {status: jobs.list(status).jobs[0] for status in STATUSES}
    held = every["claimed"]
    assert isinstance(held, Job)
    client.delete(f"{prefix}{index}")
    client.set(f"{prefix}{index}", "somebody's")
    claimed = ClaimedJob(**{name: getattr(held, name) for name in Job.__struct_fields__})
    calls: list[Callable[[], object]] = [
        lambda: jobs.enqueue_many([("a", 1), ("a", 1, "k")]),
        lambda: jobs.claim_due(9, "w", 60),
        *(partial(jobs.cancel, every[status].id) for status in ("pending", "claimed")),
        *(partial(jobs.retry, every[status].id) for status in STATUSES[2:]),
        lambda: jobs.reap_stuck(now=10**14),
        jobs.reindex,
        lambda: jobs.extend(claimed, 60),
        lambda: jobs.fail(claimed, "why"),
        lambda: jobs.release(claimed),
        lambda: jobs.complete(claimed),
    ]
    refused = 0
    for call in calls:
        before = keys()
        try:
            call()
        except (PublishError, CommandRefusedError):
            refused += 1
            assert keys() == before
    assert refused >= 2


@pytest.mark.parametrize("end", ["complete", "fail", "dead"])
def test_a_job_that_a_reaper_without_tokens_moved_is_settled_whole(
    jobs: RedisJobStore, client: Client, prefix: str, end: str
) -> None:
    """It moves the id to ``due`` first, and then the hash: in between it may be settled."""
    job_id = jobs.enqueue("a", 1)
    job = claim(jobs)
    client.zrem(f"{prefix}claimed", job_id)
    client.zadd(f"{prefix}due", {job_id: 1})
    ended = jobs.complete(job) if end == "complete" else jobs.fail(job, "", dead=end == "dead")
    assert ended
    status = {"complete": "done", "fail": "pending", "dead": "dead"}[end]
    assert counts(jobs) == {status: 1}


def test_an_idempotency_key_of_another_type_holds_nothing(
    jobs: RedisJobStore, client: Client, prefix: str
) -> None:
    """An enqueue takes it over; the end of a job leaves it to whoever made it."""

    def spoil() -> None:
        for key in "ab":
            client.delete(f"{prefix}idempotency:{key}")
            client.rpush(f"{prefix}idempotency:{key}", "x")

    spoil()
    first, *_ = jobs.enqueue_many([("a", 1), ("a", 2, "a"), ("a", 3, "b")], max_attempts=1)
    assert counts(jobs) == {"pending": 3}
    spoil()
    assert jobs.cancel(first)
    one, other = jobs.claim_due(2, "w", 0.001)
    assert jobs.complete(one)
    assert eventually(jobs.reap_stuck) == 1
    assert jobs.retry(one.id)
    assert jobs.retry(other.id)
    spoil()
    assert jobs.cancel(one.id)
    assert counts(jobs) == {"pending": 1, "canceled": 2}
    assert client.lrange(f"{prefix}idempotency:a", 0, -1) == [b"x"]


@pytest.mark.parametrize(
    "number", ["NaN", "-nan", "1e400", "-inf", " 12", "0x1p4", "1e15", "", "x"]
)
def test_no_number_of_a_job_stops_a_reindex(
    jobs: RedisJobStore, client: Client, prefix: str, number: str
) -> None:
    """A moment that cannot be one is now; the job can be claimed, and listed where it ended."""
    fields = ("runAt", "updatedAt", "createdAt", "attempts", "maxAttempts")
    for status in ("pending", "dead"):
        strange = {**dict.fromkeys(fields, number), "kind": "a", "payload": "1", "status": status}
        client.hset(f"{prefix}job:{status}", mapping=strange)
    assert jobs.reindex(now=1000) == 2
    assert jobs.reindex(now=1000) == 0
    assert counts(jobs) == {"pending": 1, "dead": 1}
    assert claim(jobs, now=1000).payload == 1


def test_an_enqueue_whose_reply_was_lost_says_that_it_may_be_stored(
    shell: Shell, redis_url: str, prefix: str
) -> None:
    """Under the id that the error names; it is never sent twice in silence."""
    with proxy_to(redis_url) as proxy:
        store = shell.make("job_store", proxy.url, key_prefix=prefix)
        store.enqueue("a", 1)
        proxy.cut_before_the_reply_to(b"lost")
        with pytest.raises(PublishError, match="may be stored") as raised:
            store.enqueue("lost", 1)
        assert raised.value.may_be_stored
        found = store.get(raised.value.message_id)
        assert found is not None
        assert found.kind == "lost"
    offline = shell.make("job_store", f"redis://127.0.0.1:{free_port()}", key_prefix=prefix)
    with pytest.raises(PublishError, match="was not stored"):
        offline.enqueue_many([("a", 1), ("b", 2)])


def test_at_maxmemory_jobs_are_finished_but_not_enqueued(
    own_server: Callable[..., str], shell: Shell
) -> None:
    """The store drains."""
    url = own_server()
    store = shell.make("job_store", url)
    store.enqueue_many([("a", n) for n in range(5)])
    (lost,) = store.claim_due(1, "w", 0.001)
    with redis.Redis.from_url(url) as admin:
        admin.config_set("maxmemory-policy", "noeviction")
        admin.config_set("maxmemory", 1)
        with pytest.raises(PublishError, match="maxmemory"):
            store.enqueue("a", 1)
        assert eventually(store.reap_stuck) == 1
        held = store.claim_due(5, "w", 60)
        assert lost.id in {job.id for job in held}
        assert store.extend(held[0], 60)
        assert store.release(held[0])
        assert store.fail(held[1], "x")
        assert store.complete(held[2])
        assert store.cancel(held[3].id)
        assert store.retry(held[3].id)
        assert store.reindex() == 0


def test_a_job_keeps_its_payload_out_of_its_repr(jobs: RedisJobStore) -> None:
    """Logs are full of reprs."""
    jobs.enqueue("a", {"secret": 1}, headers={"secret": "1"})
    job = claim(jobs)
    assert "secret" not in repr(job)
    assert json.loads(job.raw) == {"secret": 1}


def test_a_cluster_needs_a_hash_tag_in_the_prefix() -> None:
    """Without one it is refused at construction, with the reason."""
    blocking: Any = object.__new__(redis.RedisCluster)
    asynchronous: Any = object.__new__(redis.asyncio.RedisCluster)
    for prefix in ("jobs:", "{}jobs:", "absolutejs:queue:"):
        with pytest.raises(ConfigurationError, match="hash tag"):
            RedisJobStore(blocking, key_prefix=prefix)
        with pytest.raises(ConfigurationError, match="hash tag"):
            AsyncRedisJobStore(asynchronous, key_prefix=prefix)


def test_a_cancelled_claim_gives_its_jobs_back(redis_url: str, prefix: str) -> None:
    """No job waits for its lease to end because a task was cancelled."""

    async def main() -> None:
        async with AsyncRedisJobStore(redis_url, key_prefix=prefix) as store:
            await store.enqueue_many([("a", n) for n in range(100)])
            for _ in range(50):
                task = asyncio.ensure_future(store.claim_due(100, "w", 60))
                await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            while store._driver._tasks:  # noqa: ASYNC110 - the driver has no event for it
                await asyncio.sleep(0.001)
            assert (await store.count_by_status())["pending"] == 100

    asyncio.run(main())


def test_a_claim_of_several_trips_keeps_what_it_has(
    shell: Shell, redis_url: str, prefix: str, jobs: RedisJobStore, client: Client
) -> None:
    """When a later trip fails; a first one that fails is an error."""
    jobs.enqueue_many([("a", n) for n in range(CHUNK + 1)])
    with proxy_to(redis_url) as proxy:
        store = shell.make("job_store", proxy.url, key_prefix=prefix)
        store.count_by_status()
        proxy.cut_before_the_reply_to(b"\r\n$1\r\n1\r\n$1\r\n0\r\n")
        assert len(store.claim_due(CHUNK + 1, "w", 60)) == CHUNK
        assert counts(jobs)["claimed"] == CHUNK + 1
        proxy.cut_before_the_reply_to(b"EVALSHA")
        with pytest.raises(ConnectionLostError):
            store.claim_due(1, "w", 60)
        store.close()


@pytest.mark.parametrize("number", ["3000000000", "1e300", "-7", "inf", "nan"])
def test_a_number_of_any_size_is_read_as_one_that_can_be_counted_with(
    jobs: RedisJobStore, client: Client, prefix: str, number: str
) -> None:
    """From 0 to 2**53; what is none is 0."""
    job_id = jobs.enqueue("a", 1)
    client.hset(f"{prefix}job:{job_id}", "attempts", number)
    job = claim(jobs)
    assert 0 <= job.attempts <= 2**53
    assert jobs.fail(job, "why", delay=1)

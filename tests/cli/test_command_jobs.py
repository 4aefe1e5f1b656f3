from __future__ import annotations

import pytest

from babelqueue_redis import RedisJobStore
from tests.cli.conftest import Cli


@pytest.fixture
def store(redis_url: str, prefix: str) -> RedisJobStore:
    """A store with two kinds of jobs."""
    made = RedisJobStore(redis_url, key_prefix=prefix)
    made.enqueue("mail", {"to": "ann\x1b"}, idempotency_key="k")
    made.enqueue("report", {})
    return made


def test_jobs_are_counted_and_listed(cli: Cli, store: RedisJobStore, prefix: str) -> None:
    """Without their payloads."""
    at = ("--key-prefix", prefix)
    counted = {"pending": 2, "claimed": 0, "done": 0, "dead": 0, "canceled": 0}
    assert cli("jobs", "counts", "--json", *at).document == counted
    assert "pending" in cli("jobs", "counts", *at).out
    listed = cli("jobs", "list", "--kind", "mail", "--json", *at).document
    assert listed["cursor"] is None
    (job,) = listed["jobs"]
    assert (job["kind"], job["status"], job["idempotency_key"]) == ("mail", "pending", "k")
    assert "payload" not in job
    table = cli("jobs", "list", "--status", "pending", *at).out
    assert "mail" in table
    assert "report" in table


def test_a_list_can_be_gone_on_with(cli: Cli, store: RedisJobStore, prefix: str) -> None:
    """From the cursor of the page before, until there is none."""
    store.enqueue_many([("many", {"n": n}) for n in range(500)])
    found: set[str] = set()
    words: list[str] = []
    while True:
        page = cli("jobs", "list", "-n", "1", "--json", "--key-prefix", prefix, *words).document
        found |= {job["id"] for job in page["jobs"]}
        if page["cursor"] is None:
            break
        words = ["--cursor", page["cursor"]]
    assert len(found) == 502


def test_a_job_is_shown_whole(cli: Cli, store: RedisJobStore, prefix: str) -> None:
    """Its payload, too, escaped for people."""
    (job,) = store.list_by_kind("mail")
    shown = cli("jobs", "show", job.id, "--json", "--key-prefix", prefix).document
    assert shown["payload"] == {"to": "ann\x1b"}
    text = cli("jobs", "show", job.id, "--key-prefix", prefix).out
    assert "\\u001b" in text
    assert "\x1b" not in text


def test_a_job_that_is_not_there_is_exit_code_1(
    cli: Cli, store: RedisJobStore, prefix: str
) -> None:
    """Shown, retried or canceled."""
    at = ("--key-prefix", prefix)
    assert cli("jobs", "show", "nope", *at).code == 1
    assert cli("jobs", "retry", "nope", *at).code == 1
    assert cli("jobs", "cancel", "nope", "--yes", *at).code == 1


def test_a_job_is_canceled_and_retried(cli: Cli, store: RedisJobStore, prefix: str) -> None:
    """The first wants a yes; each tells what it did to which."""
    at = ("--json", "--key-prefix", prefix)
    (job,) = store.list_by_kind("mail")
    assert cli("jobs", "cancel", job.id, *at).code == 2
    done = cli("jobs", "cancel", job.id, "nope", "--yes", *at)
    assert done.code == 1
    assert done.document == {"canceled": [job.id], "not": ["nope"]}
    assert cli("jobs", "retry", job.id, *at).document == {"retried": [job.id], "not": []}
    found = store.get(job.id)
    assert found is not None
    assert found.status == "pending"

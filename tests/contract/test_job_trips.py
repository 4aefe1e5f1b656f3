"""Each call of a job store is one script in one trip, and a batch is one trip as well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from babelqueue_redis import lua
from babelqueue_redis.core.command import Script
from babelqueue_redis.jobs.commands import FEW
from babelqueue_redis.jobs.values import STATUSES
from tests.support.server import Client
from tests.support.shells import Shell


@pytest.fixture(params=["sync", "aio"])
def kind(request: pytest.FixtureRequest) -> str:
    """Both shells."""
    return str(request.param)


class Trips:
    """Counts what a store sends: a number for each trip, how many commands went together."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self._seen: list[list[str]] = []
        for driver in (store._driver, store._producer):
            driver._exchange = self._counting(driver._exchange)

    def _counting(self, exchange: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def counted(packed: Any) -> Any:
            self._seen.append([command[0] for command in packed])
            return exchange(packed)  # of either shell: whoever asked awaits it

        return counted

    def of(self, call: Callable[[], Any]) -> list[list[str]]:
        """Return the verbs of a call's trips."""
        self._seen.clear()
        call()
        return list(self._seen)


def test_each_call_is_one_script_in_one_trip(
    shell: Shell, client: Client, redis_url: str, prefix: str
) -> None:
    """So that no kill leaves a half-done state; only a read of one job needs no script."""
    for script in vars(lua).values():
        if isinstance(script, Script):
            client.script_load(script.source)
    store = shell.make("job_store", redis_url, key_prefix=prefix)
    trips = Trips(store)
    store.enqueue_many([("a", n) for n in range(9)])
    jobs = store.claim_due(8, "w", 60)
    dead, canceled = jobs[2], jobs[4]
    script = [["EVALSHA"]]
    assert (
        trips.of(lambda: store.enqueue("a", 1, idempotency_key="k", headers={"a": "b"})) == script
    )
    assert trips.of(lambda: store.claim_due(1, "w", 60, ["a"])) == script
    assert trips.of(lambda: store.extend(jobs[0], 60)) == script
    assert trips.of(lambda: store.complete(jobs[1])) == script
    assert trips.of(lambda: store.fail(dead, "why", dead=True)) == script
    assert trips.of(lambda: store.release(jobs[3], jobs[5])) == script
    assert trips.of(lambda: store.cancel(canceled.id)) == script
    assert trips.of(lambda: store.retry(dead.id)) == script
    assert trips.of(store.reap_stuck) == script
    assert trips.of(store.count_by_status) == script
    assert trips.of(lambda: store.list("pending")) == script
    assert trips.of(lambda: store.list_by_kind("a")) == script
    assert trips.of(lambda: store.get(dead.id)) == [["HGETALL"]]


def test_a_batch_is_one_trip(shell: Shell, client: Client, redis_url: str, prefix: str) -> None:
    """However many jobs there are: one script to store them, and one each to complete them."""
    client.script_load(lua.JOBS_ENQUEUE.source)
    client.script_load(lua.JOBS_SETTLE.source)
    store = shell.make("job_store", redis_url, key_prefix=prefix)
    trips = Trips(store)
    batch = [("a", n) for n in range(1000)]
    assert trips.of(lambda: store.enqueue_many(batch)) == [["EVALSHA"]]
    jobs = store.claim_due(400, "w", 60)
    assert trips.of(lambda: store.complete_many(jobs)) == [["EVALSHA"] * 400]
    assert store.count_by_status()["done"] == 400


def test_a_claim_of_kinds_sees_past_a_few_others_at_once(
    shell: Shell, client: Client, redis_url: str, prefix: str
) -> None:
    """In its first trip; past any number of them in those that follow."""
    client.script_load(lua.JOBS_CLAIM.source)
    store = shell.make("job_store", redis_url, key_prefix=prefix)
    trips = Trips(store)
    store.enqueue_many([("foreign", n) for n in range(FEW)], now=1)
    store.enqueue_many([("mine", n) for n in range(2)], now=2)
    assert trips.of(lambda: store.claim_due(1, "w", 60, ["mine"])) == [["EVALSHA"]]
    store.enqueue("foreign", FEW, now=1)
    assert trips.of(lambda: store.claim_due(1, "w", 60, ["mine"])) == [["EVALSHA"]] * 2
    assert store.count_by_status() == dict.fromkeys(STATUSES, 0) | {
        "pending": FEW + 1,
        "claimed": 2,
    }

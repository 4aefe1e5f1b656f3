"""On a cluster a job store whose prefix has a hash tag works, while nodes come and go."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from babelqueue_redis import (
    AsyncJobWorker,
    AsyncRedisJobStore,
    ConfigurationError,
    JobRegistry,
    JobWorker,
    RedisJobStore,
    TransportError,
)
from tests.support.cluster import Cluster, Node, cluster_in
from tests.support.shells import Shell
from tests.support.waiting import eventually

ClientOf = Callable[[int], Any]


@pytest.fixture
def tagged(queue: str) -> str:
    """A prefix of the test's own, with a hash tag."""
    return f"{{{queue}}}:"


def test_a_prefix_without_a_tag_is_refused_with_the_reason(
    cluster: Cluster, client_of: ClientOf, shell: Shell
) -> None:
    """At construction; an empty tag is none."""
    client = client_of(cluster.nodes[0].port)
    for prefix in ("absolutejs:queue:", "{}jobs:", "jobs}:{"):
        with pytest.raises(ConfigurationError, match="hash tag"):
            shell.make("job_store", client, key_prefix=prefix)


@pytest.mark.parametrize("start", [0, 1, 2])
def test_every_call_of_a_store_works(
    cluster: Cluster, client_of: ClientOf, shell: Shell, tagged: str, start: int
) -> None:
    """Whichever node the client knows."""
    node = cluster.nodes[start]
    jobs = shell.make("job_store", client_of(node.port), key_prefix=tagged, keep_done=3600)
    first = jobs.enqueue("a", 1, idempotency_key="k")
    assert jobs.enqueue("a", 2, idempotency_key="k") == first
    assert jobs.enqueue_many([("a", 3, "k"), ("b", 4), ("b", 5)])[0] == first
    one, *two = jobs.claim_due(5, "w", 60)
    assert jobs.extend(one, 60)
    assert jobs.fail(one, "why")
    assert jobs.release(two[0])
    assert jobs.complete(two[1])
    again = jobs.claim_due(5, "w", 0.001, ["a", "b"], now=10**14)
    assert len(again) == 2
    assert jobs.complete_many([again[0], two[1]]) == [True, False]
    assert jobs.reap_stuck(now=10**14 + 1) == 1
    assert jobs.cancel(again[1].id)
    assert jobs.retry(again[1].id)
    assert jobs.get(again[1].id).status == "pending"
    statuses = ("pending", "claimed", "done", "dead", "canceled")
    # What was done is forgotten by now: reaping it purged.
    assert jobs.count_by_status() == dict.fromkeys(statuses, 0) | {"pending": 1}
    assert [len(jobs.list(status).jobs) for status in ("pending", "done", None)] == [1, 0, 1]
    assert len(jobs.list_by_kind(again[1].kind)) == 1


@pytest.mark.parametrize("start", [0, 1, 2])
def test_reindex_finds_the_jobs_whichever_node_is_asked_first(
    cluster: Cluster, client_of: ClientOf, shell: Shell, tagged: str, start: int
) -> None:
    """A scan has no key that would lead it to the right one."""
    owner = cluster.owner(tagged)
    for number in range(1200):
        fields = {"kind": "a", "payload": 1, "status": "dead", "updatedAt": 1}
        owner.client.hset(f"{tagged}job:{number}", mapping=fields)
    client = client_of(cluster.nodes[start].port)
    jobs = shell.make("job_store", client, key_prefix=tagged)
    assert jobs.reindex() == 1200
    assert jobs.count_by_status()["dead"] == 1200
    assert jobs.reindex() == 0


@contextlib.contextmanager
def working(
    kind: str, client_of: ClientOf, node: Node, prefix: str, registry: Any
) -> Iterator[Any]:
    """Run a worker that knows one node, for as long as the block lasts."""
    options: dict[str, Any] = {"lease": 1, "poll_interval": 0.05, "reap_interval": 0.2}
    options |= {"retry_backoff": 0, "concurrency": 2}
    made: list[Any] = []
    ready = threading.Event()

    def begin(worker: Any) -> Any:
        made.append(worker)
        ready.set()
        return worker.run()

    async def work_async() -> None:
        store = AsyncRedisJobStore(client_of(node.port), key_prefix=prefix)
        await begin(AsyncJobWorker(store, registry, **options))

    def work() -> None:
        if kind == "aio":
            asyncio.run(work_async())
        else:
            store = RedisJobStore(client_of(node.port), key_prefix=prefix)
            begin(JobWorker(store, registry, **options))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert ready.wait(60)
    try:
        yield made[0]
    finally:
        made[0].stop()
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.parametrize("start", [0, 1, 2])
def test_a_worker_works(
    cluster: Cluster, client_of: ClientOf, kind: str, tagged: str, start: int
) -> None:
    """It claims, extends the lease of a long handler, completes, fails, retries and reaps."""
    jobs = RedisJobStore(redis.RedisCluster("127.0.0.1", cluster.nodes[0].port), key_prefix=tagged)
    runs: Counter[str] = Counter()
    registry, may_end = JobRegistry(), threading.Event()

    @registry.job("long")
    def long(payload: object, job: Any) -> None:
        runs["long"] += 1
        may_end.wait(60)

    @registry.job("bad")
    def bad(payload: object) -> None:
        runs["bad"] += 1
        raise ValueError

    @registry.job("lost")
    def lost(payload: object) -> None:
        runs["lost"] += 1

    long_one, bad_one = jobs.enqueue("long", 1), jobs.enqueue("bad", 1, max_attempts=2)
    lost_one = jobs.enqueue("lost", 1)
    jobs.claim_due(1, "crashed", 0.01, ["lost"])

    def status(job_id: str) -> str:
        job = jobs.get(job_id)
        return job.status if job else ""

    with working(kind, client_of, cluster.nodes[start], tagged, registry):
        eventually(lambda: (status(bad_one), status(lost_one)) == ("dead", "done"))
        job = jobs.get(long_one)
        assert job is not None
        eventually(lambda: (jobs.get(long_one) or job).updated_at > job.locked_at + 2000)
        may_end.set()
        eventually(lambda: status(long_one) == "done")
    assert runs == {"long": 1, "bad": 2, "lost": 1}


@pytest.mark.long
def test_jobs_survive_the_failover_of_their_node(
    client_of: ClientOf, kind: str, tagged: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The worker knew only the node that dies; what is enqueued then is run as well."""
    registry = JobRegistry()
    seen: list[object] = []
    registry.job("a")(seen.append)
    with cluster_in(tmp_path, replicas=3) as cluster:
        owner = cluster.owner(tagged)
        jobs = RedisJobStore(redis.RedisCluster("127.0.0.1", owner.port), key_prefix=tagged)

        def enqueued(number: int) -> bool:
            try:
                return bool(jobs.enqueue("a", number, idempotency_key=str(number)))
            except TransportError:
                return False

        with working(kind, client_of, owner, tagged, registry):
            assert enqueued(1)
            eventually(lambda: seen == [1])
            owner.kill()
            eventually(lambda: enqueued(2))
            eventually(lambda: 2 in seen)
            eventually(lambda: jobs.count_by_status()["done"] >= 1)
    assert "is worked off again" in caplog.text

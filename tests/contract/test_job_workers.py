from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis

from babelqueue_redis import (
    AsyncJobWorker,
    AsyncRedisConsumer,
    AsyncRedisJobStore,
    BabelQueueError,
    ClaimedJob,
    ConfigurationError,
    ConnectionLostError,
    Job,
    JobRegistry,
    JobWorker,
    PayloadError,
    RedisJobStore,
)
from babelqueue_redis.jobs.options import JobWorkerOptions
from babelqueue_redis.jobs.running import Agenda
from kit.redis_server import any_binary, free_port, private_server
from tests.support.proxy import proxy_to
from tests.support.server import Client
from tests.support.waiting import eventually


class Mail(msgspec.Struct):
    """A payload."""

    to: str


class Workers:
    """Runs workers of one kind in threads of their own."""

    def __init__(self, kind: str, url: str, prefix: str) -> None:
        self.kind = kind
        self.url = url
        self.prefix = prefix
        self.made: list[tuple[Any, threading.Thread]] = []
        self.handled: list[int] = []

    def run(self, registry: JobRegistry, **options: Any) -> Any:
        """Start a worker that looks often, in a thread; return it."""
        options = {"poll_interval": 0.01, "reap_interval": 0.05, "retry_backoff": 0, **options}
        made: list[Any] = []
        ready = threading.Event()

        def work() -> None:
            if self.kind == "sync":
                store = RedisJobStore(self.url, key_prefix=self.prefix)
                made.append(JobWorker(store, registry, **options))
                ready.set()
                self.handled.append(made[0].run())
            else:
                asyncio.run(work_async())

        async def work_async() -> None:
            store = AsyncRedisJobStore(self.url, key_prefix=self.prefix)
            made.append(AsyncJobWorker(store, registry, **options))
            ready.set()
            self.handled.append(await made[0].run())

        thread = threading.Thread(target=work)
        thread.start()
        assert ready.wait(30)
        self.made.append((made[0], thread))
        return made[0]

    def end(self) -> None:
        """Stop all of them, and wait until they have."""
        for worker, thread in self.made:
            worker.stop()
            thread.join(60)
            assert not thread.is_alive()
        self.made = []


@pytest.fixture(params=["sync", "aio"])
def workers(request: pytest.FixtureRequest, redis_url: str, prefix: str) -> Iterator[Workers]:
    """Makes workers of both kinds."""
    made = Workers(str(request.param), redis_url, prefix)
    yield made
    made.end()


def status_of(jobs: RedisJobStore, job_id: str) -> str:
    """Return a job's status."""
    job = jobs.get(job_id)
    assert job is not None
    return job.status


def finished(jobs: RedisJobStore, job_id: str) -> Job:
    """Wait until a job is done or dead."""
    eventually(lambda: status_of(jobs, job_id) in {"done", "dead"})
    job = jobs.get(job_id)
    assert job is not None
    return job


def test_a_worker_runs_what_is_due_and_only_kinds_it_knows(
    workers: Workers, jobs: RedisJobStore
) -> None:
    """The handler is given the payload as its type, and the job."""
    registry, seen = JobRegistry(), []

    @registry.job("mail", payload=Mail)
    def send(payload: Mail, job: ClaimedJob) -> None:
        seen.append((payload, job.kind))

    foreign = jobs.enqueue("foreign", 1)
    job_id = jobs.enqueue("mail", {"to": "a"})
    workers.run(registry)
    assert finished(jobs, job_id).status == "done"
    workers.end()
    assert seen == [(Mail("a"), "mail")]
    assert status_of(jobs, foreign) == "pending"
    assert workers.handled == [1]


def test_a_failing_job_is_retried_with_its_error_kept_and_then_dead(
    workers: Workers, jobs: RedisJobStore
) -> None:
    """After as many runs as it has attempts; ``SystemExit`` and the like are failures too."""
    registry, errors = JobRegistry(), iter([ValueError("a"), SystemExit(1), KeyboardInterrupt("c")])

    @registry.job("a")
    def fail(payload: object) -> None:
        raise next(errors)

    job_id = jobs.enqueue("a", 1, max_attempts=3)
    workers.run(registry)
    job = finished(jobs, job_id)
    assert (job.status, job.attempts, job.last_error) == ("dead", 3, "KeyboardInterrupt: c")
    assert next(errors, None) is None


def test_a_failed_job_is_kept_back_longer_each_time(
    workers: Workers, jobs: RedisJobStore, client: Client, prefix: str
) -> None:
    """Exponentially, up to the bound, by the server's clock."""
    registry = JobRegistry()
    registry.job("a")(lambda payload: 1 / 0)
    job_id = jobs.enqueue("a", 1, max_attempts=9)
    backoff = {"retry_backoff": 100, "retry_backoff_multiplier": 3, "retry_backoff_max": 500}
    workers.run(registry, **backoff, retry_jitter="none")
    for attempts, seconds in ((1, 100), (2, 300), (3, 500)):
        eventually(partial(has_failed, jobs, job_id, attempts))
        job = read(jobs, job_id)
        assert job.run_at == job.updated_at + seconds * 1000
        client.zadd(f"{prefix}due", {job_id: 1}, xx=True)


@pytest.mark.parametrize("attempts", ["3000000000", "1e300", "-7"])
def test_attempts_of_any_size_stop_no_worker(
    workers: Workers, jobs: RedisJobStore, client: Client, prefix: str, attempts: str
) -> None:
    """Its back-off is computed all the same, and the next job runs."""
    registry = JobRegistry()
    registry.job("bad")(lambda payload: 1 / 0)
    registry.job("good")(lambda payload: None)
    bad = jobs.enqueue("bad", 1, max_attempts=2**53)
    client.hset(f"{prefix}job:{bad}", "attempts", attempts)
    good = jobs.enqueue("good", 1)
    workers.run(registry, retry_backoff=100, retry_backoff_multiplier=2)
    assert finished(jobs, good).status == "done"
    eventually(lambda: read(jobs, bad).last_error)


def has_failed(jobs: RedisJobStore, job_id: str, attempts: int) -> bool:
    """Tell whether a job has failed so many times."""
    return read(jobs, job_id).attempts == attempts


def read(jobs: RedisJobStore, job_id: str) -> Job:
    """Return a job that is there."""
    job = jobs.get(job_id)
    assert job is not None
    return job


def test_a_bad_payload_is_dead_at_once_with_the_reason(
    workers: Workers, jobs: RedisJobStore, client: Client, prefix: str
) -> None:
    """Whoever enqueued it; no handler runs, and there is no retry."""
    registry = JobRegistry()
    runs: list[Mail] = []
    registry.job("mail", payload=Mail)(runs.append)
    ids = [jobs.enqueue("mail", {"to": 1}), jobs.enqueue("mail", 1)]
    client.hset(f"{prefix}job:{ids[1]}", "payload", "no JSON")
    workers.run(registry)
    for job_id, why in zip(ids, ("Expected `str`", "not one JSON"), strict=True):
        job = finished(jobs, job_id)
        assert (job.status, job.attempts) == ("dead", 1)
        assert why in job.last_error
    assert runs == []


def test_as_many_handlers_run_at_once_as_are_asked_for(
    workers: Workers, jobs: RedisJobStore
) -> None:
    """And no more jobs are claimed than can run."""
    registry, meeting = JobRegistry(), threading.Barrier(3)
    registry.job("a")(lambda payload: meeting.wait(60))
    jobs.enqueue_many([("a", n) for n in range(9)])
    most = 0
    workers.run(registry, concurrency=3)

    def all_done() -> bool:
        nonlocal most
        counted = jobs.count_by_status()
        most = max(most, counted["claimed"])
        return counted["done"] == 9

    eventually(all_done)
    assert most <= 3


def test_handlers_that_enqueue_do_not_connect_for_each_job(
    private_client: Client,
) -> None:
    """A thread is kept for the next job, and its connection with it."""
    port = private_client.connection_pool.connection_kwargs["port"]
    registry = JobRegistry()
    store = RedisJobStore(f"redis://127.0.0.1:{port}")
    registry.job("a")(lambda payload: store.enqueue("b", payload))
    registry.job("b")(lambda payload: None)
    store.enqueue_many([("a", n) for n in range(100)])
    worker = JobWorker(store, registry, concurrency=2, poll_interval=0.01)
    before = private_client.info("stats")["total_connections_received"]
    assert worker.run(lambda: store.count_by_status()["done"] < 200) == 200
    assert private_client.info("stats")["total_connections_received"] - before < 10


def test_a_heartbeat_keeps_the_lease_of_a_long_handler(
    workers: Workers, jobs: RedisJobStore
) -> None:
    """Though others reap all the time, it runs once."""
    registry, runs, go_on = JobRegistry(), [], threading.Event()

    @registry.job("a")
    def handle(payload: object) -> None:
        runs.append(payload)
        go_on.wait(60)

    job_id = jobs.enqueue("a", 1)
    workers.run(registry, lease=2)
    workers.run(registry, lease=2)
    first = eventually(lambda: read(jobs, job_id).locked_at)
    eventually(lambda: read(jobs, job_id).updated_at > first + 2000)
    go_on.set()
    assert finished(jobs, job_id).status == "done"
    assert runs == [1]
    assert read(jobs, job_id).attempts == 0


def test_a_handler_that_takes_too_long_has_failed(workers: Workers, jobs: RedisJobStore) -> None:
    """And its lane is free for others."""
    registry, go_on, cancelled = JobRegistry(), threading.Event(), threading.Event()

    @registry.job("slow")
    def slow(payload: object) -> None:
        go_on.wait(60)

    async def slow_coroutine(payload: object) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    registry.job("quick")(lambda payload: None)
    kinds = ["slow"]
    if workers.kind == "aio":
        registry.job("slow coroutine")(slow_coroutine)
        kinds.append("slow coroutine")
    ids = [jobs.enqueue(kind, 1, max_attempts=1) for kind in kinds]
    workers.run(registry, handler_timeout=0.1)
    for job_id in ids:
        job = finished(jobs, job_id)
        assert job.status == "dead"
        assert "HandlerTimeoutError" in job.last_error
    assert finished(jobs, jobs.enqueue("quick", 1)).status == "done"
    go_on.set()
    assert workers.kind == "sync" or cancelled.wait(60)


def test_a_canceled_job_is_not_settled_by_its_worker(
    workers: Workers, jobs: RedisJobStore, caplog: pytest.LogCaptureFixture
) -> None:
    """The heartbeat notices; the job stays canceled."""
    registry, started, go_on = JobRegistry(), threading.Event(), threading.Event()

    @registry.job("a")
    def handle(payload: object) -> None:
        started.set()
        go_on.wait(60)

    job_id = jobs.enqueue("a", 1)
    workers.run(registry, lease=0.3)
    assert started.wait(60)
    assert jobs.cancel(job_id)
    eventually(lambda: "canceled or reaped" in caplog.text)
    go_on.set()
    workers.end()
    assert status_of(jobs, job_id) == "canceled"


def test_a_worker_goes_on_after_an_outage(
    workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    """It waits while Redis is away, and says so once."""
    binary = any_binary()
    if binary is None:
        pytest.skip("no Redis binary to start a private server with")
    port = free_port()
    workers.url = f"redis://127.0.0.1:{port}"
    registry = JobRegistry()
    registry.job("a")(lambda payload: None)
    with caplog.at_level(logging.WARNING):
        workers.run(registry, reap_interval=0.01)
        eventually(lambda: "cannot be worked off" in caplog.text)
        with (
            private_server(binary, port=port),
            RedisJobStore(workers.url, key_prefix=workers.prefix) as store,
        ):
            job_id = store.enqueue("a", 1)
            assert finished(store, job_id).status == "done"
            workers.end()
    assert caplog.text.count("cannot be worked off") == 1
    assert caplog.text.count("worked off again") == 1


def test_stop_lets_handlers_end_and_gives_back_those_that_do_not(
    workers: Workers, jobs: RedisJobStore
) -> None:
    """Within ``shutdown_timeout``; what is given back counts no attempt."""
    registry, may_end, go_on = JobRegistry(), threading.Event(), threading.Event()
    started = threading.Semaphore(0)

    @registry.job("ends")
    def ends(payload: object) -> None:
        started.release()
        may_end.wait(60)

    @registry.job("hangs")
    def hangs(payload: object) -> None:
        started.release()
        go_on.wait(60)

    good, bad, late = jobs.enqueue_many([("ends", 1), ("hangs", 2), ("ends", 3)])
    workers.run(registry, concurrency=2, shutdown_timeout=2)
    for _ in range(2):
        assert started.acquire(timeout=60)
    workers.made[0][0].stop()
    may_end.set()
    eventually(lambda: status_of(jobs, bad) == "pending")
    assert status_of(jobs, good) == "done"
    assert status_of(jobs, late) == "pending"
    assert read(jobs, bad).attempts == 0
    go_on.set()
    workers.end()
    assert workers.handled == [1]


WORKER = """
import asyncio, os, signal, sys, time
from babelqueue_redis import (
    AsyncJobWorker, AsyncRedisJobStore, JobRegistry, JobWorker, RedisJobStore
)
kind, url, prefix = sys.argv[1:]
if os.environ.get("TWICE") and os.fork():  # the second one begins when the first has ended
    os.wait()
registry = JobRegistry()

@registry.job("crash")
def crash(payload):
    os._exit(7)

@registry.job("wait")
def wait(payload):
    print("started", flush=True)
    time.sleep(payload)

@registry.job("fork")
def fork(payload):
    child = os.fork()
    if child == 0:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGTERM

options = dict(lease=0.3, poll_interval=0.01, reap_interval=0.05, shutdown_timeout=60)
if kind == "sync":
    print(JobWorker(RedisJobStore(url, key_prefix=prefix), registry, **options).run())
else:
    async def main():
        store = AsyncRedisJobStore(url, key_prefix=prefix)
        print(await AsyncJobWorker(store, registry, **options).run())
    asyncio.run(main())
"""


@pytest.fixture(params=["sync", "aio"])
def child(
    request: pytest.FixtureRequest, redis_url: str, prefix: str
) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start workers in processes of their own."""
    started: list[subprocess.Popen[str]] = []

    def start(**env: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(request.param), redis_url, prefix],
            env={**os.environ, **env},
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_crash_loop_ends_in_dead_after_max_attempts(
    child: Callable[..., subprocess.Popen[str]], jobs: RedisJobStore
) -> None:
    """A handler that ends its process runs as often as it may, and no more.

    The second worker brings the job back that the first one lost.
    """
    job_id = jobs.enqueue("crash", 1, max_attempts=2)
    assert child(TWICE="1").wait(60) == 7
    assert read(jobs, job_id).attempts == 1
    eventually(jobs.reap_stuck)
    job = read(jobs, job_id)
    assert (job.status, job.attempts) == ("dead", 2)
    assert "ran out" in job.last_error


def test_a_signal_ends_a_worker_after_its_handlers(
    child: Callable[[], subprocess.Popen[str]], jobs: RedisJobStore, request: Any
) -> None:
    """A first one waits for them; the job is done. SIGTERM in threads, SIGINT in tasks."""
    number = signal.SIGTERM if "sync" in request.node.name else signal.SIGINT
    job_id = jobs.enqueue("wait", 0.3)
    process = child()
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    process.send_signal(number)
    assert process.communicate(timeout=60)[0] == "1\n"
    assert process.returncode == 0
    assert status_of(jobs, job_id) == "done"


def test_a_signal_to_a_child_that_a_handler_forked_ends_that_child(
    child: Callable[[], subprocess.Popen[str]], jobs: RedisJobStore
) -> None:
    """As it would end any process; the worker goes on."""
    ids = jobs.enqueue_many([("fork", 1), ("fork", 2)], max_attempts=1)
    child()
    assert [finished(jobs, job_id).status for job_id in ids] == ["done", "done"]


def test_a_signal_ends_all_that_run_in_a_loop(
    redis_url: str, prefix: str, queue: str, jobs: RedisJobStore
) -> None:
    """Two job workers and a consumer; then the signals are whose they were."""
    registry, job_id = JobRegistry(), jobs.enqueue("a", 1)
    before = signal.getsignal(signal.SIGTERM)

    @registry.job("a")
    async def handle(payload: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    async def main() -> list[int]:
        workers = [
            AsyncJobWorker(AsyncRedisJobStore(redis_url, key_prefix=prefix), registry)
            for _ in range(2)
        ]
        consumer = AsyncRedisConsumer(redis_url, queue, {})
        ends = await asyncio.gather(consumer.run(), *(worker.run() for worker in workers))
        return ends[1:]

    assert sum(asyncio.run(main())) == 1
    assert status_of(jobs, job_id) == "done"
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_second_signal_gives_the_jobs_back_at_once(
    child: Callable[[], subprocess.Popen[str]], jobs: RedisJobStore
) -> None:
    """And no attempt is counted."""
    job_id = jobs.enqueue("wait", 600)
    process = child()
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    os.kill(process.pid, signal.SIGTERM)
    eventually(lambda: pending_signals(process) == 0)
    os.kill(process.pid, signal.SIGTERM)
    assert process.communicate(timeout=60)[0] == "0\n"
    job = read(jobs, job_id)
    assert (job.status, job.attempts) == ("pending", 0)


def pending_signals(process: subprocess.Popen[str]) -> int:
    """Return what the kernel has not delivered yet."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    found = [line.split()[1] for line in lines if line.startswith(("SigPnd", "ShdPnd"))]
    return sum(int(mask, 16) for mask in found)


def test_run_once_runs_a_handler_here_and_now(redis_url: str, prefix: str) -> None:
    """On a job that no store holds, with its payload checked; what it raises is raised."""
    registry = JobRegistry()

    @registry.job("mail", payload=Mail)
    def send(payload: Mail) -> str:
        if not payload.to:
            raise ValueError("nobody")  # noqa: EM101 - short
        return payload.to

    with RedisJobStore(redis_url, key_prefix=prefix) as store:
        worker = JobWorker(store, registry)
        assert worker.run_once("mail", {"to": "a"}) == worker.run_once("mail", Mail("a")) == "a"
        for payload, error in (({"to": ""}, ValueError), ({"to": 1}, PayloadError)):
            with pytest.raises(error):
                worker.run_once("mail", payload)
        with pytest.raises(ConfigurationError, match="no handler"):
            worker.run_once("else", 1)
        assert sum(store.count_by_status().values()) == 0


def test_run_once_awaits_coroutine_functions(redis_url: str, prefix: str) -> None:
    """And runs plain ones too."""
    registry = JobRegistry()

    @registry.job("a")
    async def handle(payload: int) -> int:
        await asyncio.sleep(0)
        return payload + 1

    registry.job("b")(lambda payload: payload + 2)

    async def main() -> list[Any]:
        async with AsyncRedisJobStore(redis_url, key_prefix=prefix) as store:
            worker = AsyncJobWorker(store, registry)
            return [await worker.run_once(kind, 1) for kind in "ab"]

    assert asyncio.run(main()) == [2, 3]


def test_a_worker_cancelled_from_outside_gives_its_jobs_back(
    redis_url: str, prefix: str, jobs: RedisJobStore
) -> None:
    """As ``asyncio.timeout`` or a task group does."""
    job_id = jobs.enqueue("a", 1)
    registry = JobRegistry()

    async def main() -> None:
        started = asyncio.Event()

        @registry.job("a")
        async def handle(payload: object) -> None:
            started.set()
            await asyncio.sleep(60)

        async with AsyncRedisJobStore(redis_url, key_prefix=prefix) as store:
            task = asyncio.ensure_future(AsyncJobWorker(store, registry).run())
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    assert (status_of(jobs, job_id), read(jobs, job_id).attempts) == ("pending", 0)


def test_a_worker_cancelled_again_and_again_leaves_nothing_behind(
    redis_url: str, prefix: str, jobs: RedisJobStore
) -> None:
    """All jobs are given back, all handlers cancelled, and it can run again."""
    ids = jobs.enqueue_many([("a", n) for n in range(3)])
    registry, all_started = JobRegistry(), asyncio.Event()
    started: list[object] = []
    cancelled: list[object] = []

    @registry.job("a")
    async def handle(payload: object) -> None:
        started.append(payload)
        if len(started) == 3:
            all_started.set()
        try:
            await asyncio.sleep(60 if len(started) <= 3 else 0)
        except asyncio.CancelledError:
            cancelled.append(payload)
            raise

    async def main() -> None:
        nonlocal all_started
        all_started = asyncio.Event()
        store = AsyncRedisJobStore(redis_url, key_prefix=prefix)
        worker = AsyncJobWorker(store, registry, concurrency=3)
        task = asyncio.ensure_future(worker.run())
        await all_started.wait()
        while not task.done():
            task.cancel()
            await asyncio.sleep(0)
        assert task.cancelled()
        assert [status_of(jobs, job_id) for job_id in ids] == ["pending"] * 3
        assert sorted(map(str, cancelled)) == ["0", "1", "2"]
        assert await worker.run(lambda: len(started) < 6) == 3

    asyncio.run(main())
    assert {(read(jobs, each).status, read(jobs, each).attempts) for each in ids} == {("done", 0)}


def test_a_handler_that_ended_as_its_worker_was_cancelled_is_settled(
    redis_url: str, prefix: str, jobs: RedisJobStore
) -> None:
    """With its real outcome: it does not run again."""
    good, bad = jobs.enqueue_many([("good", 1), ("bad", 1)], max_attempts=1)
    registry = JobRegistry()

    async def main() -> None:
        async with AsyncRedisJobStore(redis_url, key_prefix=prefix) as store:
            worker = AsyncJobWorker(store, registry, concurrency=2)
            task = asyncio.ensure_future(worker.run())

            @registry.job("good")
            async def succeed(payload: object) -> None:
                task.cancel()

            @registry.job("bad")
            async def fail(payload: object) -> None:
                raise ValueError

            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    assert (status_of(jobs, good), status_of(jobs, bad)) == ("done", "dead")


def test_a_handler_that_ended_as_its_worker_broke_off_is_settled(jobs: RedisJobStore) -> None:
    """The same in threads, where ``should_continue`` raises."""
    job_id = jobs.enqueue("a", 1)
    registry, asked, may_end = JobRegistry(), iter((True, False)), threading.Event()
    registry.job("a")(lambda payload: may_end.wait(60))
    worker = JobWorker(jobs, registry, concurrency=2, poll_interval=0.01)

    def should_continue() -> bool:
        if next(asked):
            return True
        may_end.set()
        eventually(lambda: not worker._ended.empty())
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        worker.run(should_continue)
    assert status_of(jobs, job_id) == "done"


@pytest.mark.parametrize("kind", ["sync", "aio"])
def test_a_handler_that_returns_while_jobs_are_given_back_is_settled(
    kind: str, redis_url: str, prefix: str, jobs: RedisJobStore
) -> None:
    """As long as its own job is not given back yet, the end of its handler counts."""
    ids = jobs.enqueue_many([("first", 1), ("second", 1)])
    registry, may_end, lost = JobRegistry(), threading.Event(), threading.Event()
    registry.job("first")(lambda payload: None)
    registry.job("second")(lambda payload: may_end.wait(60))
    options: dict[str, Any] = {"concurrency": 2, "poll_interval": 0.01, "shutdown_timeout": 0}

    def lose() -> bool:
        """Tell whether the link breaks: until the worker has to end, with one job to settle."""
        if not lost.is_set():
            lost.set()
            msg = "lost"
            raise ConnectionLostError(msg)
        may_end.set()
        return True

    async def work() -> int:
        async with AsyncRedisJobStore(redis_url, key_prefix=prefix) as store:
            worker, complete = AsyncJobWorker(store, registry, **options), store.complete

            async def completing(job: ClaimedJob) -> bool:
                lose()
                if job.kind == "first":
                    await asyncio.to_thread(eventually, lambda: worker._ended)
                return await complete(job)

            store.complete = completing  # type: ignore[assignment,method-assign]
            return await worker.run(lambda: not lost.is_set())

    if kind == "aio":
        asyncio.run(work())
    else:
        worker, complete = JobWorker(jobs, registry, **options), jobs.complete

        def completing(job: ClaimedJob) -> bool:
            lose()
            if job.kind == "first":
                eventually(lambda: not worker._ended.empty())
            return complete(job)

        jobs.complete = completing  # type: ignore[assignment,method-assign]
        worker.run(lambda: not lost.is_set())
    assert [status_of(jobs, job_id) for job_id in ids] == ["done", "done"]


def test_a_success_that_cannot_be_settled_is_kept_until_it_can(
    workers: Workers, jobs: RedisJobStore, client: Client, prefix: str
) -> None:
    """Its lease is extended meanwhile: nobody runs it again, and it is not dead."""
    registry = JobRegistry()
    runs: list[object] = []
    registry.job("a")(runs.append)
    client.set(f"{prefix}finished:done", "somebody's")
    job_id = jobs.enqueue("a", 1, max_attempts=1)
    workers.run(registry, lease=0.5)
    workers.run(registry, lease=0.5)
    first = eventually(lambda: read(jobs, job_id).locked_at)
    eventually(lambda: read(jobs, job_id).updated_at > first + 1500)
    assert status_of(jobs, job_id) == "claimed"
    client.delete(f"{prefix}finished:done")
    assert finished(jobs, job_id).status == "done"
    workers.end()
    assert runs == [1]
    assert sum(workers.handled) == 1


def test_a_settling_whose_reply_was_lost_is_sent_again(
    workers: Workers, jobs: RedisJobStore, caplog: pytest.LogCaptureFixture
) -> None:
    """The job is done once, and no log says that its claim was over before."""
    registry = JobRegistry()
    runs: list[object] = []
    registry.job("a")(runs.append)
    with proxy_to(workers.url) as proxy:
        workers.url = proxy.url
        proxy.cut_before_the_reply_to(b":finished:done\r\n", times=2)
        job_id = jobs.enqueue("a", 1)
        workers.run(registry)
        assert finished(jobs, job_id).status == "done"
        eventually(lambda: proxy.requests_with(b":finished:done\r\n") == 3)
        workers.end()
    assert runs == [1]
    assert "nothing was touched" not in caplog.text


def test_after_an_outage_leases_are_extended_before_anything_is_reaped() -> None:
    """Whichever call noticed it, and however often."""
    options = JobWorkerOptions(lease=60, reap_interval=10)
    for calls in (1, 5):
        agenda = Agenda(options, 0)
        now = agenda.beat_at
        for _ in range(calls):
            agenda.beat_at, agenda.reap_at = now + options.heartbeat, now + options.reap_interval
            agenda.outage(ConnectionError(), now)
            assert now < agenda.beat_at <= min(agenda.reap_at, now + 5)
            now = agenda.beat_at


@pytest.mark.parametrize("kind", ["sync", "aio"])
def test_a_signal_after_stop_is_the_first_one(
    redis_url: str, prefix: str, jobs: RedisJobStore, kind: str
) -> None:
    """The handlers may go on."""
    registry, job_id = JobRegistry(), jobs.enqueue("a", 1)
    worker: Any = (
        JobWorker(RedisJobStore(redis_url, key_prefix=prefix), registry)
        if kind == "sync"
        else AsyncJobWorker(AsyncRedisJobStore(redis_url, key_prefix=prefix), registry)
    )

    @registry.job("a")
    def handle(payload: object) -> None:
        worker.stop()
        os.kill(os.getpid(), signal.SIGTERM)
        eventually(lambda: worker._signalled)

    assert (worker.run() if kind == "sync" else asyncio.run(worker.run())) == 1
    assert status_of(jobs, job_id) == "done"


async def coroutine(payload: object) -> None:
    """A handler for asyncio."""


@pytest.mark.parametrize(
    "options",
    [
        {"concurrency": 0},
        {"lease": 0},
        {"handler_timeout": -1},
        {"poll_interval": 0},
        {"retry_jitter": "some"},
        {"retry_backoff": -1},
        {"worker_id": "\ud800"},
    ],
    ids=str,
)
def test_an_option_that_cannot_work_is_refused(options: dict[str, Any]) -> None:
    """At construction, by its name."""
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        JobWorker(RedisJobStore(redis.Redis()), JobRegistry(), **options)


def test_a_registry_that_cannot_be_run_is_refused() -> None:
    """An empty one; and coroutine functions in threads."""
    registry = JobRegistry()
    worker = JobWorker(RedisJobStore(redis.Redis()), registry)
    with pytest.raises(ConfigurationError, match="no handler"):
        worker.run()
    registry.job("a")(coroutine)
    with pytest.raises(ConfigurationError, match="AsyncJobWorker"):
        worker.run()


def test_a_worker_runs_once_at_a_time(jobs: RedisJobStore) -> None:
    """A second ``run`` of the same one is an error; ``should_continue`` ends the first."""
    registry, errors = JobRegistry(), []
    worker = JobWorker(jobs, registry)

    @registry.job("a")
    def handle(payload: object) -> None:
        try:
            worker.run()
        except BabelQueueError as error:
            errors.append(str(error))

    jobs.enqueue("a", 1)
    assert worker.run(lambda: not errors) == 1
    assert "running already" in errors[0]

"""The worker that runs jobs in threads.

Its own thread claims, extends, settles and reaps; handlers run in others, and it is told through a
queue when one has ended.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from babelqueue_redis import entropy, hooks
from babelqueue_redis.core.routing import check_result
from babelqueue_redis.errors import BabelQueueError, LeaseLostError, TransportError
from babelqueue_redis.jobs.options import JobWorkerOptions
from babelqueue_redis.jobs.registry import JobRegistry
from babelqueue_redis.jobs.running import (
    Agenda,
    Running,
    abandon,
    begun,
    check_handlers,
    imagined,
    logger,
    postpone,
    prepared,
    report,
    report_end,
    settling,
    time_out,
)
from babelqueue_redis.steps import Serving
from babelqueue_redis.sync.job_lanes import Lanes
from babelqueue_redis.sync.job_signals import listening
from babelqueue_redis.sync.job_store import RedisJobStore

_Ended = tuple[Running, BaseException | None]


class JobWorker:
    """Runs the jobs of a store, each in a thread.

    A job is done only after its handler returned; a heartbeat keeps its lease until then. A handler
    that takes longer than ``handler_timeout`` has failed; its thread cannot be ended and goes on,
    no longer counted.

    Args:
        store: Where the jobs are.
        registry: The handlers. Only jobs of its kinds are claimed.

    The keywords are the fields of :class:`~babelqueue_redis.jobs.options.JobWorkerOptions`.

    Raises:
        ConfigurationError: An option cannot work.
    """

    def __init__(
        self,
        store: RedisJobStore,
        registry: JobRegistry,
        *,
        concurrency: int = 1,
        lease: float = 60,
        handler_timeout: float | None = None,
        poll_interval: float = 0.5,
        reap_interval: float = 10,
        retry_backoff: float = 1,
        retry_backoff_multiplier: float = 2,
        retry_backoff_max: float = 300,
        retry_jitter: str = "full",
        shutdown_timeout: float = 30,
        worker_id: str = "",
    ) -> None:
        """Check the options; nothing is sent yet."""
        self._options = JobWorkerOptions(
            concurrency=concurrency,
            lease=lease,
            handler_timeout=handler_timeout,
            poll_interval=poll_interval,
            reap_interval=reap_interval,
            retry_backoff=retry_backoff,
            retry_backoff_multiplier=retry_backoff_multiplier,
            retry_backoff_max=retry_backoff_max,
            retry_jitter=retry_jitter,
            shutdown_timeout=shutdown_timeout,
            worker_id=worker_id or entropy.worker_id(),
        )
        self._store = store
        self._registry = registry
        # Its put() takes no lock of Python's, so that a signal handler may call it at any point.
        self._ended: queue.SimpleQueue[_Ended | None] = queue.SimpleQueue()
        self._lanes = Lanes()
        self._runs: list[Running] = []
        self._running = self._stopping = self._signalled = self._hurrying = False

    def run(self, should_continue: Callable[[], bool] | None = None) -> int:
        """Work until stopped.

        Called in the main thread, it handles SIGTERM and SIGINT: no further job is claimed, and
        handlers may go on for ``shutdown_timeout``; after that, or on a second signal, their jobs
        are given back, and run again: so does one whose handler returns in that very moment. When
        Redis is away it waits, and goes on when Redis is back.

        Args:
            should_continue: Asked before every claim; a false answer ends the run like a signal.

        Returns:
            How many jobs were run to their end.

        Raises:
            ConfigurationError: The registry has no handler, or one that only asyncio can run.
            BabelQueueError: This worker is running already.
        """
        check_handlers(self._registry, awaits=False)
        if self._running:
            msg = "run() is running already: use a worker for each thread"
            raise BabelQueueError(msg)
        self._running, handled, self._lanes = True, 0, Lanes()
        agenda = Agenda(self._options, time.monotonic())
        serving = Serving(self._store.server, self._store.count_by_status)
        try:
            with hooks.serving(serving), listening(self._on_signal):
                try:
                    while True:
                        self._work(agenda, should_continue or (lambda: True))
                        if self._is_over(agenda):
                            break
                        handled += self._settle_ended(agenda)
                finally:  # before any hook takes its time: nothing extends the leases any more
                    handled += self._give_back(agenda)
                    self._lanes.end()
        finally:
            self._runs = []
            self._running = self._stopping = self._signalled = self._hurrying = False
            self._store.close()
        return handled

    def stop(self) -> None:
        """End :meth:`run` after the jobs that run. Safe from any thread and from handlers."""
        self._stopping = True
        self._ended.put(None)

    def run_once(self, kind: str, payload: Any) -> Any:
        """Run the handler of a kind here and now, on a job that no store holds.

        For scripts and tests. The payload is checked as at enqueue and at claim.

        Returns:
            What the handler returns. What it raises is raised.

        Raises:
            PayloadError: The payload is not what the kind takes.
            ConfigurationError: The kind has no handler.
        """
        job = imagined(kind, payload, self._registry, entropy.new_token())
        run = begun(job, self._store.server, self._options, 0).run
        with hooks.processing_job(run):
            result = prepared(run, self._registry)()
            check_result(result)
        return result

    def _work(self, agenda: Agenda, should_continue: Callable[[], bool]) -> None:
        """Do all that is due by now."""
        now = time.monotonic()
        if not self._stopping and not should_continue():
            self._stopping = True
        if self._stopping:
            agenda.end_by(now + self._options.shutdown_timeout)
        try:
            if now >= agenda.beat_at:  # before the reaping, which must not take what runs here
                agenda.beat_at = now + self._options.heartbeat
                self._extend()
            if now >= agenda.reap_at:
                agenda.reap_at = now + self._options.reap_interval
                self._store.reap_stuck()
                agenda.recovered()
            if not self._stopping and now >= agenda.claim_at:
                self._claim(agenda, now)
        except TransportError as error:
            agenda.outage(error, time.monotonic())
        for running in [each for each in self._runs if now >= each.deadline]:
            if not running.is_over:
                time_out(running, self._options)
            self._settle(running, agenda)

    def _claim(self, agenda: Agenda, now: float) -> None:
        free = self._options.concurrency - len(self._runs)
        if free == 0:
            return
        jobs = self._store.claim_due(
            free, self._options.worker_id, self._options.lease, self._registry.kinds
        )
        agenda.recovered()
        if len(jobs) < free:
            agenda.claim_at = now + self._options.poll_interval
        for job in jobs:
            running = begun(job, self._store.server, self._options, time.monotonic())
            self._runs.append(running)
            self._lanes.start(partial(self._handle, running), self._ended.put)

    def _handle(self, running: Running) -> _Ended:
        """Run a handler, in a thread of its own."""
        error: BaseException | None = None
        done = False
        try:
            with hooks.processing_job(running.run):
                check_result(prepared(running.run, self._registry)())
                done = True
        except BaseException as raised:  # noqa: BLE001 - whatever handlers raise
            error = None if done else raised
        return running, error

    def _settle_ended(self, agenda: Agenda) -> int:
        """Wait until a handler has ended or something else is to be done; settle what ended."""
        claims = not self._stopping and len(self._runs) < self._options.concurrency
        wait = max(agenda.next(self._runs, claims=claims) - time.monotonic(), 0)
        with contextlib.suppress(queue.Empty):
            return self._settle_those_that_ended(
                agenda, self._ended.get(timeout=min(wait, threading.TIMEOUT_MAX))
            )
        return 0

    def _settle_those_that_ended(self, agenda: Agenda, ended: _Ended | None = None) -> int:
        settled = 0
        with contextlib.suppress(queue.Empty):
            while True:
                if ended is not None and ended[0] in self._runs and not ended[0].is_over:
                    running, error = ended
                    running.is_over, running.error = True, error
                    self._settle(running, agenda)
                    settled += 1
                ended = self._ended.get_nowait()
        return settled

    def _settle(self, running: Running, agenda: Agenda) -> None:
        """End the claim of a job that ran; later, while Redis is away."""
        run, error = running.run, running.error
        if time.monotonic() < agenda.resume_at:
            running.deadline = agenda.resume_at
            return
        try:
            settled = settling(self._store, run, error, self._options, entropy.draw())
        except TransportError as lost:
            postpone(running, lost, agenda, time.monotonic())
            return
        self._runs.remove(running)
        report(run, error, settled=settled or running.may_be_settled)

    def _extend(self) -> None:
        """Keep the leases; a job that is lost is no longer ours to settle."""
        for running in list(self._runs):
            job = running.run.job
            lasts = self._store.extend(job, self._options.lease)
            if not lasts and not running.is_over:
                self._runs.remove(running)
                running.run.ended = LeaseLostError(f"{job!r} was canceled or reaped")
                logger.warning("%r was canceled or reaped while its handler ran", job)

    def _is_over(self, agenda: Agenda) -> bool:
        time_is_up = self._hurrying or time.monotonic() >= agenda.end_at
        return self._stopping and (time_is_up or not self._runs)

    def _give_back(self, agenda: Agenda) -> int:
        """Settle what ended, a last time; give back the jobs whose handlers did not end in time."""
        agenda.resume_at = 0
        for running in [each for each in self._runs if each.is_over]:
            self._settle(running, agenda)
        settled = self._settle_those_that_ended(agenda)  # last: those are not to run again
        left = abandon(self._runs)
        try:
            lasted: bool | None = not left or self._store.release(*left)
        except TransportError:
            lasted = None
        report_end(self._runs, lasted=lasted)
        return settled

    def _on_signal(self) -> None:
        self._hurrying = self._signalled
        self._signalled = True
        self.stop()

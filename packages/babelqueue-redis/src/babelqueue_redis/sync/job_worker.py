"""The worker that runs jobs in threads.

Its own thread claims, extends, settles and reaps; handlers run in others, and it is told through a
queue when one has ended.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType
from typing import Any

from babelqueue_redis import entropy, hooks
from babelqueue_redis.core.routing import check_result
from babelqueue_redis.errors import (
    BabelQueueError,
    LeaseLostError,
    ShutdownError,
    TransportError,
)
from babelqueue_redis.jobs.options import JobWorkerOptions
from babelqueue_redis.jobs.registry import JobRegistry
from babelqueue_redis.jobs.running import (
    Agenda,
    Running,
    begun,
    check_handlers,
    imagined,
    logger,
    prepared,
    report,
    retry_delay,
    timed_out,
)
from babelqueue_redis.jobs.values import JobRun
from babelqueue_redis.steps import Serving
from babelqueue_redis.sync.job_lanes import Lanes
from babelqueue_redis.sync.job_store import RedisJobStore
from babelqueue_redis.values import Outcome

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


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

    def __init__(  # noqa: PLR0913 - one keyword per option, so that editors show them
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
        self._ended: queue.SimpleQueue[tuple[Running, BaseException | None] | None]
        self._ended = queue.SimpleQueue()
        self._lanes = Lanes()
        self._runs: list[Running] = []
        self._running = self._stopping = self._hurrying = False

    def run(self, should_continue: Callable[[], bool] | None = None) -> int:
        """Work until stopped.

        Called in the main thread, it handles SIGTERM and SIGINT: no further job is claimed, and
        handlers may go on for ``shutdown_timeout``; after that, or on a second signal, their jobs
        are given back. When Redis is away it waits, and goes on when Redis is back.

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
        try:
            with hooks.serving(Serving(self._store.server, lambda: None)), self._handling_signals():
                try:
                    while True:
                        self._work(agenda, should_continue or (lambda: True))
                        if self._is_over(agenda):
                            break
                        handled += self._settle_ended(agenda)
                finally:  # before any hook takes its time: nothing extends the leases any more
                    self._give_back()
                    self._lanes.end()
        finally:
            self._runs = []
            self._running = self._stopping = self._hurrying = False
            self._store.close()
        return handled

    def stop(self) -> None:
        """End :meth:`run` after the jobs that run. Safe from any thread and from handlers."""
        self._stopping = True
        self._ended.put(None)

    def run_once(self, kind: str, payload: Any) -> Any:  # noqa: ANN401 - the handler's
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
            agenda.outage(error, now)
        for running in [each for each in self._runs if now >= each.deadline]:
            self._settle(running, timed_out(running, self._options))

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

    def _handle(self, running: Running) -> tuple[Running, BaseException | None]:
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
        settled = 0
        with contextlib.suppress(queue.Empty):
            ended = self._ended.get(timeout=min(wait, threading.TIMEOUT_MAX))
            while True:
                if ended is not None and ended[0] in self._runs:
                    self._settle(*ended)
                    settled += 1
                ended = self._ended.get_nowait()
        return settled

    def _settle(self, running: Running, error: BaseException | None) -> None:
        """End the claim of a job that ran."""
        self._runs.remove(running)
        run = running.run
        try:
            report(run, error, settled=self._settled(run, error))
        except TransportError as lost:
            logger.error("%r is not confirmed to be settled and may run again: %s", run.job, lost)

    def _settled(self, run: JobRun, error: BaseException | None) -> bool:
        outcome, job = run.intended(error), run.job
        if outcome is Outcome.ACKED:
            return self._store.complete(job)
        if outcome is Outcome.RELEASED:
            return self._store.release(job)
        why = run.ended or error or "unknown"
        delay = retry_delay(job, self._options, entropy.draw())
        return self._store.fail(job, why, delay=delay, dead=run.is_hopeless)

    def _extend(self) -> None:
        """Keep the leases; a job that is lost is no longer ours to settle."""
        for running in list(self._runs):
            job = running.run.job
            if not self._store.extend(job, self._options.lease):
                self._runs.remove(running)
                running.run.ended = LeaseLostError(f"{job!r} was canceled or reaped")
                logger.warning("%r was canceled or reaped while its handler ran", job)

    def _is_over(self, agenda: Agenda) -> bool:
        time_is_up = self._hurrying or time.monotonic() >= agenda.end_at
        return self._stopping and (time_is_up or not self._runs)

    def _give_back(self) -> None:
        """Give back the jobs whose handlers did not end in time."""
        for running in list(self._runs):
            running.run.ended = ShutdownError("the worker ended before the handler did")
            self._settle(running, None)

    @contextlib.contextmanager
    def _handling_signals(self) -> Iterator[None]:
        """Turn SIGTERM and SIGINT into a graceful end; only the main thread can."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        pid = os.getpid()

        def on_signal(number: int, _frame: FrameType | None) -> None:
            if os.getpid() != pid:  # a child that a handler forked: not ours to shut down
                handler = previous[number]
                signal.signal(number, signal.SIG_DFL if handler is None else handler)
                signal.raise_signal(number)
                return
            self._hurrying = self._stopping
            self.stop()

        previous: dict[int, Any] = {int(each): signal.signal(each, on_signal) for each in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, signal.SIG_DFL if handler is None else handler)

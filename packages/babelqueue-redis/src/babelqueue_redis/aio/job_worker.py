"""The worker that runs jobs in tasks.

Its own task claims, extends, settles and reaps; each handler runs in a task of its own and tells
through an event that it has ended.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from babelqueue_redis import entropy, hooks
from babelqueue_redis.aio.asking import from_threads
from babelqueue_redis.aio.driver import whole
from babelqueue_redis.aio.job_store import AsyncRedisJobStore
from babelqueue_redis.aio.job_thread import called
from babelqueue_redis.aio.shutdown import Listening
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
    report,
    report_end,
    settling,
    time_out,
)
from babelqueue_redis.steps import Serving

_FAREWELL = 1.0  # seconds that cancelled handlers have to end


class AsyncJobWorker:
    """Runs the jobs of a store, each in a task; plain functions in a thread.

    A job is done only after its handler returned; a heartbeat keeps its lease until then. A handler
    that takes longer than ``handler_timeout`` has failed and is cancelled; so is one whose job was
    canceled. A plain function cannot be cancelled: its thread goes on, no longer counted.

    Args:
        store: Where the jobs are.
        registry: The handlers. Only jobs of its kinds are claimed.

    The keywords are the fields of :class:`~babelqueue_redis.jobs.options.JobWorkerOptions`.

    Raises:
        ConfigurationError: An option cannot work.
    """

    def __init__(
        self,
        store: AsyncRedisJobStore,
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
        self._ended: list[tuple[Running, BaseException | None]] = []
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._runs: list[Running] = []
        self._handled = 0
        self._running = self._stopping = self._signalled = self._hurrying = False

    async def run(self, should_continue: Callable[[], bool] | None = None) -> int:
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
            ConfigurationError: The registry has no handler.
            BabelQueueError: This worker is running already.
        """
        check_handlers(self._registry, awaits=True)
        if self._running:
            msg = "run() is running already: use a worker for each task"
            raise BabelQueueError(msg)
        self._running, self._handled = True, 0
        self._loop, self._wake = asyncio.get_running_loop(), asyncio.Event()
        agenda = Agenda(self._options, time.monotonic())
        serving = Serving(self._store.server, from_threads(self._store.count_by_status))
        try:
            with hooks.serving(serving), Listening(self._on_signal):
                try:
                    while True:
                        await self._work(agenda, should_continue or (lambda: True))
                        if self._is_over(agenda):
                            break
                        await self._settle_ended(agenda)
                finally:  # before any hook takes its time: nothing extends the leases any more
                    await whole(self._give_back(agenda))
        finally:
            self._runs, self._loop = [], None
            self._running = self._stopping = self._signalled = self._hurrying = False
            await self._store.close()
        return self._handled

    def stop(self) -> None:
        """End :meth:`run` after the jobs that run. Safe from any thread and from handlers."""
        self._stopping = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._wake.set)

    async def run_once(self, kind: str, payload: Any) -> Any:
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
            return await called(run, self._registry)

    async def _work(self, agenda: Agenda, should_continue: Callable[[], bool]) -> None:
        """Do all that is due by now."""
        now = time.monotonic()
        if not self._stopping and not should_continue():
            self._stopping = True
        if self._stopping:
            agenda.end_by(now + self._options.shutdown_timeout)
        try:
            if now >= agenda.beat_at:  # before the reaping, which must not take what runs here
                agenda.beat_at = now + self._options.heartbeat
                await self._extend()
            if now >= agenda.reap_at:
                agenda.reap_at = now + self._options.reap_interval
                await self._store.reap_stuck()
                agenda.recovered()
            if not self._stopping and now >= agenda.claim_at:
                await self._claim(agenda, now)
        except TransportError as error:
            agenda.outage(error, time.monotonic())
        for running in [each for each in self._runs if now >= each.deadline]:
            if not running.is_over:
                time_out(running, self._options)
                running.task.cancel()
            await self._settle(running, agenda)

    async def _claim(self, agenda: Agenda, now: float) -> None:
        free = self._options.concurrency - len(self._runs)
        if free == 0:
            return
        jobs = await self._store.claim_due(
            free, self._options.worker_id, self._options.lease, self._registry.kinds
        )
        agenda.recovered()
        if len(jobs) < free:
            agenda.claim_at = now + self._options.poll_interval
        for job in jobs:
            running = begun(job, self._store.server, self._options, time.monotonic())
            self._runs.append(running)
            running.task = task = asyncio.create_task(self._handle(running))
            self._tasks.add(task)  # the loop itself would let go of it
            task.add_done_callback(self._tasks.discard)

    async def _handle(self, running: Running) -> None:
        """Run a handler, in its own task."""
        error: BaseException | None = None
        done = False
        try:
            with hooks.processing_job(running.run):
                await called(running.run, self._registry)
                done = True
        except BaseException as raised:  # noqa: BLE001 - whatever handlers raise
            error = None if done else raised
        self._ended.append((running, error))
        self._wake.set()

    async def _settle_ended(self, agenda: Agenda) -> None:
        """Wait until a handler has ended or something else is to be done; settle what ended."""
        claims = not self._stopping and len(self._runs) < self._options.concurrency
        wait = max(agenda.next(self._runs, claims=claims) - time.monotonic(), 0)
        alarm = asyncio.get_running_loop().call_later(wait, self._wake.set)
        try:  # not wait_for(): before Python 3.12 that may swallow a cancellation
            await self._wake.wait()
        finally:
            alarm.cancel()
        self._wake.clear()
        for running in self._taken_note():
            await self._settle(running, agenda)

    def _taken_note(self) -> list[Running]:
        """Return the jobs whose handlers ended; how they did is kept, whatever is awaited next."""
        ended = []
        for running, error in self._ended:
            if running in self._runs and not running.is_over:
                running.is_over, running.error, running.deadline = True, error, 0
                ended.append(running)
        self._ended.clear()
        self._handled += len(ended)
        return ended

    async def _settle(self, running: Running, agenda: Agenda) -> None:
        """End the claim of a job that ran; later, while Redis is away."""
        run, error = running.run, running.error
        if time.monotonic() < agenda.resume_at:
            running.deadline = agenda.resume_at
            return
        try:
            settled = await settling(self._store, run, error, self._options, entropy.draw())
        except TransportError as lost:
            postpone(running, lost, agenda, time.monotonic())
            return
        except asyncio.CancelledError:
            running.may_be_settled = True
            raise
        self._runs.remove(running)
        report(run, error, settled=settled or running.may_be_settled)

    async def _extend(self) -> None:
        """Keep the leases; a job that is lost is no longer ours to settle."""
        for running in list(self._runs):
            job = running.run.job
            lasts = await self._store.extend(job, self._options.lease)
            if not lasts and not running.is_over:
                self._runs.remove(running)
                running.run.ended = LeaseLostError(f"{job!r} was canceled or reaped")
                running.task.cancel()
                logger.warning("%r was canceled or reaped while its handler ran", job)

    def _is_over(self, agenda: Agenda) -> bool:
        time_is_up = self._hurrying or time.monotonic() >= agenda.end_at
        return self._stopping and (time_is_up or not self._runs)

    async def _give_back(self, agenda: Agenda) -> None:
        """Settle what ended, a last time; give back the jobs whose handlers did not end in time."""
        agenda.resume_at = 0
        self._taken_note()
        over = [each for each in self._runs if each.is_over]
        while over:
            for running in over:
                await self._settle(running, agenda)
            over = self._taken_note()  # meanwhile: those are not to run again
        left = abandon(self._runs)
        for task in self._tasks:
            task.cancel()
        try:
            lasted: bool | None = not left or await self._store.release(*left)
        except TransportError:
            lasted = None
        report_end(self._runs, lasted=lasted)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_FAREWELL)

    def _on_signal(self) -> None:
        self._hurrying = self._signalled
        self._signalled = True
        self.stop()

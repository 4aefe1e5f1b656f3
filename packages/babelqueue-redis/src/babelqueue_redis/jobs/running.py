"""What both workers decide: when to do what, and what becomes of a job that ran."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

import msgspec

from babelqueue_redis.core.retry import backoff
from babelqueue_redis.errors import (
    ConfigurationError,
    ConnectionLostError,
    HandlerTimeoutError,
    PayloadError,
    ShutdownError,
    TransportError,
)
from babelqueue_redis.jobs.enqueuing import encoded
from babelqueue_redis.jobs.options import JobWorkerOptions
from babelqueue_redis.jobs.registry import JobRegistry
from babelqueue_redis.jobs.values import ClaimedJob, Job, JobRun
from babelqueue_redis.values import Destination, Outcome

logger = logging.getLogger("babelqueue_redis.jobs")

_FIRST_BACKOFF = 0.1
_LONGEST_BACKOFF = 5.0


class Agenda:
    """When what is to be done next. Times are the shell's monotonic seconds."""

    def __init__(self, options: JobWorkerOptions, now: float) -> None:
        """Begin with a look for lost jobs, and a claim."""
        self._options = options
        self.claim_at = self.reap_at = now
        self.beat_at = now + options.heartbeat
        self.end_at = math.inf
        self.resume_at = 0.0
        self._outages = 0

    def next(self, runs: list[Running], *, claims: bool) -> float:
        """Return when there is something to do, unless a handler ends before."""
        moments = [self.reap_at, self.beat_at, *(run.deadline for run in runs)]
        moments += [self.claim_at] * claims
        return min(*moments, self.end_at)

    def end_by(self, moment: float) -> None:
        """Let the run end then, or earlier where it is to do so already."""
        self.end_at = min(self.end_at, moment)

    def outage(self, error: Exception, now: float) -> None:
        """Wait before the next try; say once per outage that there is one."""
        if self._outages == 0:
            logger.error("the job store cannot be worked off for now: %s", error)
        if now >= self.resume_at:
            pause = min(_FIRST_BACKOFF * 2 ** min(self._outages, 10), _LONGEST_BACKOFF)
            self.resume_at = now + pause
            self._outages += 1
        until = self.resume_at
        self.claim_at, self.reap_at = (max(at, until) for at in (self.claim_at, self.reap_at))
        self.beat_at = min(self.beat_at, until)  # before the reaping, which would take what runs

    def recovered(self) -> None:
        """Say that an outage is over."""
        if self._outages:
            logger.warning("the job store is worked off again")
            self._outages, self.resume_at = 0, 0.0


class Running(msgspec.Struct, eq=False):
    """A job whose handler runs, or ended and is not settled yet.

    Attributes:
        run: What the hooks see.
        deadline: When its handler has had enough time, or it is to be settled.
        task: The asyncio task; ``None`` for a thread.
        is_over: Nobody waits for its handler any more; how it ended is known.
        error: What its handler raised.
        may_be_settled: A settling was sent whose reply was lost.
    """

    run: JobRun
    deadline: float
    task: Any = None
    is_over: bool = False
    error: BaseException | None = None
    may_be_settled: bool = False


def begun(job: ClaimedJob, server: Destination, options: JobWorkerOptions, now: float) -> Running:
    """Return a job as one that runs from now on."""
    run = JobRun(msgspec.structs.replace(server, queue=job.kind), job)
    return Running(run, now + (options.handler_timeout or math.inf))


def prepared(run: JobRun, registry: JobRegistry) -> Callable[[], Any]:
    """Return the call of a job's handler, with its arguments.

    Raises:
        PayloadError: The payload is not what the kind takes; the run is over.
    """
    try:
        return registry.call_of(run.job)
    except PayloadError as error:
        run.ended = error
        raise


def time_out(running: Running, options: JobWorkerOptions) -> None:
    """Note that a handler took too long."""
    job = running.run.job
    msg = f"the handler of {job!r} took longer than {options.handler_timeout} s"
    running.run.ended, running.is_over = HandlerTimeoutError(msg), True


def postpone(running: Running, lost: TransportError, agenda: Agenda, now: float) -> None:
    """Keep a job that could not be settled for the next try; settling twice does no harm."""
    agenda.outage(lost, now)
    running.may_be_settled |= isinstance(lost, ConnectionLostError) and lost.sent
    running.deadline = agenda.resume_at


def abandon(runs: list[Running]) -> list[ClaimedJob]:
    """Note that the worker ends before the handlers of those that run, and return their jobs."""
    left = [running for running in runs if not running.is_over]
    for running in left:
        running.run.ended = ShutdownError("the worker ended before the handler did")
    return [running.run.job for running in left]


def report_end(runs: list[Running], *, lasted: bool | None) -> None:
    """Log what the worker leaves: ``lasted`` is what giving back answered; ``None``, nothing."""
    for running in runs:
        if running.is_over or lasted is None:
            logger.error("%r is not confirmed to be settled and may run again", running.run.job)
        else:
            logger.warning("%r is given back: %s", running.run.job, running.run.ended)
    if lasted is False:
        logger.warning("some of them were canceled or reaped before: those were not touched")


def settling(  # the store is of either shell, and so is the answer
    store: Any,
    run: JobRun,
    error: BaseException | None,
    options: JobWorkerOptions,
    draw: float,
) -> Any:
    """Call what ends the claim of a job that ran, and return the answer: whether it lasted."""
    if run.intended(error) is Outcome.ACKED:
        return store.complete(run.job)
    delay = retry_delay(run.job, options, draw)
    return store.fail(run.job, run.ended or error or "unknown", delay=delay, dead=run.is_hopeless)


def retry_delay(job: Job, options: JobWorkerOptions, draw: float) -> float:
    """Return how long a job is kept back whose attempt has failed, in seconds."""
    return backoff(
        job.attempts + 1,
        base=options.retry_backoff,
        multiplier=options.retry_backoff_multiplier,
        maximum=options.retry_backoff_max,
        jitter=options.retry_jitter,
        draw=draw,
    )


def report(run: JobRun, error: BaseException | None, *, settled: bool) -> None:
    """Log how a job ended, where that is worth a line."""
    job, outcome = run.job, run.intended(error)
    if not settled:
        logger.warning(
            "the claim on %r was over before it was %s: nothing was touched", job, outcome
        )
    elif outcome in (Outcome.RETRIED, Outcome.DEAD_LETTERED):
        logger.warning("%r is %s", job, outcome, exc_info=run.ended or error)
    elif outcome is Outcome.RELEASED:
        logger.warning("%r is given back: %s", job, run.ended or error)


def imagined(kind: str, payload: object, registry: JobRegistry, job_id: str) -> ClaimedJob:
    """Return a job that no store holds, its payload as it would come out of one.

    Raises:
        PayloadError: It would not get into one.
        ConfigurationError: The kind has no handler.
    """
    registry.find(kind)
    return ClaimedJob(
        id=job_id,
        kind=kind,
        raw=encoded(kind, payload, registry),
        status="claimed",
        attempts=0,
        max_attempts=1,
        run_at=0,
        created_at=0,
        updated_at=0,
        locked_at=0,
        locked_by="",
        last_error="",
        idempotency_key="",
        headers={},
        token="",
    )


def check_handlers(registry: JobRegistry, *, awaits: bool) -> None:
    """Refuse a registry that a worker cannot run.

    Raises:
        ConfigurationError: It is empty, or has coroutine functions for a worker of threads.
    """
    if not registry.kinds:
        msg = "the registry has no handler: decorate one with @registry.job(kind)"
        raise ConfigurationError(msg)
    if registry.coroutines and not awaits:
        kinds = ", ".join(registry.coroutines)
        msg = f"the handlers of {kinds} are coroutine functions: AsyncJobWorker runs those"
        raise ConfigurationError(msg)

"""The spans and metrics of job stores and job workers: one more hook on the transport's seam."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

import msgspec
from opentelemetry import trace
from opentelemetry.instrumentation.babelqueue import semconv
from opentelemetry.instrumentation.babelqueue.contexts import (
    asked,
    given_context,
    injected,
    kind_of,
)
from opentelemetry.instrumentation.babelqueue.kinds import Process, Send
from opentelemetry.instrumentation.babelqueue.operation import captured
from opentelemetry.instrumentation.babelqueue.signals import Active, Signals
from opentelemetry.instrumentation.babelqueue.telling import Told

from babelqueue_redis.hooks import Hook
from babelqueue_redis.jobs.values import JobRun, NewJob, printable


class JobTelemetry(Hook):
    """Encloses each enqueue and each run of a job in a span and metrics."""

    def __init__(self, signals: Signals) -> None:
        """Record where ``signals`` say."""
        self.signals = signals

    def enqueuing(self, job: NewJob) -> AbstractContextManager[NewJob] | None:
        """Make the ``enqueue <kind>`` span and put its context into the job."""
        active = self.signals.active()
        return None if active is None else EnqueueOne(active, (job,))

    def enqueuing_many(
        self, jobs: tuple[NewJob, ...]
    ) -> AbstractContextManager[tuple[NewJob, ...]] | None:
        """Make one ``enqueue`` span for the batch and put its context into each job."""
        active = self.signals.active()
        return None if active is None else EnqueueMany(active, jobs)

    def processing_job(self, run: JobRun) -> AbstractContextManager[object] | None:
        """Make the ``process <kind>`` span as a child of the one that enqueued the job."""
        active = self.signals.active()
        return None if active is None else ProcessJob(active, run)


class Enqueue(Send):
    """Around one enqueue of one or more jobs."""

    operation = "enqueue"

    def __init__(self, active: Active, jobs: tuple[NewJob, ...]) -> None:
        """Prepare."""
        place = jobs[0].destination
        if any(job.destination != place for job in jobs):
            place = msgspec.structs.replace(place, queue="")
        super().__init__(active, place)
        self._count = len(jobs)
        self._jobs = jobs

    def _begin(self, about: dict[str, Any]) -> tuple[NewJob, ...]:
        """Start the span, and return the jobs with its context in them.

        Headers that already name a creation context are the caller's: they stay as they are, and
        the span is a CLIENT span that links to that context.
        """
        active, jobs = self._active, self._jobs
        if active.tracer is None:
            self._enter()
            return jobs
        given = given_context(self._told_of(jobs[0]), jobs[0].headers)
        kind, links = kind_of(given)
        attributes = {**self._told.span, **about}
        span = active.tracer.start_span(
            self._told.name, kind=kind, links=links, attributes=attributes
        )
        where = trace.set_span_in_context(span)
        try:
            if given is None:
                jobs = tuple(
                    job.carrying(injected(self._told_of(job), where, job.headers)) for job in jobs
                )
            for job in jobs if span.is_recording() else ():
                asked(active.options.publish_hook, span, job)
        except BaseException:
            span.end()
            raise
        self._enter(span, where)
        return jobs

    def _told_of(self, job: NewJob) -> Told:
        return self._active.told(job.destination, self.operation, self.operation_type)


class EnqueueOne(Enqueue):
    """Around ``enqueue``."""

    def __enter__(self) -> NewJob:
        """Start the span, and return the job with its context in it."""
        (job,) = self._jobs
        headers = captured(job.headers, self._active)
        return self._begin({semconv.MESSAGING_MESSAGE_ID: job.id, **headers})[0]


class EnqueueMany(Enqueue):
    """Around ``enqueue_many``."""

    def __enter__(self) -> tuple[NewJob, ...]:
        """Start the span, and return the jobs with its context in them."""
        return self._begin({semconv.MESSAGING_BATCH_MESSAGE_COUNT: len(self._jobs)})


class ProcessJob(Process):
    """Around the run of one job."""

    def __init__(self, active: Active, run: JobRun) -> None:
        """Prepare."""
        super().__init__(active, run.destination)
        self._run = run

    def __enter__(self) -> None:
        """Start the span, and count the run."""
        job, active = self._run.job, self._active
        if active.tracer is None:
            self._enter()
        else:
            attributes = {
                **self._told.span,
                semconv.MESSAGING_MESSAGE_ID: printable(job.id),
                semconv.BABELQUEUE_ATTEMPTS: job.attempts,
                **captured(job.headers, active),
            }
            self._start(
                active.tracer,
                self._run,
                attributes,
                headers=job.headers,
                trace_id="",
                created_at=job.created_at,
            )
        self._entered(self._run, job.created_at)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the span with why the run ended, if that was before its handler did."""
        super().__exit__(kind, self._run.ended or error, traceback)

    def _finish(self, error: BaseException | None) -> None:
        self._span.set_attribute(semconv.BABELQUEUE_OUTCOME, self._run.intended(error).value)
        super()._finish(error)

"""The spans of job stores and job workers: one more hook on the transport's seam."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from opentelemetry import propagate, trace
from opentelemetry.instrumentation.babelqueue import semconv
from opentelemetry.instrumentation.babelqueue.telemetry import (
    Telemetry,
    _destination_attributes,
    _Enclosed,
)
from opentelemetry.trace import Link, Span, SpanKind

from babelqueue_carrier.trace import creation, given_span_context
from babelqueue_redis.hooks import Hook
from babelqueue_redis.jobs.values import JobRun, NewJob


class JobTelemetry(Hook):
    """Encloses each enqueue and each run of a job in a span."""

    def __init__(self, telemetry: Telemetry) -> None:
        """Use the tracer of ``telemetry``."""
        self._telemetry = telemetry

    def enqueuing(self, job: NewJob) -> EnqueueOne:
        """Make the ``enqueue <kind>`` span and put its context into the job."""
        return EnqueueOne(self._telemetry.tracer(), (job,))

    def enqueuing_many(self, jobs: tuple[NewJob, ...]) -> EnqueueMany:
        """Make one ``enqueue`` span for the batch and put its context into each job."""
        return EnqueueMany(self._telemetry.tracer(), jobs)

    def processing_job(self, run: JobRun) -> ProcessJob:
        """Make the ``process <kind>`` span as a child of the one that enqueued the job."""
        return ProcessJob(self._telemetry.tracer(), self._telemetry.provider(), run)


class _Enqueue(_Enclosed):
    """Around one enqueue of one or more jobs."""

    __slots__ = ("_jobs",)

    def __init__(self, tracer: trace.Tracer | None, jobs: tuple[NewJob, ...]) -> None:
        super().__init__(tracer)
        self._jobs = jobs

    def _enter(self, about: dict[str, Any]) -> tuple[NewJob, ...]:
        """Start the span, and return the jobs with its context in them.

        Headers that already name a creation context are the caller's: they stay as they are, and
        the span is a CLIENT span that links to that context.
        """
        first = self._jobs[0]
        if self._tracer is None:
            return self._jobs
        given = given_span_context(first.headers)
        attributes = {**_destination_attributes(first.destination, "enqueue", "send"), **about}
        name = f"enqueue {first.kind}"
        if len({job.kind for job in self._jobs}) > 1:
            name = "enqueue"
            del attributes[semconv.MESSAGING_DESTINATION_NAME]
        span = self._tracer.start_span(
            name,
            kind=SpanKind.CLIENT if given.is_valid else SpanKind.PRODUCER,
            links=[Link(given)] if given.is_valid else [],
            attributes=attributes,
        )
        headers: dict[str, str] = {}
        try:
            if not given.is_valid:
                propagate.inject(headers, trace.set_span_in_context(span))
            carrying = tuple(job.carrying({**headers, **job.headers}) for job in self._jobs)
        except BaseException:
            span.end()
            raise
        self._make_current(span)  # last: nothing after it may fail, or the context would leak
        return carrying


class EnqueueOne(_Enqueue):
    """Around ``enqueue``."""

    __slots__ = ()

    def __enter__(self) -> NewJob:
        return self._enter({semconv.MESSAGING_MESSAGE_ID: self._jobs[0].id})[0]


class EnqueueMany(_Enqueue):
    """Around ``enqueue_many``."""

    __slots__ = ()

    def __enter__(self) -> tuple[NewJob, ...]:
        return self._enter({semconv.MESSAGING_BATCH_MESSAGE_COUNT: len(self._jobs)})


class ProcessJob(_Enclosed):
    """Around the run of one job."""

    __slots__ = ("_provider", "_run")

    def __init__(
        self, tracer: trace.Tracer | None, provider: trace.TracerProvider, run: JobRun
    ) -> None:
        super().__init__(tracer)
        self._provider = provider
        self._run = run

    def __enter__(self) -> None:
        if self._tracer is None:
            return
        job = self._run.job
        name = f"process {job.kind}"
        attributes = {
            **_destination_attributes(self._run.destination, "process", "process"),
            semconv.MESSAGING_MESSAGE_ID: job.id,
            semconv.BABELQUEUE_ATTEMPTS: job.attempts,
        }
        created = creation(job.headers, "", self._provider, name, attributes)
        span = self._tracer.start_span(
            name,
            context=created.context,
            kind=SpanKind.CONSUMER,
            links=[Link(created.span_context)] if created.span_context.is_valid else [],
            attributes=attributes,
        )
        self._make_current(span, created.context)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the span with why the run ended, if that was before its handler did."""
        super().__exit__(kind, self._run.ended or error, traceback)

    def _finish(self, span: Span, error: BaseException | None) -> None:
        span.set_attribute(semconv.BABELQUEUE_OUTCOME, self._run.intended(error).value)

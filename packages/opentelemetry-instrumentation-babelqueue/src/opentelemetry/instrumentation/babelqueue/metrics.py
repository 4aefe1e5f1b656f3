"""The instruments. None tells a message, a trace, a worker, a count of attempts or a URN."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from typing import Any

from opentelemetry.context import Context
from opentelemetry.instrumentation.babelqueue import semconv
from opentelemetry.metrics import CallbackOptions, Meter, Observation

logger = logging.getLogger(__name__)

BOUNDARIES = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Seconds; given explicitly, because the SDK's own are meant for milliseconds."""


class Instruments:
    """The instruments of one meter.

    Values are recorded with the context of their span, so that exemplars lead from one to the
    other.
    """

    def __init__(self, meter: Meter) -> None:
        """Make all but the gauge."""
        self._meter = meter
        self.operation_duration = meter.create_histogram(
            semconv.MESSAGING_CLIENT_OPERATION_DURATION,
            unit="s",
            description="Duration of publishing, receiving or settling.",
            explicit_bucket_boundaries_advisory=BOUNDARIES,
        )
        self.process_duration = meter.create_histogram(
            semconv.MESSAGING_PROCESS_DURATION,
            unit="s",
            description="Duration of handling a message.",
            explicit_bucket_boundaries_advisory=BOUNDARIES,
        )
        self.sent = meter.create_counter(
            semconv.MESSAGING_CLIENT_SENT_MESSAGES,
            unit="{message}",
            description="Number of messages that a producer tried to send.",
        )
        self.consumed = meter.create_counter(
            semconv.MESSAGING_CLIENT_CONSUMED_MESSAGES,
            unit="{message}",
            description="Number of messages that were delivered.",
        )
        self.queue_time = meter.create_histogram(
            semconv.BABELQUEUE_QUEUE_TIME,
            unit="s",
            description="Time from the creation of a message to the start of its handler.",
            explicit_bucket_boundaries_advisory=BOUNDARIES,
        )
        self.negative_queue_time = meter.create_counter(
            semconv.BABELQUEUE_QUEUE_TIME_NEGATIVE,
            unit="{message}",
            description="Number of messages that seem to come from the future: clocks disagree.",
        )

    def waited(self, seconds: float, attributes: dict[str, Any], context: Context | None) -> None:
        """Record how long a message waited for its handler."""
        if seconds >= 0:
            self.queue_time.record(seconds, attributes, context)
        else:
            self.negative_queue_time.add(1, attributes, context)

    def observe_queues(self, gauges: Gauges) -> None:
        """Make the gauges of messages in queues and of jobs in stores."""
        self._meter.create_observable_gauge(
            semconv.BABELQUEUE_QUEUE_MESSAGES,
            [gauges.observe],
            unit="{message}",
            description="Number of messages in a queue, by state.",
        )
        self._meter.create_observable_gauge(
            semconv.BABELQUEUE_JOBS,
            [gauges.observe_jobs],
            unit="{job}",
            description="Number of jobs in a store, by status.",
        )


class Gauges:
    """The queues and job stores that are served here, to be counted when metrics are collected."""

    def __init__(self) -> None:
        """Begin without one."""
        self.served: tuple[tuple[dict[str, Any], Any, int], ...] = ()
        """Attributes, a ``Serving`` and the process that serves; replaced whole, for another thread
        reads it.
        """

    def observe(self, _options: CallbackOptions) -> Iterable[Observation]:
        """Count messages. A queue that does not answer is left out, this time."""
        return self._observed(jobs=False)

    def observe_jobs(self, _options: CallbackOptions) -> Iterable[Observation]:
        """Count jobs, likewise."""
        return self._observed(jobs=True)

    def _observed(self, *, jobs: bool) -> Iterable[Observation]:
        seen = []
        for attributes, serving, process in self.served:
            place = serving.destination
            if process != os.getpid() or place in seen or (place.layout == "jobs") is not jobs:
                continue
            seen.append(place)
            for state, count in _counted(serving).items():
                yield Observation(count, {**attributes, semconv.BABELQUEUE_STATE: state})


GAUGES = Gauges()
"""Those of the process: a meter keeps the first gauge of a name, and with it what that asks."""

_STATES = {
    "legacy": ("ready", "reserved", "dead"),
    "zset": ("ready", "delayed", "reserved", "dead"),
}


def _counted(serving: Any) -> dict[str, int]:
    try:
        counts = serving.counts()
    except Exception:
        logger.warning("%r was not counted", serving.destination.queue, exc_info=True)
        return {}
    if counts is None or isinstance(counts, dict):
        return counts or {}
    return {state: getattr(counts, state) for state in _STATES[serving.destination.layout]}

"""The hook on the transport's seam: it encloses what a transport does in what tells of it."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from types import TracebackType

from opentelemetry.instrumentation.babelqueue.config import Options
from opentelemetry.instrumentation.babelqueue.jobs import JobTelemetry
from opentelemetry.instrumentation.babelqueue.processing import Processing
from opentelemetry.instrumentation.babelqueue.publishing import PublishMany, PublishOne
from opentelemetry.instrumentation.babelqueue.settling import Receive, Settle
from opentelemetry.instrumentation.babelqueue.signals import Signals
from opentelemetry.instrumentation.babelqueue.telling import told_of

from babelqueue_redis.steps import Receiving, Serving, Settling
from babelqueue_redis.values import Delivery, Publication


class Telemetry(JobTelemetry):
    """Encloses what the transport does in spans and metrics."""

    def __init__(self, signals: Signals | None = None) -> None:
        """Record where ``signals`` say; without them, to the global providers of the moment."""
        super().__init__(signals or Signals(Options()))
        self.shows_traffic = self.signals.options.redis_spans

    def publishing(self, publication: Publication) -> AbstractContextManager[Publication] | None:
        """Make the ``publish`` span and put its context into the message."""
        active = self.signals.active()
        return None if active is None else PublishOne(active, publication)

    def publishing_many(
        self, publications: tuple[Publication, ...]
    ) -> AbstractContextManager[tuple[Publication, ...]] | None:
        """Make the spans of a batch and put their contexts into the messages."""
        active = self.signals.active()
        return None if active is None else PublishMany(active, publications)

    def processing(self, delivery: Delivery) -> AbstractContextManager[object] | None:
        """Make the ``process`` span."""
        active = self.signals.active()
        return None if active is None else Processing(active, delivery)

    def settling(self, settling: Settling) -> AbstractContextManager[object] | None:
        """Measure a settlement, and make its span where that is wanted."""
        active = self.signals.active()
        if active is None or (active.instruments is None and not active.options.settle_spans):
            return None
        return Settle(active, settling)

    def receiving(self, receiving: Receiving) -> AbstractContextManager[object] | None:
        """Make the ``receive`` span of a message that a program took itself."""
        active = self.signals.active()
        return None if active is None else Receive(active, receiving)

    def serving(self, serving: Serving) -> AbstractContextManager[object]:
        """Tell the length of the queue meanwhile, and hand everything over at the end."""
        return Serve(self.signals, serving)


class Serve:
    """Around a worker's run."""

    def __init__(self, signals: Signals, serving: Serving) -> None:
        """Prepare."""
        self._signals = signals
        attributes = told_of(serving.destination, signals.options.system)
        self._served = (attributes, serving, os.getpid())

    def __enter__(self) -> None:
        """Begin to tell the queue's length, where that is wanted."""
        gauges, serving = self._signals.gauges, self._served[1]
        if self._signals.options.gauges(serving.destination.queue):
            self._signals.active()  # the gauge is made with the instruments
            gauges.served = (*gauges.served, self._served)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End that, and hand over what is recorded: the process may be killed next."""
        gauges = self._signals.gauges
        gauges.served = tuple(each for each in gauges.served if each is not self._served)
        self._signals.flush()

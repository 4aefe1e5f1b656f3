"""Where spans, metrics and log events go, and whether they go anywhere just now."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

from opentelemetry import _logs, context, metrics, trace
from opentelemetry.instrumentation.babelqueue import semconv
from opentelemetry.instrumentation.babelqueue.config import Options
from opentelemetry.instrumentation.babelqueue.metrics import GAUGES, Instruments
from opentelemetry.instrumentation.babelqueue.telling import Place, Told, told_by
from opentelemetry.instrumentation.babelqueue.version import __version__
from opentelemetry.instrumentation.utils import is_instrumentation_enabled
from opentelemetry.metrics import _internal

logger = logging.getLogger(__name__)

SCOPE = "opentelemetry.instrumentation.babelqueue"
_NAMED_PROVIDERS = ("OTEL_PYTHON_TRACER_PROVIDER", "OTEL_PYTHON_METER_PROVIDER")
FLUSH_MILLIS = 5000
"""How long a worker's end waits for providers to hand over what they have."""


@dataclasses.dataclass(frozen=True, slots=True)
class Active:
    """What there is to record with. At least one of the first two is there.

    Attributes:
        tracer: For spans.
        instruments: For metrics.
        sampler_of: The tracer provider, whose sampler may be asked.
        signals: Where it comes from.
        options: What to record.
        told: What an operation on a queue, of a type, tells every time.
    """

    tracer: trace.Tracer | None
    instruments: Instruments | None
    sampler_of: trace.TracerProvider | None
    signals: Signals
    options: Options
    told: Callable[[Place, str, str], Told]

    def without_spans(self) -> Active:
        """Return what there is for metrics: somebody else makes the span."""
        return dataclasses.replace(self, tracer=None)


class Signals:
    """The providers of one instrumentor: those it was given, else the global ones of the moment."""

    def __init__(
        self,
        options: Options,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
        logger_provider: _logs.LoggerProvider | None = None,
    ) -> None:
        """Keep them; nothing is made yet."""
        self.options = options
        self.gauges = GAUGES
        # Bounded: a program may make up names of queues for ever.
        self._told = functools.lru_cache(maxsize=1024)(functools.partial(told_by, options))
        self._given = (tracer_provider, meter_provider, logger_provider)
        self._made: tuple[object, object, Active | None] = (None, None, None)
        self._failed = False
        self._named = any(name in os.environ for name in _NAMED_PROVIDERS)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Signals:
        """Return the options and the providers that ``instrument()`` was given."""
        providers = ("tracer_provider", "meter_provider", "logger_provider")
        return cls(Options.of(given), *map(given.get, providers))

    def active(self) -> Active | None:
        """Return what to record with, or ``None`` when there is nothing to do.

        That is the case while instrumentation is suppressed, and while the providers are still the
        API's own or the SDK is disabled: then nothing is built and nothing is injected.
        """
        try:
            tracers = self._given[0] or self._global(trace, "_TRACER_PROVIDER")
            meters = self._given[1] or self._global(_internal, "_METER_PROVIDER")
            made = self._made
            if made[0] is not tracers or made[1] is not meters:
                made = self._made = (tracers, meters, self._active_of(tracers, meters))
        except Exception:
            if not self._failed:
                self._failed = True
                logger.exception("there is no telemetry: a provider fails")
            return None
        active = made[2]
        if active is None or (context.get_current() and not is_instrumentation_enabled()):
            return None
        return active

    def _global(self, module: Any, variable: str) -> Any:
        """Return a global provider, or ``None`` while it is not set.

        While none is set, the API's own functions look into the environment every time, which is
        most of what it would cost to have nothing to do. So look where they look first.
        """
        provider = getattr(module, variable, module)
        if provider is None and not self._named:
            return None
        if provider is None or provider is module:
            return trace.get_tracer_provider() if module is trace else metrics.get_meter_provider()
        return provider

    def logger(self) -> _logs.Logger:
        """Return the logger of events."""
        provider = self._given[2] or _logs.get_logger_provider()
        return provider.get_logger(SCOPE, __version__, schema_url=semconv.SCHEMA_URL)

    def flush(self) -> None:
        """Have every provider that can do so hand over what it has.

        Providers take the time they want, whatever they are told, so they do it in a thread of
        their own. It is waited for, but not where that would hold up an event loop.
        """
        thread = threading.Thread(target=self._flush, name="babelqueue-flush", daemon=True)
        thread.start()
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            thread.join(FLUSH_MILLIS / 1000)

    def _flush(self) -> None:
        current: tuple[Callable[[], Any], ...] = (
            trace.get_tracer_provider,
            metrics.get_meter_provider,
            _logs.get_logger_provider,
        )
        for given, get in zip(self._given, current, strict=True):
            with contextlib.suppress(Exception):
                flush = getattr(given or get(), "force_flush", None)
                if flush is not None:
                    flush(FLUSH_MILLIS)

    def _active_of(
        self, tracers: trace.TracerProvider | None, meters: metrics.MeterProvider | None
    ) -> Active | None:
        tracer, instruments = self._tracer(tracers), self._instruments(meters)
        if tracer is None and instruments is None:
            return None
        return Active(tracer, instruments, tracers, self, self.options, self._told)

    def _tracer(self, provider: trace.TracerProvider | None) -> trace.Tracer | None:
        if provider is None or _is_the_apis(provider):
            return None
        try:
            tracer = provider.get_tracer(SCOPE, __version__, schema_url=semconv.SCHEMA_URL)
        except Exception:
            logger.exception("there are no spans")
            return None
        return None if isinstance(tracer, trace.NoOpTracer) else tracer

    def _instruments(self, provider: metrics.MeterProvider | None) -> Instruments | None:
        if provider is None or _is_the_apis(provider):
            return None
        try:
            meter = provider.get_meter(SCOPE, __version__, schema_url=semconv.SCHEMA_URL)
            if isinstance(meter, metrics.NoOpMeter):
                return None
            instruments = Instruments(meter)
            if self.options.gauged_queues:
                instruments.observe_queues(self.gauges)
        except Exception:
            logger.exception("there are no metrics")
            return None
        return instruments


def _is_the_apis(provider: object) -> bool:
    """Tell whether a provider is one of the API's own, which record nothing."""
    module = type(provider).__module__
    return module.startswith(("opentelemetry.trace", "opentelemetry.metrics"))

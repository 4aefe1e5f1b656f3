"""OpenTelemetry instrumentation for BabelQueue on Redis.

``opentelemetry-instrument`` loads it by its entry point; by hand it is::

    from opentelemetry.instrumentation.babelqueue import BabelQueueInstrumentor

    BabelQueueInstrumentor().instrument()

Publishers and consumers made before are covered, and ``uninstrument()`` takes it all back.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Collection
from typing import Any

from opentelemetry.instrumentation.babelqueue.package import _instruments_any
from opentelemetry.instrumentation.babelqueue.signals import Signals
from opentelemetry.instrumentation.dependencies import get_dependency_conflicts
from opentelemetry.instrumentation.instrumentor import (  # type: ignore[attr-defined]
    BaseInstrumentor,  # not in its __all__
)

__all__ = ["BabelQueueInstrumentor"]

logger = logging.getLogger(__name__)


class BabelQueueInstrumentor(BaseInstrumentor):  # type: ignore[misc]  # the base is untyped
    """Makes spans and metrics for ``babelqueue-redis``, through the transport's own hooks.

    ``instrument()`` takes the fields of
    :class:`~opentelemetry.instrumentation.babelqueue.config.Options` as keywords, and
    ``tracer_provider``, ``meter_provider`` and ``logger_provider`` in place of the global ones.
    Nothing raises: without the transport there is nothing to do, and anything else that fails is
    logged.
    """

    _hook: Any = None

    def instrumentation_dependencies(self) -> Collection[str]:
        """Return no package that must be there: :meth:`_instrument` looks for its target."""
        return ()

    def _instrument(self, **kwargs: Any) -> None:
        try:
            if importlib.util.find_spec("babelqueue_redis") is None:
                return
            if conflict := get_dependency_conflicts((), _instruments_any):
                logger.error("babelqueue-redis is not instrumented: %s", conflict)
                return
            from opentelemetry.instrumentation.babelqueue.telemetry import (  # noqa: PLC0415
                Telemetry,
            )

            from babelqueue_redis import hooks  # noqa: PLC0415 - the target may be absent

            self._hook = Telemetry(Signals.of(kwargs))
            hooks.register(self._hook)
        except Exception:
            logger.exception("babelqueue-redis is not instrumented")

    def _uninstrument(self, **_kwargs: Any) -> None:
        if self._hook is None:
            return
        from babelqueue_redis import hooks  # noqa: PLC0415 - it was there when the hook was made

        hooks.unregister(self._hook)
        self._hook = None

"""The instrumentation of the PyPI package ``babelqueue``, the reference SDK.

Its class ``BabelQueue`` is wrapped where it stands, so that aliases, subclasses and objects made
before are covered. Handlers are not wrapped: the SDK reads their signatures.
"""

from __future__ import annotations

import contextvars
import functools
import importlib.util
import inspect
import logging
import sys
from collections.abc import Callable, Collection
from types import ModuleType
from typing import Any

import wrapt
from opentelemetry.instrumentation.babelqueue.package import _instruments_sdk
from opentelemetry.instrumentation.babelqueue.sdk_messages import (
    Call,
    refusal_of,
    traced_by_the_sdk,
)
from opentelemetry.instrumentation.babelqueue.sdk_operations import (
    Guarded,
    SdkProcess,
    SdkPublish,
)
from opentelemetry.instrumentation.babelqueue.signals import Active, Signals
from opentelemetry.instrumentation.dependencies import get_dependency_conflicts
from opentelemetry.instrumentation.instrumentor import (  # type: ignore[attr-defined]
    BaseInstrumentor,  # not in its __all__
)
from opentelemetry.instrumentation.utils import unwrap

__all__ = ["BabelQueueSdkInstrumentor"]

logger = logging.getLogger(__name__)

_MODULE = "babelqueue.app"

Wrapped = Callable[..., Any]


class _Dispatch:
    """A dispatch under way: what was received, and whether a handler was called for it."""

    def __init__(self, received: Any) -> None:
        self.received = received
        self.invoked = False


_dispatch: contextvars.ContextVar[_Dispatch | None] = contextvars.ContextVar(
    "babelqueue_dispatch", default=None
)
_publisher: contextvars.ContextVar[object] = contextvars.ContextVar(
    "babelqueue_publisher", default=None
)
"""The app whose publish is under way: what that calls on the app is part of it."""


class BabelQueueSdkInstrumentor(BaseInstrumentor):  # type: ignore[misc]  # the base is untyped
    """Makes spans and metrics for what the SDK publishes, and for its handlers.

    ``instrument()`` takes the keywords of
    :class:`~opentelemetry.instrumentation.babelqueue.BabelQueueInstrumentor`. Settle and receive
    spans, the gauge and the body size are for ``babelqueue-redis`` only. Nothing raises.
    """

    _signals: Signals | None = None
    _waits = False

    def instrumentation_dependencies(self) -> Collection[str]:
        """Return no package that must be there: :meth:`_instrument` looks for its target."""
        return ()

    def _instrument(self, **kwargs: Any) -> None:
        try:
            if importlib.util.find_spec("babelqueue") is None:
                return
            if conflict := get_dependency_conflicts((), _instruments_sdk):
                logger.error("the babelqueue SDK is not instrumented: %s", conflict)
                return
            self._signals = Signals.of(kwargs)
            if _MODULE in sys.modules:
                self._wrap(sys.modules[_MODULE])
            elif not self._waits:
                self._waits = True
                wrapt.register_post_import_hook(self._wrap, _MODULE)
        except Exception:
            logger.exception("the babelqueue SDK is not instrumented")

    def _uninstrument(self, **_kwargs: Any) -> None:
        self._signals = None
        if _MODULE in sys.modules:
            self._unwrap(sys.modules[_MODULE])

    def _wrap(self, module: ModuleType) -> None:
        """Wrap the class, which may be imported long after the instrumentation is."""
        if self._signals is None:
            return
        try:
            for name, wrapper in self._wrappers().items():
                wrapt.wrap_function_wrapper(module, f"BabelQueue.{name}", wrapper)
        except Exception:
            logger.exception("the babelqueue SDK is not instrumented")
            self._unwrap(module)

    def _unwrap(self, module: ModuleType) -> None:
        target = getattr(module, "BabelQueue", None)
        for name in self._wrappers() if target is not None else ():
            unwrap(target, name)

    def _wrappers(self) -> dict[str, Wrapped]:
        return {
            "publish": functools.partial(self._publish, has_headers=False),
            "publish_with_headers": functools.partial(self._publish, has_headers=True),
            "dispatch": self._dispatching,
            "_invoke": self._invoking,
        }

    def _is_the_sdks_own(self, app: Any) -> bool:
        """Tell whether a publish may take the way with headers: nobody put another one there."""
        own = sys.modules[_MODULE].BabelQueue
        static = inspect.getattr_static
        names = ("publish", "publish_with_headers")
        return all(static(type(app), name) is static(own, name) for name in names)

    def _active(self) -> Active | None:
        return None if self._signals is None else self._signals.active()

    def _publish(
        self,
        wrapped: Wrapped,
        app: Any,
        args: Any,
        kwargs: Any,
        *,
        has_headers: bool,
    ) -> Any:
        """Publish in a span, with its context in the headers, by the SDK's own way for those."""
        active = self._active()
        call = Call.of(args, kwargs, has_headers=has_headers)
        if active is None or call is None or _publisher.get() is app:
            return wrapped(*args, **kwargs)
        token = _publisher.set(app)
        try:
            guarded = Guarded(lambda: SdkPublish(active, app, call))
            with guarded as carrying:
                if carrying is None:
                    return wrapped(*args, **kwargs)
                if has_headers:
                    sent = carrying.made(wrapped, carrying.headers)
                elif carrying.headers and self._is_the_sdks_own(app):
                    sent = carrying.made(app.publish_with_headers, carrying.headers)
                else:
                    sent = carrying.made(wrapped)
                guarded.operation.message_id = sent
            return sent
        finally:
            _publisher.reset(token)

    def _dispatching(self, wrapped: Wrapped, app: Any, args: Any, kwargs: Any) -> Any:
        """Note what is dispatched, and tell of a message that no handler was given."""
        active = self._active()
        received = args[0] if args else kwargs.get("received")
        if active is None or received is None:
            return wrapped(*args, **kwargs)
        dispatch = _Dispatch(received)
        token = _dispatch.set(dispatch)
        try:
            result = wrapped(*args, **kwargs)
        finally:
            _dispatch.reset(token)
        if not dispatch.invoked:
            self._refused(active, app, received)
        return result

    def _refused(self, active: Active, app: Any, received: Any) -> None:
        """Tell of a message that no handler was called for."""
        try:
            refusal = refusal_of(received)
        except Exception:
            logger.exception("a refused message is not traced")
            return
        guarded = Guarded(lambda: SdkProcess(active, app, received, refusal))
        guarded.__enter__()
        guarded.__exit__(type(refusal), refusal, None)

    def _invoking(self, wrapped: Wrapped, app: Any, args: Any, kwargs: Any) -> Any:
        """Call a handler in a span: what it raises is seen here, for the dispatch swallows it."""
        active, dispatch = self._active(), _dispatch.get()
        if active is None or dispatch is None:
            return wrapped(*args, **kwargs)
        dispatch.invoked = True
        if traced_by_the_sdk(args[0] if args else kwargs.get("handler")):
            active = active.without_spans()
        with Guarded(lambda: SdkProcess(active, app, dispatch.received)):
            return wrapped(*args, **kwargs)

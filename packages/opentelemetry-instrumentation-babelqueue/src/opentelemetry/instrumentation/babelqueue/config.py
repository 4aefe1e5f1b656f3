"""The options: keywords of ``instrument()``, environment variables, flags of the tool."""

from __future__ import annotations

import dataclasses
import logging
import math
import os
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from typing import Any

logger = logging.getLogger(__name__)

MODES = ("parent", "link", "none")
EXCEPTION_SIGNAL = "OTEL_SEMCONV_EXCEPTION_SIGNAL_OPT_IN"

Function = Callable[..., Any]


class Named:
    """A function that is named, as in ``package.module:function``, and imported when first called.

    Importing it earlier would run the application's modules before the application does.
    """

    def __init__(self, name: str) -> None:
        """Keep the name."""
        self._name = name
        self._function: Function | None = None

    def __call__(self, *args: Any) -> Any:
        """Call the function; when there is none, say so once and return ``None``."""
        if self._function is None:
            try:
                self._function = pkgutil.resolve_name(self._name)
            except Exception:
                logger.exception("there is no function %r to call", self._name)
                self._function = _nothing
        return self._function(*args)


@dataclasses.dataclass(frozen=True)
class Options:
    """What the instrumentation does. Every value may also be the text of its variable.

    Attributes:
        mode: How a ``process`` span hangs on the message's creation context: ``parent``, in its
            trace; ``link``, in a trace of its own, with its baggage; ``none``. Or a function that
            is given each ``Delivery`` or ``JobRun`` and returns one of those. It is linked in the
            first two.
        max_parent_age: Seconds after which a message's span is linked only, in place of ``parent``.
        headerless: The trace of a message without headers: the one its ``trace_id`` names, or
            ``none``, a new one.
        create_spans: A ``create`` span for each message of a ``publish_many``; else the one
            ``publish`` span creates them all.
        settle_spans: A span for each ack, release and dead letter. Metrics tell them in any case.
        redis_spans: Show the commands of the workers themselves where redis-py is instrumented.
        system: What ``messaging.system`` says.
        body_size: Whether spans tell the envelope's size in bytes.
        captured_headers: Headers whose values spans may tell.
        queues_without_propagation: Queues whose messages are given no context, and are not asked
            for one. ``*`` is all of them, here and below.
        queues_without_baggage: Queues whose messages are given no baggage, nor asked for it.
        gauged_queues: Queues whose length is told by the workers that serve them; of a job store,
            which is named by its key prefix, how many jobs have which status.
        publish_hook: Called with the span and the ``Publication``, or the ``NewJob`` of an enqueue,
            when its span is made.
        process_hook: Called with the span and the ``Delivery``, or a ``JobRun``, before a handler.
        settle_hook: Called with the span and the ``Settling`` once that has ended.
        exception_signal: ``logs`` tells exceptions as log events, ``logs/dup`` as those and as
            span events; else they are span events. Its variable is the one that all
            instrumentations share, ``OTEL_SEMCONV_EXCEPTION_SIGNAL_OPT_IN``.
    """

    mode: str | Function = "parent"
    max_parent_age: float | None = None
    headerless: str = "trace_id"
    create_spans: bool = True
    settle_spans: bool = False
    redis_spans: bool = False
    system: str = "babelqueue"
    body_size: bool = False
    captured_headers: frozenset[str] = frozenset()
    queues_without_propagation: frozenset[str] = frozenset()
    queues_without_baggage: frozenset[str] = frozenset()
    gauged_queues: frozenset[str] = frozenset()
    publish_hook: Function | None = None
    process_hook: Function | None = None
    settle_hook: Function | None = None
    exception_signal: str = ""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Options:
        """Return what keywords say, then the environment, then the defaults.

        A value that cannot be used is logged and leaves its default: telemetry stops no program.
        """
        chosen: dict[str, Any] = {}
        for name, convert in _CONVERT.items():
            value = given.get(name)
            if value is None:
                value = os.environ.get(variable(name), "").strip() or None
            if value is None:
                continue
            try:
                chosen[name] = convert(value)
            except Exception as error:  # noqa: BLE001 - whatever conversions raise
                logger.error("option %s cannot be %r: %s", name, value, error)  # noqa: TRY400 - its message says all
        return cls(**chosen)

    @property
    def exception_events(self) -> bool:
        """Whether exceptions are span events."""
        return self.exception_signal != "logs"

    @property
    def exception_logs(self) -> bool:
        """Whether exceptions are log events."""
        return self.exception_signal != ""

    def propagates(self, queue: str) -> bool:
        """Tell whether messages of a queue carry context."""
        return not _holds(self.queues_without_propagation, queue)

    def carries_baggage(self, queue: str) -> bool:
        """Tell whether messages of a queue carry baggage."""
        return not _holds(self.queues_without_baggage, queue)

    def gauges(self, queue: str) -> bool:
        """Tell whether the length of a queue is told."""
        return _holds(self.gauged_queues, queue)


def variable(name: str) -> str:
    """Return the environment variable of an option."""
    own = f"OTEL_PYTHON_BABELQUEUE_{name.upper()}"
    return EXCEPTION_SIGNAL if name == "exception_signal" else own


def _holds(queues: frozenset[str], queue: str) -> bool:
    return bool(queues) and (queue in queues or "*" in queues)


def _nothing(*_args: object) -> None:
    """Stand in for a function that is not there."""


def _flag(value: object) -> bool:
    text = str(value).strip().lower()
    if text in ("true", "1", "yes", "on"):
        return True
    if text in ("false", "0", "no", "off"):
        return False
    msg = "it must be true or false"
    raise ValueError(msg)


def _function(value: object) -> Function:
    if callable(value):
        return value
    if isinstance(value, str) and value.partition(":")[2]:
        return Named(value)
    msg = "it must be a function, or its name, package.module:function"
    raise ValueError(msg)


def _mode(value: object) -> str | Function:
    return (
        _one_of(*MODES)(value) if isinstance(value, str) and ":" not in value else _function(value)
    )


def _one_of(*allowed: str) -> Callable[[object], str]:
    def convert(value: object) -> str:
        text = str(value).strip().lower()
        if text not in allowed:
            msg = f"it must be one of {', '.join(allowed)}"
            raise ValueError(msg)
        return text

    return convert


def _names(value: str | Iterable[str]) -> frozenset[str]:
    parts = value.split(",") if isinstance(value, str) else value
    return frozenset(name.strip() for name in parts if name.strip())


def _headers(value: str | Iterable[str]) -> frozenset[str]:
    return frozenset(name.lower() for name in _names(value))


def _seconds(value: Any) -> float:
    seconds = float(value)
    if not seconds >= 0 or math.isinf(seconds):
        msg = "it must be a number of seconds, 0 or more"
        raise ValueError(msg)
    return seconds


def _exception_signal(value: object) -> str:
    """Read the shared variable: a list, where what is not known says nothing to us."""
    said = {part.strip() for part in str(value).split(",")}
    return next((known for known in ("logs/dup", "logs") if known in said), "")


_CONVERT: dict[str, Callable[[Any], Any]] = {
    "mode": _mode,
    "max_parent_age": _seconds,
    "headerless": _one_of("trace_id", "none"),
    "create_spans": _flag,
    "settle_spans": _flag,
    "redis_spans": _flag,
    "system": str,
    "body_size": _flag,
    "captured_headers": _headers,
    "queues_without_propagation": _names,
    "queues_without_baggage": _names,
    "gauged_queues": _names,
    "publish_hook": _function,
    "process_hook": _function,
    "settle_hook": _function,
    "exception_signal": _exception_signal,
}

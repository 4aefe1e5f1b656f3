"""Headers and trace context for BabelQueue messages on Redis.

``frame_value``, ``unframe`` and ``headers_of`` speak the ``__bq_frame`` header frame. ``inject``
and ``extract`` move the trace context, and ``trace_id_of`` and ``uuid_of`` map an envelope's
``trace_id`` to an OpenTelemetry trace id and back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from babelqueue_carrier.errors import BabelQueueError, HeaderError
from babelqueue_carrier.frame import FRAME_KEY, frame_value, headers_of, unframe
from babelqueue_carrier.headers import Headers

if TYPE_CHECKING:
    from babelqueue_carrier.trace import extract, inject, trace_id_of, uuid_of

__all__ = [
    "FRAME_KEY",
    "BabelQueueError",
    "HeaderError",
    "Headers",
    "extract",
    "frame_value",
    "headers_of",
    "inject",
    "trace_id_of",
    "unframe",
    "uuid_of",
]

_FROM_TRACE = frozenset({"extract", "inject", "trace_id_of", "uuid_of"})


def __getattr__(name: str) -> Any:
    """Load the names that need OpenTelemetry on first use."""
    if name not in _FROM_TRACE:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    from babelqueue_carrier import trace  # noqa: PLC0415 - that is the point

    return getattr(trace, name)

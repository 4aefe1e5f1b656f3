"""Whether a stored value is an envelope. What is not is poison, and never reaches a handler."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from babelqueue_carrier.headers import ASCII_WHITESPACE
from babelqueue_redis.envelope import (
    FORBIDDEN_META_KEYS,
    SCHEMA_VERSION,
    Envelope,
    Int64,
    Meta,
    is_urn,
)
from babelqueue_redis.errors import PoisonError
from babelqueue_redis.strict_json import MAX_DEPTH, is_too_deep, read

logger = logging.getLogger("babelqueue_redis.envelope")

_ABSENT = Raw(b"")


class _WireMeta(msgspec.Struct):
    id: str | None = None
    queue: str | None = None
    lang: str | None = None
    schema_version: Int64 | None = None
    created_at: Int64 | None = None
    max_retries: Raw = _ABSENT
    attempts: Raw = _ABSENT
    source: Raw = _ABSENT
    ts: Raw = _ABSENT


class _WireDeadLetter(msgspec.Struct):
    reason: str | None = None
    error: str | None = None
    exception: str | None = None
    original_queue: str | None = None
    lang: str | None = None
    failed_at: Int64 | None = None
    attempts: Int64 | None = None


class _Wire(msgspec.Struct):
    """The known members, typed as the contract types them; unknown ones are skipped."""

    job: Any = UNSET
    urn: Any = UNSET
    trace_id: str | None = None
    data: dict[str, Any] | None = None
    meta: _WireMeta | None = None
    attempts: Int64 | None = None
    dead_letter: _WireDeadLetter | None = None
    timestamp: Raw = _ABSENT


_PLAIN = msgspec.json.Decoder(Envelope)  # it refuses members that are not its own
_WIRE = msgspec.json.Decoder(_Wire)
_NO_META = _WireMeta()


def verdict(body: bytes) -> Envelope | PoisonError:
    """Judge a stored body: the envelope it holds, or why it is poison.

    Members that are missing or ``null`` are no fault: they read as empty. A ``job`` that is not a
    string is ignored with a warning, a blank one silently, and ``urn`` stands in; other forbidden
    keys are dropped with a warning. Never raises.
    """
    return _plain(body) or _judged(body)


def _plain(body: bytes) -> Envelope | None:
    """Return the envelope of a body with none but the members of one; most bodies are such.

    It takes little more than half of what a full verdict takes.
    """
    try:
        if not body.isascii():
            body.decode("utf-8")  # msgspec is no judge of surrogates
        envelope = _PLAIN.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    is_sound = (
        envelope.meta.schema_version == SCHEMA_VERSION
        and envelope.job.strip(ASCII_WHITESPACE)
        and not (len(body) > MAX_DEPTH and is_too_deep(body))
    )
    return envelope if is_sound else None


def _judged(body: bytes) -> Envelope | PoisonError:
    wire = read(_WIRE, body)
    if isinstance(wire, PoisonError):
        return wire
    job, meta = wire.job, wire.meta or _NO_META
    if not is_urn(job):
        job = wire.urn
        if not is_urn(job):
            return PoisonError("neither 'job' nor 'urn' is a string that is not blank")
    if meta.schema_version not in (None, SCHEMA_VERSION):
        return PoisonError(f"meta.schema_version is {meta.schema_version}; only 1 is known")
    _warn_about_dropped_keys(wire, meta)
    return Envelope(
        job,
        wire.trace_id or "",
        wire.data or {},
        Meta(
            meta.id or "", meta.queue or "", meta.lang or "", SCHEMA_VERSION, meta.created_at or 0
        ),
        wire.attempts or 0,
    )


def decode(body: bytes) -> Envelope:
    """Return the envelope in ``body``, as :func:`verdict` judges it.

    Raises:
        PoisonError: It holds none.
    """
    judged = verdict(body)
    if isinstance(judged, PoisonError):
        raise judged
    return judged


def accepts(body: bytes) -> bool:
    """Tell whether ``body`` is what a producer should write.

    Stricter than :func:`verdict`, which decides what is delivered: a producer also owes a
    ``trace_id``, ``data``, ``meta.schema_version`` and ``attempts``.
    """
    wire = read(_WIRE, body)
    return (
        not isinstance(wire, PoisonError)
        and (is_urn(wire.job) or is_urn(wire.urn))
        and is_urn(wire.trace_id)
        and wire.data is not None
        and wire.attempts is not None
        and wire.meta is not None
        and wire.meta.schema_version == SCHEMA_VERSION
    )


def _warn_about_dropped_keys(wire: _Wire, meta: _WireMeta) -> None:
    if wire.job is not UNSET and not isinstance(wire.job, str):
        logger.warning("ignored /job: it is not a string (message %s)", meta.id)
    if wire.urn is not UNSET and is_urn(wire.job):
        logger.warning("dropped /urn: 'job' is there too (message %s)", meta.id)
    if wire.timestamp is not _ABSENT:
        logger.warning("dropped /timestamp: the contract forbids it (message %s)", meta.id)
    if meta.max_retries is meta.attempts is meta.source is meta.ts is _ABSENT:
        return
    for key in FORBIDDEN_META_KEYS:
        if getattr(meta, key) is not _ABSENT:
            logger.warning("dropped /meta/%s: the contract forbids it (message %s)", key, meta.id)

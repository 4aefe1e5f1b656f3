"""The frozen JSON envelope: make, encode, judge, and write again without loss.

An envelope has two forms here. :class:`Envelope` is the typed view that handlers read.
``members`` is the lossless document, a dict of top-level members that keeps every value as its
own bytes (``msgspec.Raw``): what a retry or a dead letter writes again differs from what was
stored in ``attempts`` and nothing else. Integers above 2^53, ``1.0``, ``1e400``, key order,
``[]`` and ``{}`` come back as they were.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Raw

from babelqueue_carrier.headers import ASCII_WHITESPACE
from babelqueue_redis.errors import EnvelopeError, PoisonError
from babelqueue_redis.strict_json import encoded, read

SCHEMA_VERSION = 1
LANG = "python"
INT64_MAX = 2**63 - 1
CORE_META_KEYS = ("id", "queue", "lang", "schema_version", "created_at")
FORBIDDEN_META_KEYS = ("max_retries", "attempts", "source", "ts")

logger = logging.getLogger("babelqueue_redis.envelope")

_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=INT64_MAX)]
_ABSENT = Raw(b"")


class Meta(msgspec.Struct, frozen=True):
    """The ``meta`` block. A member that the producer left out has an empty value.

    Attributes:
        id: The message's UUID.
        queue: The queue it was first published to.
        lang: The language of the SDK that produced it.
        schema_version: Always 1.
        created_at: When it was produced, epoch milliseconds.
    """

    id: str = ""
    queue: str = ""
    lang: str = ""
    schema_version: int = SCHEMA_VERSION
    created_at: int = 0


class Envelope(msgspec.Struct, frozen=True):
    """A decoded message.

    Attributes:
        job: The URN that routes it.
        trace_id: The id of the causal chain it belongs to; ``""`` when the producer gave none.
        data: The payload.
        meta: Who produced it, when, for which queue.
        attempts: How often it was tried before this delivery.
    """

    job: str
    trace_id: str = ""
    data: dict[str, Any] = {}
    meta: Meta = Meta()
    attempts: int = 0


class _WireMeta(msgspec.Struct):
    id: str | None = None
    queue: str | None = None
    lang: str | None = None
    schema_version: _Int64 | None = None
    created_at: _Int64 | None = None
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
    failed_at: _Int64 | None = None
    attempts: _Int64 | None = None


class _Wire(msgspec.Struct):
    """The known members, typed as the contract types them; unknown ones are skipped."""

    job: Any = UNSET
    urn: Any = UNSET
    trace_id: str | None = None
    data: dict[str, Any] | None = None
    meta: _WireMeta | None = None
    attempts: _Int64 | None = None
    dead_letter: _WireDeadLetter | None = None
    timestamp: Raw = _ABSENT


_WIRE = msgspec.json.Decoder(_Wire)
_MEMBERS = msgspec.json.Decoder(dict[str, Raw])
_ANY = msgspec.json.Decoder()


def make(  # noqa: PLR0913 - the members of an envelope
    urn: str,
    data: Mapping[str, Any] | Raw,
    *,
    queue: str,
    message_id: str,
    trace_id: str,
    created_at: int,
    meta: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the members of a new envelope, in the contract's key order.

    Args:
        urn: The URN; ASCII white space around it is trimmed.
        data: The payload, or the payload already encoded by :func:`encode_data`.
        queue: The logical queue name.
        message_id: A UUID.
        trace_id: A UUID, or whatever id the chain already has; trimmed like ``urn``.
        created_at: Epoch milliseconds.
        meta: Further ``meta`` entries, such as ``{"ext": {"acme": {…}}}``.

    Raises:
        EnvelopeError: The URN is blank, ``data`` is not JSON, or a ``meta`` key is taken.
    """
    core = (message_id, queue, LANG, SCHEMA_VERSION, created_at)
    return {
        "job": checked_urn(urn),
        "trace_id": trace_id.strip(ASCII_WHITESPACE),
        "data": data if isinstance(data, Raw) else encode_data(data),
        "meta": {**dict(zip(CORE_META_KEYS, core, strict=True)), **checked_meta(meta)},
        "attempts": 0,
    }


def encode(members: Mapping[str, Any]) -> bytes:
    """Return ``members`` as compact UTF-8 JSON.

    Raises:
        EnvelopeError: A forbidden key (``timestamp``, ``urn``, ``meta.max_retries``,
            ``meta.attempts``, ``meta.source``, ``meta.ts``) is present, or a value is not JSON.
    """
    meta = members.get("meta")
    forbidden = [f"/{key}" for key in ("timestamp", "urn") if key in members]
    if isinstance(meta, Mapping):
        forbidden += [f"/meta/{key}" for key in FORBIDDEN_META_KEYS if key in meta]
    if forbidden:
        msg = f"the envelope must not carry {forbidden[0]}: the contract forbids the key"
        raise EnvelopeError(msg)
    return encoded(members, "the envelope")


def encode_data(data: Mapping[str, Any]) -> Raw:
    """Return a payload as encoded JSON, ready for :func:`make`.

    Dates, UUIDs, decimals, dataclasses and the like take the text form that ``msgspec`` gives.

    Raises:
        EnvelopeError: It is not a mapping, or something in it has no JSON form: a NaN, a lone
            surrogate, an unsupported type, too deep a nesting.
    """
    if not isinstance(data, Mapping):
        msg = f"data must be a mapping, it becomes a JSON object; got {type(data).__name__}"
        raise EnvelopeError(msg)
    return Raw(encoded(dict(data), "data"))


def checked_urn(urn: str) -> str:
    """Return ``urn`` trimmed.

    Raises:
        EnvelopeError: It is blank, or not a ``str``.
    """
    trimmed = urn.strip(ASCII_WHITESPACE) if isinstance(urn, str) else ""
    if not trimmed:
        msg = f"a message needs a URN, for example urn:acme:orders:created; got {urn!r}"
        raise EnvelopeError(msg)
    return trimmed


def checked_meta(meta: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the extra ``meta`` entries as a fresh dict.

    Raises:
        EnvelopeError: A key is one of the core keys or forbidden, or is not a ``str``.
    """
    if meta is None:
        return {}
    if not isinstance(meta, Mapping):
        msg = f"meta must be a mapping of extra entries; got {type(meta).__name__}"
        raise EnvelopeError(msg)
    for key in meta:
        if key in CORE_META_KEYS or key in FORBIDDEN_META_KEYS or not isinstance(key, str):
            msg = f"/meta/{key} cannot be set: core and forbidden keys are not the producer's"
            raise EnvelopeError(msg)
    return dict(meta)


def verdict(body: bytes) -> Envelope | PoisonError:
    """Judge a stored body: the envelope it holds, or why it is poison.

    Members that are missing or ``null`` are no fault: they read as empty. A ``job`` that is not a
    string is ignored with a warning, a blank one silently, and ``urn`` stands in; other forbidden
    keys are dropped with a warning. Never raises.
    """
    wire = read(_WIRE, body)
    if isinstance(wire, PoisonError):
        return wire
    job = wire.job if _is_urn(wire.job) else wire.urn
    meta = wire.meta or _WireMeta()
    if not _is_urn(job):
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
        and (_is_urn(wire.job) or _is_urn(wire.urn))
        and not _is_blank(wire.trace_id)
        and wire.data is not None
        and wire.attempts is not None
        and wire.meta is not None
        and wire.meta.schema_version == SCHEMA_VERSION
    )


def members(body: bytes) -> dict[str, Any]:
    """Return the members of a body that :func:`verdict` found good, ready to be written again.

    Every value is kept as its own bytes. Forbidden keys are gone, ``urn`` is folded into ``job``.
    """
    found: dict[str, Any] = _MEMBERS.decode(body)
    found.pop("timestamp", None)
    alias = found.pop("urn", None)
    if not _is_urn(_value(found.get("job"))) and alias is not None:
        found = {"job": alias, **{key: raw for key, raw in found.items() if key != "job"}}
    meta = _value(found.get("meta"), _MEMBERS)
    if meta and any(key in meta for key in FORBIDDEN_META_KEYS):
        found["meta"] = {key: raw for key, raw in meta.items() if key not in FORBIDDEN_META_KEYS}
    return found


def strict_object(body: bytes) -> dict[str, Raw] | PoisonError:
    """Return the members of one JSON object in valid UTF-8, or why ``body`` is not one."""
    return read(_MEMBERS, body)


def with_attempts(body: bytes, attempts: int, **extra: Any) -> bytes:  # noqa: ANN401 - JSON
    """Return ``body`` with ``attempts`` replaced and ``extra`` members added."""
    return encode({**members(body), "attempts": attempts, **extra})


def _warn_about_dropped_keys(wire: _Wire, meta: _WireMeta) -> None:
    if wire.job is not UNSET and not isinstance(wire.job, str):
        logger.warning("ignored /job: it is not a string (message %s)", meta.id)
    if wire.urn is not UNSET and _is_urn(wire.job):
        logger.warning("dropped /urn: 'job' is there too (message %s)", meta.id)
    if wire.timestamp is not _ABSENT:
        logger.warning("dropped /timestamp: the contract forbids it (message %s)", meta.id)
    for key in FORBIDDEN_META_KEYS:
        if getattr(meta, key) is not _ABSENT:
            logger.warning("dropped /meta/%s: the contract forbids it (message %s)", key, meta.id)


def _value(raw: Raw | None, decoder: msgspec.json.Decoder[Any] = _ANY) -> Any:  # noqa: ANN401
    """Decode one member that is known to be JSON; ``None`` when it is absent or will not decode."""
    try:
        return None if raw is None or bytes(raw) == b"null" else decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None


def _is_urn(value: object) -> bool:
    return isinstance(value, str) and not _is_blank(value)


def _is_blank(value: str | None) -> bool:
    return value is None or not value.strip(ASCII_WHITESPACE)

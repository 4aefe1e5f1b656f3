"""The frozen JSON envelope: make it, encode it, and write it again without loss.

An envelope has two forms here. :class:`Envelope` is the typed view that handlers read, made by
:mod:`babelqueue_redis.verdict`. ``members`` is the lossless document, a dict of top-level members
that keeps every value as its own bytes (``msgspec.Raw``): what a retry or a dead letter writes
again has the same members in the same order, each with the bytes it had, and differs in
``attempts``. Integers above 2^53, ``1.0``, ``1e400``, ``[]`` and ``{}`` come back as they were.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Raw

from babelqueue_carrier.headers import ASCII_WHITESPACE, is_text
from babelqueue_redis.errors import EnvelopeError
from babelqueue_redis.strict_json import encoded

SCHEMA_VERSION = 1
LANG = "python"
INT64_MAX = 2**63 - 1
CORE_META_KEYS = ("id", "queue", "lang", "schema_version", "created_at")
FORBIDDEN_META_KEYS = ("max_retries", "attempts", "source", "ts")

_encode = msgspec.json.Encoder().encode
_MEMBERS = msgspec.json.Decoder(dict[str, Raw])
_ANY = msgspec.json.Decoder()

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=INT64_MAX)]
if TYPE_CHECKING:
    _Data = Any
else:
    _Data = dict[str, Any]  # what is read; a handler may be given another type


class Meta(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
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
    schema_version: Int64 = SCHEMA_VERSION
    created_at: Int64 = 0


class Envelope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A decoded message.

    Attributes:
        job: The URN that routes it.
        trace_id: The id of the causal chain it belongs to; ``""`` when the producer gave none.
        data: The payload, a ``dict`` or the type its handler asked for; the delivery's own.
        meta: Who produced it, when, for which queue.
        attempts: How often it was tried before this delivery.
    """

    job: str
    trace_id: str = ""
    data: _Data = msgspec.field(default_factory=dict)
    meta: Meta = Meta()
    attempts: Int64 = 0

    def __repr__(self) -> str:
        """Leave the payload out: logs are full of reprs."""
        return f"Envelope({self.job!r}, id {self.meta.id!r}, attempts {self.attempts})"


def make(
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
        "meta": {**dict(zip(CORE_META_KEYS, core, strict=True)), **encode_meta(meta)},
        "attempts": 0,
    }


def encode(members: Mapping[str, Any]) -> bytes:
    """Return ``members`` as compact UTF-8 JSON.

    Raises:
        EnvelopeError: A forbidden key (``timestamp``, ``urn``, ``meta.max_retries``,
            ``meta.attempts``, ``meta.source``, ``meta.ts``) is present.
    """
    meta = members.get("meta")
    forbidden = [f"/{key}" for key in ("timestamp", "urn") if key in members]
    if isinstance(meta, Mapping):
        forbidden += [f"/meta/{key}" for key in FORBIDDEN_META_KEYS if key in meta]
    if forbidden:
        msg = f"the envelope must not carry {forbidden[0]}: the contract forbids the key"
        raise EnvelopeError(msg)
    return _encode(members)


def written(
    urn: str,
    data: Raw,
    *,
    queue: str,
    message_id: str,
    trace_id: str,
    created_at: int,
    meta: Mapping[str, Raw],
) -> bytes:
    """Return what :func:`encode` of :func:`make` gives, for members that are checked already.

    What the envelopes of one URN and queue share is encoded once.
    """
    start, middle = _template(urn, queue)
    return b"".join(
        (
            start,
            _encode(trace_id),
            b',"data":',
            data,
            b',"meta":{"id":"',
            message_id.encode(),  # a UUID
            middle,
            b"%d" % created_at,
            b"," + _encode(meta)[1:-1] if meta else b"",
            b'},"attempts":0}',
        )
    )


def encode_data(data: Mapping[str, Any]) -> Raw:
    """Return a payload as encoded JSON, ready for :func:`make`.

    Dates, UUIDs, decimals, bytes, sets, dataclasses and the like take the form that ``msgspec``
    gives them.

    Raises:
        EnvelopeError: It is not a mapping, or something in it has no JSON form: a NaN, a lone
            surrogate, an unsupported type, too deep a nesting.
    """
    if type(data) is dict:
        return Raw(encoded(data, "data"))
    if not isinstance(data, Mapping):
        msg = f"data must be a mapping, it becomes a JSON object; got {type(data).__name__}"
        raise EnvelopeError(msg)
    return Raw(encoded(dict(data), "data"))


def encode_meta(meta: Mapping[str, Any] | None) -> dict[str, Raw]:
    """Return extra ``meta`` entries, each encoded.

    Raises:
        EnvelopeError: A key is one of the core keys or forbidden, or is not text, or a value is
            not JSON.
    """
    if meta is None:
        return {}
    if not isinstance(meta, Mapping):
        msg = f"meta must be a mapping of extra entries; got {type(meta).__name__}"
        raise EnvelopeError(msg)
    for key in meta:
        if not isinstance(key, str) or not is_text(key) or key in _TAKEN:
            why = _TAKEN.get(key, "no text") if isinstance(key, str) else "no text"
            msg = f"/meta/{key!s:.80} cannot be set: it is {why}"
            raise EnvelopeError(msg)
    return {
        key: value if isinstance(value, Raw) else Raw(encoded(value, f"/meta/{key}"))
        for key, value in meta.items()
    }


def checked_urn(urn: str) -> str:
    """Return ``urn`` trimmed.

    Raises:
        EnvelopeError: It is blank, or not text.
    """
    trimmed = _trimmed(urn) if isinstance(urn, str) else ""
    if not trimmed:
        got = repr(urn) if isinstance(urn, str) else f"a {type(urn).__name__}"
        msg = f"a message needs a URN, for example urn:acme:orders:created; got {got}"
        raise EnvelopeError(msg)
    return trimmed


def checked_trace_id(trace_id: str | None) -> str | None:
    """Return a given ``trace_id`` trimmed, and ``None`` for a blank one.

    Raises:
        EnvelopeError: It is not text.
    """
    if trace_id is None:
        return None
    if not isinstance(trace_id, str) or not is_text(trace_id):
        msg = f"trace_id must be text, a UUID for instance; got {type(trace_id).__name__}"
        raise EnvelopeError(msg)
    return trace_id.strip(ASCII_WHITESPACE) or None


def members(body: bytes) -> dict[str, Any]:
    """Return the members of a body that was judged good, ready to be written again.

    Every value is kept as its own bytes. Forbidden keys are gone, ``urn`` is folded into ``job``.
    """
    found: dict[str, Any] = _MEMBERS.decode(body)
    found.pop("timestamp", None)
    alias = found.pop("urn", None)
    if not is_urn(_value(found.get("job"))) and alias is not None:
        found = {"job": alias, **{key: raw for key, raw in found.items() if key != "job"}}
    meta = _value(found.get("meta"), _MEMBERS)
    if meta and any(key in meta for key in FORBIDDEN_META_KEYS):
        found["meta"] = {key: raw for key, raw in meta.items() if key not in FORBIDDEN_META_KEYS}
    return found


def with_attempts(body: bytes, attempts: int, **extra: Any) -> bytes:
    """Return ``body`` with ``attempts`` replaced and ``extra`` members added."""
    return encode({**members(body), "attempts": attempts, **extra})


def is_urn(value: object) -> bool:
    """Tell whether ``value`` can identify a message: text that is not blank."""
    return isinstance(value, str) and bool(value.strip(ASCII_WHITESPACE))


_TAKEN = {
    **dict.fromkeys(CORE_META_KEYS, "a core key, which the publisher writes"),
    **dict.fromkeys(FORBIDDEN_META_KEYS, "a key that the contract forbids"),
}


@functools.lru_cache(maxsize=256)
def _trimmed(urn: str) -> str:
    """Return ``urn`` trimmed; ``""`` when it is no text."""
    return urn.strip(ASCII_WHITESPACE) if is_text(urn) else ""


@functools.lru_cache(maxsize=256)
def _template(urn: str, queue: str) -> tuple[bytes, bytes]:
    """Return the text before ``trace_id``, and the text between ``meta.id`` and ``created_at``."""
    middle = {"queue": queue, "lang": LANG, "schema_version": SCHEMA_VERSION}
    start = b'{"job":' + _encode(urn) + b',"trace_id":'
    return start, b'",' + _encode(middle)[1:-1] + b',"created_at":'


def _value(raw: Raw | None, decoder: msgspec.json.Decoder[Any] = _ANY) -> Any:
    """Decode one member that is known to be JSON; ``None`` when it is absent or will not decode."""
    try:
        return None if raw is None or bytes(raw) == b"null" else decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None

"""The header frame: how headers ride beside an envelope in one Redis list element.

::

    {"__bq_frame":1,"headers":{"traceparent":"00-…"},"body":"<the envelope, as JSON text>"}

A publish without headers stores the bare envelope, byte for byte. A reader takes a value for a
frame when it is a JSON object with a truthy ``__bq_frame`` and a string ``body``; everything else
is a bare value with no headers. All functions take and give bytes, and imports stay within the
standard library, so that this module can be read, and ported, alone.
"""

from __future__ import annotations

import json
from typing import NoReturn

from babelqueue_carrier.headers import Headers, Number, clean, readable

FRAME_KEY = "__bq_frame"

_SENTINEL = f'"{FRAME_KEY}"'.encode()
_MAY_OPEN_AN_OBJECT = b"{ \t\r\n"


def frame_value(body: bytes, headers: Headers | None) -> bytes:
    """Return the bytes to store for ``body`` sent with ``headers``.

    Args:
        body: The envelope. Bytes that are not UTF-8 are kept as they are.
        headers: Text to text; empty names and values are dropped.

    Returns:
        ``body`` itself when no header is left, else the frame as compact JSON.

    Raises:
        HeaderError: A header is not text.
    """
    cleaned = clean(headers)
    if not cleaned:
        return body
    frame = {FRAME_KEY: 1, "headers": cleaned, "body": body.decode("utf-8", "surrogateescape")}
    text = json.dumps(frame, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogateescape")


def unframe(value: bytes) -> tuple[bytes, dict[str, str]]:
    """Split a stored value into the envelope's bytes and its headers; never raises.

    ``unframe(frame_value(body, headers))`` gives ``body`` and the clean ``headers`` back for any
    bytes. One layer is removed: a frame inside a frame is the inner message's business.

    Returns:
        ``(body, headers)``. For a bare value, whatever it holds, that is ``(value, {})``.
    """
    if value[:1] not in _MAY_OPEN_AN_OBJECT or _SENTINEL not in value:
        return value, {}
    try:
        frame = _DECODER.decode(value.decode("utf-8", "surrogateescape"))
        if isinstance(frame, dict) and _truthy(frame.get(FRAME_KEY)):
            body = frame.get("body")
            if isinstance(body, str) and not isinstance(body, Number):
                return _bytes_of(body, value), readable(frame.get("headers"))
    except (ValueError, RecursionError):
        pass
    return value, {}


def headers_of(value: bytes) -> dict[str, str]:
    """Return the headers of a stored value; ``{}`` for a bare one. Never raises."""
    return unframe(value)[1]


def _bytes_of(body: str, value: bytes) -> bytes:
    """Encode the body of a frame.

    The body may hold surrogates for two reasons: the value's own bytes were not UTF-8 (give those
    bytes back), or the JSON text spelled a lone surrogate as an escape (encode it, so that what
    follows sees that it is not UTF-8).
    """
    try:
        return body.encode("utf-8")
    except UnicodeEncodeError:
        return body.encode("utf-8", "surrogatepass" if _is_utf8(value) else "surrogateescape")


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _truthy(sentinel: object) -> bool:
    if isinstance(sentinel, Number):
        return float(sentinel) != 0
    return bool(sentinel)


def _refuse(constant: str) -> NoReturn:
    msg = f"{constant} is not JSON"
    raise ValueError(msg)


# Number literals are kept as text: a 5 000-digit integer costs nothing and raises nothing.
_DECODER = json.JSONDecoder(parse_int=Number, parse_float=Number, parse_constant=_refuse)

"""The header frame: how headers ride beside an envelope in one Redis list element.

::

    {"__bq_frame":1,"headers":{"traceparent":"00-…"},"body":"<the envelope, as JSON text>"}

A publish without headers stores the bare envelope, byte for byte. A reader takes a value for a
frame when it is a JSON object with a truthy ``__bq_frame`` and a string ``body``; everything else
is a bare value with no headers. All functions take and give bytes. Only the standard library and
what a header is (``headers.py``) are imported, so that the codec can be read, and ported, alone.
"""

from __future__ import annotations

import json
from typing import NoReturn

from babelqueue_carrier.headers import Headers, clean, is_text

FRAME_KEY = "__bq_frame"

_SENTINEL = f'"{FRAME_KEY}"'.encode()
_MAY_OPEN_AN_OBJECT = b"{ \t\r\n"


class _Number(str):
    """The literal of a JSON number, kept as it was written."""

    __slots__ = ()


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
    headers_text = ",".join([f"{_quoted(name)}:{_quoted(text)}" for name, text in cleaned.items()])
    body_text = _quoted(body.decode("utf-8", "surrogateescape"))
    text = f'{{"{FRAME_KEY}":1,"headers":{{{headers_text}}},"body":{body_text}}}'
    return text.encode("utf-8", "surrogateescape")


def unframe(value: bytes) -> tuple[bytes, dict[str, str]]:
    """Split a stored value into the envelope's bytes and its headers; never raises.

    ``unframe(frame_value(body, headers))`` gives ``body`` and the clean ``headers`` back for any
    bytes. One layer is removed: a frame inside a frame is the inner message's business.

    Returns:
        ``(body, headers)``. For a bare value, whatever it holds, that is ``(value, {})``.
    """
    if _SENTINEL not in value or value[:1] not in _MAY_OPEN_AN_OBJECT:
        return value, {}
    try:
        frame = _DECODER.decode(value.decode("utf-8", "surrogateescape"))
        if isinstance(frame, dict) and _truthy(frame.get(FRAME_KEY)):
            body = frame.get("body")
            if isinstance(body, str) and not isinstance(body, _Number):
                return _bytes_of(body, value), _readable(frame.get("headers"))
    except (ValueError, RecursionError):
        pass
    return value, {}


def headers_of(value: bytes) -> dict[str, str]:
    """Return the headers of a stored value; ``{}`` for a bare one. Never raises."""
    return unframe(value)[1]


def is_utf8(value: bytes) -> bool:
    """Tell whether ``value`` is UTF-8 throughout."""
    try:
        value.isascii() or value.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _bytes_of(body: str, value: bytes) -> bytes:
    """Encode the body of a frame.

    The body may hold surrogates for two reasons: the value's own bytes were not UTF-8 (give those
    bytes back), or the JSON text spelled a lone surrogate as an escape (encode it, so that what
    follows sees that it is not UTF-8).
    """
    try:
        return body.encode("utf-8")
    except UnicodeEncodeError:
        return body.encode("utf-8", "surrogatepass" if is_utf8(value) else "surrogateescape")


def _readable(headers: object) -> dict[str, str]:
    """Take what another producer wrote as far as it goes.

    Numbers keep their literal, booleans become ``true`` and ``false``. ``null``, empty text, text
    with a lone surrogate, objects and arrays have no text form and are left out.
    """
    if not isinstance(headers, dict):
        return {}
    found: dict[str, str] = {}
    for name, value in headers.items():
        text = ("true" if value else "false") if isinstance(value, bool) else value
        if isinstance(text, str) and text and name and is_text(name) and is_text(text):
            found[name] = str(text)
    return found


def _truthy(sentinel: object) -> bool:
    if isinstance(sentinel, _Number):
        return float(sentinel) != 0
    return bool(sentinel)


def _refuse(constant: str) -> NoReturn:
    msg = f"{constant} is not JSON"
    raise ValueError(msg)


# A third of what ``json.dumps`` costs, which makes an encoder each time: text alone needs none.
_quoted = json.JSONEncoder(ensure_ascii=False).encode
# Number literals are kept as text: a 5 000-digit integer costs nothing and raises nothing.
_DECODER = json.JSONDecoder(parse_int=_Number, parse_float=_Number, parse_constant=_refuse)

"""JSON as the contract means it: one value, valid UTF-8 throughout, finite, of bounded depth.

``msgspec`` is strict in most of that. What it leaves open is closed here: it skips unknown members
without looking at their bytes, writes ``null`` for a NaN, and bounds depth by the interpreter's
stack.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, TypeVar

import msgspec

from babelqueue_redis.errors import EnvelopeError, PoisonError

MAX_DEPTH = 500
"""Arrays and objects nested deeper are poison. Half of what CPython 3.10 can follow at all, so that
a verdict does not depend on how deep in the program it is asked for."""

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode
_SYNTAX = msgspec.json.Decoder(msgspec.Raw)
_STEP = {ord("["): 1, ord("]"): -1}
_SQUARE = bytes.maketrans(b"{}", b"[]")
_NO_MARKS = bytes(set(range(256)) - set(b'{}[]"'))
_PEELED = 16


def read(decoder: msgspec.json.Decoder[T], body: bytes) -> T | PoisonError:
    """Return what ``decoder`` makes of ``body``, or why it is not the JSON it should be."""
    try:
        if not body.isascii():
            body.decode("utf-8")  # msgspec skips unknown members without looking at their bytes
        decoded = decoder.decode(body)
    except UnicodeDecodeError:
        return PoisonError("the bytes are not UTF-8")
    except msgspec.ValidationError as error:
        return PoisonError(f"a member has the wrong type: {error}")
    except (msgspec.DecodeError, RecursionError) as error:
        return PoisonError(f"it is not one JSON object: {error}")
    if is_too_deep(body):
        return PoisonError(f"the JSON is nested deeper than {MAX_DEPTH} levels")
    return decoded


def encoded(value: Any, what: str) -> bytes:
    """Return ``value`` as compact JSON that :func:`read` accepts.

    Raises:
        EnvelopeError: It has no JSON form; ``what`` names it in the message.
    """
    try:
        text = _encode(value)
        _SYNTAX.decode(text)  # a msgspec.Raw in the value may hold anything
        # msgspec writes null for a float that JSON does not have.
        non_finite = b"null" in text and _holds_non_finite(msgspec.to_builtins(value))
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
        msg = f"{what} has no JSON form: {error}"
        raise EnvelopeError(msg) from error
    if non_finite:
        msg = f"{what} has no JSON form: it holds a NaN or an infinity"
        raise EnvelopeError(msg)
    if is_too_deep(text):
        msg = f"{what} is nested deeper than {MAX_DEPTH} levels, which consumers refuse"
        raise EnvelopeError(msg)
    return text


def _holds_non_finite(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(map(_holds_non_finite, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_holds_non_finite, value))
    return False


def is_too_deep(text: bytes) -> bool:
    """Tell whether valid JSON is nested too deep; brackets in text do not count."""
    if len(text) <= MAX_DEPTH or text.count(b"[") + text.count(b"{") <= MAX_DEPTH:
        return False
    unescaped = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    marks = unescaped.translate(_SQUARE, _NO_MARKS).replace(b'""', b"")
    brackets = b"".join(marks.split(b'"')[::2])
    for _ in range(_PEELED):  # a level each, at the speed of C: few documents have more
        brackets = brackets.replace(b"[]", b"")
    depths = itertools.accumulate(map(_STEP.__getitem__, brackets))
    return max(depths, default=0) > MAX_DEPTH - _PEELED

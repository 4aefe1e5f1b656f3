"""JSON as the contract means it: one value, valid UTF-8 throughout, finite, of bounded depth.

``msgspec`` is strict in most of that. What it leaves open is closed here: it skips unknown members
without looking at their bytes, writes ``null`` for a NaN, and bounds depth by the interpreter's
stack.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from babelqueue_redis.errors import EnvelopeError, PoisonError

MAX_DEPTH = 1000
"""Arrays and objects nested deeper are poison, as they are for Redis' own JSON library."""

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode
_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)


def read(decoder: msgspec.json.Decoder[T], body: bytes) -> T | PoisonError:
    """Return what ``decoder`` makes of ``body``, or why it is not the JSON it should be."""
    try:
        if not body.isascii():
            body.decode("utf-8")  # msgspec skips unknown members without looking at their bytes
        if _is_too_deep(body):
            return PoisonError(f"the JSON is nested deeper than {MAX_DEPTH} levels")
        return decoder.decode(body)
    except UnicodeDecodeError:
        return PoisonError("the bytes are not UTF-8")
    except msgspec.ValidationError as error:
        return PoisonError(f"a member has the wrong type: {error}")
    except (msgspec.DecodeError, RecursionError) as error:
        return PoisonError(f"it is not one JSON object: {error}")


def encoded(value: Any, what: str) -> bytes:  # noqa: ANN401 - whatever the caller hopes is JSON
    """Return ``value`` as compact JSON that :func:`read` accepts.

    Raises:
        EnvelopeError: It has no JSON form; ``what`` names it in the message.
    """
    try:
        text = _encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        msg = f"{what} has no JSON form: {error}"
        raise EnvelopeError(msg) from error
    if b"null" in text and _holds_non_finite(value):
        msg = f"{what} has no JSON form: it holds a NaN or an infinity"
        raise EnvelopeError(msg)
    if _is_too_deep(text):
        msg = f"{what} is nested deeper than {MAX_DEPTH} levels, which consumers refuse"
        raise EnvelopeError(msg)
    return text


def _holds_non_finite(value: Any) -> bool:  # noqa: ANN401
    """Tell whether ``msgspec`` wrote ``null`` for a float that JSON does not have."""
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, Mapping):
        return any(map(_holds_non_finite, value.values()))
    if isinstance(value, list | tuple | set | frozenset):
        return any(map(_holds_non_finite, value))
    return False


def _is_too_deep(text: bytes) -> bool:
    if text.count(b"[") + text.count(b"{") <= MAX_DEPTH:
        return False
    depth = 0
    for byte in _STRINGS.sub(b"", text):
        depth += (byte in b"[{") - (byte in b"]}")
        if depth > MAX_DEPTH:
            return True
    return False

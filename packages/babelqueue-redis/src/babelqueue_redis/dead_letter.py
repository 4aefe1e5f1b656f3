"""What is written into a dead-letter queue."""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from babelqueue_redis import envelope
from babelqueue_redis.envelope import LANG
from babelqueue_redis.errors import PoisonError
from babelqueue_redis.strict_json import read

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_MAX_ERROR = 2000
"""Characters of an exception's message that a record keeps."""


def block(
    reason: str,
    *,
    error: str | None,
    exception: str | None,
    failed_at: int,
    original_queue: str,
    attempts: int,
) -> dict[str, Any]:
    """Return the ``dead_letter`` member.

    Args:
        reason: ``failed``, ``unknown_urn`` or ``poison``.
        error: The exception's message; shortened when it is longer than 2 000 characters.
        exception: The exception's qualified class name.
        failed_at: Epoch milliseconds.
        original_queue: ``meta.queue``, or the queue it was consumed from.
        attempts: The raised count.
    """
    return {
        "reason": reason,
        "error": _as_text(error),
        "exception": _as_text(exception),
        "failed_at": failed_at,
        "original_queue": original_queue,
        "attempts": attempts,
        "lang": LANG,
    }


def record(body: bytes, dead_letter: dict[str, Any]) -> bytes:
    """Return a good envelope with its attempts raised and ``dead_letter`` attached."""
    return envelope.with_attempts(body, dead_letter["attempts"], dead_letter=dead_letter)


def poison_record(body: bytes, dead_letter: dict[str, Any]) -> bytes:
    """Return the record of a body that is no envelope.

    A strict JSON object without a ``dead_letter`` of its own gets one spliced in, so that its
    other bytes stay what they were. Everything else is wrapped: as text in ``raw`` when it is
    UTF-8, else as base64 with ``raw_encoding``.
    """
    encoded = msgspec.json.encode(dead_letter)
    if _is_spliceable(body):
        head = body.strip(b" \t\r\n")[:-1].rstrip(b" \t\r\n")
        comma = b"" if head == b"{" else b","
        return head + comma + b'"dead_letter":' + encoded + b"}"
    wrapper: dict[str, Any] = {}
    try:
        wrapper["raw"] = body.decode("utf-8")
    except UnicodeDecodeError:
        wrapper["raw"] = base64.b64encode(body).decode("ascii")
        wrapper["raw_encoding"] = "base64"
    return msgspec.json.encode({**wrapper, "dead_letter": msgspec.Raw(encoded)})


def revived(body: bytes) -> bytes:
    """Return a dead letter that is a good envelope as a message that was never tried."""
    members = {**envelope.members(body), "attempts": 0}
    members.pop("dead_letter", None)
    return envelope.encode(members)


def _is_spliceable(body: bytes) -> bool:
    members = read(_OBJECT, body)
    return not isinstance(members, PoisonError) and "dead_letter" not in members


def _as_text(error: str | None) -> str | None:
    if error is None:
        return None
    return error[:_MAX_ERROR].encode("utf-8", "replace").decode("utf-8")

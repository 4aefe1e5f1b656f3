"""Messages and jobs as they are shown."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

from babelqueue_redis.cli.output import Output, shown
from babelqueue_redis.core.stored import StoredMessage

_LONGEST = 1000
"""Characters of a payload that are shown."""


def message_document(message: StoredMessage) -> dict[str, Any]:
    """Return the JSON shape of a message."""
    envelope, dead = message.envelope, message.dead_letter
    meta = envelope.meta if envelope else None
    try:
        body, encoding = message.body.decode(), "utf-8"
    except UnicodeDecodeError:
        body, encoding = base64.b64encode(message.body).decode(), "base64"
    return {
        "state": message.state,
        "id": message.message_id,
        "urn": message.urn,
        "trace_id": envelope.trace_id if envelope else "",
        "attempts": envelope.attempts if envelope else None,
        "created_at": meta.created_at if meta else None,
        "lang": meta.lang if meta else "",
        "headers": dict(message.headers),
        "data": envelope.data if envelope else None,
        "poison": message.poison,
        "dead_letter": {name: getattr(dead, name) for name in dead.__struct_fields__}
        if dead.reason
        else None,
        "body": body,
        "body_encoding": encoding,
        "bytes": len(message.stored),
    }


def write_message(output: Output, message: StoredMessage, *, full: bool = False) -> None:
    """Write a message: a few lines for people, or a JSON line."""
    if output.json:
        output.document(message_document(message))
        return
    envelope, dead = message.envelope, message.dead_letter
    if envelope is None:
        output.line((message.state, "bold"), "  ", ("poison", "red"))
    else:
        made = envelope.meta.created_at
        age = f"  {ago(made)}" if made else ""
        output.line(
            (message.state, "bold"),
            "  ",
            (shown(message.urn), "cyan"),
            f"  attempts {envelope.attempts}{age}  {shown(envelope.meta.lang)}",
        )
        output.line(("  id       ", "dim"), shown(message.message_id))
        output.line(("  trace    ", "dim"), shown(envelope.trace_id))
    for name, value in message.headers.items():
        output.line(("  header   ", "dim"), cut(f"{name}: {value}", full=full))
    if dead.reason:
        why = ": ".join(shown(part) for part in (dead.exception, dead.error) if part)
        source = shown(dead.original_queue or "?")
        output.line(("  dead     ", "dim"), (shown(dead.reason), "red"), f"  {why} (from {source})")
    if message.poison:
        output.line(("  poison   ", "dim"), (shown(message.poison), "red"))
    if envelope is None:
        output.line(("  body     ", "dim"), cut(message.body, full=full))
    else:
        data = json.dumps(envelope.data, ensure_ascii=False, separators=(",", ":"))
        output.line(("  data     ", "dim"), cut(data, full=full))


def cut(value: str | bytes, *, full: bool) -> str:
    """Return what is shown of a payload."""
    if full or len(value) <= _LONGEST:
        return shown(value)
    return f"{shown(value[:_LONGEST])} … ({len(value)} in all; --full shows them)"


def ago(epoch_ms: int) -> str:
    """Return how long ago a moment was, in one number."""
    seconds = time.time() - epoch_ms / 1000
    if seconds < 0:
        return "from the future"
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"

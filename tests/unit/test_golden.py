"""Bytes that other languages read, in files: they were written by the reference SDK."""

from __future__ import annotations

import json
from pathlib import Path

from babelqueue_carrier import frame_value, unframe
from babelqueue_redis.dead_letter import block, record
from babelqueue_redis.envelope import encode, make
from babelqueue_redis.verdict import decode

GOLDEN = Path(__file__).parents[1] / "golden"
ENVELOPE = (GOLDEN / "envelope.json").read_bytes()
FRAME = (GOLDEN / "frame.json").read_bytes()
DEAD_LETTER = (GOLDEN / "dead-letter.json").read_bytes()


def test_the_envelope_is_written_and_read() -> None:
    """Byte for byte."""
    document = json.loads(ENVELOPE)
    meta = document["meta"]
    members = make(
        document["job"],
        document["data"],
        queue=meta["queue"],
        message_id=meta["id"],
        trace_id=document["trace_id"],
        created_at=meta["created_at"],
    )
    assert encode(members) == ENVELOPE
    assert decode(ENVELOPE).data == document["data"]


def test_the_frame_is_written_and_read() -> None:
    """Byte for byte."""
    headers = json.loads(FRAME)["headers"]
    assert frame_value(ENVELOPE, headers) == FRAME
    assert unframe(FRAME) == (ENVELOPE, headers)


def test_the_dead_letter_is_written() -> None:
    """Ours: its members and their order are the contract's."""
    about = block(
        "failed",
        error="boom",
        exception="ValueError",
        failed_at=1749132727000,
        original_queue="orders",
        attempts=3,
    )
    assert record(ENVELOPE, about) == DEAD_LETTER

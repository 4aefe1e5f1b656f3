"""What a hostile producer can make a consumer need: so many bytes for each of its own, no more."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable

import pytest

from babelqueue_carrier.frame import unframe
from babelqueue_redis import PayloadError, dead_letter
from babelqueue_redis.core.stored import stored_message
from babelqueue_redis.envelope import with_attempts
from babelqueue_redis.jobs.registry import JobRegistry
from babelqueue_redis.verdict import verdict

SIZE = 100_000
FACTOR = 80
"""Python's own objects: a dict of one member, 7 bytes of JSON, is some 320 bytes."""


def body(data: bytes) -> bytes:
    """An envelope with this for its data."""
    return b'{"job":"urn:a","data":{"a":' + data + b'},"meta":{"id":"1"},"attempts":0}'


def listed(piece: bytes) -> bytes:
    """An array of one piece, again and again."""
    return b"[" + b",".join([piece] * (SIZE // len(piece))) + b"]"


def members(piece: bytes) -> bytes:
    """An object of many members."""
    return b"{" + b",".join(b'"%d":%b' % (n, piece) for n in range(SIZE // 8)) + b"}"


BODIES = {
    "nested arrays": body(b"[" * SIZE + b"]" * SIZE),
    "nested objects": body(b'{"a":' * (SIZE // 5) + b"1" + b"}" * (SIZE // 5)),
    "brackets": b"[" * SIZE,
    "numbers": body(listed(b"0")),
    "empty arrays": body(listed(b"[]")),
    "empty objects": body(listed(b"{}")),
    "small objects": body(listed(b'{"":0}')),
    "small arrays": body(listed(b"[0]")),
    "floats": body(listed(b"1e9")),
    "members": body(members(b"0")),
    "unknown members": b'{"job":"urn:a","x":' + listed(b"{}") + b"}",
    "wide text": body(b'"' + b"a" * SIZE + "\U0001f600".encode() + b'"'),
    "escapes": body(b'"' + b"\\u0001" * (SIZE // 6) + b'"'),
    "a long number": body(b"9" * SIZE),
    "headers": b'{"__bq_frame":1,"headers":' + members(b'"x"') + b',"body":"{}"}',
    "no headers": b'{"__bq_frame":1,"headers":' + listed(b"{}") + b',"body":"{}"}',
    "an archive": b"PK\x03\x04" + b"\0" * SIZE,
    "no text": b"\xff" * SIZE,
}


def job(raw: bytes) -> object:
    """Decode a payload, as a worker does."""
    try:
        return JobRegistry().decode("a", raw)
    except PayloadError as error:
        return error


def retried(raw: bytes) -> bytes | None:
    """Write a retry, of what can be retried."""
    return None if isinstance(verdict(raw), Exception) else with_attempts(raw, 1)


READERS: dict[str, Callable[[bytes], object]] = {
    "unframe": unframe,
    "verdict": verdict,
    "peek": lambda raw: stored_message("dead", raw, framed=True),
    "dead letter": lambda raw: dead_letter.poison_record(raw, {}),
    "retry": retried,
    "job": job,
}


@pytest.mark.parametrize("shape", BODIES)
@pytest.mark.parametrize("reader", READERS)
def test_memory_is_bounded_by_the_size_of_a_body(shape: str, reader: str) -> None:
    """However it is nested and whatever it repeats; nothing is ever unpacked."""
    raw, read = BODIES[shape], READERS[reader]
    read(b"{}")
    gc.collect()
    tracemalloc.start()
    try:
        result = read(raw)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert result is None or result
    assert peak <= FACTOR * len(raw)


@pytest.mark.parametrize("shape", BODIES)
def test_what_is_written_back_is_not_much_longer(shape: str) -> None:
    """A control character is six in JSON; a dead letter of a dead letter is no power of that."""
    raw = BODIES[shape]
    once = dead_letter.poison_record(raw, {})
    assert len(once) <= 6 * len(raw) + 100
    assert len(dead_letter.poison_record(once, {})) <= 2 * len(once) + 100

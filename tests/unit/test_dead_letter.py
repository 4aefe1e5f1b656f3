from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from babelqueue_redis.dead_letter import block, poison_record, record

BLOCK: dict[str, Any] = block(
    "failed",
    error="boom",
    exception="ValueError",
    failed_at=1749132727000,
    original_queue="orders",
    attempts=3,
)
ENCODED = json.dumps(BLOCK, separators=(",", ":")).encode()


def test_a_block_has_the_members_of_the_contract_in_order() -> None:
    """Golden: other languages read them."""
    assert ENCODED == (
        b'{"reason":"failed","error":"boom","exception":"ValueError","failed_at":1749132727000,'
        b'"original_queue":"orders","attempts":3,"lang":"python"}'
    )


def test_a_dead_letter_keeps_every_other_byte() -> None:
    """Attempts and the block, nothing else."""
    body = b'{"job":"urn:a","data":{"f":1.0,"i":9007199254740993},"attempts":2,"x":[ ]}'
    assert record(body, BLOCK) == (
        body[:-1].replace(b'"attempts":2', b'"attempts":3') + b',"dead_letter":' + ENCODED + b"}"
    )


def test_a_block_replaces_an_older_one() -> None:
    """A message may die twice."""
    again = json.loads(record(record(b'{"job":"urn:a"}', BLOCK), {**BLOCK, "attempts": 9}))
    assert again["dead_letter"]["attempts"] == 9


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"{}", b'{"dead_letter":%b}'),
        (b" { } ", b'{"dead_letter":%b}'),
        (b'\n{"a":1e400, "a":2 }\n', b'{"a":1e400, "a":2,"dead_letter":%b}'),
        (b"text", b'{"raw":"text","dead_letter":%b}'),
        (b"", b'{"raw":"","dead_letter":%b}'),
        (b"\xff", b'{"raw":"/w==","raw_encoding":"base64","dead_letter":%b}'),
    ],
)
def test_a_poison_record_is_a_splice_or_a_wrapper(body: bytes, expected: bytes) -> None:
    """Golden: the bytes other languages read."""
    assert poison_record(body, BLOCK) == expected.replace(b"%b", ENCODED)


@given(st.one_of(st.binary(), st.text().map(lambda s: s.encode("utf-8", "surrogatepass"))))
def test_no_byte_of_poison_is_lost(body: bytes) -> None:
    """The record gives the body back, exactly."""
    document = json.loads(poison_record(body, BLOCK))
    assert document["dead_letter"] == BLOCK
    if "raw_encoding" in document:
        assert base64.b64decode(document["raw"]) == body
    elif "raw" in document and b'"raw"' not in body:
        assert document["raw"].encode() == body


@pytest.mark.parametrize("error", ["x" * 5000, "\ud800 lone", None])
def test_an_exceptions_message_is_made_fit_to_store(error: str | None) -> None:
    """Shortened to 2 000 characters, and encodable."""
    made = block("failed", error=error, exception=None, failed_at=0, original_queue="q", attempts=1)
    text = record(b'{"job":"urn:a"}', made)
    stored = json.loads(text)["dead_letter"]["error"]
    assert stored is None if error is None else len(stored) <= 2000

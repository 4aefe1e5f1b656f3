"""What each section of the suite asks, put to this implementation.

A check returns when the case passes, raises ``AssertionError`` when it fails, and :class:`Skip`
where the suite allows a skip.
"""

from __future__ import annotations

import base64
import itertools
import json
import logging
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry.trace import get_current_span

from babelqueue_carrier.trace import extract, parent_span_id_of
from babelqueue_redis import dead_letter, envelope, verdict
from babelqueue_redis.core.retry import backoff, due_at
from babelqueue_redis.errors import EnvelopeError, PoisonError
from tests.conformance.suite import Case, fixture

ID = "f1e2d3c4-b5a6-4789-90ab-cdef01234567"


class Skip(Exception):  # noqa: N818 - it is no error
    """The suite allows to skip the case; the message says why, with the ADR."""


def check_cases(case: Case) -> None:
    """A canonical envelope decodes to what it says; an invalid one is refused."""
    content = case.content
    body = fixture(content["file"])
    if not content["valid"]:
        assert isinstance(verdict.verdict(body), PoisonError)
        return
    expected = content["expect"]
    found = verdict.decode(body)
    assert found.job == expected["urn"]
    assert same(found.data, expected["data"])
    assert found.attempts == expected["attempts"]
    assert found.meta.lang == expected["lang"]
    assert found.meta.schema_version == expected["schema_version"]
    block = json.loads(body).get("dead_letter", {})
    for key, value in expected.get("dead_letter", {}).items():
        assert block[key] == value


def check_redis(case: Case, shell: str) -> None:
    """The element in Redis is the envelope, byte for byte, before and after a reserve."""
    from tests.conformance.layouts import round_trip  # noqa: PLC0415 - needs a Redis

    body = fixture(case.content["envelope_file"])
    assert round_trip(body, shell) == (body, body)


def check_roundtrip(case: Case) -> None:
    """What a retry or a dead letter writes keeps everything but the count."""
    content = case.content
    body = fixture(content["file"])
    with warnings() as warned:
        found = verdict.decode(body)
    assert not warned
    attempts = found.attempts + 1
    again = envelope.with_attempts(body, attempts)
    moved = content.get("apply_dead_letter")
    if moved:
        block = dead_letter.block(
            moved["reason"],
            error="it failed",
            exception="ValueError",
            failed_at=1749132727000,
            original_queue=moved["original_queue"],
            attempts=attempts,
        )
        again = dead_letter.record(body, block)
    document = json.loads(again)
    assert document["attempts"] == content["expect_attempts"]
    check_pointers(document, content)
    for key, value in content.get("expect_dead_letter", {}).items():
        assert same(document["dead_letter"][key], value)


def check_data_shape(case: Case) -> None:
    """``data`` is an object on the wire, an empty one too."""
    content = case.content
    if content["mode"] == "encode":
        text = made(content)
        assert f'"data":{content["expect_encoded_data_json"]},'.encode() in text
    else:
        judged = verdict.verdict(fixture(content["file"]))
        assert isinstance(judged, PoisonError) is not content["valid"]


def check_forbidden_keys(case: Case) -> None:
    """Decoding drops a forbidden key and says so; writing again does not bring it back."""
    content = case.content
    body = fixture(content["file"])
    with warnings() as warned:
        verdict.decode(body)
    assert any(content["forbidden_key"] in message for message in warned)
    check_pointers(json.loads(envelope.encode(envelope.members(body))), content)


def check_extension_write(case: Case) -> None:
    """Extra ``meta`` entries are written beside the core ones, and survive a retry."""
    content = case.content
    text = made(content)
    again = envelope.with_attempts(text, verdict.decode(text).attempts + 1)
    for document in (json.loads(text), json.loads(again)):
        for pointer, value in content["expect_envelope"].items():
            assert same(at(document, pointer), value)
    assert json.loads(again)["attempts"] == 1


def check_encode_reject(case: Case) -> None:
    """A forbidden or reserved key is an error, whichever way it comes."""
    content = case.content
    if "meta_entries" in content:
        msg = "ADR-0031: meta is one mapping here, in which a key cannot be repeated"
        raise Skip(msg)

    def produce() -> None:
        document = envelope.make(content["urn"], content["data"], **CORE, meta=content.get("meta"))
        document.update(content.get("extras_top", {}))
        document["meta"].update(content.get("extras_meta", {}))
        envelope.encode(document)

    assert content["offending_key"] in refusal_of(produce)


def check_trim(case: Case) -> None:
    """Only ASCII white space is trimmed, and only by the producer."""
    TRIM_MODES[case.content["mode"]](case.content)


def trim_make(content: dict[str, Any]) -> None:
    """The producer trims the URN and the trace id."""
    fields = {**CORE, "trace_id": content.get("trace_id", CORE["trace_id"])}
    if content["expect"] == "reject":
        assert refusal_of(lambda: envelope.make(content["urn"], {}, **fields))
        return
    document = json.loads(envelope.encode(envelope.make(content["urn"], {}, **fields)))
    for key, value in content["expect"].items():
        assert document[key] == value


def trim_decode(content: dict[str, Any]) -> None:
    """The consumer decides by the same set what is blank."""
    with warnings() as warned:
        judged = verdict.verdict(fixture(content["file"]))
    if not content["valid"]:
        assert isinstance(judged, PoisonError)
        return
    assert not isinstance(judged, PoisonError)
    assert judged.job == content["expect"]["urn"]
    assert bool(warned) is content["expect_warning"]


def trim_accepts(content: dict[str, Any]) -> None:
    """A blank trace id is not what a producer should write, but it is delivered."""
    body = fixture(content["file"])
    assert verdict.accepts(body) is content["expect_accepts"]
    if content["expect_decode_ok"]:
        verdict.decode(body)


def trim_reemit(content: dict[str, Any]) -> None:
    """Writing again never trims."""
    body = fixture(content["file"])
    again = json.loads(envelope.with_attempts(body, verdict.decode(body).attempts + 1))
    assert again["attempts"] == content["expect_attempts"]
    check_pointers(again, content)


TRIM_MODES: dict[str, Callable[[dict[str, Any]], None]] = {
    "make": trim_make,
    "decode": trim_decode,
    "accepts": trim_accepts,
    "reemit": trim_reemit,
}


def check_job_type(case: Case) -> None:
    """A ``job`` that is not a string is ignored, with a warning."""
    trim_decode({"expect_warning": None, **case.content})


def check_traceparent(case: Case) -> None:
    """A valid ``traceparent`` wins; anything else falls back to the envelope's trace id."""
    content = case.content
    expected = content["expect"]
    given = content["traceparent"]
    headers = {} if given is None else {"traceparent": given}
    found = get_current_span(extract(headers, content["trace_id"])).get_span_context()
    assert f"{found.trace_id:032x}" == expected["trace_id_hex"]
    if expected["source"] == "traceparent":
        assert f"{found.span_id:016x}" == expected["parent_span_id"]
        assert f"{found.trace_flags:02x}" == expected["flags"]
    else:
        assert found.span_id == parent_span_id_of(content["trace_id"])


def check_redis_layout(case: Case, shell: str) -> None:
    """The keys, the scores and the gates of both layouts, on a real Redis."""
    from tests.conformance.layouts import play  # noqa: PLC0415 - needs a Redis

    play(case.content, shell)


def check_idempotency(case: Case, shell: str) -> None:
    """A handler runs once for each id, on a store in a real Redis."""
    from tests.conformance.idempotency import replay  # noqa: PLC0415 - needs a Redis

    content = case.content
    if "deliveries" in content:
        replay(content, shell)
    else:
        assert content["key_field"] == "meta.id"
        found = verdict.decode(fixture(content["envelope_file"]))
        assert found.meta.id == content["expected_key"]
        effects = [{"expect_effect": "run", "outcome": "ok"}, {"expect_effect": "skip"}]
        deliveries = [{"meta_id": found.meta.id, **effect} for effect in effects]
        replay({"deliveries": deliveries, "expected_effects": 1}, shell)


def check_redis_delay(case: Case) -> None:
    """The score of a delayed message."""
    content = case.content
    assert due_at(content["now"], content["delay"]) == content["expect_score"]


def check_retry_backoff(case: Case) -> None:
    """How long a failed message is kept back."""
    content = case.content

    def delay(draw: float) -> float:
        return backoff(
            content["n"],
            base=content["retry_backoff"],
            multiplier=content["retry_backoff_multiplier"],
            maximum=content["retry_backoff_max"],
            jitter=content["retry_jitter"],
            draw=draw,
        )

    if "expect_delay_seconds" in content:
        assert delay(0.5) == content["expect_delay_seconds"]
    else:
        bounds = content["expect_delay_range_seconds"]
        assert all(bounds["min"] <= delay(draw) <= bounds["max"] for draw in (0, 0.3, 0.999))
        assert delay(1) == bounds["max"]


def check_poison_dlq(case: Case) -> None:
    """The record of a poison body is a splice or a wrapper, and loses no byte."""
    content = case.content
    body = body_of(content)
    block = dead_letter.block(
        "poison",
        error="it is no envelope",
        exception=None,
        failed_at=1749132727000,
        original_queue="orders",
        attempts=1,
    )
    record = dead_letter.poison_record(body, block)
    expected = content["expect"]
    if expected["shape"] == "splice_or_wrapper" and check_splice(record, expected):
        return
    document = json.loads(record)
    added = document.pop("dead_letter")
    assert added["reason"] == "poison"
    assert added["original_queue"] == "orders"
    assert same(document, expected["record"])


def check_splice(record: bytes, expected: dict[str, Any]) -> bool:
    """Tell whether a record is a splice; check it when it is."""
    text = record.decode("utf-8")
    keys = top_level_keys(text)
    if "raw" in keys:
        return False
    assert all(literal in text for literal in expected["splice_literals"])
    assert keys - {"dead_letter"} == set(expected["splice_keys"])
    return True


def check_identity_verdict(case: Case) -> None:
    """Some bodies are envelopes, the others are poison."""
    judged = verdict.verdict(case.content["body"].encode("utf-8"))
    assert ("poison" if isinstance(judged, PoisonError) else "ok") == case.content["expect"]


CHECKS: dict[str, Callable[[Case], None]] = {
    "cases": check_cases,
    "roundtrip": check_roundtrip,
    "data_shape": check_data_shape,
    "forbidden_keys": check_forbidden_keys,
    "extension_write": check_extension_write,
    "encode_reject": check_encode_reject,
    "trim": check_trim,
    "job_type": check_job_type,
    "traceparent": check_traceparent,
    "redis_delay": check_redis_delay,
    "retry_backoff": check_retry_backoff,
    "poison_dlq": check_poison_dlq,
    "identity_verdict": check_identity_verdict,
}

SHELL_CHECKS: dict[str, Callable[[Case, str], None]] = {
    "redis": check_redis,
    "redis_layout": check_redis_layout,
    "idempotency": check_idempotency,
}
"""Those that go to Redis, through the shell of the name they are given."""

CORE: dict[str, Any] = {
    "queue": "orders",
    "message_id": ID,
    "trace_id": str(uuid.UUID(int=1)),
    "created_at": 1749132727000,
}


def made(content: dict[str, Any]) -> bytes:
    """Build and encode what a producer is asked to write."""
    return envelope.encode(
        envelope.make(content["urn"], content["data"], **CORE, meta=content.get("meta"))
    )


def refusal_of(produce: Callable[[], object]) -> str:
    """Return the message that something is refused with."""
    try:
        produce()
    except EnvelopeError as error:
        return str(error)
    msg = "nothing was refused"
    raise AssertionError(msg)


def body_of(content: dict[str, Any]) -> bytes:
    """Return the raw body of a case."""
    if "body_base64" in content:
        return base64.b64decode(content["body_base64"])
    text: str = content["body"]
    return text.encode("utf-8")


def check_pointers(document: Any, content: dict[str, Any]) -> None:
    """Check what must be, and what must not be, in a document that was written again."""
    for pointer, value in content.get("expect_preserved", {}).items():
        assert same(at(document, pointer), value)
    for pointer in content.get("expect_absent_after_reencode", []):
        assert at(document, pointer, MISSING) is MISSING


MISSING = object()


def at(document: Any, pointer: str, default: Any = None) -> Any:
    """Return the value at an RFC 6901 pointer."""
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(document, dict) or key not in document:
            return default
        document = document[key]
    return document


def same(found: Any, expected: Any) -> bool:
    """Compare JSON values, types included: 1 is not true, and {} is not []."""
    return json.dumps(found, sort_keys=True) == json.dumps(expected, sort_keys=True)


@contextmanager
def warnings() -> Iterator[list[str]]:
    """Collect what is logged as a warning about an envelope."""
    collected: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            collected.append(record.getMessage())

    handler = Collector(logging.WARNING)
    verdict.logger.addHandler(handler)
    try:
        yield collected
    finally:
        verdict.logger.removeHandler(handler)


LEXEME = re.compile(r'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]|[:,]|[^\s\[\]{}:,"]+')


def top_level_keys(text: str) -> set[str]:
    """Return the names of an object's members, whatever its values are."""
    keys: set[str] = set()
    depth = 0
    for lexeme, following in itertools.pairwise([*LEXEME.findall(text), ""]):
        depth += (lexeme in "[{") - (lexeme in "]}")
        if depth == 1 and lexeme.startswith('"') and following == ":":
            keys.add(json.loads(lexeme))
    return keys

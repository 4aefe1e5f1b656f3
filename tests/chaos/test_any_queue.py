"""Whatever stands in a queue: nothing but our outcomes comes of it, and nothing goes missing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from babelqueue_redis import Outcome, RedisConsumer
from tests.support.store import Store

Make = Callable[..., RedisConsumer]
ENVELOPE = {
    "job": "urn:a",
    "trace_id": "0b0b7f3c-4f6f-4f3c-8f57-7b1f3f0d8c11",
    "data": {"text": "é", "n": 1},
    "meta": {"id": "1", "queue": "q", "lang": "go", "schema_version": 1, "created_at": 1},
    "attempts": 0,
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=10,
)
MEMBERS = st.sampled_from([*ENVELOPE, "urn", "dead_letter", "__bq_frame", "headers", "body", "x"])


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """An envelope of which some bytes are others."""
    value = bytearray(json.dumps(ENVELOPE, ensure_ascii=False).encode())
    for _ in range(draw(st.integers(0, 3))):
        value[draw(st.integers(0, len(value) - 1))] = draw(st.integers(0, 255))
    return bytes(value)


@st.composite
def changed(draw: st.DrawFn) -> bytes:
    """An envelope of which some members have other values."""
    return json.dumps(ENVELOPE | draw(st.dictionaries(MEMBERS, JSON, max_size=3))).encode()


@st.composite
def framed(draw: st.DrawFn) -> bytes:
    """A frame around something, with headers or what looks like them."""
    body = draw(changed() | damaged()).decode(errors="replace")
    frame = {"__bq_frame": draw(st.sampled_from([1, True, "1", 0])), "body": body}
    headers = st.dictionaries(st.text(max_size=8), st.text(max_size=8)) | JSON
    return json.dumps(frame | {"headers": draw(headers)}).encode()


ELEMENTS = st.lists(st.binary(max_size=50) | damaged() | changed() | framed(), max_size=10)


def check(consumer: RedisConsumer, store: Store, elements: list[bytes]) -> None:
    """Consume all; every element is acked, or a dead letter."""
    if elements:
        store.push(*elements)
    outcomes: Counter[Any] = Counter()
    while (outcome := consumer.poll(0)) is not None:
        outcomes[outcome] += 1
    assert outcomes.keys() <= {Outcome.ACKED, Outcome.DEAD_LETTERED}
    assert outcomes.total() == len(elements)
    dead = outcomes[Outcome.DEAD_LETTERED]
    assert store.counts() == ({"dead": dead} if dead else {})
    store.client.delete(store.dead_key, f"{store.dead_key}:notify")


@pytest.fixture
def consumer(consumer_of: Make) -> RedisConsumer:
    """Handles what it can."""
    return consumer_of(
        {"urn:a": lambda envelope, raw, headers: None},
        unknown_urn="dead_letter",
        on_error=lambda *_: None,
    )


FIXTURES_MAY_LAST = hypothesis.settings(
    max_examples=50, suppress_health_check=list(hypothesis.HealthCheck)
)


@FIXTURES_MAY_LAST
@hypothesis.given(ELEMENTS)
def test_what_goes_in_comes_out(
    consumer: RedisConsumer, store: Store, elements: list[bytes]
) -> None:
    """Acked or dead, each once, and no exception on the way."""
    check(consumer, store, elements)


@pytest.mark.long
@pytest.mark.timeout(1200)
@hypothesis.settings(FIXTURES_MAY_LAST, max_examples=2000)
@hypothesis.given(ELEMENTS)
def test_what_goes_in_comes_out_at_length(
    consumer: RedisConsumer, store: Store, elements: list[bytes]
) -> None:
    """As above, with more of it."""
    check(consumer, store, elements)

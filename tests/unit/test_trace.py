from __future__ import annotations

import hashlib
import subprocess
import sys
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased, TraceIdRatioBased

import babelqueue_carrier
from babelqueue_carrier import HeaderError, extract, inject, trace_id_of, uuid_of
from babelqueue_carrier.trace import creation, parent_span_id_of

UUID = "7b3f9c2a-e41d-4f88-9b2a-1c0d5e6f7a8b"
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def span_context(found: context.Context) -> trace.SpanContext:
    """Return the span context in a context."""
    return trace.get_current_span(found).get_span_context()


def test_inject_adds_the_current_context_to_a_copy() -> None:
    """The headers given stay what they were."""
    span = trace.NonRecordingSpan(
        trace.SpanContext(1, 2, is_remote=False, trace_flags=trace.TraceFlags(1))
    )
    given_headers = {"tenant": "a"}
    with trace.use_span(span):
        headers = inject(given_headers)
    assert headers == {"tenant": "a", "traceparent": f"00-{1:032x}-{2:016x}-01"}
    assert given_headers == {"tenant": "a"}


def test_inject_without_a_span_adds_nothing() -> None:
    """So that a publish outside any trace stays a bare envelope."""
    assert inject() == {}
    assert inject({"": "x", "k": ""}) == {}


def test_inject_refuses_what_is_no_text() -> None:
    """As a publish would."""
    with pytest.raises(HeaderError):
        inject({"k": 5})  # type: ignore[dict-item]


def test_extract_gives_the_producers_context() -> None:
    """A valid traceparent wins over the trace id, and baggage is restored with it."""
    found = extract({"traceparent": TRACEPARENT, "baggage": "user=7"}, UUID)
    there = span_context(found)
    assert f"{there.trace_id:032x}" == "4bf92f3577b34da6a3ce929d0e0e4736"
    assert there.is_remote
    assert baggage.get_baggage("user", found) == "7"


def test_extract_falls_back_to_the_trace_id_and_keeps_baggage() -> None:
    """The derived parent is the one every SDK derives."""
    found = extract({"traceparent": "nonsense", "baggage": "user=7"}, UUID)
    there = span_context(found)
    assert f"{there.trace_id:032x}" == UUID.replace("-", "")
    assert there.span_id == parent_span_id_of(UUID)
    assert baggage.get_baggage("user", found) == "7"


@pytest.mark.parametrize("trace_id", ["", " \t\n\v\f\r"])
def test_extract_without_anything_gives_no_span(trace_id: str) -> None:
    """There is no trace to go on with."""
    assert not span_context(extract({}, trace_id)).is_valid


def test_extract_does_not_see_the_current_span() -> None:
    """A worker's own span is not the message's parent."""
    here = trace.NonRecordingSpan(trace.SpanContext(9, 9, is_remote=False))
    token = context.attach(trace.set_span_in_context(here))
    try:
        assert not span_context(extract({})).is_valid
    finally:
        context.detach(token)


@pytest.mark.parametrize(
    ("sampler", "expected"),
    [
        (ALWAYS_ON, True),
        (ParentBased(TraceIdRatioBased(0)), False),
        (ParentBased(TraceIdRatioBased(1)), True),
        (TraceIdRatioBased(0), False),
    ],
)
def test_the_sampler_decides_for_a_derived_trace(sampler: object, expected: bool) -> None:  # noqa: FBT001
    """The current span has no say: it is asked as for a new trace."""
    provider = TracerProvider(sampler=sampler)  # type: ignore[arg-type]
    here = trace.NonRecordingSpan(
        trace.SpanContext(9, 9, is_remote=False, trace_flags=trace.TraceFlags(not expected))
    )
    with trace.use_span(here):
        created = creation({}, UUID, provider, "process")
    assert created.span_context.trace_flags.sampled is expected
    assert span_context(created.context) == created.span_context
    provider.shutdown()


def test_a_provider_that_cannot_be_asked_gives_no_decision() -> None:
    """Neither one without a sampler nor one whose sampler fails."""

    class Broken:
        def should_sample(self, **_: object) -> None:
            raise RuntimeError

    provider = trace.NoOpTracerProvider()
    for sampler in (None, Broken()):
        provider.sampler = sampler  # type: ignore[attr-defined]
        created = creation({}, UUID, provider, "process")
        assert created.undecided
        assert not span_context(created.context).is_valid
        assert created.span_context.trace_id == trace_id_of(UUID)


@given(st.uuids().filter(lambda value: value.int))
def test_a_uuid_maps_to_its_own_digits_and_back(value: uuid.UUID) -> None:
    """One to one, however it is spelled."""
    assert trace_id_of(str(value)) == value.int
    assert trace_id_of(str(value).upper()) == value.int
    assert trace_id_of(value.hex) == value.int
    assert uuid_of(value.int) == str(value)


@given(st.text().filter(lambda text: len(text.replace("-", "")) != 32))
def test_other_ids_map_by_their_hash(text: str) -> None:
    """Never to zero, which is no trace id."""
    expected = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:16]
    assert trace_id_of(text) == int.from_bytes(expected, "big") != 0


def test_the_all_zero_uuid_maps_by_its_hash() -> None:
    """Zero is no trace id."""
    zero = str(uuid.UUID(int=0))
    assert trace_id_of(zero) == int.from_bytes(hashlib.sha256(zero.encode()).digest()[:16], "big")


def test_digits_of_other_scripts_are_no_uuid() -> None:
    """``int`` would read them; the wire does not."""
    odd = "٣" * 32
    assert trace_id_of(odd) == int.from_bytes(hashlib.sha256(odd.encode()).digest()[:16], "big")


def test_importing_the_packages_does_not_load_the_tracing_part() -> None:
    """It costs 30 ms, and a transport without tracing must not pay."""
    code = (
        "import sys, babelqueue_carrier, babelqueue_redis;"
        "assert 'babelqueue_carrier.trace' not in sys.modules;"
        "babelqueue_carrier.inject();"
        "assert 'babelqueue_carrier.trace' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_unknown_name_is_an_attribute_error() -> None:
    """The lazy names do not swallow typing mistakes."""
    with pytest.raises(AttributeError, match="injekt"):
        _ = babelqueue_carrier.injekt


@pytest.mark.parametrize(
    "others",
    [
        {"n" * 257: "v"},
        {"baggage": "k=" + "v" * 8191},
        {f"h{n}": "v" for n in range(1000)},
    ],
    ids=["a long name", "a long value", "many"],
)
def test_headers_beyond_the_limits_do_not_reach_a_context(others: dict[str, str]) -> None:
    """A hostile producer cannot blow a consumer's spans up; what is within the limits counts."""
    found = extract({"traceparent": TRACEPARENT, **others})
    assert format(span_context(found).trace_id, "032x") == TRACEPARENT[3:35]
    assert baggage.get_all(found) == {}
    assert extract({**{f"h{n}": "v" for n in range(128)}, "traceparent": TRACEPARENT}) == {}

from __future__ import annotations

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from babelqueue_carrier import FRAME_KEY, HeaderError, frame_value, headers_of, unframe

BODY = b'{"job":"urn:a","data":{"n":1.0}}'
FRAMED_BODY = json.dumps(BODY.decode()).encode()

GOLDEN = [
    ({"traceparent": "00-1-2-01"}, BODY, b'"headers":{"traceparent":"00-1-2-01"},"body":%b'),
    (
        {"k": 'quote " slash / back \\ tab \t nl \n cr \r bs \b ff \f nul \x00 us \x1f del \x7f'},
        b"",
        (
            rb'"headers":{"k":"quote \" slash / back \\ tab \t nl \n cr \r bs \b ff \f nul \u0000'
            rb' us \u001f del %d"},"body":""'
        ),
    ),
    ({"é": "ü ☕ 😀 \u2028"}, b"x", '"headers":{"é":"ü ☕ 😀 \u2028"},"body":"x"'.encode()),
    ({"b": "1", "a": "2"}, b"x", b'"headers":{"b":"1","a":"2"},"body":"x"'),
    ({"k": " "}, b"x", b'"headers":{"k":" "},"body":"x"'),
]


@pytest.mark.parametrize(("headers", "body", "inside"), GOLDEN)
def test_a_frame_has_the_bytes_all_siblings_write(
    headers: dict[str, str], body: bytes, inside: bytes
) -> None:
    """Compact JSON, keys in order, UTF-8 unescaped, the short escapes where JSON has them."""
    inside = inside.replace(b"%b", FRAMED_BODY).replace(b"%d", b"\x7f")
    assert frame_value(body, headers) == b'{"__bq_frame":1,' + inside + b"}"


@pytest.mark.parametrize("headers", [None, {}, {"": "x"}, {"x": ""}, {"": ""}])
def test_without_a_header_the_body_is_stored_as_it_is(headers: dict[str, str] | None) -> None:
    """No frame, not even a copy."""
    assert frame_value(BODY, headers) is BODY


LOOK_ALIKES = [
    b"",
    b" ",
    b"{",
    b"{}",
    b"[]",
    b"null",
    b"5",
    b'"__bq_frame"',
    b'["__bq_frame"]',
    b'{"__bq_frame":1}',
    b'{"__bq_frame":1,"body":5}',
    b'{"__bq_frame":1,"body":null}',
    b'{"__bq_frame":1,"body":["x"]}',
    b'{"__bq_frame":1,"body":{"job":"urn:a"}}',
    b'{"__bq_frame":0,"body":"x"}',
    b'{"__bq_frame":-0,"body":"x"}',
    b'{"__bq_frame":0.0,"body":"x"}',
    b'{"__bq_frame":0e5,"body":"x"}',
    b'{"__bq_frame":false,"body":"x"}',
    b'{"__bq_frame":null,"body":"x"}',
    b'{"__bq_frame":"","body":"x"}',
    b'{"__BQ_FRAME":1,"body":"x"}',
    b'{"data":{"__bq_frame":1,"body":"x"}}',
    b'{"__bq_frame":1,"body":"x"',
    b'{"__bq_frame":1,"body":"x"} trailing',
    b'{"__bq_frame":1,"body":"x"}{"__bq_frame":1,"body":"x"}',
    b'\xef\xbb\xbf{"__bq_frame":1,"body":"x"}',
    b'{"__bq_frame":NaN,"body":"x"}',
    b'{"__bq_frame":1,"headers":{"a":Infinity},"body":"x"}',
    b'{"__bq_frame":01,"body":"x"}',
    b"{'__bq_frame':1,'body':'x'}",
    b'{"__bq_frame":1,"body":"tab\there"}',
    b'{"__bq_frame":1,"x":' + b"[" * 100_000 + b"]" * 100_000 + b',"body":"x"}',
    b'{"__bq_frame":1,"x":' + b'{"a":' * 100_000,
]


@pytest.mark.parametrize("value", LOOK_ALIKES, ids=lambda v: v[:40])
def test_a_look_alike_is_a_bare_value(value: bytes) -> None:
    """What is not a frame to the letter comes back untouched, without headers."""
    assert unframe(value) == (value, {})
    assert headers_of(value) == {}


FRAMES = [
    (b'{"__bq_frame":true,"body":"x"}', b"x", {}),
    (b'{"__bq_frame":2,"body":"x"}', b"x", {}),
    (b'{"__bq_frame":"1","body":"x"}', b"x", {}),
    (b'{"__bq_frame":"0","body":"x"}', b"x", {}),
    (b'{"__bq_frame":-1.5e-3,"body":"x"}', b"x", {}),
    (b'{"__bq_frame":1' + b"0" * 5000 + b',"body":"x"}', b"x", {}),
    (b'{"__bq_frame":{"v":1},"body":"x"}', b"x", {}),
    (b'{"__bq_frame":1,"body":""}', b"", {}),
    (b' \n{"__bq_frame" : 1 , "body" : "x" } \n', b"x", {}),
    (b'{"body":"x","headers":{"a":"b"},"__bq_frame":1}', b"x", {"a": "b"}),
    (b'{"__bq_frame":0,"__bq_frame":1,"body":"x"}', b"x", {}),
    (b'{"__bq_frame":1,"headers":null,"body":"x"}', b"x", {}),
    (b'{"__bq_frame":1,"headers":[1],"body":"x"}', b"x", {}),
    (b'{"__bq_frame":1,"headers":"a","body":"x"}', b"x", {}),
    (b'{"__bq_frame":1,"headers":{"":"b","a":"","n":null},"body":"x"}', b"x", {}),
    (
        b'{"__bq_frame":1,"headers":{"i":5,"f":1.50,"t":true,"n":false},"body":"x"}',
        b"x",
        {"i": "5", "f": "1.50", "t": "true", "n": "false"},
    ),
    (b'{"__bq_frame":1,"headers":{"o":{"a":1},"l":[1],"k":"v"},"body":"x"}', b"x", {"k": "v"}),
    (b'{"__bq_frame":1,"headers":{"i":' + b"9" * 5000 + b'},"body":"x"}', b"x", {"i": "9" * 5000}),
    (b'{"__bq_frame":1,"headers":{"s":"\\ud800","k":"v"},"body":"x"}', b"x", {"k": "v"}),
    (b'{"__bq_frame":1,"headers":{"s":"\xff","k":"v"},"body":"x"}', b"x", {"k": "v"}),
    (b'{"__bq_frame":1,"body":"\\u00e9 \\ud83d\\ude00"}', "é 😀".encode(), {}),
    (b'{"__bq_frame":1,"body":"a\xffb"}', b"a\xffb", {}),
    (b'{"__bq_frame":1,"body":"a\\ud800b"}', b"a\xed\xa0\x80b", {}),
]


@pytest.mark.parametrize(("value", "body", "headers"), FRAMES, ids=lambda v: str(v)[:40])
def test_a_frame_is_read_whoever_wrote_it(
    value: bytes, body: bytes, headers: dict[str, str]
) -> None:
    """Any truthy sentinel, any order and spacing, odd headers: the body comes out."""
    assert unframe(value) == (body, headers)
    assert all(type(text) is str for text in headers_of(value).values())


def test_a_frame_in_a_frame_loses_one_layer() -> None:
    """The inner frame is the body of the outer one."""
    inner = frame_value(BODY, {"a": "1"})
    assert unframe(frame_value(inner, {"b": "2"})) == (inner, {"b": "2"})
    assert FRAME_KEY.encode() in inner


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(st.binary(), st.dictionaries(TEXT, TEXT))
def test_framing_and_unframing_is_the_identity(body: bytes, headers: dict[str, str]) -> None:
    """For any bytes, UTF-8 or not, as long as there is a header to frame for."""
    value = frame_value(body, headers)
    if headers:
        assert unframe(value) == (body, headers)
    else:
        assert value == body


@given(
    st.one_of(
        st.binary(),
        st.builds(lambda tail: b'{"__bq_frame":1,"body":"' + tail, st.binary()),
        st.builds(
            lambda inner: json.dumps({"__bq_frame": 1, **inner}).encode(),
            st.dictionaries(
                st.sampled_from(["headers", "body", "__bq_frame"]),
                st.recursive(
                    st.none() | st.booleans() | st.floats() | st.text(),
                    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
                    max_leaves=15,
                ),
            ),
        ),
    )
)
def test_reading_never_raises(value: bytes) -> None:
    """Whatever a list holds comes out as bytes and a dict of non-empty text."""
    body, headers = unframe(value)
    assert isinstance(body, bytes)
    for name, text in headers.items():
        assert name
        assert text
        assert name.encode()
        assert text.encode()


@pytest.mark.parametrize(
    "headers",
    [{"a": 1}, {"a": None}, {"a": b"x"}, {1: "x"}, {"a": "\ud800"}, {"\ud800": "a"}, ["a"], "ab"],
)
def test_a_producer_is_told_about_a_header_that_is_no_text(headers: object) -> None:
    """The error names the header, and keeps its value to itself."""
    with pytest.raises(HeaderError) as caught:
        frame_value(BODY, headers)  # type: ignore[arg-type]  # that is the test
    assert isinstance(caught.value, ValueError)


def test_the_codec_imports_the_standard_library_only() -> None:
    """A reader of another language can port it from one file and its neighbours."""
    import babelqueue_carrier.frame as module  # noqa: PLC0415 - inspected, not used

    names = {
        getattr(value, "__module__", None) or getattr(value, "__name__", "")
        for value in vars(module).values()
    }
    tops = {str(name).split(".")[0] for name in names}
    assert tops - set(sys.stdlib_module_names) <= {"babelqueue_carrier", "", "None"}

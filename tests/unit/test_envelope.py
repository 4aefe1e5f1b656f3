from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import itertools
import json
import logging
import math
import uuid
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from babelqueue_redis import EnvelopeError, PoisonError
from babelqueue_redis import verdict as judge
from babelqueue_redis.envelope import INT64_MAX, encode, make, members, with_attempts, written
from babelqueue_redis.strict_json import MAX_DEPTH
from babelqueue_redis.verdict import accepts, decode, verdict

FIELDS: dict[str, Any] = {
    "queue": "orders",
    "message_id": "f1e2d3c4-b5a6-4789-90ab-cdef01234567",
    "trace_id": "7b3f9c2a-e41d-4f88-9b2a-1c0d5e6f7a8b",
    "created_at": 1749132727000,
}
GOLDEN = (
    b'{"job":"urn:a","trace_id":"7b3f9c2a-e41d-4f88-9b2a-1c0d5e6f7a8b",'
    b'"data":{"order_id":1042,"note":"caf\xc3\xa9 / \xe2\x98\x95"},'
    b'"meta":{"id":"f1e2d3c4-b5a6-4789-90ab-cdef01234567","queue":"orders","lang":"python",'
    b'"schema_version":1,"created_at":1749132727000,"ext":{"acme":{}}},"attempts":0}'
)


def test_an_envelope_has_the_bytes_the_contract_names() -> None:
    """Compact, in order, UTF-8 unescaped."""
    data = {"order_id": 1042, "note": "café / ☕"}
    assert encode(make("urn:a", data, **FIELDS, meta={"ext": {"acme": {}}})) == GOLDEN


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(
    urn=TEXT.filter(lambda urn: urn.strip(" \t\n\v\f\r") != ""),
    queue=TEXT,
    trace_id=TEXT,
    data=st.dictionaries(TEXT, TEXT | st.integers(-9, 9)),
    meta=st.dictionaries(st.sampled_from(["ext", "é", '"']), st.lists(st.booleans())),
)
def test_what_is_published_has_the_bytes_of_an_envelope(
    urn: str, queue: str, trace_id: str, data: dict[str, Any], meta: dict[str, Any]
) -> None:
    """However little of it is encoded anew for each message."""
    fields = {**FIELDS, "queue": queue, "trace_id": trace_id}
    made = make(urn, data, **fields, meta=meta)
    extra = {key: made["meta"][key] for key in meta}
    trimmed = {**fields, "trace_id": made["trace_id"]}
    assert written(made["job"], made["data"], **trimmed, meta=extra) == encode(made)


def test_an_envelope_decodes_to_typed_values() -> None:
    """What a handler reads."""
    found = decode(GOLDEN)
    assert found.job == "urn:a"
    assert found.trace_id == FIELDS["trace_id"]
    assert found.data == {"order_id": 1042, "note": "café / ☕"}
    assert found.meta.id == FIELDS["message_id"]
    assert (found.meta.queue, found.meta.lang) == ("orders", "python")
    assert (found.meta.schema_version, found.meta.created_at) == (1, 1749132727000)
    assert found.attempts == 0


def test_a_retry_changes_attempts_and_nothing_else() -> None:
    """Every number, order and empty container keeps its bytes."""
    body = (
        b'{"x":1e400,"job":"urn:a","big":123456789012345678901234567890,"one":1.0,'
        b'"data":{"f":1.0,"e":1E2,"n":-0,"i":9007199254740993,"a":[ ],"o":{ }},'
        b'"attempts":2,"meta":{"id":"i","vendor":[1.50,{"z":1,"a":2}],"big":1e400},"last":null}'
    )
    assert with_attempts(body, 3) == body.replace(b'"attempts":2', b'"attempts":3')


def test_a_retry_of_a_body_without_attempts_adds_them() -> None:
    """The count has to live somewhere."""
    assert with_attempts(b'{"job":"urn:a"}', 1) == b'{"job":"urn:a","attempts":1}'


def test_a_retry_drops_what_the_contract_forbids_and_folds_the_alias() -> None:
    """Those, and only those, are gone."""
    body = (
        b'{"timestamp":1,"urn":"urn:a","trace_id":"t","meta":{"id":"i","ts":1,"source":"x",'
        b'"max_retries":3,"attempts":9,"keep":1.0},"attempts":0}'
    )
    assert with_attempts(body, 1) == (
        b'{"job":"urn:a","trace_id":"t","meta":{"id":"i","keep":1.0},"attempts":1}'
    )


@pytest.mark.parametrize("job", ['"  "', "5", "null", "[]", '{"a":1}'])
def test_a_job_that_names_nothing_gives_way_to_the_alias(job: str) -> None:
    """On reading and on writing again."""
    body = f'{{"job":{job},"urn":"urn:b","attempts":0}}'.encode()
    assert decode(body).job == "urn:b"
    assert json.loads(with_attempts(body, 1)) == {"job": "urn:b", "attempts": 1}


def test_what_a_producer_left_out_reads_as_empty() -> None:
    """Missing and null members are no fault."""
    found = decode(b'{"job":"urn:a","data":null,"meta":null,"attempts":null,"trace_id":null}')
    assert (found.trace_id, found.data, found.attempts) == ("", {}, 0)
    assert (found.meta.id, found.meta.queue, found.meta.created_at) == ("", "", 0)
    assert decode(b'{"job":"urn:a"}') == found


POISON = {
    "not utf-8": b'{"job":"urn:a","data":{"a":"\xff"}}',
    "not utf-8 in an unknown member": b'{"job":"urn:a","x":"\xff"}',
    "not utf-8 in an unknown nested key": b'{"job":"urn:a","x":{"\xff":1}}',
    "encoded surrogate": b'{"job":"urn:a","x":"\xed\xa0\x80"}',
    "lone surrogate": b'{"job":"urn:a","data":{"a":"\\ud800"}}',
    "lone surrogate in an unknown member": b'{"job":"urn:a","x":"\\udc00 and so on and on"}',
    "lone surrogate in a key": b'{"job":"urn:a","x":{"\\ud800\\u0041":1}}',
    "number beyond double": b'{"job":"urn:a","data":{"n":1e400}}',
    "NaN": b'{"job":"urn:a","x":NaN}',
    "leading zero": b'{"job":"urn:a","x":01}',
    "byte order mark": b'\xef\xbb\xbf{"job":"urn:a"}',
    "trailing bytes": b'{"job":"urn:a"}x',
    "control character": b'{"job":"urn:a","x":"\n"}',
    "too deep": b'{"job":"urn:a","x":' + b"[" * 501 + b"]" * 501 + b"}",
    "far too deep": b'{"job":"urn:a","x":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001,
    "5 000 digits": b'{"job":"urn:a","data":{"n":' + b"9" * 5000 + b"}}",
    "attempts beyond int64": b'{"job":"urn:a","attempts":9223372036854775808}',
    "attempts with a fraction": b'{"job":"urn:a","attempts":1.0}',
    "attempts true": b'{"job":"urn:a","attempts":true}',
    "version 2": b'{"job":"urn:a","meta":{"schema_version":2}}',
    "id of the wrong type": b'{"job":"urn:a","meta":{"id":5}}',
    "dead_letter of the wrong type": b'{"job":"urn:a","dead_letter":{"attempts":"3"}}',
    "no identity": b'{"data":{}}',
    "gzip": b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03",
    "php": b'O:8:"stdClass":1:{s:3:"job";s:5:"urn:a";}',
    "empty": b"",
}


@pytest.mark.parametrize("body", POISON.values(), ids=POISON.keys())
def test_a_body_that_is_no_envelope_is_poison(body: bytes) -> None:
    """It is a verdict, not an exception; ``decode`` raises it."""
    assert isinstance(verdict(body), PoisonError)
    assert not accepts(body)
    with pytest.raises(PoisonError):
        decode(body)


def test_the_reason_of_poison_keeps_the_payload_to_itself() -> None:
    """Reasons end up in logs and spans."""
    for body in (
        b'{"job":"urn:a","data":["secret"]}',
        b'{"job":"urn:a","attempts":"secret"}',
        b'{"job":"urn:a","data":{"secret":"\\ud800"}}',
        b"secret",
    ):
        assert "secret" not in str(verdict(body))


def test_depth_is_bounded_the_same_on_every_python() -> None:
    """Brackets inside strings do not count, siblings do not add up."""
    assert not isinstance(verdict(b'{"job":"urn:a","x":"' + b"[" * 5000 + b'"}'), PoisonError)
    assert not isinstance(verdict(b'{"job":"urn:a","x":[' + b"[]," * 5000 + b"[]]}"), PoisonError)
    assert isinstance(verdict(b'{"job":"urn:a","x":' + b"[" * 500 + b"]" * 500 + b"}"), PoisonError)
    nested = b'{"job":"urn:a","x":' + b"[" * 499 + b"]" * 499 + b"}"
    assert not isinstance(verdict(nested), PoisonError)


KEYS = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.mark.parametrize(
    "hostile",
    [
        b"[" * 2000 + b'"' + b'\\"' * 1_000_000,
        b'"' * 2_000_000 + b"[" * 2000,
        b"[" * 2_000_000,
        b'{"job":"urn:a","x":[' + b'"\\\\\\"",' * 300_000 + b"[]" + b",[]" * 2000 + b"]}",
        b'{"job":"urn:a","x":"' + b'\\"' * 1_000_000 + b'","y":[' + b"[]," * 2000 + b"[]]}",
    ],
    ids=lambda hostile: hostile[:20],
)
def test_a_verdict_takes_time_in_proportion(hostile: bytes) -> None:
    """Megabytes of quotes, backslashes and brackets do not stop a worker."""
    verdict(hostile)


def test_a_representation_keeps_the_payload_to_itself() -> None:
    """Representations end up in logs."""
    found = decode(encode(make("urn:a", {"s": "secret"}, **FIELDS)))
    assert "secret" not in repr(found)
    assert FIELDS["message_id"] in repr(found)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner),
    max_leaves=15,  # the default 100 takes four times as long, nearly all of it to draw
)


@given(st.dictionaries(KEYS, JSON))
def test_what_a_publisher_accepts_a_consumer_reads(data: dict[str, Any]) -> None:
    """Nothing that encodes is poison, and it comes back equal."""
    body = encode(make("urn:a", data, **FIELDS))
    assert accepts(body)
    assert decode(body).data == data
    again = with_attempts(body, 7)
    assert again == body[: body.rindex(b'"attempts":')] + b'"attempts":7}'


@given(st.binary())
def test_a_verdict_never_raises(body: bytes) -> None:
    """Whatever a list holds."""
    for value in (body, b'{"job":"urn:a",' + body, b'{"job":"urn:a","data":{"a":' + body + b"}}"):
        if not isinstance(verdict(value), PoisonError):
            assert decode(with_attempts(value, 1)).attempts == 1


class Opaque:
    """Something without a JSON form."""


@dataclasses.dataclass
class Holder:
    """Something with a JSON form, as far as what it holds has one."""

    held: Any


class Odd(enum.Enum):
    """A value that JSON does not have."""

    NAN = math.nan


BAD_DATA = [
    None,
    5,
    "text",
    ["a"],
    {"a": math.nan},
    {"a": [{"b": math.inf}]},
    {"a": (1.0, -math.inf)},
    {"a": "\ud800"},
    {"\ud800": 1},
    {"a": Opaque()},
    {"a": Holder(math.nan)},
    {"a": [Holder(Holder(math.inf))]},
    {"a": Odd.NAN},
    {"a": msgspec.Raw(b'garbage"')},
    {"a": {(1, 2): 3}},
]


@pytest.mark.parametrize("data", BAD_DATA, ids=range(len(BAD_DATA)))
def test_data_that_is_no_json_object_is_refused(data: Any) -> None:
    """At the call, before anything is written."""
    with pytest.raises(EnvelopeError, match="data"):
        make("urn:a", data, **FIELDS)


TRICKY = ['"', "\\", '\\"', '"[', "]", '"{"', "[[[", "}}", "", '""', '\\\\"[']


@given(
    depth=st.integers(MAX_DEPTH - 20, MAX_DEPTH + 20),
    texts=st.lists(st.sampled_from(TRICKY)),
    shapes=st.lists(st.integers(0, 2), min_size=1, max_size=5),
)
def test_brackets_in_text_are_no_depth(depth: int, texts: list[str], shapes: list[int]) -> None:
    """However the text is escaped, and whatever stands beside the deepest place."""
    value: Any = texts
    for _, shape in zip(range(depth - 2), itertools.cycle(shapes), strict=False):
        value = [[value], [[], value, *texts], {"[": value}][shape]
    found = verdict(msgspec.json.encode({"job": "urn:a", "x": value}))
    assert isinstance(found, PoisonError) == (depth > MAX_DEPTH)


def test_data_nested_too_deep_or_in_a_circle_is_refused() -> None:
    """A consumer would refuse it."""
    deep: list[Any] = []
    for _ in range(MAX_DEPTH):
        deep = [deep]
    with pytest.raises(EnvelopeError):
        make("urn:a", {"deep": deep}, **FIELDS)
    with pytest.raises(EnvelopeError):
        make("urn:a", {"deep": [None, deep]}, **FIELDS)
    circle: dict[str, Any] = {}
    circle["circle"] = circle
    with pytest.raises(EnvelopeError):
        make("urn:a", circle, **FIELDS)


def test_null_in_data_is_no_nan() -> None:
    """The check for NaN looks at values, not at the text."""
    assert b'"data":{"a":null}' in encode(make("urn:a", {"a": None}, **FIELDS))


def test_common_values_take_their_text_form() -> None:
    """As msgspec writes them."""
    moment = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.timezone.utc)
    data = {"at": moment, "id": uuid.UUID(int=1), "sum": decimal.Decimal("1.10")}
    assert decode(encode(make("urn:a", data, **FIELDS))).data == {
        "at": "2026-01-02T03:04:05Z",
        "id": "00000000-0000-0000-0000-000000000001",
        "sum": "1.10",
    }


@pytest.mark.parametrize("urn", ["", " ", "\t\n\v\f\r", None, 5, b"urn:a"])
def test_a_urn_that_names_nothing_is_refused(urn: Any) -> None:
    """The contract needs an identity."""
    with pytest.raises(EnvelopeError, match="URN"):
        make(urn, {}, **FIELDS)


@pytest.mark.parametrize("meta", [{"id": "x"}, {"ts": 1}, {5: 1}, ["a"], "a", {"ext": math.nan}])
def test_meta_that_is_not_the_producers_is_refused(meta: Any) -> None:
    """Core keys, forbidden keys, and what is no JSON."""
    with pytest.raises(EnvelopeError):
        encode(make("urn:a", {}, **FIELDS, meta=meta))


def test_dropping_a_key_is_logged_with_its_pointer(caplog: pytest.LogCaptureFixture) -> None:
    """Once per key; the message id tells which message."""
    with caplog.at_level(logging.WARNING):
        decode(b'{"job":"urn:a","urn":"urn:b","timestamp":1,"meta":{"id":"m1","ts":null}}')
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "dropped /urn",
        "dropped /timestamp",
        "dropped /meta/ts",
    ]
    assert all("m1" in record.getMessage() for record in caplog.records)


def test_int64_ends_where_the_contract_says() -> None:
    """The largest count is read, and kept."""
    body = f'{{"job":"urn:a","attempts":{INT64_MAX}}}'.encode()
    assert decode(body).attempts == INT64_MAX
    assert members(body)["attempts"] is not None


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
"""JSON, and the NaN and the infinities that Python writes, too."""
META_KEYS = ["id", "queue", "lang", "schema_version", "created_at", "ext", "attempts", "ts"]
KEYS_OF_BODIES = ["job", "urn", "trace_id", "data", "attempts", "dead_letter", "timestamp", "new"]


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """Return an envelope of which a few members are something else, or bytes are damaged."""
    data = {"order_id": 1042, "note": "café / ☕"}
    members: dict[str, Any] = json.loads(json.dumps(decoded_members(data)))
    for key in draw(st.lists(st.sampled_from(KEYS_OF_BODIES), max_size=2)):
        members[key] = draw(VALUES)
    for key in draw(st.lists(st.sampled_from(META_KEYS), max_size=2)):
        members["meta"][key] = draw(VALUES)
    body = json.dumps(members, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
    if draw(st.booleans()):  # a member that is there twice
        twice = json.dumps({draw(st.sampled_from(KEYS_OF_BODIES)): draw(VALUES)}).encode()
        body = twice[:-1] + b"," + body[1:]
    if draw(st.booleans()):
        place = draw(st.integers(0, len(body)))
        body = body[:place] + draw(st.binary(max_size=3)) + body[place + draw(st.integers(0, 3)) :]
    return body


def decoded_members(data: dict[str, Any]) -> dict[str, Any]:
    """Return the members of an envelope as JSON has them."""
    made: dict[str, Any] = json.loads(encode(make("urn:a", data, **FIELDS)))
    return made


@given(bodies())
@settings(max_examples=500)
def test_the_short_way_to_a_verdict_says_what_the_long_one_says(body: bytes) -> None:
    """Most bodies are decoded once; what comes of that is never another envelope."""
    short, long = judge._plain(body), judge._judged(body)
    if short is not None:
        assert not isinstance(long, PoisonError)
        # The text tells 1 from 1.0 and True.
        assert repr(msgspec.structs.asdict(short)) == repr(msgspec.structs.asdict(long))
        assert repr(short.meta) == repr(long.meta)


@pytest.mark.parametrize(
    "member",
    [
        '"data":[]',
        f'"attempts":{INT64_MAX + 1}',
        f'"meta":{{"created_at":{INT64_MAX + 1}}}',
        f'"meta":{{"schema_version":{INT64_MAX + 1}}}',
    ],
)
def test_a_member_that_is_right_the_second_time_is_poison_either_way(member: str) -> None:
    """Whatever else the body holds: a verdict does not hang on that."""
    rest = '"job":"urn:a","data":{},"meta":{"schema_version":1,"created_at":1},"attempts":0'
    for other in ("", ',"new":1'):
        assert isinstance(verdict(f"{{{member},{rest}{other}}}".encode()), PoisonError)


def test_the_body_of_a_publish_goes_the_short_way() -> None:
    """Extra entries of ``meta`` and forbidden members take the long one."""
    assert judge._plain(encode(make("urn:a", {"n": 1}, **FIELDS))) is not None
    assert judge._plain(GOLDEN) is None

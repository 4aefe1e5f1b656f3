"""Handlers that ask for a type get it, or the message is a dead letter."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import json
import logging
from collections.abc import Callable
from typing import Any, TypedDict

import attrs
import msgspec
import pydantic
import pytest

from babelqueue_redis import ConfigurationError, Outcome, PayloadError, RedisConsumer
from babelqueue_redis.core.payloads import converter
from tests.support.marks import both_layouts, both_shells
from tests.support.shells import Shell
from tests.support.store import Store

pytestmark = [both_layouts, both_shells]


Make = Callable[..., RedisConsumer]


class Colour(enum.Enum):
    """A value that is one of a few."""

    RED = "red"


class Struct(msgspec.Struct):
    """Of msgspec."""

    order_id: int
    at: dt.datetime | None = None
    colour: Colour = Colour.RED
    names: dict[int, str] = {}


@dataclasses.dataclass
class Dataclass:
    """Of the standard library."""

    order_id: int
    names: dict[int, str] = dataclasses.field(default_factory=dict)


class Typed(TypedDict):
    """A mapping with known keys."""

    order_id: int


@attrs.define
class Attrs:
    """Of attrs."""

    order_id: int


class Model(pydantic.BaseModel):
    """Of pydantic."""

    order_id: int
    colour: Colour = Colour.RED
    lines: list[int] = []


@pytest.mark.parametrize("payload", [Struct, Dataclass, Typed, Attrs, Model, dict[str, int]])
def test_a_handler_gets_the_type_it_asked_for(
    publisher: Any, consumer_of: Make, payload: Any
) -> None:
    """Whatever library made the type."""
    consumer = consumer_of()
    seen: list[Any] = []

    @consumer.handler("urn:a", payload=payload)
    def handle(envelope: Any) -> None:
        seen.append(envelope.data)

    publisher.publish("urn:a", {"order_id": 7})
    assert consumer.poll(0) is Outcome.ACKED
    (data,) = seen
    if isinstance(data, dict):
        assert data == {"order_id": 7}
    else:
        assert type(data) is payload
        assert data.order_id == 7


class StrictModel(pydantic.BaseModel):
    """Takes no conversions but those that JSON needs."""

    model_config = pydantic.ConfigDict(strict=True)
    at: dt.datetime


def test_a_strict_model_takes_what_json_can_say(publisher: Any, consumer_of: Make) -> None:
    """Validated as JSON, not as Python objects."""
    consumer = consumer_of()
    seen: list[StrictModel] = []
    consumer.handler("urn:a", payload=StrictModel)(lambda envelope: seen.append(envelope.data))
    publisher.publish("urn:a", {"at": "2026-01-02T00:00:00Z"})
    assert consumer.poll(0) is Outcome.ACKED
    assert seen[0].at.year == 2026


def test_values_take_the_forms_of_json(publisher: Any, consumer_of: Make) -> None:
    """What the publisher wrote as text and as keys of text is read back from it."""
    consumer = consumer_of()
    seen: list[Struct] = []
    at = dt.datetime(2026, 1, 2, tzinfo=dt.timezone.utc)
    consumer.handler("urn:a", payload=Struct)(lambda envelope: seen.append(envelope.data))
    publisher.publish(
        "urn:a", {"order_id": 2**60, "at": at, "colour": Colour.RED, "names": {1: "x"}}
    )
    assert consumer.poll(0) is Outcome.ACKED
    assert seen == [Struct(2**60, at, Colour.RED, {1: "x"})]


class Closed(msgspec.Struct, forbid_unknown_fields=True):
    """Takes nothing."""


MISFITS = [
    (Struct, {"order_id": "secret"}, "Expected `int`, got `str` - at `data.order_id`"),
    (Struct, {}, "Object missing required field `order_id`"),
    (Struct, {"order_id": 1, "colour": "secret"}, "Invalid enum value - at `data.colour`"),
    (Struct, {"order_id": 1, "colour": "x - at `$.secret`"}, "Invalid enum value - at `data.co"),
    (Closed, {"secret": 1}, "unknown field"),
    (Model, {"order_id": "secret"}, "int_parsing - at `data.order_id`"),
    (Model, {"order_id": 1, "lines": [0, "secret"]}, "at `data.lines[1]`"),
]


@pytest.mark.parametrize(("payload", "data", "says"), MISFITS, ids=range(len(MISFITS)))
def test_data_that_does_not_fit_is_dead_lettered_at_once(
    publisher: Any,
    consumer_of: Make,
    store: Store,
    caplog: pytest.LogCaptureFixture,
    payload: Any,
    data: Any,
    says: str,
) -> None:
    """With the path and the reason, without a run, a retry, or a word of the payload."""
    told: list[BaseException] = []
    runs: list[Any] = []
    consumer = consumer_of(on_error=lambda error, *_: told.append(error), max_tries=5)
    consumer.handler("urn:a", payload=payload)(runs.append)
    message_id = publisher.publish("urn:a", data)
    with caplog.at_level(logging.DEBUG):
        assert consumer.poll(0) is Outcome.DEAD_LETTERED
    (dead,) = map(json.loads, store.dead())
    block = dead["dead_letter"]
    assert dead["meta"]["id"] == message_id
    assert dead["data"] == data
    assert block["reason"] == "failed"
    assert block["exception"] == "babelqueue_redis.errors.PayloadError"
    assert block["attempts"] == dead["attempts"] == 1
    assert says in block["error"]
    assert "secret" not in block["error"] + caplog.text
    assert isinstance(told[0], PayloadError)
    assert told[0].__cause__ is None
    assert runs == []
    assert store.counts() == {"dead": 1}


def test_a_misfit_of_one_urn_leaves_the_others_alone(publisher: Any, consumer_of: Make) -> None:
    """The next message is handled."""
    consumer = consumer_of({"urn:b": lambda envelope: None})
    consumer.handler("urn:a", payload=Struct)(lambda envelope: None)
    publisher.publish("urn:a", {"order_id": None})
    publisher.publish("urn:b", {"order_id": None})
    assert consumer.poll(0) is Outcome.DEAD_LETTERED
    assert consumer.poll(0) is Outcome.ACKED


class Plain:
    """A class that nothing knows how to make."""


@pytest.mark.parametrize(
    "payload",
    [5, "Struct", lambda: None, int | Struct | Dataclass, list[int], int, Plain, Model | None],
)
def test_a_payload_that_is_no_type_is_refused_at_once(consumer_of: Make, payload: Any) -> None:
    """When the handler is registered, not when a message comes."""
    with pytest.raises(ConfigurationError, match="payload="):
        consumer_of().handler("urn:a", payload=payload)


class Strict(msgspec.Struct):
    """Has a check of its own."""

    order_id: int

    def __post_init__(self) -> None:
        """Refuse, in a way that msgspec does not expect."""
        raise RuntimeError(self.order_id)


class Card(msgspec.Struct):
    """Repeats what it refuses."""

    number: str

    def __post_init__(self) -> None:
        """Refuse, as msgspec expects it."""
        msg = f"bad card {self.number}"
        raise ValueError(msg)


class Wallet(msgspec.Struct):
    """Holds one."""

    cards: list[Card]


class CardModel(pydantic.BaseModel):
    """Repeats what it refuses, in pydantic's way."""

    number: str

    @pydantic.field_validator("number")
    @classmethod
    def check(cls, number: str) -> str:
        """Refuse."""
        msg = f"bad card {number}"
        raise ValueError(msg)


@pytest.mark.parametrize(
    ("payload", "data", "says"),
    [
        (Strict, {"order_id": 4111}, "builtins.RuntimeError|RuntimeError"),
        (Card, {"number": "4111"}, "ValueError"),
        (Wallet, {"cards": [{"number": "4111"}]}, r"ValueError - at `data.cards\[0\]`"),
        (CardModel, {"number": "4111"}, "value_error - at `data.number`"),
    ],
)
def test_whatever_a_types_own_check_raises_is_a_misfit(payload: Any, data: Any, says: str) -> None:
    """The consumer goes on; what the check says may repeat the value, so it is not repeated."""
    with pytest.raises(PayloadError, match=says) as caught:
        converter(payload)(data)
    assert "4111" not in str(caught.value)


def test_a_nesting_too_deep_for_the_type_is_a_misfit() -> None:
    """Not a crash."""

    class Node(msgspec.Struct):
        next: Node | None = None

    globals()["Node"] = Node
    data: dict[str, Any] = {}
    for _ in range(5000):
        data = {"next": data}
    with pytest.raises(PayloadError):
        converter(Node)(data)


def test_shells_agree_on_what_a_handler_decorator_returns(shell: Shell, redis_url: str) -> None:
    """The function itself."""

    def handle(envelope: Any) -> None:
        """Do nothing."""

    consumer = shell.make("consumer", redis_url, "q")
    assert consumer.handler("urn:a", Struct)(handle) is handle

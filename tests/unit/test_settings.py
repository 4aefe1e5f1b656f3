from __future__ import annotations

import dataclasses
import enum
import inspect
import math
from typing import Any

import pytest

from babelqueue_redis import ConfigurationError, RedisConsumer
from babelqueue_redis.checks import RESERVED_SUFFIXES
from babelqueue_redis.core.publishing import checked_batch
from babelqueue_redis.redis_py import check_url
from babelqueue_redis.settings import ConsumerOptions, QueueOptions

BAD = [
    {"layout": "list"},
    {"layout": None},
    {"retry_after": -1},
    {"retry_after": math.nan},
    {"retry_after": math.inf},
    {"retry_after": "90"},
    {"retry_after": True},
    {"block_timeout": None},
    {"block_timeout": math.nan},
    {"max_tries": 0},
    {"max_tries": 2.0},
    {"max_tries": True},
    {"dead_letter_queue": "q"},
    {"dead_letter_queue": " "},
    {"dead_letter_queue": "q:processing"},
    {"dead_letter_queue": 5},
    {"unknown_urn": "explode"},
    {"unknown_urn": print},
    {"on_unknown_urn": "delete"},
    {"on_error": "log"},
    {"on_failure": "explode"},
    {"on_failure": "leave", "retry_after": None},
    {"migration_batch_size": 0},
    {"migration_batch_size": -2},
    {"migration_batch_size": 1.5},
    {"shutdown_timeout": -1},
    {"shutdown_timeout": None},
    {"prefetch": 0},
    {"prefetch": 1001},
    {"prefetch": "all"},
    {"prefetch": True},
    {"prefetch": 1.0},
    {"key_prefix": 5},
    {"key_prefix": None},
    {"block_timeout": math.inf},
    {"block_timeout": 10**400},
    {"retry_jitter": "some"},
    {"retry_backoff_max": -1},
    {"retry_backoff_multiplier": math.nan},
    {"concurrency": 0},
    {"concurrency": True},
    {"concurrency": 10_001},
    {"retry_backoff": -1},
    {"retry_backoff": 1},
    {"dead_letter_max_length": 0},
    {"dead_letter_max_length": -1},
    {"dead_letter_max_length": 1.0},
    {"dead_letter_max_length": True},
]


@pytest.mark.parametrize("options", BAD, ids=str)
def test_a_wrong_option_is_named_when_it_is_given(options: dict[str, Any]) -> None:
    """At construction, with the option's name in the message."""
    with pytest.raises(ConfigurationError, match=rf"\b{next(iter(options))}="):
        ConsumerOptions("q", **options)


def test_a_strategy_and_a_callable_name_each_other() -> None:
    """Who gives one for the other is told where it goes."""
    with pytest.raises(ConfigurationError, match=r"\bunknown_urn="):
        ConsumerOptions("q", on_unknown_urn="delete")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"\bon_unknown_urn="):
        ConsumerOptions("q", unknown_urn=print)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="either"):
        ConsumerOptions("q", unknown_urn="delete", on_unknown_urn=print)


class Queue(str, enum.Enum):
    """Names of queues, as an application may keep them."""

    ORDERS = "orders"


def test_a_member_of_an_enumeration_is_its_text() -> None:
    """Its keys must be those that other languages use."""
    options = ConsumerOptions(Queue.ORDERS)
    assert f"{options.queue}:processing" == "orders:processing"
    assert options.dead_letter_queue == "orders.dlq"


def test_a_refusal_does_not_show_what_an_object_holds() -> None:
    """The representation of a client may hold its password."""

    class Client:
        def __repr__(self) -> str:
            return "password=secret"

    with pytest.raises(ConfigurationError) as caught:
        ConsumerOptions(Client())  # type: ignore[arg-type]
    assert "secret" not in str(caught.value)


def test_the_consumers_keywords_are_the_options_with_their_defaults() -> None:
    """One list, wherever it is written."""
    keywords = inspect.signature(RedisConsumer).parameters
    for field in dataclasses.fields(ConsumerOptions):
        assert field.name in keywords
        if field.name != "queue":
            assert keywords[field.name].default == field.default, field.name
    assert set(keywords) - {f.name for f in dataclasses.fields(ConsumerOptions)} == {
        "client",
        "handlers",
    }


@pytest.mark.parametrize("suffix", RESERVED_SUFFIXES)
def test_a_queue_name_that_looks_like_a_key_is_refused(suffix: str) -> None:
    """Two queues must not share a key."""
    with pytest.raises(ConfigurationError, match=suffix):
        QueueOptions(f"orders{suffix}")


@pytest.mark.parametrize("name", ["", " ", "\t", None, 5, b"orders", "\ud800"])
def test_a_queue_name_that_is_no_text_is_refused(name: Any) -> None:
    """Nor may it be blank."""
    with pytest.raises(ConfigurationError, match="queue"):
        QueueOptions(name)


def test_ordinary_names_pass() -> None:
    """A dead-letter queue can be consumed like any other."""
    for name in ("orders", "orders.dlq", "{orders}", "a b", "ü", "a:processing:b"):
        assert QueueOptions(name).queue == name


def test_defaults_are_those_of_the_contract() -> None:
    """Golden: other documents name them."""
    options = ConsumerOptions("orders")
    assert (options.retry_after, options.lease, options.max_tries) == (90, 90, 3)
    assert (options.block_timeout, options.shutdown_timeout) == (5, 30)
    assert options.dead_letter_queue == options.dead_letter_target == "orders.dlq"
    assert (options.unknown_urn, options.on_failure) == ("fail", "release")
    assert options.migration_batch_size == -1


def test_a_fraction_of_a_lease_is_rounded_up() -> None:
    """Scores are whole seconds, and a lease is a promise of at least."""
    assert ConsumerOptions("q", retry_after=0.1).lease == 1
    assert ConsumerOptions("q", retry_after=0).lease == 0
    assert ConsumerOptions("q", retry_after=None).lease is None


def test_poison_has_a_queue_even_without_a_dead_letter_queue() -> None:
    """It is never dropped."""
    assert ConsumerOptions("q", dead_letter_queue=None).dead_letter_target == "q.dlq"
    assert ConsumerOptions("q", dead_letter_queue="other").dead_letter_target == "other"


@pytest.mark.parametrize("delay", [-1, math.nan, "5", True, 0.001, 60])
def test_a_delay_on_the_legacy_layout_is_refused(delay: Any) -> None:
    """It has no delayed set; only no delay is right."""
    with pytest.raises(ConfigurationError, match="delay"):
        QueueOptions("q").check_delay(delay)


def test_no_delay_is_no_error() -> None:
    """Neither none nor zero."""
    QueueOptions("q").check_delay(None)
    QueueOptions("q").check_delay(0)


def test_a_batch_is_pairs_and_not_too_many() -> None:
    """One trip has a bound."""
    assert checked_batch(iter([("urn:a", {})])) == [("urn:a", {})]
    with pytest.raises(ValueError, match="1000"):
        checked_batch([("urn:a", {})] * 1001)
    with pytest.raises(ValueError, match="message 1 "):
        checked_batch([("urn:a", {}), "urn:b"])  # type: ignore[list-item]


@pytest.mark.parametrize("option", ["retry_after", "layout", "key_prefix", "max_tries"])
def test_an_option_of_ours_in_a_url_is_told_apart(option: str) -> None:
    """redis-py would hand it to a socket."""
    with pytest.raises(ConfigurationError, match=option):
        check_url(f"redis://127.0.0.1/0?{option}=1&socket_timeout=1")
    check_url("redis://127.0.0.1/0?socket_timeout=1")

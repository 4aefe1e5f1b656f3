from __future__ import annotations

import math
from typing import Any

import pytest

from babelqueue_redis import ConfigurationError
from babelqueue_redis.settings import (
    RESERVED_SUFFIXES,
    ConsumerOptions,
    PublisherOptions,
    check_batch,
    check_delay,
    check_url,
)

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
    {"prefetch": 2},
    {"prefetch": True},
    {"concurrency": 2},
    {"retry_backoff": -1},
    {"retry_backoff": 1},
]


@pytest.mark.parametrize("options", BAD, ids=str)
def test_a_wrong_option_is_named_when_it_is_given(options: dict[str, Any]) -> None:
    """At construction, with the option's name in the message."""
    with pytest.raises(ConfigurationError) as caught:
        ConsumerOptions("q", **options)
    assert next(iter(options)) in str(caught.value)


@pytest.mark.parametrize("suffix", RESERVED_SUFFIXES)
def test_a_queue_name_that_looks_like_a_key_is_refused(suffix: str) -> None:
    """Two queues must not share a key."""
    with pytest.raises(ConfigurationError, match=suffix):
        PublisherOptions(f"orders{suffix}")


@pytest.mark.parametrize("name", ["", " ", "\t", None, 5, b"orders", "\ud800"])
def test_a_queue_name_that_is_no_text_is_refused(name: Any) -> None:
    """Nor may it be blank."""
    with pytest.raises(ConfigurationError, match="queue"):
        PublisherOptions(name)


def test_ordinary_names_pass() -> None:
    """A dead-letter queue can be consumed like any other."""
    for name in ("orders", "orders.dlq", "{orders}", "a b", "ü", "a:processing:b"):
        assert PublisherOptions(name).queue == name


def test_defaults_are_those_of_the_contract() -> None:
    """Golden: other documents name them."""
    options = ConsumerOptions("orders")
    assert (options.retry_after, options.lease, options.max_tries) == (90, 90, 3)
    assert (options.block_timeout, options.shutdown_timeout) == (5, 30)
    assert options.dead_letter_queue == options.poison_queue == "orders.dlq"
    assert (options.unknown_urn, options.on_failure) == ("fail", "release")
    assert options.migration_batch_size == -1


def test_a_fraction_of_a_lease_is_rounded_up() -> None:
    """Scores are whole seconds, and a lease is a promise of at least."""
    assert ConsumerOptions("q", retry_after=0.1).lease == 1
    assert ConsumerOptions("q", retry_after=0).lease == 0
    assert ConsumerOptions("q", retry_after=None).lease is None


def test_poison_has_a_queue_even_without_a_dead_letter_queue() -> None:
    """It is never dropped."""
    assert ConsumerOptions("q", dead_letter_queue=None).poison_queue == "q.dlq"
    assert ConsumerOptions("q", dead_letter_queue="other").poison_queue == "other"


@pytest.mark.parametrize("delay", [-1, math.nan, "5", True, 0.001, 60])
def test_a_delay_on_the_legacy_layout_is_refused(delay: Any) -> None:
    """It has no delayed set; only no delay is right."""
    with pytest.raises(ConfigurationError, match="delay"):
        check_delay(delay, PublisherOptions("q"))


def test_no_delay_is_no_error() -> None:
    """Neither none nor zero."""
    check_delay(None, PublisherOptions("q"))
    check_delay(0, PublisherOptions("q"))


def test_a_batch_is_pairs_and_not_too_many() -> None:
    """One trip has a bound."""
    assert check_batch(iter([("urn:a", {})])) == [("urn:a", {})]
    with pytest.raises(ValueError, match="1000"):
        check_batch([("urn:a", {})] * 1001)
    with pytest.raises(ValueError, match="message 1 "):
        check_batch([("urn:a", {}), "urn:b"])  # type: ignore[list-item]


@pytest.mark.parametrize("option", ["retry_after", "layout", "key_prefix", "max_tries"])
def test_an_option_of_ours_in_a_url_is_told_apart(option: str) -> None:
    """redis-py would hand it to a socket."""
    with pytest.raises(ConfigurationError, match=option):
        check_url(f"redis://127.0.0.1/0?{option}=1&socket_timeout=1")
    check_url("redis://127.0.0.1/0?socket_timeout=1")

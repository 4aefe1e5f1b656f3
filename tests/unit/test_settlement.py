from __future__ import annotations

import json
from typing import Any

import pytest

from babelqueue_redis import Outcome, PoisonError, UnknownUrnError
from babelqueue_redis.core.routing import Routes, deliver
from babelqueue_redis.core.settlement import Settlement, settlement
from babelqueue_redis.envelope import INT64_MAX
from babelqueue_redis.settings import ConsumerOptions
from babelqueue_redis.values import Delivery, Destination, Reservation

BODY = b'{"job":"urn:a","meta":{"id":"i","queue":"first"},"attempts":%d}'
POISON = b"not json"


def delivered(body: bytes, options: ConsumerOptions, *, known: bool = True) -> Delivery:
    """Route a body as a consumer would."""
    routes = Routes({"urn:a": lambda envelope: None} if known else {}, None)
    reservation = Reservation("q", body, {}, "t" * 32, body)
    return deliver(reservation, Destination("q", "legacy"), routes, options)


def settled(body: bytes, *, known: bool = True, **options: Any) -> Settlement:
    """Return what a failure leads to."""
    checked = ConsumerOptions("q", **options)
    delivery = delivered(body, checked, known=known)
    error = delivery.refusal or ValueError("boom")
    end = settlement(delivery, error, checked, 1749132727000)
    assert end.outcome is delivery.if_failed
    return end


@pytest.mark.parametrize(
    ("attempts", "max_tries", "expected"),
    [
        (0, 1, Outcome.DEAD_LETTERED),
        (0, 3, Outcome.RETRIED),
        (1, 3, Outcome.RETRIED),
        (2, 3, Outcome.DEAD_LETTERED),
        (99, 3, Outcome.DEAD_LETTERED),
        (-5, 2, Outcome.RETRIED),
    ],
)
def test_a_failing_handler_runs_max_tries_times(
    attempts: int, max_tries: int, expected: Outcome
) -> None:
    """The raised count decides; a negative count starts from zero."""
    end = settled(BODY % attempts, max_tries=max_tries)
    assert end.outcome is expected
    raised = max(attempts, 0) + 1
    assert json.loads(end.body)["attempts"] == raised
    if expected is Outcome.DEAD_LETTERED:
        assert json.loads(end.body)["dead_letter"]["attempts"] == raised


def test_a_count_does_not_grow_beyond_int64() -> None:
    """Another SDK could not read it."""
    end = settled(BODY % INT64_MAX)
    assert json.loads(end.body)["attempts"] == INT64_MAX


def test_the_block_names_the_first_queue_and_the_error() -> None:
    """``meta.queue`` when it is there, else the queue that was consumed."""
    end = settled(BODY % 2)
    written = json.loads(end.body)["dead_letter"]
    assert (written["reason"], written["error"]) == ("failed", "boom")
    assert written["exception"] == "ValueError"
    assert written["original_queue"] == "first"
    bare = json.loads(settled(b'{"job":"urn:a","attempts":2}').body)["dead_letter"]
    assert bare["original_queue"] == "q"


@pytest.mark.parametrize(
    ("strategy", "attempts", "expected"),
    [
        ("fail", 0, Outcome.RETRIED),
        ("fail", 2, Outcome.DEAD_LETTERED),
        ("delete", 0, Outcome.DROPPED),
        ("release", 9, Outcome.RELEASED),
        ("dead_letter", 0, Outcome.DEAD_LETTERED),
    ],
)
def test_an_unknown_urn_follows_its_strategy(
    strategy: str, attempts: int, expected: Outcome
) -> None:
    """And a dead letter of it says ``unknown_urn``."""
    end = settled(BODY % attempts, known=False, unknown_urn=strategy)
    assert end.outcome is expected
    if expected is Outcome.DEAD_LETTERED:
        written = json.loads(end.body)["dead_letter"]
        assert written["reason"] == "unknown_urn"
        assert written["attempts"] == attempts + 1


@pytest.mark.parametrize("strategy", ["fail", "delete", "release", "dead_letter"])
@pytest.mark.parametrize("queue", [None, "", "elsewhere"])
def test_poison_is_dead_lettered_in_every_configuration(strategy: str, queue: str | None) -> None:
    """Never dropped, never retried."""
    end = settled(
        POISON, unknown_urn=strategy, dead_letter_queue=queue, on_failure="leave", max_tries=9
    )
    assert end.outcome is Outcome.DEAD_LETTERED
    assert end.dead_letter_queue == (queue or "q.dlq")
    assert json.loads(end.body)["raw"] == "not json"
    assert json.loads(end.body)["dead_letter"]["original_queue"] == "q"


def test_without_a_dead_letter_queue_exhausted_messages_are_dropped() -> None:
    """And so are those with an unknown URN that would go there."""
    assert settled(BODY % 2, dead_letter_queue=None).outcome is Outcome.DROPPED
    unknown = settled(BODY % 0, known=False, unknown_urn="dead_letter", dead_letter_queue=None)
    assert unknown.outcome is Outcome.DROPPED


def test_leaving_failures_leaves_those_of_handlers_only() -> None:
    """An unknown URN has its own strategy."""
    assert settled(BODY % 9, on_failure="leave").outcome is Outcome.LEFT
    assert settled(BODY % 0, known=False, on_failure="leave").outcome is Outcome.RETRIED


def test_a_layouts_own_verdict_makes_poison() -> None:
    """It saw bytes that the body does not show."""
    options = ConsumerOptions("q")
    reservation = Reservation("q", BODY % 0, {}, "t" * 32, b"", "the bytes are not UTF-8")
    delivery = deliver(
        reservation, Destination("q", "legacy"), Routes(None, lambda envelope: None), options
    )
    assert isinstance(delivery.refusal, PoisonError)
    assert delivery.handler is None


def test_an_unknown_urn_is_named_in_its_error() -> None:
    """With the queue and the id."""
    delivery = delivered(BODY % 0, ConsumerOptions("q"), known=False)
    assert isinstance(delivery.refusal, UnknownUrnError)
    assert "'urn:a'" in str(delivery.refusal)
    assert "'q'" in str(delivery.refusal)
    assert "message 'i'" in str(delivery.refusal)


def test_an_exception_that_cannot_be_printed_stops_nothing() -> None:
    """It is somebody else's class."""

    class Unprintable(Exception):  # noqa: N818
        def __str__(self) -> str:
            raise RuntimeError

    options = ConsumerOptions("q", max_tries=1)
    delivery = delivered(BODY % 0, options)
    end = settlement(delivery, Unprintable(), options, 0)
    assert "no printable message" in json.loads(end.body)["dead_letter"]["error"]

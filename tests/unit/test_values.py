from __future__ import annotations

import msgspec
import pytest

from babelqueue_redis.core.routing import Routes, deliver
from babelqueue_redis.settings import ConsumerOptions
from babelqueue_redis.values import Destination, Outcome, Publication, Reservation

DESTINATION = Destination("q", "legacy", "127.0.0.1", 6379)
BODY = b'{"job":"urn:a","data":{"s":"secret"},"meta":{"id":"i"}}'
RESERVATION = Reservation("q", BODY, {"k": "secret"}, "t" * 32, BODY)
DELIVERY = deliver(
    RESERVATION, DESTINATION, Routes({"urn:a": lambda envelope: None}, None), ConsumerOptions("q")
)
PUBLICATION = Publication(
    DESTINATION, "urn:a", "i", None, {"k": "secret"}, msgspec.Raw(b'"secret"'), {}, 0
)


@pytest.mark.parametrize("value", [RESERVATION, DELIVERY, PUBLICATION, DELIVERY.envelope])
def test_a_representation_names_the_message_and_hides_its_content(value: object) -> None:
    """Payloads and header values stay out of logs."""
    assert "secret" not in repr(value)
    assert "q" in repr(value) or "urn:a" in repr(value)


def test_the_intended_outcome_follows_from_how_handling_ended() -> None:
    """Well, with a failure, or interrupted."""
    assert DELIVERY.intended(None) is Outcome.ACKED
    assert DELIVERY.intended(ValueError()) is Outcome.RETRIED
    assert DELIVERY.intended(SystemExit()) is Outcome.RETRIED
    assert DELIVERY.intended(KeyboardInterrupt()) is Outcome.RELEASED


def test_an_outcome_prints_as_the_word_it_is() -> None:
    """In logs and in attributes."""
    assert str(Outcome.DEAD_LETTERED) == f"{Outcome.DEAD_LETTERED}" == "dead_lettered"

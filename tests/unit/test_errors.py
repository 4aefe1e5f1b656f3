from __future__ import annotations

import copy
import pickle

import pytest

from babelqueue_carrier.errors import message_of, qualified_name
from babelqueue_redis import (
    BabelQueueError,
    CommandRefusedError,
    ConnectionLostError,
    PublishError,
    SettlementError,
    errors,
)


@pytest.mark.parametrize(
    "error",
    [
        PublishError("it", message_ids=("a", "b"), may_be_stored=True),
        ConnectionLostError("it", sent=True),
        SettlementError("it", message_id="a", outcome="acked"),
        CommandRefusedError("it"),
    ],
)
def test_an_error_survives_a_process_pool(error: BabelQueueError) -> None:
    """A pool pickles what its tasks raise."""
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301 - our own
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert vars(again) == vars(error)


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    """Every public error is drawn there, and derives from the root."""
    for name in errors.__all__:
        assert f" {name} " in f" {errors.__doc__} ".replace("\n", " ")
        assert issubclass(getattr(errors, name), BabelQueueError)


def test_an_exception_is_described_whatever_its_class_does() -> None:
    """It is somebody else's."""

    class Unprintable(Exception):  # noqa: N818
        def __str__(self) -> str:
            raise RuntimeError

    assert message_of(ValueError("boom")) == "boom"
    assert "no printable message" in message_of(Unprintable())
    assert qualified_name(ValueError()) == "ValueError"
    assert qualified_name(PublishError("it")) == "babelqueue_redis.errors.PublishError"

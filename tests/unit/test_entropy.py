from __future__ import annotations

import re
import time
import uuid

import pytest

from babelqueue_redis import entropy


def test_tokens_sort_by_time_and_differ() -> None:
    """32 hex digits; a later one is greater."""
    made = [entropy.new_token(index) for index in range(1000)]
    assert made == sorted(made)
    assert len(set(made)) == 1000
    assert all(re.fullmatch("[0-9a-f]{32}", token) for token in made)


def test_tokens_do_not_go_back_when_the_clock_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that is set back must not put a new reservation before an old one."""
    tokens = entropy.Tokens()
    first = tokens()
    monkeypatch.setattr(time, "time_ns", lambda: 1)
    assert tokens() > first


def test_ids_are_uuids() -> None:
    """Random ones, in the usual form; they differ."""
    made = [*entropy.new_ids(500), entropy.new_id()]
    assert len(set(made)) == 501
    assert [str(uuid.UUID(each)) for each in made] == made
    assert {(uuid.UUID(each).version, uuid.UUID(each).variant) for each in made} == {
        (4, uuid.RFC_4122)
    }


def test_the_clock_speaks_in_milliseconds() -> None:
    """Since the epoch."""
    assert abs(entropy.epoch_ms() - time.time() * 1000) < 60_000

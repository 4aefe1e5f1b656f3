from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from babelqueue_redis import (
    JobWorker,
    RedisConsumer,
    RedisJobStore,
    RedisPublisher,
    RedisQueue,
    RedisSeenStore,
    RedisWorker,
)

PAGE = (Path(__file__).parents[2] / "docs" / "options.md").read_text()


@pytest.mark.parametrize(
    ("section", "made"),
    [
        ("Publishers", RedisPublisher),
        ("Queues", RedisQueue),
        ("Consumers", RedisConsumer),
        ("Workers of several queues", RedisWorker),
        ("Stores of seen ids", RedisSeenStore),
        ("Job stores", RedisJobStore),
        ("Job workers", JobWorker),
    ],
)
def test_the_page_of_options_has_every_keyword_and_no_other(section: str, made: type) -> None:
    """A table for each constructor; how the twins differ, ``test_mirror`` says."""
    part = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", part, re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    keywords = inspect.signature(made).parameters.values()
    assert named == sorted(set(named), key=named.index)
    assert set(named) == {each.name for each in keywords if each.kind is each.KEYWORD_ONLY}

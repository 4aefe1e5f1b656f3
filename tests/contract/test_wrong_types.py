"""A key of the wrong type under a reserve: nothing is changed, or what is done is told."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from babelqueue_redis import CommandRefusedError, RedisPublisher, entropy
from babelqueue_redis.layouts import layout_of
from babelqueue_redis.settings import ConsumerOptions
from babelqueue_redis.sync.driver import Driver
from tests.support.marks import both_layouts
from tests.support.server import Client

pytestmark = both_layouts

PARTS = {
    "legacy": ("", ":processing", ":processing:deadlines", ":recoveries"),
    "zset": ("", ":reserved", ":notify", ":delayed"),
}
DELAYED = 3
WAYS = list(itertools.product((1, 2, 9), (0, 2), (True, False), (90, None)))
"""How many are asked for and ended, whether it looks for what expired, and the lease."""


@pytest.fixture
def keys(client: Client, queue: str, layout: str) -> Iterator[list[str]]:
    """The keys of a queue; they are gone afterwards."""
    prefix = "" if layout == "legacy" else "queues:"
    made = [f"{prefix}{queue}{part}" for part in PARTS[layout]]
    yield made
    client.delete(*made)


@pytest.mark.parametrize("place", range(4))
def test_a_refused_reserve_changes_nothing_but_what_it_tells(
    redis_url: str, client: Client, queue: str, layout: str, keys: list[str], place: int
) -> None:
    """Whichever key it is, however many are taken, with ends on the way or not."""
    driver = Driver(redis_url)
    for count, ends, looks, lease in WAYS:
        client.delete(*keys)
        RedisPublisher(redis_url, queue, layout=layout).publish_many(
            [("urn:a", {"n": n}) for n in range(6)]
        )
        said = layout_of(ConsumerOptions(queue, layout, retry_after=lease))
        ended = driver.run(said.reserve(entropy.new_token(), None, ends)) if ends else []
        client.delete(keys[place])
        client.set(keys[place], "a string")
        before = [client.dump(key) for key in keys]
        taken = driver.send(said.take(entropy.new_token(), None, count, ended, looks=looks))
        after = [client.dump(key) for key in keys]
        if layout == "zset" and place == DELAYED and not looks:
            assert taken.refused is None  # that set is not asked then
            continue
        assert isinstance(taken.refused, CommandRefusedError)
        assert queue in str(taken.refused)
        assert any(taken.ended) or before == after

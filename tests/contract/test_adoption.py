"""What the sweep of the legacy layout counts, and elements without a deadline."""

from __future__ import annotations

import pytest

from babelqueue_redis import entropy
from babelqueue_redis.layouts import LegacyLayout
from babelqueue_redis.sync.driver import Driver
from tests.support.server import Client

NOW = 1_000_000.0


def test_counts_have_a_bounded_life(client: Client, queue: str) -> None:
    """A day and ten leases from the first one on: not renewed, so the key cannot grow for ever."""
    driver, layout = Driver(client), LegacyLayout(queue, 100)
    client.rpush(queue, b"a")

    def recover(now: float) -> None:
        driver.run(layout.reserve(entropy.new_token(), now))
        driver.run(layout.sweep(now + 100))

    recover(NOW)
    life = client.ttl(f"{queue}:recoveries")
    assert 86_400 < life <= 86_400 + 1000
    client.expire(f"{queue}:recoveries", 50)
    recover(NOW + 200)
    assert client.ttl(f"{queue}:recoveries") <= 50
    assert client.hvals(f"{queue}:recoveries") == [b"2"]


def adopt(client: Client, layout: LegacyLayout) -> int:
    """Adopt, at a time of our choosing."""
    return Driver(client).run(layout.adopt(entropy.new_token, NOW))


def deadlines(client: Client, queue: str) -> list[tuple[bytes, float]]:
    """Return the elements that have a deadline, with it."""
    found = client.zrange(f"{queue}:processing:deadlines", 0, -1, withscores=True)
    return sorted((member[33:], score) for member, score in found)


def test_only_what_has_no_deadline_is_adopted(client: Client, queue: str) -> None:
    """Equal elements are counted; what has a deadline keeps it."""
    client.rpush(f"{queue}:processing", b"a", b"b", b"a", b"a")
    client.zadd(f"{queue}:processing:deadlines", {"0" * 32 + ":a": 5})
    assert adopt(client, LegacyLayout(queue, 10)) == 3
    assert deadlines(client, queue) == [
        (b"a", 5),
        (b"a", NOW + 10),
        (b"a", NOW + 10),
        (b"b", NOW + 10),
    ]
    assert adopt(client, LegacyLayout(queue, 10)) == 0
    assert Driver(client).run(LegacyLayout(queue, 10).sweep(NOW + 10)) == 4


def test_a_lost_key_of_deadlines_is_made_up_for(client: Client, queue: str) -> None:
    """500 elements at a time, whose tokens sort like the list."""
    elements = [b"element %d" % n for n in range(1700)]
    client.rpush(f"{queue}:processing", *elements)
    assert adopt(client, LegacyLayout(queue, 10)) == 1700
    assert Driver(client).run(LegacyLayout(queue, 10).sweep(NOW + 10)) == 1700
    assert client.lrange(queue, 0, -1) == elements


def test_a_deadline_without_its_element_creates_nothing(client: Client, queue: str) -> None:
    """There is nothing to adopt."""
    client.zadd(f"{queue}:processing:deadlines", {"0" * 32 + ":gone": 5})
    assert adopt(client, LegacyLayout(queue, 10)) == 0
    assert not client.exists(queue, f"{queue}:processing")


@pytest.mark.parametrize(("listed", "noted"), [(1, 1), (1, 2), (9000, 5001)])
def test_the_script_of_adoption_runs_only_when_it_is_needed(listed: int, noted: int) -> None:
    """There are more elements than deadlines; not so many deadlines that it would take long."""
    op = LegacyLayout("q", 10).adopt(entropy.new_token)
    next(op)
    with pytest.raises(StopIteration) as end:
        op.send([listed, noted])
    assert end.value.value == 0


def test_without_a_lease_nothing_is_adopted(client: Client, queue: str) -> None:
    """It would not come back."""
    client.rpush(f"{queue}:processing", b"a")
    assert adopt(client, LegacyLayout(queue, None)) == 0
    assert not client.exists(f"{queue}:processing:deadlines")

from __future__ import annotations

from babelqueue_redis.core.pulse import PATIENCE, Pulse
from babelqueue_redis.settings import ConsumerOptions


def pulse(**options: float) -> Pulse:
    """Return the pulse of a consumer with some options."""
    options_of = ConsumerOptions("q", **options)  # type: ignore[arg-type]  # floats all
    return Pulse(options_of.longest_hold)


def test_there_is_none_before_the_first_answer_and_after_the_end() -> None:
    """A worker that could never reach its Redis is not healthy."""
    made = pulse()
    assert not made.alive(0)
    made.outage(0)
    assert not made.alive(0)
    made.beat(1)
    assert made.alive(1)
    made.end()
    assert not made.alive(1)


def test_it_lasts_a_while_after_each_answer() -> None:
    """And no longer, whatever became of the loop."""
    made = pulse()
    made.beat(0)
    assert made.alive(PATIENCE - 1)
    assert not made.alive(PATIENCE)


def test_a_handler_may_take_as_long_as_its_reservation_is_extended() -> None:
    """The loop cannot tell anything meanwhile; one that hangs is found out in the end."""
    made = pulse(handler_timeout=100, max_lease=200)
    made.busy(0)
    assert made.alive(100 + PATIENCE - 1)
    assert not made.alive(100 + PATIENCE)
    unlimited = pulse(max_lease=200)
    unlimited.busy(0)
    assert unlimited.alive(200)


def test_an_outage_ends_it_however_often_it_is_told() -> None:
    """Patience counts from its beginning; and it never makes a pulse longer."""
    made = pulse()
    made.busy(0)
    for now in range(10, 30, 5):
        made.outage(now)
    assert made.alive(10 + PATIENCE - 1)
    assert not made.alive(10 + PATIENCE)

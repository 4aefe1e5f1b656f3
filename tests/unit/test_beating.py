from __future__ import annotations

import pytest

from babelqueue_redis.core.beating import Beats, Looks
from babelqueue_redis.settings import ConsumerOptions
from babelqueue_redis.values import Reservation


def reservation(token: str = "a") -> Reservation:  # noqa: S107 - no password
    """Make one."""
    return Reservation("q", b"", {}, token, b"")


def test_a_beat_is_due_three_times_a_lease() -> None:
    """From the reservation on, then from the last beat on."""
    beats, held = Beats(ConsumerOptions("q", retry_after=9)), reservation()
    assert beats.pause(100) == 3
    beats.add((held,), 100)
    assert (beats.due(102.9), beats.pause(102)) == ([], 1)
    assert beats.due(103) == [held]
    beats.extended(held, 103.5, there=True)
    assert (beats.due(106), beats.due(106.5)) == ([], [held])


def test_a_look_comes_before_anything_new_can_be_due() -> None:
    """Nobody tells of a new reservation; and a beat that fails is not tried all the time."""
    beats = Beats(ConsumerOptions("q", retry_after=9))
    beats.add((reservation("a"),), 100)
    beats.add((reservation("b"),), 101)
    assert beats.pause(100) == 3
    assert beats.pause(102.9) == beats.pause(110) == 0.75


def test_a_reservation_that_is_gone_is_lost_unless_it_was_settled() -> None:
    """The answer may come after the settlement."""
    beats, held, settled = Beats(ConsumerOptions("q")), reservation("a"), reservation("b")
    beats.add((held,), 100)
    beats.add((settled,), 100)
    beats.drop((settled,))
    for each in (held, settled):
        beats.extended(each, 130, there=False)
    assert (held.lost, settled.lost) == (True, False)
    assert not beats


@pytest.mark.parametrize("options", [{"max_lease": 50}, {"handler_timeout": 50}])
def test_what_was_held_long_enough_is_dropped(
    options: dict[str, float], caplog: pytest.LogCaptureFixture
) -> None:
    """It may end."""
    beats = Beats(ConsumerOptions("q", **options))  # type: ignore[arg-type]
    beats.add((reservation(),), 100)
    assert len(beats.due(149)) == 1
    assert beats
    assert beats.due(150) == []
    assert not beats
    assert "handled for 50 s" in caplog.text


@pytest.mark.parametrize(
    "options", [{"heartbeat": False}, {"retry_after": None}, {"retry_after": 0}], ids=str
)
def test_there_may_be_no_beats(options: dict[str, object]) -> None:
    """Where they are turned off, or there is no lease to extend."""
    assert Beats(ConsumerOptions("q", **options)).interval == 0  # type: ignore[arg-type]


def test_a_busy_worker_looks_for_expired_reservations_ten_times_a_second() -> None:
    """At most, however many trips it makes; and at the first one."""
    looks = Looks()
    assert [trip for trip in range(32) if looks.due(trip / 32)] == list(range(0, 32, 4))

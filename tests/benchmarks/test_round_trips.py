"""The smoke form of ``nox -s bench``: its works run, and what they count holds; no time does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.benchmarks.bench_measures import MEASURES
from tests.benchmarks.peers import ours, ours_jobs, ours_queue
from tests.support.marks import both_layouts


@pytest.fixture
def url(own_server: Callable[..., str]) -> str:
    """A server that counts for nobody else."""
    return own_server()


@both_layouts
def test_a_publish_is_one_trip(url: str, layout: str) -> None:
    """Nothing is asked before, or after."""
    reading = ours.publish(url, 50, layout=layout)
    assert reading["trips"] == reading["replies"] == 1


@both_layouts
def test_a_batch_is_one_trip(url: str, layout: str) -> None:
    """A hundred messages, one reply."""
    assert ours.publish_many(url, 1000, layout=layout)["replies"] == 1 / 100


def test_what_a_hundred_tasks_publish_together_is_one_trip(url: str) -> None:
    """Again and again."""
    assert ours.publish_tasks(url, 1000, tasks=100)["replies"] <= 2 / 100


@both_layouts
def test_fast_messages_share_their_trips(url: str, layout: str) -> None:
    """The first and the last trips of a worker are counted as well."""
    assert ours.consume(url, 2000, layout=layout)["trips"] <= 0.5


@both_layouts
def test_a_busy_worker_needs_one_trip_a_message(url: str, layout: str) -> None:
    """The settlement of one message and the reserve of the next travel together."""
    assert ours.consume(url, 400, layout=layout, prefetch=1)["trips"] <= 1.05


@both_layouts
def test_a_traced_message_needs_no_trip_more(url: str, layout: str) -> None:
    """Spans are no business of Redis'."""
    plain = ours.consume(url, 200, layout=layout, prefetch=1)
    traced = ours.consume(url, 200, layout=layout, prefetch=1, traced=True)
    assert traced["trips"] == pytest.approx(plain["trips"], abs=0.05)


def test_one_script_call_moves_a_bounded_number(url: str) -> None:
    """However many reservations have run out."""
    assert 0 < ours_queue.expiring(url, 3000)["moved"] <= 100


def test_jobs_need_a_trip_a_step(url: str) -> None:
    """An enqueue, a claim, a completion; a batch is one as well."""
    assert ours_jobs.enqueue(url, 50)["replies"] == 1
    assert ours_jobs.enqueue_many(url, 1000)["replies"] == pytest.approx(1 / 100, abs=1e-3)
    assert ours_jobs.run_jobs(url, 50)["replies"] <= 2.1


def test_every_measure_compares_ours_with_somebody_it_names() -> None:
    """A target without a contender would never be shown."""
    for measure in MEASURES.values():
        names = [contender.name for contender in measure.contenders]
        assert len(set(names)) == len(names), measure.name
        assert set(measure.targets) <= set(names[1:]), measure.name

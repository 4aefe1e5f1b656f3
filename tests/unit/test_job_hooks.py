from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from babelqueue_redis import JobRun, NewJob, hooks
from babelqueue_redis.jobs.registry import JobRegistry
from babelqueue_redis.jobs.running import imagined
from babelqueue_redis.values import Destination

JOB = NewJob(Destination("a", "jobs"), "id", b"1", {"k": "v"}, None, 5)


@contextlib.contextmanager
def registered(hook: hooks.Hook) -> Iterator[None]:
    """Register a hook for as long as the block lasts."""
    hooks.register(hook)
    try:
        yield
    finally:
        hooks.unregister(hook)


class Returns(hooks.Hook):
    """Makes something of what is enqueued."""

    def __init__(self, made: Any) -> None:
        self.made = made

    @contextlib.contextmanager
    def enqueuing(self, job: NewJob) -> Iterator[Any]:
        """Return what was asked for."""
        yield self.made

    @contextlib.contextmanager
    def enqueuing_many(self, jobs: tuple[NewJob, ...]) -> Iterator[Any]:
        """Return what was asked for, for each."""
        yield (self.made,) * len(jobs)


def test_a_hook_may_change_a_jobs_headers_and_nothing_else() -> None:
    """A kind, an id or a payload of its making is not taken."""
    other = NewJob(Destination("b", "jobs"), "x", b"no JSON", {"more": "1", "": ""}, 7, 1, "key")
    expected = JOB.carrying({"more": "1"})
    with registered(Returns(other)):
        with hooks.enqueuing(JOB) as job:
            assert job == expected
        with hooks.enqueuing_many((JOB, JOB)) as jobs:
            assert jobs == (expected, expected)


@pytest.mark.parametrize("made", [1, "job", JOB.carrying({"k": 1})])  # type: ignore[dict-item]
def test_what_cannot_be_stored_is_not_taken(made: Any, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, and the job goes on as it was."""
    with registered(Returns(made)), hooks.enqueuing(JOB) as job:
        assert job is JOB
    assert "Returns made no publication or job" in caplog.text


def test_a_hook_sees_a_run_and_cannot_swallow_its_error() -> None:
    """The run is passed as it is."""
    run = JobRun(Destination("a", "jobs"), imagined("a", 1, with_a(), "id"))
    seen: list[Any] = []

    class Sees(hooks.Hook):
        @contextlib.contextmanager
        def processing_job(self, run: JobRun) -> Iterator[None]:
            """Note what passes."""
            try:
                yield
            except ValueError as error:
                seen.append((run, error))

    with registered(Sees()), pytest.raises(ValueError, match="boom"), hooks.processing_job(run):
        raise ValueError("boom")  # noqa: EM101 - short
    assert seen[0][0] is run


def with_a() -> JobRegistry:
    """A registry that knows one kind."""
    registry = JobRegistry()
    registry.job("a")(lambda payload: None)
    return registry


def test_reprs_hold_no_payload_and_no_headers() -> None:
    """Logs are full of them."""
    assert repr(JOB) == "NewJob('a', id)"

"""Bytes that a coverage-guided fuzzer thinks of: ``nox -s fuzz [-- -max_total_time=600]``.

Whatever they are, they are read without an exception, and what is written of them is read again as
what it was. The options are libFuzzer's.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["babelqueue_carrier", "babelqueue_redis"]):
    from babelqueue_carrier.frame import frame_value, unframe
    from babelqueue_redis import PayloadError, dead_letter
    from babelqueue_redis.core.stored import stored_message
    from babelqueue_redis.envelope import with_attempts
    from babelqueue_redis.errors import PoisonError
    from babelqueue_redis.jobs.registry import JobRegistry
    from babelqueue_redis.jobs.values import Job, job_of
    from babelqueue_redis.verdict import verdict

BLOCK = dead_letter.block(
    "poison", error="x", exception="y", failed_at=1, original_queue="q", attempts=7
)
REGISTRY = JobRegistry()
FIELDS = (b"id", b"kind", b"payload", b"status", b"attempts", b"runAt", b"headers", b"lockedAt")


def read(value: bytes) -> None:
    """Read an element of a queue, and write what becomes of it."""
    body, headers = unframe(value)
    assert unframe(frame_value(body, headers)) == (body, headers)
    judged = verdict(body)
    if isinstance(judged, PoisonError):
        dead = dead_letter.poison_record(body, BLOCK)
    else:
        again = verdict(with_attempts(body, 7))
        assert not isinstance(again, PoisonError)
        assert (again.job, again.data, again.attempts) == (judged.job, judged.data, 7)
        dead = dead_letter.record(body, BLOCK)
    stored = stored_message("dead", frame_value(dead, headers), framed=True)
    assert (stored.dead_letter.reason, stored.headers) == ("poison", headers)
    assert repr(stored).encode()


def read_job(value: bytes) -> None:
    """Read a job, whose fields the bytes are."""
    values = value.split(b"\0")
    reply = [part for pair in zip(FIELDS, values, strict=False) for part in pair]
    job = job_of(reply, Job)
    if job is None:
        return
    assert repr(job).encode()
    assert 0 <= job.attempts <= 2**53
    try:
        REGISTRY.decode("a", job.raw)
    except PayloadError as error:
        assert str(error).encode()  # noqa: PT017 - no test of pytest's


def look(value: bytes) -> None:
    """Read bytes as all that they may be."""
    read(value)
    read_job(value)


if __name__ == "__main__":
    atheris.Setup(sys.argv, look)
    atheris.Fuzz()

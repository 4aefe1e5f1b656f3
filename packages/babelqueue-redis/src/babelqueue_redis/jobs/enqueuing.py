"""What an enqueue writes, and what its failure means."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from babelqueue_carrier.headers import ASCII_WHITESPACE, clean
from babelqueue_redis import strict_json
from babelqueue_redis.errors import (
    ConfigurationError,
    ConnectionLostError,
    EnvelopeError,
    PayloadError,
    PublishError,
    TransportError,
)
from babelqueue_redis.jobs.options import When, check_text, check_whole, epoch_ms
from babelqueue_redis.jobs.registry import JobRegistry
from babelqueue_redis.jobs.values import NewJob
from babelqueue_redis.values import Destination

MAX_BATCH = 1000
"""Jobs of one ``enqueue_many``."""

Item = tuple[str, Any] | tuple[str, Any, str | None]
"""Kind and payload, and an idempotency key where there is one."""


def new_job(
    item: Item,
    server: Destination,
    registry: JobRegistry | None,
    *,
    run_at: When,
    max_attempts: int,
    headers: Mapping[str, str] | None,
    job_id: str,
) -> NewJob:
    """Check what is to be enqueued, all of it, and return it.

    Raises:
        PayloadError, HeaderError, ConfigurationError: It cannot be stored.
    """
    kind, payload, key = item if len(item) == 3 else (*item, None)  # noqa: PLR2004 - it says so
    if not check_text("kind", kind).strip(ASCII_WHITESPACE):
        msg = "kind must not be blank"
        raise ConfigurationError(msg)
    return NewJob(
        destination=Destination(kind, server.layout, server.address, server.port),
        id=job_id,
        payload=encoded(kind, payload, registry),
        headers=clean(headers),
        run_at=epoch_ms(run_at, "run_at"),
        max_attempts=check_whole("max_attempts", max_attempts),
        idempotency_key=check_text("idempotency_key", key or ""),
    )


def encoded(kind: str, payload: Any, registry: JobRegistry | None) -> bytes:
    """Return a payload as JSON that the kind's handler takes.

    Raises:
        PayloadError: It has no JSON form, or is not what the kind takes.
    """
    try:
        raw = strict_json.encoded(payload, f"the payload of a job of kind {kind!r}")
    except EnvelopeError as error:
        raise PayloadError(str(error)) from error
    if registry is not None:
        registry.decode(kind, raw)
    return raw


def rechecked_job(changed: NewJob, before: NewJob) -> NewJob:
    """Return what a hook made of a job, if it may.

    Raises:
        HeaderError: A header is not text.
    """
    return before.carrying(clean(changed.headers))


def checked_items(items: Iterable[Item]) -> list[Item]:
    """Return the jobs of an ``enqueue_many``.

    Raises:
        ConfigurationError: They are more than 1 000, or one is neither a pair nor a triple.
    """
    checked = list(itertools.islice(items, MAX_BATCH + 1))
    if len(checked) > MAX_BATCH:
        msg = f"enqueue_many takes at most {MAX_BATCH} jobs in one trip: split the list"
        raise ConfigurationError(msg)
    for index, item in enumerate(checked):
        if not isinstance(item, tuple | list) or len(item) not in (2, 3):
            msg = f"job {index} of the batch must be (kind, payload) or (kind, payload, key)"
            raise ConfigurationError(msg)
    return checked


def unconfirmed(error: TransportError, jobs: Sequence[NewJob]) -> PublishError:
    """Return what the caller of a failed enqueue is told."""
    may_be_stored = isinstance(error, ConnectionLostError) and error.sent
    fate = (
        "may be stored all the same; enqueuing it again without an idempotency key could store it "
        "twice"
        if may_be_stored
        else "was not stored"
    )
    what = f"job {jobs[0].id} ({jobs[0].kind!r})"
    if len(jobs) > 1:
        what = f"batch of {len(jobs)} jobs from {what} on"
    ids = [job.id for job in jobs]
    return PublishError(f"{what} {fate}: {error}", message_ids=ids, may_be_stored=may_be_stored)

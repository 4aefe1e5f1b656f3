"""Jobs: on their way into a store, as they stand there, and while they run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from babelqueue_redis.core.command import octets
from babelqueue_redis.errors import (
    ConfigurationError,
    LeaseLostError,
    PayloadError,
    ShutdownError,
)
from babelqueue_redis.jobs.options import MOST
from babelqueue_redis.values import Destination, Outcome

JobT = TypeVar("JobT", bound="Job")

STATUSES = ("pending", "claimed", "done", "dead", "canceled")


class NewJob(msgspec.Struct, frozen=True):
    """A job on its way into the store, as an ``enqueuing`` hook sees it.

    Attributes:
        destination: The kind, in place of a queue, and the server.
        id: Its id.
        payload: Encoded JSON.
        headers: Clean headers; ``{}`` stores none.
        run_at: When it is due, epoch milliseconds; ``None`` is at once.
        max_attempts: How often it may fail before it is dead.
        idempotency_key: While an unfinished job holds it, no other is stored; ``""`` is none.
    """

    destination: Destination
    id: str
    payload: bytes
    headers: Mapping[str, str]
    run_at: int | None
    max_attempts: int
    idempotency_key: str = ""

    @property
    def kind(self) -> str:
        """What kind of job it is."""
        return self.destination.queue

    def carrying(self, headers: Mapping[str, str]) -> NewJob:
        """Return a copy with other headers."""
        return msgspec.structs.replace(self, headers=headers)

    def __repr__(self) -> str:
        """Leave the payload and the headers out."""
        return f"NewJob({self.kind!r}, {self.id})"


class Job(msgspec.Struct, frozen=True):
    """A job as it stands in the store. Times are epoch milliseconds.

    Ids, kinds and keys that another program wrote may hold bytes that are no UTF-8. Those are lone
    surrogates here, as in Python's file names, and what they were again on their way to Redis.

    Attributes:
        id: Its id.
        kind: What kind of job it is.
        raw: The payload as it is stored: JSON, if whoever stored it kept to the contract.
        status: ``pending``, ``claimed``, ``done``, ``dead`` or ``canceled``.
        attempts: How many attempts have failed.
        max_attempts: How many may fail.
        run_at: When it was or is due.
        created_at: When it was enqueued.
        updated_at: When it last changed.
        locked_at: When it was claimed; 0 when it is not.
        locked_by: The worker's id; ``""`` when it is not claimed.
        last_error: Why the last attempt failed; ``""`` when none did.
        idempotency_key: ``""`` when it has none.
        headers: What the producer's propagator wrote; ``{}`` when nothing.
        token: The token of our claim; ``""`` when it is not claimed, or by somebody else.
    """

    id: str
    kind: str
    raw: bytes
    status: str
    attempts: int
    max_attempts: int
    run_at: int
    created_at: int
    updated_at: int
    locked_at: int
    locked_by: str
    last_error: str
    idempotency_key: str
    headers: Mapping[str, str]
    token: str

    @property
    def payload(self) -> Any:
        """The payload, decoded.

        Raises:
            PayloadError: It is not JSON.
        """
        try:
            return msgspec.json.decode(self.raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            msg = f"the payload of job {printable(self.id)} ({self.kind!r}) is not JSON: {error}"
            raise PayloadError(msg) from error

    def __repr__(self) -> str:
        """Leave the payload and the headers out."""
        what, which = type(self).__name__, printable(self.id)
        return f"{what}({which}, {self.kind!r}, {self.status}, attempts {self.attempts})"


class ClaimedJob(Job, frozen=True):
    """A job that a worker has claimed: the handle that ends or extends the claim."""


class JobPage(msgspec.Struct, frozen=True):
    """Some of a list of jobs.

    Attributes:
        jobs: The jobs of this page.
        cursor: Where the next page begins; ``None`` after the last.
    """

    jobs: Sequence[Job]
    cursor: str | None


class JobRun(msgspec.Struct, eq=False):
    """A claimed job that is about to run, as a ``processing_job`` hook sees it.

    Attributes:
        destination: The kind, in place of a queue, and the server.
        job: What was claimed.
        ended: Why the run ended before its handler did: a ``PayloadError`` (then it never began), a
            ``HandlerTimeoutError``, a ``LeaseLostError``, a ``ShutdownError``; else ``None``.
    """

    destination: Destination
    job: ClaimedJob
    ended: Exception | None = None

    def intended(self, error: BaseException | None) -> Outcome:
        """Return what becomes of the job once its handler ended with ``error``."""
        error = self.ended or error
        if error is None:
            return Outcome.ACKED
        if isinstance(error, LeaseLostError):
            return Outcome.EXPIRED
        if isinstance(error, ShutdownError):
            return Outcome.RELEASED
        last = self.is_hopeless or self.job.attempts + 1 >= self.job.max_attempts
        return Outcome.DEAD_LETTERED if last else Outcome.RETRIED

    @property
    def is_hopeless(self) -> bool:
        """Whether no retry can help, because the payload is refused."""
        return isinstance(self.ended, PayloadError)


def printable(text: str) -> str:
    """Return text of a job as logs and exporters of spans can write it."""
    return text.encode("utf-8", "backslashreplace").decode()


def text_of(stored: bytes) -> str:
    """Return bytes of the store as text, which :func:`bytes_of` makes the same bytes of."""
    return stored.decode("utf-8", "surrogateescape")


def bytes_of(option: str, text: object) -> bytes:
    """Return text that names something in the store as the bytes it stands there as.

    Raises:
        ConfigurationError: It is none.
    """
    try:
        if isinstance(text, str):
            return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        pass
    msg = f"{option} must be text that can stand in Redis, not {text!r}"
    raise ConfigurationError(msg)


_Field = str | bool | None
"""Text of a job's field; ``False`` and ``None`` are a field that is not there."""


class _Stored(msgspec.Struct, array_like=True, gc=False):
    """What a claim answers of a job, beside its payload."""

    kind: str
    id: str
    status: _Field
    attempts: _Field
    max_attempts: _Field
    run_at: _Field
    created_at: _Field
    last_error: _Field
    idempotency_key: _Field
    headers: _Field


_STORED = msgspec.json.Decoder(_Stored)


def claimed_of(payload: bytes, stored: bytes, now: int, worker_id: str, token: str) -> ClaimedJob:
    """Return the job that a claim answered: its payload, and its other fields as a JSON array."""
    try:
        job = _STORED.decode(stored)
    except (msgspec.DecodeError, UnicodeDecodeError):  # of another program's bytes
        job = msgspec.convert(json.loads(text_of(stored)), _Stored)
    return ClaimedJob(
        id=job.id,
        kind=job.kind,
        raw=octets(payload),
        status="claimed",
        attempts=_number(job.attempts),
        max_attempts=_number(job.max_attempts, 1),
        run_at=_number(job.run_at),
        created_at=_number(job.created_at),
        updated_at=now,
        locked_at=now,
        locked_by=worker_id,
        last_error=_shown(job.last_error),
        idempotency_key=_kept(job.idempotency_key),
        headers=_headers(job.headers),
        token=token,
    )


def job_of(reply: Sequence[bytes], made: type[JobT]) -> JobT | None:
    """Return the job of an ``HGETALL`` reply; ``None`` when there is none, or not all of it.

    What comes last of two fields of one name counts.
    """
    stored = dict(zip(reply[::2], reply[1::2], strict=True))
    if not stored.keys() >= {b"kind", b"payload"}:
        return None
    fields = {name: text_of(value) for name, value in stored.items() if name != b"payload"}.get
    return made(
        id=fields(b"id", ""),
        kind=fields(b"kind", ""),
        raw=stored[b"payload"],
        status=_shown(fields(b"status")),
        attempts=_number(fields(b"attempts")),
        max_attempts=_number(fields(b"maxAttempts"), 1),
        run_at=_number(fields(b"runAt")),
        created_at=_number(fields(b"createdAt")),
        updated_at=_number(fields(b"updatedAt")),
        locked_at=_number(fields(b"lockedAt")),
        locked_by=fields(b"lockedBy", ""),
        last_error=_shown(fields(b"lastError")),
        idempotency_key=fields(b"idempotencyKey", ""),
        headers=_headers(fields(b"headers")),
        token=fields(b"claimToken", ""),
    )


def _kept(text: _Field) -> str:
    return text if isinstance(text, str) else ""


def _shown(text: _Field) -> str:
    """Return text that is shown and never goes back to Redis: as text that anything can write."""
    return _kept(text).encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _number(text: _Field, default: int = 0) -> int:
    """Return a number of a job, as one that can be counted with; what is none is ``default``."""
    if not isinstance(text, str) or not text.isascii():
        return default
    try:
        return min(max(int(float(text)), 0), MOST)
    except (ValueError, OverflowError):
        return default


def _headers(text: _Field) -> dict[str, str]:
    """Return stored headers; what cannot be read counts as none, for a job is more than those."""
    try:
        return msgspec.json.decode(text, type=dict[str, str]) if isinstance(text, str) else {}
    except (msgspec.MsgspecError, UnicodeError):
        return {}

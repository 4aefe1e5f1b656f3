r"""What a job store says to Redis.

Keys, under the store's prefix::

    job:<id>            hash        the job                               shared with JavaScript
    due                 sorted set  pending ids by runAt, epoch ms        shared
    claimed             sorted set  claimed ids by the end of the lease   shared
    idempotency:<key>   string      the id of the job that holds the key  shared
    finished:done       sorted set  done ids by when                      ours
    finished:dead       sorted set  dead ids by when                      ours
    finished:canceled   sorted set  canceled ids by when                  ours
    kinds               sorted set  <kind>\0<id>, all of score 0           ours

A job is in exactly the one of ``due``, ``claimed`` and ``finished:…`` that its status names. The
hash has two fields more than JavaScript's: ``claimToken`` and ``headers``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from babelqueue_redis import lua
from babelqueue_redis.core.command import Arg, Command, Op
from babelqueue_redis.errors import ConfigurationError, TransportError
from babelqueue_redis.jobs.options import JobStoreOptions, When, check_text, epoch_ms
from babelqueue_redis.jobs.values import (
    STATUSES,
    ClaimedJob,
    Job,
    JobT,
    NewJob,
    bytes_of,
    claimed_of,
    job_of,
    text_of,
)

CHUNK = 500
"""How many jobs one script call looks at, at most."""
REAPED = 100
"""How many jobs whose lease ran out one call brings back, which is 2 ms of Redis' time."""

FEW = 8
"""How many jobs more than it wants a claim looks at first: some may be of other kinds."""

LONGEST_ERROR = 4000
"""How many characters of an error are kept."""

_encode = msgspec.json.Encoder().encode


class JobCommands:
    """The commands of one store."""

    def __init__(self, options: JobStoreOptions) -> None:
        """Name the keys."""
        prefix = options.key_prefix.encode()
        self._options = options
        self._due, self._claimed = prefix + b"due", prefix + b"claimed"
        self._idempotency = prefix + b"idempotency:"
        self._job = self.job = prefix + b"job:"
        self._kinds = self.kinds = prefix + b"kinds"
        self._done, self._dead, self._canceled = (
            prefix + b"finished:" + status.encode() for status in STATUSES[2:]
        )
        self.places = dict(
            zip(
                STATUSES,
                (self._due, self._claimed, self._done, self._dead, self._canceled),
                strict=True,
            )
        )

    def enqueue(self, jobs: Sequence[NewJob], now: When) -> Command[list[str]]:
        """Store jobs, all or none; the result is the id of each, or of the one that was there."""
        args: list[Arg] = [clock_of(now)]
        for job in jobs:
            due = "" if job.run_at is None else job.run_at
            headers = _encode(job.headers).decode() if job.headers else ""
            few = (job.id, job.kind, due, job.max_attempts, job.idempotency_key, headers)
            args += (job.payload, _encode(few))

        def ids(held: Sequence[Any]) -> list[str]:
            own = [job.id for job in jobs]
            for place, holder in zip(held[::2], held[1::2], strict=True):
                own[place] = text_of(holder)
            return own

        keys = (self._due, self._job, self._idempotency, self._kinds)
        return Command(lua.JOBS_ENQUEUE, keys, tuple(args), ids)

    def claim(
        self,
        limit: int,
        worker_id: str,
        lease: int,
        kinds: Iterable[str] | None,
        token: str,
        now: When,
    ) -> Op[list[ClaimedJob]]:
        """Claim due jobs in bounded calls, past any number of jobs of other kinds.

        Raises:
            ConfigurationError: ``kinds`` is one text, or one of them is none.
        """
        if isinstance(kinds, str):
            msg = f"kinds={kinds!r} is refused: it must be a list, [{kinds!r}]"
            raise ConfigurationError(msg)
        wanted = tuple(check_text("kinds", kind) for kind in kinds or ())
        keys = (self._due, self._claimed, self._job, self._kinds)
        jobs: list[ClaimedJob] = []
        rank = 0 if kinds is None or wanted else -1  # no kinds would mean any to the script
        look = min(limit + FEW if wanted else limit, CHUNK)

        def claimed(reply: Sequence[Any]) -> tuple[int, list[ClaimedJob]]:
            rank, at, *found = reply
            moment, pairs = int(at), zip(found[::2], found[1::2], strict=True)
            return int(rank), [claimed_of(*pair, moment, worker_id, token) for pair in pairs]

        while rank >= 0 and len(jobs) < limit:
            most = min(limit - len(jobs), CHUNK)
            args = (clock_of(now), lease, worker_id, token, most, rank, look, *wanted)
            look = CHUNK
            try:
                ((rank, found),) = yield (Command(lua.JOBS_CLAIM, keys, args, claimed),)
            except TransportError:
                if jobs:
                    break  # they are claimed: whoever asked must know
                raise
            jobs += found
        return jobs

    def extend(self, job: ClaimedJob, lease: int, now: When) -> Command[bool]:
        """Give a claim a new lease; the result is ``False`` when the claim is over."""
        keys = (self._claimed, self._hash(job.id))
        args = (clock_of(now), *_claim_of(job), lease)
        return Command(lua.JOBS_EXTEND, keys, args, bool)

    def complete(self, job: ClaimedJob, now: When) -> Command[bool]:
        """End a claim well; the result is ``False`` when it was over."""
        return self._settle(job, self._done, (clock_of(now), *_claim_of(job)))

    def complete_many(self, jobs: Sequence[ClaimedJob], now: When) -> Op[list[bool]]:
        """End claims well in one trip, each by itself."""
        if not jobs:
            return []
        return (yield tuple(self.complete(job, now) for job in jobs))

    def fail(
        self, job: ClaimedJob, error: str, *, retry_at: When, delay: float, dead: bool, now: When
    ) -> Command[bool]:
        """End a claim badly; the result is ``False`` when it was over.

        Args:
            job: What was claimed.
            error: Why.
            retry_at: When it is due again; ``None`` is after ``delay``.
            delay: Seconds from now, by the server's clock.
            dead: Try no more.
            now: The time.
        """
        what = "dead" if dead else "failed"
        later = math.ceil(delay * 1000)
        # An error's text may hold anything, a file name that is no UTF-8 for instance.
        text = error[:LONGEST_ERROR].encode("utf-8", "backslashreplace")
        args = (clock_of(now), *_claim_of(job), what, text, clock_of(retry_at), later)
        return self._settle(job, self._dead, args)

    def release(self, jobs: Sequence[ClaimedJob], now: When = None) -> Command[bool]:
        """Give claims back, no attempt counted; the result tells whether all of them lasted."""
        keys = (self._claimed, self._due, self._job)
        args = (clock_of(now), *(each for job in jobs for each in _claim_of(job)))
        return Command(lua.JOBS_RELEASE, keys, args, lambda released: released == len(jobs))

    def reap(self, now: When) -> Op[int]:
        """Bring back jobs whose lease ran out, in bounded calls, and forget what is old enough."""
        keys = (self._claimed, self._due, self._dead, self._kinds, self._job, self._idempotency)
        reaped, more = 0, 1
        while more:
            args = (clock_of(now), REAPED)
            ((count, more),) = yield (Command(lua.JOBS_REAP, keys, args, two_numbers),)
            reaped += count
        yield from self._purge(now)
        return reaped

    def get(self, job_id: str) -> Command[Job | None]:
        """Read one job."""
        named = (b"id", bytes_of("job_id", job_id))
        return Command(
            "HGETALL", (self._hash(job_id),), (), lambda reply: job_of((*reply, *named), Job)
        )

    def count(self) -> Command[dict[str, int]]:
        """Count jobs by status, all at one moment."""
        keys = tuple(self.places.values())
        return Command(
            lua.JOBS_COUNT,
            keys,
            (),
            lambda reply: dict(zip(STATUSES, map(int, reply), strict=True)),
        )

    def cancel(self, job_id: str, now: When) -> Command[bool]:
        """Cancel a job; the result is ``False`` when it is finished or unknown."""
        shared = (self._due, self._claimed, self._canceled, self._kinds)
        keys = (*shared, self._hash(job_id), self._idempotency)
        return Command(lua.JOBS_CANCEL, keys, (clock_of(now), bytes_of("job_id", job_id)), bool)

    def retry(self, job_id: str, now: When) -> Command[bool]:
        """Make a finished job due; ``False`` when it is none, or a newer one holds its key."""
        places = (self._due, self._done, self._dead, self._canceled)
        keys = (*places, self._kinds, self._job, self._idempotency)
        return Command(lua.JOBS_RETRY, keys, (clock_of(now), bytes_of("job_id", job_id)), bool)

    def _hash(self, job_id: str) -> bytes:
        return self._job + bytes_of("job_id", job_id)

    def _settle(self, job: ClaimedJob, finished: bytes, args: tuple[Arg, ...]) -> Command[bool]:
        keys: tuple[bytes, ...] = (self._claimed, self._hash(job.id), self._due, finished)
        if job.idempotency_key:
            held = bytes_of("idempotency_key", job.idempotency_key)
            keys = (*keys, self._idempotency + held)
        return Command(lua.JOBS_SETTLE, keys, args, bool)

    def _purge(self, now: When) -> Op[None]:
        kept = {"done": self._options.keep_done, "canceled": self._options.keep_done}
        kept["dead"] = self._options.keep_dead
        for status, seconds in kept.items():
            more = seconds is not None
            while more and seconds is not None:
                keys = (self.places[status], self._kinds, self._job)
                args = (clock_of(now), math.ceil(seconds * 1000), CHUNK, status)
                (more,) = yield (Command(lua.JOBS_PURGE, keys, args, bool),)


def clock_of(moment: When) -> Arg:
    """Return what a script is given for a moment: nothing, so that it takes the server's."""
    if moment is None:
        return ""
    ms = epoch_ms(moment, "now")
    return "" if ms is None else ms


def _claim_of(job: ClaimedJob) -> tuple[Arg, ...]:
    worker = bytes_of("locked_by", job.locked_by)
    return (bytes_of("id", job.id), bytes_of("token", job.token), worker, job.locked_at)


def jobs_of(replies: Sequence[Any], made: type[JobT]) -> list[JobT]:
    """Return the jobs of as many ``HGETALL`` replies."""
    return [job for reply in replies if (job := job_of(reply, made)) is not None]


def two_numbers(reply: Sequence[Any]) -> tuple[int, int]:
    """Return a reply of two."""
    one, other = reply
    return int(one), int(other)

# Generated from aio/job_store.py by `nox -s sync`. Edit that file, not this one.
"""The job store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from babelqueue_carrier.errors import message_of, qualified_name
from babelqueue_redis import entropy, hooks
from babelqueue_redis.checks import check_timeout
from babelqueue_redis.cluster import refuse_untagged
from babelqueue_redis.core.command import Command
from babelqueue_redis.errors import TransportError
from babelqueue_redis.jobs import listing
from babelqueue_redis.jobs.commands import JobCommands
from babelqueue_redis.jobs.enqueuing import Item, checked_items, new_job, unconfirmed
from babelqueue_redis.jobs.options import (
    JobStoreOptions,
    When,
    check_lease,
    check_text,
    check_whole,
    epoch_ms,
)
from babelqueue_redis.jobs.registry import JobRegistry
from babelqueue_redis.jobs.values import ClaimedJob, Job, JobPage, NewJob
from babelqueue_redis.sync.driver import Client, Driver
from babelqueue_redis.values import Destination

Ids = list[str]
Answers = list[bool]
Claimed = list[ClaimedJob]
Jobs = list[Job]


class RedisJobStore:
    """Jobs that workers claim for as long as a lease lasts.

    Safe to share between threads; the one for asyncio, between tasks of one loop. It is kept as
    ``@absolutejs/queue-redis`` keeps its own, so that JavaScript workers may share it. Every method
    is atomic. Moments are epoch milliseconds or aware ``datetime`` objects; the server's clock says
    what time it is, unless ``now=`` does.

    Args:
        client: A client of redis-py, of one server or a cluster, or a URL.
        key_prefix: What every key begins with. On a cluster it needs a hash tag.
        keep_done: Seconds that done and canceled jobs are kept before :meth:`reap_stuck` forgets
            them; ``None`` is for ever.
        keep_dead: Likewise for dead jobs.
        registry: Checks payloads at enqueue.

    Raises:
        ConfigurationError: One of those cannot work.

    All methods raise ``TransportError`` when Redis did not answer, or refused.
    """

    def __init__(
        self,
        client: Client,
        *,
        key_prefix: str = "absolutejs:queue:",
        keep_done: float | None = None,
        keep_dead: float | None = None,
        registry: JobRegistry | None = None,
    ) -> None:
        """Check the options; nothing is sent yet."""
        options = JobStoreOptions(key_prefix, keep_done, keep_dead)
        refuse_untagged(client, key_prefix)
        self._commands = JobCommands(options)
        self._registry = registry
        self._driver = Driver(client)
        self._producer = Driver(client, shows_spans=True)
        self.server = Destination(key_prefix, "jobs", self._driver.address, self._driver.port)

    def __enter__(self) -> RedisJobStore:
        """Return the store; leaving the block closes it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the store."""
        self.close()

    def enqueue(
        self,
        kind: str,
        payload: Any,
        *,
        run_at: When = None,
        max_attempts: int = 5,
        idempotency_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        now: When = None,
    ) -> str:
        """Store one job.

        Args:
            kind: What kind of job it is, for example ``email.send``.
            payload: What its handler needs; anything that ``msgspec`` can write as JSON.
            run_at: When it is due; ``None`` is at once.
            max_attempts: How often it may fail, or lose its worker, before it is dead.
            idempotency_key: While a job with this key is pending or claimed, no other is stored.
            headers: Text to keep beside the payload, such as a ``traceparent``.
            now: The time.

        Returns:
            Its id, or the id of the unfinished job that holds the idempotency key.

        Raises:
            PayloadError: The payload has no JSON form, or is not what the registry says.
            HeaderError: A header is not text.
            ConfigurationError: Another argument cannot work.
            PublishError: Redis did not confirm; ``may_be_stored`` tells whether it may be there.
        """
        job = new_job(
            (kind, payload, idempotency_key),
            self.server,
            self._registry,
            run_at=run_at,
            max_attempts=max_attempts,
            headers=headers,
            job_id=entropy.new_token(),
        )
        with hooks.enqueuing(job) as job:
            ids = self._send((job,), now)
        return ids[0]

    def enqueue_many(
        self,
        jobs: Iterable[Item],
        *,
        run_at: When = None,
        max_attempts: int = 5,
        headers: Mapping[str, str] | None = None,
        now: When = None,
    ) -> Ids:
        """Store up to 1 000 jobs in one trip: all of them or none.

        ``jobs`` are pairs ``(kind, payload)``, or triples with an idempotency key; the keywords are
        those of :meth:`enqueue`, for every job.

        Returns:
            Their ids, in order.

        Raises:
            PayloadError, HeaderError, ConfigurationError, PublishError: As :meth:`enqueue`.
        """
        batch = tuple(
            new_job(
                item,
                self.server,
                self._registry,
                run_at=run_at,
                max_attempts=max_attempts,
                headers=headers,
                job_id=entropy.new_token(index),
            )
            for index, item in enumerate(checked_items(jobs))
        )
        if not batch:
            return []
        with hooks.enqueuing_many(batch) as batch:
            return self._send(batch, now)

    def claim_due(
        self,
        limit: int,
        worker_id: str,
        lease: float,
        kinds: Iterable[str] | None = None,
        *,
        now: When = None,
    ) -> Claimed:
        """Claim jobs that are due, the longest due first.

        Args:
            limit: How many at most.
            worker_id: Who claims.
            lease: Seconds until :meth:`reap_stuck` may give the job to somebody else.
            kinds: Only jobs of these kinds; ``None`` is any.
            now: The time.
        """
        check_whole("limit", limit, 0)
        check_text("worker_id", worker_id)
        ms, token = check_lease(lease), entropy.new_token()
        claim = self._commands.claim(limit, worker_id, ms, kinds, token, now)
        return self._driver.take(claim, self._giving_back) or []

    def extend(self, job: ClaimedJob, lease: float, *, now: When = None) -> bool:
        """Let a claim last for ``lease`` seconds from now; ``False`` when it is over."""
        return self._driver.send(self._commands.extend(job, check_lease(lease), now))

    def complete(self, job: ClaimedJob, *, now: When = None) -> bool:
        """End a claim: the job is done. ``False``, and nothing touched, when it was over."""
        return self._driver.send(self._commands.complete(job, now))

    def complete_many(self, jobs: Iterable[ClaimedJob], *, now: When = None) -> Answers:
        """Complete jobs in one trip, each by itself; the answers come in their order."""
        return self._driver.run(self._commands.complete_many(tuple(jobs), now))

    def fail(
        self,
        job: ClaimedJob,
        error: str | BaseException,
        *,
        retry_at: When = None,
        delay: float = 0,
        dead: bool = False,
        now: When = None,
    ) -> bool:
        """End a claim: the attempt failed, and the job is due again, or dead after the last one.

        Args:
            job: What was claimed.
            error: Why; kept in the job.
            retry_at: When it is due again.
            delay: Seconds until it is due again where ``retry_at`` is not given.
            dead: Try no more.
            now: The time.

        Returns:
            ``False``, and nothing touched, when the claim was over.
        """
        if isinstance(error, BaseException):
            error = f"{qualified_name(error)}: {message_of(error)}"
        due = epoch_ms(retry_at, "retry_at")
        wait = check_timeout(delay, "delay", 0)
        command = self._commands.fail(job, error, retry_at=due, delay=wait, dead=dead, now=now)
        return self._driver.send(command)

    def release(self, *jobs: ClaimedJob, now: When = None) -> bool:
        """End claims unprocessed: due at once, no attempt counted. ``False`` when one was over."""
        return self._driver.send(self._commands.release(jobs, now))

    def reap_stuck(self, *, now: When = None) -> int:
        """Bring back jobs whose lease ran out: due at once, an attempt counted, or dead.

        Also forgets finished jobs that were kept long enough.

        Returns:
            How many leases had run out.
        """
        return self._driver.run(self._commands.reap(now))

    def get(self, job_id: str) -> Job | None:
        """Return a job, or ``None``."""
        return self._driver.send(self._commands.get(job_id))

    def count_by_status(self) -> dict[str, int]:
        """Count the ``pending``, ``claimed``, ``done``, ``dead`` and ``canceled`` jobs."""
        return self._driver.send(self._commands.count())

    def cancel(self, job_id: str, *, now: When = None) -> bool:
        """Cancel a pending or claimed job; ``False`` when it is finished or unknown."""
        return self._driver.send(self._commands.cancel(job_id, now))

    def list(
        self, status: str | None = None, kind: str | None = None, cursor: str | None = None
    ) -> JobPage:
        """Return some jobs, and where the next ones begin.

        Args:
            status: Only those of this status, in the order they are due or were finished.
            kind: Only those of this kind.
            cursor: The ``cursor`` of the page before. No job that stays where it is is left out.
        """
        return self._driver.run(listing.page(self._commands, status, kind, cursor))

    def list_by_kind(self, kind: str) -> Jobs:
        """Return all jobs of a kind, the oldest first, read in bounded steps."""
        return self._driver.run(listing.everything(self._commands, kind))

    def retry(self, job_id: str, *, now: When = None) -> bool:
        """Make a finished job due, its attempts counted from zero.

        Returns:
            ``False`` when it is not finished or unknown, or a newer job holds its idempotency key.
        """
        return self._driver.send(self._commands.retry(job_id, now))

    def reindex(self, *, now: When = None) -> int:
        """Bring in jobs that others changed without our indexes; return how many.

        Visits all keys of the database, in bounded steps.
        """
        return self._driver.run(listing.reindex(self._commands, now))

    def close(self) -> None:
        """Close the calling thread's connections; a later call opens new ones."""
        self._driver.close()
        self._producer.close()

    def _send(self, jobs: tuple[NewJob, ...], now: When) -> Ids:
        try:
            return self._producer.send(self._commands.enqueue(jobs, now))
        except TransportError as error:
            raise unconfirmed(error, jobs) from error

    def _giving_back(self, jobs: Claimed) -> Command[bool] | None:
        return self._commands.release(jobs) if jobs else None

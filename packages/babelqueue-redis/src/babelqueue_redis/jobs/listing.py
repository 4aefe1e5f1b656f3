"""Lists of jobs, page by page, and the walk that repairs the indexes."""

from __future__ import annotations

import re

from babelqueue_redis import lua
from babelqueue_redis.core.command import Command, Op
from babelqueue_redis.errors import ConfigurationError
from babelqueue_redis.jobs.commands import CHUNK, JobCommands, clock_of, jobs_of, same
from babelqueue_redis.jobs.options import When
from babelqueue_redis.jobs.values import STATUSES, Job, JobPage

PAGE = 100
"""How many jobs a page has at most."""
_NO_KIND = "\0"


def page(
    commands: JobCommands, status: str | None, kind: str | None, cursor: str | None
) -> Op[JobPage]:
    """Read on until there is something to show, or the end.

    Raises:
        ConfigurationError: There is no such status.
    """
    if status is not None and status not in STATUSES:
        msg = f"status={status!r} is refused: it must be one of {', '.join(STATUSES)}"
        raise ConfigurationError(msg)
    while True:
        command = (
            _of_kind(commands, kind, cursor)
            if status is None
            else _of_status(commands, status, kind or "", cursor)
        )
        (found,) = yield (command,)
        if found.jobs or found.cursor is None:
            return found  # type: ignore[no-any-return]  # the parse of ``command``
        cursor = found.cursor


def everything(commands: JobCommands, kind: str) -> Op[list[Job]]:
    """Read all jobs of a kind."""
    jobs: list[Job] = []
    cursor: str | None = None
    while True:
        (found,) = yield (_of_kind(commands, kind, cursor),)
        jobs += found.jobs
        cursor = found.cursor
        if cursor is None:
            return jobs


def reindex(commands: JobCommands, now: When) -> Op[int]:
    """Visit every job in bounded steps and put it where its status says; forget vanished ones."""
    pattern = re.sub(r"([*?\[\]^\\])", r"\\\1", commands.job) + "*"
    keys = (*commands.places.values(), commands.kinds, commands.job)
    changed, scanned = 0, b""
    while scanned != b"0":
        scan = Command("SCAN", (scanned or b"0",), ("MATCH", pattern, "COUNT", CHUNK), same)
        ((scanned, found),) = yield (scan,)
        ids = [key[len(commands.job.encode()) :] for key in found]
        if ids:
            (some,) = yield (Command(lua.JOBS_REINDEX, keys, (clock_of(now), *ids), int),)
            changed += some
    for status in (*STATUSES, None):
        cursor: str | None = ""
        while cursor is not None:
            walk = (
                _of_status(commands, status, _NO_KIND, cursor)
                if status
                else _of_kind(commands, None, cursor, reads=False)
            )
            (seen,) = yield (walk,)
            cursor = seen.cursor
    return changed


def _of_status(
    commands: JobCommands, status: str, kind: str, cursor: str | None
) -> Command[JobPage]:
    score, _, job_id = (cursor or "").partition(":")
    return Command(
        lua.JOBS_LIST_STATUS,
        (commands.places[status], commands.job),
        (status, kind, PAGE, score, job_id),
        lambda reply: JobPage(
            jobs_of(reply[2:], Job),
            f"{reply[0].decode()}:{reply[1].decode()}" if reply[0] else None,
        ),
    )


def _of_kind(
    commands: JobCommands, kind: str | None, cursor: str | None, *, reads: bool = True
) -> Command[JobPage]:
    low, high = ("-", "+") if kind is None else (f"[{kind}\0", f"({kind}\1")
    if cursor:
        low = f"({cursor}"
    return Command(
        lua.JOBS_LIST_KIND,
        (commands.kinds, commands.job),
        (low, high, PAGE, int(reads)),
        lambda reply: JobPage(jobs_of(reply[1:], Job), reply[0].decode() or None),
    )

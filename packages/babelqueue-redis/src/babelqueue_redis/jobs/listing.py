"""Lists of jobs, page by page, and the walk that repairs the indexes."""

from __future__ import annotations

import re

from babelqueue_redis import lua
from babelqueue_redis.core.command import Command, Op
from babelqueue_redis.errors import ConfigurationError
from babelqueue_redis.jobs.commands import CHUNK, JobCommands, clock_of, jobs_of, two_numbers
from babelqueue_redis.jobs.options import When
from babelqueue_redis.jobs.values import STATUSES, Job, JobPage, bytes_of, text_of

PAGE = 100
"""How many jobs a page has at most."""
_NO_KIND = b"\0"


def page(
    commands: JobCommands, status: str | None, kind: str | None, cursor: str | None
) -> Op[JobPage]:
    """Read on until there is something to show, or the end.

    Raises:
        ConfigurationError: There is no such status, or ``kind`` or ``cursor`` is no text.
    """
    wanted = None if kind is None else bytes_of("kind", kind)
    if status is not None and status not in STATUSES:
        msg = f"status={status!r} is refused: it must be one of {', '.join(STATUSES)}"
        raise ConfigurationError(msg)
    while True:
        command = (
            _of_kind(commands, wanted, cursor)
            if status is None
            else _of_status(commands, status, wanted or b"", cursor)
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
        (found,) = yield (_of_kind(commands, bytes_of("kind", kind), cursor),)
        jobs += found.jobs
        cursor = found.cursor
        if cursor is None:
            return jobs


def reindex(commands: JobCommands, now: When) -> Op[int]:
    """Visit every job in bounded steps and put it where its status says; forget vanished ones."""
    pattern = re.sub(rb"([*?\[\]^\\])", rb"\\\1", commands.job) + b"*"
    keys = (*commands.places.values(), commands.kinds, commands.job)
    changed, scanned = 0, -1
    while scanned:
        args = (clock_of(now), max(scanned, 0), pattern, CHUNK)
        ((scanned, some),) = yield (Command(lua.JOBS_REINDEX, keys, args, two_numbers),)
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
    commands: JobCommands, status: str, kind: bytes, cursor: str | None
) -> Command[JobPage]:
    score, _, job_id = bytes_of("cursor", cursor or "").partition(b":")
    return Command(
        lua.JOBS_LIST_STATUS,
        (commands.places[status], commands.job),
        (status, kind, PAGE, score, job_id),
        lambda reply: JobPage(
            jobs_of(reply[2:], Job),
            text_of(b"%b:%b" % (reply[0], reply[1])) if reply[0] else None,
        ),
    )


def _of_kind(
    commands: JobCommands, kind: bytes | None, cursor: str | None, *, reads: bool = True
) -> Command[JobPage]:
    low, high = (b"-", b"+") if kind is None else (b"[%b\0" % kind, b"(%b\1" % kind)
    if cursor:
        low = b"(" + bytes_of("cursor", cursor)
    return Command(
        lua.JOBS_LIST_KIND,
        (commands.kinds, commands.job),
        (low, high, PAGE, int(reads)),
        lambda reply: JobPage(jobs_of(reply[1:], Job), text_of(reply[0]) or None),
    )

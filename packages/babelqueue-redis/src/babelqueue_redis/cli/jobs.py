"""``bq-redis jobs``: the job store."""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from babelqueue_redis.cli.messages import ago, cut
from babelqueue_redis.cli.output import Output, shown
from babelqueue_redis.cli.session import Session
from babelqueue_redis.errors import PayloadError
from babelqueue_redis.jobs.values import Job
from babelqueue_redis.sync.job_store import RedisJobStore

jobs = typer.Typer(help="Look after the jobs of a job store.")

_COLOURS = {"dead": "red", "claimed": "yellow", "done": "green"}


class Status(str, enum.Enum):
    """What a job can be."""

    pending = "pending"
    claimed = "claimed"
    done = "done"
    dead = "dead"
    canceled = "canceled"


@jobs.command("counts")
def counts(ctx: typer.Context) -> None:
    """Count the jobs by their status."""
    session: Session = ctx.obj
    with session.store() as store:
        found = store.count_by_status()
    lines = "\n".join(f"{status:<9} {count:>9,}" for status, count in found.items())
    session.output.result(found, lines)


@jobs.command("list")
def list_(
    ctx: typer.Context,
    *,
    status: Annotated[Status | None, typer.Option(help="Only those.")] = None,
    kind: Annotated[str | None, typer.Option(help="Only those.")] = None,
    n: Annotated[int, typer.Option("-n", help="How many at least; in whole pages.", min=1)] = 50,
    cursor: Annotated[str | None, typer.Option(help="Where to begin: of an earlier list.")] = None,
) -> None:
    """List jobs, without their payloads."""
    session: Session = ctx.obj
    with session.store() as store:
        found, further = _some(store, status and status.value, kind, cursor, n)
    if session.output.json:
        documents = [_document(job, payload=False) for job in found]
        session.output.document({"jobs": documents, "cursor": further})
        return
    for job in found:
        _write_job(session.output, job)
    if not found:
        session.output.note("no jobs")
    if further is not None:
        session.output.note(f"there are more: --cursor '{shown(further)}'")


@jobs.command("show")
def show(ctx: typer.Context, job_id: Annotated[str, typer.Argument(metavar="ID")]) -> None:
    """Show a job whole, with its payload."""
    session: Session = ctx.obj
    with session.store() as store:
        job = store.get(job_id)
    if job is None:
        session.output.note(f"there is no job {shown(job_id)}", "red")
        raise typer.Exit(1)
    if session.output.json:
        session.output.document(_document(job, payload=True))
        return
    for name, value in _document(job, payload=False).items():
        text = _moment(value) if name.endswith("_at") and value else _plain(value)
        session.output.line((f"{name:<16} ", "dim"), shown(text))
    session.output.line((f"{'payload':<16} ", "dim"), cut(job.raw, full=True))


@jobs.command("retry")
def retry(ctx: typer.Context, job_ids: Annotated[list[str], typer.Argument(metavar="ID…")]) -> None:
    """Make finished jobs due again, their attempts counted from 0."""
    session: Session = ctx.obj
    with session.store() as store:
        _answer(session.output, "retried", {each: store.retry(each) for each in job_ids})


@jobs.command("cancel")
def cancel(
    ctx: typer.Context,
    job_ids: Annotated[list[str], typer.Argument(metavar="ID…")],
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Cancel pending or claimed jobs."""
    session: Session = ctx.obj
    session.output.confirm(f"Cancel {len(job_ids)} jobs at {session.where}?", yes=yes)
    with session.store() as store:
        _answer(session.output, "canceled", {each: store.cancel(each) for each in job_ids})


def _answer(output: Output, verb: str, done: dict[str, bool]) -> None:
    """Tell what became of each; a negative answer is exit code 1."""
    if output.json:
        output.document({verb: [each for each in done if done[each]], "not": _not(done)})
    else:
        for job_id, is_done in done.items():
            output.line(f"{verb if is_done else f'not {verb}'}  {shown(job_id)}")
    if _not(done):
        raise typer.Exit(1)


def _not(done: dict[str, bool]) -> list[str]:
    return [each for each in done if not done[each]]


def _some(
    store: RedisJobStore, status: str | None, kind: str | None, cursor: str | None, n: int
) -> tuple[list[Job], str | None]:
    """Read whole pages until there are enough jobs."""
    found: list[Job] = []
    for page, further in _pages(store, status, kind, cursor):
        found += page
        if len(found) >= n or further is None:
            return found, further
    return found, None


def _pages(
    store: RedisJobStore, status: str | None, kind: str | None, cursor: str | None
) -> Iterator[tuple[list[Job], str | None]]:
    while True:
        page = store.list(status, kind, cursor)
        yield list(page.jobs), page.cursor
        cursor = page.cursor
        if cursor is None:
            return


def _document(job: Job, *, payload: bool) -> dict[str, Any]:
    """Return the JSON shape of a job; moments are epoch milliseconds, 0 is none."""
    names = [name for name in job.__struct_fields__ if name not in ("raw", "token", "headers")]
    shape: dict[str, Any] = {name: getattr(job, name) for name in names}
    shape["headers"] = dict(job.headers)
    if payload:
        try:
            shape["payload"] = job.payload
        except PayloadError:
            shape["payload"] = None
        shape["payload_text"] = job.raw.decode("utf-8", "replace")
    return shape


def _write_job(output: Output, job: Job) -> None:
    style = _COLOURS.get(job.status, "bold")
    changed = ago(job.updated_at or job.created_at)
    attempts = f"  attempts {job.attempts} of {job.max_attempts}  {changed}"
    output.line((shown(job.status), style), "  ", (shown(job.kind), "cyan"), attempts)
    output.line(("  id       ", "dim"), shown(job.id))
    if job.last_error:
        output.line(("  error    ", "dim"), cut(job.last_error, full=False))


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}: {each}" for name, each in value.items()) or "-"
    return "-" if value in ("", 0) and not isinstance(value, bool) else str(value)


def _moment(epoch_ms: int) -> str:
    try:
        moment = dt.datetime.fromtimestamp(epoch_ms / 1000, dt.timezone.utc)
    except (ValueError, OverflowError, OSError):
        return str(epoch_ms)
    return f"{moment.isoformat(sep=' ', timespec='seconds')}  ({ago(epoch_ms)})"

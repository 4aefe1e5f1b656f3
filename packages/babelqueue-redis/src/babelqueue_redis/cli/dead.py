"""``bq-redis dlq``: dead letters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated

import typer

from babelqueue_redis.cli.looking import Full, write_all
from babelqueue_redis.cli.messages import write_message
from babelqueue_redis.cli.output import Output, shown
from babelqueue_redis.cli.session import Session
from babelqueue_redis.core.redriving import Redriven
from babelqueue_redis.core.stored import StoredMessage
from babelqueue_redis.sync.queue import RedisQueue

dead_letters = typer.Typer(help="Look at dead letters, move them back, remove them.")

Queue = Annotated[
    str, typer.Argument(help="Whose they are; or their own, QUEUE.dlq.", metavar="QUEUE")
]
Dead = Annotated[str, typer.Option("--dead-letter-queue", help="Theirs, if not QUEUE.dlq.")]
_CHUNK = 100


@dead_letters.command("list")
def list_(
    ctx: typer.Context,
    queue: Queue,
    *,
    n: Annotated[int, typer.Option("-n", help="How many at most.", min=1, max=1000)] = 20,
    dead_letter_queue: Dead = "",
    full: Full = False,
) -> None:
    """Show the oldest dead letters, payloads too."""
    session: Session = ctx.obj
    with _opened(session, queue, dead_letter_queue) as looked_at:
        total, messages = looked_at.counts().dead, looked_at.peek(n, "dead")
    shape: dict[str, object] = {"queue": _base(queue), "state": "dead", "total": total}
    write_all(session.output, shape, messages, full=full)
    if total > len(messages):
        session.output.note(f"{len(messages)} of {total}; -n shows more")


@dead_letters.command("show")
def show(
    ctx: typer.Context,
    queue: Queue,
    message_id: Annotated[str, typer.Argument(help="Its id, or how it begins.", metavar="ID")],
    *,
    dead_letter_queue: Dead = "",
) -> None:
    """Show a dead letter whole."""
    session: Session = ctx.obj
    with _opened(session, queue, dead_letter_queue) as looked_at:
        for message in _walk(looked_at):
            if message_id and message.message_id.startswith(message_id):
                write_message(session.output, message, full=True)
                return
    session.output.note(f"no dead letter of {shown(queue)} has the id {shown(message_id)}", "red")
    raise typer.Exit(1)


@dead_letters.command("redrive")
def redrive(
    ctx: typer.Context,
    queue: Queue,
    *,
    to: Annotated[str | None, typer.Option(help="Where to, if not where each came from.")] = None,
    limit: Annotated[int | None, typer.Option(help="How many to move at most.", min=1)] = None,
    urn: Annotated[list[str] | None, typer.Option(help="Only these; again for more.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell what would be done.")] = False,
    dead_letter_queue: Dead = "",
) -> None:
    """Move dead letters back to their queues, the oldest first, their attempts counted from 0.

    Each moves by a script of its own, so it may be interrupted at any moment, and called again.
    """
    session: Session = ctx.obj
    output = session.output
    select = _with_urn(set(urn)) if urn else None
    so_far = 0
    with _opened(session, queue, dead_letter_queue) as source:
        total = source.counts().dead
        try:
            with output.progress("looked at", total) as tell:

                def progress(moved: int, left: int) -> None:
                    nonlocal so_far
                    so_far = moved
                    tell(moved + left)

                done = source.redrive(to, limit, select, dry_run=dry_run, progress=progress)
        except BaseException:
            if not dry_run:
                output.note(f"moved {so_far} before that, or up to {_CHUNK} more")
            raise
    _write_redriven(output, _base(queue), done, dry_run=dry_run)


@dead_letters.command("purge")
def purge(
    ctx: typer.Context,
    queue: Queue,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dead_letter_queue: Dead = "",
) -> None:
    """Remove all dead letters for ever."""
    session: Session = ctx.obj
    base = _base(queue)
    with _opened(session, queue, dead_letter_queue) as looked_at:
        count = looked_at.counts().dead
    name = dead_letter_queue or f"{base}.dlq"
    question = f"Remove {count} dead letters of {shown(name)} at {session.where} for ever?"
    session.output.confirm(question, yes=yes)
    with session.queue(name) as emptied:
        removed = emptied.purge()
    session.output.result({"queue": base, "purged": removed}, f"removed {removed} dead letters")


def _base(queue: str) -> str:
    """Return the queue whose dead letters are meant: either name will do."""
    return queue.removesuffix(".dlq") or queue


def _opened(session: Session, queue: str, dead_letter_queue: str) -> RedisQueue:
    return session.queue(_base(queue), dead_letter_queue)


def _walk(queue: RedisQueue) -> Iterator[StoredMessage]:
    """Read the dead letters, the oldest first, a chunk at a time."""
    start = 0
    while messages := queue.peek(_CHUNK, "dead", start):
        yield from messages
        start += len(messages)


def _with_urn(urns: set[str]) -> Callable[[StoredMessage], bool]:
    return lambda message: message.urn in urns


def _write_redriven(output: Output, queue: str, done: Redriven, *, dry_run: bool) -> None:
    if output.json:
        moved = [
            {"id": each.message_id, "urn": each.urn, "queue": each.queue} for each in done.moved
        ]
        shape = {"queue": queue, "dry_run": dry_run, "moved": moved, "left": dict(done.left)}
        output.document(shape)
        return
    verb = "would move" if dry_run else "moved"
    if dry_run:
        for each in done.moved:
            output.line(shown(f"{each.message_id}  {each.urn}  → {each.queue}"))
    output.line(f"{verb} {len(done.moved)}")
    for reason, count in done.left.items():
        output.line(f"left {count}: {reason}")

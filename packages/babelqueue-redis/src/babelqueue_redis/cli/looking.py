"""``bq-redis peek`` and ``bq-redis tail``: look, and take nothing."""

from __future__ import annotations

import enum
import hashlib
import time
from typing import Annotated

import typer

from babelqueue_redis.cli.messages import message_document, write_message
from babelqueue_redis.cli.output import Output
from babelqueue_redis.cli.session import Session
from babelqueue_redis.core.stored import StoredMessage
from babelqueue_redis.errors import TransportError
from babelqueue_redis.sync.queue import RedisQueue

Queue = Annotated[str, typer.Argument(metavar="QUEUE")]
Full = Annotated[bool, typer.Option("--full", help="All of long bodies.")]
_WINDOWS = (50, 1000)
"""How many of the newest messages a look reads; the larger one when all of the first were new."""
_REMEMBERED = 20_000


class State(str, enum.Enum):
    """Where a message stands."""

    ready = "ready"
    delayed = "delayed"
    reserved = "reserved"
    dead = "dead"


def peek(
    ctx: typer.Context,
    queue: Queue,
    *,
    n: Annotated[int, typer.Option("-n", help="How many at most.", min=1, max=1000)] = 10,
    state: Annotated[State, typer.Option(help="Which ones.")] = State.ready,
    full: Full = False,
) -> None:
    """Show the next messages of a queue, payloads too, and leave them where they are."""
    session: Session = ctx.obj
    with session.queue(queue) as looked_at:
        messages = looked_at.peek(n, state.value)
    write_all(session.output, {"queue": queue, "state": state.value}, messages, full=full)


def write_all(
    output: Output, shape: dict[str, object], messages: list[StoredMessage], *, full: bool
) -> None:
    """Write messages: as one document, or one after the other."""
    if output.json:
        output.document({**shape, "messages": [message_document(each) for each in messages]})
        return
    for message in messages:
        write_message(output, message, full=full)
    if not messages:
        output.note("no messages")


def tail(
    ctx: typer.Context,
    queue: Queue,
    *,
    n: Annotated[int, typer.Option("-n", help="Begin with so many old ones.", min=0)] = 0,
    interval: Annotated[float, typer.Option(help="Seconds between two looks.", min=0.01)] = 0.1,
    full: Full = False,
) -> None:
    """Show new messages, payloads too, as they come, until Ctrl-C; take none.

    It looks at what is ready, delayed and reserved, several times a second. What a worker took and
    finished between two looks is not seen.
    """
    session: Session = ctx.obj
    output = session.output
    follower = _Follower(session.queue(queue), n)
    is_away = False
    try:
        while True:
            try:
                new, missed = follower.look()
                if is_away:
                    output.note("Redis answers again")
                    is_away = False
            except TransportError as error:
                if not follower.has_looked:
                    raise
                if not is_away:
                    output.note(str(error), "red")
                new, missed, is_away = [], False, True
            if missed:
                output.note(f"more than {_WINDOWS[-1]} came at once; some are not shown")
            for message in new:
                write_message(output, message, full=full)
            time.sleep(interval)
    except KeyboardInterrupt:
        return


class _Follower:
    """Finds the messages that were not there before."""

    def __init__(self, queue: RedisQueue, n: int) -> None:
        self._queue = queue
        self._old = n
        self._seen: dict[str, None] = {}
        self.has_looked = False

    def look(self) -> tuple[list[StoredMessage], bool]:
        """Return what is new, and whether some more may have been missed."""
        new: list[StoredMessage] = []
        missed = False
        for state in ("reserved", "ready", "delayed"):
            fresh, full = self._fresh(state)
            new += fresh
            missed |= full and self.has_looked
        if not self.has_looked:
            self.has_looked = True
            new = new[-self._old :] if self._old else []
        while len(self._seen) > _REMEMBERED:
            del self._seen[next(iter(self._seen))]
        return new, missed

    def _fresh(self, state: str) -> tuple[list[StoredMessage], bool]:
        fresh: list[StoredMessage] = []
        for window in _WINDOWS:
            found = self._queue.peek(window, state, -window)
            fresh = [each for each in found if _name(each) not in self._seen]
            if len(fresh) < window:
                break
        self._seen.update(dict.fromkeys(map(_name, fresh)))
        return fresh, len(fresh) == _WINDOWS[-1]


def _name(message: StoredMessage) -> str:
    return message.message_id or hashlib.sha256(message.stored).hexdigest()

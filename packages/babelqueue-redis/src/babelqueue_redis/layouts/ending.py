"""How reservations end together, on the way to the next ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from babelqueue_redis.core.command import Command, ErrorReply, Op
from babelqueue_redis.core.settlement import End
from babelqueue_redis.errors import CommandRefusedError, TransportError
from babelqueue_redis.layouts.protocol import Layout
from babelqueue_redis.values import Outcome

T = TypeVar("T")
Settled = bool | TransportError
"""Whether a reservation was still there, or why that is not known."""


def nothing() -> Op[None]:
    """Send nothing."""
    yield from ()


def settling(
    layout: Layout, ends: Sequence[End], then: Op[T]
) -> Op[tuple[list[Settled], T | TransportError]]:
    """Settle reservations in the first trip of another op, before it.

    What became of each is told even where ``then`` fails: its error is a result.
    """
    settled: list[Settled] = [True] * len(ends)
    removed, replaced = _sorted(ends)
    commands: list[Command[Any]] = []
    if removed:
        commands.append(layout.ack([ends[place].reservation for place in removed]))
    commands += [
        layout.replace(ends[place].reservation, ends[place].settlement) for place in replaced
    ]
    trip = tuple(map(_guarded, (*commands, *next(then, ()))))
    replies = (yield trip) if trip else []
    own = iter(replies)
    if removed:
        answer = next(own)
        each = [answer] * len(removed) if isinstance(answer, TransportError) else answer
        for place, result in zip(removed, each, strict=True):
            settled[place] = result
    for place in replaced:
        settled[place] = next(own)
    return settled, (yield from _rest(then, list(own)))


def _sorted(ends: Sequence[End]) -> tuple[list[int], list[int]]:
    """Return the places of those whose message goes, and of those whose message is replaced."""
    removed, replaced = [], []
    for place, end in enumerate(ends):
        outcome = end.settlement.outcome
        if outcome is Outcome.ACKED or outcome is Outcome.DROPPED:
            removed.append(place)
        elif outcome is not Outcome.LEFT:
            replaced.append(place)
    return removed, replaced


def _rest(op: Op[T], replies: list[Any]) -> Op[T | TransportError]:
    """Go on with an op after its first trip; its error is its result."""
    try:
        while True:
            refused = next((r for r in replies if isinstance(r, CommandRefusedError)), None)
            trip = op.send(replies) if refused is None else op.throw(refused)
            replies = yield tuple(map(_guarded, trip))
    except StopIteration as end:
        result: T = end.value
        return result
    except TransportError as error:
        return error


def _guarded(command: Command[Any]) -> Command[Any]:
    """Return a command whose refusal is its result, so that the others' results are not lost."""
    if command.tolerant:
        return command

    def parse(reply: Any) -> Any:  # noqa: ANN401 - the command's
        if isinstance(reply, ErrorReply):
            return CommandRefusedError(command.refused(reply.message))
        return command.parse(reply)

    return Command(command.verb, command.keys, command.args, parse, tolerant=True)

"""How reservations end together, on the way to the next ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from babelqueue_redis.core.command import Command, ErrorReply
from babelqueue_redis.core.settlement import End
from babelqueue_redis.errors import CommandRefusedError, TransportError
from babelqueue_redis.layouts.protocol import Layout, Taken
from babelqueue_redis.values import Outcome, Reservation

Settled = bool | TransportError
"""Whether a reservation was still there, or why that is not known."""


class Ending:
    """Settlements that make one trip, with a reserve behind them.

    Attributes:
        settled: What became of each reservation; ``None`` is not known yet.
    """

    def __init__(self, layout: Layout, ends: Sequence[End]) -> None:
        """Begin with nothing known."""
        self._layout = layout
        self._ends = ends
        self._removed: list[int] = []
        self._replaced: list[int] = []
        self._takes = False
        self.settled: list[Settled | None] = [None] * len(ends)

    def commands(self, token: str, count: int, *, looks: bool = True) -> tuple[Command[Any], ...]:
        """Return what settles all that is not known to be settled; none raises when refused.

        Args:
            token: As for :meth:`Layout.take <babelqueue_redis.layouts.protocol.Layout.take>`.
            count: How many messages to reserve; 0 is none.
            looks: As for ``take``.
        """
        self._removed, self._replaced, self._takes = [], [], count > 0
        removed: list[Reservation] = []
        commands: list[Command[Any]] = []
        for place, end in enumerate(self._ends):
            outcome = end.settlement.outcome
            if self.settled[place] is not None:
                continue
            if outcome is Outcome.ACKED or outcome is Outcome.DROPPED:
                self._removed.append(place)
                removed.append(end.reservation)
            elif outcome is Outcome.LEFT:
                self.settled[place] = True
            else:
                self._replaced.append(place)
                commands.append(_guarded(self._layout.replace(end.reservation, end.settlement)))
        if removed or count:
            commands.append(self._layout.take(token, None, count, removed, looks=looks))
        return tuple(commands)

    def read(self, replies: list[Any]) -> list[Reservation] | CommandRefusedError | None:
        """Note what became of the reservations; return what was taken, or why nothing was.

        ``None`` says that expired reservations are to be brought back first. Where the reserve is
        refused, the messages before it may not be removed either: they are to be, without it.
        """
        if self._replaced:
            for place, settled in zip(self._replaced, replies, strict=False):
                self.settled[place] = settled
        if not self._removed and not self._takes:
            return []
        taken: Taken = replies[-1]
        for place, there in zip(self._removed, taken.ended, strict=False):  # none where refused
            self.settled[place] = there
        if taken.refused is not None and not self._takes:
            self.give_up(taken.refused)
        return taken.refused or taken.reservations

    def give_up(self, error: TransportError) -> None:
        """Note why more is not known."""
        self.settled = [error if settled is None else settled for settled in self.settled]


def _guarded(command: Command[Any]) -> Command[Any]:
    """Return a command whose refusal is its result, so that the others' results are not lost."""

    def parse(reply: Any) -> Any:
        if isinstance(reply, ErrorReply):
            return CommandRefusedError(command.refused(reply.message))
        return command.parse(reply)

    return Command(command.verb, command.keys, command.args, parse, tolerant=True)

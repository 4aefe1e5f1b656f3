"""What a shell needs of a layout."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from babelqueue_redis.core.command import Arg, Command, ErrorReply, Op
from babelqueue_redis.core.settlement import Settlement
from babelqueue_redis.errors import CommandRefusedError
from babelqueue_redis.values import Reservation

logger = logging.getLogger("babelqueue_redis.consumer")

Message = tuple[bytes, Mapping[str, str]]
"""An encoded envelope and its headers."""


class Taken(msgspec.Struct, frozen=True):
    """What one trip ended and took.

    Attributes:
        ended: Whether each reservation that was to end was still there; empty when none was looked
            at, because Redis did nothing.
        reservations: What was taken; ``None`` when expired ones are to be brought back first.
        refused: Why Redis took nothing; the reservations of ``ended``, if any, were removed.
    """

    ended: list[bool] = []
    reservations: list[Reservation] | None = None
    refused: CommandRefusedError | None = None

    def taken(self) -> list[Reservation] | None:
        """Return the reservations.

        Raises:
            CommandRefusedError: Redis refused.
        """
        if self.refused is not None:
            raise self.refused
        return self.reservations


class Layout(Protocol):
    """What a shell needs of a layout.

    ``now`` is epoch seconds; ``None``, the rule outside tests, asks the server's clock.
    """

    def publish(self, messages: Sequence[Message], due: int | None = None) -> Command[None]:
        """Append messages to the queue: all of them or none.

        Args:
            messages: What to append.
            due: The second they are to become ready; ``None`` is now. Only where
                :attr:`QueueOptions.delays <babelqueue_redis.settings.QueueOptions.delays>`.
        """

    def reserve(
        self, token: str, now: float | None = None, count: int = 1
    ) -> Op[list[Reservation]]:
        """Bring expired reservations back, then take the oldest messages, if there are any.

        Args:
            token: The first reservation's; the last eight digits count the others.
            now: As everywhere.
            count: How many to take at most. There are fewer when they are large, and a message that
                may have made its workers crash comes alone.
        """

    def take(
        self,
        token: str,
        now: float | None = None,
        count: int = 1,
        ended: Sequence[Reservation] = (),
        *,
        looks: bool = True,
    ) -> Command[Taken]:
        """Remove reservations with their messages, then take the oldest messages.

        When it is refused, nothing was taken, and the result says why. Reservations may have been
        removed all the same: only those of which the result says so.

        Args:
            token: As for :meth:`reserve`, and so are the next two.
            now: As everywhere.
            count: 0 takes none, and does not look at the ready list either; at most
                :data:`~babelqueue_redis.settings.MOST_PREFETCHED`, as Lua passes no more at once.
            ended: What is to be removed.
            looks: Whether to take nothing while expired reservations are to be brought back.
        """

    def restore(
        self, token: str, now: float | None = None, count: int = 1
    ) -> Op[list[Reservation]]:
        """Bring expired reservations back, and take the oldest messages; as :meth:`reserve`."""

    def replace(
        self, reservation: Reservation, settlement: Settlement, now: float | None = None
    ) -> Command[bool]:
        """Remove a reservation and write what the settlement says instead of its message.

        Only for ``RETRIED``, ``RELEASED`` and ``DEAD_LETTERED``. The result is ``False`` when the
        reservation had expired; then nothing is written.
        """

    def extend(self, reservation: Reservation, now: float | None = None) -> Command[bool]:
        """Let a reservation last another lease from now; ``False`` when it is not there any more.

        Only where there is a lease.
        """

    def adopt(self, tokens: Callable[[], str], now: float | None = None) -> Op[int]:
        """Give reserved messages that have no deadline one; return how many there were.

        Args:
            tokens: Makes reservation tokens.
            now: As everywhere.
        """

    def wait(self, seconds: float, idle: int) -> Command[float]:
        """Block until a message may be there, at most ``seconds``.

        Args:
            seconds: How long.
            idle: How many waits in a row found nothing.

        Returns:
            The seconds that the shell shall sleep instead, where the server does not let us block.
        """


def refused(command: Command[Taken], reply: ErrorReply) -> Taken:
    """Return what a reserve took that Redis refused with an error: nothing."""
    return Taken(refused=CommandRefusedError(command.refused(reply.message)))


def flags(digits: bytes, count: int) -> list[bool]:
    """Return whether each of ``count`` reservations was there, by the digits of a script."""
    return [digit == "1" for digit, _ in zip(digits.decode(), range(count), strict=True)]


LARGEST_BATCH = 1 << 20
"""About how many bytes of messages one reserve takes; a single message may have more."""


def clock(now: float | None) -> bytes:
    """Return what a script is given for the time: nothing, so that it asks the server."""
    return b"" if now is None else repr(float(now)).encode()


def second(now: float | None) -> bytes:
    """Return the time as one of the terms of a reserve."""
    return b"-" if now is None else b"%d" % now


def terms(*words: str | float | None) -> bytes:
    """Return the terms of a reserve as one argument: words between spaces, ``-`` for ``None``.

    redis-py takes as long for an argument as Redis for a command.
    """
    return " ".join(["-" if word is None else str(word) for word in words]).encode()


def kept(settlement: Settlement) -> tuple[Arg, ...]:
    """Return what a settle script is given for the length of a dead-letter queue."""
    keep = settlement.dead_letter_max_length
    return () if keep is None else (keep,)


def settled(settlement: Settlement, reply: int) -> bool:
    """Return what a settle script's reply means, and tell of the dead letters that went."""
    if reply > 1:
        logger.warning(
            "dead letters dropped from queue %r, the oldest: %d; it keeps %s "
            "(dead_letter_max_length)",
            settlement.dead_letter_queue,
            reply - 1,
            settlement.dead_letter_max_length,
        )
    return reply > 0


def shortest_block(seconds: float) -> str:
    """Return a blocking command's timeout: not 0, which is for ever, as 0.001 is to Redis 6.2."""
    return f"{max(seconds, 0.002):.3f}"


def pause_after(idle: int) -> float:
    """Return how long to sleep where the server does not let us block: 100 ms, doubling, to 1 s."""
    return min(0.1 * float(2 ** min(idle, 10)), 1.0)

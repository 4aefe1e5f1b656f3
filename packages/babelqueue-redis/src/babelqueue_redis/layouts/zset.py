"""The zset layout: the one that Laravel's queue workers use.

::

    queues:<q>            list        ready; the head is the oldest
    queues:<q>:delayed    sorted set  by the second a message is due
    queues:<q>:reserved   sorted set  by the second a reservation ends; attempts is raised in it
    queues:<q>:notify     list        one wake-up token per ready message

It has no place for headers: they are dropped on publish, and a handler's are always ``{}``.
Two messages with equal bytes share one reservation: the first settlement takes it, and the other
one finds it expired. They share one place among the delayed as well: two that are kept back
become one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from babelqueue_redis import lua
from babelqueue_redis.core.command import Arg, Command, ErrorReply, Op, octets
from babelqueue_redis.core.settlement import Settlement
from babelqueue_redis.errors import CommandRefusedError
from babelqueue_redis.layouts.protocol import (
    LARGEST_BATCH,
    Message,
    Taken,
    clock,
    flags,
    kept,
    pause_after,
    refused,
    second,
    settled,
    shortest_block,
    terms,
)
from babelqueue_redis.values import Outcome, Reservation

_CHUNK = 100
_UNCOUNTED = "attempts is missing or no number, or Redis cannot read or write the JSON"


class Migrated(msgspec.Struct, frozen=True):
    """What one migration call did, and whether due members may be left."""

    moved: int = 0
    more: bool = False
    refused: str = ""


class ZsetLayout:
    """See :class:`babelqueue_redis.layouts.protocol.Layout`."""

    def __init__(
        self,
        queue: str,
        key_prefix: str = "queues:",
        lease: int | None = None,
        batch: int = -1,
        *,
        alone: int | None = None,
    ) -> None:
        """Name the keys.

        Args:
            queue: The logical name.
            key_prefix: What all keys begin with.
            lease: Seconds until a reservation expires; ``None`` is never.
            batch: How many members of each set one migration moves at most; -1 is all.
            alone: A message with as many attempts is reserved alone; ``None`` is never.
        """
        self.queue = queue
        self._prefix = key_prefix
        self.ready = f"{key_prefix}{queue}"
        self.delayed, self.reserved, self.notify = (
            f"{self.ready}:{part}" for part in ("delayed", "reserved", "notify")
        )
        self._lease: Arg = "" if lease is None else lease
        self._batch = batch
        names = (self.ready, self.reserved, self.notify, self.delayed)
        self._keys = tuple([name.encode() for name in names])
        self._terms = terms(lease, LARGEST_BATCH, alone)
        # Without a lease of our own, those of others are not ours to end.
        self._sources = (self.delayed,) if lease is None else (self.delayed, self.reserved)

    def publish(self, messages: Sequence[Message], due: int | None = None) -> Command[None]:
        """Append messages to the queue, or delay them: all of them or none."""
        bodies = tuple(body for body, _ in messages)
        if due is None:
            return Command(lua.ZSET_PUBLISH, self._keys[::2], bodies, _nothing)
        args = tuple(part for body in bodies for part in (due, body))
        return Command("ZADD", (self.delayed,), args, _nothing)

    def reserve(
        self, token: str, now: float | None = None, count: int = 1
    ) -> Op[list[Reservation]]:
        """Take the head; where something is due and is to be migrated first, do that."""
        (taken,) = yield (self.take(token, now, count),)
        if (reservations := taken.taken()) is not None:
            return reservations  # type: ignore[no-any-return]  # the result of ``take``
        return (yield from self.restore(token, now, count))

    def take(
        self,
        token: str,
        now: float | None = None,
        count: int = 1,
        ended: Sequence[Reservation] = (),
        *,
        looks: bool = True,
    ) -> Command[Taken]:
        """Remove reservations that ended, then take the head."""
        begin, looking = token[:-8], looks and count > 0
        given = b"%b %d %b %d" % (second(now), count, self._terms, looking)
        members = [done.stored for done in ended]

        def parse(reply: list[Any] | ErrorReply) -> Taken:
            if isinstance(reply, ErrorReply):
                return refused(command, reply)
            if not reply or type(reply[0]) is bytes:
                return Taken([True] * len(members), self._reservations(begin, reply))
            due, digits, note, *jobs = reply
            there = flags(digits, len(members))
            return Taken(there, None if due else self._reservations(begin, jobs, note.decode()))

        command = Command(lua.ZSET_RESERVE, self._keys, (given, *members), parse, tolerant=True)
        return command

    def restore(
        self, token: str, now: float | None = None, count: int = 1
    ) -> Op[list[Reservation]]:
        """Bring a chunk of what is due to the ready list, and take its head.

        As in the legacy layout: what was taken is returned whatever became of the rest.
        """
        take = self.take(token, now, count, looks=False)
        moved = dict.fromkeys(self._sources, 0)
        while True:
            *chunks, taken = yield (*(self._migrate(s, moved[s], now) for s in moved), take)
            if reservations := taken.taken():
                return reservations  # type: ignore[no-any-return]
            if not self._goes_on(moved, chunks):
                break
        (taken,) = yield (take,)  # which came first, where the server had to be sent the others
        return taken.taken()  # type: ignore[no-any-return]

    def migrate(self, now: float | None = None) -> Op[int]:
        """Move all that is due to the ready list; return how many."""
        total = 0
        for source in self._sources:
            moved = {source: 0}
            while moved:
                chunks = yield (self._migrate(source, moved[source], now),)
                total += chunks[0].moved
                self._goes_on(moved, chunks)
        return total

    def replace(
        self, reservation: Reservation, settlement: Settlement, now: float | None = None
    ) -> Command[bool]:
        """Remove a reservation, and write what replaces its message."""
        stored = reservation.stored
        if settlement.outcome is Outcome.RETRIED:
            delay = math.ceil(settlement.delay)
            args: tuple[Arg, ...] = (stored, settlement.body, clock(now), delay)
            return Command(lua.ZSET_RELEASE, (self.reserved, self.delayed), args, bool)
        given_back = settlement.outcome is Outcome.RELEASED
        body = reservation.body if given_back else settlement.body
        ready = self.ready if given_back else f"{self._prefix}{settlement.dead_letter_queue}"
        keys = (self.reserved, ready, f"{ready}:notify")
        args = (stored, body, *kept(settlement))
        return Command(lua.ZSET_SETTLE, keys, args, lambda reply: settled(settlement, reply))

    def extend(self, reservation: Reservation, now: float | None = None) -> Command[bool]:
        """Let a reservation last another lease from now, if it is still there."""
        args = (clock(now), self._lease, reservation.stored)
        return Command(lua.EXTEND, (self.reserved,), args, bool)

    def adopt(self, tokens: Callable[[], str], now: float | None = None) -> Op[int]:  # noqa: ARG002 - see below
        """Do nothing: what is reserved has a deadline, being its score."""
        yield from ()
        return 0

    def wait(self, seconds: float, idle: int) -> Command[float]:
        """Take a wake-up token, and wait for one when there is none."""
        return Command(
            "BLPOP",
            (self.notify,),
            (shortest_block(seconds),),
            lambda reply: pause_after(idle) if isinstance(reply, ErrorReply) else 0.0,
            tolerant=True,
            blocks=True,
        )

    def _migrate(self, source: str, moved: int, now: float | None) -> Command[Migrated]:
        size = _CHUNK if self._batch < 0 else min(_CHUNK, self._batch - moved)
        keys = (source, self.ready, self.notify)

        def parse(reply: list[int] | ErrorReply) -> Migrated:
            if isinstance(reply, ErrorReply):
                return Migrated(refused=command.refused(reply.message))
            return Migrated(int(reply[0]), bool(reply[1]))

        command = Command(lua.ZSET_MIGRATE, keys, (clock(now), size), parse, tolerant=True)
        return command

    def _goes_on(self, moved: dict[str, int], chunks: Sequence[Migrated]) -> bool:
        """Count what was moved; tell whether there may be more to move."""
        for source, chunk in zip(list(moved), chunks, strict=True):
            if chunk.refused:
                raise CommandRefusedError(chunk.refused)
            moved[source] += chunk.moved
            if not chunk.more or moved[source] == self._batch:
                del moved[source]
        return bool(moved)

    def _reservations(
        self, begin: str, jobs: Sequence[bytes], notes: str = ""
    ) -> list[Reservation]:
        """Return reservations of jobs and members by turns; the notes are those of the script."""
        triples = zip(jobs[::2], jobs[1::2], notes or "." * (len(jobs) // 2), strict=True)
        return [
            Reservation(
                *(self.queue, octets(job), {}, f"{begin}{place:08x}", octets(member)),
                poison=_UNCOUNTED if note == "x" else None,
                alone=note == "a",
            )
            for place, (job, member, note) in enumerate(triples)
        ]


def _nothing(_reply: Any) -> None:
    return None

"""The legacy layout: lists, and a sorted set of deadlines.

::

    <q>                        list        ready; the head is the oldest
    <q>:processing             list        reserved elements
    <q>:processing:deadlines   sorted set  <token>:<element> by the second its reservation ends
    <q>:recoveries             hash        how often a sweep brought an element back, by its SHA-1
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from babelqueue_carrier.frame import frame_value, is_utf8, unframe
from babelqueue_redis import lua
from babelqueue_redis.core.command import Arg, Command, ErrorReply, Op, octets
from babelqueue_redis.core.settlement import Settlement
from babelqueue_redis.errors import CommandRefusedError, ConfigurationError
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
"""Members one sweep call looks at: 1 ms of Redis' time, or 3 on a loaded machine."""
_CHUNK_BYTES = 1 << 18
"""Their bytes, about: 3 ms."""
_ADOPTED = 500
"""Elements one adoption looks for: it reads all deadlines each time, so more is less."""
_MOST_NOTED = 5000
"""With more deadlines than this, adoption waits: it has to read them all."""
_REFUSED = 2
_COUNTED_FOR = 24 * 3600
"""Seconds that recoveries are counted for, and ten leases."""


class Swept(msgspec.Struct, frozen=True):
    """What one sweep call did, and whether expired members may be left."""

    moved: int = 0
    seen: int = 0
    more: bool = False
    refused: str = ""


class LegacyLayout:
    """See :class:`babelqueue_redis.layouts.protocol.Layout`."""

    def __init__(
        self,
        queue: str,
        lease: int | None = None,
        batch: int = -1,
        *,
        alone: int | None = None,
    ) -> None:
        """Name the keys.

        Args:
            queue: The logical name, which is the ready list's key.
            lease: Seconds until a reservation expires; ``None`` is never.
            batch: How many expired reservations one sweep moves at most; -1 is all.
            alone: A message that came back as often is reserved alone; ``None`` is never.
        """
        self.queue = queue
        self.processing = f"{queue}:processing"
        self.deadlines = f"{self.processing}:deadlines"
        names = (queue, self.processing, self.deadlines, f"{queue}:recoveries")
        self._keys: tuple[bytes, ...] = tuple([name.encode() for name in names])
        self._counted_for = _COUNTED_FOR + 10 * (lease or 0)
        self._lease: Arg = "" if lease is None else lease
        self._batch = batch
        self._alone = math.inf if alone is None else alone
        self._terms = terms(lease, LARGEST_BATCH, alone)

    def publish(self, messages: Sequence[Message], due: int | None = None) -> Command[None]:
        """Append messages to the queue: all of them or none. There are no delays."""
        if due is not None:
            msg = f"queue {self.queue!r} is of the legacy layout, which has no delayed set"
            raise ConfigurationError(msg)
        values = tuple([frame_value(*each) if each[1] else each[0] for each in messages])
        return Command("RPUSH", self._keys[:1], values, _nothing)

    def reserve(
        self, token: str, now: float | None = None, count: int = 1
    ) -> Op[list[Reservation]]:
        """Take the head; where reservations have expired and are to be swept first, do that."""
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
        given = b"%b %b %d %b %d" % (
            second(now),
            begin.encode() or b"-",
            count,
            self._terms,
            looking,
        )
        members = [_member(done) for done in ended]

        def parse(reply: list[Any] | ErrorReply) -> Taken:
            if isinstance(reply, ErrorReply):
                return refused(command, reply)
            if not reply or type(reply[0]) is bytes:
                return Taken([True] * len(members), self._reservations(begin, reply, ()))
            status, digits, back, *elements = reply
            there = flags(digits, len(members))
            if status == _REFUSED:
                return Taken(there, refused=CommandRefusedError(command.refused(back.decode())))
            if status:
                return Taken(there)
            return Taken(there, self._reservations(begin, elements, back.split()))

        command = Command(lua.LEGACY_RESERVE, self._keys, (given, *members), parse, tolerant=True)
        return command

    def restore(
        self, token: str, now: float | None = None, count: int = 1
    ) -> Op[list[Reservation]]:
        """Sweep a chunk, and take the head.

        What was taken is returned whatever became of the sweep: the next reserve goes on with it.
        Only while nothing could be taken is the sweep continued, and its failure raised.
        """
        take = self.take(token, now, count, looks=False)
        seen = 0
        while True:
            swept, taken = yield (self._sweep_chunk(seen, now), take)
            seen += swept.seen
            if reservations := taken.taken():
                return reservations  # type: ignore[no-any-return]
            if swept.refused:
                raise CommandRefusedError(swept.refused)
            if not swept.more or seen == self._batch:
                break
        (taken,) = yield (take,)  # which came first, where the server had to be sent the sweep
        return taken.taken()  # type: ignore[no-any-return]

    def sweep(self, now: float | None = None) -> Op[int]:
        """Move expired reservations back to the ready list; return how many."""
        moved = seen = 0
        while True:
            (swept,) = yield (self._sweep_chunk(seen, now),)
            moved, seen = moved + swept.moved, seen + swept.seen
            if swept.refused:
                raise CommandRefusedError(swept.refused)
            if not swept.more or seen == self._batch:
                return int(moved)

    def replace(
        self,
        reservation: Reservation,
        settlement: Settlement,
        now: float | None = None,  # noqa: ARG002 - nothing is written by the clock here
    ) -> Command[bool]:
        """Remove a reservation, and write what replaces its message."""
        if settlement.outcome is Outcome.RELEASED:
            target, value, forget = self.queue, reservation.stored, 0
        else:
            target = settlement.dead_letter_queue or self.queue
            value = frame_value(settlement.body, reservation.headers)
            forget = int(reservation.recoveries > 0)
        keys = (*self._keys[1:], target.encode())
        args = (reservation.token, reservation.stored, forget, value, *kept(settlement))
        return Command(lua.LEGACY_SETTLE, keys, args, lambda reply: settled(settlement, reply))

    def extend(self, reservation: Reservation, now: float | None = None) -> Command[bool]:
        """Let a reservation last another lease from now, if it is still there."""
        args = (clock(now), self._lease, _member(reservation))
        return Command(lua.EXTEND, self._keys[2:3], args, bool)

    def adopt(self, tokens: Callable[[], str], now: float | None = None) -> Op[int]:
        """Give elements of the processing list that have no deadline one, the oldest first.

        Those of another SDK, say, or after the key was lost. Without a lease nothing comes back.
        """
        adopted = 0
        while self._lease != "":
            listed, noted = yield tuple(
                Command(verb, (key,), (), int)
                for verb, key in zip(("LLEN", "ZCARD"), self._keys[1:3], strict=True)
            )
            if listed <= noted or noted > _MOST_NOTED:
                break
            args = (clock(now), self._lease, tokens()[:-8], _ADOPTED)
            (count,) = yield (Command(lua.LEGACY_ADOPT, self._keys[1:3], args, int),)
            adopted += count
            if count < _ADOPTED:
                break
        return adopted

    def wait(self, seconds: float, idle: int) -> Command[float]:
        """Move the head to the head: it blocks while there is none, and takes nothing.

        Where the server refuses (an ACL may, and so does one at maxmemory), sleep instead.
        """
        return Command(
            "BLMOVE",
            (self.queue,),
            (self.queue, "LEFT", "LEFT", shortest_block(seconds)),
            lambda reply: pause_after(idle) if isinstance(reply, ErrorReply) else 0.0,
            tolerant=True,
            blocks=True,
        )

    def _sweep_chunk(self, seen: int, now: float | None) -> Command[Swept]:
        size = _CHUNK if self._batch < 0 else min(_CHUNK, self._batch - seen)
        args = (clock(now), size, _CHUNK_BYTES, self._counted_for)

        def parse(reply: list[int] | ErrorReply) -> Swept:
            if isinstance(reply, ErrorReply):
                return Swept(refused=command.refused(reply.message))
            moved, seen, more = reply
            return Swept(int(moved), int(seen), bool(more))

        command = Command(lua.LEGACY_SWEEP, self._keys, args, parse, tolerant=True)
        return command

    def _reservations(
        self, begin: str, elements: Sequence[bytes], back: Sequence[bytes]
    ) -> list[Reservation]:
        """Return reservations; ``back`` is how often each was recovered, nothing where none was."""
        queue, alone, taken = self.queue, self._alone <= 0, []
        for place, stored in enumerate(elements):
            body, headers = unframe(octets(stored))
            poison = None if body is stored or is_utf8(stored) else "the bytes are not UTF-8"
            token = f"{begin}{place:08x}"
            taken.append(Reservation(queue, body, headers, token, stored, poison, alone=alone))
        if not back:
            return taken
        return [
            msgspec.structs.replace(one, recoveries=count, alone=count >= self._alone)
            for one, count in zip(taken, map(int, back), strict=True)
        ]


def _member(reservation: Reservation) -> bytes:
    return b"%b:%b" % (reservation.token.encode(), reservation.stored)


def _nothing(_reply: Any) -> None:
    return None

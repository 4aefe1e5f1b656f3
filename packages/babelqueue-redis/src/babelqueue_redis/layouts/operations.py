"""What an operator asks of a queue, in either layout."""

from __future__ import annotations

from collections import Counter

import msgspec

from babelqueue_redis import lua
from babelqueue_redis.checks import check_count
from babelqueue_redis.core.command import Command, ErrorReply, Op, Trip
from babelqueue_redis.core.redriving import (
    TAKEN,
    WRONG_TYPE,
    Moved,
    Redrive,
    Redriven,
    form_of,
)
from babelqueue_redis.core.stored import STATES, Counts, StoredMessage, stored_message
from babelqueue_redis.errors import CommandRefusedError, ConfigurationError
from babelqueue_redis.layouts.legacy import LegacyLayout
from babelqueue_redis.layouts.zset import ZsetLayout
from babelqueue_redis.settings import QueueOptions

MAX_PEEK = 1000
"""Messages of one ``peek``."""
_MOST_COMPARED = 5000
"""Reservations up to which elements and deadlines are compared: it holds up Redis."""
_CHUNK = 100
"""Dead letters that one step of a redrive reads, and moves one by one."""


class Places(msgspec.Struct, frozen=True):
    """Where a queue keeps what; ``""`` where its layout has no such place."""

    ready: str
    reserved: str
    deadlines: str
    delayed: str = ""
    notify: str = ""


class Stuck(msgspec.Struct, frozen=True):
    """What stands in the legacy layout for half a reservation.

    Attributes:
        undated: Reserved elements without a deadline: no sweep brings them back.
        orphaned: Deadlines without an element: a sweep removes them.
        compared: Whether all were looked at; too many are not, and nothing is counted.
    """

    undated: int
    orphaned: int
    compared: int


class Operations:
    """Says the commands; see :class:`babelqueue_redis.RedisQueue` for what they promise."""

    def __init__(self, options: QueueOptions, dead_letter_queue: str) -> None:
        """Name the keys of a queue and of its dead-letter queue."""
        self._options = options
        self._framed = options.layout == "legacy"
        self._dead_letter_queue = dead_letter_queue
        self._here, self._dead = self._places(options.queue), self._places(dead_letter_queue)

    def counts(self) -> Command[Counts]:
        """Count what stands where."""
        here, last = self._here, self._here.delayed or self._here.deadlines
        script = lua.LEGACY_COUNTS if self._framed else lua.ZSET_COUNTS
        keys = (here.ready, self._dead.ready, here.reserved, last)
        return Command(script, keys, (), lambda reply: Counts(*reply))

    def peek(self, n: int, state: str, start: int = 0) -> Command[list[StoredMessage]] | None:
        """Read ``n`` messages of a state; ``None`` where the layout has no such state.

        Raises:
            ConfigurationError: There is no such state, or ``n`` is no number from 1 to 1 000.
        """
        check_count("n", n, MAX_PEEK)
        if state not in STATES:
            msg = f"state={state!r} is refused: it must be one of {', '.join(STATES)}"
            raise ConfigurationError(msg)
        key = self._dead.ready if state == "dead" else getattr(self._here, state)
        if not key:
            return None
        verb = "ZRANGE" if key in (self._here.delayed, self._here.deadlines) else "LRANGE"
        stop = start + n - 1 if start >= 0 else min(start + n - 1, -1)
        return Command(verb, (key,), (start, stop), lambda found: self._messages(state, found))

    def types(self) -> dict[str, str]:
        """Return every key of the queue, and the type that it holds."""
        here = self._here
        types = {here.ready: "list", here.reserved: "list" if self._framed else "zset"}
        types |= {here.deadlines: "zset", here.delayed: "zset", here.notify: "list"}
        types[self._dead.ready] = "list"
        return {key: kind for key, kind in types.items() if key}

    def stuck(self) -> Command[Stuck] | None:
        """Look for what only half a reservation stands for; ``None`` where that cannot be."""
        if not self._framed:
            return None
        keys = (self._here.reserved, self._here.deadlines)
        return Command(lua.LEGACY_STUCK, keys, (_MOST_COMPARED,), lambda reply: Stuck(*reply))

    def purge(self) -> Command[int]:
        """Remove what is ready and what is delayed."""
        places = (self._here.ready, self._here.delayed, self._here.notify)
        return Command(lua.PURGE, tuple(filter(None, places)), (), int)

    def redrive(self, wish: Redrive) -> Walk:
        """Begin to move dead letters back.

        Raises:
            ConfigurationError: What is wished for cannot work.
        """
        return Walk(self, wish.checked())

    def dead_letters(self, start: int) -> Trip:
        """Count the dead letters, and read a chunk of them from index ``start`` on.

        It also makes the script of :meth:`move` known: where calls of a trip had to be sent again
        as source, they would run behind the others.
        """
        key, stop = (self._dead.ready,), start + _CHUNK - 1
        source = lua.REDRIVE.source
        return (
            Command("LLEN", key, (), int),
            Command("LRANGE", key, (start, stop), lambda found: self._messages("dead", found)),
            Command("SCRIPT", (), ("LOAD", source), lambda _reply: None, tolerant=True),
        )

    def move(self, message: StoredMessage, queue: str, index: int) -> Command[str]:
        """Move a dead letter that stood at ``index``. The result says why not, or ``""``."""
        target = self._places(queue)
        keys = (self._dead.ready, target.ready, self._dead.notify, target.notify)

        def parse(reply: int | ErrorReply) -> str:
            if not isinstance(reply, ErrorReply):
                return "" if reply else TAKEN
            if "WRONGTYPE" in reply.message:
                return WRONG_TYPE
            raise CommandRefusedError(command.refused(reply.message))

        args = (message.stored, form_of(message), index + 1)
        command = Command(lua.REDRIVE, tuple(filter(None, keys)), args, parse, tolerant=True)
        return command

    def _messages(self, state: str, found: list[bytes]) -> list[StoredMessage]:
        return [stored_message(state, stored, framed=self._framed) for stored in found]

    def _places(self, queue: str) -> Places:
        if self._framed:
            lists = LegacyLayout(queue)
            return Places(lists.queue, lists.processing, lists.deadlines)
        sets = ZsetLayout(queue, self._options.key_prefix)
        return Places(sets.ready, sets.reserved, sets.reserved, sets.delayed, sets.notify)


class Walk:
    """A redrive on its way: from the oldest dead letter to the one that was the newest at first.

    What is dead-lettered meanwhile is not looked at, so that a queue whose messages fail at once is
    no treadmill.
    """

    def __init__(self, operations: Operations, wish: Redrive) -> None:
        """Start at the head."""
        self._operations = operations
        self._wish = wish
        self._unseen: int | None = None
        self._index = 0  # what stands before it was left in place
        self._moved: list[Moved] = []
        self._left: Counter[str] = Counter()

    @property
    def done(self) -> bool:
        """Whether there is nothing more to look at, or as many were moved as wished for."""
        return self._unseen == 0 or len(self._moved) == self._wish.limit

    @property
    def counts(self) -> tuple[int, int]:
        """How many moved so far, and how many stay."""
        return len(self._moved), sum(self._left.values())

    @property
    def result(self) -> Redriven:
        """What was done so far."""
        return Redriven(tuple(self._moved), dict(self._left))

    def step(self) -> Op[None]:
        """Look at one chunk: a trip to read it, and one that moves each message by a script."""
        length, found, _ = yield self._operations.dead_letters(self._index)
        unseen = length if self._unseen is None else self._unseen
        planned, looked = self._plan(found[:unseen])
        self._unseen = unseen - looked if looked else 0
        fates = [""] * len(planned)
        if planned and not self._wish.dry_run:
            fates = yield tuple(self._operations.move(*move) for move in planned)
        for (message, queue, _), fate in zip(planned, fates, strict=True):
            if fate:
                self._left[fate] += 1
            else:
                self._moved.append(Moved(message.message_id, message.urn, queue))
        stays = len(planned) if self._wish.dry_run else fates.count(WRONG_TYPE)
        self._index += looked - len(planned) + stays

    def _plan(self, found: list[StoredMessage]) -> tuple[list[tuple[StoredMessage, str, int]], int]:
        """Return what to move, with where to and the index it has, and how many were looked at."""
        planned: list[tuple[StoredMessage, str, int]] = []
        for position, message in enumerate(found):
            if len(self._moved) + len(planned) == self._wish.limit:
                return planned, position
            queue, why_not = self._wish.target(message)
            if why_not:
                self._left[why_not] += 1
            else:
                planned.append((message, queue, self._index + position))
        return planned, len(found)

    def __str__(self) -> str:
        """Tell how far it is."""
        verb = "would move" if self._wish.dry_run else "moved"
        moved, left = self.counts
        return f"redrive of {self._wish.source!r}: {verb} {moved}, left {left} in place"

"""How a publisher sends: what tasks publish while a trip is under way shares the next one.

A publish that is alone waits for nothing. Cancelling one takes it out while it waits, and leaves
the others alone. A trip is one command, so the messages of a publish are stored all or none, and
all of them in the order in which they were published.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections import deque
from collections.abc import Sequence

from babelqueue_redis.aio.driver import Driver, whole
from babelqueue_redis.core.publishing import MAX_BATCH
from babelqueue_redis.errors import TransportError
from babelqueue_redis.layouts import Layout
from babelqueue_redis.layouts.protocol import Message
from babelqueue_redis.redis_py import commands_are_watched

_MOST_BYTES = 1 << 20
"""Bytes of a trip that several publishes share; a larger message travels alone."""


class Outbox:
    """Sends the messages of one publisher."""

    def __init__(self, driver: Driver, layout: Layout) -> None:
        """Send through ``driver`` to the queue of ``layout``."""
        self._driver = driver
        self._layout = layout
        self._line: _Line | None = None

    async def put(self, messages: Sequence[Message], due: int | None) -> TransportError | None:
        """Send messages, all of them or none; return why Redis did not confirm them.

        A publish that is cancelled before its trip began is not stored. One whose trip is under way
        waits for its end, as every command does.

        Args:
            messages: What one call publishes.
            due: The second they become ready; ``None`` is now.
        """
        if commands_are_watched():  # who watches sees a command for each publish, inside its span
            return await self._sent(messages, due)
        line = self._line_here()
        parcel = line.add(messages, due)
        if not line.moves:
            line.moves = True
            line.loop.call_soon(self._depart, line, context=line.context)
        try:
            return await parcel.answer
        except asyncio.CancelledError:
            if parcel.trip is not None:
                with contextlib.suppress(asyncio.CancelledError):
                    await whole(parcel.trip)
            raise

    def _line_here(self) -> _Line:
        loop = asyncio.get_running_loop()
        if self._line is None or self._line.loop is not loop:
            self._line = _Line(loop)
        return self._line

    def _depart(self, line: _Line) -> None:
        """Send what waits, as much as one trip takes; when it has ended, the next one departs."""
        due, parcels = line.take()
        line.moves = bool(parcels)
        if parcels:
            trip = asyncio.ensure_future(self._carry(parcels, due))
            for parcel in parcels:
                parcel.trip = trip
            trip.add_done_callback(lambda _trip: self._depart(line))

    async def _carry(self, parcels: Sequence[_Parcel], due: int | None) -> None:
        messages = [message for parcel in parcels for message in parcel.messages]
        waiting = [parcel.answer for parcel in parcels]
        try:
            answer = await self._sent(messages, due)
        except Exception as error:  # noqa: BLE001 - it is raised where it is waited for
            for future in waiting:
                if not future.done():
                    future.set_exception(error)
        else:
            for future in waiting:
                if not future.done():
                    future.set_result(answer)
        finally:
            for future in waiting:
                future.cancel()  # when the loop is being closed; else they are done

    async def _sent(self, messages: Sequence[Message], due: int | None) -> TransportError | None:
        try:
            await self._driver.send(self._layout.publish(messages, due))
        except TransportError as error:
            return error
        return None


class _Parcel:
    """What one call publishes, and who waits for the answer."""

    __slots__ = ("answer", "messages", "size", "trip")

    def __init__(
        self, messages: Sequence[Message], answer: asyncio.Future[TransportError | None]
    ) -> None:
        self.messages = messages
        self.answer = answer
        self.size = sum([len(body) for body, _ in messages])
        self.trip: asyncio.Task[None] | None = None


class _Line:
    """What waits in one event loop, by the second it becomes ready."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.context = contextvars.Context()  # a trip that several share belongs to none of them
        self.moves = False
        self._rows: dict[int | None, deque[_Parcel]] = {}

    def add(self, messages: Sequence[Message], due: int | None) -> _Parcel:
        """Let messages wait for a trip."""
        parcel = _Parcel(messages, self.loop.create_future())
        self._rows.setdefault(due, deque()).append(parcel)
        return parcel

    def take(self) -> tuple[int | None, list[_Parcel]]:
        """Return what fits into the next trip, in the order it came; rows take turns."""
        while self._rows:
            due = next(iter(self._rows))
            row = self._rows.pop(due)
            parcels = _first_of(row)
            if row:
                self._rows[due] = row
            if parcels:
                return due, parcels
        return None, []


def _first_of(row: deque[_Parcel]) -> list[_Parcel]:
    """Take from a row as many as may travel together; those that nobody waits for are dropped."""
    taken: list[_Parcel] = []
    count = size = 0
    while row:
        parcel = row[0]
        if not parcel.answer.done():
            count, size = count + len(parcel.messages), size + parcel.size
            if taken and (count > MAX_BATCH or size > _MOST_BYTES):
                break
            taken.append(parcel)
        row.popleft()
    return taken

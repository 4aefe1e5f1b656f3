"""How servers that are away are asked whether they are back, while others are served."""

from __future__ import annotations

import asyncio

from babelqueue_redis.aio.feed import Feed
from babelqueue_redis.core.command import Command
from babelqueue_redis.errors import TransportError

_AGAIN = 1.0
"""Seconds between two tries; one may take as long as the client's timeouts allow."""
_KNOCK: Command[None] = Command("PING", (), (), lambda _reply: None, blocks=True)
"""Said to block: then a cancellation need not wait for it."""


class Knocking:
    """Keeps a worker of several queues from waiting for a server that is away."""

    def __init__(self) -> None:
        """Begin with nobody away."""
        self._doors: dict[Feed, asyncio.Task[None]] = {}

    def is_out(self, feed: Feed) -> bool:
        """Tell whether a queue is to be left alone: its server has not answered since it went."""
        if not feed.is_away:
            return False
        door = self._doors.get(feed)
        if door is None:
            door = self._doors[feed] = asyncio.ensure_future(_knock(feed))
        return not door.done()

    def forget(self, feed: Feed) -> None:
        """Knock anew when a queue's server is away from now on: the queue was asked."""
        self._doors.pop(feed, None)

    async def end(self) -> None:
        """Stop asking."""
        doors = list(self._doors.values())
        self._doors.clear()
        for door in doors:
            door.cancel()
        if doors:
            await asyncio.wait(doors)


async def _knock(feed: Feed) -> None:
    """Ask until there is an answer."""
    while True:
        try:
            await feed.driver.send(_KNOCK)
        except TransportError:
            await feed.driver.sleep(_AGAIN)
        else:
            break

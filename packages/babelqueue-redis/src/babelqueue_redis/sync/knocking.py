"""How servers that are away are asked whether they are back, while others are served."""

from __future__ import annotations

import signal
import threading

from babelqueue_redis.core.command import Command
from babelqueue_redis.errors import TransportError
from babelqueue_redis.sync.feed import Feed

_AGAIN = 1.0
"""Seconds between two tries; one may take as long as the client's timeouts allow."""
_KNOCK: Command[None] = Command("PING", (), (), lambda _reply: None)


class Knocking:
    """Keeps a worker of several queues from waiting for a server that is away."""

    def __init__(self) -> None:
        """Begin with nobody away."""
        self._doors: dict[Feed, threading.Thread] = {}

    def is_out(self, feed: Feed) -> bool:
        """Tell whether a queue is to be left alone: its server has not answered since it went."""
        if not feed.is_away:
            return False
        door = self._doors.get(feed)
        if door is None:
            door = threading.Thread(
                target=_knock, args=(feed,), name="babelqueue-knock", daemon=True
            )
            self._doors[feed] = door
            # Deaf to signals: one that is delivered there would not wake the main thread.
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            door.start()
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return door.is_alive()

    def forget(self, feed: Feed) -> None:
        """Knock anew when a queue's server is away from now on: the queue was asked."""
        self._doors.pop(feed, None)


def _knock(feed: Feed) -> None:
    """Ask until there is an answer, or nobody serves the queue any more."""
    while feed.is_served:
        try:
            feed.driver.send(_KNOCK)
        except TransportError:
            feed.driver.sleep(_AGAIN)
        else:
            break
    feed.driver.close()  # this thread's connection

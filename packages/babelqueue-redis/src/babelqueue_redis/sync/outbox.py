"""How a publisher sends: each call is a trip of its own."""

from __future__ import annotations

from collections.abc import Sequence

from babelqueue_redis.errors import TransportError
from babelqueue_redis.layouts import Layout
from babelqueue_redis.layouts.protocol import Message
from babelqueue_redis.sync.driver import Driver


class Outbox:
    """Sends the messages of one publisher."""

    def __init__(self, driver: Driver, layout: Layout) -> None:
        """Send through ``driver`` to the queue of ``layout``."""
        self._driver = driver
        self._layout = layout

    def put(self, messages: Sequence[Message], due: int | None) -> TransportError | None:
        """Send messages, all of them or none; return why Redis did not confirm them.

        Args:
            messages: What one call publishes.
            due: The second they become ready; ``None`` is now.
        """
        try:
            self._driver.send(self._layout.publish(messages, due))
        except TransportError as error:
            return error
        return None

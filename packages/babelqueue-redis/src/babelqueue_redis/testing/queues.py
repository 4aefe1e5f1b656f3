"""What tests look into: queues, and the messages in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from babelqueue_redis.envelope import Envelope
from babelqueue_redis.errors import PoisonError
from babelqueue_redis.verdict import verdict


class MemoryMessage(msgspec.Struct, frozen=True):
    """A message in memory.

    Attributes:
        body: The envelope's bytes.
        headers: Its headers; always ``{}`` in the zset layout.
        due: What it is sorted by: 0, or more for one that is kept back.
    """

    body: bytes
    headers: Mapping[str, str] = {}
    due: int = 0

    @property
    def envelope(self) -> Envelope:
        """The decoded message.

        Raises:
            PoisonError: It is none.
        """
        judged = verdict(self.body)
        if isinstance(judged, PoisonError):
            raise judged
        return judged


class MemoryQueue:
    """One queue.

    Attributes:
        published: All that was published to it, handled or not, oldest first.
        waiting: What can be taken, in the order it would be.
        reserved: What is being handled, by reservation token.
    """

    def __init__(self, name: str) -> None:
        """Start empty."""
        self.name = name
        self.published: list[MemoryMessage] = []
        self.waiting: list[MemoryMessage] = []
        self.reserved: dict[str, MemoryMessage] = {}

    def append(self, message: MemoryMessage) -> None:
        """Add a message; a delayed one goes behind those that are due earlier."""
        self.waiting.append(message)
        self.waiting.sort(key=lambda other: other.due)

    def assert_published(
        self, urn: str, data: Mapping[str, Any] | None = None, *, times: int = 1
    ) -> list[MemoryMessage]:
        """Check what was published, and return those that match.

        Args:
            urn: Of the messages that count.
            data: Theirs, exactly; ``None`` is any.
            times: How many there must be.

        Raises:
            AssertionError: There are more or fewer; it says what there is.
        """
        found = [m for m in self.published if m.envelope.job == urn]
        matches = [m for m in found if data is None or m.envelope.data == data]
        if len(matches) != times:
            there = [(m.envelope.job, m.envelope.data) for m in found or self.published]
            msg = (
                f"{len(matches)} messages {urn!r} with data {data or 'of any kind'} were published "
                f"to {self.name!r}, not {times}; there are {there}"
            )
            raise AssertionError(msg)
        return matches

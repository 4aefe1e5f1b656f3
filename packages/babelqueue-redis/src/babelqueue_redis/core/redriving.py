"""Which dead letters go back, where to, and as what."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping

import msgspec

from babelqueue_carrier.frame import frame_value
from babelqueue_redis.checks import check_count, check_queue
from babelqueue_redis.core.stored import StoredMessage
from babelqueue_redis.dead_letter import revived
from babelqueue_redis.errors import ConfigurationError

POISON = "poison"
NO_DEAD_LETTER = "not a dead letter"
NOT_SELECTED = "not selected"
NO_QUEUE = "no usable original queue"
TAKEN = "taken meanwhile"
WRONG_TYPE = "the queue's key holds another type"

Select = Callable[[StoredMessage], bool]


class Moved(msgspec.Struct, frozen=True):
    """A message that went back to a queue.

    Attributes:
        message_id: Its ``meta.id``; ``""`` when it has none.
        urn: Its URN.
        queue: Where it went.
    """

    message_id: str
    urn: str
    queue: str


class Redriven(msgspec.Struct, frozen=True):
    """What a redrive did, or would do.

    Attributes:
        moved: The messages that went back, in their order.
        left: How many were left in place, by reason: ``poison``, ``not a dead letter`` (it has no
            block), ``not selected``, ``no usable original queue``, ``the queue's key holds another
            type``, and ``taken meanwhile``, for what a consumer or another redrive took first.
    """

    moved: tuple[Moved, ...]
    left: Mapping[str, int]


class Redrive(msgspec.Struct, frozen=True):
    """What is asked for.

    Attributes:
        source: The dead-letter queue.
        to: Where all messages go; ``None`` is the queue each came from.
        limit: How many to move at most.
        select: Tells which ones to move.
        dry_run: Move none.
    """

    source: str
    to: str | None = None
    limit: int | None = None
    select: Select | None = None
    dry_run: bool = False

    def checked(self) -> Redrive:
        """Return it if it can work.

        Raises:
            ConfigurationError: ``to``, ``limit`` or ``select`` is of no use.
        """
        to = None if self.to is None else check_queue(self.to, "to")
        if to == self.source:
            msg = f"to={self.to!r} is refused: it is the dead-letter queue itself"
            raise ConfigurationError(msg)
        if self.limit is not None:
            check_count("limit", self.limit, also="or None")
        if self.select is not None and not callable(self.select):
            msg = f"select must be a callable, not a {type(self.select).__qualname__}"
            raise ConfigurationError(msg)
        if inspect.iscoroutinefunction(self.select):
            msg = f"select={self.select.__qualname__} must be a plain function, it is not awaited"
            raise ConfigurationError(msg)
        return msgspec.structs.replace(self, to=to)

    def target(self, message: StoredMessage) -> tuple[str, str]:
        """Return the queue a message goes to, and why it goes nowhere: one of them is empty."""
        if message.poison is not None:
            return "", POISON
        if not message.dead_letter.reason:
            return "", NO_DEAD_LETTER
        if self.select is not None and not self.select(message):
            return "", NOT_SELECTED
        try:
            queue = check_queue(self.to or message.dead_letter.original_queue, "original_queue")
        except ConfigurationError:
            return "", NO_QUEUE
        return ("", NO_QUEUE) if queue == self.source else (queue, "")


def form_of(message: StoredMessage) -> bytes:
    """Return what is stored when a dead letter goes back: no block, ``attempts`` 0, its headers."""
    return frame_value(revived(message.body), message.headers)

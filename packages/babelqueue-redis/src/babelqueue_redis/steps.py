"""What hooks are told of the steps that a message does not travel in itself."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from babelqueue_redis.core.stored import Counts
from babelqueue_redis.values import Destination, Outcome, Reservation


class Receiving(msgspec.Struct):
    """A ``reserve()`` that a program called, as a ``receiving`` hook sees it.

    Attributes:
        destination: The queue it takes from.
        reservation: What it took; ``None`` until then, and when nothing came.
    """

    destination: Destination
    reservation: Reservation | None = None


class Settling(msgspec.Struct):
    """The end of a reservation, as a ``settling`` hook sees it.

    Attributes:
        destination: The queue the message came from.
        reservation: What is settled.
        intended: What shall become of the message; never ``LEFT``, which settles nothing.
        message_id: The ``meta.id``; ``""`` when there is none, or nobody looked.
        outcome: What became of it: ``intended``, or ``EXPIRED``. ``None`` until Redis has answered.
    """

    destination: Destination
    reservation: Reservation
    intended: Outcome
    message_id: str = ""
    outcome: Outcome | None = None


class Serving(msgspec.Struct, frozen=True):
    """A ``run()`` of a consumer or a job worker, as a ``serving`` hook sees it.

    Attributes:
        destination: The queue it serves; for a job worker the key prefix of its store, with
            ``jobs`` for a layout.
        counts: Asks Redis how many messages stand where, or how many jobs have which status,
            through the worker's own driver; callable from any thread. One that runs an event loop
            is told nothing by an asyncio worker. Raises what the driver raises, and
            ``TimeoutError`` when that loop is too busy.
    """

    destination: Destination
    counts: Callable[[], Counts | dict[str, int] | None]

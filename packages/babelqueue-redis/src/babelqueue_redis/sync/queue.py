# Generated from aio/queue.py by `nox -s sync`. Edit that file, not this one.
"""A queue in an operator's hands: look, count, purge, redrive."""

from __future__ import annotations

import logging
from collections.abc import Callable

from babelqueue_redis.cluster import refuse_scattered
from babelqueue_redis.core.redriving import Redrive, Redriven, Select
from babelqueue_redis.core.stored import Counts, StoredMessage
from babelqueue_redis.layouts.operations import Operations
from babelqueue_redis.settings import ConsumerOptions
from babelqueue_redis.sync.driver import Client, Driver

logger = logging.getLogger("babelqueue_redis.queue")


class RedisQueue:
    """Looks into one queue and its dead letters, and repairs them, while others use it.

    Args:
        client: A ``redis.Redis`` or ``redis.RedisCluster``, whose connection
            settings are used, or a URL.
        queue: The logical queue name. A dead-letter queue is a queue like any other.
        layout: How the queue is stored: ``legacy`` or ``zset``.
        key_prefix: What the keys of the zset layout begin with.
        dead_letter_queue: Where its consumers put dead letters, by default ``<queue>.dlq``.

    Raises:
        ConfigurationError: One of those cannot work.
    """

    def __init__(
        self,
        client: Client,
        queue: str,
        *,
        layout: str = "legacy",
        key_prefix: str = "queues:",
        dead_letter_queue: str = "",
    ) -> None:
        """Check the options; nothing is sent yet."""
        options = ConsumerOptions(queue, layout, key_prefix, dead_letter_queue=dead_letter_queue)
        self._dead_letter_queue = options.dead_letter_target
        self._operations = Operations(options, self._dead_letter_queue)
        refuse_scattered(client, options)
        self._driver = Driver(client)

    def __enter__(self) -> RedisQueue:
        """Return the queue; leaving the block closes it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the queue."""
        self.close()

    def counts(self) -> Counts:
        """Count the messages that are ready, delayed, reserved and dead, all at one moment.

        Raises:
            TransportError: Redis did not answer, or refused.
        """
        return self._driver.send(self._operations.counts())

    def peek(self, n: int = 1, state: str = "ready", start: int = 0) -> list[StoredMessage]:
        """Return the next messages, in order, and leave them where they are.

        Args:
            n: How many at most, from 1 to 1 000.
            state: ``ready``; ``delayed``, by when they become ready (there are none in the legacy
                layout); ``reserved``, the ones that consumers have; or ``dead``, of the dead-letter
                queue.
            start: How many to pass over; -10 begins with the tenth from the end.

        Raises:
            ConfigurationError: There is no such state, or ``n`` is out of bounds.
            TransportError: Redis did not answer, or refused.
        """
        command = self._operations.peek(n, state, start)
        return [] if command is None else self._driver.send(command)

    def purge(self) -> int:
        """Remove all messages that are ready or delayed, in one step.

        What consumers have reserved goes on, and comes back when it fails. Dead letters stay: to
        remove those, purge the dead-letter queue.

        Returns:
            How many messages were removed.

        Raises:
            TransportError: Redis did not answer, or refused.
        """
        return self._driver.send(self._operations.purge())

    def redrive(
        self,
        to: str | None = None,
        limit: int | None = None,
        select: Select | None = None,
        *,
        dry_run: bool = False,
        progress: Callable[[int, int], object] | None = None,
    ) -> Redriven:
        """Move dead letters back to the queues they came from, the oldest first.

        A message that goes back has no ``dead_letter`` block and ``attempts`` 0; its headers and
        all else are what they were. Each goes by one atomic script, so that consumers and other
        redrives may work meanwhile; of what they move, this one may miss a neighbour: call it
        again. Poison stays, and so does what is no dead letter, what names no queue, and what a
        consumer of the dead-letter queue has reserved. What is dead-lettered after the start is
        not looked at. Progress is logged, at level INFO.

        Args:
            to: Where all of them go, instead of to ``dead_letter.original_queue``.
            limit: How many to move at most.
            select: Called with each :class:`~babelqueue_redis.StoredMessage` that could go back;
                a false answer leaves it.
            dry_run: Move nothing, and return what would be done.
            progress: Called now and then with how many moved and how many stayed so far.

        Returns:
            Which messages went where, and how many stayed for which reason.

        Raises:
            ConfigurationError: ``to``, ``limit`` or ``select`` cannot work.
            TransportError: Redis did not answer, or refused; two queues in different slots of a
                cluster, say. What was moved by then is moved, the rest stays: call it again.
        """
        wish = Redrive(self._dead_letter_queue, to, limit, select, dry_run)
        walk = self._operations.redrive(wish)
        while not walk.done:
            self._driver.run(walk.step())
            logger.info("%s", walk)
            if progress is not None:
                progress(*walk.counts)
        return walk.result

    def close(self) -> None:
        """Close the connection of this thread or loop; a later call opens a new one."""
        self._driver.close()

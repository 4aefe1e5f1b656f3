# Generated from aio/redis_worker.py by `nox -s sync`. Edit that file, not this one.
"""One worker for several queues."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from babelqueue_redis.checks import check_count
from babelqueue_redis.errors import ConfigurationError
from babelqueue_redis.sync.consumer import RedisConsumer
from babelqueue_redis.sync.worker import Worker


class RedisWorker:
    """Serves several queues in one loop, each with its own consumer.

    A batch that was reserved is handled before another queue is asked; with ``prefetch="auto"``
    a message of the first queue waits for a few milliseconds' work at most, or for one message. An
    idle worker waits for all queues at once. An outage of one consumer's server does not keep the
    others, but for the time it takes to notice that a server does not answer, once
    (``socket_timeout`` and a second). Ask and stop the worker: ``healthy`` and ``stop()`` of its
    consumers concern their own ``run()`` only.

    Args:
        consumers: One for each queue, the most urgent first. The handlers of all of them share the
            largest ``concurrency``; the shortest ``block_timeout`` and the longest
            ``shutdown_timeout`` count for all.
        weights: How many turns each queue has, beside the others', so that a busy one cannot starve
            them: with ``(3, 1)``, three batches of the first, then one of the second. ``None`` is
            strict: a queue is asked only while those before it are empty.

    Raises:
        ConfigurationError: There is no consumer, one twice, or a weight that is no whole number.
    """

    def __init__(
        self, consumers: Sequence[RedisConsumer], *, weights: Sequence[int] | None = None
    ) -> None:
        """Check the arguments; nothing is sent yet."""
        if not consumers or not all(isinstance(each, RedisConsumer) for each in consumers):
            msg = f"consumers={consumers!r} is refused: it must be one RedisConsumer or more"
            raise ConfigurationError(msg)
        if len(set(map(id, consumers))) < len(consumers):
            msg = "consumers holds a consumer twice: give each queue one of its own"
            raise ConfigurationError(msg)
        if weights is not None and len(weights) != len(consumers):
            msg = f"weights={weights!r} is refused: {len(consumers)} consumers need as many"
            raise ConfigurationError(msg)
        for weight in weights or ():
            check_count("weights", weight)
        self._worker = Worker([consumer.feed for consumer in consumers], weights)

    def run(self, should_continue: Callable[[], bool] | None = None) -> int:
        """Consume until stopped, as :meth:`RedisConsumer.run` does.

        Args:
            should_continue: Asked before every message, and every wait for one; a false answer
                ends the run.

        Returns:
            How many messages were handled.

        Raises:
            BabelQueueError: One of the consumers is running already.
        """
        return self._worker.run(should_continue or (lambda: True))

    def stop(self) -> None:
        """End :meth:`run` after the current message. Safe from any thread and from handlers."""
        self._worker.stop()

    @property
    def healthy(self) -> bool:
        """Whether :meth:`run` goes on and Redis answered within 15 s, or its handlers are busy.

        They count for as long as their reservations may be extended. Ask from any thread.
        """
        return self._worker.pulse.alive(self._worker.monotonic())

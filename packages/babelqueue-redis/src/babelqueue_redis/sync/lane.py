"""Where a handler runs: in the calling thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from babelqueue_redis.core.routing import call, check_result
from babelqueue_redis.sync.shutdown import HandlerInterrupted
from babelqueue_redis.values import Delivery


class Lane:
    """Where a handler runs: in the calling thread."""

    awaits = False
    interrupted = False

    def run(self, delivery: Delivery) -> None:
        """Run a delivery's handler, or raise why there is none to run.

        A handler that was interrupted, and turns that into an error of its own, did not fail.
        """
        try:
            result = call(delivery)
            if result is not None:
                check_result(result)
        except Exception as error:
            if self.interrupted:
                raise HandlerInterrupted from error
            raise

    def interrupt(self) -> None:
        """Note that the handler is interrupted by a shutdown."""
        self.interrupted = True

    def call(self, function: Callable[..., Any], *args: Any) -> None:
        """Call a user's function."""
        check_result(function(*args))

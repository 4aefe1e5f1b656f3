"""The threads that run a worker's handlers."""

from __future__ import annotations

import contextvars
import queue
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Lanes:
    """Threads that are kept for the next job: a handler's store has a connection in each.

    A job that is started while all of them are busy, be it with a handler that nobody waits for any
    more, gets another one. They do not keep the program from its end.
    """

    def __init__(self) -> None:
        """Begin without a thread."""
        self._inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._count = 0

    def start(self, work: Callable[[], T], tell: Callable[[T], None]) -> None:
        """Have ``work`` done in a context of its own, and ``tell`` called with what came of it."""

        def step() -> None:
            result = contextvars.Context().run(work)
            self._idle.release()  # first: whoever is told may start the next job here
            tell(result)

        if not self._idle.acquire(blocking=False):
            self._count += 1
            threading.Thread(target=self._run, name="babelqueue-job", daemon=True).start()
        self._inbox.put(step)

    def end(self) -> None:
        """Let the threads end once they are idle. Nothing can be started any more."""
        for _ in range(self._count):
            self._inbox.put(None)

    def _run(self) -> None:
        while (step := self._inbox.get()) is not None:
            step()

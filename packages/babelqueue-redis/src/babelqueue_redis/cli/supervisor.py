"""The parent of a worker's processes: starts, restarts, reloads and ends them."""

from __future__ import annotations

import itertools
import signal
import time
from collections.abc import Callable, Sequence

from babelqueue_redis.cli.children import Child

CANNOT_RUN = 2
"""The exit code of a child that will never run: starting it again is of no use."""
_ENDED_AS_ASKED = (0, -signal.SIGTERM, 128 + signal.SIGTERM)
"""How a child ends by SIGTERM: working, starting, and starting a little later."""
_LOOK_EVERY = 0.1
_GRACE = 5.0
"""Seconds after ``shutdown_timeout`` that a child has to be gone."""


class Supervisor:
    """Keeps processes running until it is told to stop.

    Args:
        children: The processes.
        shutdown_timeout: How long their handlers may go on.
        changed: Names a file that changed, or ``""``; ``None`` is no reloading.
        say: Tells people.
    """

    def __init__(
        self,
        children: Sequence[Child],
        shutdown_timeout: float,
        changed: Callable[[], str] | None,
        say: Callable[[str], None],
    ) -> None:
        """Start nothing yet."""
        self._children = children
        self._patience = shutdown_timeout + _GRACE
        self._changed = changed
        self._say = say
        self._signals = itertools.count()  # atomic: one handler may interrupt another
        self._asked = self._passed_on = 0
        self._code = 0

    def healthy(self) -> bool:
        """Tell whether all processes are."""
        return all(child.healthy() for child in self._children)

    def run(self) -> int:
        """Run until SIGTERM or SIGINT, and until all have ended; return the exit code.

        0 when all ended in time; 1 when one had to be killed or failed; 2 when they cannot run.
        """
        previous = {
            number: signal.signal(number, self._on_signal)
            for number in (signal.SIGTERM, signal.SIGINT)
        }
        try:
            while not self._is_over():
                self._look()
                time.sleep(_LOOK_EVERY)
        finally:
            for child in self._children:
                if child.process is not None:
                    child.process.kill()
                    child.process.wait()
            for number, handler in previous.items():
                signal.signal(number, handler)
        return self._code

    def _on_signal(self, _number: int, _frame: object) -> None:
        self._asked = next(self._signals) + 1

    def _is_over(self) -> bool:
        return self._asked > 0 and all(child.process is None for child in self._children)

    def _look(self) -> None:
        """Do all that is due."""
        self._pass_on()
        for child in self._children:
            code = child.ended()
            if code is not None:
                self._note(child, code)
            elif child.process is None and not self._asked and time.monotonic() >= child.due:
                child.start()
        if self._changed is not None and not self._asked and (file := self._changed()):
            self._reload(file)

    def _pass_on(self) -> None:
        while self._passed_on < self._asked:
            self._passed_on += 1
            for child in self._children:
                child.signal(self._patience)

    def _note(self, child: Child, code: int) -> None:
        if self._asked:
            self._code = max(self._code, int(code not in _ENDED_AS_ASKED))
        elif child.kill_at is not None:  # it was reloaded
            child.due = 0.0
        elif code != CANNOT_RUN:
            child.start_again(code)
        elif self._changed is not None:
            child.due = float("inf")
            self._say("it cannot run like that; waiting for a change")
        else:
            self._code, self._asked = CANNOT_RUN, self._asked + 1

    def _reload(self, file: str) -> None:
        self._say(f"{file} changed")
        for child in self._children:
            child.failures, child.due = 0, 0.0
            child.signal(self._patience)

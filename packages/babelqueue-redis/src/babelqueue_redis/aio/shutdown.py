"""How signals end the runs of an event loop.

One handler per process serves all runs: each of them is told. It is set with ``signal.signal``, so
that handlers which a program gave its loop stay where they are.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_STRIKE_AGAIN = 1.0
"""Seconds between cancellations of a handler that does not end."""

_runs: list[Listening] = []
_previous: dict[int, Any] = {}
_owner = 0
"""The process whose runs those are; a forked child has none."""


class Listening:
    """Has a function called in the running loop at each signal, for the length of a ``with``.

    Outside the main thread it does nothing.
    """

    def __init__(self, on_signal: Callable[[], None]) -> None:
        """Keep the function."""
        self._on_signal = on_signal
        self._loop = asyncio.get_running_loop()

    def __enter__(self) -> None:
        """Listen to signals."""
        global _owner  # noqa: PLW0603 - signals are the process's
        if threading.current_thread() is not threading.main_thread():
            return
        if not _runs:
            _owner = os.getpid()
            _previous.update({int(n): signal.signal(n, _tell_all) for n in _SIGNALS})
        _runs.append(self)

    def __exit__(self, *_: object) -> None:
        """Give the signals back, if nobody else listens."""
        if self in _runs:
            _runs.remove(self)
            if not _runs:
                for number in _previous:
                    _give_back(number)

    def tell(self) -> None:
        """Let the loop know that a signal came."""
        with contextlib.suppress(RuntimeError):  # a loop that was closed under its run
            self._loop.call_soon_threadsafe(self._on_signal)


class Shutdown:
    """The end of one consumer's run, entered around it.

    The first signal stops the loop and starts the clock. A second one, or the clock, cancels what
    the run awaits; the clock strikes until the run is over. Those cancellations end here.
    """

    def __init__(
        self, stop: Callable[[], None], interrupt: Callable[[], None], limit: float
    ) -> None:
        """Keep what to call.

        Args:
            stop: At the first signal.
            interrupt: Before a cancellation.
            limit: Seconds from the first signal to the first cancellation.
        """
        self._stop = stop
        self._interrupt = interrupt
        self._limit = min(limit, threading.TIMEOUT_MAX)
        self._task: asyncio.Task[Any] | None = asyncio.current_task()
        self._loop = asyncio.get_running_loop()
        self._earlier_signals = itertools.count()
        self._strikes = 0
        self._clock: asyncio.TimerHandle | None = None
        self._listening = Listening(self._on_signal)

    def __enter__(self) -> None:
        """Listen to signals."""
        self._listening.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> bool:
        """Give the signals back, and keep a cancellation that was ours."""
        self._listening.__exit__()
        if self._clock is not None:
            self._clock.cancel()
        uncancel = getattr(self._task, "uncancel", lambda: 0)  # from Python 3.11 on
        for _ in range(self._strikes):
            uncancel()
        return self._strikes > 0 and kind is not None and issubclass(kind, asyncio.CancelledError)

    def _on_signal(self) -> None:
        self._stop()
        if next(self._earlier_signals) or self._limit == 0:
            self._strike()
        else:
            self._clock = self._loop.call_later(self._limit, self._strike)

    def _strike(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
        self._clock = self._loop.call_later(_STRIKE_AGAIN, self._strike)
        if self._task is not None:
            self._interrupt()
            self._strikes += 1
            self._task.cancel()


def _tell_all(number: int, _frame: object) -> None:
    if os.getpid() != _owner:  # a child forked by a handler: not ours to shut down
        _give_back(number)
        signal.raise_signal(number)
        return
    for run in tuple(_runs):
        run.tell()


def _give_back(number: int) -> None:
    handler = _previous[number]
    signal.signal(number, signal.SIG_DFL if handler is None else handler)

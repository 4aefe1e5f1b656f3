"""How signals end a run in the main thread."""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_STRIKE_AGAIN = 1.0
"""Seconds between interruptions of a handler that does not end."""


class HandlerInterrupted(KeyboardInterrupt):
    """Raised in the main thread, in a handler for instance, when a shutdown takes too long."""


@contextlib.contextmanager
def listening(
    stop: Callable[[], None], interrupt: Callable[[], bool], limit: float
) -> Iterator[None]:
    """Turn SIGTERM and SIGINT into a graceful end; only the main thread can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    shutdown = Shutdown(stop, interrupt, limit)
    try:
        with contextlib.suppress(HandlerInterrupted):
            try:
                yield
            finally:
                shutdown.is_over = True  # an interruption before this is suppressed, too
    finally:
        shutdown.over()


class Shutdown:
    """The signal handlers of one run.

    The first signal stops the loop and starts the clock. A second one, or the clock, interrupts
    whatever the main thread does; the clock strikes until the run is over.

    The clock is a thread that was started before any signal could come, and is told through a
    pipe: a signal handler may run at any point, where it must not take a lock or start a thread.
    """

    def __init__(
        self, stop: Callable[[], None], interrupt: Callable[[], bool], limit: float
    ) -> None:
        """Keep what to call, and start to listen.

        Args:
            stop: At the first signal.
            interrupt: Before an interruption; tells whether it may be now. If not, the clock
                strikes again.
            limit: Seconds from the first signal to the first interruption.
        """
        self._stop = stop
        self._interrupt = interrupt
        self._timeout = min(limit, threading.TIMEOUT_MAX)
        self._pid = os.getpid()
        self._earlier_signals = itertools.count()  # atomic: one handler may interrupt another
        self.is_over = False
        self._ears, self._mouth = os.pipe()
        self._clock = threading.Thread(target=self._run_clock, name="babelqueue-clock", daemon=True)
        self._start_clock()
        self._previous = {int(number): signal.signal(number, self) for number in _SIGNALS}

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        if self._pid != os.getpid():  # a child forked by a handler: not ours to shut down
            signal.signal(number, self._previous[number] or signal.SIG_DFL)
            signal.raise_signal(number)
        elif not self.is_over:
            self._stop()
            is_first = next(self._earlier_signals) == 0
            if is_first and self._timeout > 0:
                os.write(self._mouth, bytes([number]))
                self._pass_on(number, frame)
            elif self._interrupt():
                raise HandlerInterrupted
            else:
                os.write(self._mouth, bytes([number]))

    def over(self) -> None:
        """End the clock and give the signals back."""
        self.is_over = True
        os.write(self._mouth, b"\0")
        self._clock.join()
        for number, handler in self._previous.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        os.close(self._ears)
        os.close(self._mouth)

    def _start_clock(self) -> None:
        """Start it deaf to signals: one that is delivered there would not wake the main thread."""
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        self._clock.start()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        """Tell an outer run, whose handler called this one."""
        outer = self._previous[number]
        if isinstance(outer, Shutdown):
            outer(number, frame)

    def _run_clock(self) -> None:
        number = os.read(self._ears, 1)[0]
        wait = self._timeout or _STRIKE_AGAIN
        while number:
            if select.select([self._ears], [], [], wait)[0]:
                number = os.read(self._ears, 1)[0]
            else:
                # A real signal, unlike an exception set from another thread, ends a blocking call.
                signal.pthread_kill(threading.main_thread().ident or 0, number)
            wait = _STRIKE_AGAIN

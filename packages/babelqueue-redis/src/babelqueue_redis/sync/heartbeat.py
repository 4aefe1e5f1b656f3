"""The thread that extends reservations while their messages are handled."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import weakref
from collections.abc import Callable, Sequence
from types import TracebackType

from babelqueue_redis.core.beating import LATE, NOTHING_TO_DO, Beats
from babelqueue_redis.entropy import process
from babelqueue_redis.errors import TransportError
from babelqueue_redis.layouts import Layout
from babelqueue_redis.settings import ConsumerOptions
from babelqueue_redis.sync.driver import Driver
from babelqueue_redis.values import Reservation

_PATIENCE = 10.0
"""Seconds to wait for the thread where it may be settling."""

logger = logging.getLogger("babelqueue_redis.heartbeat")


class Heartbeat:
    """Extends the reservations of one consumer, and settles what its worker has no time for.

    A message costs an entry in a dictionary. The thread looks at it now and then; it is started
    with the first message, and connects when it has something to send. Nobody waits for it: the
    only lock is its alarm, which the consumer releases and never takes.

    Attributes:
        beats: The reservations that it looks after.
    """

    def __init__(self, options: ConsumerOptions, driver: Driver, layout: Layout) -> None:
        """Prepare; nothing is sent yet.

        Args:
            options: The consumer's.
            driver: One of its own; the consumer's may be waiting for a message.
            layout: The consumer's.
        """
        self.beats = Beats(options)
        self._driver = driver
        self._layout = layout
        self._thread: threading.Thread | None = None
        self._alarm = threading.Lock()
        self._is_awake = False
        self._settle_late: Callable[[Driver], bool] | None = None
        self._pid = process.pid

    def settles(self, settle_late: Callable[[Driver], bool]) -> None:
        """Have something called that settles late ends, once :meth:`wake` was called.

        Args:
            settle_late: Tells whether there is more to come.
        """
        self._settle_late = settle_late

    def over(self, reservation: Reservation) -> _Watching:
        """Return a ``with`` that keeps a reservation from running out."""
        return _Watching(self, reservation)

    def begin(self, reservations: Sequence[Reservation]) -> None:
        """Extend reservations from now on."""
        if self._pid != process.pid:
            self._forget_the_parents()
        self.beats.add(reservations, self._driver.monotonic())
        if self.beats.interval and self._thread is None:
            self._start()

    def end(self, reservations: Sequence[Reservation]) -> None:
        """Extend them no more: before they are settled, so that nobody takes that for a loss."""
        self.beats.drop(reservations)

    def wake(self) -> None:
        """Look for late ends from now on, as long as there are any."""
        if self._is_awake:
            return
        if self._thread is None:
            self._start()
        self._is_awake = True
        self._ring()

    def close(self) -> None:
        """End the thread; the next message starts another one."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._ring()
            if self._is_awake and thread is not threading.current_thread():
                thread.join(_PATIENCE)  # it may be settling what ended last

    def serves(self, alarm: threading.Lock) -> bool:
        """Tell whether an alarm is that of the present thread; two may have started at once."""
        return alarm is self._alarm and self._thread is not None

    def beat(self) -> float:
        """Extend what is due, settle what is late; return the seconds until the next look."""
        for reservation in self.beats.due(self._driver.monotonic()):
            try:
                there = self._driver.send(self._layout.extend(reservation))
            except TransportError as error:
                logger.info("a reservation of queue %r: no beat: %s", reservation.queue, error)
            else:
                self.beats.extended(reservation, self._driver.monotonic(), there=there)
        pause = self.beats.pause(self._driver.monotonic())
        return min(pause, LATE) if self._is_settling() else pause

    def _is_settling(self) -> bool:
        if not self._is_awake or self._settle_late is None:
            return False
        # Asleep first: whoever keeps an end after the look below rings again.
        self._is_awake = False
        if self._settle_late(self._driver):
            self._is_awake = True
        return self._is_awake

    def _ring(self) -> None:
        with contextlib.suppress(RuntimeError):  # it rings already
            self._alarm.release()

    def _forget_the_parents(self) -> None:
        """Begin anew in a forked child: the thread and the reservations are not its own."""
        self.beats.clear()
        self._thread, self._is_awake = None, False
        self._pid = process.pid

    def _start(self) -> None:
        self._is_awake = False
        self._alarm = threading.Lock()
        self._alarm.acquire()
        arguments = (weakref.ref(self), self._driver, self._alarm, self.beats.interval)
        self._thread = threading.Thread(
            target=_run, args=arguments, name="babelqueue-heartbeat", daemon=True
        )
        # Deaf to signals: one that is delivered there would not wake the main thread.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._thread.start()
        except RuntimeError:  # there are too many: the next message tries again
            self._thread = None
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


class _Watching:
    """Class-based: several times cheaper than ``@contextmanager``."""

    __slots__ = ("_heartbeat", "_reservation")

    def __init__(self, heartbeat: Heartbeat, reservation: Reservation) -> None:
        self._heartbeat = heartbeat
        self._reservation = reservation

    def __enter__(self) -> None:
        self._heartbeat.begin((self._reservation,))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._heartbeat.end((self._reservation,))


def _run(ref: weakref.ref[Heartbeat], driver: Driver, alarm: threading.Lock, pause: float) -> None:
    """Beat until the heartbeat is closed, or the consumer was forgotten."""
    while True:
        alarm.acquire(timeout=pause or NOTHING_TO_DO)
        heartbeat = ref()
        if heartbeat is None or not heartbeat.serves(alarm):
            break
        try:
            pause = heartbeat.beat()
        except Exception:
            logger.exception("the heartbeat stumbled")
        del heartbeat
    driver.close()

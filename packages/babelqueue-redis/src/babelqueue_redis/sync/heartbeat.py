"""The thread that extends reservations while their messages are handled."""

from __future__ import annotations

import logging
import os
import signal
import threading
import weakref
from types import TracebackType

from babelqueue_redis.core.beating import Beats
from babelqueue_redis.errors import TransportError
from babelqueue_redis.layouts import Layout
from babelqueue_redis.settings import ConsumerOptions
from babelqueue_redis.sync.driver import Driver
from babelqueue_redis.values import Reservation

logger = logging.getLogger("babelqueue_redis.heartbeat")


class Heartbeat:
    """Extends the reservations of one consumer.

    A message costs an entry in a dictionary. The thread looks at it now and then; it is started
    with the first message, and connects with the first beat. Nobody waits for it: the only lock is
    its alarm, which the consumer releases and never takes.
    """

    def __init__(self, options: ConsumerOptions, driver: Driver, layout: Layout) -> None:
        """Prepare; nothing is sent yet.

        Args:
            options: The consumer's.
            driver: One of its own; the consumer's may be waiting for a message.
            layout: The consumer's.
        """
        self._beats = Beats(options)
        self._driver = driver
        self._layout = layout
        self._thread: threading.Thread | None = None
        self._alarm = threading.Lock()
        self._pid = os.getpid()

    def over(self, reservation: Reservation) -> _Watching:
        """Return a ``with`` that keeps a reservation from running out."""
        return _Watching(self, reservation)

    def begin(self, reservation: Reservation) -> None:
        """Extend a reservation from now on."""
        if self._beats.interval:
            if self._thread is None or not self._thread.is_alive():
                self._start()
            self._beats.add(reservation, self._driver.monotonic())

    def end(self, reservation: Reservation) -> None:
        """Extend it no more: before it is settled, so that nobody takes that for a loss."""
        self._beats.drop(reservation)

    def close(self) -> None:
        """End the thread; the next message starts another one."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._alarm.release()

    def obeys(self, alarm: threading.Lock) -> bool:
        """Tell whether an alarm is that of the present thread; two may have started at once."""
        return alarm is self._alarm

    def beat(self) -> float:
        """Extend what is due; return the seconds until the next look."""
        for reservation in self._beats.due(self._driver.monotonic()):
            try:
                there = self._driver.send(self._layout.extend(reservation))
            except TransportError as error:
                logger.info("a reservation of queue %r: no beat: %s", reservation.queue, error)
            else:
                self._beats.extended(reservation, self._driver.monotonic(), there=there)
        return self._beats.pause(self._driver.monotonic())

    def _start(self) -> None:
        if self._pid != os.getpid():
            self._beats.clear()
            self._pid = os.getpid()
        self._alarm = threading.Lock()
        self._alarm.acquire()
        arguments = (weakref.ref(self), self._driver, self._alarm, self._beats.interval)
        self._thread = threading.Thread(
            target=_run, args=arguments, name="babelqueue-heartbeat", daemon=True
        )
        # Deaf to signals: one that is delivered there would not wake the main thread.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        self._thread.start()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


class _Watching:
    """Class-based: several times cheaper than ``@contextmanager``."""

    __slots__ = ("_heartbeat", "_reservation")

    def __init__(self, heartbeat: Heartbeat, reservation: Reservation) -> None:
        self._heartbeat = heartbeat
        self._reservation = reservation

    def __enter__(self) -> None:
        self._heartbeat.begin(self._reservation)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._heartbeat.end(self._reservation)


def _run(ref: weakref.ref[Heartbeat], driver: Driver, alarm: threading.Lock, pause: float) -> None:
    """Beat until the alarm rings, or the consumer was forgotten."""
    while not alarm.acquire(timeout=pause):
        heartbeat = ref()
        if heartbeat is None or not heartbeat.obeys(alarm):
            break
        try:
            pause = heartbeat.beat()
        except Exception:
            logger.exception("the heartbeat stumbled")
        del heartbeat
    driver.close()

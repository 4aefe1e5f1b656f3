"""What stands in for Redis: a layout whose commands act by themselves, drivers that let them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from babelqueue_redis.core.command import Command, Op
from babelqueue_redis.core.settlement import Settlement
from babelqueue_redis.layouts.protocol import Message, Taken
from babelqueue_redis.settings import QueueOptions
from babelqueue_redis.testing.queues import MemoryMessage, MemoryQueue
from babelqueue_redis.values import Reservation

T = TypeVar("T")
_BREATH = 0.001


class MemoryLayout:
    """A :class:`~babelqueue_redis.layouts.Layout` whose commands act when they are parsed."""

    def __init__(
        self, queues: Mapping[str, MemoryQueue], lock: threading.Lock, options: QueueOptions
    ) -> None:
        self._queues = queues
        self._lock = lock
        self._queue = options.queue
        self._keeps_headers = options.layout != "zset"

    def publish(self, messages: Sequence[Message], due: int | None = None) -> Command[None]:
        """Append messages, those with a ``due`` behind the others."""

        def act() -> None:
            queue = self._queues[self._queue]
            for body, headers in messages:
                message = MemoryMessage(body, headers if self._keeps_headers else {}, due or 0)
                queue.published.append(message)
                queue.append(message)

        return self._command(act)

    def reserve(
        self, token: str, now: float | None = None, count: int = 1
    ) -> Op[list[Reservation]]:
        """Take the first messages."""
        (taken,) = yield (self.take(token, now, count),)
        return taken.reservations  # type: ignore[no-any-return]  # the result of ``take``

    def take(
        self,
        token: str,
        now: float | None = None,
        count: int = 1,
        ended: Sequence[Reservation] = (),
        *,
        looks: bool = True,
    ) -> Command[Taken]:
        """Take reservations away, then take the first messages."""
        del now, looks

        def act() -> Taken:
            acked = [self._end(done) is not None for done in ended]
            queue = self._queues[self._queue]
            taken = []
            for place in range(min(count, len(queue.waiting))):
                own = f"{token[:-8]}{place:08x}"
                message = queue.reserved[own] = queue.waiting.pop(0)
                body, headers = message.body, message.headers
                taken.append(Reservation(self._queue, body, headers, own, body))
            return Taken(acked, taken)

        return self._command(act)

    def restore(
        self, token: str, now: float | None = None, count: int = 1
    ) -> Op[list[Reservation]]:
        """Take the first messages; none expires."""
        return self.reserve(token, now, count)

    def replace(
        self, reservation: Reservation, settlement: Settlement, now: float | None = None
    ) -> Command[bool]:
        """Take the reservation away, and put back what replaces its message."""
        del now

        def act() -> bool:
            message = self._end(reservation)
            if message is not None:
                body = settlement.body or message.body
                target = settlement.dead_letter_queue or self._queue
                due = 1 if settlement.delay else 0
                queue = self._queues[target]
                queue.append(MemoryMessage(body, message.headers, due))
                if settlement.dead_letter_max_length is not None:
                    del queue.waiting[: -settlement.dead_letter_max_length]
            return message is not None

        return self._command(act)

    def extend(self, reservation: Reservation, now: float | None = None) -> Command[bool]:
        """Do nothing: no time passes."""
        del now
        return self._command(lambda: reservation.token in self._queues[self._queue].reserved)

    def adopt(self, tokens: Callable[[], str], now: float | None = None) -> Op[int]:
        """Do nothing: there is nobody else."""
        del tokens, now
        yield from ()
        return 0

    def wait(self, seconds: float, idle: int) -> Command[float]:
        """Let the clock run ahead."""
        del idle
        return self._command(lambda: seconds)

    def _end(self, reservation: Reservation) -> MemoryMessage | None:
        return self._queues[self._queue].reserved.pop(reservation.token, None)

    def _command(self, act: Callable[[], T]) -> Command[T]:
        def parse(_: object) -> T:
            with self._lock:
                return act()

        return Command("", (), (), parse)


class Driver:
    """Does what commands say, at once; its clock runs ahead instead of waiting."""

    address = "memory"
    port = None

    def __init__(self) -> None:
        self._ahead = 0.0

    def monotonic(self) -> float:
        """Return the time by its own clock."""
        return time.monotonic() + self._ahead

    def sleep(self, seconds: float) -> None:
        """Let the clock run ahead."""
        self._ahead += seconds
        time.sleep(_BREATH)  # so that other threads run while a worker waits for them

    def send(self, command: Command[T]) -> T:
        """Do what a command says."""
        return command.parse(None)

    def send_all(self, commands: Sequence[Command[Any]]) -> list[Any]:
        """Do what commands say."""
        return [command.parse(None) for command in commands]

    def run(self, op: Op[T]) -> T:
        """Do every command of ``op``."""
        return _run(op)

    def whole(self, result: T) -> T:
        """Return what was done."""
        return result

    def take(self, op: Op[T], _give_back: object) -> T:
        """Do every command of ``op``; nothing interrupts it."""
        return _run(op)

    def close(self) -> None:
        """There is nothing to close."""


class AsyncDriver(Driver):
    """The same for asyncio."""

    async def sleep(self, seconds: float) -> None:  # type: ignore[override]
        """Let the clock run ahead."""
        self._ahead += seconds
        await asyncio.sleep(_BREATH)

    async def send(self, command: Command[T]) -> T:  # type: ignore[override]
        """Do what a command says."""
        return command.parse(None)

    async def send_all(self, commands: Sequence[Command[Any]]) -> list[Any]:  # type: ignore[override]
        """Do what commands say."""
        return [command.parse(None) for command in commands]

    async def run(self, op: Op[T]) -> T:  # type: ignore[override]
        """Do every command of ``op``."""
        return _run(op)

    async def whole(self, work: Awaitable[T]) -> T:  # type: ignore[override]
        """Await some work."""
        return await work

    async def take(self, op: Op[T], _give_back: object) -> T:  # type: ignore[override]
        """Do every command of ``op``; nothing interrupts it."""
        return _run(op)

    async def close(self) -> None:  # type: ignore[override]
        """There is nothing to close."""


def _run(op: Op[T]) -> T:
    try:
        commands = next(op)
        while True:
            commands = op.send([command.parse(None) for command in commands])
    except StopIteration as end:
        result: T = end.value
        return result

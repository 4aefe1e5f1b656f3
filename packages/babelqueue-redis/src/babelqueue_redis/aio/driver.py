"""The asyncio code that talks to Redis.

Like the blocking driver it speaks through connections of its own. What it adds is an answer to
cancellation: a command that is under way is let come to its end, so that no message is taken by a
task that is not there any more, and no reply is left for the next command to read.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.exceptions import NoScriptError, RedisError, ResponseError

from babelqueue_redis import hooks
from babelqueue_redis.core.command import Command, Op
from babelqueue_redis.redis_py import (
    LONGEST_BLOCK,
    TRUSTED_FOR,
    ConnectionSettings,
    client_of,
    result_of,
    shows_a_demoted_master,
)

T = TypeVar("T")
Client = redis.asyncio.Redis | str
"""A client, or the URL of a server."""


class Driver:
    """Sends commands for one publisher or consumer. Safe to share between tasks of one loop.

    There is one connection, and one command at a time on it. Another event loop gets another one.
    """

    sleep = staticmethod(asyncio.sleep)
    monotonic = staticmethod(time.monotonic)

    def __init__(self, client: Client, *, blocks: bool = False, shows_spans: bool = False) -> None:
        """Take the client's connection settings; nothing is sent yet.

        Args and errors are those of the blocking driver.
        """
        block = LONGEST_BLOCK if blocks else 0
        self._settings = ConnectionSettings(client_of(client, redis.asyncio.Redis), Retry, block)
        self._shows_spans = shows_spans
        self._link: _Link | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self.address, self.port = self._settings.address, self._settings.port

    async def send(self, command: Command[T]) -> T:
        """Send one command and return its result.

        Raises:
            ConnectionLostError: There was no reply.
            CommandRefusedError: The reply was an error.
        """
        trip = self._trip((command,))
        result: T = (await trip if command.blocks else await self._to_its_end(trip))[0]
        return result

    async def run(self, op: Op[T]) -> T:
        """Send every trip of ``op``; raises what :meth:`send` raises."""
        return await self._to_its_end(self._run(op))

    async def take(
        self, op: Op[T | None], give_back: Callable[[T], Command[bool] | None]
    ) -> T | None:
        """Run an op that takes a message; when the task is cancelled meanwhile, give it back."""
        task = self._keep(self._run(op))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.shield(self._keep(self._hand_back(task, give_back)))
            raise

    async def close(self) -> None:
        """Close the connection. The next command opens a new one."""
        link, self._link = self._link, None
        if link is not None:
            with contextlib.suppress(RedisError, OSError, RuntimeError):
                await link.connection.disconnect(nowait=True)

    async def _to_its_end(self, work: Coroutine[Any, Any, T]) -> T:
        """Await ``work``; a cancellation waits for it."""
        task = self._keep(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task])
            raise

    def _keep(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start ``work`` as a task that is not forgotten before it ends."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # looked at: whoever waited was told, or is gone

    async def _hand_back(
        self, task: asyncio.Task[T | None], give_back: Callable[[T], Command[bool] | None]
    ) -> None:
        await asyncio.wait([task])
        if task.cancelled() or task.exception() is not None:
            return
        taken = task.result()
        command = None if taken is None else give_back(taken)
        if command is not None:
            await self._trip((command,))

    async def _run(self, op: Op[T]) -> T:
        try:
            commands = next(op)
            while True:
                commands = op.send(await self._trip(commands))
        except StopIteration as end:
            result: T = end.value
        return result

    async def _trip(self, commands: Sequence[Command[Any]]) -> list[Any]:
        replies = await self._exchange([command.wire() for command in commands])
        for index, command in enumerate(commands):
            if isinstance(replies[index], NoScriptError):
                replies[index] = (await self._exchange([command.wire(load=True)]))[0]
        if shows_a_demoted_master(replies):
            await self.close()
        return [result_of(*pair) for pair in zip(commands, replies, strict=True)]

    async def _exchange(self, packed: list[tuple[Any, ...]]) -> list[Any]:
        """Send, and read every reply; whatever interrupts it closes the connection."""
        sent = False
        link = self._link_here()
        async with link.lock:
            try:
                connection = link.connection
                if time.monotonic() - link.used > TRUSTED_FOR and await _is_stale(connection):
                    await connection.disconnect(nowait=True)
                await connection.connect()
                sent = True
                shown = self._shows_spans or hooks.traffic_is_shown()
                if shown and hasattr(redis.asyncio.Redis.execute_command, "__wrapped__"):
                    client = self._client_on(link)
                    replies = [await _ask(client, command) for command in packed]
                else:
                    data = connection.pack_commands(packed)
                    await connection.send_packed_command(data, check_health=False)
                    replies = [await _reply(connection) for _ in packed]
            except (RedisError, OSError, asyncio.TimeoutError) as error:
                await self.close()
                self._settings.lost(error, sent=sent)
            except BaseException:
                await self.close()
                raise
            link.used = time.monotonic()
            return replies

    def _link_here(self) -> _Link:
        loop = asyncio.get_running_loop()
        if self._link is None or self._link.loop is not loop:
            self._link = _Link(loop, self._settings.connect())
        return self._link

    def _client_on(self, link: _Link) -> redis.asyncio.Redis:
        """Return a client that speaks through the link's connection."""
        if link.client is None:
            made, kwargs = self._settings.connection_class, self._settings.kwargs
            pool = redis.asyncio.ConnectionPool(connection_class=made, **kwargs)
            link.client = redis.asyncio.Redis(connection_pool=pool)
            link.client.response_callbacks.clear()  # parsers see what Redis says
        link.client.connection = link.connection
        return link.client


class _Link:
    """A connection in its event loop, and who may speak on it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, connection: Any) -> None:  # noqa: ANN401
        self.loop = loop
        self.connection = connection
        self.client: redis.asyncio.Redis | None = None
        self.lock = asyncio.Lock()
        self.used = time.monotonic()


async def _is_stale(connection: Any) -> bool:  # noqa: ANN401 - a connection
    try:
        return connection.is_connected and bool(await connection.can_read_destructive())
    except Exception:  # noqa: BLE001 - whatever it is, this link is of no use
        return True


async def _reply(connection: Any) -> Any:  # noqa: ANN401 - bytes, int, None, list or error
    try:
        return await connection.read_response(disable_decoding=True)
    except ResponseError as error:
        return error


async def _ask(client: redis.asyncio.Redis, command: tuple[Any, ...]) -> Any:  # noqa: ANN401
    try:
        return await client.execute_command(*command)
    except ResponseError as error:
        return error

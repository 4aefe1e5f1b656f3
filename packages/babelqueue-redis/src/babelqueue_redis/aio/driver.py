"""The asyncio code that talks to Redis.

Like the blocking driver it speaks through connections of its own. What it adds is an answer to
cancellation: a command that is under way is let come to its end, so that no message is taken by a
task that is not there any more, and no reply is left for the next command to read.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.exceptions import NoScriptError, RedisError, ResponseError

from babelqueue_redis import hooks, lua
from babelqueue_redis.cluster import HOPS, Nodes
from babelqueue_redis.core.command import Command, Op
from babelqueue_redis.errors import TransportError
from babelqueue_redis.redis_py import (
    LONGEST_BLOCK,
    TRUSTED_FOR,
    ConnectionSettings,
    client_of,
    result_of,
    shows_a_demoted_master,
)

logger = logging.getLogger("babelqueue_redis.consumer")
T = TypeVar("T")
Client = redis.asyncio.Redis | redis.asyncio.RedisCluster | str
"""A client, or the URL of a server."""


async def whole(work: Awaitable[T]) -> T:
    """Await ``work``; a cancellation waits for it."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await _ended(task)
        raise


class Driver:
    """Sends commands for one publisher or consumer. Safe to share between tasks of one loop.

    There is one connection, and one command at a time on it. Another event loop gets another one.
    """

    sleep = staticmethod(asyncio.sleep)
    monotonic = staticmethod(time.monotonic)
    whole = staticmethod(whole)

    def __init__(self, client: Client, *, blocks: bool = False, shows_spans: bool = False) -> None:
        """Take the client's connection settings; nothing is sent yet.

        Args and errors are those of the blocking driver.
        """
        block = LONGEST_BLOCK if blocks else 0
        self._settings = ConnectionSettings(
            client_of(client, redis.asyncio.Redis, redis.asyncio.RedisCluster), Retry, block
        )
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
        trip = self._keep(self._trip((command,)))
        return (await (_while_wanted if command.blocks else whole)(trip))[0]  # type: ignore[no-any-return]

    async def send_all(self, commands: Sequence[Command[Any]]) -> list[Any]:
        """Send commands together, if there are any; raises what :meth:`send` raises."""
        return await whole(self._keep(self._trip(commands))) if commands else []

    async def run(self, op: Op[T]) -> T:
        """Send every trip of ``op``; raises what :meth:`send` raises."""
        return await whole(self._keep(self._run(op)))

    async def take(self, op: Op[T], give_back: Callable[[T], Command[Any] | None]) -> T:
        """Run an op that takes messages; when the task is cancelled meanwhile, give them back."""
        task = self._keep(self._run(op))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.shield(self._keep(self._hand_back(task, give_back)))
            raise

    async def close(self) -> None:
        """Close the connection, when the command on it has ended. The next one opens a new one."""
        link = self._link
        if link is None:
            return
        if link.loop is not asyncio.get_running_loop():
            await self._drop(link)
            return
        async with link.lock:
            await self._drop(link, nowait=False)

    async def _drop(self, link: _Link, *, nowait: bool = True) -> None:
        """Close a connection, which may not be the newest any more."""
        if self._link is link:
            self._link = None
        if link.client is not None:
            link.client.connection = None  # redis-py would call it unclosed
        with contextlib.suppress(RedisError, OSError, RuntimeError, asyncio.TimeoutError):
            await link.connection.disconnect(nowait=nowait)

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
        self, task: asyncio.Task[T], give_back: Callable[[T], Command[Any] | None]
    ) -> None:
        await _ended(task)
        if task.cancelled() or task.exception() is not None:
            return
        command = give_back(task.result())
        try:
            if command is not None:
                await self._trip((command,))
        except TransportError as error:
            logger.warning("what a cancelled task took comes back after retry_after: %s", error)

    async def _run(self, op: Op[T]) -> T:
        try:
            commands = next(op)
            while True:
                try:
                    replies = await self._trip(commands)
                except TransportError as error:
                    commands = op.throw(error)
                else:
                    commands = op.send(replies)
        except StopIteration as end:
            result: T = end.value
        return result

    async def _trip(self, commands: Sequence[Command[Any]]) -> list[Any]:
        replies = await self._exchange([command.wire() for command in commands])
        replies = [await self._again(*pair) for pair in zip(commands, replies, strict=True)]
        return [result_of(*pair) for pair in zip(commands, replies, strict=True)]

    async def _again(self, command: Command[Any], reply: Any) -> Any:
        """Send a command that did not run once more; return the reply that counts."""
        for _ in range(HOPS):
            if not self._settings.leads_elsewhere(reply):
                break
            await self.close()
            reply = (await self._exchange([command.wire()]))[0]
        if isinstance(reply, NoScriptError):
            reply = (await self._exchange([command.wire(load=True)]))[0]
        return reply

    async def _exchange(self, packed: list[tuple[Any, ...]]) -> list[Any]:
        """Send, and read every reply, when it is this command's turn."""
        while True:
            link = self._link_here()
            async with link.lock:
                if link is self._link:  # not closed while this command waited
                    return await self._exchange_on(link, packed)

    async def _exchange_on(self, link: _Link, packed: list[tuple[Any, ...]]) -> list[Any]:
        """Send, and read every reply; whatever interrupts it closes the connection."""
        sent = False
        try:
            connection = await self._connected(link)
            sent = True
            shown = self._shows_spans or hooks.traffic_is_shown()
            if shown and hasattr(redis.asyncio.Redis.execute_command, "__wrapped__"):
                await _sent(connection, lua.to_load(packed, link.loaded))  # NOSCRIPT is no error
                client = self._client_on(link)
                replies = [await _reply(client.execute_command(*command)) for command in packed]
            else:
                replies = await _sent(connection, packed)
        except (RedisError, OSError, asyncio.TimeoutError) as error:
            await self._drop(link)
            self._settings.lost(error, sent=sent)
        except BaseException:
            await self._drop(link)
            raise
        if shows_a_demoted_master(replies):
            await self._drop(link)
        link.used = time.monotonic()
        return replies

    async def _connected(self, link: _Link) -> Any:
        connection, nodes = link.connection, self._settings.nodes
        if time.monotonic() - link.used > TRUSTED_FOR and await _is_stale(connection):
            link.loaded = set()
            await connection.disconnect(nowait=True)
        if nodes is not None:
            return await self._met(link, nodes)
        await connection.connect()
        return connection

    async def _met(self, link: _Link, nodes: Nodes) -> Any:
        """Connect to some node of a cluster, and ask it once who else there is."""
        connection = link.connection
        for _ in range(len(nodes) - 1):
            try:
                await connection.connect()
                break
            except (RedisError, OSError, asyncio.TimeoutError):
                nodes.leave()
                link.connection = connection = self._settings.connect()
        await connection.connect()
        if link.met is not connection:
            nodes.learn((await _sent(connection, [("CLUSTER", "SLOTS")]))[0])
            link.met = connection
        return connection

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

    def __init__(self, loop: asyncio.AbstractEventLoop, connection: Any) -> None:
        self.loop = loop
        self.connection = connection
        self.met: Any = None
        self.loaded: set[bytes] = set()
        self.client: redis.asyncio.Redis | None = None
        self.lock = asyncio.Lock()
        self.used = time.monotonic()


async def _while_wanted(task: asyncio.Task[T]) -> T:
    """Await ``task``; a cancellation ends it, even where redis-py's ``wait_for`` swallows one."""
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([task], timeout=0.05)
        raise


async def _ended(task: asyncio.Future[Any]) -> None:
    """Wait for a task, whatever else is cancelled meanwhile."""
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([task])


async def _is_stale(connection: Any) -> bool:
    try:
        return connection.is_connected and bool(await connection.can_read_destructive())
    except Exception:  # noqa: BLE001 - whatever it is, this link is of no use
        return True


async def _sent(connection: Any, packed: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Send commands together, and return the replies; error replies come as values."""
    await connection.send_packed_command(connection.pack_commands(packed), check_health=False)
    return [await _reply(connection.read_response(disable_decoding=True)) for _ in packed]


async def _reply(reading: Awaitable[Any]) -> Any:
    try:
        return await reading
    except ResponseError as error:
        return error

"""The only blocking code that talks to Redis.

It speaks through connections of its own, made like the ones of the client it is given. That halves
the cost of a command, and it keeps redis-py from doing what a queue cannot bear: sending a write
again whose reply was lost, decoding replies that are bytes, reading somebody else's reply.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from typing import Any, NoReturn, TypeVar

import redis
from redis.backoff import NoBackoff
from redis.exceptions import (
    BusyLoadingError,
    NoScriptError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.retry import Retry

from babelqueue_redis.core.command import Command, ErrorReply, Op
from babelqueue_redis.errors import CommandRefusedError, ConfigurationError, ConnectionLostError
from babelqueue_redis.settings import check_timeout, check_url

T = TypeVar("T")
Client = redis.Redis | str
"""A client, or the URL of a server."""

LONGEST_BLOCK = 1.0
"""Seconds of one blocking command: how late a stop or a sweep may come."""
_PATIENCE = 10.0
"""Seconds to wait for a reply where the client says nothing: a frozen server must not hold us."""
_TRUSTED_FOR = 1.0
"""Seconds after a reply during which a connection is not checked for life."""
_NOT_TAKEN_OVER = ("parser_class", "event_dispatcher", "himport_registry")
"""Connection arguments that tie a connection to the client's pool or protocol."""


class Driver:
    """Sends commands for one publisher or consumer. Safe to share between threads.

    Each thread has a connection of its own, kept until the thread ends. A forked child does not
    use its parent's.
    """

    sleep = staticmethod(time.sleep)
    monotonic = staticmethod(time.monotonic)

    def __init__(self, client: Client, *, blocks: bool = False, shows_spans: bool = False) -> None:
        """Take the client's connection settings; nothing is sent yet.

        Args:
            client: A client or a URL.
            blocks: Commands may block for up to :data:`LONGEST_BLOCK`; a ``socket_timeout`` of the
                client counts from then on.
            shows_spans: Speak through a client when somebody wrapped ``execute_command``, as the
                OpenTelemetry instrumentation of redis-py does, so that they see the commands.

        Raises:
            ConfigurationError: The client is of another kind, or its settings cannot work.
        """
        self._client = _client_of(client)  # a Sentinel's connections need their pool to stay alive
        pool = self._client.connection_pool
        self._connection_class = pool.connection_class
        self._kwargs = _connection_kwargs(pool.connection_kwargs, LONGEST_BLOCK if blocks else 0)
        self._shows_spans = shows_spans
        self._own = threading.local()
        try:
            self._connection_class(**self._kwargs)
        except Exception as error:
            msg = f"the client's connection settings cannot work: {error}"
            raise ConfigurationError(msg) from error
        self.address: str = self._kwargs.get("path") or self._kwargs.get("host") or "localhost"
        self.port: int | None = None if "path" in self._kwargs else self._kwargs.get("port", 6379)

    def send(self, command: Command[T]) -> T:
        """Send one command and return its result.

        Raises:
            ConnectionLostError: There was no reply.
            CommandRefusedError: The reply was an error.
        """
        result: T = self.trip((command,))[0]
        return result

    def run(self, op: Op[T]) -> T:
        """Send every trip of ``op``; raises what :meth:`send` raises."""
        try:
            commands = next(op)
            while True:
                commands = op.send(self.trip(commands))
        except StopIteration as end:
            result: T = end.value
            return result

    def trip(self, commands: Sequence[Command[Any]]) -> list[Any]:
        """Send commands together and return their results in order.

        A script the server does not know is sent again as source: the error proves that it did
        not run. Nothing else is ever sent twice.
        """
        replies = self._exchange([command.wire() for command in commands])
        for index, command in enumerate(commands):
            if isinstance(replies[index], NoScriptError):
                replies[index] = self._exchange([command.wire(load=True)])[0]
        return [self._result(*pair) for pair in zip(commands, replies, strict=True)]

    def close(self) -> None:
        """Close this thread's connection. The next command opens a new one."""
        connection = getattr(self._own, "connection", None)
        if connection is not None:
            self._own.connection = None
            connection.disconnect()

    def _exchange(self, packed: list[tuple[Any, ...]]) -> list[Any]:
        """Send, and read every reply; error replies come as values.

        Whatever interrupts it closes the connection: a later command must not read this one's
        reply, nor speak through a link that was not set up to the end.
        """
        sent = False
        try:
            connection = self._connection()
            if time.monotonic() - self._own.used > _TRUSTED_FOR and _is_stale(connection):
                connection.disconnect()
            connection.connect()
            sent = True
            if self._shows_spans and hasattr(redis.Redis.execute_command, "__wrapped__"):
                client = self._client_on(connection)
                replies = [_ask(client, command) for command in packed]
            else:
                data = connection.pack_commands(packed)
                connection.send_packed_command(data, check_health=False)
                replies = [_reply(connection) for _ in packed]
        except (RedisError, OSError) as error:
            self.close()
            self._lost(error, sent=sent and not isinstance(error, BusyLoadingError))
        except BaseException:
            self.close()
            raise
        self._own.used = time.monotonic()
        return replies

    def _connection(self) -> redis.Connection:
        connection: redis.Connection | None = getattr(self._own, "connection", None)
        if connection is None or connection.pid != os.getpid():
            self._own.used = time.monotonic()
            self._own.connection = connection = self._connection_class(**self._kwargs)
        return connection

    def _client_on(self, connection: redis.Connection) -> redis.Redis:
        """Return a client that speaks through this thread's connection."""
        client: redis.Redis | None = getattr(self._own, "client", None)
        if client is None:
            pool = redis.ConnectionPool(connection_class=self._connection_class, **self._kwargs)
            self._own.client = client = redis.Redis(connection_pool=pool)
        client.connection = connection
        return client

    def _result(self, command: Command[T], reply: Any) -> T:  # noqa: ANN401
        if not isinstance(reply, ResponseError):
            return command.parse(reply)
        if isinstance(reply, ReadOnlyError):
            self.close()  # a demoted master: ask again where the master is
        message = str(reply).partition(", with args")[0]  # an unknown command's arguments follow
        if command.tolerant:
            return command.parse(ErrorReply(message))
        raise CommandRefusedError(command.refused(message)) from reply

    def _lost(self, error: Exception, *, sent: bool) -> NoReturn:
        where = self.address if self.port is None else f"{self.address}:{self.port}"
        what = "the link to Redis broke before the reply" if sent else "no connection to Redis"
        msg = f"{what} at {where}: {error}"
        raise ConnectionLostError(msg, sent=sent) from error


def _client_of(client: Client) -> redis.Redis:
    if isinstance(client, str):
        check_url(client)
        try:
            client = redis.Redis.from_url(client)
        except ValueError as error:
            msg = f"the Redis URL is refused: {error}"
            raise ConfigurationError(msg) from error
    if not isinstance(client, redis.Redis):
        kind = f"{type(client).__module__}.{type(client).__qualname__}"
        msg = f"client must be a redis.Redis or a Redis URL, not {kind}"
        raise ConfigurationError(msg)
    return client


def _connection_kwargs(given: dict[str, Any], block: float) -> dict[str, Any]:
    kept = {
        name: value
        for name, value in given.items()
        if name not in _NOT_TAKEN_OVER and not name.startswith(("maint", "orig_", "oss_cluster"))
    }
    timeout = check_timeout(kept.get("socket_timeout") or _PATIENCE, "socket_timeout", 0)
    kept.setdefault("socket_connect_timeout", timeout)
    return {
        **kept,
        "socket_timeout": timeout + block,
        "protocol": 2,
        "decode_responses": False,
        "encoding": "utf-8",
        "encoding_errors": "strict",
        "retry": Retry(NoBackoff(), 0),
        "retry_on_timeout": False,
        "retry_on_error": [],
    }


def _is_stale(connection: redis.Connection) -> bool:
    """Tell whether the server hung up, or left bytes that nobody asked for."""
    try:
        return bool(connection.can_read(0))
    except Exception:  # noqa: BLE001 - whatever it is, this link is of no use
        return True


def _reply(connection: redis.Connection) -> Any:  # noqa: ANN401 - bytes, int, None, list or error
    try:
        return connection.read_response(disable_decoding=True)
    except ResponseError as error:
        return error


def _ask(client: redis.Redis, command: tuple[Any, ...]) -> Any:  # noqa: ANN401 - as _reply
    try:
        return client.execute_command(*command)
    except ResponseError as error:
        return error

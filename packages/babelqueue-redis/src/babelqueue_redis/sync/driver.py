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
from typing import Any, TypeVar

import redis
from redis.backoff import NoBackoff
from redis.exceptions import (
    BusyLoadingError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    RedisError,
    ResponseError,
)
from redis.retry import Retry

from babelqueue_redis.core.command import Command, Op, Refused
from babelqueue_redis.errors import CommandRefusedError, ConfigurationError, ConnectionLostError
from babelqueue_redis.settings import check_url

T = TypeVar("T")

LONGEST_BLOCK = 1.0
"""Seconds of one blocking command: how late a stop or a sweep may come."""
_TRUSTED_FOR = 1.0
"""Seconds after a reply during which a connection is not checked for life."""
_OWN_CHOICES = (
    "retry",
    "retry_on_timeout",
    "retry_on_error",
    "protocol",
    "parser_class",
    "decode_responses",
    "event_dispatcher",
    "himport_registry",
)
"""Connection arguments that the driver decides, or that tie a connection to the client's pool."""


def client_of(client: redis.Redis | str) -> redis.Redis:
    """Return ``client``, or a client for it when it is a URL.

    Raises:
        ConfigurationError: It is neither, or an asyncio or cluster client, or the URL is wrong.
    """
    if isinstance(client, str):
        check_url(client)
        try:
            client = redis.Redis.from_url(client)
        except ValueError as error:
            msg = f"the Redis URL is refused: {error}"
            raise ConfigurationError(msg) from error
    if not isinstance(client, redis.Redis):
        kind = f"{type(client).__module__}.{type(client).__qualname__}"
        msg = f"client must be a redis.Redis or a URL, not {kind}"
        raise ConfigurationError(msg)
    return client


class Driver:
    """Sends commands for one publisher or consumer. Safe to share between threads.

    Each thread has a connection of its own, kept until the thread ends. A forked child does not
    use its parent's.
    """

    sleep = staticmethod(time.sleep)
    monotonic = staticmethod(time.monotonic)

    def __init__(
        self, client: redis.Redis | str, *, blocks: bool = False, shows_spans: bool = False
    ) -> None:
        """Take the client's connection settings; nothing is sent yet.

        Args:
            client: A client or a URL.
            blocks: Commands may block for up to :data:`LONGEST_BLOCK`; a ``socket_timeout`` of the
                client counts from then on.
            shows_spans: Speak through a client when somebody wrapped ``execute_command``, as the
                OpenTelemetry instrumentation of redis-py does, so that they see the commands.
        """
        self._client = client_of(client)  # a Sentinel's connections need their pool to stay alive
        pool = self._client.connection_pool
        self._connection_class = pool.connection_class
        self._kwargs = _connection_kwargs(pool.connection_kwargs, LONGEST_BLOCK if blocks else 0)
        self._shows_spans = shows_spans
        self._own = threading.local()
        self._check_options()
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
        exchange = self._exchange
        if self._shows_spans and hasattr(redis.Redis.execute_command, "__wrapped__"):
            exchange = self._exchange_in_sight
        replies = exchange([command.wire() for command in commands])
        for index, command in enumerate(commands):
            if isinstance(replies[index], NoScriptError):
                replies[index] = exchange([command.wire(load=True)])[0]
        return [_result(*pair) for pair in zip(commands, replies, strict=True)]

    def close(self) -> None:
        """Close this thread's connection. The next command opens a new one."""
        connection = getattr(self._own, "connection", None)
        self._own.connection = None
        if connection is not None:
            connection.disconnect()

    def _exchange(self, packed: list[tuple[Any, ...]]) -> list[Any]:
        connection = self._connection()
        try:
            connection.send_packed_command(connection.pack_commands(packed), check_health=False)
            replies = [_reply(connection) for _ in packed]
        except (RedisError, OSError) as error:
            connection.disconnect()
            raise self._lost(error, sent=not isinstance(error, BusyLoadingError)) from error
        except BaseException:
            connection.disconnect()  # a later command must not read this one's reply
            raise
        self._own.used = time.monotonic()
        return replies

    def _exchange_in_sight(self, packed: list[tuple[Any, ...]]) -> list[Any]:
        return [self._ask_client(command) for command in packed]

    def _ask_client(self, command: tuple[Any, ...]) -> Any:  # noqa: ANN401 - a reply
        client = self._seen_client()
        try:
            return client.execute_command(*command)
        except ResponseError as error:
            return error
        except (RedisError, OSError) as error:
            raise self._lost(error, sent=not isinstance(error, BusyLoadingError)) from error

    def _seen_client(self) -> redis.Redis:
        """Return a client whose one connection is this thread's."""
        client: redis.Redis | None = getattr(self._own, "client", None)
        if client is None:
            pool = redis.ConnectionPool(connection_class=self._connection_class, **self._kwargs)
            self._own.client = client = redis.Redis(connection_pool=pool)
        client.connection = self._connection()
        return client

    def _connection(self) -> redis.Connection:
        connection: redis.Connection | None = getattr(self._own, "connection", None)
        if connection is None or connection.pid != os.getpid():
            self._own.connection = connection = self._connection_class(**self._kwargs)
            self._own.used = time.monotonic()
        elif time.monotonic() - self._own.used > _TRUSTED_FOR and _is_stale(connection):
            connection.disconnect()
        try:
            connection.connect()
        except (RedisError, OSError) as error:
            raise self._lost(error, sent=False) from error
        return connection

    def _check_options(self) -> None:
        try:
            self._connection_class(**self._kwargs)
        except TypeError as error:
            msg = f"the client has a connection option that redis-py does not know: {error}"
            raise ConfigurationError(msg) from error

    def _lost(self, error: Exception, *, sent: bool) -> ConnectionLostError:
        where = self.address if self.port is None else f"{self.address}:{self.port}"
        what = "the link to Redis broke before the reply" if sent else "no connection to Redis"
        return ConnectionLostError(f"{what} at {where}: {error}", sent=sent)


def _connection_kwargs(given: dict[str, Any], block: float) -> dict[str, Any]:
    kept = {
        name: value
        for name, value in given.items()
        if name not in _OWN_CHOICES and not name.startswith(("maint", "orig_", "oss_cluster"))
    }
    timeout = kept.get("socket_timeout")
    if timeout is not None:
        kept.setdefault("socket_connect_timeout", timeout)
        kept["socket_timeout"] = timeout + block
    return {**kept, "protocol": 2, "decode_responses": False, "retry": Retry(NoBackoff(), 0)}


def _is_stale(connection: redis.Connection) -> bool:
    """Tell whether the server hung up, or left bytes that nobody asked for."""
    try:
        return bool(connection.can_read(0))
    except (RedisError, OSError):
        return True


def _reply(connection: redis.Connection) -> Any:  # noqa: ANN401 - bytes, int, None, list or error
    try:
        return connection.read_response(disable_decoding=True)
    except ResponseError as error:
        return error


def _result(command: Command[T], reply: Any) -> T:  # noqa: ANN401
    if not isinstance(reply, ResponseError):
        return command.parse(reply)
    if _code(reply) in command.tolerates:
        return command.parse(Refused(str(reply)))
    keys = ", ".join(map(str, command.keys))
    msg = f"Redis refused {command.name} on {keys}: {reply}"
    raise CommandRefusedError(msg) from reply


def _code(error: ResponseError) -> str:
    """Return the code of an error reply; redis-py keeps it as a class."""
    if isinstance(error, NoPermissionError):
        return "NOPERM"
    if isinstance(error, OutOfMemoryError):
        return "OOM"
    return "UNKNOWN COMMAND" if "unknown command" in str(error).lower() else "ERR"

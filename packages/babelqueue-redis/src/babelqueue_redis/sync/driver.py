"""The blocking code that talks to Redis.

It speaks through connections of its own, made like the ones of the client it is given. That halves
the cost of a command, and it keeps redis-py from doing what a queue cannot bear: sending a write
again whose reply was lost, decoding replies that are bytes, reading somebody else's reply.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import redis
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.retry import Retry

from babelqueue_redis import hooks, lua
from babelqueue_redis.cluster import HOPS, Nodes
from babelqueue_redis.core.command import Command, Op
from babelqueue_redis.entropy import process
from babelqueue_redis.errors import TransportError
from babelqueue_redis.redis_py import (
    LONGEST_BLOCK,
    TRUSTED_FOR,
    ConnectionSettings,
    client_of,
    result_of,
    shows_a_demoted_master,
)

_ONE_WRITE = 1 << 17
"""Bytes up to which a trip is one write: more of them are not copied once more for that."""

T = TypeVar("T")
Client = redis.Redis | redis.RedisCluster | str
"""A client, or the URL of a server."""


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
        block = LONGEST_BLOCK if blocks else 0
        self._settings = ConnectionSettings(
            client_of(client, redis.Redis, redis.RedisCluster), Retry, block
        )
        self._shows_spans = shows_spans
        self._own = _Own()
        self.address, self.port = self._settings.address, self._settings.port

    def send(self, command: Command[T]) -> T:
        """Send one command and return its result.

        Raises:
            ConnectionLostError: There was no reply.
            CommandRefusedError: The reply was an error.
        """
        (reply,) = self._exchange((command.wire(),))
        if isinstance(reply, ResponseError):
            (reply,) = self._mended((command,), [reply])
        return result_of(command, reply)

    def send_all(self, commands: Sequence[Command[Any]]) -> list[Any]:
        """Send commands together, if there are any; raises what :meth:`send` raises."""
        return self.trip(commands) if commands else []

    def run(self, op: Op[T]) -> T:
        """Send every trip of ``op``; raises what :meth:`send` raises."""
        try:
            commands = next(op)
            while True:
                try:
                    replies = self.trip(commands)
                except TransportError as error:
                    commands = op.throw(error)
                else:
                    commands = op.send(replies)
        except StopIteration as end:
            result: T = end.value
            return result

    @staticmethod
    def whole(result: T) -> T:
        """Return what was done; nothing can cancel it on the way, as it can with asyncio."""
        return result

    def post(self, command: Command[Any]) -> None:
        """Send a command whose reply is asked for with :meth:`collect`, before any other."""
        self._exchange([command.wire()], replies=0)

    def fileno(self) -> int:
        """Return the socket that becomes readable with the reply to what was posted."""
        connection: Any = self._own.connection
        number: int = connection._sock.fileno()  # noqa: SLF001 - redis-py shows it nowhere else
        return number

    def collect(self, command: Command[T]) -> T:
        """Return the result of what was posted; raises what :meth:`send` raises."""
        self._own.used = time.monotonic()  # bytes on the link are no sign of a stale one here
        (reply,) = self._exchange([], replies=1)
        return result_of(command, reply)

    def take(self, op: Op[T], _give_back: Callable[[T], Command[Any] | None]) -> T:
        """Run an op that takes messages. Nobody can cancel a thread, so none is given back."""
        return self.run(op)

    def trip(self, commands: Sequence[Command[Any]]) -> list[Any]:
        """Send commands together and return their results in order.

        A script the server does not know is sent again as source, and what belongs to another node
        of a cluster is sent there: the error proves that it did not run. Nothing else is ever sent
        twice.
        """
        replies = self._exchange([command.wire() for command in commands])
        for reply in replies:
            if isinstance(reply, ResponseError):
                replies = self._mended(commands, replies)
                break
        return list(map(result_of, commands, replies))

    def close(self) -> None:
        """Close this thread's connection. The next command opens a new one."""
        connection, self._own.connection = self._own.connection, None
        if connection is not None:
            connection.disconnect()

    def _mended(self, commands: Sequence[Command[Any]], replies: list[Any]) -> list[Any]:
        """Send what was refused without being run once more; return the replies that count."""
        replies = [self._again(*pair) for pair in zip(commands, replies, strict=True)]
        if shows_a_demoted_master(replies):
            self.close()
        return replies

    def _again(self, command: Command[Any], reply: Any) -> Any:
        """Send a command that did not run once more; return the reply that counts."""
        for _ in range(HOPS):
            if not self._settings.leads_elsewhere(reply):
                break
            self.close()
            reply = self._exchange([command.wire()])[0]
        if isinstance(reply, NoScriptError):
            reply = self._exchange([command.wire(load=True)])[0]
        return reply

    def _exchange(self, packed: Sequence[tuple[Any, ...]], replies: int | None = None) -> list[Any]:
        """Send, and read every reply, or so many; error replies come as values.

        Whatever interrupts it closes the connection: a later command must not read this one's
        reply, nor speak through a link that was not set up to the end.
        """
        sent = False
        try:
            connection = self._connected()
            sent = True
            shown = self._shows_spans or hooks.traffic_is_shown()
            if shown and replies is None and hasattr(redis.Redis.execute_command, "__wrapped__"):
                _sent(connection, lua.to_load(packed, self._own.loaded))  # NOSCRIPT is no error
                client = self._client_on(connection)
                received = [_executed(client, command) for command in packed]
            else:
                received = _sent(connection, packed, replies)
        except (RedisError, OSError) as error:
            self.close()
            self._settings.lost(error, sent=sent)
        except BaseException:
            self.close()
            raise
        self._own.used = time.monotonic()
        return received

    def _connected(self) -> redis.Connection:
        """Return this thread's connection, set up; one that answered just now is."""
        own = self._own
        connection: redis.Connection | None = own.connection
        if connection is None or connection.pid != process.pid:
            own.connection = connection = self._settings.connect()
            own.used, own.met, own.loaded = 0.0, None, set()
        elif time.monotonic() - own.used <= TRUSTED_FOR:
            return connection
        elif _is_stale(connection):
            own.loaded = set()
            connection.disconnect()
        if self._settings.nodes is not None:
            return self._met(connection, self._settings.nodes)
        connection.connect()
        return connection

    def _met(self, connection: redis.Connection, nodes: Nodes) -> redis.Connection:
        """Connect to some node of a cluster, and ask it once who else there is."""
        for _ in range(len(nodes) - 1):
            try:
                connection.connect()
                break
            except (RedisError, OSError):
                nodes.leave()
                self._own.connection = connection = self._settings.connect()
        connection.connect()
        if self._own.met is not connection:
            nodes.learn(_sent(connection, [("CLUSTER", "SLOTS")])[0])
            self._own.met = connection
        return connection

    def _client_on(self, connection: redis.Connection) -> redis.Redis:
        """Return a client that speaks through this thread's connection."""
        client = self._own.client
        if client is None:
            made, kwargs = self._settings.connection_class, self._settings.kwargs
            pool = redis.ConnectionPool(connection_class=made, **kwargs)
            self._own.client = client = redis.Redis(connection_pool=pool)
            client.response_callbacks.clear()  # parsers see what Redis says
        client.connection = connection
        return client


class _Own(threading.local):
    """What a thread has of its own.

    Attributes:
        connection: Its connection; ``None`` until it is needed.
        used: When that answered, in seconds of the monotonic clock.
        met: The connection whose cluster is known.
        loaded: The SHA-1 of the scripts that its server knows.
        client: A client that speaks through the connection.
    """

    connection: redis.Connection | None = None
    used = 0.0
    met: redis.Connection | None = None
    loaded: set[bytes]
    client: redis.Redis | None = None


def _is_stale(connection: redis.Connection) -> bool:
    """Tell whether the server hung up, or left bytes that nobody asked for."""
    try:
        return bool(connection.can_read(0))
    except Exception:  # noqa: BLE001 - whatever it is, this link is of no use
        return True


def _sent(
    connection: redis.Connection, packed: Sequence[tuple[Any, ...]], replies: int | None = None
) -> list[Any]:
    """Send commands together, and return the replies; error replies come as values."""
    if packed:
        chunks = (
            connection.pack_command(*packed[0])
            if len(packed) == 1
            else connection.pack_commands(packed)
        )
        if len(chunks) > 1 and sum(map(len, chunks)) <= _ONE_WRITE:
            chunks = [b"".join(chunks)]
        connection.send_packed_command(chunks, check_health=False)
    received: list[Any] = []
    for _ in range(len(packed) if replies is None else replies):
        try:
            received.append(connection.read_response(disable_decoding=True))
        except ResponseError as error:
            received.append(error)
    return received


def _executed(client: redis.Redis, command: tuple[Any, ...]) -> Any:
    """Return a reply: bytes, int, ``None``, a list, or an error."""
    try:
        return client.execute_command(*command)
    except ResponseError as error:
        return error

"""What both drivers know of redis-py: how its connections are set up, and what its errors mean."""

from __future__ import annotations

import dataclasses
from typing import Any, NoReturn, TypeVar
from urllib.parse import parse_qs, urlsplit

import redis.asyncio
from redis.backoff import NoBackoff
from redis.exceptions import (
    BusyLoadingError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    ResponseError,
)

from babelqueue_redis.checks import check_timeout
from babelqueue_redis.cluster import Nodes, connection_of, is_cluster, is_moved
from babelqueue_redis.core.command import Command, ErrorReply
from babelqueue_redis.errors import (
    BabelQueueError,
    CommandRefusedError,
    ConfigurationError,
    ConnectionLostError,
)
from babelqueue_redis.settings import ConsumerOptions

T = TypeVar("T")

LONGEST_BLOCK = 1.0
"""Seconds of one blocking command: how late a stop or a sweep may come."""
TRUSTED_FOR = 1.0
"""Seconds after a reply during which a connection is not checked for life."""
_PATIENCE = 10.0
"""Seconds to wait for a reply where the client says nothing: a frozen server must not hold us."""
_NOT_TAKEN_OVER = ("parser_class", "event_dispatcher", "himport_registry")
"""Connection arguments that tie a connection to the client's pool or protocol."""


class ConnectionSettings:
    """How to make connections like a client's, without what a queue cannot bear."""

    def __init__(self, client: Any, retry: Any, block: float) -> None:
        """Take a client's settings, and try them.

        Args:
            client: A blocking or an asyncio client; kept, for a Sentinel's connections need it.
            retry: The class of its kind of retries; they are all turned off.
            block: Seconds that a ``socket_timeout`` is longer for, because commands block.

        Raises:
            ConfigurationError: They cannot work.
        """
        self.client = client
        self.nodes = Nodes(client) if is_cluster(client) else None
        self.connection_class, given = connection_of(client)
        self.kwargs = _kwargs(given, block)
        self.kwargs["retry"] = retry(NoBackoff(), 0)
        service = getattr(self.kwargs.get("connection_pool"), "service_name", None)  # a Sentinel's
        path = service or self.kwargs.get("path")
        self.address: str = path or self.kwargs.get("host") or "localhost"
        self.port: int | None = None if path else self.kwargs.get("port", 6379)
        try:
            self.connect()
        except Exception as error:
            msg = f"the client's connection settings cannot work: {error}"
            raise ConfigurationError(msg) from error

    def connect(self) -> Any:
        """Return a new connection, which connects when it is used."""
        if self.nodes is None:
            return self.connection_class(**self.kwargs)
        host, port = self.nodes.first
        return self.connection_class(**{**self.kwargs, "host": host, "port": port})

    def leads_elsewhere(self, reply: object) -> bool:
        """Tell whether a cluster's node answered that a command belongs to another one."""
        return self.nodes is not None and self.nodes.follow(reply)

    def lost(self, error: Exception, *, sent: bool) -> NoReturn:
        """Raise what a failed exchange means; nothing has run while the server loads its data."""
        where = self.address if self.port is None else f"{self.address}:{self.port}"
        sent = sent and not isinstance(error, BusyLoadingError)
        what = "the link to Redis broke before the reply" if sent else "no connection to Redis"
        msg = f"{what} at {where}: {error}"
        raise ConnectionLostError(msg, sent=sent) from error


def commands_are_watched() -> bool:
    """Tell whether somebody wrapped the asyncio client, as OpenTelemetry does, to see commands."""
    return hasattr(redis.asyncio.Redis.execute_command, "__wrapped__")


def client_of(client: Any, kind: Any, cluster: Any) -> Any:
    """Return ``client``, or a client of ``kind`` when it is a URL.

    Raises:
        ConfigurationError: It is neither, or the URL cannot work.
    """
    if isinstance(client, str):
        check_url(client)
        try:
            client = kind.from_url(client)
        except ValueError as error:
            msg = f"the Redis URL is refused: {error}"
            raise ConfigurationError(msg) from error
    if not isinstance(client, kind | cluster):
        wanted = f"{kind.__module__.removesuffix('.client')}.{kind.__qualname__}"
        got = f"{type(client).__module__}.{type(client).__qualname__}"
        msg = f"client must be a {wanted} or a Redis URL, not {got}"
        raise ConfigurationError(msg)
    return client


def cluster_client(url: str, *, awaits: bool = False) -> Any:
    """Return a client of a cluster, by the URL of one of its nodes.

    Raises:
        ConfigurationError: The URL cannot work.
        ConnectionLostError: The blocking client, which connects at once, could not.
    """
    check_url(url)
    try:
        return (redis.asyncio if awaits else redis).RedisCluster.from_url(url)
    except ValueError as error:
        msg = f"the Redis URL is refused: {error}"
        raise ConfigurationError(msg) from error
    except (RedisError, RedisClusterException) as error:
        msg = f"no connection to the cluster: {error}"
        raise ConnectionLostError(msg) from error


def check_url(url: str) -> None:
    """Refuse a Redis URL that cannot be read, or that carries options of ours.

    redis-py would hand those to its sockets. The message never quotes the URL: it may hold a
    password.

    Raises:
        ConfigurationError: It is one of those.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        msg = "the Redis URL cannot be read: write special characters of a password as %XX"
        raise ConfigurationError(msg) from None
    ours = {field.name for field in dataclasses.fields(ConsumerOptions)}
    misplaced = ours.intersection(parse_qs(parts.query))
    if misplaced:
        option = min(misplaced)
        msg = f"{option} is no option of a Redis URL: pass it as a keyword, {option}=…"
        raise ConfigurationError(msg)


def result_of(command: Command[T], reply: Any) -> T:
    """Return what a reply means.

    Raises:
        CommandRefusedError: It is an error that the command does not tolerate.
        ConnectionLostError: It is no reply to this command: a proxy's, say.
    """
    if isinstance(reply, ResponseError):
        reply = _excused(command, reply)
    try:
        return command.parse(reply)
    except BabelQueueError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a parser makes of something odd
        # Its text may quote a payload.
        msg = f"the answer to {command.name} is none ({type(error).__name__}); it may have run"
    raise ConnectionLostError(msg, sent=True)


def _excused(command: Command[Any], reply: ResponseError) -> ErrorReply:
    """Return an error reply as a command that tolerates it is given it, or raise it."""
    message = str(reply).partition(", with args")[0]  # an unknown command's arguments follow
    if is_moved(reply):
        message = f"the key is on another node of a cluster ({message}): pass a RedisCluster"
    if command.tolerant:
        return ErrorReply(message)
    raise CommandRefusedError(command.refused(message)) from reply


def shows_a_demoted_master(replies: list[Any]) -> bool:
    """Tell whether a connection is to be left, so that the next one finds the master.

    Redis 6.2 wraps what a script is refused with into an error of its own.
    """
    errors = [reply for reply in replies if isinstance(reply, ResponseError)]
    return any(isinstance(error, ReadOnlyError) or "-READONLY" in str(error) for error in errors)


def _kwargs(given: dict[str, Any], block: float) -> dict[str, Any]:
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
        "retry_on_timeout": False,
        "retry_on_error": [],
    }

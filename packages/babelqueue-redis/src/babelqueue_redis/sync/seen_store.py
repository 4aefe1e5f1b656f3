# Generated from aio/seen_store.py by `nox -s sync`. Edit that file, not this one.
"""Which messages were handled already, kept in Redis."""

from __future__ import annotations

import math

from babelqueue_redis.checks import check_prefix, check_timeout
from babelqueue_redis.core.command import Command
from babelqueue_redis.sync.driver import Client, Driver


class RedisSeenStore:
    """Remembers message ids for :func:`~babelqueue_redis.idempotency.idempotent`.

    Each id is a key of its own, ``<key_prefix><id>``, that expires.

    Args:
        client: A ``redis.Redis``, whose connection settings are used, or a URL.
        key_prefix: What the keys begin with. Services that handle the same messages, each for
            itself, need one each.
        ttl: Seconds an id is remembered for, at least 1; a redelivery after that runs again.

    Raises:
        ConfigurationError: One of those cannot work.
    """

    def __init__(
        self, client: Client, *, key_prefix: str = "babelqueue:seen:", ttl: float = 7 * 86_400
    ) -> None:
        """Check the options; nothing is sent yet."""
        self._driver = Driver(client)
        self._key_prefix = check_prefix(key_prefix)
        self._ttl = math.ceil(check_timeout(ttl, "ttl", 1))

    def seen(self, message_id: str) -> bool:
        """Tell whether the message was handled.

        Raises:
            TransportError: Redis did not answer, or refused. So for the other methods.
        """
        return self._driver.send(Command("EXISTS", (self._key(message_id),), (), bool))

    def remember(self, message_id: str) -> None:
        """Note that the message was handled."""
        command = Command("SET", (self._key(message_id),), ("1", "EX", self._ttl), bool)
        self._driver.send(command)

    def forget(self, message_id: str) -> None:
        """Let the message run again, as a replay on purpose does."""
        self._driver.send(Command("DEL", (self._key(message_id),), (), bool))

    def close(self) -> None:
        """Close the connection of this thread or loop; a later call opens a new one."""
        self._driver.close()

    def _key(self, message_id: str) -> str:
        return f"{self._key_prefix}{message_id}"

"""Where the keys of a queue lie in a cluster, and which of its nodes to speak to.

The drivers speak to one node, through a connection of their own, and follow its ``MOVED``: the
answer proves that the command did not run. redis-py's cluster client would send a write again whose
reply was lost.
"""

from __future__ import annotations

import re
from typing import Any

import redis.asyncio
from redis.crc import key_slot
from redis.exceptions import MovedError, ResponseError

from babelqueue_redis.errors import ConfigurationError
from babelqueue_redis.settings import ConsumerOptions, QueueOptions

Address = tuple[str, int]

HOPS = 3
"""How often a command is sent on to another node."""
_CLUSTERS = (redis.RedisCluster, redis.asyncio.RedisCluster)


class Nodes:
    """The nodes that are known, the one to speak to first. Replaced whole, so threads may share."""

    def __init__(self, client: Any) -> None:
        """Start with those that a client knows; one of asyncio may not have connected yet."""
        manager = client.nodes_manager
        known = [*manager.nodes_cache.values(), *manager.startup_nodes.values()]
        self._known: tuple[Address, ...] = ()
        self._add((node.host, int(node.port)) for node in known)

    def __len__(self) -> int:
        """How many there are."""
        return len(self._known)

    @property
    def first(self) -> Address:
        """The one to speak to."""
        return self._known[0]

    def leave(self) -> None:
        """Try the others first."""
        self._known = (*self._known[1:], self._known[0])

    def learn(self, slots: Any) -> None:
        """Note all nodes that one node knows."""
        if isinstance(slots, list):
            here = self.first[0]
            nodes = [node for slot in slots for node in slot[2:]]
            self._add((_host(node[0]) or here, node[1]) for node in nodes)

    def follow(self, reply: object) -> bool:
        """Tell whether a reply says that the keys are elsewhere, and go there."""
        if not is_moved(reply):
            return False
        host, _, port = str(reply).rpartition(" ")[2].rpartition(":")
        there = (host or self.first[0], int(port))
        self._known = tuple(dict.fromkeys((there, *self._known)))
        return True

    def _add(self, addresses: Any) -> None:
        self._known = tuple(dict.fromkeys((*self._known, *addresses)))


def _host(name: bytes | None) -> str:
    """Return a node's name; a node that does not know its own is where it was asked."""
    return "" if name in (None, b"?") else name.decode()


def is_moved(reply: object) -> bool:
    """Tell whether a node answered that the keys are another one's."""
    if isinstance(reply, MovedError):
        return True
    # Not every redis-py makes a class of its own of it.
    return isinstance(reply, ResponseError) and str(reply).startswith("MOVED ")


def connection_of(client: Any) -> tuple[Any, dict[str, Any]]:
    """Return a client's connection class, and what its connections are made with."""
    if not is_cluster(client):
        return client.connection_pool.connection_class, client.connection_pool.connection_kwargs
    if isinstance(client, redis.RedisCluster):
        pool = client.get_default_node().redis_connection.connection_pool
        made, kwargs = pool.connection_class, dict(pool.connection_kwargs)
        kwargs.pop("redis_connect_func", None)  # it makes the connection one of the client's
        return made, kwargs
    node = next(iter(client.nodes_manager.startup_nodes.values()))
    return node.connection_class, dict(node.connection_kwargs)


def is_cluster(client: object) -> bool:
    """Tell whether a client is one of a cluster."""
    return isinstance(client, _CLUSTERS)


def refuse_scattered(client: object, options: QueueOptions) -> None:
    """Refuse a queue whose keys would lie on several nodes of a cluster.

    Raises:
        ConfigurationError: Its name has no hash tag, or its dead-letter queue's has another one.
    """
    if not is_cluster(client):
        return
    prefix = options.key_prefix if options.layout == "zset" else ""
    ready = f"{prefix}{options.queue}"
    slot = key_slot(ready.encode())
    if any(key_slot(f"{ready}:{part}".encode()) != slot for part in ("processing", "notify")):
        msg = (
            f"queue {options.queue!r} is refused on a cluster, where its keys must lie on one "
            f"node: give it a name with a hash tag, such as '{{{options.queue}}}'"
        )
        raise ConfigurationError(msg)
    if not isinstance(options, ConsumerOptions):
        return
    target = options.dead_letter_target
    if key_slot(f"{prefix}{target}".encode()) != slot:
        msg = (
            f"dead_letter_queue={target!r} is refused on a cluster, where it must lie on the node "
            f"of {options.queue!r}: give it a name with the same hash tag"
        )
        raise ConfigurationError(msg)


def refuse_untagged(client: object, key_prefix: str) -> None:
    """Refuse a cluster where the keys of one store would lie on several of its nodes.

    Raises:
        ConfigurationError: ``key_prefix`` has no hash tag.
    """
    if is_cluster(client) and not re.search(r"\{[^}]+\}", key_prefix):
        msg = (
            f"key_prefix={key_prefix!r} is refused on a cluster: a script's keys must lie on one "
            "node, so the prefix needs a hash tag, such as '{jobs}:'"
        )
        raise ConfigurationError(msg)

"""What every command is given: a Redis, a layout, a place to write."""

from __future__ import annotations

import dataclasses
import functools
from urllib.parse import urlsplit

from babelqueue_redis.cli.output import Output, shown
from babelqueue_redis.layouts.operations import Operations
from babelqueue_redis.redis_py import cluster_client
from babelqueue_redis.settings import ConsumerOptions
from babelqueue_redis.sync.driver import Client, Driver
from babelqueue_redis.sync.job_store import RedisJobStore
from babelqueue_redis.sync.publisher import RedisPublisher
from babelqueue_redis.sync.queue import RedisQueue

DEFAULT_URL = "redis://127.0.0.1:6379/0"


@dataclasses.dataclass(frozen=True)
class Session:
    """The global options.

    Attributes:
        url: Of the Redis; it may hold a password, see :attr:`where`.
        layout: ``legacy`` or ``zset``.
        key_prefix: ``None`` is the default, of queues or of jobs.
        output: Where to write.
        is_cluster: Whether the URL is of a node of a cluster.
    """

    url: str
    layout: str
    key_prefix: str | None
    output: Output
    is_cluster: bool = False

    @functools.cached_property
    def client(self) -> Client:
        """What queues are made with: the URL, or a client of the cluster."""
        return cluster_client(self.url) if self.is_cluster else self.url

    @property
    def queue_prefix(self) -> str:
        """What keys of the zset layout begin with."""
        return "queues:" if self.key_prefix is None else self.key_prefix

    @property
    def where(self) -> str:
        """The URL without what may be secret."""
        return redacted(self.url)

    def queue(self, name: str, dead_letter_queue: str = "") -> RedisQueue:
        """Return an operator's view of a queue."""
        return RedisQueue(
            self.client,
            name,
            layout=self.layout,
            key_prefix=self.queue_prefix,
            dead_letter_queue=dead_letter_queue,
        )

    def publisher(self, name: str) -> RedisPublisher:
        """Return a publisher."""
        return RedisPublisher(self.client, name, layout=self.layout, key_prefix=self.queue_prefix)

    def operations(self, name: str, layout: str) -> Operations:
        """Return what can be asked of a queue, were it of a layout, for a driver."""
        options = ConsumerOptions(name, layout, self.queue_prefix)
        return Operations(options, options.dead_letter_target)

    def driver(self) -> Driver:
        """Return a driver, for commands that are no queue's."""
        return Driver(self.client)

    def store(self) -> RedisJobStore:
        """Return the job store."""
        if self.key_prefix is None:
            return RedisJobStore(self.client)
        return RedisJobStore(self.client, key_prefix=self.key_prefix)


def redacted(url: str) -> str:
    """Return a URL without password and query, where redis-py looks for one as well."""
    try:
        parts = urlsplit(url)
        host, user = parts.netloc.rpartition("@")[2], parts.username
    except ValueError:
        return "a URL that cannot be read"
    secret = f"{user or ''}:***@" if parts.password is not None else f"{user}@" if user else ""
    return shown(f"{parts.scheme}://{secret}{host}{parts.path}")

"""One worker for several queues."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from babelqueue_redis import (
    AsyncRedisConsumer,
    AsyncRedisWorker,
    BabelQueueError,
    ConfigurationError,
    Envelope,
    RedisConsumer,
    RedisPublisher,
    RedisWorker,
)
from kit.redis_server import free_port
from tests.support.marks import both_layouts, both_shells
from tests.support.proxy import proxy_to
from tests.support.server import Client
from tests.support.store import Store
from tests.support.waiting import eventually

pytestmark = [both_layouts, both_shells]


class Served:
    """Two queues, ``high`` and ``default``, and what was handled of them, in order."""

    def __init__(self, kind: str, url: str, queue: str, layout: str) -> None:
        self.seen: list[str] = []
        self._kind, self._url, self._queue, self._layout = kind, url, queue, layout
        self.worker: Any = None
        self.after: Callable[[], object] = lambda: None

    def publish(self, name: str, count: int = 1) -> None:
        """Publish to one of them."""
        publisher = RedisPublisher(self._url, f"{self._queue}.{name}", layout=self._layout)
        publisher.publish_many([("urn:a", {"from": name})] * count)

    def consumer(self, name: str, url: str = "", **options: Any) -> Any:
        """Make the consumer of one of them."""
        made = RedisConsumer if self._kind == "sync" else AsyncRedisConsumer
        options = {"layout": self._layout, "prefetch": 1, **options}
        handlers = {"urn:a": self._handle}
        return made(url or self._url, f"{self._queue}.{name}", handlers, **options)

    def serve(self, *consumers: Any, until: int, weights: Sequence[int] | None = None) -> list[str]:
        """Serve until so many messages were handled; return where they came from."""
        made: Any = RedisWorker if self._kind == "sync" else AsyncRedisWorker
        self.worker = made(consumers, weights=weights)
        self._until = until
        result = self.worker.run()
        if self._kind == "aio":
            result = asyncio.run(result)
        assert result == len(self.seen)
        return self.seen

    def _handle(self, envelope: Envelope) -> None:
        self.seen.append(envelope.data["from"])
        self.after()
        if len(self.seen) == self._until:
            self.worker.stop()


@pytest.fixture
def served(kind: str, client: Client, redis_url: str, queue: str, layout: str) -> Iterator[Served]:
    """The queues."""
    yield Served(kind, redis_url, queue, layout)
    left = list(client.scan_iter(match=f"*{queue}*", count=10_000))
    if left:
        client.delete(*left)


def test_the_first_queue_comes_first(served: Served) -> None:
    """And what arrives there meanwhile is next."""
    served.publish("default", 4)
    served.publish("high", 2)

    def arrive() -> None:
        if len(served.seen) == 3:
            served.publish("high")

    served.after = arrive
    order = served.serve(served.consumer("high"), served.consumer("default"), until=7)
    assert order == ["high", "high", "default", "high", "default", "default", "default"]


def test_weights_share_the_turns(served: Served) -> None:
    """So that a busy queue does not starve the others."""
    served.publish("high", 30)
    served.publish("default", 30)
    consumers = served.consumer("high"), served.consumer("default")
    order = served.serve(*consumers, until=20, weights=(3, 1))
    assert (order.count("high"), order.count("default")) == (15, 5)
    assert "default" in order[:4]


def test_an_empty_queue_of_weight_leaves_its_turns_to_the_others(served: Served) -> None:
    """No turn is waited for."""
    served.publish("default", 10)
    consumers = served.consumer("high"), served.consumer("default")
    assert served.serve(*consumers, until=10, weights=(9, 1)) == ["default"] * 10


@pytest.mark.parametrize("name", ["high", "default"])
def test_an_idle_worker_waits_for_all_queues_at_once(
    served: Served, name: str, monkeypatch: pytest.MonkeyPatch, client: Client
) -> None:
    """The wait for one of them does not keep a message of the other one."""
    for shell in ("sync", "aio"):
        monkeypatch.setattr(f"babelqueue_redis.{shell}.worker.LONGEST_BLOCK", 60)
    monkeypatch.setattr("babelqueue_redis.redis_py.LONGEST_BLOCK", 60)
    consumers = [served.consumer(each, block_timeout=60) for each in ("high", "default")]
    for each in consumers:
        each._driver._settings.kwargs["socket_timeout"] = 90
    before = client.info("clients")["blocked_clients"]
    thread = threading.Thread(target=served.serve, args=consumers, kwargs={"until": 1})
    thread.start()
    eventually(lambda: client.info("clients")["blocked_clients"] >= before + 2)
    served.publish(name)
    thread.join(30)  # half the wait
    assert served.seen == [name]


def test_an_idle_worker_keeps_its_connections(
    served: Served, monkeypatch: pytest.MonkeyPatch, redis_url: str
) -> None:
    """A wait that ends without a message leaves them as they are, however long it was."""
    for shell in ("sync", "aio"):
        monkeypatch.setattr(f"babelqueue_redis.{shell}.worker.LONGEST_BLOCK", 0.1)
        monkeypatch.setattr(f"babelqueue_redis.{shell}.driver.TRUSTED_FOR", 0.05)
    with proxy_to(redis_url) as proxy:
        consumers = [served.consumer(each, proxy.url) for each in ("high", "default")]
        thread = threading.Thread(target=served.serve, args=consumers, kwargs={"until": 1})
        thread.start()
        eventually(lambda: proxy.requests_with(b"BL") >= 4)  # all have waited once
        met = proxy.requests_with(b"SETINFO")
        eventually(lambda: proxy.requests_with(b"BL") >= 20)
        # On a busy machine one end may come too late for the grace; not one of each wait.
        assert proxy.requests_with(b"SETINFO") <= met + 6
        served.publish("default")
        thread.join(60)


def test_an_outage_of_one_server_does_not_keep_the_others(served: Served) -> None:
    """Its queue is asked again now and then; the others are served meanwhile."""
    served.publish("default", 5)
    away = served.consumer("high", f"redis://127.0.0.1:{free_port()}")
    assert served.serve(away, served.consumer("default"), until=5) == ["default"] * 5


def test_a_finished_message_of_one_queue_does_not_wait_for_another(
    served: Served, client: Client, queue: str, layout: str
) -> None:
    """It is settled while a long handler of the first queue runs."""
    default = Store(client, f"{queue}.default", layout)
    left: list[bool] = []

    def after() -> None:
        if len(served.seen) == 1:
            served.publish("high")
        else:
            left.append(eventually(default.is_empty))

    served.after = after
    served.publish("default")
    order = served.serve(served.consumer("high"), served.consumer("default"), until=2)
    assert (order, left) == (["default", "high"], [True])


def test_a_server_that_is_away_and_silent_does_not_keep_the_others(
    served: Served, redis_url: str
) -> None:
    """They are served while it is asked whether it is back, and so is it once it is."""
    with proxy_to(redis_url) as proxy, socket.create_server(("127.0.0.1", 0)) as silent:
        proxy.lead_to(f"redis://127.0.0.1:{free_port()}")
        away = served.consumer("high", f"{proxy.url}?socket_timeout=600")
        consumers = (away, served.consumer("default", block_timeout=0.1))
        thread = threading.Thread(target=served.serve, args=consumers, kwargs={"until": 6})
        thread.start()
        eventually(lambda: away.feed.is_away)
        proxy.lead_to(f"redis://127.0.0.1:{silent.getsockname()[1]}")
        asked = len(proxy.seen)
        eventually(lambda: len(proxy.seen) > asked)  # from now on somebody waits for an answer
        served.publish("default", 5)
        eventually(lambda: served.seen == ["default"] * 5)
        proxy.lead_to(redis_url)
        silent.close()
        served.publish("high")
        thread.join(60)
    assert served.seen == ["default"] * 5 + ["high"]


def test_lanes_are_shared(served: Served) -> None:
    """Handlers of both queues run at once."""
    together = threading.Barrier(2)
    served.after = lambda: together.wait(60)
    served.publish("high")
    served.publish("default")
    consumers = served.consumer("high", concurrency=2), served.consumer("default")
    assert sorted(served.serve(*consumers, until=2)) == ["default", "high"]


def test_a_consumer_is_served_once_at_a_time(served: Served, kind: str) -> None:
    """By a worker or by itself."""
    high = served.consumer("high")
    errors: list[BaseException] = []

    def again() -> None:
        try:
            result = high.run()
            if kind == "aio":
                result.send(None)
        except BabelQueueError as error:
            errors.append(error)

    served.after = again
    served.publish("high")
    served.serve(high, until=1)
    eventually(lambda: errors)


def test_what_cannot_work_is_refused(served: Served, kind: str) -> None:
    """At construction, by name."""
    made: Any = RedisWorker if kind == "sync" else AsyncRedisWorker
    high, default = served.consumer("high"), served.consumer("default")
    for consumers, weights, named in (
        ((), None, "consumers"),
        ((high, "default"), None, "consumers"),
        ((high, high), None, "twice"),
        ((high, default), (1,), "weights"),
        ((high, default), (1, 0), "weights"),
        ((high, default), (1, 1.5), "weights"),
    ):
        with pytest.raises(ConfigurationError, match=named):
            made(consumers, weights=weights)

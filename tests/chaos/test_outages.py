"""A worker outlives what happens to its server, and loses nothing meanwhile."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.sentinel import Sentinel

from babelqueue_redis import Envelope, PublishError, RedisConsumer, RedisPublisher
from kit.redis_server import any_binary, free_port, private_server
from tests.support.proxy import proxy_to
from tests.support.running import running
from tests.support.server import Client
from tests.support.shells import Shell
from tests.support.store import Store
from tests.support.waiting import eventually

Start = Callable[..., str]
AT_ONCE = ("--repl-diskless-sync-delay", "0")
"""A replica need not wait for others."""
GONE, BACK = "cannot be served", "is served again"


class Seen:
    """A handler that keeps what it handled, and holds one message until it is told."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.holding = threading.Event()
        self.release = threading.Event()

    def __call__(self, envelope: Envelope) -> None:
        """Handle."""
        if envelope.data.get("hold") and not self.release.is_set():
            self.holding.set()
            self.release.wait(100)
        self.numbers.append(envelope.data["n"])


@pytest.fixture
def seen() -> Seen:
    """What was handled."""
    return Seen()


@pytest.fixture
def consumer_at(shell: Shell, queue: str, layout: str, seen: Seen) -> Callable[..., RedisConsumer]:
    """Make a consumer of a server."""

    def make(client: Any, **options: Any) -> RedisConsumer:
        made: RedisConsumer = shell.make(
            "consumer", client, queue, {"urn:a": seen}, layout=layout, **options
        )
        return made

    return make


@pytest.mark.parametrize(
    "seconds",
    [1, pytest.param(15, marks=pytest.mark.long), pytest.param(90, marks=pytest.mark.long)],
)
@pytest.mark.timeout(300)
def test_a_worker_outlives_an_outage(
    own_server: Start,
    consumer_at: Callable[..., RedisConsumer],
    seen: Seen,
    queue: str,
    layout: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    seconds: int,
) -> None:
    """It says so once, and once that it is over, and consumes again by itself.

    A handler that ends during the outage is not acked: its message comes again.
    """
    own_server()  # skips where there is no binary
    options = (str(any_binary()), "--dir", str(tmp_path), "--appendonly", "yes")
    port = free_port()
    with contextlib.ExitStack() as stack:
        with private_server(*options, port=port) as url:
            publisher = RedisPublisher(url, queue, layout=layout)
            stack.enter_context(running(consumer_at(url, retry_after=2)))
            publisher.publish("urn:a", {"n": 1, "hold": True})
            assert seen.holding.wait(60)
        away = time.monotonic()
        seen.release.set()
        eventually(lambda: GONE in caplog.text)
        assert "not confirmed to be acked" in caplog.text
        eventually(lambda: time.monotonic() - away > seconds, seconds + 60)
        stack.enter_context(private_server(*options, port=port))
        publisher.publish("urn:a", {"n": 2})
        eventually(lambda: sorted(seen.numbers) == [1, 1, 2], 30)
        eventually(Store(redis.Redis.from_url(url), queue, layout).is_empty)
        assert (caplog.text.count(GONE), caplog.text.count(BACK)) == (1, 1)


@pytest.mark.parametrize("seconds", [2, pytest.param(30, marks=pytest.mark.long)])
def test_a_worker_whose_links_are_killed_all_the_time_goes_on(
    own_server: Start,
    consumer_at: Callable[..., RedisConsumer],
    seen: Seen,
    queue: str,
    layout: str,
    seconds: int,
) -> None:
    """What was confirmed to be published is handled, and nothing is left behind."""
    url = own_server()
    admin: Client = redis.Redis.from_url(url)
    publisher = RedisPublisher(url, queue, layout=layout)
    confirmed: set[int] = set()
    end = time.monotonic() + seconds
    # A reply that is lost three times, as some are in half a minute, counts like three crashes.
    with running(*(consumer_at(url, retry_after=2, max_tries=1000) for _ in range(2))):
        while time.monotonic() < end:
            admin.client_kill_filter(_type="normal", skipme=True)
            for _ in range(50):
                number = len(confirmed)
                with contextlib.suppress(PublishError):
                    publisher.publish("urn:a", {"n": number})
                    confirmed.add(number)
                time.sleep(0.01)
        eventually(Store(admin, queue, layout).is_empty)
    assert set(seen.numbers) >= confirmed


def test_scripts_may_be_flushed_at_any_time(
    own_server: Start,
    consumer_at: Callable[..., RedisConsumer],
    seen: Seen,
    queue: str,
    layout: str,
) -> None:
    """Each message is handled once all the same."""
    url = own_server()
    admin: Client = redis.Redis.from_url(url)
    publisher = RedisPublisher(url, queue, layout=layout)
    with running(consumer_at(url)):
        for number in range(300):
            publisher.publish("urn:a", {"n": number})
            admin.script_flush()
        eventually(Store(admin, queue, layout).is_empty)
    assert seen.numbers == list(range(300))


def test_a_worker_waits_while_its_server_loads(
    redis_url: str,
    consumer_at: Callable[..., RedisConsumer],
    seen: Seen,
    publisher: RedisPublisher,
    queue: str,
    layout: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """``LOADING`` is an outage like any other; a publish says that nothing is stored."""
    with proxy_to(redis_url) as proxy, running(consumer_at(proxy.url)):
        publisher.publish("urn:a", {"n": 1})
        eventually(lambda: seen.numbers == [1])
        proxy.is_loading = True
        eventually(lambda: GONE in caplog.text)
        with pytest.raises(PublishError) as caught:
            RedisPublisher(proxy.url, queue, layout=layout).publish("urn:a", {"n": 0})
        assert not caught.value.may_be_stored
        proxy.is_loading = False
        publisher.publish("urn:a", {"n": 2})
        eventually(lambda: seen.numbers == [1, 2])
    assert (caplog.text.count(GONE), caplog.text.count(BACK)) == (1, 1)


def replicated(master: Client, replica: Client, port: int) -> None:
    """Make one server follow another, and wait until it has all."""
    replica.replicaof("127.0.0.1", port)
    eventually(lambda: replica.info("replication").get("master_link_status") == "up")
    eventually(lambda: master.wait(1, 1000) == 1)


def port_of(url: str) -> int:
    """Return the port in a URL."""
    return int(url.rpartition(":")[2].partition("/")[0])


def test_a_worker_follows_a_promotion(
    own_server: Start,
    consumer_at: Callable[..., RedisConsumer],
    seen: Seen,
    queue: str,
    layout: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It waits in the old master, is unblocked, sees ``READONLY``, and asks the name again."""
    old, new = own_server(*AT_ONCE), own_server(*AT_ONCE)
    master, replica = (redis.Redis.from_url(url) for url in (old, new))
    with proxy_to(old) as proxy, running(consumer_at(proxy.url)):
        RedisPublisher(proxy.url, queue, layout=layout).publish("urn:a", {"n": 1})
        eventually(lambda: seen.numbers == [1])
        eventually(Store(master, queue, layout).is_empty)
        replicated(master, replica, port_of(old))
        eventually(lambda: master.info("clients")["blocked_clients"])
        replica.replicaof("NO", "ONE")
        master.replicaof("127.0.0.1", port_of(new))
        eventually(lambda: GONE in caplog.text)
        proxy.lead_to(new)
        RedisPublisher(new, queue, layout=layout).publish("urn:a", {"n": 2})
        eventually(lambda: seen.numbers == [1, 2])
        eventually(Store(replica, queue, layout).is_empty)
    assert (caplog.text.count(GONE), caplog.text.count(BACK)) == (1, 1)


@contextlib.contextmanager
def sentinel_of(url: str, folder: Path) -> Iterator[int]:
    """Watch a master, and promote a replica one second after it is gone."""
    port = free_port()
    path = folder / "sentinel.conf"
    path.write_text(
        f"port {port}\nbind 127.0.0.1\ndir {folder}\n"
        f"sentinel monitor orders 127.0.0.1 {port_of(url)} 1\n"
        "sentinel down-after-milliseconds orders 1000\nsentinel failover-timeout orders 3000\n"
    )
    command = [str(any_binary()), str(path), "--sentinel"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        client: Client = redis.Redis(port=port)
        eventually(lambda: _knows_a_replica(client))
        yield port
    finally:
        process.kill()
        process.wait()


def _knows_a_replica(sentinel: Client) -> bool:
    try:
        return bool(sentinel.sentinel_slaves("orders"))
    except redis.RedisError:
        return False


@pytest.mark.long
def test_a_worker_follows_a_sentinel(
    own_server: Start,
    consumer_at: Callable[..., RedisConsumer],
    seen: Seen,
    kind: str,
    queue: str,
    layout: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The master dies, a replica takes over, and the worker finds it."""
    old, new = own_server(*AT_ONCE), own_server(*AT_ONCE)
    master, replica = (redis.Redis.from_url(url) for url in (old, new))
    replicated(master, replica, port_of(old))
    with sentinel_of(old, tmp_path) as port:
        made: Any = Sentinel if kind == "sync" else redis.asyncio.Sentinel
        client = made([("127.0.0.1", port)]).master_for("orders")
        publisher = RedisPublisher(
            Sentinel([("127.0.0.1", port)]).master_for("orders"), queue, layout=layout
        )
        with running(consumer_at(client)):
            publisher.publish("urn:a", {"n": 1})
            eventually(lambda: seen.numbers == [1])
            eventually(Store(replica, queue, layout).is_empty)  # its ack has come that far
            os.kill(master.info("server")["process_id"], signal.SIGKILL)
            eventually(lambda: published(publisher, 2))
            eventually(lambda: 2 in seen.numbers)
            eventually(Store(replica, queue, layout).is_empty)
    assert caplog.text.count(BACK) >= 1


def published(publisher: RedisPublisher, number: int) -> bool:
    """Publish, unless there is nobody who takes it."""
    try:
        return bool(publisher.publish("urn:a", {"n": number}))
    except PublishError:
        return False


def test_a_frozen_server_does_not_hold_a_stop_up(
    own_server: Start,
    consumer_at: Callable[..., RedisConsumer],
    shell: Shell,
    seen: Seen,
) -> None:
    """A run ends within ``socket_timeout``, one second, and what the loop takes."""
    url = own_server()
    admin: Client = redis.Redis.from_url(url)
    server = admin.info("server")["process_id"]
    consumer = consumer_at(shell.client(url, socket_timeout=1))
    thread = threading.Thread(target=consumer.run)
    thread.start()
    eventually(lambda: admin.info("clients")["blocked_clients"])
    os.kill(server, signal.SIGSTOP)
    try:
        consumer.stop()
        thread.join(30)
        assert not thread.is_alive()
    finally:
        os.kill(server, signal.SIGCONT)
    assert seen.numbers == []

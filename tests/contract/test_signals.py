from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from babelqueue_redis import Envelope, Outcome, RedisConsumer, RedisPublisher
from tests.support.redis_types import Client
from tests.support.waiting import eventually

WORKER = """
import sys, time, redis
from babelqueue_redis import RedisConsumer

url, queue, shutdown_timeout, handling = sys.argv[1:]
consumer = RedisConsumer(url, queue, shutdown_timeout=float(shutdown_timeout), max_tries=2)

@consumer.handler("urn:a")
def handle(envelope):
    print("started", flush=True)
    if handling == "short":
        time.sleep(0.5)
    elif handling == "long":
        time.sleep(600)
    elif handling == "busy":
        while True:
            pass
    print("finished", flush=True)

print("handled", consumer.run(), flush=True)
"""


class Child:
    """A worker in a process of its own."""

    def __init__(self, url: str, queue: str, shutdown_timeout: float, handling: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER, url, queue, str(shutdown_timeout), handling],
            stdout=subprocess.PIPE,
            text=True,
        )

    def expect(self, line: str) -> None:
        """Wait for a line."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline().strip() == line

    def end(self) -> str:
        """Wait for a normal exit, and return what is left of the output."""
        out, _ = self.process.communicate(timeout=60)
        assert self.process.returncode == 0
        return out.strip()


@pytest.fixture
def worker(redis_url: str, queue: str) -> Iterator[Callable[[float, str], Child]]:
    """Start workers, and end them."""
    children: list[Child] = []

    def start(shutdown_timeout: float, handling: str) -> Child:
        children.append(Child(redis_url, queue, shutdown_timeout, handling))
        return children[-1]

    yield start
    for child in children:
        child.process.kill()
        child.process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_lets_the_handler_finish(
    worker: Callable[[float, str], Child],
    publisher: RedisPublisher,
    client: Client,
    queue: str,
    number: int,
) -> None:
    """Its message is acked, and no other is taken."""
    child = worker(30, "short")
    publisher.publish_many([("urn:a", {"n": 1}), ("urn:a", {"n": 2})])
    child.expect("started")
    child.process.send_signal(number)
    assert child.end() == "finished\nhandled 1"
    (left,) = client.lrange(queue, 0, -1)
    assert json.loads(left)["data"] == {"n": 2}
    assert client.llen(f"{queue}:processing") == 0


@pytest.mark.parametrize("handling", ["long", "busy"])
def test_a_handler_that_takes_too_long_is_interrupted_and_its_message_given_back(
    worker: Callable[[float, str], Child],
    publisher: RedisPublisher,
    client: Client,
    queue: str,
    handling: str,
) -> None:
    """Unchanged, after ``shutdown_timeout``, whether it sleeps or computes."""
    child = worker(0.3, handling)
    publisher.publish("urn:a", {}, headers={"k": "v"})
    child.expect("started")
    stored = client.lindex(f"{queue}:processing", 0)
    child.process.send_signal(signal.SIGTERM)
    assert child.end() == "handled 0"
    assert client.lrange(queue, 0, -1) == [stored]
    assert client.llen(f"{queue}:processing") == 0


def test_a_second_signal_ends_at_once(
    worker: Callable[[float, str], Child],
    publisher: RedisPublisher,
    client: Client,
    queue: str,
) -> None:
    """The message is given back, too."""
    child = worker(600, "long")
    publisher.publish("urn:a", {})
    child.expect("started")
    child.process.send_signal(signal.SIGTERM)
    time.sleep(0.1)  # two signals at once are one
    child.process.send_signal(signal.SIGTERM)
    assert child.end() == "handled 0"
    assert client.llen(queue) == 1
    assert client.llen(f"{queue}:processing") == 0


def test_an_idle_worker_ends_on_a_signal(
    worker: Callable[[float, str], Child], client: Client
) -> None:
    """Within a slice of its wait."""
    blocked = client.info("clients")["blocked_clients"]
    child = worker(30, "none")
    eventually(lambda: client.info("clients")["blocked_clients"] > blocked)
    child.process.send_signal(signal.SIGINT)
    assert child.end() == "handled 0"


def test_a_killed_workers_message_is_delivered_again(
    worker: Callable[[float, str], Child],
    publisher: RedisPublisher,
    client: Client,
    queue: str,
) -> None:
    """``kill -9`` in a handler: it stays reserved until the lease is over, then comes once."""
    child = worker(30, "long")
    message_id = publisher.publish("urn:a", {})
    child.expect("started")
    child.process.kill()
    child.process.wait()
    assert client.llen(f"{queue}:processing") == 1
    deadlines = f"{queue}:processing:deadlines"
    client.zadd(deadlines, dict.fromkeys(client.zrange(deadlines, 0, -1), 1), xx=True)
    seen: list[Envelope] = []
    consumer = RedisConsumer(client, queue, {"urn:a": seen.append})
    assert consumer.poll(0) is Outcome.ACKED
    assert [envelope.meta.id for envelope in seen] == [message_id]
    assert consumer.poll(0) is None


def test_handlers_of_signals_are_restored(client: Client, queue: str) -> None:
    """``run()`` borrows them."""
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    assert RedisConsumer(client, queue).run(lambda: False) == 0
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


def test_stop_ends_a_run_in_another_thread(
    client: Client, publisher: RedisPublisher, queue: str
) -> None:
    """Where no signal handler can be installed."""
    consumer = RedisConsumer(client, queue, {"urn:a": lambda envelope: consumer.stop()})
    counts: list[int] = []
    thread = threading.Thread(target=lambda: counts.append(consumer.run()))
    thread.start()
    publisher.publish_many([("urn:a", {}), ("urn:a", {})])
    thread.join(60)
    assert counts == [1]
    assert client.llen(queue) == 1


def test_a_stop_before_the_run_ends_it_and_only_it(
    client: Client, publisher: RedisPublisher, queue: str
) -> None:
    """A request is not forgotten, and not kept for ever."""
    consumer = RedisConsumer(client, queue, {"urn:a": lambda envelope: consumer.stop()})
    publisher.publish("urn:a", {})
    consumer.stop()
    assert consumer.run() == 0
    assert consumer.run() == 1


def test_run_goes_on_when_redis_is_back(
    own_server: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    """One line when it goes, one when it is back, no exception."""
    from kit.redis_server import any_binary, free_port, private_server  # noqa: PLC0415

    own_server()  # skips where there is no binary
    port = free_port()
    binary = str(any_binary())
    seen: list[int] = []
    consumer: RedisConsumer

    def handle(envelope: Envelope) -> None:
        seen.append(envelope.data["n"])
        if envelope.data["n"] == 2:
            consumer.stop()

    with private_server(binary, port=port) as url:
        consumer = RedisConsumer(url, "orders", {"urn:a": handle})
        thread = threading.Thread(target=consumer.run)
        thread.start()
        RedisPublisher(url, "orders").publish("urn:a", {"n": 1})
        eventually(lambda: seen == [1])
    eventually(lambda: "cannot be served" in caplog.text)
    time.sleep(0.5)
    with private_server(binary, port=port) as url, caplog.at_level("INFO"):
        RedisPublisher(url, "orders").publish("urn:a", {"n": 2})
        thread.join(60)
    assert seen == [1, 2]
    assert caplog.text.count("cannot be served") == 1


def test_a_released_unknown_urn_is_not_taken_again_at_once(
    client: Client, publisher: RedisPublisher, queue: str
) -> None:
    """The loop waits at least 100 ms; it must not spin."""
    consumer = RedisConsumer(
        client, queue, unknown_urn="release", on_error=lambda *_: taken.append(time.monotonic())
    )
    taken: list[float] = []
    publisher.publish("urn:new", {})
    consumer.run(lambda: len(taken) < 4)
    pauses = [b - a for a, b in itertools.pairwise(taken)]
    assert min(pauses) >= 0.1

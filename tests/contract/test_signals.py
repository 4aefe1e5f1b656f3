from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from babelqueue_redis import (
    BabelQueueError,
    Envelope,
    Outcome,
    RedisConsumer,
    RedisPublisher,
)
from tests.support.marks import both_layouts
from tests.support.proxy import proxy_to
from tests.support.server import Client
from tests.support.store import Store
from tests.support.waiting import eventually

WORKER = """
import os, sys, threading, time, redis
from contextlib import contextmanager
from babelqueue_redis import RedisConsumer, hooks

url, queue, shutdown_timeout, handling = sys.argv[1:]
say = lambda line: print(line, flush=True)

def on_error(error, envelope, raw):
    if handling == "reporting":
        say("started")
        time.sleep(600)

consumer = RedisConsumer(
    url, queue, shutdown_timeout=float(shutdown_timeout), max_tries=2, on_error=on_error
)

class Slow(hooks.Hook):
    @contextmanager
    def processing(self, delivery):
        say("started")
        time.sleep(600)
        yield

if handling == "hooking":
    hooks.register(Slow())

@consumer.handler("urn:a")
def handle(envelope):
    if handling == "reporting":
        raise ValueError
    if handling == "nesting":
        inner = RedisConsumer(url, queue + ".inner")
        threading.Timer(0.2, say, ["started"]).start()
        say(f"inner handled {inner.run()}")
        return
    say("started")
    if handling == "reading":
        sys.stdin.readline()
    elif handling == "long":
        time.sleep(600)
    elif handling == "busy":
        while True:
            pass
    elif handling == "swallowing":
        try:
            time.sleep(600)
        except BaseException:
            say("swallowed")
        time.sleep(600)
    elif handling == "converting":
        try:
            time.sleep(600)
        except BaseException as error:
            raise RuntimeError from error
    elif handling == "forking":
        child = os.fork()
        if child == 0:
            say("child")
            time.sleep(600)
        os.waitpid(child, 0)
    say("finished")

say("ready")
say(f"handled {consumer.run()}")
"""


class Child:
    """A worker in a process of its own."""

    def __init__(self, url: str, queue: str, shutdown_timeout: float, handling: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER, url, queue, str(shutdown_timeout), handling],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.expect("ready")

    def tell(self, line: str) -> None:
        """Write a line to it."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

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
    child = worker(30, "reading")
    publisher.publish_many([("urn:a", {"n": 1}), ("urn:a", {"n": 2})])
    child.expect("started")
    child.process.send_signal(number)
    child.tell("finish")
    assert child.end() == "finished\nhandled 1"
    (left,) = client.lrange(queue, 0, -1)
    assert json.loads(left)["data"] == {"n": 2}
    assert client.llen(f"{queue}:processing") == 0


@pytest.mark.parametrize("handling", ["long", "busy", "converting", "hooking"])
def test_what_takes_too_long_is_interrupted_and_its_message_given_back(
    worker: Callable[[float, str], Child],
    publisher: RedisPublisher,
    client: Client,
    queue: str,
    handling: str,
) -> None:
    """Unchanged, after ``shutdown_timeout``, whether it sleeps, computes, or hides the reason."""
    child = worker(0.3, handling)
    publisher.publish("urn:a", {}, headers={"k": "v"})
    child.expect("started")
    stored = client.lindex(f"{queue}:processing", 0)
    child.process.send_signal(signal.SIGTERM)
    assert child.end() == "handled 0"
    assert client.lrange(queue, 0, -1) == [stored]
    assert client.llen(f"{queue}:processing") == 0


def test_a_handler_that_swallows_the_interruption_is_interrupted_again(
    worker: Callable[[float, str], Child], publisher: RedisPublisher, client: Client, queue: str
) -> None:
    """The clock strikes until the run is over."""
    child = worker(0.3, "swallowing")
    publisher.publish("urn:a", {})
    child.expect("started")
    child.process.send_signal(signal.SIGTERM)
    assert child.end() == "swallowed\nhandled 0"
    assert client.llen(queue) == 1


@pytest.mark.parametrize("handling", ["long", "reporting"])
def test_a_second_signal_ends_at_once(
    worker: Callable[[float, str], Child],
    publisher: RedisPublisher,
    client: Client,
    queue: str,
    handling: str,
) -> None:
    """In a handler or in ``on_error``; the message is in the queue."""
    child = worker(600, handling)
    publisher.publish("urn:a", {})
    child.expect("started")
    child.process.send_signal(signal.SIGTERM)
    child.process.send_signal(signal.SIGINT)  # two of one kind could arrive as one
    assert child.end() == "handled 0"
    assert client.llen(queue) == 1
    assert client.llen(f"{queue}:processing") == 0


def signalled_until_ended(child: Child) -> bool:
    """Send a signal; two that come at once count as one."""
    child.process.send_signal(signal.SIGTERM)
    return child.process.poll() is not None


def test_signals_in_quick_succession_end_a_run_in_order(
    worker: Callable[[float, str], Child], publisher: RedisPublisher, client: Client, queue: str
) -> None:
    """Wherever the second one strikes."""
    for _ in range(10):
        child = worker(600, "long")
        publisher.publish("urn:a", {})
        child.expect("started")
        for _ in range(5):
            child.process.send_signal(signal.SIGTERM)
        eventually(lambda: signalled_until_ended(child))  # noqa: B023 - run within the turn
        child.process.communicate(timeout=60)
        assert client.llen(queue) + client.llen(f"{queue}:processing") == 1
        client.delete(queue, f"{queue}:processing", f"{queue}:processing:deadlines")


def test_a_frozen_server_does_not_keep_a_worker(own_server: Callable[..., str]) -> None:
    """A second signal ends what waits for its reply."""
    url = own_server()
    admin = redis.Redis.from_url(url)
    server = admin.info("server")["process_id"]
    child = Child(url, "orders", 600, "long")
    eventually(lambda: admin.info("clients")["blocked_clients"])
    os.kill(server, signal.SIGSTOP)
    try:
        eventually(lambda: signalled_until_ended(child))
    finally:
        os.kill(server, signal.SIGCONT)
    child.process.communicate(timeout=60)


@both_layouts
def test_an_interruption_waits_for_the_trip_under_way(
    redis_url: str, queue: str, layout: str, store: Store
) -> None:
    """What it settles is settled, and what it takes is given back: nothing waits for its lease."""
    publisher = RedisPublisher(redis_url, queue, layout=layout)
    with proxy_to(redis_url) as proxy:

        def handle(_envelope: Envelope) -> None:
            proxy.hold_the_reply_to(b"EVALSHA")  # to the next trip: it settles this, and takes
            threading.Thread(target=interrupt).start()

        def interrupt() -> None:
            eventually(lambda: proxy.holds)
            for number in (signal.SIGTERM, signal.SIGINT):  # to the thread that waits for the reply
                signal.pthread_kill(threading.main_thread().ident or 0, number)
            eventually(lambda: consumer._lane.interrupted)
            proxy.let_go()

        options: dict[str, Any] = {"layout": layout, "prefetch": 1}
        consumer = RedisConsumer(proxy.url, queue, {"urn:a": handle}, **options)
        consumer.poll(0)  # the server knows the script from now on
        publisher.publish_many([("urn:a", {"n": n}) for n in range(3)])
        assert consumer.run() == 1
    assert store.counts() == {"ready": 2}


def test_a_run_inside_a_handler_passes_the_signal_on(
    worker: Callable[[float, str], Child], publisher: RedisPublisher
) -> None:
    """Both loops end."""
    child = worker(600, "nesting")
    publisher.publish("urn:a", {})
    child.expect("started")
    child.process.send_signal(signal.SIGTERM)
    assert child.end() == "inner handled 0\nhandled 1"


def test_a_child_of_a_handler_dies_by_a_signal_of_its_own(
    worker: Callable[[float, str], Child], publisher: RedisPublisher
) -> None:
    """Our handler for signals is not for it."""
    child = worker(600, "forking")
    publisher.publish("urn:a", {})
    child.expect("started")
    child.expect("child")
    (grandchild,) = [
        int(pid)
        for pid in Path(f"/proc/{child.process.pid}/task/{child.process.pid}/children")
        .read_text()
        .split()
    ]
    os.kill(grandchild, signal.SIGTERM)
    child.expect("finished")
    child.process.send_signal(signal.SIGTERM)
    assert child.end() == "handled 1"


def test_an_idle_worker_ends_on_a_signal(
    worker: Callable[[float, str], Child], client: Client
) -> None:
    """Within a slice of its wait."""
    blocked = client.info("clients")["blocked_clients"]
    child = worker(30, "long")
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


def test_a_run_of_a_running_consumer_is_refused(
    client: Client, publisher: RedisPublisher, queue: str
) -> None:
    """One consumer is one loop: a stop would end only one of them."""
    errors: list[BaseException] = []

    def handle(_: Envelope) -> None:
        try:
            consumer.run()
        except BabelQueueError as error:
            errors.append(error)
        consumer.stop()

    consumer = RedisConsumer(client, queue, {"urn:a": handle})
    publisher.publish("urn:a", {})
    assert consumer.run() == 1
    assert "running already" in str(errors[0])


def test_a_message_taken_while_stopping_is_given_back(
    client: Client, publisher: RedisPublisher, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No new message after a stop, even when it was on its way."""
    consumer = RedisConsumer(client, queue, {"urn:a": lambda envelope: None})
    publisher.publish("urn:a", {})
    stored = client.lindex(queue, 0)
    take = consumer._layout.take

    def stop_and_take(*args: Any, **options: Any) -> Any:
        consumer.stop()
        return take(*args, **options)

    monkeypatch.setattr(consumer._layout, "take", stop_and_take)
    assert consumer.run() == 0
    assert client.lrange(queue, 0, -1) == [stored]
    assert client.llen(f"{queue}:processing") == 0


def test_an_exit_out_of_a_run_leaves_the_consumer_usable(
    client: Client, publisher: RedisPublisher, queue: str
) -> None:
    """Neither the stop nor the loop is remembered."""

    def leave(envelope: Envelope) -> None:
        consumer.stop()
        if envelope.attempts == 0:
            raise SystemExit

    consumer = RedisConsumer(client, queue, {"urn:a": leave}, on_error=print)
    publisher.publish("urn:a", {})
    with pytest.raises(SystemExit):
        consumer.run()
    assert consumer.run() == 1


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
    eventually(lambda: consumer.feed._outages > 2)
    with private_server(binary, port=port) as url:
        RedisPublisher(url, "orders").publish("urn:a", {"n": 2})
        thread.join(60)
    assert seen == [1, 2]
    assert caplog.text.count("cannot be served") == 1
    assert caplog.text.count("is served again") == 1


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

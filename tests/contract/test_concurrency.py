"""Several handlers at once: in threads, or in tasks."""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from babelqueue_redis import Delivery, Envelope, RedisConsumer, RedisPublisher, hooks
from tests.support.handlers import fail
from tests.support.marks import both_layouts, both_shells
from tests.support.running import running
from tests.support.store import Store
from tests.support.waiting import eventually

pytestmark = [both_layouts, both_shells]
Make = Callable[..., RedisConsumer]

HANGING = """
import asyncio, os, sys, time
from babelqueue_redis import AsyncRedisConsumer, RedisConsumer

kind, url, queue, layout = sys.argv[1:]
options = dict(layout=layout, concurrency=3, prefetch=5, shutdown_timeout=0.3)

def hang(envelope):
    os.write(1, b"started\\n")  # in one piece, whatever other threads write
    time.sleep(600)

async def hang_softly(envelope):
    os.write(1, b"started\\n")
    await asyncio.sleep(600)

if kind == "sync":
    RedisConsumer(url, queue, {"urn:a": hang}, **options).run()
else:
    asyncio.run(AsyncRedisConsumer(url, queue, {"urn:a": hang_softly}, **options).run())
print("over", flush=True)
"""


def publish(publisher: RedisPublisher, count: int, urn: str = "urn:a") -> list[str]:
    """Publish numbered messages."""
    return publisher.publish_many([(urn, {"n": number}) for number in range(count)])


def test_handlers_run_at_once(publisher: RedisPublisher, consumer_of: Make, store: Store) -> None:
    """As many as were asked for: they all wait for each other."""
    publish(publisher, 8)
    together = threading.Barrier(4)
    seen: list[int] = []

    def handle(envelope: Envelope) -> None:
        together.wait(60)
        seen.append(envelope.data["n"])

    with running(consumer_of({"urn:a": handle}, concurrency=4)):
        eventually(store.is_empty)
    assert sorted(seen) == list(range(8))


def test_many_messages_are_handled_once_each(
    publisher: RedisPublisher, consumer_of: Make, store: Store
) -> None:
    """Whatever the handlers do, and however batches and lanes meet."""
    publish(publisher, 500)
    publish(publisher, 20, "urn:fails")
    seen: list[int] = []
    failed: list[object] = []

    async def handle(envelope: Envelope) -> None:
        await asyncio.sleep(0)
        seen.append(envelope.data["n"])

    def handle_at_once(envelope: Envelope) -> None:
        seen.append(envelope.data["n"])

    kind = "aio" if hasattr(consumer_of(), "_loop") else "sync"
    handlers = {"urn:a": handle if kind == "aio" else handle_at_once, "urn:fails": fail}
    consumer = consumer_of(
        handlers, concurrency=7, max_tries=2, on_error=lambda *_: failed.append(1)
    )
    with running(consumer):
        eventually(lambda: len(store.dead()) == 20)
        eventually(lambda: len(seen) == 500)
    assert sorted(seen) == list(range(500))
    assert len(failed) == 40
    assert store.counts() == {"dead": 20}


def test_one_trip_takes_no_more_than_a_script_can_pass_on(
    publisher: RedisPublisher, consumer_of: Make, store: Store
) -> None:
    """Lua passes 8 000 values at most to a command; more lanes than that are filled in turns."""
    for _ in range(5):
        publish(publisher, 900)
    consumer = consumer_of()
    fetched = consumer.feed.fetch(10_000)
    if hasattr(consumer, "_loop"):
        consumer._loop.run_until_complete(fetched)
    assert store.counts() == {"reserved": 1000, "ready": 3500}


def test_a_handler_sees_its_own_context(publisher: RedisPublisher, consumer_of: Make) -> None:
    """What a hook sets around one delivery is not seen in another."""
    publish(publisher, 20)
    current: contextvars.ContextVar[int] = contextvars.ContextVar("current")
    wrong: list[int] = []
    seen: list[int] = []

    class Mark(hooks.Hook):
        @contextmanager
        def processing(self, delivery: Delivery) -> Iterator[None]:
            assert delivery.envelope is not None
            token = current.set(delivery.envelope.data["n"])
            yield
            current.reset(token)

    together = threading.Barrier(4)

    def handle(envelope: Envelope) -> None:
        together.wait(60)
        seen.append(envelope.data["n"])
        if current.get() != envelope.data["n"]:
            wrong.append(envelope.data["n"])

    mark = Mark()
    hooks.register(mark)
    try:
        with running(consumer_of({"urn:a": handle}, concurrency=4)):
            eventually(lambda: len(seen) == 20)
    finally:
        hooks.unregister(mark)
    assert not wrong


def test_a_stop_lets_what_runs_finish(
    publisher: RedisPublisher, consumer_of: Make, store: Store
) -> None:
    """And gives back the rest; the run counts what was handled."""
    publish(publisher, 10)
    release = threading.Event()
    started: list[int] = []
    handled: list[int] = []

    def handle(envelope: Envelope) -> None:
        started.append(envelope.data["n"])
        release.wait(60)

    consumer = consumer_of({"urn:a": handle}, concurrency=3, prefetch=6)
    thread = threading.Thread(target=lambda: handled.append(consumer.run()))
    thread.start()
    eventually(lambda: len(started) == 3)
    consumer.stop()
    eventually(lambda: len(store.ready()) == 7)
    release.set()
    thread.join(60)
    assert handled == [3]
    assert sorted(started) == [0, 1, 2]
    assert store.counts() == {"ready": 7}


def test_an_exit_ends_the_run_after_the_others(
    publisher: RedisPublisher, consumer_of: Make, store: Store
) -> None:
    """``SystemExit`` of one handler: its message counts as failed, the others' end is awaited."""
    publisher.publish("urn:a", {"n": 0})
    publisher.publish("urn:exits", {})
    started, exiting = threading.Event(), threading.Event()

    def wait(_: Envelope) -> None:
        started.set()
        assert exiting.wait(60)

    def leave(_: Envelope) -> None:
        assert started.wait(60)
        threading.Timer(0.1, exiting.set).start()
        raise SystemExit(3)

    consumer = consumer_of({"urn:a": wait, "urn:exits": leave}, concurrency=2, on_error=print)
    with pytest.raises(SystemExit):
        consumer.run()
    assert store.counts() == {"ready": 1}


def test_a_run_that_breaks_off_leaves_nothing_reserved(
    publisher: RedisPublisher, consumer_of: Make, store: Store
) -> None:
    """What runs may end, and what was about to start is given back."""
    publish(publisher, 6)
    answers, ended = iter([True, True, True]), []

    def handle(envelope: Envelope) -> None:
        threading.Event().wait(0.1)
        ended.append(envelope.data["n"])

    consumer = consumer_of({"urn:a": handle}, concurrency=3, prefetch=6)
    with pytest.raises((StopIteration, RuntimeError)):  # a coroutine turns the one into the other
        consumer.run(lambda: next(answers))
    assert sorted(ended) == [0, 1, 2]
    assert store.counts() == {"ready": 3}


def test_a_suspect_is_handled_while_nothing_else_is(
    publisher: RedisPublisher, consumer_of: Make, store: Store
) -> None:
    """It came back twice without a settlement; a crash now shall count for nobody else."""
    publisher.publish("urn:suspect", {})
    for _ in range(2):
        assert consumer_of().reserve(0) is not None
        store.expire()
    publish(publisher, 6)
    running_now: set[int] = set()
    with_suspect: list[int] = []
    seen: list[object] = []
    lock = threading.Lock()

    def handle(envelope: Envelope) -> None:
        own = id(envelope)
        with lock:
            running_now.add(own)
            if envelope.job == "urn:suspect":
                with_suspect.append(len(running_now))
        threading.Event().wait(0.02)
        with lock:
            if envelope.job == "urn:suspect":
                with_suspect.append(len(running_now))
            running_now.discard(own)
        seen.append(envelope)

    with running(consumer_of({"urn:a": handle, "urn:suspect": handle}, concurrency=3)):
        eventually(lambda: len(seen) == 7)
    assert with_suspect == [1, 1]


@pytest.mark.parametrize("signals", [1, 2])
def test_what_takes_too_long_is_given_back(
    publisher: RedisPublisher,
    store: Store,
    redis_url: str,
    queue: str,
    layout: str,
    kind: str,
    signals: int,
) -> None:
    """Threads cannot be interrupted: nobody waits for them, and their messages are not lost."""
    publish(publisher, 4)
    arguments = [sys.executable, "-c", HANGING, kind, redis_url, queue, layout]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            for _ in range(3):
                assert child.stdout.readline() == "started\n"
            for _ in range(signals):
                os.kill(child.pid, signal.SIGTERM)
            assert child.stdout.readline() == "over\n"
            assert child.wait(60) == 0
        finally:
            child.kill()
    assert store.counts() == {"ready": 4}

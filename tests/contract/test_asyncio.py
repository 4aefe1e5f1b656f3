"""What only the asyncio shell has: cancellation, tasks, event loops, handlers of both kinds."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import json
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import redis.asyncio
import uvloop

from babelqueue_redis import (
    AsyncRedisConsumer,
    AsyncRedisPublisher,
    BabelQueueError,
    ConfigurationError,
    Envelope,
    Outcome,
    RedisPublisher,
)
from babelqueue_redis.core.command import Command
from tests.support.handlers import fail
from tests.support.marks import both_layouts
from tests.support.proxy import Proxy, proxy_to
from tests.support.server import Client
from tests.support.store import Store
from tests.support.waiting import blocked, eventually

pytestmark = both_layouts


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Awaitable[Any]], Any]:
    """Run a coroutine in both kinds of event loop."""

    def run_until_complete(work: Awaitable[Any]) -> Any:
        loop = asyncio.new_event_loop() if request.param == "asyncio" else uvloop.new_event_loop()
        try:
            return loop.run_until_complete(work)
        finally:
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    return run_until_complete


Run = Callable[[Awaitable[Any]], Any]


async def publish_one(url: str, queue: str, layout: str) -> None:
    """Publish one message to ``urn:a``."""
    async with AsyncRedisPublisher(url, queue, layout=layout) as publisher:
        await publisher.publish("urn:a", {})


def named(url: str, name: str) -> redis.asyncio.Redis:
    """Return a client whose connections can be told from others on a shared server."""
    made: redis.asyncio.Redis = redis.asyncio.Redis.from_url(url, client_name=name)
    return made


def test_a_message_goes_round(run: Run, redis_url: str, queue: str, layout: str) -> None:
    """With ``async with``, and a client of ``redis.asyncio``."""

    async def main() -> None:
        seen: list[Any] = []

        async def handle(envelope: Envelope, raw: bytes, headers: Any) -> None:
            await asyncio.sleep(0)
            seen.append((envelope.data, json.loads(raw)["data"], dict(headers)))

        client = redis.asyncio.Redis.from_url(redis_url, decode_responses=True)
        async with (
            AsyncRedisPublisher(client, queue, layout=layout) as publisher,
            AsyncRedisConsumer(client, queue, {"urn:a": handle}, layout=layout) as consumer,
        ):
            await publisher.publish("urn:a", {"n": 1}, headers={"k": "v"})
            await publisher.publish_many([("urn:a", {"n": 2})])
            assert [await consumer.poll(0) for _ in range(3)] == [*[Outcome.ACKED] * 2, None]
        await client.aclose()
        assert [data["n"] for data, _, _ in seen] == [1, 2]
        assert seen[0][2] == ({"k": "v"} if layout == "legacy" else {})

    run(main())


def test_400_cancellations_lose_nothing(
    run: Run, redis_url: str, queue: str, layout: str, store: Store
) -> None:
    """At random points of reserves, handlers and settlements; each message is in one place."""
    handled: set[str] = set()

    async def main() -> set[str]:
        async def handle(envelope: Envelope) -> None:
            await asyncio.sleep(random.uniform(0, 0.001))  # noqa: S311
            handled.add(envelope.meta.id)

        publisher = AsyncRedisPublisher(redis_url, queue, layout=layout)
        consumer = AsyncRedisConsumer(
            redis_url, queue, {"urn:a": handle}, layout=layout, max_tries=10_000
        )
        ids = set(await publisher.publish_many([("urn:a", {})] * 300))
        for _ in range(400):
            task = asyncio.ensure_future(consumer.poll(0.05))
            await asyncio.sleep(random.uniform(0, 0.003))  # noqa: S311
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        while consumer._driver._tasks:  # noqa: ASYNC110 - the driver has no event for it
            await asyncio.sleep(0.001)
        assert store.reserved() == []
        waiting = {json.loads(body)["meta"]["id"] for body in store.ready()}
        assert waiting | handled == ids
        while await consumer.poll(0):
            pass
        await consumer.close()
        await publisher.close()
        return ids

    assert run(main()) == handled
    assert store.counts() == {}


def test_a_cancelled_handler_gives_its_message_back(
    run: Run, redis_url: str, queue: str, layout: str, store: Store
) -> None:
    """Unchanged: it did not fail."""

    async def main() -> None:
        started = asyncio.Event()

        async def handle(_: Envelope) -> None:
            started.set()
            await asyncio.sleep(600)

        await publish_one(redis_url, queue, layout)
        consumer = AsyncRedisConsumer(redis_url, queue, {"urn:a": handle}, layout=layout)
        task = asyncio.ensure_future(consumer.poll())
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await consumer.close()

    run(main())
    assert store.counts() == {"ready": 1}
    assert b'"attempts":0' in store.ready()[0]


def test_a_cancelled_wait_ends_at_once(
    run: Run, redis_url: str, queue: str, layout: str, client: Client
) -> None:
    """It holds nothing, so there is nothing to wait for: the link is dropped, reply and all."""

    async def main() -> None:
        async with AsyncRedisConsumer(named(redis_url, queue), queue, layout=layout) as consumer:
            task = asyncio.ensure_future(consumer.poll(60))
            await asyncio.to_thread(eventually, lambda: blocked(client, queue))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert consumer._driver._link is None
            assert not consumer._driver._tasks
            assert await consumer.poll(0) is None

    run(main())


def test_a_cancelled_wait_ends_even_if_redis_py_swallows_it(
    run: Run, redis_url: str, queue: str, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ``wait_for`` does before Python 3.12, when the command was sent just then."""
    sent = asyncio.Event()
    send = redis.asyncio.Connection.send_packed_command

    async def deaf_once(self: Any, data: Any, **options: Any) -> None:
        await send(self, data, **options)
        if any(verb in b"".join(data) for verb in (b"BLMOVE", b"BLPOP")) and not sent.is_set():
            sent.set()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(600)

    async def main() -> None:
        async with AsyncRedisConsumer(redis_url, queue, layout=layout) as consumer:
            monkeypatch.setattr(redis.asyncio.Connection, "send_packed_command", deaf_once)
            task = asyncio.ensure_future(consumer.poll(60))
            await sent.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await consumer.poll(0) is None

    run(main())


def test_tasks_may_share_a_publisher(
    run: Run, redis_url: str, queue: str, layout: str, store: Store
) -> None:
    """One command at a time on its connection, each with its own reply."""

    async def main() -> list[str]:
        publisher = AsyncRedisPublisher(redis_url, queue, layout=layout)
        ids = await asyncio.gather(*(publisher.publish("urn:a", {"n": n}) for n in range(200)))
        await publisher.close()
        return ids

    ids = run(main())
    assert {json.loads(body)["meta"]["id"] for body in store.ready()} == set(ids)
    assert len(store.ready()) == 200


@pytest.mark.skipif(sys.version_info < (3, 11), reason="task groups came with Python 3.11")
def test_a_task_group_ends_its_consumers(
    run: Run, redis_url: str, queue: str, layout: str, client: Client
) -> None:
    """A failure of one task cancels the others, which wait, and nothing hangs."""

    async def main() -> None:
        ours = named(redis_url, queue)
        consumers = [AsyncRedisConsumer(ours, queue, layout=layout) for _ in range(3)]

        async def give_up() -> None:
            await asyncio.to_thread(eventually, lambda: len(blocked(client, queue)) == 3)
            raise ZeroDivisionError

        async with asyncio.TaskGroup() as group:  # type: ignore[attr-defined]  # from 3.11 on
            for consumer in consumers:
                group.create_task(consumer.run())
            group.create_task(give_up())

    with pytest.raises(BaseException) as caught:  # noqa: PT011 - an ExceptionGroup
        run(main())
    assert isinstance(caught.value.exceptions[0], ZeroDivisionError)  # type: ignore[attr-defined]


VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


def test_a_plain_handler_runs_in_a_thread_with_the_context(
    run: Run, redis_url: str, queue: str, layout: str
) -> None:
    """The loop is not blocked, and context variables are there."""
    seen: list[Any] = []

    async def main() -> None:
        await publish_one(redis_url, queue, layout)
        consumer = AsyncRedisConsumer(
            redis_url,
            queue,
            {"urn:a": lambda envelope: seen.append((threading.current_thread(), VARIABLE.get()))},
            layout=layout,
        )
        VARIABLE.set("set")
        assert await consumer.poll(0) is Outcome.ACKED
        await consumer.close()

    run(main())
    ((thread, value),) = seen
    assert thread is not threading.main_thread()
    assert value == "set"


def test_on_error_may_be_awaited(run: Run, redis_url: str, queue: str, layout: str) -> None:
    """As a handler may."""
    seen: list[str] = []

    async def tell(error: BaseException, _envelope: Any, _raw: bytes) -> None:
        await asyncio.sleep(0)
        seen.append(str(error))

    async def main() -> None:
        await publish_one(redis_url, queue, layout)
        consumer = AsyncRedisConsumer(
            redis_url, queue, {"urn:a": fail}, layout=layout, on_error=tell
        )
        assert await consumer.poll(0) is Outcome.RETRIED
        await consumer.close()

    run(main())
    assert seen == ["boom"]


def test_a_command_cancelled_under_way_leaves_no_reply_behind(run: Run, redis_url: str) -> None:
    """The next one has its own."""

    def echo(text: str) -> Command[str]:
        return Command("ECHO", (), (text,), bytes.decode)

    async def main() -> None:
        driver = AsyncRedisPublisher(redis_url, "q")._driver
        for i in range(300):
            task = asyncio.ensure_future(driver.send(echo(str(i))))
            await asyncio.sleep(random.uniform(0, 0.0005))  # noqa: S311
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                assert await task == str(i)
            assert await driver.send(echo("after")) == "after"
        await driver.close()

    run(main())


def test_another_event_loop_gets_another_connection(
    redis_url: str, queue: str, store: Store
) -> None:
    """The one of the first loop is of no use there; as when ``asyncio.run`` is called twice."""
    publisher = AsyncRedisPublisher(redis_url, queue, layout=store.layout)
    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    first.run_until_complete(publisher.publish("urn:a", {}))
    link = publisher._driver._link
    assert link is not None
    try:
        second.run_until_complete(publisher.publish("urn:a", {}))
    finally:
        second.run_until_complete(publisher.close())
        first.run_until_complete(link.connection.disconnect(nowait=True))
        second.close()
        first.close()
    assert len(store.ready()) == 2


def test_a_run_is_stopped_and_not_started_twice(
    run: Run, redis_url: str, queue: str, layout: str
) -> None:
    """Out of a handler, as out of any task."""

    async def main() -> None:
        async def handle(_: Envelope) -> None:
            with pytest.raises(BabelQueueError, match="running already"):
                await consumer.run()
            consumer.stop()

        consumer = AsyncRedisConsumer(redis_url, queue, {"urn:a": handle}, layout=layout)
        publisher = AsyncRedisPublisher(redis_url, queue, layout=layout)
        await publisher.publish_many([("urn:a", {})] * 2)
        assert await consumer.run() == 1
        assert await consumer.run() == 1
        await publisher.close()

    run(main())


def test_a_blocking_client_is_refused(queue: str) -> None:
    """With the kind that would serve."""
    with pytest.raises(ConfigurationError, match=r"redis\.asyncio\.Redis"):
        AsyncRedisPublisher(redis.Redis(), queue)  # type: ignore[arg-type]


WORKER = """
import asyncio, sys
from babelqueue_redis import AsyncRedisConsumer

url, queue, layout, shutdown_timeout, handling = sys.argv[1:]
say = lambda line: print(line, flush=True)
consumer = AsyncRedisConsumer(url, queue, layout=layout, shutdown_timeout=float(shutdown_timeout))

@consumer.handler("urn:a")
async def handle(envelope):
    say("started")
    if handling == "short":
        await asyncio.to_thread(sys.stdin.readline)
    elif handling == "long":
        await asyncio.sleep(600)
    elif handling == "swallowing":
        try:
            await asyncio.sleep(600)
        except BaseException:
            say("swallowed")
        await asyncio.sleep(600)
    say("finished")

async def main():
    say(f"handled {await consumer.run()}")

say("ready")
asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("handling", "timeout", "signals", "output", "left"),
    [
        ("short", "30", 1, "finished\nhandled 1", {}),
        ("long", "0.3", 1, "handled 0", {"ready": 1}),
        ("long", "600", 2, "handled 0", {"ready": 1}),
        ("swallowing", "0.3", 1, "swallowed\nhandled 0", {"ready": 1}),
    ],
)
def test_signals_end_a_run_as_in_the_blocking_shell(
    redis_url: str,
    queue: str,
    layout: str,
    store: Store,
    handling: str,
    timeout: str,
    signals: int,
    output: str,
    left: dict[str, int],
) -> None:
    """Gracefully at first, and at once after the time, or on a second signal."""
    child = subprocess.Popen(
        [sys.executable, "-c", WORKER, redis_url, queue, layout, timeout, handling],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == "ready\n"
        RedisPublisher(redis_url, queue, layout=layout).publish("urn:a", {})
        assert child.stdout.readline() == "started\n"
        for number in (signal.SIGTERM, signal.SIGINT)[:signals]:
            child.send_signal(number)
        out, _ = child.communicate("finish\n" if handling == "short" else None, timeout=60)
    finally:
        child.kill()
        child.wait()
    assert out.strip() == output
    assert child.returncode == 0
    assert store.counts() == left


def test_a_run_goes_on_after_an_outage(
    run: Run,
    redis_url: str,
    queue: str,
    layout: str,
    client: Client,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It says so once, however often it tries, and once more when all is well."""
    seen: list[int] = []

    async def main(proxy: Proxy) -> None:
        consumer = AsyncRedisConsumer(
            named(proxy.url, queue),
            queue,
            {"urn:a": lambda envelope: seen.append(1) or consumer.stop()},  # type: ignore[func-returns-value]
            layout=layout,
        )
        task = asyncio.ensure_future(consumer.run())
        (ours,) = await asyncio.to_thread(eventually, lambda: blocked(client, queue))
        proxy.cut_before_the_reply_to(b"SETNAME", times=2)
        client.client_kill_filter(_id=ours)
        await publish_one(redis_url, queue, layout)
        assert await asyncio.wait_for(task, 60) == 1
        assert proxy.requests_with(b"SETNAME") == 4

    with proxy_to(redis_url) as proxy:
        run(main(proxy))
    assert seen == [1]
    lost, found = (record.getMessage() for record in caplog.records)
    assert "cannot be served for now" in lost
    assert "is served again" in found

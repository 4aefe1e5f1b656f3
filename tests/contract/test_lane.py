"""How handlers end in the asyncio shell, and what signals do to several runs of one loop."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pydantic
import pytest

from babelqueue_redis import AsyncRedisConsumer, AsyncRedisPublisher, Outcome, RedisConsumer
from babelqueue_redis.core.command import Command, Op
from tests.support.server import Client
from tests.support.store import Store

Make = Callable[..., RedisConsumer]


@pytest.fixture(params=["legacy", "zset"])
def layout(request: pytest.FixtureRequest) -> str:
    """Both layouts."""
    return str(request.param)


@pytest.fixture(params=["sync", "aio"])
def kind(request: pytest.FixtureRequest) -> str:
    """Both shells."""
    return str(request.param)


def stop_iteration(_: Any) -> None:
    """Raise what a future cannot hold."""
    next(iter([]))


def generator_exit(_: Any) -> None:
    """Raise what ends generators."""
    raise GeneratorExit


@pytest.mark.timeout(60)
def test_a_handler_that_raises_stop_iteration_has_failed(publisher: Any, consumer_of: Make) -> None:
    """And hangs nobody."""
    consumer = consumer_of({"urn:a": stop_iteration}, max_tries=1)
    publisher.publish("urn:a", {})
    assert consumer.poll(0) is Outcome.DEAD_LETTERED


def test_whatever_ends_a_handler_its_message_is_in_one_place(
    publisher: Any, consumer_of: Make, store: Store
) -> None:
    """What is no ``Exception`` gives it back."""
    consumer = consumer_of({"urn:a": generator_exit})
    publisher.publish("urn:a", {})
    with pytest.raises((GeneratorExit, RuntimeError)):
        consumer.poll(0)
    assert store.counts() == {"ready": 1}


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tasks tell since Python 3.11")
def test_a_handler_whose_own_subtask_is_cancelled_has_failed(
    redis_url: str, queue: str, layout: str, store: Store
) -> None:
    """Its consumer was not cancelled: the message is dead-lettered in the end, and others run."""

    async def handle(_: Any) -> None:
        task = asyncio.ensure_future(asyncio.sleep(600))
        await asyncio.sleep(0)
        task.cancel()
        await task

    async def main() -> None:
        async with (
            AsyncRedisPublisher(redis_url, queue, layout=layout) as publisher,
            AsyncRedisConsumer(
                redis_url, queue, {"urn:a": handle}, layout=layout, max_tries=1
            ) as consumer,
        ):
            await publisher.publish("urn:a", {})
            assert await consumer.poll(0) is Outcome.DEAD_LETTERED

    asyncio.run(main())
    assert store.counts() == {"dead": 1}


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tasks tell since Python 3.11")
def test_a_cancelled_handler_that_raises_an_error_of_its_own_did_not_fail(
    redis_url: str, queue: str, layout: str, store: Store
) -> None:
    """Its message is given back, and the cancellation goes on."""

    async def main() -> None:
        started = asyncio.Event()

        async def handle(_: Any) -> None:
            started.set()
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                raise ZeroDivisionError from None

        async with (
            AsyncRedisPublisher(redis_url, queue, layout=layout) as publisher,
            AsyncRedisConsumer(
                redis_url, queue, {"urn:a": handle}, layout=layout, max_tries=1
            ) as consumer,
        ):
            await publisher.publish("urn:a", {})
            task = asyncio.ensure_future(consumer.poll(0))
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    assert store.counts() == {"ready": 1}


class Broken(Exception):  # noqa: N818 - short
    """An exception that cannot even be described."""

    errors = "not callable"

    def __str__(self) -> str:
        """Fail."""
        raise ZeroDivisionError


class Exploding(pydantic.BaseModel):
    """A model whose check raises whatever it is told to."""

    how: str

    @pydantic.model_validator(mode="after")
    def explode(self) -> Exploding:
        """Raise."""
        raise {"broken": Broken, "exit": SystemExit, "interrupt": KeyboardInterrupt}[self.how]


@pytest.mark.parametrize("how", ["broken", "exit", "interrupt"])
def test_whatever_a_types_check_raises_its_message_is_in_one_place(
    publisher: Any, consumer_of: Make, store: Store, how: str
) -> None:
    """Never reserved for ever: a check is the handler's own code."""
    consumer = consumer_of(max_tries=1, retry_after=None)
    consumer.handler("urn:a", payload=Exploding)(lambda envelope: None)
    publisher.publish("urn:a", {"how": how})
    with contextlib.suppress(SystemExit, KeyboardInterrupt):
        consumer.poll(0)
    assert store.counts() == ({"ready": 1} if how == "interrupt" else {"dead": 1})


TWO_RUNS = """
import asyncio, signal, sys, os
if sys.argv[3] == "uvloop":
    import uvloop; uvloop.install()
from babelqueue_redis import AsyncRedisConsumer

url, queue, _ = sys.argv[1:]

async def main():
    loop = asyncio.get_running_loop()
    own = []
    loop.add_signal_handler(signal.SIGTERM, own.append, 1)
    runs = [asyncio.ensure_future(AsyncRedisConsumer(url, queue + end).run()) for end in "ab"]
    await asyncio.sleep(0.2)
    os.kill(os.getpid(), signal.SIGTERM)
    print(await asyncio.wait_for(asyncio.gather(*runs), 30))
    before = len(own)
    os.kill(os.getpid(), signal.SIGTERM)
    while len(own) == before:
        await asyncio.sleep(0.01)
    print("own handler again")
    loop.remove_signal_handler(signal.SIGTERM)
    child = os.fork()
    if not child:
        signal.pause()
    os.kill(child, signal.SIGTERM)
    print(os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGTERM)

asyncio.run(main())
"""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_signal_ends_every_run_of_a_loop_and_is_given_back(
    redis_url: str, queue: str, loop: str
) -> None:
    """The handlers that the program had serve again afterwards."""
    command = [sys.executable, "-W", "ignore", "-c", TWO_RUNS, redis_url, queue, loop]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.stdout.split("\n")[:3] == ["[0, 0]", "own handler again", "True"], done.stderr


def test_a_cancellation_is_not_replaced_by_a_failed_hand_back(
    redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It goes on, and the log says what became of the message."""

    def take() -> Op[str | None]:
        (taken,) = yield (Command("ECHO", (), ("taken",), bytes.decode),)
        return str(taken)

    def refused(taken: str | None) -> Command[bool]:
        return Command("GETSET", (), (str(taken),), bool)  # an argument is missing

    async def main() -> None:
        async with AsyncRedisConsumer(redis_url, "q") as consumer:
            task = asyncio.ensure_future(consumer._driver.take(take(), refused))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    assert "comes back after retry_after" in caplog.text


def test_a_killed_link_is_one_clear_error_for_each_task(
    redis_url: str, queue: str, client: Client, layout: str
) -> None:
    """The commands of other tasks, on the next link, are left alone."""
    from babelqueue_redis import PublishError  # noqa: PLC0415 - here alone

    async def main() -> None:
        publisher = AsyncRedisPublisher(redis_url, queue, layout=layout)
        stopped = False

        async def publish() -> None:
            while not stopped:
                with contextlib.suppress(PublishError):
                    await publisher.publish("urn:a", {})

        tasks = [asyncio.ensure_future(publish()) for _ in range(20)]
        for _ in range(40):
            await asyncio.sleep(0.005)
            client.client_kill_filter(_type="normal", skipme=True)
            await publisher.close()
        stopped = True
        await asyncio.gather(*tasks)
        await publisher.close()

    asyncio.run(main())

"""What several tasks publish at the same moment, and what becomes of each of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.instrumentation.redis import RedisInstrumentor
from opentelemetry.trace import SpanKind

from babelqueue_redis import AsyncRedisPublisher, Publication, PublishError
from babelqueue_redis.hooks import Hook, register, unregister
from tests.support.marks import both_layouts
from tests.support.proxy import proxy_to
from tests.support.server import Client
from tests.support.spans import Spans
from tests.support.store import Store
from tests.support.waiting import calls, eventually

pytestmark = both_layouts


def url_of(client: Client) -> str:
    """Return the URL of a private server."""
    return f"redis://127.0.0.1:{client.connection_pool.connection_kwargs['port']}/0"


def bodies(store: Store) -> list[Any]:
    """Return the envelopes that wait, in their order."""
    return [json.loads(element) for element in store.ready()]


def trips(client: Client, layout: str) -> int:
    """Count the commands that published something, on a server of one's own."""
    return calls(client, "rpush") if layout == "legacy" else calls(client, "evalsha")


async def published(publisher: AsyncRedisPublisher, count: int, **options: Any) -> list[Any]:
    """Publish so many at the same moment; return ids and errors."""
    work = [publisher.publish("urn:a", {"n": n}, **options) for n in range(count)]
    return await asyncio.gather(*work, return_exceptions=True)


def test_what_tasks_publish_together_shares_a_trip(private_client: Client, layout: str) -> None:
    """In their order, each with the id that its task is given, and 1 000 at most."""
    store = Store(private_client, "q", layout)

    async def main() -> list[Any]:
        async with AsyncRedisPublisher(url_of(private_client), "q", layout=layout) as publisher:
            await publisher.publish("urn:first", {})
            before = trips(private_client, layout)
            ids = await published(publisher, 1500)
            assert trips(private_client, layout) - before == 2
            return ids

    ids = asyncio.run(main())
    assert [body["meta"]["id"] for body in bodies(store)[1:]] == ids
    assert [body["data"]["n"] for body in bodies(store)[1:]] == list(range(1500))


def test_large_messages_travel_alone(private_client: Client, layout: str) -> None:
    """A trip is bounded by its bytes, too."""

    async def main() -> None:
        async with AsyncRedisPublisher(url_of(private_client), "q", layout=layout) as publisher:
            await publisher.publish("urn:first", {})
            before = trips(private_client, layout)
            large = {"text": "x" * 600_000}
            await asyncio.gather(*(publisher.publish("urn:a", large) for _ in range(3)))
            assert trips(private_client, layout) - before == 3

    asyncio.run(main())


def test_batches_and_single_messages_keep_their_order(
    redis_url: str, queue: str, layout: str, store: Store
) -> None:
    """A batch is stored whole, where it was published."""

    async def main() -> None:
        async with AsyncRedisPublisher(redis_url, queue, layout=layout) as publisher:
            batch = [("urn:a", {"n": n}) for n in (1, 2, 3)]
            await asyncio.gather(
                publisher.publish("urn:a", {"n": 0}),
                publisher.publish_many(batch),
                publisher.publish("urn:a", {"n": 4}),
            )

    asyncio.run(main())
    assert [body["data"]["n"] for body in bodies(store)] == [0, 1, 2, 3, 4]


def test_each_has_its_own_error(redis_url: str, queue: str, client: Client) -> None:
    """The delayed ones are refused; those that are ready at once are stored."""
    client.set(f"queues:{queue}:delayed", "of the wrong type")

    async def main() -> tuple[list[Any], list[Any]]:
        async with AsyncRedisPublisher(redis_url, queue, layout="zset") as publisher:
            return await asyncio.gather(published(publisher, 3), published(publisher, 3, delay=60))

    ready, delayed = asyncio.run(main())
    elements = client.lrange(f"queues:{queue}", 0, -1)
    stored = [json.loads(element)["meta"]["id"] for element in elements]
    assert stored == ready
    assert [type(error) for error in delayed] == [PublishError] * 3
    assert len({error.message_id for error in delayed} | set(stored)) == 6
    assert not any(error.may_be_stored for error in delayed)


def test_a_lost_reply_is_told_to_each(
    redis_url: str, queue: str, layout: str, store: Store
) -> None:
    """With the id that it would have returned: the message may be stored, and nothing is resent."""
    with proxy_to(redis_url) as proxy:

        async def main() -> list[Any]:
            async with AsyncRedisPublisher(proxy.url, queue, layout=layout) as publisher:
                await publisher.publish("urn:first", {})
                proxy.cut_before_the_reply_to(b"urn:a")
                lost = await published(publisher, 5)
                assert await publisher.publish("urn:last", {})
                return lost

        lost = asyncio.run(main())
    assert all(error.may_be_stored for error in lost)
    stored = [body["meta"]["id"] for body in bodies(store)]
    assert stored[1:-1] == [error.message_id for error in lost]


def test_one_that_is_cancelled_before_its_trip_is_not_stored(
    redis_url: str, queue: str, layout: str, store: Store
) -> None:
    """The others are."""

    async def main() -> None:
        async with AsyncRedisPublisher(redis_url, queue, layout=layout) as publisher:
            tasks = [asyncio.create_task(publisher.publish("urn:a", {"n": n})) for n in range(3)]
            await asyncio.sleep(0)
            tasks[1].cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            assert [isinstance(end, str) for end in ended] == [True, False, True]

    asyncio.run(main())
    assert [body["data"]["n"] for body in bodies(store)] == [0, 2]


def test_one_that_is_cancelled_on_its_trip_leaves_the_others_alone(
    private_client: Client, layout: str
) -> None:
    """It waits for the end, and is stored like them."""
    store = Store(private_client, "q", layout)

    async def main() -> None:
        with proxy_to(url_of(private_client)) as proxy:
            async with AsyncRedisPublisher(proxy.url, "q", layout=layout) as publisher:
                await publisher.publish("urn:first", {})
                private_client.client_pause(60_000, all=False)
                tasks = [
                    asyncio.create_task(publisher.publish("urn:a", {"n": n})) for n in range(3)
                ]
                await asyncio.to_thread(eventually, lambda: proxy.requests_with(b"urn:a"))
                tasks[1].cancel()
                await asyncio.sleep(0)
                late = asyncio.create_task(publisher.publish("urn:a", {"n": 3}))
                private_client.client_unpause()
                ended = await asyncio.gather(*tasks, late, return_exceptions=True)
                assert [isinstance(end, str) for end in ended] == [True, False, True, True]

    asyncio.run(main())
    assert [body["data"].get("n") for body in bodies(store)] == [None, 0, 1, 2, 3]


def test_what_a_loop_left_behind_does_not_hinder_the_next(
    redis_url: str, queue: str, layout: str, store: Store
) -> None:
    """The first loop ends while one publish waits."""
    publisher = AsyncRedisPublisher(redis_url, queue, layout=layout)

    async def leave() -> None:
        task = asyncio.create_task(publisher.publish("urn:left", {}))
        await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def go_on() -> None:
        assert all(isinstance(each, str) for each in await published(publisher, 3))
        await publisher.close()

    asyncio.run(leave())
    for _ in range(2):
        asyncio.run(go_on())
    assert [body["job"] for body in bodies(store)] == ["urn:a"] * 6


class Counting(Hook):
    """Counts what is published one by one."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    @contextlib.contextmanager
    def publishing(self, publication: Publication) -> Iterator[Publication]:
        """Note it when it has been sent."""
        yield publication
        self.seen.append(publication.message_id)


def test_hooks_enclose_each_publish(redis_url: str, queue: str, layout: str, store: Store) -> None:
    """However many share the trip."""
    hook = Counting()
    register(hook)

    async def main() -> list[Any]:
        async with AsyncRedisPublisher(redis_url, queue, layout=layout) as publisher:
            return await published(publisher, 10)

    try:
        ids = asyncio.run(main())
    finally:
        unregister(hook)
    assert hook.seen == ids == [body["meta"]["id"] for body in bodies(store)]


# redis-py warns of the client that shows its commands, whose connection the driver closes
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:Unclosed client session:ResourceWarning")
def test_who_watches_commands_sees_one_inside_each_publish(
    redis_url: str, queue: str, layout: str, spans: Spans
) -> None:
    """As the instrumentation of redis-py does: there each publish has a trip of its own."""
    RedisInstrumentor().instrument(tracer_provider=trace.get_tracer_provider())

    async def main() -> None:
        async with AsyncRedisPublisher(redis_url, queue, layout=layout) as publisher:
            await published(publisher, 4)

    try:
        asyncio.run(main())
    finally:
        RedisInstrumentor().uninstrument()
    found = spans.all
    sends = {span.context.span_id for span in found if span.kind is SpanKind.PRODUCER}
    parents = [span.parent for span in found if span.kind is SpanKind.CLIENT]
    commands = {parent.span_id for parent in parents if parent}
    assert len(sends) == 4
    assert sends <= commands

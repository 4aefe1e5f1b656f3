"""Handles orders; packing one is a message of its own."""

import os

import redis

from babelqueue_redis import Envelope, RedisConsumer, RedisPublisher

client = redis.Redis.from_url(os.environ["BABELQUEUE_REDIS_URL"])
queue = os.environ.get("QUEUE", "orders")
publisher = RedisPublisher(client, queue)
consumer = RedisConsumer(
    client,
    queue,
    max_tries=2,
    on_error=lambda error, _envelope, _raw: print(f"an order failed: {error}", flush=True),
)


@consumer.handler("urn:shop:order:placed")
def placed(envelope: Envelope) -> None:
    """Check an order and have it packed."""
    if envelope.data["total"] < 0:
        message = "the total is negative"
        raise ValueError(message)
    publisher.publish("urn:shop:order:packed", {"order_id": envelope.data["order_id"]})


@consumer.handler("urn:shop:order:packed")
def packed(envelope: Envelope) -> None:
    """Say so."""
    print(f"order {envelope.data['order_id']} is packed", flush=True)


consumer.run()

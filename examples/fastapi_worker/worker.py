"""Handles orders, in a process of its own. It has no tracing code either."""

import os

import redis

from babelqueue_redis import Envelope, RedisConsumer

client = redis.Redis.from_url(os.environ["BABELQUEUE_REDIS_URL"])
consumer = RedisConsumer(client, os.environ.get("QUEUE", "orders"))


@consumer.handler("urn:shop:order:placed")
def placed(envelope: Envelope) -> None:
    """Say so."""
    print(f"order {envelope.data['order_id']} is packed", flush=True)


consumer.run()

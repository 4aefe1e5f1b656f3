"""Handles the receipts that PHP sends."""

import os

import redis

from babelqueue_redis import Envelope, RedisConsumer

client = redis.Redis.from_url(os.environ["BABELQUEUE_REDIS_URL"])
queue = os.environ.get("PREFIX", "") + "receipts"
consumer = RedisConsumer(client, queue, layout="zset")


@consumer.handler("urn:shop:receipt:sent")
def sent(envelope: Envelope) -> None:
    """Say who sent it."""
    print(f"Python has a receipt from {envelope.meta.lang}: {envelope.data['for']}", flush=True)


consumer.run()

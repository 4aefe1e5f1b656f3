"""Publishes two orders: one goes through, one is bad."""

import os

import redis

from babelqueue_redis import RedisPublisher

client = redis.Redis.from_url(os.environ["BABELQUEUE_REDIS_URL"])
publisher = RedisPublisher(client, os.environ.get("QUEUE", "orders"))
publisher.publish("urn:shop:order:placed", {"order_id": 1042, "total": 99.90})
publisher.publish("urn:shop:order:placed", {"order_id": 1043, "total": -1})

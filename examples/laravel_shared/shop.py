"""Places an order, and a reminder of it that is due two seconds later."""

import os

import redis

from babelqueue_redis import RedisPublisher

client = redis.Redis.from_url(os.environ["BABELQUEUE_REDIS_URL"])
queue = os.environ.get("PREFIX", "") + "orders"
publisher = RedisPublisher(client, queue, layout="zset")
publisher.publish("urn:shop:order:placed", {"order_id": 1042})
publisher.publish("urn:shop:order:reminder", {"order_id": 1042}, delay=2)

"""Places three orders: one goes through, one cannot be shipped, one cannot be paid."""

import os

import redis

from babelqueue_redis import RedisPublisher

client = redis.Redis.from_url(os.environ["BABELQUEUE_REDIS_URL"])
queue = os.environ.get("PREFIX", "") + "orders"
publisher = RedisPublisher(client, queue, layout=os.environ.get("LAYOUT", "legacy"))
for order_id, total, address in [
    (1042, 99.90, "Main St 1"),
    (1043, 12.50, ""),
    (1044, 0, "Hill 2"),
]:
    order = {"order_id": order_id, "total": total, "address": address}
    publisher.publish("urn:shop:order:placed", order)

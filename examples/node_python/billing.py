"""Bills what Node has set aside, and has Node ship it. A free order fails, and is a dead letter."""

import os

import redis

from babelqueue_redis import Envelope, RedisConsumer, RedisPublisher

client = redis.Redis.from_url(os.environ["BABELQUEUE_REDIS_URL"])
prefix = os.environ.get("PREFIX", "")
layout = os.environ.get("LAYOUT", "legacy")
publisher = RedisPublisher(client, f"{prefix}shipping", layout=layout)
consumer = RedisConsumer(client, f"{prefix}billing", layout=layout, on_error=lambda *_: None)


@consumer.handler("urn:shop:order:reserved")
def reserved(envelope: Envelope, _raw: bytes, headers: dict[str, str]) -> None:
    """Bill an order and have it shipped."""
    order = envelope.data
    if order["total"] <= 0:
        message = f"order {order['order_id']} costs nothing"
        raise ValueError(message)
    carried = ", ".join(headers) or "no headers"
    print(
        f"billing (Python): order {order['order_id']} is paid; it came with {carried}", flush=True
    )
    publisher.publish("urn:shop:order:paid", order)


consumer.run()

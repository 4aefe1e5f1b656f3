"""Does what ``worker.php`` does, where there is no PHP: sends a receipt for each order."""

import os

import redis

from babelqueue_redis import Envelope, RedisConsumer, RedisPublisher

client = redis.Redis.from_url(os.environ["BABELQUEUE_REDIS_URL"])
prefix = os.environ.get("PREFIX", "")
publisher = RedisPublisher(client, f"{prefix}receipts", layout="zset")
consumer = RedisConsumer(client, f"{prefix}orders", layout="zset")


@consumer.handler("urn:shop:order:placed")
@consumer.handler("urn:shop:order:reminder")
def handle(envelope: Envelope) -> None:
    """Send a receipt."""
    print(f"Python handles {envelope.job} {envelope.data['order_id']}", flush=True)
    receipt = {"order_id": envelope.data["order_id"], "for": envelope.job}
    publisher.publish("urn:shop:receipt:sent", receipt)


consumer.run()

"""Handles both messages, and says what came with them."""

import os
from collections.abc import Mapping

import redis
from opentelemetry import baggage, trace

from babelqueue_redis import Envelope, RedisConsumer

client = redis.Redis.from_url(os.environ["BABELQUEUE_REDIS_URL"])
consumer = RedisConsumer(client, os.environ.get("QUEUE", "orders"))


@consumer.handler("urn:shop:order:placed")
@consumer.handler("urn:shop:outbox:emptied")
def handle(envelope: Envelope, _raw: bytes, headers: Mapping[str, str]) -> None:
    """Show the headers, and note on the span what the baggage says."""
    print(f"{envelope.job} came with {', '.join(sorted(headers))}", flush=True)
    span = trace.get_current_span()
    span.set_attribute("app.tenant", str(baggage.get_baggage("tenant") or ""))
    span.set_attribute("app.reason", headers["reason"])


consumer.run()

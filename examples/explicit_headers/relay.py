"""Publishes what stands in the outbox, later and in a trace of its own.

The headers of the note name a creation context, so they are published as they are. Those of the
second message name none, so the instrumentation adds the one of its publish span.
"""

import json
import os
from pathlib import Path

import redis
from opentelemetry import trace

from babelqueue_redis import RedisPublisher

client = redis.Redis.from_url(os.environ["BABELQUEUE_REDIS_URL"])
publisher = RedisPublisher(client, os.environ.get("QUEUE", "orders"))
note = json.loads(Path(os.environ["OUTBOX"]).read_text(encoding="utf-8"))
with trace.get_tracer("relay").start_as_current_span("empty the outbox"):
    publisher.publish("urn:shop:order:placed", note["data"], headers=note["headers"])
    publisher.publish("urn:shop:outbox:emptied", {"notes": 1}, headers={"reason": "report"})

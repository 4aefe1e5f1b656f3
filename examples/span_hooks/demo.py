"""Add to the spans, and run code of one's own around every delivery.

Exits with 1 when something is missing.
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
import sys
import uuid
from collections.abc import Iterator

from opentelemetry.instrumentation.babelqueue import BabelQueueInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Span

from babelqueue_redis import Envelope, RedisConsumer, RedisPublisher, hooks
from babelqueue_redis.steps import Settling
from babelqueue_redis.values import Delivery, Publication
from kit.redis_server import redis_url

logger = logging.getLogger("shop")
current_message: contextvars.ContextVar[str] = contextvars.ContextVar("message", default="-")
sessions_closed = 0


def on_publish(span: Span, publication: Publication) -> None:
    """Say which team sends it."""
    span.set_attribute("shop.team", publication.headers.get("team", "unknown"))


def on_process(span: Span, delivery: Delivery) -> None:
    """Say what the order is worth; never the payload as a whole."""
    if delivery.envelope is not None:
        span.set_attribute("shop.order.total", delivery.envelope.data["total"])


def on_settle(span: Span, settling: Settling) -> None:
    """Say it in the words of the shop."""
    span.set_attribute("shop.done", str(settling.outcome) == "acked")


class Middleware(hooks.Hook):
    """What an application does around a delivery, with tracing or without."""

    @contextlib.contextmanager
    def processing(self, delivery: Delivery) -> Iterator[None]:
        """Let log lines name the message, and close what its handler opened."""
        global sessions_closed  # noqa: PLW0603 - stands for a pool of database sessions
        token = current_message.set(delivery.message_id)
        try:
            yield
        finally:
            current_message.reset(token)
            sessions_closed += 1


class NamesTheMessage(logging.Filter):
    """Puts the message's id into every log line."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add it."""
        record.message_id = current_message.get()
        return True


def handle(envelope: Envelope) -> None:
    """Handle an order."""
    logger.info("an order of %s", envelope.data["total"])


def main() -> int:
    """Run the demo."""
    stream = logging.StreamHandler(sys.stdout)
    stream.addFilter(NamesTheMessage())
    stream.setFormatter(logging.Formatter("%(message_id)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[stream])
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    BabelQueueInstrumentor().instrument(
        tracer_provider=provider,
        publish_hook=on_publish,
        process_hook=on_process,
        settle_hook=on_settle,
        settle_spans=True,
    )
    hooks.register(Middleware())
    with redis_url(allow_fake=True) as url:
        queue = f"orders-{uuid.uuid4().hex[:8]}"
        publisher = RedisPublisher(url, queue)
        publisher.publish("urn:shop:order:placed", {"total": 99.9}, headers={"team": "checkout"})
        RedisConsumer(url, queue, {"urn:shop:order:placed": handle}).poll(0)
    found = {}
    for span in exporter.get_finished_spans():
        ours = {k: v for k, v in (span.attributes or {}).items() if k.startswith("shop.")}
        print(span.name, ours)
        found.update(ours)
    wanted = {"shop.team": "checkout", "shop.order.total": 99.9, "shop.done": True}
    return 0 if found == wanted and sessions_closed == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
